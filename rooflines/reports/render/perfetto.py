"""The recorded trace with rates and operators over time, for ui.perfetto.dev: Chrome's JSON format,
compressed with gzip.

The trace is copied as it is, with one process in front of its events: counters, and the operators of each
stream or thread. All times are on the clock of the file. The added events have a category that readers of
PyTorch's traces skip.
"""

from __future__ import annotations

import gzip
import os
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from rooflines.errors import TraceError, UsageError
from rooflines.profiler.read.distinct import distinct, distinct_rows
from rooflines.profiler.read.perfetto import as_kineto
from rooflines.profiler.read.records import ADDED, Int64s, Mask, Trace
from rooflines.profiler.read.sources import TraceBytes, shown
from rooflines.profiler.samplers.fields import FIELDS, DeviceSample
from rooflines.profiler.tree.tree import PHASES
from rooflines.roofline.analysis import OperatorRow
from rooflines.roofline.judge.judge import Judged
from rooflines.roofline.own.own import Attribution
from rooflines.roofline.own.rows import TimeRow
from rooflines.roofline.uncertainty import Floats

# Above the process ids of Linux, which end at 2^22, and the numbers of devices.
PROCESS = 1_919_905_638
_HEAD = f'{{"cat":"{ADDED}","pid":{PROCESS},"ph":'.encode()
# Where the events begin: in a list, or in an object.
_OPENING = re.compile(rb'\A[\s\xef\xbb\xbf]*\[|"traceEvents"\s*:\s*\[')
_encode = msgspec.json.encode
# What is known of a call, and the name of what it is in each second.
_RATES = {"flops": b"flop_per_s", "bytes": b"byte_per_s", "lower_bound_s": b"efficiency"}
_GAUGES = {key for key, field in FIELDS.items() if "chart" in field.shown and not field.is_counter}


def write(path: Path, judged: Judged, samples: Sequence[DeviceSample] = ()) -> Path:
    """Write the trace of ``judged`` with its rates, its operators and ``samples`` to ``path``, and return
    that.

    Raises TraceError for a trace that cannot be read, UsageError for one that was written here and for a run
    without a trace.
    """
    attribution = judged.attribution
    if attribution is None:
        raise UsageError(
            "the run has no trace to annotate.", hint="Record it again, or leave out this format."
        )
    temporary = path.with_name(f".{path.name}")
    try:
        with gzip.open(temporary, "wb", compresslevel=3) as file:
            file.writelines(_joined(attribution.trace.source, _events(attribution, judged.rows, samples)))
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return path


def _joined(source: Path | str, events: Iterator[bytes]) -> Iterator[bytes]:
    """The pieces of the trace in ``source``, with ``events``, each without its head, before its own."""
    origin = shown(source)
    data, head = iter(as_kineto(TraceBytes(source), origin)), b""
    while (opening := _OPENING.search(head)) is None:
        if not (piece := next(data, b"")):
            raise TraceError(
                f"the trace {origin!r} has changed since it was read.", hint="Write the report again."
            )
        head += piece
    own = head[opening.end() :]
    if own.lstrip().startswith(_HEAD):
        raise UsageError(f"{origin!r} already has the tracks of rooflines.", hint="Give the original trace.")
    yield head[: opening.end()]
    for event in events:
        yield _HEAD + event + b"},\n"
    yield own
    yield from data


