"""The operators of replayed kernels: from their captures, otherwise from eager calls of the same kernels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from rooflines.errors import TraceError
from rooflines.profiler.read.records import MEMCPY, MEMSET, Int64s, Mask, Trace, of_kinds
from rooflines.profiler.tree.graphs import Replay, is_graph_launch, replays
from rooflines.profiler.tree.tree import Calls
from rooflines.roofline.count.counts import unset
from rooflines.roofline.own.graph_matching import GraphDifference, GraphMatch, GraphMatcher
from rooflines.roofline.own.origins import FROM_KERNEL, FROM_RUN, CountedTrace, Origins, joined, module_marks
from rooflines.units import counted

NO_CAPTURE = "replayed by a graph whose capture is not in the trace"
ADDED = "a copy or fill that its capture does not have"
_MOST_NOTES = 5


def find_origins(
    first: CountedTrace, captures: Sequence[CountedTrace], inside: Mask
) -> tuple[Origins, Calls, tuple[str, ...]]:
    """Return the origins of the device events of ``first``, its calls with the modules of replayed captures,
    and notes.

    ``inside`` says which host events are in the window. ``captures`` are traces in which graphs were
    captured. Raises TraceError where these belong to another trace.
    """
    trace = first.trace
    launch = first.calls.launch
    for one in captures:
        if not one.graphs:
            raise TraceError(f"the capture trace {one.name!r} contains no captured graph.", hint=_HINT)
    ran = [replay for replay in replays(first.calls) if first.ownership.owner[replay.launch] < 0]
    if captures and not ran:
        raise TraceError(
            "the trace launches no graph, so a capture trace does not apply to it.",
            hint="Analyze it without a capture.",
        )
    traces = (first, *captures)
    origins, calls, before, placed = joined(traces)
    if not ran:
        return origins, calls, ()
    results = list(zip(ran, GraphMatcher(trace, traces).match(ran), strict=True))
    matches = [(replay, result) for replay, result in results if isinstance(result, GraphMatch)]
    differences = [(replay, result) for replay, result in results if isinstance(result, GraphDifference)]
    if captures and not any(match.captured.trace for _, match in matches) and differences:
        # The graph that comes closest: the one of which most kernels agree.
        replay, difference = max(differences, key=lambda pair: pair[1].place)
        raise TraceError(
            f"the capture {', '.join(repr(one.name) for one in captures)} does not fit the trace. "
            f"First difference: {_place(ran, replay)}, {difference.text}.",
            hint=_HINT,
        )
    event = launch.copy()
    of_replay = unset(len(launch))
    inferred = np.zeros(len(launch), np.int64)
    graph = unset(len(launch))
    graphs = dict[tuple[str, str], int]()
    module_calls = calls.module_calls.copy()
    marks: dict[tuple[int, int], Int64s] = {}
    names = _names(trace, ran)
    for replay, match in matches:
        known = match.launches >= 0
        at = match.captured.trace
        captured = match.captured.graph
        event[match.events[known]] = match.launches[known] + before[at]
        of_replay[match.events[known]] = replay.launch
        key = (at, captured.events[0])
        if key not in marks:
            marks[key] = placed[at][module_marks(traces[at], captured)]
        if inside[replay.launch]:
            np.add.at(module_calls, marks[key], 1)
        if not known.all():
            graph[match.events[~known]] = graphs.setdefault((names[replay.launch], ADDED), len(graphs))
    if differences:
        eager = EagerCalls(first)
    for replay, difference in differences:
        reason = f"fits no captured graph: {difference.text}" if difference.place >= 0 else NO_CAPTURE
        events, launches, whole = eager.of(replay.events)
        event[events], inferred[events] = launches, FROM_RUN if whole else FROM_KERNEL
        of_replay[events] = replay.launch if whole else len(trace.host) + events
        without = np.setdiff1d(replay.events, events)
        if len(without):
            graph[without] = graphs.setdefault((names[replay.launch], reason), len(graphs))
    origins = replace(
        origins, event=event, replay=of_replay, inferred=inferred, graph=graph, graphs=tuple(graphs)
    )
    return origins, replace(calls, module_calls=module_calls), tuple(_notes(ran, matches, differences))


_HINT = "Give the capture that the same run recorded, with the same batch sizes and versions."


def _names(trace: Trace, ran: list[Replay]) -> dict[int, str]:
    """The name of each replayed graph by its launch: graphs with the same kernels have one number."""
    numbers: dict[bytes, int] = {}
    names = {}
    for replay in ran:
        kind = "HIP" if trace.names[trace.host.name[replay.launch]].startswith("hip") else "CUDA"
        number = numbers.setdefault(trace.device.name[replay.events].tobytes(), len(numbers) + 1)
        names[replay.launch] = f"{kind} graph {number}"
    return names


def _place(ran: list[Replay], replay: Replay) -> str:
    return f"launch {ran.index(replay) + 1:,} of {len(ran):,}"


def _notes(
    ran: list[Replay],
    matches: list[tuple[Replay, GraphMatch]],
    differences: list[tuple[Replay, GraphDifference]],
) -> Iterator[str]:
    """Return notes on replays that do not match a capture, or not in all kernels."""
    different = Counter(difference.text for _, difference in differences if difference.place >= 0)
    first = {difference.text: replay for replay, difference in reversed(differences)}
    for text, number in different.most_common(_MOST_NOTES):
        yield (
            f"Unmodeled: {counted(number, 'replay')} (first: {_place(ran, first[text])}) without a captured "
            f"graph. First difference: {text}."
        )
    missing = sum(match.missing > 0 for _, match in matches)
    if missing:
        yield (
            f"The last kernel of the graph was not recorded in {counted(missing, 'replay')}; its "
            "operator is not counted."
        )
    larger = sum(match.larger for _, match in matches)
    if larger:
        yield (
            f"Captured graphs of several batch sizes fit {counted(larger, 'replay')}; the smallest that "
            "holds the tokens of the step is used, although data parallelism may have replayed a larger one."
        )
    added = sum(int((match.launches < 0).sum()) for _, match in matches)
    if added:
        yield f"Copies and fills of the replays that are not in the capture: {added:,}."


# Eager calls that give the work of replayed kernels, for graphs without a capture.
#
# A run of the whole graph before its capture (the warm-up) is equivalent to the capture: the same kernels
# with the same grids and blocks in the same order. A single kernel determines less. The grid of a product
# does not contain the summed dimension or the part inside a tile, that of a reduction not the length of what
# is reduced, and that of an element-wise kernel not which operands are broadcast. Only PyTorch's vectorized
# kernels have contiguous operands of one size, which the grid determines to within one block. Their work is
# that of the eager calls if these have one signature and run nothing else, and if one block of the grid does
# not matter; their module is not known. Grids must be recorded on both sides, which ROCm does not do for
# replays.

_VECTORIZED = "vectorized_elementwise_kernel"
# One block is then 1 % of the elements.
_LEAST_BLOCKS = 100
# Fewer kernels in order are a coincidence.
_LEAST_RUN = 3
_MOST_PLACES = 4096


class EagerCalls:
    """The calls of the trace that launched their kernels themselves."""

    def __init__(self, one: CountedTrace) -> None:
        launch = one.calls.launch
        trace = one.trace
        host = one.trace.host
        device = one.trace.device
        eager = np.flatnonzero(np.append(~is_graph_launch(trace), False)[launch])
        order = np.lexsort((device.start_ns[eager], host.start_ns[launch[eager]], host.thread[launch[eager]]))
        self._launch = launch[eager[order]]
        copies = of_kinds(device.kind, (MEMCPY, MEMSET))
        shapes = np.where(copies, -2, device.shape).astype(np.int64)
        # The name and the launch shape of each device event in one number.
        self._code = device.name.astype(np.int64) * (len(trace.launch_shapes) + 2) + shapes + 2
        self._complete = copies | (device.shape >= 0)
        self._eager = self._code[eager[order]]
        owner = one.ownership.owner[self._launch]
        self._variant = np.append(one.counts.of_event, -1)[owner]
        launches = np.bincount(owner[owner >= 0], minlength=len(host))
        self._alone = np.append(launches == 1, False)[owner]
        named = np.array([_VECTORIZED in name for name in trace.names] or [False], bool)
        blocks = np.array([*(x * y * z for (x, y, z), _ in trace.launch_shapes), 0], np.int64)
        self._sized: Mask = named[device.name] & (blocks[device.shape] >= _LEAST_BLOCKS)
        self._known: dict[bytes, tuple[Int64s, Int64s, bool]] = {}

    def of(self, events: Int64s) -> tuple[Int64s, Int64s, bool]:
        """Return the device ``events`` of a replay with a known eager call, the launches of these calls, and
        whether they are a run of the whole graph."""
        wanted = self._code[events]
        key = wanted.tobytes()
        if key not in self._known:
            run = self._run(wanted) if len(wanted) >= _LEAST_RUN and self._complete[events].all() else None
            if run is not None:
                places = np.flatnonzero(self._variant[run : run + len(wanted)] >= 0)
                self._known[key] = places, self._launch[run + places], True
            else:
                sized = np.flatnonzero(self._sized[events]).tolist()
                pairs = [(at, found) for at in sized if (found := self._call(int(wanted[at]))) >= 0]
                places, launches = np.array(pairs, np.int64).reshape(-1, 2).T
                self._known[key] = places, launches, False
        places, launches, whole = self._known[key]
        return events[places], launches, whole

    def _run(self, wanted: Int64s) -> int | None:
        """Return where the kernels ran eagerly in this order; None if nowhere, or in calls that differ."""
        codes, numbers = np.unique(self._eager, return_counts=True)
        if not len(codes):
            return None
        at = np.minimum(np.searchsorted(codes, wanted), len(codes) - 1)
        if (codes[at] != wanted).any():
            return None
        rarest = int(np.argmin(numbers[at]))
        starts = np.flatnonzero(self._eager == wanted[rarest]) - rarest
        starts = starts[(starts >= 0) & (starts + len(wanted) <= len(self._eager))][:_MOST_PLACES]
        runs = [
            start for start in starts.tolist() if (self._eager[start : start + len(wanted)] == wanted).all()
        ]
        calls = {self._variant[start : start + len(wanted)].tobytes() for start in runs}
        return runs[0] if len(calls) == 1 else None

    def _call(self, code: int) -> int:
        """Return the first eager launch of this kernel; -1 if there is none or if the calls differ."""
        places = np.flatnonzero(self._eager == code)
        if not len(places) or self._variant[places[0]] < 0 or not self._alone[places].all():
            return -1
        return int(self._launch[places[0]]) if len(np.unique(self._variant[places])) == 1 else -1
