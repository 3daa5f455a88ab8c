"""Kineto's Chrome JSON to typed columns.

The file is decoded straight into typed structs (msgspec) in which an operator's argument fields stay raw bytes; equal bytes are equal
signatures, so only the distinct ones, a few hundred even in a trace of a million events, are ever parsed.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from rooflines.errors import TraceError
from rooflines.profiler.declared import RANGE_PREFIX, from_range_name
from rooflines.profiler.trace.signature import Signature, collective, from_kineto

Int64s = npt.NDArray[np.int64]

# Kinds of host events.
OPERATOR, ANNOTATION, PYTHON, RUNTIME = 0, 1, 2, 3
# Kinds of device events.
KERNEL, MEMCPY, MEMSET, COMMUNICATION = 0, 1, 2, 3

# Category names since 2021 -> our kinds.
_HOST_KINDS = {
    "cpu_op": OPERATOR, "Operator": OPERATOR,
    "user_annotation": ANNOTATION,
    "python_function": PYTHON,
    "cuda_runtime": RUNTIME, "cuda_driver": RUNTIME, "Runtime": RUNTIME,
}  # fmt: skip
_DEVICE_KINDS = {
    "kernel": KERNEL, "Kernel": KERNEL,
    "gpu_memcpy": MEMCPY, "Memcpy": MEMCPY,
    "gpu_memset": MEMSET, "Memset": MEMSET,
}  # fmt: skip

MODULE_PREFIX = "nn.Module: "
STEP_PREFIX = "ProfilerStep#"
_ANNOTATION_PREFIXES = (MODULE_PREFIX, STEP_PREFIX, "Optimizer.", "enumerate(DataLoader)")

# A collective in its process group: noted as an annotation, with its tensors, which older traces lack at the operator around it.
_NCCL = "nccl:"

_Raw = msgspec.Raw
_Scalar = int | float | str | None


class _Args(msgspec.Struct):
    dims: _Raw = msgspec.field(default=_Raw(), name="Input Dims")
    old_dims: _Raw = msgspec.field(default=_Raw(), name="Input dims")
    types: _Raw = msgspec.field(default=_Raw(), name="Input type")
    strides: _Raw = msgspec.field(default=_Raw(), name="Input Strides")
    concrete: _Raw = msgspec.field(default=_Raw(), name="Concrete Inputs")
    sequence: Any = msgspec.field(default=None, name="Sequence number")
    forward_thread: Any = msgspec.field(default=None, name="Fwd thread id")
    correlation: Any = None
    old_correlation: Any = msgspec.field(default=None, name="correlation id")
    stream: Any = None
    device: Any = None
    size: Any = msgspec.field(default=None, name="Bytes")
    total_allocated: Any = msgspec.field(default=None, name="Total Allocated")
    device_type: Any = msgspec.field(default=None, name="Device Type")
    collective: Any = msgspec.field(default=None, name="Collective name")
    elements_in: Any = msgspec.field(default=None, name="In msg nelems")
    elements_out: Any = msgspec.field(default=None, name="Out msg nelems")
    collective_dtype: Any = msgspec.field(default=None, name="dtype")


class _Event(msgspec.Struct):
    ph: Any = ""
    cat: Any = ""
    name: Any = ""
    pid: Any = None
    tid: Any = None
    ts: Any = None
    dur: Any = None
    args: _Args | None = None


class _File(msgspec.Struct):
    events: list[_Event] | None = msgspec.field(default=None, name="traceEvents")


@dataclass(frozen=True, slots=True)
class HostEvents:
    """What threads did: operators, annotations, Python frames, runtime calls; sorted by thread, start, longest first.

    ``name`` indexes ``Trace.names``, ``signature`` indexes ``Trace.signatures`` (-1: none), ``sequence`` is autograd's number (-1:
    none), ``forward_thread`` is non-zero on backward events, ``correlation`` ties a runtime call to device events (-1: none).
    """

    kind: npt.NDArray[np.int8]
    name: Int64s
    thread: Int64s
    start_ns: Int64s
    end_ns: Int64s
    signature: Int64s
    sequence: Int64s
    forward_thread: Int64s
    correlation: Int64s

    def __len__(self) -> int:
        return len(self.kind)


@dataclass(frozen=True, slots=True)
class DeviceEvents:
    """What accelerators did: kernels, copies, memsets, collectives; sorted by start. ``device`` is the ordinal in the trace."""

    kind: npt.NDArray[np.int8]
    name: Int64s
    device: Int64s
    stream: Int64s
    start_ns: Int64s
    end_ns: Int64s
    correlation: Int64s

    def __len__(self) -> int:
        return len(self.kind)


@dataclass(frozen=True, slots=True)
class MemoryEvents:
    """Allocations (positive ``size_bytes``) and frees (negative), sorted by time; ``device_type`` 0 is the CPU."""

    time_ns: Int64s
    thread: Int64s
    size_bytes: Int64s
    device_type: Int64s

    def __len__(self) -> int:
        return len(self.time_ns)


@dataclass(frozen=True, slots=True)
class Trace:
    """A Kineto trace. Times are nanoseconds on the trace's own clock."""

    host: HostEvents
    device: DeviceEvents
    memory: MemoryEvents
    names: list[str]
    signatures: list[Signature]


