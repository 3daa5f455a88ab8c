"""The step, divided: every instant of it belongs to one class, so that all shares have the same denominator.

Where several things run at once, compute comes before copies, copies before communication, and what runs
before what waits; among kernels that run at once the first class in the order of ``BOUND_ORDER`` counts. What
a class hides stays in the figures of the timeline (``memcpy_s`` and ``communication_s`` next to their exposed
parts). Idle time is the input's, the host's or ``idle``, by its cause (``tree/idle.py``).

Where steps were timed without the profiler, their median is the length of the step. The profiler makes the
host slower, not the device: the busy time of a device counts as traced, and idle is what the timed step
leaves, its causes in the proportion of the traced ones. The operators of a processor are slower under the
profiler as well: all of their times are multiplied by one factor (``clock_factor``), and the timed steps say
how much of the step waits for data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import msgspec
import numpy as np

from rooflines.profiler.read import intervals
from rooflines.profiler.read.distinct import distinct, distinct_rows
from rooflines.profiler.read.intervals import Intervals
from rooflines.profiler.read.records import (
    ANNOTATION,
    COMMUNICATION,
    KERNEL,
    MEMCPY,
    MEMSET,
    OPERATOR,
    DeviceEvents,
    Int64s,
    Trace,
)
from rooflines.profiler.read.request_marks import is_step_mark
from rooflines.profiler.tree.breakdown import device_intervals, host_intervals
from rooflines.profiler.tree.idle import idle_causes
from rooflines.profiler.tree.tree import BACKWARD, DECODE, FORWARD, OPTIMIZER, OUTSIDE, PREFILL, Calls
from rooflines.roofline.analysis import PARTS, OperatorRow, StepDivision, Timeline
from rooflines.roofline.count.by_key import longest_first
from rooflines.roofline.count.counts import places_of
from rooflines.roofline.count.kernel_names import kernel_category
from rooflines.roofline.judge.bounds import FROM_HOST, TO_HOST
from rooflines.roofline.own.host import steady_times
from rooflines.roofline.own.own import Attribution

# Classes by what bounds them, those of the busy time in the order in which they count where several run at
# once.
BOUND_ORDER = (
    "compute",
    "memory",
    "inefficient",
    "latency",
    "unknown",
    "transfer",
    "communication",
    "input",
    "host",
    "idle",
)
# Work without a count has no bound; here it is apart from work whose bound is not known for want of ceilings.
_UNCOUNTED = "uncounted"
# Beside a larger share of unknown time, bounds of the other operators say little of the whole.
MOST_UNKNOWN = 0.2
# The class of idle time, by its cause, in the breakdown by bound and in the division.
_OF_CAUSE = {
    "data_loading": "input",
    "host_bound": "host",
    "synchronization": "host",
    "communication": "communication",
}
_PART_OF_CLASS = {"input": "data_loading", "host": "host", "communication": "communication", "idle": "idle"}
_PART_ORDER = (
    "optimizer",
    "backward",
    "forward",
    "prefill",
    "decode",
    "other",
    "host_to_device",
    "communication",
    "data_loading",
)
_PHASES = {
    FORWARD: "forward",
    BACKWARD: "backward",
    OPTIMIZER: "optimizer",
    OUTSIDE: "data_loading",
    PREFILL: "prefill",
    DECODE: "decode",
}
COMMUNICATION_CALLS = ("c10d::", "record_param_comms", "nccl:", "gloo:", "mpi:")

Key = tuple[str, str, str]  # bound class, part of the step, category


class Label(NamedTuple):
    """The bound class and the category of a piece of busy time, of which a judged operator has both."""

    bound: str
    category: str


Labels = Sequence[Label | OperatorRow]


class Partition(NamedTuple):
    """The seconds of a step, or of the trace, in disjoint classes: ``busy`` by (bound, part, category),
    ``idle`` by cause.

    ``loader_s`` is how long the host was in the data loader, hidden or not, and ``of`` whose time it is.
    ``causes`` are the traced intervals of the idle time by cause.
    """

    of: str
    timeline: Timeline
    busy: dict[Key, float]
    idle: dict[str, float]
    loader_s: float | None = None
    causes: dict[str, Intervals] | None = None

    @property
    def step_s(self) -> float:
        """The whole."""
        return self.timeline.span_s

    @property
    def is_bounded(self) -> bool:
        """Whether the bounds of the operators are bounds of the whole: at most a fifth of the busy time is
        unknown."""
        return self.bounds().get("unknown", 0.0) <= MOST_UNKNOWN * self.timeline.busy_s

    def bounds(self) -> dict[str, float]:
        """Seconds by what bounds them, longest first; ``host`` is there even where it is nothing."""
        idle = ((_OF_CAUSE.get(cause, "idle"), time_s) for cause, time_s in self.idle.items())
        return longest_first(
            [("host", 0.0), *((_shown(bound), time_s) for (bound, _, _), time_s in self.busy.items()), *idle]
        )

    @property
    def uncounted_s(self) -> float:
        """Seconds of the busy time in work without a count."""
        return sum(time_s for (bound, _, _), time_s in self.busy.items() if bound == _UNCOUNTED)

    def categories(self) -> dict[str, float]:
        """Seconds of the busy time by category of operator, longest first, for kernels without a count by
        their names; ``unknown`` are those whose names tell none."""
        return longest_first((category, time_s) for (_, _, category), time_s in self.busy.items())

    def division(self) -> StepDivision:
        """Seconds by what the time is for."""
        idle = ((_PART_OF_CLASS[_OF_CAUSE.get(cause, "idle")], time_s) for cause, time_s in self.idle.items())
        found = longest_first([*((part, time_s) for (_, part, _), time_s in self.busy.items()), *idle])
        parts = {f"{part}_s": found[part] for part in PARTS if found.get(part)}
        return StepDivision(
            of="host" if self.of == "cpu" else "device", step_s=self.step_s, loader_s=self.loader_s, **parts
        )

    def timed(self, step_s: float, waits: float | None = None) -> Partition:
        """The partition of a step that takes ``step_s`` and waits for its data for the share ``waits`` of it,
        if that is known.

        The busy time, which is on this clock already (``clock_factor``), stays; idle time is the rest of the
        step.
        """
        idle_s = max(0.0, step_s - self.timeline.busy_s)
        loaded_s = self.idle.get("data_loading", 0.0)
        rest = {cause: time_s for cause, time_s in self.idle.items() if cause != "data_loading"}
        rest_s = sum(rest.values())
        waits_s = loaded_s * idle_s / (loaded_s + rest_s) if loaded_s + rest_s > 0 else 0.0
        if waits is not None:
            inside = (time_s for (_, part, _), time_s in self.busy.items() if part == "data_loading")
            inside_s = sum(inside) if self.of == "cpu" else 0.0
            waits_s = min(idle_s, max(0.0, waits * step_s - inside_s))
        left_s = idle_s - waits_s
        idle = (
            {cause: time_s * left_s / rest_s for cause, time_s in rest.items()}
            if rest_s > 0
            else {"host_bound": left_s}
        )
        idle = {cause: time_s for cause, time_s in {"data_loading": waits_s, **idle}.items() if time_s > 0}
        idle_s = sum(idle.values())
        timeline = msgspec.structs.replace(self.timeline, span_s=self.timeline.busy_s + idle_s, idle_s=idle_s)
        return self._replace(idle=idle, timeline=timeline)


def partition(attribution: Attribution, labels: Labels) -> Partition:
    """Divide the steps of ``attribution``, or the whole trace where it has none, per step; ``labels`` go with
    its rows."""
    seconds = 1 / 1e9 / attribution.per
    window = attribution.window
    loading = intervals.intersect(_in_loader(attribution.calls), window)
    on_device = len(attribution.trace.device) > 0
    keys, ranks = _device_keys(attribution, labels) if on_device else _host_keys(attribution, labels)
    starts, ends = attribution.pieces.start_ns, attribution.pieces.end_ns
    weights: dict[int, float] = {}
    if not on_device:  # what runs in the loader is the loader's
        loaded = intervals.intersect(loading, attribution.busy)
        starts = np.concatenate((loaded[:, 0], starts))
        ends = np.concatenate((loaded[:, 1], ends))
        weights = _weights(attribution, loading, ranks + 1)
        keys = [("input", "data_loading", "input"), *keys]
        ranks = np.concatenate((np.zeros(len(loaded), np.int64), ranks + 1))
    lasting, busy = _exclusive(starts, ends, ranks, window)
    found: dict[Key, float] = {}
    for rank, time_ns in lasting.items():
        factor = attribution.factors.get(keys[rank][1], attribution.factor)
        found[keys[rank]] = time_ns * seconds * factor * weights.get(rank, 1.0)
    whole = intervals.merge(window, intervals.intersect(attribution.overhead, attribution.windows))
    idle, causes = _idle(attribution, intervals.subtract(whole, busy), loading)
    timeline = _timeline(attribution, window, busy, found, idle, seconds)
    return Partition(
        of="device" if on_device else "cpu",
        timeline=timeline,
        busy=found,
        idle=idle,
        loader_s=intervals.length(loading) * seconds if len(loading) else None,
        causes=causes,
    )


def clock_factor(attribution: Attribution, step_s: float, waits: float | None) -> float:
    """Return what the traced times are multiplied by, so that they fit into a timed step of ``step_s``
    seconds.

    Kernels of a device count as traced, but where they would take longer than the whole step. Of a processor
    everything but the waiting for data, the share ``waits`` of the step, is slower under the profiler.
    """
    count = attribution.per
    busy_s = attribution.busy_ns / 1e9 / count
    if len(attribution.trace.device):
        return min(1.0, step_s / busy_s) if busy_s > 0 else 1.0
    loading = intervals.intersect(_in_loader(attribution.calls), attribution.window)
    outside = intervals.subtract(attribution.busy, loading)
    idle, _ = _idle(attribution, intervals.subtract(attribution.window, attribution.busy), loading)
    pace = _weights(attribution, loading, np.ones(len(attribution.pieces.row), np.int64)).get(1, 1.0)
    works_s = (
        intervals.length(outside) / 1e9 / count * pace + sum(idle.values()) - idle.get("data_loading", 0.0)
    )
    if waits is None:
        works_s = busy_s * attribution.pace + sum(idle.values())
        waits = 0.0
    return step_s * (1 - waits) / works_s if works_s > 0 else 1.0


def loading_share(attribution: Attribution) -> float | None:
    """The share of a step that is in the data loader, the median over the traced steps; None without a
    loader."""
    loading = _in_loader(attribution.calls)
    lengths = attribution.windows[:, 1] - attribution.windows[:, 0]
    if not len(loading) or not lengths.all():
        return None
    return float(np.median(intervals.covered(loading, attribution.windows) / lengths))


def _weights(attribution: Attribution, loading: Intervals, ranks: Int64s) -> dict[int, float]:
    """The steady time over the traced time of the pieces of each rank, outside of the loader; rank 0 is what
    runs in the loader."""
    pieces = attribution.pieces
    if pieces.weight is None:
        return {}
    inside = intervals.covered(loading, np.stack((pieces.start_ns, pieces.end_ns), axis=1))
    lasting = np.concatenate((inside, pieces.end_ns - pieces.start_ns - inside))
    ranks = np.concatenate((np.zeros(len(inside), np.int64), ranks))
    weight = np.tile(pieces.weight, 2)
    traced = np.bincount(ranks, weights=lasting)
    steady = np.bincount(ranks, weights=lasting * weight)
    return {
        rank: after / before
        for rank, (before, after) in enumerate(zip(traced.tolist(), steady.tolist(), strict=True))
        if before
    }


def _idle(
    attribution: Attribution, gaps: Intervals, loading: Intervals
) -> tuple[dict[str, float], dict[str, Intervals]]:
    """Seconds of a step by cause in which nothing runs, and when that was.

    The time of a processor outside of operators is steady, as theirs is, and without that of the ranges of
    modules; waiting for data is not the same in every step, and has its mean.
    """
    seconds = attribution.factor / 1e9 / attribution.per
    if len(attribution.trace.device):
        causes = idle_causes(attribution.calls, gaps)
        causes = {cause: intervals.subtract(times, attribution.overhead) for cause, times in causes.items()}
        return {
            cause: time_ns * seconds
            for cause, times in causes.items()
            if (time_ns := intervals.length(times))
        }, causes
    causes = _host_causes(attribution.calls, gaps, loading)
    found = {}
    for cause, times in causes.items():
        lasting = float(intervals.length(times))
        if cause != "data_loading" and attribution.is_steady:
            each = intervals.covered(times, attribution.windows)
            lasting = float(steady_times(np.zeros(len(each), np.int64), each, attribution.quiet).sum())
        if cause == "host_bound":
            lasting = max(0.0, lasting - attribution.ranges_ns)
        if lasting:
            found[cause] = lasting * seconds
    return found, causes


def whole_trace(trace: Trace, earlier_ns: int) -> Timeline | None:
    """The timeline from the first to the last device event, as other tools publish it; None in a trace
    without device events."""
    if not len(trace.device):
        return None
    busy = device_intervals(trace)
    window = np.array([[busy[0, 0], busy[-1, 1]]], np.int64) if len(busy) else busy
    return _timeline_of(trace, window, busy, 1e-9, earlier_s=earlier_ns * 1e-9)


def _exclusive(
    starts: Int64s, ends: Int64s, ranks: Int64s, window: Intervals
) -> tuple[dict[int, int], Intervals]:
    """Nanoseconds of each rank, where several run at once those of the lowest, and when anything runs."""
    index, starts, ends = intervals.split(starts, ends, window)
    ranks = ranks[index]
    busy = intervals.union(starts, ends)
    if int((ends - starts).sum()) == intervals.length(busy):  # nothing overlaps
        times = np.zeros(int(ranks.max(initial=-1)) + 1, np.int64)
        np.add.at(times, ranks, ends - starts)
        return {rank: time_ns for rank, time_ns in enumerate(times.tolist()) if time_ns}, busy
    found = {}
    taken = intervals.NONE
    for rank, chosen in places_of(ranks):
        own = intervals.union(starts[chosen], ends[chosen])
        found[rank] = intervals.length(intervals.subtract(own, taken))
        taken = intervals.merge(taken, own)
    return found, busy


def _shown(bound: str) -> str:
    """The class of a bound in the breakdown."""
    return "unknown" if bound == _UNCOUNTED else bound


def _ranked(found: Sequence[Key], which: Int64s) -> tuple[list[Key], Int64s]:
    """The distinct keys in the order in which they count, and the place of each piece's key in it."""

    def order(key: Key) -> tuple[bool, int, bool, int, str]:
        bound, part, category = key
        # Work of a thread that loads data ahead comes last: nothing waits for it.
        return (
            part == "data_loading",
            BOUND_ORDER.index(_shown(bound)),
            bound == _UNCOUNTED,
            _PART_ORDER.index(part),
            category,
        )

    keys = sorted(set(found), key=order)
    place = {key: number for number, key in enumerate(keys)}
    return keys, np.array([place[key] for key in found], np.int64)[which] if len(found) else which


