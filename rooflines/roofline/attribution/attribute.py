"""Whose time is it: every nanosecond of the device goes to one operator call, to the unmodelled list, or to idle.

The rule. Walk each thread's call tree from the outermost operator. The first operator that has a count owns all that runs below it.
Passed through is what only dispatches (composite), what has no count, and what PyTorch decomposes itself, where something below it has
work: so a trace counts the operators that a dispatch mode would see. An ATen operator that is passed through to a single owner with
work is a wrapper: all of its time is that owner's (``aten::conv2d`` is a way to call ``aten::convolution``). What else is passed
through keeps the time it spends itself, as dispatch overhead or as unmodelled time. On a CPU an owner's time is its duration, or its
wrapper's; on a GPU it is the union of the intervals of the kernels, copies and memsets launched below it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rooflines.profiler.noted import NotedCall
from rooflines.profiler.trace import intervals
from rooflines.profiler.trace.breakdown import device_intervals
from rooflines.profiler.trace.calls import FORWARD, Calls
from rooflines.profiler.trace.collectives import launched_by_collectives
from rooflines.profiler.trace.intervals import Intervals
from rooflines.profiler.trace.launches import launching
from rooflines.profiler.trace.nesting import covered, exclusive
from rooflines.profiler.trace.records import COMMUNICATION, KERNEL, MEMCPY, MEMSET, OPERATOR, RUNTIME, Int64s, LaunchShape, Trace
from rooflines.profiler.trace.signature import Signature
from rooflines.profiler.trace.windows import at_launch, belonging, earlier, lasting, step_window, whole_window
from rooflines.profiler.trace.windows import inside as in_windows
from rooflines.roofline.resolvers.compiled import CompiledCalls
from rooflines.roofline.resolvers.counts import Counts
from rooflines.roofline.work import CallCount, Work
from rooflines.units import counted, seconds

Mask = npt.NDArray[np.bool_]

NO_OPERATOR = "launched outside any operator"
NO_LAUNCH = "its launch is not in the trace"
OUTSIDE_STEPS = "ran beside the steps, which did not launch it"

# A note says what of the device's time is left out, from this share of the time that is counted.
_WORTH_A_NOTE = 0.01


@dataclass(frozen=True, slots=True)
class Kernel:
    """What an operator ran on the device, by name: calls and nanoseconds, each event's duration, and the streams that it ran on.

    ``shape`` is the grid and the block where all of its launches have the same one.
    """

    name: str
    calls: int
    time_ns: int
    streams: tuple[int, ...] = ()
    shape: LaunchShape | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """All calls of one counted (or composite) signature in one module and phase: nanoseconds and calls over the window.

    ``inferred`` says what was inferred from other calls in the trace, None where nothing. ``exposed_ns`` is the time of its copies and
    collectives that nothing of a higher priority hides, None where it has none (``partition.py`` on the priority).
    """

    signature: Signature
    count: CallCount
    module: int
    phase: int
    calls: int
    time_ns: int
    inferred: str | None = None
    kernels: tuple[Kernel, ...] = ()
    exposed_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Gap:
    """Time without a count: an operator's or a kernel's, with the reason.

    ``signature`` is None and ``module`` -1 where no operator launched it.
    """

    name: str
    reason: str
    calls: int
    time_ns: int
    module: int = -1
    phase: int = FORWARD
    signature: Signature | None = None
    kernels: tuple[Kernel, ...] = ()
    exposed_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Pieces:
    """The busy time of the window in pieces: which event ran from when to when, and the index of its row (-1: a gap's).

    ``event`` indexes the device events, or on a CPU the host events. Pieces of one thread of a CPU do not overlap; those of
    streams may.
    """

    event: Int64s
    start_ns: Int64s
    end_ns: Int64s
    row: Int64s


@dataclass(frozen=True, slots=True)
class Attribution:
    """The divided time of the window: rows + gaps + idle - overlap = span, where ``overlap_ns`` is time counted in two rows.

    ``windows`` has a row for each profiler step, or one for the whole trace, and ``span_ns`` is their length: that of the steps
    (``trace/windows.py``), or from the first to the last event. What else ran meanwhile is among the gaps. ``steps`` is the number of
    profiler steps, 0 when there are none; ``graphs_ns`` the device time of what was launched as a graph. ``launch`` is the host event
    that launched each device event (-1: not in the trace), ``earlier_ns`` the device time of work launched before the recording, which
    is in no step. ``trace`` is the trace with all that a collective launched marked as communication. ``notes`` are sentences about
    what was left out or inferred with doubt.
    """

    trace: Trace
    rows: tuple[Row, ...]
    gaps: tuple[Gap, ...]
    pieces: Pieces
    windows: Intervals
    steps: int
    span_ns: int
    busy: Intervals
    launch: Int64s
    orphans: int
    graphs_ns: int
    earlier_ns: int = 0
    notes: tuple[str, ...] = ()

    @property
    def window(self) -> Intervals:
        """The windows as one set of intervals."""
        return intervals.union(self.windows[:, 0], self.windows[:, 1])

    @property
    def busy_ns(self) -> int:
        """Time in which at least one operator (CPU) or device event (GPU) ran."""
        return intervals.length(self.busy)

    @property
    def idle_ns(self) -> int:
        """The rest of the span."""
        return self.span_ns - self.busy_ns

    @property
    def overlap_ns(self) -> int:
        """Time counted more than once."""
        return sum(row.time_ns for row in self.rows) + sum(gap.time_ns for gap in self.gaps) - self.busy_ns


def attribute(
    trace: Trace,
    calls: Calls,
    parameter_elements: int | None = None,
    parameter_dtype: str = "float32",
    noted: tuple[NotedCall, ...] = (),
    compiled: CompiledCalls | None = None,
) -> Attribution:
    """Divide the time of the trace's steps, or of the whole trace when it has none; of the device when the trace has device events,
    else of the CPU. ``parameter_elements`` is what the optimizers of one step update together, and ``noted`` the calls of one step
    whose arguments the trace leaves out, where somebody noted them. ``compiled`` knows the kernels of compiled code."""
    counts = Counts(trace, calls, parameter_elements, parameter_dtype, noted)
    if compiled is not None:
        counts.take(compiled)
    ownership = _own(trace, calls, counts)
    steps = step_window(trace, calls)
    window = whole_window(trace, calls) if steps is None else steps
    inside = np.ones(len(trace.host), bool) if steps is None else in_windows(trace.host.start_ns, steps)
    launch, doubtful = launching(trace)
    windows, earlier_ns, notes = window if steps is None else calls.steps, 0, (*calls.notes, *_ambiguous(doubtful))
    if len(trace.device):
        trace = launched_by_collectives(trace, calls, launch)
        before = earlier(trace, launch) if steps is not None else np.zeros(len(trace.device), bool)
        belongs = belonging(trace, window, inside, launch, before)
        if steps is not None:
            windows = lasting(windows, trace, launch, belongs, before)
        window = intervals.union(windows[:, 0], windows[:, 1])
        found = _attribute_device(trace, calls, counts, ownership, inside, launch, belongs, window)
        rows, gaps, pieces, busy, orphans, graphs_ns = found
        earlier_ns = intervals.length(intervals.union(trace.device.start_ns[before], trace.device.end_ns[before]))
        notes += (*_earlier_work(int(before.sum()), earlier_ns), *_left_out(trace, before, window))
    else:
        rows, gaps, pieces, busy = _attribute_host(trace, calls, window, counts, ownership, inside)
        orphans, graphs_ns = 0, 0
    return Attribution(
        trace=trace,
        rows=rows,
        gaps=gaps,
        pieces=pieces,
        windows=windows,
        steps=0 if steps is None else len(calls.steps),
        span_ns=intervals.length(window),
        busy=busy,
        launch=launch,
        orphans=orphans,
        graphs_ns=graphs_ns,
        earlier_ns=earlier_ns,
        notes=notes,
    )


def _ambiguous(ids: int) -> tuple[str, ...]:
    """A note on correlation ids that several calls have."""
    if not ids:
        return ()
    return (f"Correlation ids with several launches, of which the times told which launched what: {ids:,}.",)


def _earlier_work(events: int, time_ns: int) -> tuple[str, ...]:
    """A note on work that was launched before the recording began."""
    if not events:
        return ()
    return (
        f"{seconds(time_ns / 1e9)} of device time ({counted(events, 'event')}) was launched before the recording began and is in no "
        "step.",
    )


def _left_out(trace: Trace, before: Mask, window: Intervals) -> tuple[str, ...]:
    """A note on other device time outside of the steps, where it is worth one."""
    device = trace.device
    every = intervals.union(device.start_ns[~before], device.end_ns[~before])
    inside_ns = intervals.length(intervals.intersect(every, window))
    left_ns = intervals.length(every) - inside_ns
    if left_ns <= _WORTH_A_NOTE * inside_ns:
        return ()
    return (f"{seconds(left_ns / 1e9)} of device time lies outside the steps and is not counted.",)


# --- ownership ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Ownership:
    """``owner`` is the operator call that owns each host event (-1: none). ``outermost`` are the events that are owned and lie in no
    owned one: the owners, or the wrappers around them. ``saved`` are owners inside of others, whose time is not that of those."""

    owner: Int64s
    outermost: Int64s
    saved: Int64s


def _own(trace: Trace, calls: Calls, counts: Counts) -> _Ownership:
    """Who owns each host event, by the rule at the top of this file."""
    after = calls.after

    def where(test: Callable[[Signature, CallCount], bool]) -> Mask:
        # An event that is no operator has -1 for its variant.
        found: Mask = np.array([*(test(*variant) for variant in counts.variants), False])[counts.of_event]
        return found

    counted = where(lambda _, found: found.kind == "counted")
    working = counted & where(lambda _, found: found.work != Work())
    decomposes = counted & where(lambda _, found: found.decomposes)
    hidden = covered(counted & ~decomposes, after)
    passed = decomposes & (_below(working & ~hidden, after) > 0)
    counts.pass_through(np.flatnonzero(passed))
    owning = counted & ~passed
    free = ~covered(owning, after)
    owning &= free

    # A wrapper hides what it wraps: where something below it has no count, that is to be seen.
    unknown = free & where(lambda _, found: found.kind == "unknown")
    wrapping = where(lambda signature, found: found.kind != "unknown" and signature.name.startswith("aten::")) & free & ~owning
    wrapping &= (_below(owning & working, after) == 1) & (_below(unknown, after) == 0)
    wrapping &= ~covered(wrapping, after)

    outermost = np.flatnonzero(wrapping | (owning & ~covered(wrapping, after)))
    workers = np.flatnonzero(owning & working)
    whose = outermost.copy()
    wrappers = wrapping[outermost]
    whose[wrappers] = workers[np.searchsorted(workers, outermost[wrappers])]
    owner = np.full(len(after), -1, np.int64)
    starts, lengths = outermost, after[outermost] - outermost
    # Every event from an outermost one up to the end of what it encloses.
    events = np.arange(lengths.sum()) + np.repeat(starts - np.cumsum(lengths) + lengths, lengths)
    owner[events] = np.repeat(whose, lengths)
    saved = _saved(trace, calls, owner)
    for event in saved.tolist():
        owner[event : after[event]] = event
    return _Ownership(owner, outermost, saved)


def _saved(trace: Trace, calls: Calls, owner: Int64s) -> Int64s:
    """The copies of an operand that autograd keeps for the backward before an owner changes the operand in place.

    They are made first thing inside the owner's event, and are no part of its work: a dispatch mode sees a call of their own.
    """
    host, signatures = trace.host, trace.signatures
    clones = np.flatnonzero((host.kind == OPERATOR) & np.array([name == "aten::clone" for name in trace.names], bool)[host.name])
    clones = clones[(calls.parent[clones] == clones - 1) & (clones > 0)]
    clones = clones[owner[clones - 1] == clones - 1]
    pairs = zip(clones.tolist(), host.signature[clones - 1].tolist(), host.signature[clones].tolist(), strict=True)
    return np.array([clone for clone, of, copy in pairs if _changes(signatures[of], signatures[copy].arg(0))], np.int64)


def _changes(signature: Signature, operand: object) -> bool:
    """Whether the call changes an operand like this one in place."""
    return signature.name.endswith("_") and not signature.name.endswith("__") and signature.arg(0) == operand


def _below(chosen: Mask, after: Int64s) -> Int64s:
    """How many chosen events each event encloses."""
    total = np.concatenate(([0], np.cumsum(chosen)))
    return total[after] - total[1:]


# --- CPU ---------------------------------------------------------------------------------------------------------------------------


def _attribute_host(
    trace: Trace, calls: Calls, window: Intervals, counts: Counts, ownership: _Ownership, inside: Mask
) -> tuple[tuple[Row, ...], tuple[Gap, ...], Pieces, Intervals]:
    host, owner = trace.host, ownership.owner
    until = _window_end(host.start_ns, window)
    duration = np.minimum(calls.end_ns, until) - host.start_ns
    operators = np.flatnonzero((host.kind == OPERATOR) & inside)
    # What an operator without an owner spends itself: its duration less that of the operators directly below it.
    own = duration.copy()
    parent_operator = np.where(calls.parent >= 0, calls.operator[np.maximum(calls.parent, 0)], -1)
    nested = operators[parent_operator[operators] >= 0]
    # One that outlasts its part of the window ends there: what it calls later is none of its time.
    nested = nested[until[nested] == until[parent_operator[nested]]]
    np.subtract.at(own, parent_operator[nested], duration[nested])
    owned = ownership.outermost[inside[ownership.outermost]]
    around = ownership.outermost[np.searchsorted(ownership.outermost, ownership.saved, side="right") - 1]
    saved = ownership.saved[inside[ownership.saved] & inside[around] & (until[ownership.saved] == until[around])]
    passed_through = operators[owner[operators] < 0]
    events = np.concatenate((owner[owned], saved, passed_through))
    time = np.concatenate((duration[owned], duration[saved], own[passed_through]))
    np.subtract.at(time, np.searchsorted(owned, saved, side="right") - 1, duration[saved])
    rows, gaps, row = _rows_and_gaps(trace, calls, counts, events, time)
    counted = np.concatenate((owned, passed_through))
    busy = intervals.union(host.start_ns[counted], host.start_ns[counted] + duration[counted])
    # A wrapper's time is that of the operator in it.
    lasting = np.concatenate((owned, saved, passed_through))
    order = np.argsort(lasting, kind="stable")
    events, lasting, row = events[order], lasting[order], row[order]
    which, starts, ends = exclusive(host.thread[lasting], host.start_ns[lasting], host.start_ns[lasting] + duration[lasting])
    return rows, gaps, Pieces(events[which], starts, ends, row[which]), busy


def _window_end(times_ns: Int64s, window: Intervals) -> Int64s:
    """The end of the part of the window that each time lies in or follows; the time itself where there is no window."""
    if not len(window):
        return times_ns
    at = np.maximum(np.searchsorted(window[:, 0], times_ns, side="right") - 1, 0)
    ends: Int64s = window[at, 1]
    return ends


# --- GPU ---------------------------------------------------------------------------------------------------------------------------


def _attribute_device(
    trace: Trace,
    calls: Calls,
    counts: Counts,
    ownership: _Ownership,
    inside: Mask,
    launch: Int64s,
    belongs: Mask,
    window: Intervals,
) -> tuple[tuple[Row, ...], tuple[Gap, ...], Pieces, Intervals, int, int]:
    host, device, owner = trace.host, trace.device, ownership.owner
    known = launch >= 0
    owning = np.where(known, at_launch(owner, launch), -1)
    innermost = np.where(known, at_launch(calls.operator, launch), -1)
    exposed = _exposed(trace)

    owned = np.flatnonzero(belongs & (owning >= 0))
    owners, position = np.unique(owning[owned], return_inverse=True)
    # Counted operators that launched nothing still did their FLOPs somewhere; views and allocations among them are of no interest.
    has_flops = np.array([*(found.work is not None and found.work.flops > 0 for _, found in counts.variants), False])
    silent = np.flatnonzero((owner == np.arange(len(host))) & inside & has_flops[counts.of_event])
    silent = np.setdiff1d(silent, owners)
    events = np.concatenate((owners, silent)).astype(np.int64)
    keys, group = _group(calls, counts.of_event, events)
    group_of = group[position]
    busy_ns = intervals.lengths_by_group(group_of, device.start_ns[owned], device.end_ns[owned], len(keys))
    numbers = np.bincount(group, minlength=len(keys))
    ran, hidden = _kernels(trace, owned, group_of, len(keys)), _sums(exposed[owned], group_of, len(keys))
    rows = tuple(
        Row(
            counts.variants[variant][0],
            counts.variants[variant][1],
            module,
            phase,
            number,
            time_ns,
            counts.inferred.get(variant),
            kernels,
            exposed_ns,
        )
        for (variant, module, phase), number, time_ns, kernels, exposed_ns in zip(
            keys.tolist(), numbers.tolist(), busy_ns.tolist(), ran, hidden, strict=True
        )
    )
    gaps = _device_gaps(trace, calls, counts, np.flatnonzero(belongs & (owning < 0)), innermost, known, exposed)
    graphs = belongs & known & at_launch(_is_graph(trace), launch)
    graphs_ns = intervals.length(intervals.union(device.start_ns[graphs], device.end_ns[graphs]))

    row_of = np.full(len(device), -1, np.int64)
    row_of[owned] = group_of
    event, starts, ends = intervals.split(device.start_ns, device.end_ns, window)
    # Beside what others launched the device is not idle, and its time is not the steps'.
    others = ~belongs[event]
    gaps += _other_gaps(trace, event[others], starts[others], ends[others])
    busy = intervals.union(starts, ends)
    return rows, gaps, Pieces(event, starts, ends, row_of[event]), busy, int((belongs & ~known).sum()), graphs_ns


def _exposed(trace: Trace) -> Int64s:
    """Of each copy and collective the time in which nothing of a higher priority runs; -1 for everything else."""
    device = trace.device
    found = np.full(len(device), -1, np.int64)
    hiding = device_intervals(trace, KERNEL, MEMSET)
    for kind in (MEMCPY, COMMUNICATION):
        chosen = device.kind == kind
        if not chosen.any():
            continue
        alone = intervals.subtract(device_intervals(trace, kind), hiding)
        found[chosen] = intervals.covered(alone, np.stack((device.start_ns[chosen], device.end_ns[chosen]), axis=1))
        hiding = intervals.merge(hiding, device_intervals(trace, kind))
    return found


def _sums(exposed: Int64s, group: Int64s, groups: int) -> list[int | None]:
    """The sum of ``exposed`` in each group, None where none of its events has any such figure."""
    has = exposed >= 0
    total = np.bincount(group[has], weights=exposed[has], minlength=groups)
    numbers = np.bincount(group[has], minlength=groups)
    return [round(value) if number else None for value, number in zip(total.tolist(), numbers.tolist(), strict=True)]


def _kernels(trace: Trace, events: Int64s, group: Int64s, groups: int) -> list[tuple[Kernel, ...]]:
    """The device events of each group by name, longest first."""
    device = trace.device
    found: list[list[Kernel]] = [[] for _ in range(groups)]
    if not len(events):
        return [tuple(one) for one in found]
    keys, which = np.unique(np.stack((group, device.name[events].astype(np.int64))), axis=1, return_inverse=True)
    which = which.reshape(-1)
    numbers = np.bincount(which)
    times = np.zeros(keys.shape[1], np.int64)
    np.add.at(times, which, device.end_ns[events] - device.start_ns[events])
    least, most = np.full(keys.shape[1], len(trace.launch_shapes), np.int64), np.full(keys.shape[1], -1, np.int64)
    np.minimum.at(least, which, device.shape[events])
    np.maximum.at(most, which, device.shape[events])
    shapes = [trace.launch_shapes[low] if low == high >= 0 else None for low, high in zip(least.tolist(), most.tolist(), strict=True)]
    streams: list[list[int]] = [[] for _ in range(keys.shape[1])]
    for place, stream in np.unique(np.stack((which, device.stream[events])), axis=1).T.tolist():
        streams[place].append(stream)
    columns = zip(keys.T.tolist(), numbers.tolist(), times.tolist(), streams, shapes, strict=True)
    for (at, name), number, time_ns, ran_on, shape in columns:
        found[at].append(Kernel(trace.names[name], number, time_ns, tuple(ran_on), shape))
    return [tuple(sorted(one, key=lambda kernel: (-kernel.time_ns, kernel.name))) for one in found]


def _device_gaps(
    trace: Trace, calls: Calls, counts: Counts, events: Int64s, innermost: Int64s, known: Mask, exposed: Int64s
) -> tuple[Gap, ...]:
    """The device events that no counted operator owns, by the operator around their launch, or by kernel where there is none."""
    if not len(events):
        return ()
    host, device = trace.host, trace.device
    operator = innermost[events]
    inside = operator >= 0
    # What decides: the operator's variant, module and phase, or the kernel's name and whether its launch is known.
    variant = np.where(inside, at_launch(counts.of_event, operator), np.where(known[events], -1, -2))
    name = np.where(inside, at_launch(host.name, operator), device.name[events])
    module = np.where(inside, at_launch(calls.module, operator), -1)
    phase = np.where(inside, at_launch(calls.phase, operator), FORWARD)
    keys, group = np.unique(np.stack((name, variant, module, phase), axis=1), axis=0, return_inverse=True)
    group = group.reshape(-1)
    busy_ns = intervals.lengths_by_group(group, device.start_ns[events], device.end_ns[events], len(keys))
    # A call is one of the operator; where there is none, one of the kernel.
    callers = np.unique(np.stack((group, np.where(inside, operator, -1 - events)), axis=1), axis=0)
    numbers = np.bincount(callers[:, 0], minlength=len(keys))
    ran, hidden = _kernels(trace, events, group, len(keys)), _sums(exposed[events], group, len(keys))
    gaps = []
    for place, (code, which, at, during) in enumerate(keys.tolist()):
        signature, reason = None, NO_OPERATOR if which == -1 else NO_LAUNCH
        if which >= 0:
            signature, reason = counts.variants[which][0], counts.variants[which][1].reason or "no formula"
        gaps.append(
            Gap(trace.names[code], reason, int(numbers[place]), int(busy_ns[place]), at, during, signature, ran[place], hidden[place])
        )
    return tuple(gaps)


def _other_gaps(trace: Trace, events: Int64s, starts: Int64s, ends: Int64s) -> tuple[Gap, ...]:
    """These device events, which are no step's, by name; ``starts`` and ``ends`` are those of their parts in the span."""
    names, group = np.unique(trace.device.name[events], return_inverse=True)
    group = group.reshape(-1).astype(np.int64)
    busy_ns = intervals.lengths_by_group(group, starts, ends, len(names))
    numbers = np.bincount(group, minlength=len(names))
    return tuple(
        Gap(trace.names[code], OUTSIDE_STEPS, number, time_ns)
        for code, number, time_ns in zip(names.tolist(), numbers.tolist(), busy_ns.tolist(), strict=True)
    )


def _is_graph(trace: Trace) -> Mask:
    """Which host events launch a whole CUDA or HIP graph, in which no operator has a launch of its own."""
    named = np.array(["GraphLaunch" in name for name in trace.names], bool)
    chosen: Mask = named[trace.host.name] & (trace.host.kind == RUNTIME)
    return chosen


# --- both --------------------------------------------------------------------------------------------------------------------------


def _group(calls: Calls, variants: Int64s, events: Int64s) -> tuple[Int64s, Int64s]:
    """The distinct (variant, module, phase) among ``events`` and the group of each event."""
    if not len(events):
        return np.empty((0, 3), np.int64), np.empty(0, np.int64)
    keys = np.stack((variants[events], calls.module[events], calls.phase[events].astype(np.int64)), axis=1)
    distinct, group = np.unique(keys, axis=0, return_inverse=True)
    return distinct, group.reshape(-1)


def _rows_and_gaps(
    trace: Trace, calls: Calls, counts: Counts, events: Int64s, time_ns: Int64s
) -> tuple[tuple[Row, ...], tuple[Gap, ...], Int64s]:
    """The rows and gaps of these events, and the row of each event (-1: a gap)."""
    keys, group = _group(calls, counts.of_event, events)
    times = np.zeros(len(keys), np.int64)
    np.add.at(times, group, time_ns)
    numbers = np.bincount(group, minlength=len(keys)) if len(group) else np.empty(0, np.int64)
    rows: list[Row] = []
    gaps: list[Gap] = []
    row_of_key = np.full(len(keys), -1, np.int64)
    for place, ((variant, module, phase), total, number) in enumerate(
        zip(keys.tolist(), times.tolist(), numbers.tolist(), strict=True)
    ):
        signature, found = counts.variants[variant]
        if found.kind == "unknown":
            gaps.append(Gap(signature.name, found.reason, number, total, module, phase, signature))
        else:
            row_of_key[place] = len(rows)
            rows.append(Row(signature, found, module, phase, number, total, counts.inferred.get(variant)))
    return tuple(rows), tuple(gaps), row_of_key[group]