def read_trace(path: Path, list_dtype: str = "float32") -> Trace:
    """The trace in ``path`` (JSON or gzipped JSON). ``list_dtype`` is the dtype of lists of tensors, which Kineto does not record.

    Raises TraceError when the file is missing, truncated, corrupt, or no PyTorch trace.
    """
    try:
        data = path.read_bytes()
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
    except OSError as error:
        raise TraceError(f"cannot read the trace {str(path)!r}: {error.strerror or error}") from None
    except (EOFError, zlib.error) as error:
        raise TraceError(f"the trace {str(path)!r} is a damaged gzip file: {error}", hint="Copy or record it again.") from None
    return parse_trace(data, str(path), list_dtype)


def parse_trace(data: bytes, origin: str = "trace", list_dtype: str = "float32") -> Trace:
    """``read_trace`` for bytes already in memory; ``origin`` names them in errors."""
    try:
        file = msgspec.json.decode(data, type=_File)
    except msgspec.DecodeError as error:
        raise TraceError(f"{origin!r} is not a PyTorch trace: {error}", hint="Give a *.pt.trace.json or *.pt.trace.json.gz.") from None
    if file.events is None:
        raise TraceError(f"{origin!r} is not a PyTorch trace: it has no 'traceEvents'.")
    return _columns(file, list_dtype)


def _columns(file: _File, list_dtype: str) -> Trace:
    names = _Codes()
    threads = _Codes()
    signatures = _Signatures(list_dtype)
    host: list[tuple[int, ...]] = []
    device: list[tuple[int, ...]] = []
    memory: list[tuple[int, ...]] = []
    for event in file.events or ():
        if event.ph == "i" and event.name == "[memory]" and event.args is not None:
            at, size = _nanoseconds(event.ts), _integer(event.args.size)
            if at is not None and size is not None:
                memory.append((at, threads[event.tid], size, _integer(event.args.device_type) or 0))
            continue
        if event.ph != "X" or not isinstance(event.cat, str) or not isinstance(event.name, str):
            continue
        start, duration = _nanoseconds(event.ts), _nanoseconds(event.dur)
        if start is None or duration is None or duration < 0:
            continue
        args = event.args or _NO_ARGS
        kind = _HOST_KINDS.get(event.cat)
        if kind is not None:
            if kind == OPERATOR and event.name.startswith(_ANNOTATION_PREFIXES):
                kind = ANNOTATION
            elif kind == ANNOTATION and event.name.startswith(_NCCL):
                kind = OPERATOR
            code = names[event.name]
            declared = signatures.declared(code, event.name) if event.name.startswith(RANGE_PREFIX) else -1
            if declared >= 0:  # work that its author declares is an operator like any other
                kind = OPERATOR
            host.append((
                kind, code, threads[event.tid], start, start + duration,
                declared if declared >= 0 else signatures.index(code, event.name, args) if kind == OPERATOR else -1,
                _or(_integer(args.sequence), -1), _or(_integer(args.forward_thread), 0), _correlation(args),
            ))  # fmt: skip
            continue
        kind = _DEVICE_KINDS.get(event.cat)
        if kind is not None:
            if kind == KERNEL and event.name.startswith(("nccl", "rccl")):
                kind = COMMUNICATION
            device.append((
                kind, names[event.name], _or(_integer(args.device), 0), _or(_integer(args.stream), 0), start, start + duration,
                _correlation(args),
            ))  # fmt: skip
    return Trace(
        host=_host_events(host),
        device=_device_events(device),
        memory=_memory_events(memory),
        names=names.values,
        signatures=signatures.values,
    )


