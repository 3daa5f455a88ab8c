"""The recorded trace with rates and operators over time, for ui.perfetto.dev: Chrome's JSON format, compressed with gzip.

The trace is copied as it is, with one process in front of its events: counters, and the operators of each stream or thread. All times
are on the clock of the file. The added events have a category that readers of PyTorch's traces skip.
"""

from __future__ import annotations

import gzip
import heapq
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from math import isfinite
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from rooflines.errors import TraceError, UsageError
from rooflines.profiler.samplers.fields import FIELDS, DeviceSample
from rooflines.profiler.trace.distinct import distinct, distinct_rows
from rooflines.profiler.trace.perfetto import as_kineto
from rooflines.profiler.trace.records import ADDED, Int64s, Trace
from rooflines.profiler.trace.sources import pieces, shown
from rooflines.profiler.trace.tree import PHASES, Calls
from rooflines.roofline.analysis import OperatorRow
from rooflines.roofline.analyze import Divided
from rooflines.roofline.attribution.own import Attribution
from rooflines.roofline.attribution.rows import Row
from rooflines.roofline.attribution.steady import Floats

# Above the process ids of Linux, which end at 2^22, and the numbers of devices.
PROCESS = 1_919_905_638
_HEAD = f'{{"cat":"{ADDED}","pid":{PROCESS},"ph":'.encode()
# Where the events begin: in a list, or in an object.
_OPENING = re.compile(rb'\A[\s\xef\xbb\xbf]*\[|"traceEvents"\s*:\s*\[')
_BLOCK = 4096  # events
_encode = msgspec.json.encode
_RATES = (b"flop_per_s", b"byte_per_s", b"efficiency")


def write(path: Path, divided: Divided, samples: Sequence[DeviceSample] = ()) -> Path:
    """Write the trace of ``divided`` with its rates, its operators and ``samples`` to ``path``, and return that.

    Raises TraceError for a trace that cannot be read, UsageError for one that was written here.
    """
    origin, temporary = shown(divided.source), path.with_name(f".{path.name}")
    try:
        with gzip.open(temporary, "wb", compresslevel=3) as file:
            file.writelines(_joined(as_kineto(pieces(divided.source), origin), _events(divided, samples), origin))
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return path


def _joined(data: Iterable[bytes], events: Iterator[bytes], origin: str) -> Iterator[bytes]:
    """The pieces of a trace, with ``events``, each without its head, before its own."""
    head, rest = bytearray(), iter(data)
    while (opening := _OPENING.search(head)) is None:
        if not (piece := next(rest, b"")):
            raise TraceError(f"the trace {origin!r} has changed since it was analyzed.", hint="Write the reports again.")
        head += piece
    own = bytes(head[opening.end() :])
    if own.lstrip().startswith(_HEAD):
        raise UsageError(f"{origin!r} already has the tracks of rooflines.", hint="Give the original trace.")
    yield bytes(head[: opening.end()])
    while block := b"".join(_HEAD + event + b"},\n" for event in islice(events, _BLOCK)):
        yield block
    yield own
    yield from rest


def _events(divided: Divided, samples: Sequence[DeviceSample]) -> Iterator[bytes]:
    _, attribution, operators = divided
    yield b'"M","name":"process_name","args":{"name":"rooflines (times as recorded)"}'
    yield b'"M","name":"process_sort_index","args":{"sort_index":-1}'
    flop_per_s, byte_per_s, efficiency = found = _rates(attribution, operators)
    yield from _slices(attribution, operators, found)
    trace, parts, windows = attribution.trace, attribution.pieces, attribution.windows
    # What the link bounds runs next to what the device bounds.
    of_link = np.array([*(operator.bound == "transfer" for operator in operators), False])
    efficiency = np.where(of_link[np.maximum(parts.row, -1)], np.nan, efficiency)
    device = trace.device.device[parts.event] if len(trace.device) else np.zeros(len(parts.row), np.int64)
    order = np.argsort(device, kind="stable")
    for chosen in np.split(order, np.flatnonzero(np.diff(device[order])) + 1) if len(order) else ():
        key = _device(trace, int(device[chosen[0]]))
        start, end = parts.start_ns[chosen], parts.end_ns[chosen]
        for name, values in (("FLOP/s", flop_per_s), ("bytes/s", byte_per_s), ("efficiency", efficiency)):
            yield from _counter(name, key, *summed(start, end, values[chosen]))
        if attribution.steps and np.isfinite(efficiency[chosen]).any():
            step = np.searchsorted(windows[:, 0], start, side="right") - 1
            bounds_ns = np.bincount(step, np.nan_to_num(efficiency[chosen]) * (end - start), len(windows))
            mean = bounds_ns / np.maximum(windows[:, 1] - windows[:, 0], 1)
            yield from _counter("efficiency of the step", key, *summed(windows[:, 0], windows[:, 1], mean))
    yield from _sampled(trace, samples)


