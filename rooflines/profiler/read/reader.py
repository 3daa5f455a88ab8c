"""Read a trace file of any recorder into a ``Trace``: stream, document, columns, and the file's facts about
its machine.

Of the metadata only the device's name and size, the rank's place in its job and the origin of the times are
read; docs/traces.md lists the fields. Environment variables, user and host names, commands and paths are
never looked at. Of a trace that is cut off the usable part is kept: Kineto writes what threads did first,
then launches and device events, buffer by buffer. Neither part is in the order of time, so operators may be
there without the kernels that they launched, and kernels of a late step without some of an earlier one.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from rooflines.errors import TraceError
from rooflines.profiler.read.columns import IS_PROGRAM, LONGEST_NAME, Columns, showable
from rooflines.profiler.read.document import Document
from rooflines.profiler.read.launches import launching
from rooflines.profiler.read.missing_device import lacks_device
from rooflines.profiler.read.nesting import enclosed, nest_events
from rooflines.profiler.read.perfetto import as_kineto
from rooflines.profiler.read.records import (
    ANNOTATION,
    CUT_OFF,
    OPERATOR,
    READ_DEFAULTS,
    Rank,
    ReadOptions,
    Trace,
    TracedDevice,
)
from rooflines.profiler.read.request_marks import is_step_mark
from rooflines.profiler.read.sources import TraceBytes, shown

_NAME_LENGTH = 200
# From this share of the events on, frames of the Python stack are said to slow the host down.
_MANY_FRAMES = 0.1
# Recording a function takes about two microseconds: one in this time, and fewer, is not felt.
_FELT_NS = 200_000


def read(path: Path | str, options: ReadOptions = READ_DEFAULTS) -> Trace:
    """Read the trace in ``path`` (JSON, plain or compressed by gzip or zstd; a file or a URL).

    Raises TraceError when the file is missing, truncated, corrupt, too large, or no PyTorch trace.
    """
    data = TraceBytes(path, partial=options.partial)
    return whole_part(read_pieces(data, path, options, lambda: data.damage))


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """Without the collector of cycles, which goes through every object again and again while thousands are
    made; events have none."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def read_pieces(
    data: Iterable[bytes], source: Path | str, options: ReadOptions, damage: Callable[[], str] = str
) -> Trace:
    """The trace whose JSON comes in pieces from ``source``; ``damage`` as for ``Document``. Of one that is
    cut off all is kept."""
    origin = shown(source)
    document = Document(as_kineto(data, origin), origin, partial=options.partial, damage=damage)
    columns = Columns(options)
    with paused():
        for events in document:
            columns.add(events)
    cut_ns = None if document.all_events else columns.last_end_ns
    host, device, memory, frames = columns.finish()
    if not columns.events:
        if document.cut_bytes is not None:
            raise TraceError(
                f"the trace {origin!r} is cut off after {document.cut_bytes:,} bytes, before the "
                "end of its first event."
            )
        raise TraceError(
            f"{origin!r} is not a PyTorch trace: it has no events.", hint="Record at least one step."
        )
    if not (len(host) or len(device) or len(memory)):
        of_xla = any(
            name.startswith(("XLA", "/device:", "/host:")) or "TFRT" in name
            for name in columns.other_categories
        )
        # No other names are repeated: those of processes are command lines and may hold private data.
        what = (
            "its events are those of XLA (JAX or TensorFlow)"
            if of_xla
            else "it has no operators and no kernels"
        )
        raise TraceError(
            f"{origin!r} is a Chrome trace, but not from PyTorch: {what}.",
            hint="Give a trace written by torch.profiler.",
        )
    lasting_ns = int(host.end_ns.max() - host.start_ns.min()) if len(host) else 0
    many = max(_MANY_FRAMES * columns.spans, lasting_ns / _FELT_NS)
    has_stacks = columns.stack_frames > 0 and columns.stack_frames >= many
    return Trace(
        host=host,
        device=device,
        memory=memory,
        names=columns.names.listed,
        signatures=columns.signatures,
        collectives=columns.collectives,
        launch_shapes=columns.launch_shapes,
        kernels=columns.kernels,
        scopes=columns.scopes,
        frames=frames,
        frame_names=columns.places(),
        program_frames=columns.frame_names.meanings & IS_PROGRAM > 0,
        devices=_devices(document.head.devices),
        rank=_rank(document.head.distributed),
        base_ns=_whole(document.head.base_ns) or 0,
        platform=columns.platform,
        notes=(*filter(None, [damage()]), *_notes(document, columns, has_stacks, on_device=len(device) > 0)),
        stream_waits=columns.stream_waits(),
        overhead=columns.overhead(),
        has_stacks=has_stacks,
        cut_ns=cut_ns,
        threads=columns.threads.listed,
        source=source,
    )


