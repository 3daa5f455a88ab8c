"""Perfetto traces (``.pftrace``) as PyTorch's in-process collector writes them, turned into the Kineto JSON
that the reader takes.

Host events are slices of threads (``TrackEvent``) with the arguments of operators as annotations; device work
are render stages (``GpuRenderStageEvent``) with grid, block and the correlation id
(torch/profiler/_cupti/monitor_trace.py). Needs Perfetto's package, which has the definitions of the format.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import chain, groupby, pairwise
from typing import Any, TypeAlias

import msgspec

from rooflines.errors import TraceError
from rooflines.profiler.read.other_files import other_file
from rooflines.profiler.read.sources import PIECE_BYTES

# Every packet is field 1 of the trace, of a length that follows.
_PACKET = b"\x0a"
_BEGIN, _END, _INSTANT = 1, 2, 3
_CATEGORIES = {
    "Kernel": "kernel",
    "Memcpy": "gpu_memcpy",
    "Memset": "gpu_memset",
    "Annotation": "gpu_user_annotation",
}
# What a render stage calls otherwise than Kineto's events.
_KEYS = {"device id": "device", "stream id": "stream", "context id": "context"}
# Kinds of names that packets have as numbers.
_INTERNED = ("event_names", "event_categories", "debug_annotation_names", "gpu_specifications")
_NANOSECONDS = 1000
# An event in Kineto's form.
_Event: TypeAlias = dict[str, Any]
_Edge: TypeAlias = tuple[int, int, _Event | None]


def as_kineto(pieces: Iterable[bytes], origin: str) -> Iterable[bytes]:
    """The pieces of a trace as they are, or as the JSON of the same events if they are Perfetto's.

    Raises TraceError for a trace without operators of PyTorch, with what is in it, and for a file of another
    tool.
    """
    pieces = iter(pieces)
    first = next(pieces, b"")
    if other := other_file(first, origin):
        raise TraceError(f"{origin!r} is {other.what}, not a PyTorch trace.", hint=other.hint)
    whole = chain((first,), pieces)
    # The byte of a packet is also the end of a line, with which JSON may begin.
    is_packet = first.startswith(_PACKET) and first.lstrip()[:1] not in (b"{", b"[", b"")
    return _json(b"".join(whole), origin) if is_packet else whole


def _json(content: bytes, origin: str) -> Iterator[bytes]:
    # First the package that is named if it is missing.
    from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos  # isort: skip
    from google.protobuf.message import DecodeError

    trace = protos.Trace()
    try:
        trace.ParseFromString(content)
    except DecodeError as error:
        raise TraceError(
            f"{origin!r} is damaged or cut off: {error}.", hint="Record the trace again."
        ) from None
    events = _Events()
    for packet in trace.packet:
        events.add(packet)
    if not events.used & {"cpu_op", "kernel"}:
        kinds = ", ".join(f"{number:,} {kind}" for kind, number in events.kinds.most_common(5))
        raise TraceError(
            f"{origin!r} is a Perfetto trace, but no operators of PyTorch are in it: it has "
            f"{kinds or 'no packets'}.",
            hint="Give a trace written by torch.profiler.",
        )
    yield b'{"deviceProperties": ' + msgspec.json.encode(events.devices()) + b', "traceEvents": [\n'
    block = bytearray()
    for number, event in enumerate(events.listed()):
        block += (b",\n" if number else b"") + msgspec.json.encode(event)
        if len(block) >= PIECE_BYTES:
            yield bytes(block)
            block.clear()
    yield bytes(block) + b"\n]}"


class _Events:
    """The packets of one trace, by thread."""

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()
        self.used: set[str] = set()
        # what the numbers of each kind stand for
        self._interned: dict[str, dict[int, str]] = {kind: {} for kind in _INTERNED}
        self._threads: dict[int, tuple[int, int]] = {}
        self._labels: list[_Event] = []
        # begins and ends of slices in the order of the file: thread, time, and what begins
        self._slices: list[_Edge] = []
        self._others: list[_Event] = []
        self._architectures: dict[int, str] = {}
        self._base_ns: int | None = None

    def add(self, packet: Any) -> None:
        """Take one packet. Names are interned: a packet has numbers, and an earlier one what they stand
        for."""
        self.kinds[packet.WhichOneof("data") or "interned data"] += 1
        if self._base_ns is None and packet.timestamp:
            self._base_ns = packet.timestamp
        if packet.HasField("interned_data"):
            for kind, names in self._interned.items():
                names.update((one.iid, one.name) for one in getattr(packet.interned_data, kind))
        if packet.HasField("track_descriptor"):
            self._describe(packet.track_descriptor)
        elif packet.HasField("track_event"):
            self._slice(packet.timestamp, packet.track_event)
        elif packet.HasField("gpu_render_stage_event"):
            self._stage(packet.timestamp, packet.gpu_render_stage_event)

    def _microseconds(self, time_ns: int) -> float:
        """After the first time in the trace: a time since 1970 would lose its nanoseconds."""
        return (time_ns - (self._base_ns or 0)) / _NANOSECONDS

    def _describe(self, track: Any) -> None:
        if track.HasField("thread"):
            pid, tid, label = track.thread.pid, track.thread.tid, ("thread_name", track.thread.thread_name)
            self._threads[track.uuid] = pid, tid
        elif track.HasField("process"):
            pid, tid, label = track.process.pid, 0, ("process_name", track.process.process_name)
        else:
            return
        self._labels.append(
            {"ph": "M", "name": label[0], "pid": pid, "tid": tid, "ts": 0, "args": {"name": label[1]}}
        )

    def _slice(self, time_ns: int, event: Any) -> None:
        if event.type == _END:
            self._slices.append((event.track_uuid, time_ns, None))
            return
        pid, tid = self._threads.get(event.track_uuid, (0, event.track_uuid))
        names, categories, keys, _ = self._interned.values()
        made = {
            "ph": "X",
            "cat": categories.get(event.category_iids[0], "")
            if event.category_iids
            else ",".join(event.categories),
            "name": names.get(event.name_iid, event.name),
            "pid": pid,
            "tid": tid,
            "args": {keys.get(one.name_iid, one.name): _value(one, keys) for one in event.debug_annotations},
        }
        if event.type == _BEGIN:
            self.used.add(made["cat"])
            self._slices.append((event.track_uuid, time_ns, made))
        elif event.type == _INSTANT:
            self._others.append({**made, "ph": "i", "s": "t", "ts": self._microseconds(time_ns)})

    def _stage(self, time_ns: int, event: Any) -> None:
        extra = {one.name: int(one.value) if one.value.isdecimal() else one.value for one in event.extra_data}
        # An annotation may have keys of Kineto's events as well: its stream is a lane.
        extra |= {key: extra.pop(name) for name, key in _KEYS.items() if name in extra}
        if "arch" in extra:
            self._architectures[event.gpu_id] = str(extra.pop("arch"))
        extra = {key: value for key, value in extra.items() if key not in ("process_id", "process_name")}
        stage = self._interned["gpu_specifications"].get(event.stage_iid, "")
        if event.HasField("launch"):
            grid, block = event.launch.grid_size, event.launch.workgroup_size
            extra |= {"grid": [grid.x, grid.y, grid.z], "block": [block.x, block.y, block.z]}
        self.used.add(_CATEGORIES.get(stage, stage))
        self._others.append(
            {
                "ph": "X",
                "cat": _CATEGORIES.get(stage, stage),
                "name": self._interned["event_names"].get(event.name_iid, stage),
                "pid": event.gpu_id,
                "tid": extra.get("stream", event.hw_queue_iid),
                "ts": self._microseconds(time_ns),
                "dur": event.duration / _NANOSECONDS,
                "args": {"device": event.gpu_id, **extra},
            }
        )

    def devices(self) -> list[dict[str, int]]:
        """The devices by their compute capability, all that the file has of them."""
        found = []
        for number, name in sorted(self._architectures.items()):
            digits = name.removeprefix("sm_")
            if digits.isdecimal() and len(digits) > 1:
                found.append(
                    {"id": number, "computeMajor": int(digits[:-1]), "computeMinor": int(digits[-1])}
                )
        return found

    def listed(self) -> Iterator[_Event]:
        """Every event in Kineto's form."""
        yield from self._labels
        for start_ns, end_ns, event in _closed(self._slices):
            yield {**event, "ts": self._microseconds(start_ns), "dur": (end_ns - start_ns) / _NANOSECONDS}
        yield from self._others


