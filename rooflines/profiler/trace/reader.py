"""Read a trace file of any recorder into a ``Trace``: stream, document, columns, and the file's facts about its machine.

Of the metadata only the device's name and size and the rank's place in its job are read; docs/traces.md lists the fields.
Environment variables, user and host names, commands and paths are never looked at.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rooflines.errors import TraceError
from rooflines.profiler.trace import collection
from rooflines.profiler.trace.columns import LONGEST_NAME, MEMORY_LIMIT_BYTES, Columns, showable
from rooflines.profiler.trace.document import Document, Head
from rooflines.profiler.trace.records import Rank, Trace, TracedDevice
from rooflines.profiler.trace.stream import PIECE_BYTES, pieces
from rooflines.profiler.trace.url import shown

_NAME_LENGTH = 200
# From this share of the events on, frames of the Python stack are said to slow the host down.
_MANY_FRAMES = 0.1


def read_trace(
    path: Path | str, list_dtype: str = "float32", memory_limit_bytes: int = MEMORY_LIMIT_BYTES, *, partial: bool = False
) -> Trace:
    """The trace in ``path`` (JSON, plain or compressed by gzip or zstd; a file or a URL). ``list_dtype`` is the dtype of lists of
    tensors, which Kineto does not record. What is kept of the events takes at most ``memory_limit_bytes``. With ``partial``, a file
    that is cut off is read up to the cut.

    Raises TraceError when the file is missing, truncated, corrupt, too large, or no PyTorch trace.
    """
    problems: list[str] | None = [] if partial else None
    return _read(pieces(path, problems), shown(path), list_dtype, memory_limit_bytes, problems)


def parse_trace(
    data: bytes,
    origin: str = "trace",
    list_dtype: str = "float32",
    memory_limit_bytes: int = MEMORY_LIMIT_BYTES,
    *,
    partial: bool = False,
) -> Trace:
    """``read_trace`` for the JSON's bytes already in memory; ``origin`` names them in errors."""
    parts = (data[start : start + PIECE_BYTES] for start in range(0, len(data), PIECE_BYTES))
    return _read(parts, origin, list_dtype, memory_limit_bytes, [] if partial else None)


def _read(data: Iterable[bytes], origin: str, list_dtype: str, memory_limit_bytes: int, problems: list[str] | None = None) -> Trace:
    document = Document(data, origin, problems)
    columns = Columns(list_dtype, memory_limit_bytes)
    with collection.paused():
        for events in document:
            columns.add(events)
    cut_ns = None if document.all_events else columns.last_end_ns
    host, device, memory, frames = columns.finish()
    if not columns.events and document.cut_bytes is not None:
        raise TraceError(f"the trace {origin!r} is cut off after {document.cut_bytes:,} bytes, before the end of its first event.")
    if not columns.events:
        raise TraceError(f"{origin!r} is not a PyTorch trace: it has no events.", hint="Record at least one step.")
    if not (len(host) or len(device) or len(memory)):
        raise TraceError(
            f"{origin!r} is a Chrome trace, but not from PyTorch: {_instead(columns)}.", hint="Give a trace written by torch.profiler."
        )
    return Trace(
        host=host,
        device=device,
        memory=memory,
        names=columns.names.listed,
        signatures=columns.signatures,
        collectives=columns.collectives,
        launch_shapes=columns.launch_shapes,
        kernels=columns.kernels,
        frames=frames,
        frame_names=columns.frame_names.listed,
        devices=_devices(document.head),
        rank=_rank(document.head),
        platform=columns.platform,
        notes=(*(problems or ()), *_cut(document, columns.events), *document.repairs, *_left_out(columns), *_slowed(columns)),
        overhead=columns.overhead(),
        has_stacks=_has_stacks(columns),
        cut_ns=cut_ns,
    )


def _instead(columns: Columns) -> str:
    seen = [name for name in columns.other_categories if name]
    if any(name.startswith(("XLA", "/device:", "/host:")) or "TFRT" in name for name in seen):
        return "its events are those of XLA (JAX or TensorFlow)"
    # The rest is not repeated: names of processes are command lines and may hold private data.
    return "it has no operators and no kernels"


def _cut(document: Document, events: int) -> list[str]:
    if document.cut_bytes is None:
        return []
    missing = "the data after the events" if document.all_events else "what follows"
    last = "" if document.all_events else "; the last step may be incomplete"
    return [f"the trace is cut off after {document.cut_bytes:,} bytes: {events:,} events were read, {missing} is missing{last}"]


def _left_out(columns: Columns) -> list[str]:
    notes = []
    if columns.dropped:
        notes.append(f"{columns.dropped:,} events with an invalid time or size, or that end before they start, were skipped")
    if columns.names.cut:
        notes.append(f"names of more than {LONGEST_NAME} characters were cut")
    if columns.names.replaced:
        notes.append("control characters in names were replaced")
    return notes


def _slowed(columns: Columns) -> list[str]:
    """A sentence about host times where the profiler noted every call of Python."""
    if not _has_stacks(columns):
        return []
    return [
        f"Host times are inflated: the profiler recorded Python stacks ({columns.stack_frames:,} of {columns.spans:,} events), which "
        "slows the host down, so the device is idle for longer than without them."
    ]


def _has_stacks(columns: Columns) -> bool:
    return bool(columns.stack_frames) and columns.stack_frames >= _MANY_FRAMES * columns.spans


def _devices(head: Head) -> tuple[TracedDevice, ...]:
    if not isinstance(head.devices, list):
        return ()
    return tuple(_device(fields) for fields in head.devices[:1024] if isinstance(fields, dict))


def _device(fields: dict[str, Any]) -> TracedDevice:
    name = fields.get("name")
    major, minor = _whole(fields.get("computeMajor")), _whole(fields.get("computeMinor"))
    return TracedDevice(
        name=" ".join(showable(name[: 10 * _NAME_LENGTH]).split())[:_NAME_LENGTH] if isinstance(name, str) else "",
        memory_bytes=_whole(fields.get("totalGlobalMem")),
        multiprocessors=_whole(fields.get("numSms")),
        ordinal=_whole(fields.get("id")),
        capability=f"{major}.{minor}" if major is not None and minor is not None else "",
        warp=_whole(fields.get("warpSize")),
    )


def _rank(head: Head) -> Rank | None:
    fields = head.distributed
    rank = _whole(fields.get("rank")) if isinstance(fields, dict) else None
    if rank is None:
        return None
    backend = fields.get("backend")
    return Rank(rank, _whole(fields.get("world_size")), showable(backend[:_NAME_LENGTH]) if isinstance(backend, str) else None)


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62 else None