def _notes(document: Document, columns: Columns, has_stacks: bool, *, on_device: bool) -> Iterator[str]:
    """What in the file was repaired, cut or left out."""
    if document.cut_bytes is not None:
        missing = (
            "the data after the events is missing"
            if document.all_events
            else "what follows is missing; the last step may be incomplete"
        )
        yield (
            f"{CUT_OFF} after {document.cut_bytes:,} bytes: {columns.events:,} events were read, {missing}"
        )
    yield from document.repairs
    if columns.dropped:
        yield (
            f"{columns.dropped:,} events with an invalid time or size, or that end before they start, "
            "were skipped"
        )
    if columns.names.cut:
        yield f"names of more than {LONGEST_NAME} characters were cut"
    if columns.names.replaced:
        yield "control characters in names were replaced"
    if has_stacks:
        yield (
            "Host times are inflated: the profiler recorded Python stacks "
            f"({columns.stack_frames:,} of {columns.spans:,} events), "
            "which slows the host "
            f"down{', so the device is idle for longer than without them' if on_device else ''}."
        )


def _devices(entries: Any) -> tuple[TracedDevice, ...]:
    return (
        tuple(_device(fields) for fields in entries[:1024] if isinstance(fields, dict))
        if isinstance(entries, list)
        else ()
    )


def _device(fields: dict[str, Any]) -> TracedDevice:
    name = fields.get("name")
    major, minor = _whole(fields.get("computeMajor")), _whole(fields.get("computeMinor"))
    return TracedDevice(
        name=" ".join(showable(name[: 10 * _NAME_LENGTH]).split())[:_NAME_LENGTH]
        if isinstance(name, str)
        else "",
        memory_bytes=_whole(fields.get("totalGlobalMem")),
        multiprocessors=_whole(fields.get("numSms")),
        ordinal=_whole(fields.get("id")),
        capability=f"{major}.{minor}" if major is not None and minor is not None else "",
        warp=_whole(fields.get("warpSize")),
    )


def _rank(fields: Any) -> Rank | None:
    rank = _whole(fields.get("rank")) if isinstance(fields, dict) else None
    if rank is None:
        return None
    backend = fields.get("backend")
    return Rank(
        rank,
        _whole(fields.get("world_size")),
        showable(backend[:_NAME_LENGTH]) if isinstance(backend, str) else None,
    )


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62 else None


def whole_part(trace: Trace) -> Trace:
    """``trace`` without what the cut makes misleading, and with notes on it; the same trace where all of its
    events are there.

    On a CPU the steps count that end before the last event that was read. With a device no step counts,
    because some of its device events may be missing, and operators without a device event are left out: their
    FLOPs would be counted without their time.
    """
    if trace.cut_ns is None:
        return trace
    host, notes = trace.host, []
    is_step = trace.named(is_step_mark, ANNOTATION)
    on_device, lacking = len(trace.device) > 0, lacks_device(trace)
    whole = is_step & (host.end_ns <= trace.cut_ns) & (not on_device and not lacking)
    keep = ~is_step | whole
    if whole.any():
        keep &= host.start_ns < host.end_ns[whole].max()
        if cut_off := int((is_step & ~whole).sum()):
            notes.append(f"steps not counted because they may be incomplete: {cut_off:,}")
    else:
        notes.append("no step is known to be complete: figures are those of the part that was read")
    if on_device:
        ran = np.isin(np.arange(len(host)), launching(trace)[0])
        # Neither they nor what they enclose launched a device event that was read.
        silent = (host.kind == OPERATOR) & ~ran & (enclosed(ran, nest_events(host, is_step)[0]) == 0)
        keep &= ~silent
        notes += (
            f"operators left out because their device event may be missing: {int(silent.sum()):,}",
            "idle time of the device may be work whose events are missing",
        )
    elif not lacking:
        notes.append("no device event was read: the time of any device is missing")
    kept = {column.name: getattr(host, column.name)[keep] for column in fields(host)}
    return replace(trace, host=replace(host, **kept), notes=(*trace.notes, *notes))