def _device_keys(attribution: Attribution, labels: Labels) -> tuple[list[Key], Int64s]:
    device, pieces = attribution.trace.device, attribution.pieces
    direction = np.array(
        [2 * _says(name, FROM_HOST) + _says(name, TO_HOST) for name in attribution.trace.names], np.int64
    )
    way = np.where(device.kind == MEMCPY, direction[device.name], 0)
    # The operator says what a kernel does, counted or not; where it is not known, the kernel's name.
    name = np.where(pieces.row < 0, device.name[pieces.event], -1)
    keys, which = distinct_rows(
        pieces.row, device.kind[pieces.event], attribution.phase[pieces.event], way[pieces.event], name
    )
    found: list[Key] = []
    for row, kind, during, copied, named in keys.tolist():
        if kind == COMMUNICATION:
            found.append(("communication",) * 3)
        elif copied:
            category = labels[row].category if row >= 0 else "copy"
            found.append(("transfer", "host_to_device" if copied >= 2 else "other", category))
        else:
            found.append(_key(attribution, labels, row, during, attribution.trace.names[named]))
    return _ranked(found, which)


def _says(name: str, words: Sequence[str]) -> bool:
    return any(word in name for word in words)


def _talks(name: str) -> bool:
    return name.startswith(COMMUNICATION_CALLS)


