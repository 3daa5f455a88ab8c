"""What ran when in one step of the trace: segments for each stream and thread, and the idle time by cause.

Columns are cut to the step before anything else is done, so that a long trace costs one comparison for each
event.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rooflines.profiler.read import intervals
from rooflines.profiler.read.distinct import distinct_rows
from rooflines.profiler.read.intervals import Intervals
from rooflines.profiler.read.nesting import exclusive
from rooflines.profiler.read.records import ANNOTATION, OPERATOR, RUNTIME, Int64s
from rooflines.profiler.tree.idle import is_wait
from rooflines.profiler.tree.tree import BACKWARD, OUTSIDE
from rooflines.roofline.analysis import Activity, Lane
from rooflines.roofline.count.counts import places_of
from rooflines.roofline.judge.step.partition import main_thread
from rooflines.roofline.own.own import Attribution

MOST_SEGMENTS = 1_500
_MOST_STREAMS, _MOST_THREADS = 8, 4
# Shorter segments are too narrow to be seen.
_PARTS = 2_000
_LONGEST_NAME = 100


class Line(NamedTuple):
    """A lane with its segments in order: their begin after that of the step, their duration, and what each
    is: the index of a name times ``_Step.kinds``, plus 1 + a row."""

    facts: dict[str, Any]
    begin: Int64s
    lasting: Int64s
    item: Int64s


class _Step(NamedTuple):
    """The step, the place in the analysis of the row of each piece, and 1 + the number of rows."""

    attribution: Attribution
    begin: int
    end: int
    row: Int64s
    kinds: int

    def cut(self, start: Int64s, until: Int64s) -> tuple[Int64s, Int64s, Int64s]:
        """The events that run in the step, with their times in it."""
        near = np.flatnonzero((start < self.end) & (until > self.begin))
        return near, np.maximum(start[near], self.begin), np.minimum(until[near], self.end)

    def line(self, item: Int64s, start: Int64s, until: Int64s, **facts: Any) -> Line:
        """A lane of events, each from where the ones before have ended."""
        near, start, until = self.cut(start, until)
        order = np.argsort(start, kind="stable")
        start = start[order]
        until = until[order]
        item = item[near[order]]
        start = np.maximum(start, np.concatenate(([self.begin], np.maximum.accumulate(until)[:-1])))
        left = until > start
        return Line(facts, start[left] - self.begin, (until - start)[left], item[left])


def activity(attribution: Attribution, causes: dict[str, Intervals] | None, place: Int64s) -> Activity | None:
    """What ran when in the step that stands for the others; None where nothing was traced.

    ``causes`` is the idle time of all steps by cause, ``place`` that of each row, then of each gap, of
    ``attribution`` in the analysis: its operators, then its unmodeled rows.
    """
    calls, windows = attribution.calls, attribution.windows
    lengths = windows[:, 1] - windows[:, 0] - intervals.covered(attribution.overhead, windows)
    steps = np.flatnonzero(attribution.quiet & (lengths > 0) if attribution.quiet.any() else lengths > 0)
    if not len(steps) or not len(attribution.pieces.event):
        return None
    number = int(steps[np.abs(lengths[steps] - np.median(lengths[steps])).argmin()])
    begin, end = windows[number].tolist()
    row = place[attribution.place]
    step = _Step(attribution, begin, end, row, int(place.max(initial=-1)) + 2)
    causes = {**(causes or {}), "profiler": attribution.overhead}
    names = ("", *attribution.trace.names, *calls.step_names, *causes)
    marks = np.arange(attribution.steps) + 1 + len(attribution.trace.names)
    steps_line = step.line(marks * step.kinds, *calls.steps[: attribution.steps].T, kind="steps")
    streams = _streams(step)
    threads = _threads(step)
    idle = [
        step.line(np.full(len(times), name * step.kinds), *times.T, kind="idle", cause=cause)
        for name, (cause, times) in enumerate(causes.items(), len(names) - len(causes))
    ]
    idle.sort(key=lambda line: -line.lasting.sum())
    every = (steps_line, *_longest(streams, _MOST_STREAMS), *idle, *_longest(threads, _MOST_THREADS))
    lines = [line for line in every if len(line.begin)]
    resolution = max(1, (end - begin) // _PARTS)
    short = [merged(line, resolution) for line in lines]
    while sum(len(line.begin) for line in short) > MOST_SEGMENTS:
        resolution += resolution // 4 + 1
        short = [merged(line, resolution) for line in lines]
    ran, placed = ({item for line in some for item in line.item.tolist()} for some in (streams, short))
    items = [line.item.tolist() if line.facts["kind"] != "idle" else [] for line in short]
    longest = [_longest_name(line, step.kinds) for line in lines]
    listed = dict.fromkeys(item for own, name in zip(items, longest, strict=True) for item in (*own, name))
    places = {item: place for place, item in enumerate(listed)}
    lanes = tuple(
        Lane(
            **line.facts,
            busy_ns=int(line.lasting.sum()),
            count=len(line.begin),
            longest=places[name],
            begins_ns=tuple(drawn.begin.tolist()),
            durations_ns=tuple(drawn.lasting.tolist()),
            items=tuple(places[item] for item in own),
        )
        for line, drawn, own, name in zip(lines, short, items, longest, strict=True)
    )
    return Activity(
        step=calls.step_names[number] if attribution.steps else "",
        steps=len(steps),
        began_ns=attribution.trace.base_ns + begin,
        duration_ns=end - begin,
        busy_ns=intervals.length(intervals.clip(attribution.busy, begin, end)),
        resolution_ns=resolution,
        lanes=lanes,
        names=tuple(names[item // step.kinds][:_LONGEST_NAME] for item in places),
        rows=tuple(item % step.kinds - 1 for item in places),
        unplaced=tuple(sorted(item - 1 for item in ran - placed)),
        left_out=max(0, len(streams) - _MOST_STREAMS) + max(0, len(threads) - _MOST_THREADS),
    )


def _streams(step: _Step) -> list[Line]:
    """A line for each stream of each device, or on a processor for each thread."""
    pieces, device = step.attribution.pieces, step.attribution.trace.device
    near, start, until = step.cut(pieces.start_ns, pieces.end_ns)
    event = pieces.event[near]
    row = step.row[near] + 1
    if not len(device):
        return _by_thread(step, event, start, until, row)
    streams, of = distinct_rows(device.device[event], device.stream[event])
    lines = []
    for which, own in places_of(of):
        number, stream = streams[which].tolist()
        lines.append(step.line(row[own], start[own], until[own], kind="stream", device=number, stream=stream))
    return lines


def _threads(step: _Step) -> list[Line]:
    """A line for each thread of the host beside a device: its outermost operators and runtime calls, data
    loading, and waits."""
    calls, pieces, trace = step.attribution.calls, step.attribution.pieces, step.attribution.trace
    if not len(trace.device):
        return []
    near, start, until = step.cut(calls.begin_ns, calls.end_ns)
    kind = trace.host.kind[near]
    works = ((kind == OPERATOR) | (kind == RUNTIME)) & (calls.above[near] < 0)
    waits = trace.named(is_wait, RUNTIME)[near]
    loads = (kind == ANNOTATION) & (calls.phase[near] == OUTSIDE)
    # The row of most of the device time that each launched; of those that launch none encloses another.
    callers = near[works & ~waits]
    launch = calls.launch[pieces.event]
    at = np.searchsorted(callers, launch, side="right") - 1
    inside = np.flatnonzero(launch < np.append(calls.after[callers], -1)[at])
    caller, most = _most(callers[at[inside]], step.row[inside] + 1, (pieces.end_ns - pieces.start_ns)[inside])
    launched = np.zeros(len(trace.host), np.int64)
    launched[caller] = most
    shown = works | waits | loads
    which, start, until = exclusive(trace.host.thread[near[shown]], start[shown], until[shown])
    event = near[shown][which]
    return _by_thread(
        step, event, start, until, (trace.host.name[event] + np.int64(1)) * step.kinds + launched[event]
    )


def _by_thread(step: _Step, event: Int64s, start: Int64s, until: Int64s, item: Int64s) -> list[Line]:
    """A line for each thread of the host events ``event``."""
    calls = step.attribution.calls
    lasting = until - start
    main = main_thread(calls)
    backward = np.where(calls.phase[event] == BACKWARD, lasting, 0)
    lines = []
    for thread, own in places_of(calls.trace.host.thread[event]):
        role = (
            "main" if thread == main else "autograd" if 2 * backward[own].sum() > lasting[own].sum() else None
        )
        lines.append(step.line(item[own], start[own], until[own], kind="thread", thread=thread, role=role))
    return sorted(lines, key=lambda line: line.facts["role"] != "main")


def _longest(lines: list[Line], most: int) -> list[Line]:
    """The ``most`` lines with the most time, in their order."""
    kept = sorted(range(len(lines)), key=lambda at: -lines[at].lasting.sum())[:most]
    return [lines[at] for at in sorted(kept)]


def _most(group: Int64s, item: Int64s, lasting: Int64s) -> Int64s:
    """The groups, which are not negative, and the item with the most time in each."""
    keys, which = distinct_rows(group, item)
    keys = keys[np.lexsort((np.bincount(which, lasting), keys[:, 0]))]
    return np.transpose(keys[np.diff(keys[:, 0], append=-1) != 0])


def merged(line: Line, resolution: int) -> Line:
    """Neighbors below ``resolution`` that begin in the same part of the step as one segment, which lasts as
    long as they do."""
    part = np.where(line.lasting < resolution, line.begin // resolution, -1 - np.arange(len(line.begin)))
    is_first = np.diff(part, prepend=-1 - len(part)) != 0
    first = np.flatnonzero(is_first)
    group = np.cumsum(is_first)
    return Line(
        line.facts,
        line.begin[first],
        np.add.reduceat(line.lasting, first),
        _most(group, line.item, line.lasting)[1],
    )


def _longest_name(line: Line, kinds: int) -> int:
    """The name with the most time; what a name launched does not tell it apart."""
    names = np.where(line.item < kinds, line.item, line.item // kinds * kinds)
    return int(_most(np.zeros_like(names), names, line.lasting)[1][0])