def _rates(attribution: Attribution, operators: Sequence[OperatorRow]) -> Floats:
    """FLOPs, bytes and lower bound per second of each piece: the figures of a call are spread evenly over its pieces.

    They are NaN where they are not known: in gaps, and in rows that lost kernels.
    """
    parts = attribution.pieces
    owned = np.flatnonzero(parts.row >= 0)
    _, call = distinct(parts.call[owned])
    seconds = np.bincount(call, (parts.end_ns - parts.start_ns)[owned])[call] / 1e9
    figures = [_figures(*each, attribution.steps or 1) for each in zip(attribution.rows, operators, strict=True)]
    of_row = np.array(figures, np.float64).reshape(-1, 3)  # None becomes NaN
    result = np.full((3, len(parts.row)), np.nan)
    result[:, owned] = of_row[parts.row[owned]].T / seconds
    return result


def _figures(row: Row, operator: OperatorRow, steps: int) -> tuple[int | None, int | None, float | None]:
    """FLOPs, bytes and lower bound in seconds of one call of ``row``."""
    work = None if row.is_incomplete else row.count.work
    bound_s = None if operator.efficiency is None or operator.lower_bound_s is None else operator.lower_bound_s * steps / row.calls
    return (None, None, bound_s) if work is None else (work.flops, work.bytes, bound_s)


def summed(starts: Int64s, ends: Int64s, values: Floats) -> tuple[Int64s, Floats]:
    """The sum of the ``values`` of all intervals over time: the times at which it changes, and its value from each on.

    Intervals without a value (NaN) are left out.
    """
    known = np.isfinite(values) & (ends > starts)
    starts, ends, values = starts[known], ends[known], values[known]
    times, place = distinct(np.concatenate((starts, ends)))

    def running(amounts: Any) -> Any:
        change = np.zeros(len(times), amounts.dtype)
        np.add.at(change, place[: len(starts)], amounts)
        np.subtract.at(change, place[len(starts) :], amounts)
        return np.cumsum(change)

    number, which = running(np.ones(len(starts), np.int64)), running(np.arange(len(starts)))
    # A cumulative sum of floats keeps rounding errors of what has ended. Where one interval runs, the value is its own.
    total = np.where(number > 0, np.maximum(running(values), 0.0), 0.0)
    total[number == 1] = values[which[number == 1]]
    changes = np.flatnonzero(np.diff(total, prepend=np.nan) != 0)
    return times[changes], total[changes]


def _counter(name: str, key: str, times_ns: Int64s, values: Floats) -> Iterator[bytes]:
    for time_ns, value in zip(times_ns.tolist(), values.tolist(), strict=True):
        yield b'"C","tid":1,"name":%b,"ts":%b,"args":{%b:%.9g}' % (_encode(name), _microseconds(time_ns), _encode(key), value)


def _sampled(trace: Trace, samples: Sequence[DeviceSample]) -> Iterator[bytes]:
    """The gauges that reports draw, by their keys, as they were sampled while the trace was recorded."""
    first_ns, last_ns = trace.began_ns, max((int(one.end_ns.max()) for one in (trace.host, trace.device) if len(one)), default=0)
    for sample in samples:
        time_ns = sample.time_ns - trace.base_ns
        for key, value in sample.numbers().items() if first_ns <= time_ns <= last_ns else ():
            field = FIELDS.get(key)
            if field is not None and "chart" in field.shown and not field.is_counter and isfinite(value):
                yield from _counter(key, sample.device, np.array([time_ns]), np.array([value], np.float64))