def _key(attribution: Attribution, labels: Labels, row: int, phase: int, kernel: str = "") -> Key:
    """The key of a row in a phase; of a gap the category by the name of its operator, which says it although
    there is no count, else by that of its kernel."""
    part = _PHASES.get(phase, "other")
    if row >= 0:
        return labels[row].bound, part, labels[row].category
    category = attribution.gaps[-2 - row].count.category
    return _UNCOUNTED, part, category if category != "other" else kernel_category(kernel) or "unknown"


def _host_keys(attribution: Attribution, labels: Labels) -> tuple[list[Key], Int64s]:
    pieces = attribution.pieces
    talks = attribution.trace.named(_talks)[pieces.event]
    keys, which = distinct_rows(pieces.row, attribution.calls.phase[pieces.event], talks)
    found = [
        ("communication",) * 3 if talking else _key(attribution, labels, row, during)
        for row, during, talking in keys.tolist()
    ]
    return _ranked(found, which)


def _host_causes(calls: Calls, gaps: Intervals, loading: Intervals) -> dict[str, Intervals]:
    """The time of a CPU outside of operators: in the data loader, while other threads exchange data, and the
    rest."""
    host = calls.trace.host
    talks = calls.trace.named(_talks)
    # Nothing waits for a thread that loads data ahead.
    loads, _ = distinct(
        host.thread[
            (host.kind == ANNOTATION) & (calls.phase == OUTSIDE) & (host.thread != main_thread(calls))
        ]
    )
    rest = intervals.subtract(gaps, loading)
    exchanging = intervals.intersect(rest, host_intervals(calls, talks & ~np.isin(host.thread, loads)))
    return {
        "data_loading": intervals.intersect(gaps, loading),
        "communication": exchanging,
        "host_bound": intervals.subtract(rest, exchanging),
    }


