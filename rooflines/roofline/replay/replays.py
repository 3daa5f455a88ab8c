"""What changes of a judged trace give: replays of its window, once the window as it was is reproduced.

Where steps were timed without the profiler, which slows the host down, the host's times are multiplied by
the one factor with which the replay lasts as long as a timed step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from msgspec import structs

from rooflines.profiler.read import intervals
from rooflines.profiler.read.intervals import Intervals
from rooflines.profiler.read.records import Int64s
from rooflines.roofline.analysis import Analysis, Key, ReplayedStep
from rooflines.roofline.count.counts import unset
from rooflines.roofline.judge.judge import Judged
from rooflines.roofline.own.device import OUTSIDE_STEPS
from rooflines.roofline.own.own import Attribution
from rooflines.roofline.replay.graph import WindowGraph, graph_of
from rooflines.roofline.replay.replay import NO_WAITS, UNCHANGED, Edit, cut, replay
from rooflines.roofline.replay.threads import clock, threads_of
from rooflines.roofline.uncertainty import Floats
from rooflines.units import percent

# A replay that differs from the recording by more says nothing of changes.
MOST_WRONG = 0.05
# Nor does one of which more than this is kept as recorded.
MOST_KEPT = 0.5
# Idle time that a change of the host shortens; a wait that goes is another kind of edit.
_OF_THE_HOST = ("host_bound", "kernel_wait", "data_loading")
_WAITED = "synchronization"

# Ends of replays that differ by less are the same.
_SAME = 0.002
# Rows below this share of the step have no gain.
_WORTH = 0.002
# Edits that are replayed in one batch.
_AT_ONCE = 16

# The seconds of a step that go, of rows and of idle time.
Change = Mapping[Key, float]


class Replays(NamedTuple):
    """The window of a judged trace, ready to be replayed with changes."""

    graph: WindowGraph
    #: the place in ``Analysis.rows`` of each piece of work (-1: of none)
    row: Int64s
    #: seconds of a step of each row, and of each cause of idle time
    seconds_of: dict[Key, float]
    #: when the device was idle, by cause, since the window began
    idle: dict[str, Intervals]
    #: when the host was in the operator that launched each piece
    operator: Intervals
    #: seconds of a step in a nanosecond of the window
    seconds: float
    #: what fits the host's times into a timed step
    pace: Edit
    #: how well the window is reproduced
    stated: ReplayedStep

    def gains_s(self, changes: Sequence[Edit], before: Edit = UNCHANGED) -> list[float]:
        """Seconds of a step that each of ``changes`` gives, alone or on top of those ``before``."""
        if not changes:
            return []
        base = before.joined(self.pace)
        ends = replay(self.graph, [base, *(change.joined(base) for change in changes)])
        gains: list[float] = ((ends[0] - ends[1:]) * self.seconds).tolist()
        return gains

    def edit(self, change: Change, *, launches: bool) -> Edit | None:
        """The edit in which these seconds of rows and of idle time go, with the ``launches`` of the rows
        where there are fewer of them; None where the trace does not hold what would change."""
        rows = {key: saved_s for key, saved_s in change.items() if isinstance(key, int)}
        causes = {key: saved_s for key, saved_s in change.items() if isinstance(key, str)}
        if not change or not all(self._holds(key, saved_s) for key, saved_s in causes.items()):
            return None
        waits = UNCHANGED if causes.pop(_WAITED, None) is None else NO_WAITS
        idle = cut([(self.idle[key], self._share(key, saved_s)) for key, saved_s in causes.items()])
        return waits.joined(idle).joined(self.of_rows(rows, launches=launches))

    def of_rows(self, rows: Mapping[int, float], *, launches: bool = False) -> Edit:
        """The edit in which these seconds of rows go; with ``launches`` also those, and the waits of copies
        for themselves."""
        goes = np.zeros(len(self.row))
        cuts = list[tuple[Intervals, float]]()
        for place, saved_s in rows.items():
            mine = self.row == place
            share = self._share(place, saved_s)
            goes[mine] = share
            if launches and mine.any():
                cuts.append((intervals.union(*self.operator[mine].T), share))
        waits = self.graph.copies & (goes[self.graph.target] > 0) & launches
        return replace(cut(cuts), scale=1.0 - goes, without=waits)

    def _share(self, key: Key, saved_s: float) -> float:
        """The part of a row or of a cause of idle time that goes."""
        return min(1.0, saved_s / self.seconds_of[key]) if self.seconds_of.get(key) else 0.0

    def _holds(self, cause: str, saved_s: float) -> bool:
        """Whether the traced steps have the idle time of this cause that is to go: where steps were timed, it
        may be that of those alone."""
        if cause not in _OF_THE_HOST or cause not in self.idle:
            return cause == _WAITED
        traced_s = intervals.length(self.idle[cause]) * self.seconds * float(self.pace.rates[0])
        return traced_s >= (1 - MOST_WRONG) * saved_s

    def launching(self, change: Change) -> Edit:
        """The edit in which all of the host's work takes less time, as much less as this is of its idle
        time."""
        idle_s = sum(self.seconds_of.get(key, 0.0) for key in change)
        return Edit(rates=np.array([1.0 - min(1.0, sum(change.values()) / idle_s if idle_s else 0.0)]))


def replays_of(judged: Judged) -> Replays | ReplayedStep | None:
    """The replays of a judged trace; only what is stated of them where they are not to be trusted, and None
    where there is nothing to replay."""
    found = judged.attribution
    analysis = judged.analysis
    if found is None or not len(found.windows) or analysis.timeline is None or analysis.device_untraced:
        return None
    window = _window(judged, found) if len(found.trace.device) else _of_threads(judged, found)
    if window is None:
        return None
    graph = window.graph
    seconds = found.factor / 1e9 / found.per
    end_ns = float(replay(graph, [UNCHANGED])[0])
    stated = ReplayedStep(
        recorded_s=graph.end_ns * seconds,
        error=abs(end_ns / graph.end_ns - 1),
        kept_fraction=min(1.0, float(np.sum(graph.kept_ns[graph.launched])) / graph.end_ns),
        by_construction=window.steady is not None,
    )
    if stated.error > MOST_WRONG:
        return structs.replace(stated, reason=f"it is {percent(stated.error)} off")
    if stated.kept_fraction > MOST_KEPT:
        return structs.replace(
            stated,
            reason=f"for {percent(stated.kept_fraction)} of it the trace does not show what work waits for",
        )
    pace: Edit | None = UNCHANGED
    if window.steady is not None:
        graph = replace(graph, lasting_ns=graph.lasting_ns * window.steady)
    if analysis.basis.timed or window.steady is not None:
        pace = _fitted(graph, analysis.timeline.span_s / seconds)
    if pace is None:
        return structs.replace(
            stated, reason="the timed steps differ from the traced ones by more than the host's times explain"
        )
    return Replays(
        graph=graph,
        row=window.row,
        seconds_of={
            **{place: row.time_s for place, row in enumerate(analysis.rows)},
            **{cause: analysis.idle_s(cause) for cause in (*_OF_THE_HOST, _WAITED)},
        },
        idle=window.idle,
        operator=window.operator,
        seconds=seconds,
        pace=pace,
        stated=structs.replace(stated, host_pace=float(pace.rates[0])),
    )


class _Window(NamedTuple):
    """The recorded window: its graph, the place in ``Analysis.rows`` of each piece (-1: of none), and on the
    graph's clock the idle times by cause and when the host was in the operator that launched each piece."""

    graph: WindowGraph
    row: Int64s
    idle: dict[str, Intervals]
    operator: Intervals
    #: of a processor: the time of each piece in a steady step over its own
    steady: Floats | None = None