def _slices(attribution: Attribution, operators: Sequence[OperatorRow], rates: Floats) -> Iterator[bytes]:
    """The tracks, and on them a slice for each piece of a call and of a gap; rates of NaN and zero are left out."""
    trace, parts = attribution.trace, attribution.pieces
    drawn = np.flatnonzero(parts.row != -1)
    event, start, end = parts.event[drawn], parts.start_ns[drawn], parts.end_ns[drawn]
    on_device = len(trace.device) > 0
    of_device = (trace.device.device, trace.device.stream)
    places, place = distinct_rows(*(column[event] for column in (of_device if on_device else (trace.host.thread,))))
    tracks, track = distinct_rows(place, _lanes(place, start, end))
    track += 1  # Perfetto takes thread 0 for the kernel's idle thread
    for number, (where, lane) in enumerate(tracks.tolist(), start=1):
        at = places[where].tolist()
        name = f"{_device(trace, at[0])} stream {at[1]}" if on_device else f"CPU (process, thread) {trace.threads[at[0]]}"
        yield b'"M","name":"thread_name","tid":%d,"args":{"name":%b}' % (number, _encode(f"{name}, {lane + 1}" if lane else name))
    labels: dict[int, bytes] = {}
    columns = (track, start, end - start, parts.row[drawn], *rates[:, drawn])
    for tid, time_ns, lasting_ns, row, *figures in zip(*(column.tolist() for column in columns), strict=True):
        if row not in labels:
            of_row = _of_row(attribution.rows[row], operators[row], attribution.steps or 1) if row >= 0 else None
            labels[row] = of_row or _of_gap(attribution.gaps[-2 - row], attribution.calls)
        known = b"".join(b',"%b":%.9g' % pair for pair in zip(_RATES, figures, strict=True) if pair[1] > 0)
        yield b'"X","tid":%d,"ts":%b,"dur":%b,%b%b}' % (tid, _microseconds(time_ns), _microseconds(lasting_ns), labels[row], known)


def _lanes(place: Int64s, starts: Int64s, ends: Int64s) -> Int64s:
    """The number of the track of each interval among those of its place: intervals of one track do not overlap."""
    order = np.lexsort((starts, place))
    lane = np.zeros(len(place), np.int64)
    free: dict[int, list[tuple[int, int]]] = defaultdict(list)  # when each track of a place is free again
    for at, where, start, end in zip(*(column.tolist() for column in (order, place[order], starts[order], ends[order])), strict=True):
        tracks = free[where]
        if tracks and tracks[0][0] <= start:
            lane[at] = heapq.heapreplace(tracks, (end, tracks[0][1]))[1]
        else:
            lane[at] = len(tracks)
            heapq.heappush(tracks, (end, len(tracks)))
    return lane


def _of_row(row: Row, operator: OperatorRow, steps: int) -> bytes:
    """The name and what holds for each call of ``row``, in the words of ``analysis.json``."""
    work = row.count.work
    return _named(
        operator.name, module=operator.module, phase=operator.phase, shapes=operator.shapes, precision=operator.precision,
        flops=None if work is None else work.flops, bytes=None if work is None else work.bytes,
        intensity_flop_per_byte=operator.intensity_flop_per_byte, lower_bound_s=_figures(row, operator, steps)[2],
        bound=operator.bound, inferred=operator.inferred, assumption=operator.assumption,
    )  # fmt: skip


def _of_gap(gap: Row, calls: Calls) -> bytes:
    module = calls.modules[gap.module].path if gap.module >= 0 else ""
    return _named(gap.name, module=module, phase=PHASES[gap.phase], shapes=gap.signature.shapes(), not_counted=gap.reason)


def _named(name: str, **args: Any) -> bytes:
    """The name and the arguments of an event that are known, without the brace that closes them."""
    known = {key: value for key, value in args.items() if value is not None and value != ""}
    return b'"name":%b,"args":%b' % (_encode(name), _encode(known)[:-1])


def _microseconds(time_ns: int) -> bytes:
    """Nanoseconds as Kineto writes them: a float of a time since 1970 would lose the last digits."""
    return b"%b%d.%03d" % (b"-" if time_ns < 0 else b"", *divmod(abs(time_ns), 1000))


def _device(trace: Trace, number: int) -> str:
    return f"{'GPU' if trace.platform == 'cuda' else trace.platform.upper()} {number}" if len(trace.device) else "CPU"