def _in_loader(calls: Calls) -> Intervals:
    """When the thread that makes the steps was in a data loader; in a trace without steps, when any thread
    was."""
    host = calls.trace.host
    chosen = (host.kind == ANNOTATION) & (calls.phase == OUTSIDE)
    if len(calls.steps):
        chosen &= host.thread == main_thread(calls)
    return host_intervals(calls, chosen)


def main_thread(calls: Calls) -> int:
    """The thread that makes the steps; without steps the one with the most operators' time."""
    host = calls.trace.host
    if not len(host):
        return -1
    steps = calls.trace.named(is_step_mark, ANNOTATION)
    if steps.any():
        return int(np.bincount(host.thread[steps]).argmax())
    outermost = (host.kind == OPERATOR) & (calls.parent < 0)
    lasting = np.where(outermost, calls.end_ns - host.start_ns, 0)
    return int(np.bincount(host.thread, weights=lasting).argmax())


def _timeline(
    attribution: Attribution,
    window: Intervals,
    busy: Intervals,
    found: dict[Key, float],
    idle: dict[str, float],
    seconds: float,
) -> Timeline:
    """The timeline of a step, on the clock of ``attribution``; of a processor the sums of what ``found`` and
    ``idle`` say."""
    trace = attribution.trace
    if len(trace.device):
        return _timeline_of(
            trace,
            window,
            busy,
            seconds * attribution.factor,
            overlap_s=attribution.overlap_ns * seconds,
            ready_communication_s=_ready_ns(attribution, window) * seconds * attribution.factor,
        )
    busy_s = sum(found.values())
    idle_s = sum(idle.values())
    every_s = attribution.counted_ns * seconds
    overlap_s = every_s - busy_s if attribution.overlap_ns else 0.0
    return Timeline(
        span_s=busy_s + idle_s, busy_s=busy_s, idle_s=idle_s, compute_s=busy_s, overlap_s=overlap_s
    )