def _closed(slices: list[_Edge]) -> Iterator[tuple[int, int, _Event]]:
    """The slices with their begins and ends.

    PyTorch writes the begins of many slices and then their ends in the same order, not by time: so slices may
    overlap. What is written in the order of time is closed as Perfetto does: an end closes the slice of its
    thread that began last.
    """
    rest: dict[int, list[_Edge]] = defaultdict(list)
    begun: list[_Edge] = []
    for is_end, group in groupby(slices, key=lambda edge: edge[2] is None):
        edges = list(group)
        if not is_end:
            begun = edges
            continue
        by_time = all(one[1] <= following[1] for one, following in pairwise(edges))
        if by_time or [edge[0] for edge in begun] != [edge[0] for edge in edges]:
            for edge in (*begun, *edges):
                rest[edge[0]].append(edge)
        else:
            yield from ((begin[1], end[1], begin[2] or {}) for begin, end in zip(begun, edges, strict=True))
        begun = []
    for edges in rest.values():
        open_slices: list[_Edge] = []
        for edge in sorted(edges, key=lambda edge: edge[1]):
            if edge[2] is not None:
                open_slices.append(edge)
            elif open_slices:
                _, start_ns, event = open_slices.pop()
                yield start_ns, edge[1], event or {}


def _value(annotation: Any, keys: dict[int, str]) -> Any:
    """The value of an annotation: a number, a text, a list or a dictionary."""
    if annotation.array_values:
        return [_value(one, keys) for one in annotation.array_values]
    if annotation.dict_entries:
        return {keys.get(one.name_iid, one.name): _value(one, keys) for one in annotation.dict_entries}
    kind = annotation.WhichOneof("value")
    return [] if kind is None else getattr(annotation, kind)