def _events(
    attribution: Attribution, operators: Sequence[OperatorRow], samples: Sequence[DeviceSample]
) -> Iterator[bytes]:
    yield b'"M","name":"process_name","args":{"name":"rooflines (times as recorded)"}'
    yield b'"M","name":"process_sort_index","args":{"sort_index":-1}'
    parts, rows = attribution.pieces, (*attribution.rows, *attribution.gaps)
    arguments = [_arguments(attribution, *each) for each in zip_longest(rows, operators)]
    row_of = np.where(parts.row < 0, len(operators) - 2 - parts.row, parts.row)
    # The figures of a call are spread evenly over its pieces. They are NaN in gaps, and in rows that lost
    # kernels.
    figures = [
        [None if row.doubt else args.get(name) for name in _RATES]
        for row, args in zip(rows, arguments, strict=True)
    ]
    _, call = distinct(parts.call)
    seconds = np.bincount(call, parts.end_ns - parts.start_ns)[call] / 1e9
    rates = np.array(figures, np.float64).reshape(-1, len(_RATES))[row_of].T / seconds
    labels = [
        b'"name":%b,"args":%b' % (_encode(row.name), _encode(args)[:-1])
        for row, args in zip(rows, arguments, strict=True)
    ]
    yield from _slices(attribution, [labels[at] for at in row_of.tolist()], rates)
    yield from _counters(
        attribution, np.array([args.get("bound") == "transfer" for args in arguments], bool)[row_of], rates
    )
    yield from _sampled(attribution.trace, samples)


def _arguments(attribution: Attribution, row: TimeRow, operator: OperatorRow | None) -> dict[str, Any]:
    """What is known of each call of a row, or without ``operator`` of a gap, in the words of
    ``analysis.json``."""
    module = attribution.calls.modules[row.module].path if row.module >= 0 else ""
    found: dict[str, Any] = {"module": module, "phase": PHASES[row.phase], "shapes": row.signature.shapes()}
    if operator is None:
        found["not_counted"] = row.reason
    else:
        work, bound_s = row.count.work, operator.lower_bound_s if operator.efficiency is not None else None
        found |= {
            "precision": operator.precision,
            "flops": work and work.flops,
            "bytes": work and work.bytes,
            "intensity_flop_per_byte": operator.intensity_flop_per_byte,
            "lower_bound_s": None if bound_s is None else bound_s / operator.calls,
            "bound": operator.bound,
            "inferred": operator.inferred,
            "assumption": operator.assumption,
        }
    return {name: value for name, value in found.items() if value not in (None, "")}


def _counters(attribution: Attribution, of_link: Mask, rates: Floats) -> Iterator[bytes]:
    """The ``rates`` of each device over time; efficiencies without pieces ``of_link``, which runs next to
    what the device bounds."""
    trace, parts, windows = attribution.trace, attribution.pieces, attribution.windows
    flop_per_s, byte_per_s, efficiency = *rates[:2], np.where(of_link, np.nan, rates[2])
    device = trace.device.device[parts.event] if len(trace.device) else np.zeros_like(parts.row)
    for number in distinct(device)[0].tolist():
        here = np.flatnonzero(device == number)
        key, start, end = _device(trace, number), parts.start_ns[here], parts.end_ns[here]
        for name, values in (("FLOP/s", flop_per_s), ("bytes/s", byte_per_s), ("efficiency", efficiency)):
            yield from _counter(name, key, *summed(start, end, values[here]))
        if attribution.steps and np.isfinite(efficiency[here]).any():
            step = np.searchsorted(windows[:, 0], start, side="right") - 1
            bounds_ns = np.bincount(step, np.nan_to_num(efficiency[here]) * (end - start), len(windows))
            mean = bounds_ns / np.maximum(windows[:, 1] - windows[:, 0], 1)
            yield from _counter("efficiency of the step", key, *summed(windows[:, 0], windows[:, 1], mean))


def summed(starts: Int64s, ends: Int64s, values: Floats) -> tuple[Int64s, Floats]:
    """The sum of the ``values`` of all intervals over time: the times at which it changes, and its value from
    each on.

    Intervals without a value (NaN) are left out.
    """
    known = np.isfinite(values) & (ends > starts)
    values = values[known]
    times, place = distinct(np.concatenate((starts[known], ends[known])))
    begin, end = np.split(place, 2)

    def running(amounts: Any) -> Floats:
        return np.cumsum(np.bincount(begin, amounts, len(times)) - np.bincount(end, amounts, len(times)))

    # A cumulative sum of floats keeps rounding errors of what has ended. Where one interval runs, the value
    # is its own.
    number, which = running(np.ones(len(values))), running(np.arange(len(values))).astype(np.int64)
    total = np.where(number > 0, np.maximum(running(values), 0.0), 0.0)
    total[number == 1] = values[which[number == 1]]
    changes = np.flatnonzero(np.diff(total, prepend=np.nan) != 0)
    return times[changes], total[changes]