_NO_ARGS = _Args()


class _Codes:
    """Distinct values numbered in the order first seen."""

    def __init__(self) -> None:
        self.values: list[str] = []
        self._codes: dict[Any, int] = {}

    def __getitem__(self, value: Any) -> int:
        key = value if isinstance(value, (str, int, float)) else str(value)
        code = self._codes.get(key)
        if code is None:
            code = self._codes[key] = len(self.values)
            self.values.append(str(value))
        return code


class _Signatures:
    """Distinct signatures; two events with the same bytes share one, and only the first is parsed."""

    def __init__(self, list_dtype: str) -> None:
        self.values: list[Signature] = []
        self._codes: dict[tuple[Any, ...], int] = {}
        self._list_dtype = list_dtype

    def index(self, code: int, name: str, args: _Args) -> int:
        if args.collective is not None and name == "record_param_comms":
            return self._collective(code, name, args)
        dims = args.dims or args.old_dims
        key = (code, bytes(dims), bytes(args.types), bytes(args.strides), bytes(args.concrete))
        found = self._codes.get(key)
        if found is None:
            found = self._codes[key] = len(self.values)
            fields = {
                label: json.loads(raw)
                for label, raw in zip(("Input Dims", "Input type", "Input Strides", "Concrete Inputs"), key[1:], strict=True)
                if raw
            }
            self.values.append(from_kineto(name, fields, self._list_dtype))
        return found

    def declared(self, code: int, name: str) -> int:
        """The signature of a range that declares work; -1 for one whose name says none."""
        found = self._codes.get((code,))
        if found is None:
            work = from_range_name(name)
            if work is None:
                return -1
            found = self._codes[code,] = len(self.values)
            self.values.append(Signature(work.name, (work,)))
        return found

    def _collective(self, code: int, name: str, args: _Args) -> int:
        noted = (args.collective, args.elements_in, args.elements_out, args.collective_dtype)
        key = (code, *map(repr, noted))
        found = self._codes.get(key)
        if found is None:
            found = self._codes[key] = len(self.values)
            self.values.append(collective(name, *noted))
        return found


def _nanoseconds(value: Any) -> int | None:
    """Microseconds, as Kineto writes them (a number, in some versions a string), in whole nanoseconds."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value or abs(value) > 9e15:
        return None
    return round(value * 1000)


def _integer(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value if -(1 << 62) < value < 1 << 62 else None
    if isinstance(value, str) and value.isdigit() and len(value) < 19:
        return int(value)
    return None


def _or(value: int | None, default: int) -> int:
    return default if value is None else value


def _correlation(args: _Args) -> int:
    return _or(_integer(args.correlation if args.correlation is not None else args.old_correlation), -1)


def _table(rows: Iterable[tuple[int, ...]], width: int) -> Int64s:
    table = np.array(list(rows), dtype=np.int64)
    return table.reshape(-1, width)


def _host_events(rows: list[tuple[int, ...]]) -> HostEvents:
    table = _table(rows, 9)
    # By thread, then start; of two that start together the longer one is the caller. The sort is stable, so that events equal in both
    # keep the order of the file, in which Kineto writes the caller first.
    table = table[np.lexsort((-table[:, 4], table[:, 3], table[:, 2]))]
    kind, name, thread, start, end, signature, sequence, forward, correlation = table.T
    return HostEvents(kind.astype(np.int8), name, thread, start, end, signature, sequence, forward, correlation)


def _device_events(rows: list[tuple[int, ...]]) -> DeviceEvents:
    table = _table(rows, 7)
    table = table[np.lexsort((table[:, 5], table[:, 4]))]
    kind, name, device, stream, start, end, correlation = table.T
    return DeviceEvents(kind.astype(np.int8), name, device, stream, start, end, correlation)


def _memory_events(rows: list[tuple[int, ...]]) -> MemoryEvents:
    table = _table(rows, 4)
    table = table[np.argsort(table[:, 0], kind="stable")]
    time, thread, size, device_type = table.T
    return MemoryEvents(time, thread, size, device_type)