def _window(judged: Judged, found: Attribution) -> _Window | None:
    """The work of a device, or None without a recorded launch."""
    codes = _codes(found)
    outside = np.array([*(gap.reason == OUTSIDE_STEPS for gap in (*found.rows, *found.gaps)), True])
    last_ns = int(found.calls.steps[-1, 1]) if found.steps else None
    window = int(found.windows[0, 0]), int(found.windows[-1, 1])
    device = found.trace.device
    # What begins and ends in the same microsecond has no piece of the time.
    belongs = ~outside[codes] | ((device.start_ns == device.end_ns) & (found.calls.launch >= 0))
    graph = graph_of(found.calls, window, belongs, last_ns)
    if graph is None:
        return None
    begin_ns = np.int64(graph.begin_ns)
    launch = found.calls.launch[graph.event]
    around = np.where(launch >= 0, found.calls.operator[launch], -1)
    around = np.where(around >= 0, around, launch)
    operator = np.stack((found.calls.begin_ns[around], found.calls.end_ns[around]), axis=1) - begin_ns
    row = np.append(judged.place, -1)[codes[graph.event]]
    return _Window(graph, row, {cause: times - begin_ns for cause, times in judged.causes.items()}, operator)


def _of_threads(judged: Judged, found: Attribution) -> _Window:
    """The work of a processor, whose operators are as much faster in the timed steps as all of them are."""
    graph = threads_of(found)
    of_steps = clock(found)
    weight = found.pieces.weight
    row = np.append(judged.place[found.place], -1)[graph.event]
    steady = np.ones(len(row)) if weight is None else np.append(weight, 1.0)[graph.event]
    traced_s = found.counted_ns / 1e9 / found.per
    steady = steady * (sum(one.time_s for one in judged.analysis.rows) / traced_s if traced_s else 1.0)
    idle = {cause: np.rint(of_steps(times)).astype(np.int64) for cause, times in judged.causes.items()}
    return _Window(graph, row, idle, np.zeros((len(row), 2), np.int64), steady)


