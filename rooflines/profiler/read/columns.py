"""Typed events to columns. Nothing is kept of an event but its numbers; equal names and equal argument bytes
share one entry.

A trace with a million events has a few hundred distinct signatures and a few thousand names, and only those
are ever parsed.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import chain, compress
from operator import attrgetter
from typing import Any, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from rooflines.arguments import arg
from rooflines.errors import TraceError
from rooflines.profiler.read import intervals
from rooflines.profiler.read.communication_kernels import communicates
from rooflines.profiler.read.document import Args, Event
from rooflines.profiler.read.exchanges import noted
from rooflines.profiler.read.intervals import Intervals
from rooflines.profiler.read.numbers import decimal, integer, integers, nanoseconds, ordinals
from rooflines.profiler.read.records import (
    ADDED,
    ANNOTATION,
    COMMUNICATION,
    KERNEL,
    LINE_PREFIX,
    MEMCPY,
    MEMSET,
    MODULE_PREFIX,
    OPERATOR,
    PYTHON,
    RUNTIME,
    STEP_PREFIX,
    DeviceEvents,
    Exchange,
    Frames,
    HostEvents,
    Int8s,
    Int32s,
    Int64s,
    LaunchRecord,
    LaunchShape,
    Mask,
    MemoryEvents,
    ReadOptions,
    Scope,
    StreamWaits,
)
from rooflines.profiler.read.request_marks import PHASE_PREFIXES
from rooflines.profiler.read.signature import Signature, collective, from_kineto
from rooflines.profiler.read.work_ranges import RANGE_PREFIX, from_range_name
from rooflines.units import si

# Category names since 2021, of CUDA, ROCm, XPU, MTIA, HPU and private backends -> our kinds.
HOST_KINDS = {
    "cpu_op": OPERATOR,
    "Operator": OPERATOR,
    "user_annotation": ANNOTATION,
    "python_function": PYTHON,
    **dict.fromkeys(
        (
            "cuda_runtime",
            "cuda_driver",
            "Runtime",
            "hip_runtime",
            "xpu_runtime",
            "xpu_driver",
            "mtia_runtime",
            "glow_runtime",
            "privateuse1_runtime",
            "privateuse1_driver",
        ),
        RUNTIME,
    ),
}
DEVICE_KINDS = {
    "kernel": KERNEL,
    "Kernel": KERNEL,
    "mtia_ccp_events": KERNEL,
    "hpu_op": KERNEL,
    "collective_comm": COMMUNICATION,
    "gpu_memcpy": MEMCPY,
    "Memcpy": MEMCPY,
    "gpu_memset": MEMSET,
    "Memset": MEMSET,
}

# Categories that say whose device it is; those of CUDA are those of ROCm as well.
_PLATFORMS = {
    "xpu_runtime": "xpu",
    "xpu_driver": "xpu",
    "mtia_runtime": "mtia",
    "mtia_ccp_events": "mtia",
    "hpu_op": "hpu",
}

# What waited for which stream, besides the calls themselves; a wait for all streams has none.
_WAIT, _STREAM_WAIT, _STREAM_SYNC = "cuda_sync", "Stream Wait Event", "Stream Sync"

# The instant at which Kineto stopped recording.
_STOP = "Record Window End"

# What Kineto notes of the profiler's own work, such as requests of buffers, and of the driver's, which loads
# what the program calls.
_OVERHEAD = "overhead"
_OF_THE_DRIVER = ("Runtime Triggered Module Loading", "Lazy Function Loading")
_ANNOTATION_PREFIXES = (
    MODULE_PREFIX,
    STEP_PREFIX,
    LINE_PREFIX,
    *PHASE_PREFIXES,
    "Optimizer.",
    "enumerate(DataLoader)",
)
# A collective in its process group: noted as an annotation, with its tensors, which older traces lack at the
# operator around it.
_NCCL = "nccl:"
_NOTE = "record_param_comms"

_RANKS = re.compile(r"\[\d{1,9}(, ?\d{1,9})*\]")

LONGEST_NAME = 4096
# The nanoseconds that all events together may last, nested ones again: sums over threads stay within 64 bits.
# Over a hundred years.
_LONGEST_NS = 1 << 62
_LARGEST_ALLOCATION = 1 << 50

# What an item of an argument list takes when it is a tensor: itself, its sizes and strides.
_ITEM_BYTES = 200

_MOST_GRAPHS = 1 << 30

_NO_ARGS = Args()
_Column: TypeAlias = npt.NDArray[Any]
_Table: TypeAlias = list[tuple[_Column, ...]]


class Columns:
    """Grows by lists of events; ``finish`` makes the columns of all of them.

    ``events`` is how many there were, ``spans`` how many of them have a duration, ``stack_frames`` how many
    are of the Python stack.
    """

    def __init__(self, options: ReadOptions) -> None:
        self.names = _Codes(_meaning)
        self.signatures: list[Signature] = []
        self.collectives: list[Exchange] = []
        self.launch_shapes: list[LaunchShape] = []
        self.kernels: list[LaunchRecord] = []
        self.scopes: list[Scope] = []
        self.frame_names = _Codes(_is_place)
        self.events = self.spans = self.stack_frames = self.dropped = 0
        self.other_categories: dict[str, None] = {}
        self.platform = "cuda"
        self._options = options
        self._held = 0
        self._lasting_ns, self._stop_ns = 0.0, 0
        self.threads = _Codes()
        self._codes: dict[Any, int] = {}  # of signatures, collectives, launch shapes and kernels
        self._frames, self._host, self._device, self._memory, self._overhead, self._waits = (
            _Table() for _ in range(6)
        )

    def add(self, events: list[Event]) -> None:
        """Take the events in; those that are of no use here leave nothing behind. Raises TraceError beyond
        the memory limit."""
        try:
            sorted_out = self._sorted_out(events)
        except TypeError:  # a name, category or thread that is a list or an object
            sorted_out = self._sorted_out([event for event in events if _is_sane(event)])
        host, device, memory, python = sorted_out
        self.events += len(events)
        if not any(sorted_out) and len(self.other_categories) < 100:
            self.other_categories.update(dict.fromkeys(map(_label, events)))
        if host:
            self._take_host(host)
        if device:
            self._take_device(device)
        if memory:
            self._take_memory(memory)
        if python:
            self._take_frames(python)
        if (
            self._held + self.names.held_bytes + self.frame_names.held_bytes + self.threads.held_bytes
            > self._options.memory_limit_bytes
        ):
            raise TraceError(
                f"the trace needs more than the memory limit of {si(self._options.memory_limit_bytes, 'B')}; "
                f"{self.events:,} events were read.",
                hint=f"Raise {arg('memory_limit_bytes')} or record fewer steps.",
            )

    def _sorted_out(self, events: list[Event]) -> tuple[list[Event], list[Event], list[Event], list[Event]]:
        """The events of threads, of devices, of memory and of the Python stack; raises TypeError for one
        whose labels are no text or numbers."""
        spans = [event for event in events if event.ph == "X"]
        of_span = [event.cat for event in spans]
        categories = set(of_span)
        host = list(compress(spans, map(HOST_KINDS.__contains__, of_span)))
        device = list(compress(spans, map(DEVICE_KINDS.__contains__, of_span)))
        if _OVERHEAD in categories:
            self._keep(
                self._overhead,
                self._timed(
                    [event for event in spans if event.cat == _OVERHEAD and event.name not in _OF_THE_DRIVER]
                )[1:],
            )
        if _WAIT in categories:
            self._take_waits([event for event in spans if event.cat == _WAIT])
        for category in categories & _PLATFORMS.keys():
            self.platform = _PLATFORMS[category]
        python = []
        if "python_function" in categories:
            python = [event for event in spans if event.cat == "python_function"]
            host = [
                event
                for event in host
                if event.cat != "python_function" or str(event.name).startswith(MODULE_PREFIX)
            ]
        instants = [event for event in events if event.ph == "i"]
        memory = [event for event in instants if event.name == "[memory]" and event.args is not None]
        stops, known = nanoseconds([event.ts for event in instants if event.name == _STOP])
        self._stop_ns = max([self._stop_ns, *stops[known].tolist()])
        if not {type(event.name) for event in chain(host, device, python)} <= {str}:
            raise TypeError("a name that is not a string")
        threads = (*host, *memory, *python)
        if ({type(event.pid) for event in threads} | {type(event.tid) for event in threads}) & {list, dict}:
            raise TypeError("a thread id that is neither a number nor a string")
        self.spans += len(spans) - (of_span.count(ADDED) if ADDED in categories else 0)
        self.stack_frames += len(python)
        return host, device, memory, python

    def _take_host(self, events: list[Event]) -> None:
        events, start, end = self._timed(events)
        if not events:
            return
        name = np.array([self.names[event.name] for event in events], np.int32)
        kind = np.array([HOST_KINDS[event.cat] for event in events], np.int8)
        meaning = self.names.meanings[name]
        # In this order: our own marks count in any category, and the note of a process group is the operator
        # that it notes.
        marked = (kind == OPERATOR) & (meaning & _IS_MARK > 0)
        of_group = (kind == ANNOTATION) & (meaning & _IS_NCCL > 0)
        args = [event.args or _NO_ARGS for event in events]
        for i in np.flatnonzero(
            (kind == OPERATOR) & (meaning & _IS_PLAIN > 0)
        ).tolist():  # a range of the user in torch 1.8 to 1.11
            marked[i] |= args[i].old is not None and not args[i].dims and not args[i].old_dims
        kind[marked], kind[of_group] = ANNOTATION, OPERATOR
        signature = np.full(len(events), -1, np.int32)
        for i in np.flatnonzero(meaning & _IS_DECLARED).tolist():
            signature[i] = self._declared(int(name[i]))
        kind[signature >= 0] = OPERATOR
        operators = np.flatnonzero((kind == OPERATOR) & (signature < 0))
        signature[operators] = self._signatures(
            name[operators].tolist(), [args[i] for i in operators.tolist()]
        )
        self._keep(
            self._host,
            (
                kind,
                name,
                self._thread_codes(events),
                start,
                end,
                signature,
                _field(args, "sequence"),
                _field(args, "forward_thread", 0),
                correlations(args, kind == RUNTIME),
                self._launched(kind, args),
            ),
        )

    def _launched(self, kind: Int8s, args: list[Args]) -> Int32s:
        """The number of the kernel that each event launches; each distinct record is parsed once."""
        numbers = np.full(len(args), -1, np.int32)
        for i in np.flatnonzero(kind == RUNTIME).tolist():
            name = args[i].kernel
            if not isinstance(name, str):
                continue
            key = (name, bytes(args[i].grid), bytes(args[i].block))
            if key not in self._codes:
                record = (showable(_shortened(name)), _launch_shape(*key[1:]))
                self._number(key, self.kernels, record, 1000 + 4 * len(name) + sum(map(len, key[1:])))
            numbers[i] = self._codes[key]
        return numbers

    def _take_device(self, events: list[Event]) -> None:
        events, start, end = self._timed(events)
        if not events:
            return
        name = np.array([self.names[event.name] for event in events], np.int32)
        kind = np.array([DEVICE_KINDS[event.cat] for event in events], np.int8)
        args = [_annotated(event.args) if event.args else _NO_ARGS for event in events]
        # A kernel of any name with a collective's note belongs to it; a copy with such a note is part of it
        # and stays a copy.
        noted = np.array(
            [isinstance(values.collective, str) and values.collective != "" for values in args], bool
        )
        exchanges = self.names.meanings[name] & _IS_EXCHANGE > 0
        kind[(kind == KERNEL) & (exchanges | noted)] = COMMUNICATION
        collectives = np.full(len(events), -1, np.int32)
        for i in np.flatnonzero(kind == COMMUNICATION).tolist():
            collectives[i] = self._collective(args[i])
        self._keep(
            self._device,
            (
                kind,
                name,
                _devices(events, args),
                integers([_stream(event, values) for event, values in zip(events, args, strict=True)], 0),
                start,
                end,
                correlations(args, np.ones(len(args), bool)),
                collectives,
                self._launch_shapes(args),
                *self._graph_nodes(args),
                *_resources(args),
            ),
        )

    def _graph_nodes(self, args: list[Args]) -> tuple[Int64s, Int32s]:
        """The node of a graph that each event is, and the number of its scope."""
        node, graph = _field(args, "graph_node", 0), _field(args, "graph", 0)
        # Kineto has the graph in the upper half of the node; PyTorch's collector has them apart, without the
        # first node, which is 0.
        apart = (node >> 32 == 0) & (graph > 0) & (graph < _MOST_GRAPHS)
        node = np.where(apart, graph << 32 | node, node)
        scope = np.full(len(args), -1, np.int32)
        for i in np.flatnonzero(node > 0).tolist():
            path = _word(args[i].module) or _word(args[i].name)
            if path:
                found = Scope(path, args[i].autograd_phase == "backward")
                scope[i] = self._number(found, self.scopes, found, 1000 + 4 * len(path))
        return node, scope

    def _launch_shapes(self, args: list[Args]) -> Int32s:
        """The number of each launch's grid and block, -1 where they are not recorded; each distinct pair is
        parsed once."""
        keys = [b"\0".join((values.grid, values.block)) for values in args]
        for key in dict.fromkeys(keys):
            if key not in self._codes:
                shape = _launch_shape(*key.split(b"\0", 1))
                self._codes[key] = -1 if shape is None else len(self.launch_shapes)
                self.launch_shapes += () if shape is None else (shape,)
                self._held += 400 + len(key)
        return np.array([self._codes[key] for key in keys], np.int32)

    def places(self) -> list[str]:
        """The names of the frames: where they are in which source file, whose path is cut unless asked
        for."""
        return (
            self.frame_names.listed
            if self._options.keep_paths
            else [_without_folders(name) for name in self.frame_names.listed]
        )

    def _take_frames(self, events: list[Event]) -> None:
        """Keep the places in source files among these events of the Python stack."""
        codes = [self.frame_names[event.name] for event in events]
        kept = self.frame_names.meanings[codes] > 0
        events, start, end = self._timed(
            [event for event, keep in zip(events, kept.tolist(), strict=True) if keep]
        )
        name = np.array([self.frame_names[event.name] for event in events], np.int32)
        self._keep(self._frames, (name, self._thread_codes(events), start, end))

    def _take_waits(self, events: list[Event]) -> None:
        args = [event.args or _NO_ARGS for event in events]
        stream = _field(args, "stream")
        of_stream = np.array([event.name == _STREAM_SYNC for event in events], bool)
        of_host = np.array([event.name != _STREAM_WAIT for event in events], bool)
        columns = (
            _field(args, "correlation"),
            _field(args, "awaited_record"),
            _devices(events, args),
            np.where(of_host, -1, stream),
            np.where(of_stream, stream, _field(args, "awaited_stream")),
        )
        known = (columns[0] >= 0) & (columns[4] >= 0) & (of_stream | (columns[1] >= 0))
        self._keep(self._waits, tuple(column[known] for column in columns))

    def _take_memory(self, events: list[Event]) -> None:
        time, known = nanoseconds([event.ts for event in events])
        args = [event.args or _NO_ARGS for event in events]
        size = _field(args, "size", 0)
        known &= np.array([isinstance(values.size, int) for values in args], bool) & (
            np.abs(size) <= _LARGEST_ALLOCATION
        )
        self.dropped += int((~known).sum())
        columns = (
            time,
            self._thread_codes(events),
            size,
            _field(args, "device_type", 0),
            _field(args, "device_id"),
            _field(args, "allocated"),
        )
        self._keep(self._memory, tuple(column[known] for column in columns))

    def _timed(self, events: list[Event]) -> tuple[list[Event], Int64s, Int64s]:
        """The events with a time, and their starts and ends in nanoseconds."""
        start, known = nanoseconds([event.ts for event in events])
        duration, lasting = nanoseconds([event.dur for event in events])
        known &= lasting & (duration >= 0)
        if not known.all():
            self.dropped += int((~known).sum())
            events = [event for event, keep in zip(events, known.tolist(), strict=True) if keep]
            start, duration = start[known], duration[known]
        self._lasting_ns += float(duration.sum(dtype=np.float64))
        if self._lasting_ns > _LONGEST_NS:
            raise TraceError(
                "the trace's events last more than 100 years in total.",
                hint="Its timestamps are damaged. Record it again.",
            )
        return events, start, start + duration

    def _thread_codes(self, events: list[Event]) -> Int32s:
        return np.array([self.threads[event.pid, event.tid] for event in events], np.int32)

    # --- signatures ---------------------------------------------------------------------------------------

    def _signatures(self, codes: list[int], args: list[Args]) -> list[int]:
        """The signatures of operators that are named ``codes`` and called with ``args``; each distinct one is
        parsed once."""
        note = self.names.get(_NOTE, -1)
        keys: list[tuple[Any, ...]] = [
            (
                code,
                b"\0".join((values.dims or values.old_dims, values.types, values.strides, values.concrete)),
            )
            if code != note or values.collective is None
            else (code, *_message(values))
            for code, values in zip(codes, args, strict=True)
        ]
        numbers = list(map(self._codes.get, keys))
        for i, number in enumerate(numbers):
            if number is None:
                key, code, values = keys[i], codes[i], args[i]
                if (number := self._codes.get(key)) is None:
                    is_note = code == note and values.collective is not None
                    signature = (
                        collective(_NOTE, *_message(values)) if is_note else self._operator(code, values)
                    )
                    number = self._number(key, self.signatures, signature)
                numbers[i] = number
        return numbers  # type: ignore[return-value]

    def _operator(self, code: int, args: Args) -> Signature:
        raw = [bytes(text) for text in (args.dims or args.old_dims, args.types, args.strides, args.concrete)]
        labels = ("Input Dims", "Input type", "Input Strides", "Concrete Inputs")
        fields = {label: _from_json(text) for label, text in zip(labels, raw, strict=True) if text}
        # The bytes themselves, and what becomes of every item in them: at most a tensor.
        self._held += sum(len(text) + _ITEM_BYTES * text.count(b",") for text in raw)
        return from_kineto(self.names.listed[code], fields, self._options.list_dtype)

    def _declared(self, code: int) -> int:
        """The signature of a range that declares work; -1 for one whose name says none."""
        number = self._codes.get((code,))
        if number is None:
            work = from_range_name(self.names.listed[code])
            if work is None:
                return -1
            # Ends of lines survive a declaration, whose name is escaped in the range; the reports make spaces
            # of them.
            name = "\n".join(map(showable, work.name.split("\n")))
            number = self._number((code,), self.signatures, Signature(name, (replace(work, name=name),)))
        return number

    def _collective(self, args: Args) -> int:
        what, sent, received, dtype = _message(args)
        if what is None:
            return -1
        number = integer(args.group)
        group = _word(args.group) or (None if number is None else str(number))
        exchange = noted(
            Exchange(
                what, None, sent, received, dtype, group, integer(args.group_size), _ranks(args.group_ranks)
            )
        )
        return self._number(exchange, self.collectives, exchange, 1000 + 4 * (len(what) + len(group or "")))

    def _number(self, key: Any, records: list[Any], record: Any, held_bytes: int = 1000) -> int:
        """The number of ``record`` among ``records``, to which it is added unless its ``key`` is known."""
        number = self._codes.get(key)
        if number is None:
            number = self._codes[key] = len(records)
            records.append(record)
            self._held += held_bytes
        return number

    # --- the end ------------------------------------------------------------------------------------------

    @property
    def last_end_ns(self) -> int:
        """The end of the host event that is last in the file; 0 where there is none, and after ``finish``."""
        return int(self._host[-1][4][-1]) if self._host else 0

    def overhead(self) -> Intervals:
        """When the profiler did work of its own."""
        return intervals.union(*_joined(self._overhead, "int64 int64"))

    def stream_waits(self) -> StreamWaits:
        """The waits for streams that are noted."""
        return StreamWaits(*_joined(self._waits, _WAIT_TYPES))

    def finish(self) -> tuple[HostEvents, DeviceEvents, MemoryEvents, Frames]:
        """The columns, sorted; this object is empty afterwards."""
        host, device = _joined(self._host, _HOST_TYPES), _joined(self._device, _DEVICE_TYPES)
        memory, frames = _joined(self._memory, _MEMORY_TYPES), _joined(self._frames, _FRAME_TYPES)
        # What goes on after the recording has stopped is not seen, though a mark may end later.
        stop = self._stop_ns or _LONGEST_NS
        host[4][(host[0] == ANNOTATION) & (host[3] < stop) & (host[4] > stop)] = stop
        host[8], device[6] = linked(host[8], host[0] == RUNTIME, device[6])
        return (
            # By thread, then start; of two that start together the longer one is the caller. The sort is
            # stable, so that events equal in both keep the order of the file, in which Kineto writes the
            # caller first.
            HostEvents(*_in_order(host, -host[4], host[3], host[2])),
            DeviceEvents(*_in_order(device, device[5], device[4])),
            MemoryEvents(*_in_order(memory, memory[0])),
            Frames(*_in_order(frames, -frames[3], frames[2], frames[1])),
        )

    def _keep(self, table: _Table, columns: tuple[_Column, ...]) -> None:
        table.append(columns)
        self._held += sum(column.nbytes for column in columns)


# The types of the columns as NumPy names them, which those of a table without events have as well.
_HOST_TYPES = "int8 int32 int32 int64 int64 int32 int64 int64 int64 int32"
_DEVICE_TYPES = "int8 int32 int32 int64 int64 int64 int64 int32 int32 int64 int32 int64 int64 int64"
_MEMORY_TYPES = "int64 int32 int64 int64 int64 int64"
_FRAME_TYPES = "int32 int32 int64 int64"
_WAIT_TYPES = "int64 int64 int32 int64 int64"


def _joined(table: _Table, types: str) -> list[_Column]:
    """Each column in one piece; the parts are given back."""
    columns = [
        np.concatenate([part[i] for part in table]) if table else np.empty(0, dtype)
        for i, dtype in enumerate(types.split())
    ]
    table.clear()
    return columns


def _in_order(columns: list[_Column], *keys: _Column) -> list[_Column]:
    """The columns sorted by the last of the ``keys``, then the one before it."""
    order = np.lexsort(keys)
    return [column[order] for column in columns]


class _Codes(dict[Any, int]):
    """Distinct values numbered in the order first seen: ``codes[value]`` is its number, ``listed`` their
    text, ``_shortened``, and ``meanings`` what ``meaning`` says of it."""

    def __init__(self, meaning: Callable[[str], int] = lambda _: 0) -> None:
        super().__init__()
        self.listed: list[str] = []
        self.cut = self.replaced = self.held_bytes = 0
        self._meaning = meaning
        self._meanings = bytearray()

    def __missing__(self, value: Any) -> int:
        text = value if isinstance(value, str) else repr(value)
        if len(text) > LONGEST_NAME:
            self.cut += 1
            text = _shortened(text)
            # The whole name is not kept either: names that begin alike are one, and the next event asks
            # again.
            self.held_bytes += 0 if text in self else 4 * LONGEST_NAME
            return self[text]
        self[value] = len(self.listed)
        shown = showable(text)
        self.replaced += shown != text
        self.listed.append(shown)
        # The text, its entry here, and as much again where it is not ASCII.
        self.held_bytes += 250 + 2 * sys.getsizeof(text)
        self._meanings.append(self._meaning(text))
        return len(self.listed) - 1

    @property
    def meanings(self) -> npt.NDArray[np.uint8]:
        """The meaning of every value so far; not to be kept, because no value can be added meanwhile."""
        return np.frombuffer(self._meanings, np.uint8)


_IS_MARK, _IS_NCCL, _IS_DECLARED, _IS_PLAIN, _IS_EXCHANGE = 1, 2, 4, 8, 16


def _meaning(name: str) -> int:
    """The kind of an event of this name, in any category."""
    return (
        _IS_MARK * name.startswith(_ANNOTATION_PREFIXES)
        | _IS_NCCL * name.startswith(_NCCL)
        | _IS_DECLARED * name.startswith(RANGE_PREFIX)
        | _IS_PLAIN * ("::" not in name and "Backward" not in name)
        | _IS_EXCHANGE * communicates(name)
    )


# A function in a source file, and the package or the module of that file.
_PLACE = re.compile(
    r"(?P<package>.*/(?:site-packages|dist-packages|python3\.\d+)/)?(?P<module>[^/<]*)(?:/.*)?\.py\(\d+\): "
)
# These call what other code asked for.
_PASS_ON = sys.stdlib_module_names | {"torch"}


# Packages whose source files Kineto names as it names those of a program: below a folder of the search path.
_PACKAGES = re.compile(
    "accelerate|apex|bitsandbytes|cv2|datasets|deepspeed|diffusers|einops|fairscale|fbgemm_gpu|flash_attn"
    "|fsspec|huggingface_hub|IPython|ipykernel|lightning|lightning_fabric|matplotlib|numba|numpy|pandas|peft"
    "|PIL|pytorch_lightning|ray|safetensors|scipy|sglang|sklearn|timm|tokenizers|torchao|torchaudio"
    "|torchmetrics|torchrec|torchvision|tqdm|transformer_engine|transformers|triton|trl|vllm|wandb|xformers"
)
_IS_PLACE, IS_PROGRAM = 1, 2


def _is_place(name: str) -> int:
    """Whether this is a function of the Python stack outside of torch and of Python's own modules, and
    whether it is one of the program rather than of a package."""
    place = _PLACE.match(name)
    if place is None or place["module"] in _PASS_ON:
        return 0
    return _IS_PLACE | IS_PROGRAM * (place["package"] is None and not _PACKAGES.fullmatch(place["module"]))


def _without_folders(place: str) -> str:
    """``layers/linear.py(12): forward`` of a place in a package; the file alone of a path from the root,
    which may contain the names of people and projects."""
    path, *function = place.partition(".py(")
    *folders, file = re.split(r"[/\\]", path)
    kept = [] if folders and (not folders[0] or folders[0].endswith(":")) else folders[-1:]
    return "/".join((*kept, file)) + "".join(function)


def _launch_shape(grid: bytes, block: bytes) -> LaunchShape | None:
    """The grid and block of a launch; None where one of them is not recorded."""
    extents = [_from_json(text) for text in (grid, block)]
    if not all(isinstance(numbers, list) and len(numbers) == 3 for numbers in extents):
        return None
    (x, y, z), (u, v, w) = ([integer(number) or 0 for number in numbers] for numbers in extents)
    return ((x, y, z), (u, v, w)) if min(x, y, z, u, v, w) > 0 else None


def _field(args: list[Args], name: str, missing: int = -1) -> Int64s:
    """A field of the arguments of each event, a whole number or ``missing``."""
    return integers(list(map(attrgetter(name), args)), missing)


# The warps that the largest multiprocessor holds. A whole percent of them is the least that a recorded
# occupancy tells from none.
_MOST_WARPS = 64


def _resources(args: list[Args]) -> list[Int64s]:
    """The registers, the shared memory and the occupancy in percent of each launch, -1 where they are not
    recorded.

    A kernel has at least one register: PyTorch's collector writes 0 for registers and shared memory, which it
    does not know. Kineto writes a negative occupancy where it could not compute one, and 0 where the shared
    memory of a block is more than what a device gives without being asked. So 0 is an occupancy only of a
    launch with so few warps that it cannot be more.
    """
    registers, shared, occupancy = (_field(args, name) for name in ("registers", "shared", "occupancy"))
    known = registers > 0
    for at in np.flatnonzero(known & (occupancy == 0)).tolist():
        if not 0 < decimal(args[at].warps) < 0.005 * _MOST_WARPS:
            occupancy[at] = -1
    occupancy[occupancy > 100] = -1
    return [np.where(known & (column >= 0), column, -1) for column in (registers, shared, occupancy)]


def _message(args: Args) -> tuple[str | None, int | None, int | None, str | None]:
    """What a collective moves: its name, the elements of its input and output and their type."""
    return (
        _word(args.collective),
        integer(args.elements_in),
        integer(args.elements_out),
        _word(args.collective_dtype),
    )


def _from_json(raw: bytes) -> Any:
    """An argument field, None for one that is damaged in itself or holds numbers beyond measure."""
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return None


# What no name has and what a terminal, a browser or a spreadsheet may act upon: control characters, ends of
# lines, changes of the direction of writing, and halves of surrogate pairs, which JSON can hold and no file
# of text.
_UNSHOWABLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


def _shortened(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"


def showable(text: str) -> str:
    """``text`` as every output can show it."""
    return text if text.isascii() and text.isprintable() else _UNSHOWABLE.sub("\ufffd", text)


def _label(event: Event) -> str:
    """What says where an event of no use here comes from: its category, or the process that a metadata event
    names."""
    return _word(event.cat) or (_word(event.args.name) if event.args else None) or ""


def _devices(events: list[Event], args: list[Args]) -> Int32s:
    """The device of each event: its process, where the event itself does not say."""
    given = zip(events, args, strict=True)
    return ordinals([event.pid if values.device is None else values.device for event, values in given])


def _stream(event: Event, args: Args) -> Any:
    """The stream of a device event. With ``graph_lanes``, PyTorch draws work of graphs on lanes that are not
    streams."""
    stream = args.stream if args.original_stream is None else args.original_stream
    return event.tid if stream is None else stream


_ANNOTATIONS = msgspec.json.Decoder(list[Args])


def _annotated(args: Args) -> Args:
    """``args`` with those of the annotations that PyTorch's collector writes as one text; the inner ones come
    last and win."""
    if isinstance(args.annotation, str):
        try:
            annotations = _ANNOTATIONS.decode(args.annotation)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return args
        for name in Args.__struct_fields__:
            for one in (args, *reversed(annotations)):
                if value := getattr(one, name):
                    setattr(args, name, value)
                    break
    return args


def _word(value: Any) -> str | None:
    """Text, cut to the length of a name; None for what is none."""
    return showable(value[:LONGEST_NAME]) if isinstance(value, str) else None


def _is_sane(event: Event) -> bool:
    """Whether what tells events apart can be told apart: text and numbers."""
    plain = (str, int, float, type(None))
    return (
        all(isinstance(value, str) for value in (event.ph, event.cat, event.name))
        and isinstance(event.pid, plain)
        and isinstance(event.tid, plain)
    )


def _ranks(value: Any) -> tuple[int, ...] | None:
    """The ranks of a process group, which Kineto writes as text; None where it cut the list short (``[0, 1,
    ..., 63]``)."""
    if not isinstance(value, str) or not _RANKS.fullmatch(value):
        return None
    return tuple(map(int, value.strip("[]").split(",")))


def correlations(args: list[Args], launching: Mask) -> Int64s:
    """The correlation ids of events; -1 for none, and -2 - n for a launch or a device event (``launching``)
    with only the external id n."""
    numbers = integers(
        [values.correlation if values.correlation is not None else values.old_correlation for values in args],
        -1,
    )
    lacking = np.flatnonzero((numbers < 0) & launching)
    external = integers([args[i].external for i in lacking.tolist()], -1)
    numbers[lacking] = np.where(external >= 0, -2 - external, -1)
    return numbers


def linked(calls: Int64s, is_runtime: Mask, device: Int64s) -> tuple[Int64s, Int64s]:
    """The correlation ids of host and device events. Some traces of ROCm have no others than external ids;
    elsewhere the external id is that of the operator."""
    named = bool((calls[is_runtime] >= 0).any() or (device >= 0).any())
    calls, device = (
        np.where(ids >= -1, ids, -1 if named else -2 - ids)
        for ids in (np.where(is_runtime, calls, -1), device)
    )
    return calls, device