def _ready_ns(attribution: Attribution, window: Intervals) -> int:
    """The time in which only communication runs although the computation that comes next has been
    launched."""
    trace = attribution.trace
    computes = trace.device.kind != COMMUNICATION
    if computes.all():
        return 0
    gaps = intervals.subtract(window, device_intervals(trace, KERNEL, MEMSET, MEMCPY))
    exposed = intervals.intersect(device_intervals(trace, COMMUNICATION), gaps)
    if not len(exposed):
        return 0
    device = DeviceEvents(*(getattr(trace.device, name)[computes] for name in DeviceEvents.__slots__))
    computing = replace(trace, device=device)
    causes = idle_causes(
        replace(attribution.calls, trace=computing, launch=attribution.calls.launch[computes]), gaps
    )
    launched = np.concatenate([causes[name] for name in ("kernel_wait", "outside", "graph", "unknown")])
    return intervals.length(intervals.intersect(exposed, intervals.union(launched[:, 0], launched[:, 1])))


def _timeline_of(
    trace: Trace,
    window: Intervals,
    busy: Intervals,
    seconds: float,
    **others: float,
) -> Timeline:
    def lasting(found: Intervals) -> float:
        return intervals.length(found) * seconds

    compute, memcpy, communication = (
        intervals.intersect(window, device_intervals(trace, *kinds))
        for kinds in ((KERNEL, MEMSET), (MEMCPY,), (COMMUNICATION,))
    )
    copying = intervals.subtract(memcpy, compute)
    return Timeline(
        span_s=lasting(window),
        busy_s=lasting(busy),
        idle_s=lasting(window) - lasting(busy),
        compute_s=lasting(compute),
        memcpy_s=lasting(memcpy),
        communication_s=lasting(communication),
        exposed_memcpy_s=lasting(copying),
        exposed_communication_s=lasting(intervals.subtract(communication, intervals.merge(compute, memcpy))),
        **others,
    )