def with_gains(analysis: Analysis, replays: Replays) -> Analysis:
    """The analysis with what the step gains where an operator runs at its bound, and the part of the
    operator's time that decides how long the step lasts."""
    least_s = _WORTH * replays.stated.recorded_s
    rows = {place: row for place, row in enumerate(analysis.operators) if row.time_s >= least_s > 0}
    at_bound = {place: row.headroom_s for place, row in rows.items() if row.headroom_s is not None}
    whole = {place: row.time_s for place, row in rows.items()}
    saved = [*at_bound.items(), *whole.items()]
    if replays.graph.own_ns is not None and len(replays.graph.order) == 1:
        gains_s = [saved_s for _, saved_s in saved]  # one thread is a sum
    else:
        gains_s = [
            gain_s
            for at in range(0, len(saved), _AT_ONCE)
            for gain_s in replays.gains_s([replays.of_rows(dict([one])) for one in saved[at : at + _AT_ONCE]])
        ]
    gain = dict(zip(at_bound, gains_s, strict=False))
    gone = dict(zip(whole, gains_s[len(at_bound) :], strict=True))
    operators = [
        structs.replace(
            row,
            gain_s=min(max(0.0, gain[place]), at_bound[place]) if place in gain else None,
            critical_fraction=min(1.0, max(0.0, gone[place] / row.time_s)) if place in gone else None,
        )
        for place, row in enumerate(analysis.operators)
    ]
    return structs.replace(analysis, operators=tuple(operators))


def _codes(found: Attribution) -> Int64s:
    """The number of the row of each device event, those of gaps behind those of rows; -1 of what others
    launched."""
    codes = unset(len(found.trace.device))
    mine = found.pieces.row != -1
    codes[found.pieces.event[mine]] = found.place[mine]
    return codes


def _fitted(graph: WindowGraph, end_ns: float) -> Edit | None:
    """The host's pace with which the window ends at ``end_ns``: as recorded where that is near enough, else
    the slowest of those that fit; None where none does."""
    low = 0.0
    high = 1.0
    for _ in range(2):
        paces = np.linspace(low, high, 17)
        wrong = np.abs(replay(graph, [Edit(rates=np.array([pace])) for pace in paces.tolist()]) / end_ns - 1)
        if high == 1.0 and wrong[-1] <= MOST_WRONG:
            return UNCHANGED
        at = int(np.flatnonzero(wrong <= wrong.min() + _SAME)[-1])
        low = paces[max(0, at - 1)]
        high = paces[min(len(paces) - 1, at + 1)]
    return Edit(rates=paces[at : at + 1]) if wrong[at] <= MOST_WRONG else None
