"""What ran when in one step of the trace: segments for each stream and thread, and the idle time by cause.

Columns are cut to the step before anything else is done, so that a long trace costs one comparison for each event.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rooflines.profiler.trace import intervals
from rooflines.profiler.trace.distinct import distinct, distinct_rows
from rooflines.profiler.trace.idle import is_wait
from rooflines.profiler.trace.intervals import Intervals
from rooflines.profiler.trace.nesting import exclusive
from rooflines.profiler.trace.records import ANNOTATION, OPERATOR, RUNTIME, Int64s
from rooflines.profiler.trace.tree import BACKWARD, OUTSIDE
from rooflines.roofline.analysis import MERGED_PARTS, Activity, Lane
from rooflines.roofline.attribution.own import Attribution
from rooflines.roofline.step.partition import main_thread

MOST_SEGMENTS = 1_500
_MOST_STREAMS, _MOST_THREADS = 8, 4
# Shorter segments are too narrow to be seen.
_PARTS = 2_000
_LONGEST_NAME = 100


class _Segments(NamedTuple):
    """Segments in order, in nanoseconds after the step's begin; ``row`` is as in ``Lane``, or below 0 one of ``_Labels``."""

    begin: Int64s
    lasting: Int64s
    row: Int64s


class _Labels(NamedTuple):
    """Names of what has no row, with the row of what it launched (-1: nothing) as one number below 0; ``rows`` is their number."""

    names: Sequence[str]
    rows: int

    def encoded(self, name: Int64s, launched: Int64s | int = -1) -> Int64s:
        """The number of a name, an index, and a row."""
        found: Int64s = -2 - launched - name.astype(np.int64) * (self.rows + 1)
        return found

    def decoded(self, label: int) -> tuple[str, int]:
        """The name and the row."""
        name, row = divmod(-1 - label, self.rows + 1)
        return self.names[name], row - 1


class _Line(NamedTuple):
    """A lane with all of its segments."""

    facts: dict[str, Any]
    segments: _Segments

    @property
    def busy_ns(self) -> int:
        return int(self.segments.lasting.sum())