def _counter(name: str, key: str, times_ns: Int64s, values: Floats) -> Iterator[bytes]:
    for time_ns, value in zip(times_ns.tolist(), values.tolist(), strict=True):
        yield b'"C","tid":1,"name":%b,"ts":%b,"args":{%b:%.9g}' % (
            _encode(name),
            _microseconds(time_ns),
            _encode(key),
            value,
        )


def _sampled(trace: Trace, samples: Sequence[DeviceSample]) -> Iterator[bytes]:
    """The gauges that reports draw, by their keys, as they were sampled while the trace was recorded."""
    last_ns = max(int(one.end_ns.max(initial=0)) for one in (trace.host, trace.device))
    for sample in samples:
        time_ns = sample.time_ns - trace.base_ns
        for key, value in sample.numbers().items() if trace.began_ns <= time_ns <= last_ns else ():
            if key in _GAUGES:
                yield from _counter(key, sample.device, np.array([time_ns]), np.array([value]))


def _slices(attribution: Attribution, labels: list[bytes], rates: Floats) -> Iterator[bytes]:
    """The tracks, and on them a slice for each piece of a call and of a gap; rates of NaN and zero are left
    out."""
    trace, parts = attribution.trace, attribution.pieces
    on_device = len(trace.device) > 0
    where = [
        column[parts.event]
        for column in ((trace.device.device, trace.device.stream) if on_device else (trace.host.thread,))
    ]
    tracks, track = distinct_rows(*where, _lanes(distinct_rows(*where)[1], parts.start_ns, parts.end_ns))
    # Perfetto takes thread 0 for the kernel's idle thread.
    for number, (*at, lane) in enumerate(tracks.tolist(), start=1):
        name = (
            f"{_device(trace, at[0])} stream {at[1]}"
            if on_device
            else f"CPU (process, thread) {trace.threads[at[0]]}"
        )
        yield b'"M","name":"thread_name","tid":%d,"args":{"name":%b}' % (
            number,
            _encode(f"{name}, {lane + 1}" if lane else name),
        )
    columns = (track + 1, parts.start_ns, parts.end_ns - parts.start_ns, *rates)
    for label, tid, time_ns, lasting_ns, *values in zip(
        labels, *(column.tolist() for column in columns), strict=True
    ):
        known = b"".join(
            b',"%b":%.9g' % pair for pair in zip(_RATES.values(), values, strict=True) if pair[1] > 0
        )
        yield b'"X","tid":%d,"ts":%b,"dur":%b,%b%b}' % (
            tid,
            _microseconds(time_ns),
            _microseconds(lasting_ns),
            label,
            known,
        )


def _lanes(place: Int64s, starts: Int64s, ends: Int64s) -> Int64s:
    """The number of the track of each interval among those of its place: intervals of one track do not
    overlap."""
    lane, order = np.zeros_like(place), np.argsort(starts, kind="stable")
    free: dict[int, list[int]] = defaultdict(list)  # when each track of a place is free again
    for at, where, start, end in zip(
        *(column.tolist() for column in (order, place[order], starts[order], ends[order])), strict=True
    ):
        tracks = free[where]
        number = next((number for number, free_at in enumerate(tracks) if free_at <= start), len(tracks))
        lane[at], tracks[number : number + 1] = number, [end]
    return lane


def _microseconds(time_ns: int) -> bytes:
    """Nanoseconds as Kineto writes them: a float of a time since 1970 would lose the last digits."""
    return b"%b%d.%03d" % (b"-" if time_ns < 0 else b"", *divmod(abs(time_ns), 1000))


def _device(trace: Trace, number: int) -> str:
    return (
        f"{'GPU' if trace.platform == 'cuda' else trace.platform.upper()} {number}"
        if len(trace.device)
        else "CPU"
    )
