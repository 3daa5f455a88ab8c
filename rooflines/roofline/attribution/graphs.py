"""The operators of replayed kernels: from their captures, otherwise from eager calls of the same kernels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from rooflines.errors import TraceError
from rooflines.profiler.trace.calls import Calls
from rooflines.profiler.trace.graphs import Replay, replays
from rooflines.profiler.trace.nesting import Mask
from rooflines.profiler.trace.records import Int64s, Trace
from rooflines.roofline.attribution.eager_calls import EagerCalls
from rooflines.roofline.attribution.graph_matching import Difference, GraphMatcher, Match
from rooflines.roofline.attribution.origins import FROM_KERNEL, FROM_RUN, CountedTrace, Origins, joined, module_marks
from rooflines.units import counted

NO_CAPTURE = "replayed by a graph whose capture is not in the trace"
ADDED = "a copy or fill that its capture does not have"
_MOST_NOTES = 5


@dataclass(frozen=True, slots=True)
class _Found:
    """The matched replays, the first difference of each other replay, and the number of each graph."""

    matches: list[tuple[Replay, Match]]
    differences: list[tuple[Replay, Difference]]
    numbers: dict[int, int]


def find_origins(first: CountedTrace, captures: Sequence[CountedTrace], inside: Mask) -> tuple[Origins, Calls, tuple[str, ...]]:
    """Return the origins of the device events of ``first``, its calls with the modules of replayed captures, and notes.

    ``inside`` says which host events are in the window. ``captures`` are traces in which graphs were captured. Raises TraceError where
    these belong to another trace.
    """
    trace, launch = first.trace, first.calls.launch
    for one in captures:
        if not one.graphs:
            raise TraceError(f"the capture trace {one.name!r} contains no captured graph.", hint=_HINT)
    ran = [replay for replay in replays(first.calls) if first.ownership.owner[replay.launch] < 0]
    if captures and not ran:
        raise TraceError("the trace launches no graph, so a capture trace does not apply to it.", hint="Analyze it without a capture.")
    traces = (first, *captures)
    origins, calls, before, placed = joined(traces)
    if not ran:
        return origins, calls, ()
    found = _matched(trace, traces, ran)
    if captures and not any(match.trace for _, match in found.matches) and found.differences:
        # The graph that comes closest: the one of which most kernels agree.
        at = max(range(len(found.differences)), key=lambda at: found.differences[at][1].place)
        replay, difference = found.differences[at]
        raise TraceError(
            f"the capture {', '.join(repr(one.name) for one in captures)} does not fit the trace. "
            f"First difference: {_place(ran, replay)}, {difference.text}.",
            hint=_HINT,
        )
    event, of_replay, inferred = launch.copy(), np.full(len(launch), -1, np.int64), np.zeros(len(launch), np.int64)
    graph, graphs = np.full(len(launch), -1, np.int64), list[tuple[str, str]]()
    module_calls = calls.module_calls.copy()
    marks: dict[tuple[int, int], Int64s] = {}
    for replay, match in found.matches:
        known = match.launches >= 0
        event[match.events[known]] = match.launches[known] + before[match.trace]
        of_replay[match.events[known]] = replay.launch
        key = (match.trace, match.graph.events[0])
        if key not in marks:
            marks[key] = placed[match.trace][module_marks(traces[match.trace], match.graph)]
        if inside[replay.launch]:
            np.add.at(module_calls, marks[key], 1)
        _number(graph, graphs, match.events[~known], (_name(trace, found, replay), ADDED))
    eager = EagerCalls(first) if found.differences else None
    for replay, difference in found.differences:
        reason = f"fits no captured graph: {difference.text}" if difference.place >= 0 else NO_CAPTURE
        assert eager is not None
        events, launches, whole = eager.of(replay.events)
        event[events], inferred[events] = launches, FROM_RUN if whole else FROM_KERNEL
        of_replay[events] = replay.launch if whole else len(trace.host) + events
        _number(graph, graphs, np.setdiff1d(replay.events, events), (_name(trace, found, replay), reason))
    origins = replace(origins, event=event, replay=of_replay, inferred=inferred, graph=graph, graphs=tuple(graphs))
    return origins, replace(calls, module_calls=module_calls), tuple(_notes(ran, found))


_HINT = "Give the capture that the same run recorded, with the same batch sizes and versions."


def _matched(trace: Trace, traces: Sequence[CountedTrace], ran: list[Replay]) -> _Found:
    found = _Found([], [], {})
    sequences: dict[bytes, int] = {}
    for replay, result in zip(ran, GraphMatcher(trace, traces).match(ran), strict=True):
        names = trace.device.name[replay.events].tobytes()
        found.numbers[replay.launch] = sequences.setdefault(names, len(sequences) + 1)
        if isinstance(result, Difference):
            found.differences.append((replay, result))
        else:
            found.matches.append((replay, result))
    return found


def _name(trace: Trace, found: _Found, replay: Replay) -> str:
    """The name of the replayed graph: graphs with the same kernels have one number."""
    kind = "HIP" if trace.names[trace.host.name[replay.launch]].startswith("hip") else "CUDA"
    return f"{kind} graph {found.numbers[replay.launch]}"


def _number(graph: Int64s, graphs: list[tuple[str, str]], events: Int64s, label: tuple[str, str]) -> None:
    """Give these device events the number of the graph that is called ``label``."""
    if not len(events):
        return
    if label not in graphs:
        graphs.append(label)
    graph[events] = graphs.index(label)


def _place(ran: list[Replay], replay: Replay) -> str:
    return f"launch {ran.index(replay) + 1:,} of {len(ran):,}"


def _notes(ran: list[Replay], found: _Found) -> list[str]:
    """Return notes on replays that do not match a capture, or not in all kernels."""
    notes = []
    different = Counter(difference.text for _, difference in found.differences if difference.place >= 0)
    first = {difference.text: replay for replay, difference in reversed(found.differences)}
    for text, number in different.most_common(_MOST_NOTES):
        replayed = f"{counted(number, 'replay')} (first: {_place(ran, first[text])}) without a captured graph"
        notes.append(f"Unmodelled: {replayed}. First difference: {text}.")
    missing = sum(match.missing > 0 for _, match in found.matches)
    if missing:
        notes.append(f"The last kernel of the graph was not recorded in {counted(missing, 'replay')}; its operator is not counted.")
    larger = sum(match.larger for _, match in found.matches)
    if larger:
        fits = f"Captured graphs of several batch sizes fit {counted(larger, 'replay')}"
        why = "data parallelism may have replayed a larger one"
        notes.append(f"{fits}; the smallest that holds the tokens of the step is used, although {why}.")
    added = sum(int((match.launches < 0).sum()) for _, match in found.matches)
    if added:
        notes.append(f"Copies and fills of the replays that are not in the capture: {added:,}.")
    return notes