def activity(
    attribution: Attribution, causes: Mapping[str, Intervals] | None, rows: Sequence[int], gaps: Sequence[int]
) -> Activity | None:
    """What ran when in the step that stands for the others; None where nothing was traced.

    ``causes`` is the idle time of all steps by cause, ``rows`` and ``gaps`` are the rows and gaps of ``attribution`` in the order in
    which the analysis has them.
    """
    pieces, windows = attribution.pieces, attribution.windows
    lengths = windows[:, 1] - windows[:, 0] - intervals.covered(attribution.overhead, windows)
    chosen = lengths > 0
    if not chosen.any() or not len(pieces.event):
        return None
    quiet = chosen & attribution.quiet if len(attribution.quiet) else chosen
    steps = np.flatnonzero(quiet if quiet.any() else chosen)
    number = int(steps[np.abs(lengths[steps] - np.median(lengths[steps])).argmin()])
    begin, end = windows[number].tolist()
    # The place of each row in the analysis, then that of each gap.
    place = np.empty(len(rows) + len(gaps), np.int64)
    place[np.asarray(rows, np.int64)] = np.arange(len(rows))
    place[len(rows) + np.asarray(gaps, np.int64)] = len(rows) + np.arange(len(gaps))
    row = place[np.where(pieces.row >= 0, pieces.row, len(rows) - 2 - pieces.row)]
    labels = _Labels((*attribution.trace.names, *attribution.calls.step_names), len(place))
    streams, threads = _streams(attribution, row, begin, end), _threads(attribution, row, labels, begin, end)
    kept = _longest(streams, _MOST_STREAMS)
    idle, marks = _idle(attribution, causes or {}, begin, end), _steps(attribution, labels, begin, end)
    lines = [*kept, *_longest(threads, _MOST_THREADS), *idle, *marks]
    resolution = max(1, (end - begin) // _PARTS)
    merged = [_merged(line.segments, resolution) for line in lines]
    while sum(len(one.begin) for one in merged) > MOST_SEGMENTS:
        resolution += resolution // 4 + 1
        merged = [_merged(line.segments, resolution) for line in lines]
    names: dict[str, int] = {}
    return Activity(
        step=attribution.calls.step_names[number] if attribution.steps else "",
        began_ns=attribution.trace.base_ns + begin,
        duration_ns=end - begin,
        busy_ns=intervals.length(intervals.clip(attribution.busy, begin, end)),
        resolution_ns=resolution,
        lanes=tuple(_lane(line, short, labels, names) for line, short in zip(lines, merged, strict=True)),
        names=tuple(names),
        merged=_merged_rows([line.segments for line in kept], merged[: len(kept)], end - begin),
        left_out=max(0, len(streams) - _MOST_STREAMS) + max(0, len(threads) - _MOST_THREADS),
    )


def _within(start: Int64s, end: Int64s, low: int, high: int) -> Int64s:
    """The events that last for a part of the step."""
    return np.flatnonzero((start < high) & (end > low) & (end > start))


def _streams(attribution: Attribution, row: Int64s, begin: int, end: int) -> list[_Line]:
    """A line for each stream of each device, or on a processor for each thread."""
    pieces, trace = attribution.pieces, attribution.trace
    chosen = _within(pieces.start_ns, pieces.end_ns, begin, end)
    event, start = pieces.event[chosen], np.maximum(pieces.start_ns[chosen], begin)
    until, row = np.minimum(pieces.end_ns[chosen], end), row[chosen]
    if not len(trace.device):
        return _by_thread(attribution, event, start, until, row, begin)
    streams, of = distinct_rows(trace.device.device[event], trace.device.stream[event])
    return [
        _Line({"kind": "stream", "device": device, "stream": stream}, _segments(of == at, start, until, row, begin))
        for at, (device, stream) in enumerate(streams.tolist())
    ]


def _threads(attribution: Attribution, row: Int64s, labels: _Labels, begin: int, end: int) -> list[_Line]:
    """A line for each thread of the host beside a device: its outermost operators and runtime calls, data loading, and waits."""
    calls, host = attribution.calls, attribution.trace.host
    if not len(attribution.trace.device) or not len(host):
        return []
    near = _within(calls.begin_ns, calls.end_ns, begin, end)
    kind, parent = host.kind[near], calls.parent[near]
    outermost = np.where(parent >= 0, calls.operator[parent], -1) < 0
    works = ((kind == OPERATOR) | (kind == RUNTIME)) & outermost
    waits = attribution.trace.named(is_wait, RUNTIME)[near]
    loads = (kind == ANNOTATION) & (calls.phase[near] == OUTSIDE)
    chosen, callers = near[works | waits | loads], near[works & ~waits]
    launched = np.full(len(chosen), -1, np.int64)
    launched[np.searchsorted(chosen, callers)] = _launched_rows(attribution, row, callers)
    label = labels.encoded(host.name[chosen], launched)
    which, start, until = exclusive(host.thread[chosen], calls.begin_ns[chosen], calls.end_ns[chosen])
    start, until = np.maximum(start, begin), np.minimum(until, end)
    kept = np.flatnonzero(until > start)
    which = which[kept]
    return _by_thread(attribution, chosen[which], start[kept], until[kept], label[which], begin)


def _launched_rows(attribution: Attribution, row: Int64s, callers: Int64s) -> Int64s:
    """The row of most of the device time that each of ``callers``, host events of which none encloses another, launched; -1: none."""
    pieces, calls, found = attribution.pieces, attribution.calls, np.full(len(callers), -1, np.int64)
    if not len(callers):
        return found
    launch = calls.launch[pieces.event]
    ours = np.flatnonzero((launch >= callers[0]) & (launch < calls.after[callers[-1]]))
    at = np.searchsorted(callers, launch[ours], side="right") - 1
    inside = launch[ours] < calls.after[callers[at]]
    ours, at = ours[inside], at[inside]
    group, most = _most(at, row[ours], pieces.end_ns[ours] - pieces.start_ns[ours])
    found[group] = most
    return found


def _by_thread(attribution: Attribution, event: Int64s, start: Int64s, until: Int64s, row: Int64s, begin: int) -> list[_Line]:
    """A line for each thread of the host events ``event``."""
    threads, of = distinct(attribution.trace.host.thread[event])
    main, backward = main_thread(attribution.calls), attribution.calls.phase[event] == BACKWARD
    lasting = until - start
    lines = []
    for at, thread in enumerate(threads.tolist()):
        own = of == at
        mostly = 2 * int(lasting[own & backward].sum()) > int(lasting[own].sum())
        role = "main" if thread == main else "autograd" if mostly else None
        lines.append(_Line({"kind": "thread", "thread": thread, "role": role}, _segments(own, start, until, row, begin)))
    return sorted(lines, key=lambda line: line.facts["role"] != "main")


def _steps(attribution: Attribution, labels: _Labels, begin: int, end: int) -> list[_Line]:
    """The marks of the steps on the host."""
    if not attribution.steps:
        return []
    start, until = attribution.calls.steps.T
    chosen = _within(start, until, begin, end)
    label = labels.encoded(len(attribution.trace.names) + chosen)
    marks = _segments(np.ones(len(chosen), bool), np.maximum(start[chosen], begin), np.minimum(until[chosen], end), label, begin)
    return [_Line({"kind": "steps"}, marks)] if len(chosen) else []


def _idle(attribution: Attribution, causes: Mapping[str, Intervals], begin: int, end: int) -> list[_Line]:
    """A line for each cause of idle time."""
    found = []
    for cause, times in {**causes, "profiler": attribution.overhead}.items():
        inside = intervals.clip(times, begin, end)
        segments = _Segments(inside[:, 0] - begin, inside[:, 1] - inside[:, 0], np.zeros(len(inside), np.int64))
        found += [_Line({"kind": "idle", "cause": cause}, segments)] if len(inside) else []
    return found


def _segments(chosen: Any, start: Int64s, until: Int64s, row: Int64s, begin: int) -> _Segments:
    """The chosen events in order, each from where the ones before have ended."""
    order = np.flatnonzero(chosen)
    order = order[np.argsort(start[order], kind="stable")]
    start, until, row = start[order], until[order], row[order]
    start = np.maximum(start, np.concatenate(([begin], np.maximum.accumulate(until)[:-1])))
    left = until > start
    return _Segments(start[left] - begin, (until - start)[left], row[left])


def _longest(lines: list[_Line], most: int) -> list[_Line]:
    """The ``most`` lines with the most time, in their order."""
    kept = sorted(range(len(lines)), key=lambda at: -lines[at].busy_ns)[:most]
    return [lines[at] for at in sorted(kept)]


def _most(group: Int64s, row: Int64s, lasting: Int64s) -> tuple[Int64s, Int64s]:
    """The groups, and the row with the most time in each."""
    keys, which = distinct_rows(group, row)
    times = np.zeros(len(keys), np.int64)
    np.add.at(times, which, lasting)
    order = np.lexsort((times, keys[:, 0]))
    last = order[np.append(np.flatnonzero(np.diff(keys[order, 0])), len(order) - 1)] if len(order) else order
    return keys[last, 0], keys[last, 1]


def _merged(segments: _Segments, resolution: int) -> _Segments:
    """Neighbors below ``resolution`` that begin in the same part of the step as one segment, which lasts as long as they do."""
    begin, lasting, row = segments
    short, part = lasting < resolution, begin // resolution
    is_first = np.ones(len(begin), bool)
    is_first[1:] = ~(short[1:] & short[:-1] & (part[1:] == part[:-1]))
    if is_first.all():
        return segments
    group = np.cumsum(is_first) - 1
    together = np.zeros(int(group[-1]) + 1, np.int64)
    np.add.at(together, group, lasting)
    return _Segments(begin[is_first], together, _most(group, row, lasting)[1])


def _merged_rows(every: Sequence[_Segments], merged: Sequence[_Segments], duration_ns: int) -> dict[int, int]:
    """The rows that another one stands for in a merged segment, each with the parts of the step in which it does, as bits."""
    found: dict[int, int] = {}
    for whole, short in zip(every, merged, strict=True):
        shown = short.row[np.searchsorted(short.begin, whole.begin, side="right") - 1]
        hidden = whole.row != shown
        parts = whole.begin[hidden] * MERGED_PARTS // duration_ns
        for row, part in distinct_rows(whole.row[hidden], parts)[0].tolist():
            found[row] = found.get(row, 0) | 1 << part
    return found


def _lane(line: _Line, merged: _Segments, labels: _Labels, names: dict[str, int]) -> Lane:
    """The lane; ``names`` gets those of its segments and of its longest one that are no rows."""

    def index(row: int) -> int:
        return row if row >= 0 else -1 - names.setdefault(labels.decoded(row)[0][:_LONGEST_NAME], len(names))

    kind, whole, row = line.facts["kind"], line.segments, merged.row.tolist()
    longest: int | None = None
    if kind != "idle":
        # What a name launched does not tell it apart.
        told = np.where(whole.row < 0, labels.encoded((-1 - whole.row) // (labels.rows + 1)), whole.row)
        longest = index(int(_most(np.zeros(len(told), np.int64), told, whole.lasting)[1][0]))
    rows = tuple(map(index, row)) if kind != "idle" else ()
    launched = tuple(labels.decoded(one)[1] for one in row) if kind == "thread" and min(row) < 0 else ()
    return Lane(
        **line.facts, busy_ns=line.busy_ns, count=len(whole.begin), longest=longest, begins_ns=tuple(merged.begin.tolist()),
        durations_ns=tuple(merged.lasting.tolist()), rows=rows, launched=launched,
    )  # fmt: skip
