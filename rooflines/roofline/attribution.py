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
from typing import Any

import numpy as np
import numpy.typing as npt

from rooflines.profiler.noted import NotedCall
from rooflines.profiler.trace import intervals
from rooflines.profiler.trace.calls import OPTIMIZER, Calls
from rooflines.profiler.trace.intervals import Intervals
from rooflines.profiler.trace.launches import launching
from rooflines.profiler.trace.records import OPERATOR, RUNTIME, Int64s, Trace
from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.compiled import CompiledCalls
from rooflines.roofline.inferred import infer
from rooflines.roofline.work import CallCount, Work, count
from rooflines.roofline.work.decomposed import SOMETIMES_DECOMPOSED
from rooflines.units import seconds

Mask = npt.NDArray[np.bool_]

NO_OPERATOR = "launched outside any operator"
NO_LAUNCH = "its launch is not in the trace"
OUTSIDE_STEPS = "ran beside the steps, which did not launch it"

# A note says what of the device's time is left out, from this share of the time that is counted.
_WORTH_A_NOTE = 0.01


@dataclass(frozen=True, slots=True)
class Row:
    """All calls of one counted (or composite) signature in one module and phase: nanoseconds and calls over the window.

    ``inferred`` says what of the call the trace left out and other calls told, None where nothing.
    """

    signature: Signature
    count: CallCount
    module: int
    phase: int
    calls: int
    time_ns: int
    inferred: str | None = None


@dataclass(frozen=True, slots=True)
class Gap:
    """Time without a count: an operator's or a kernel's, with the reason."""

    name: str
    reason: str
    calls: int
    time_ns: int


@dataclass(frozen=True, slots=True)
class Attribution:
    """The window's time, divided. ``overlap_ns`` is time counted in two rows because both ran: rows + gaps + idle - overlap = span.

    The span of a device is that from the first to the last event of what the steps launched, and what else ran in it is among the gaps;
    the span of a CPU are the steps themselves.
    ``windows`` has a row for each profiler step, or one for the whole trace: on a device a step lasts until what it launched has ended,
    and the next one begins there. ``steps`` is the number of profiler steps, 0 when there are none; ``graphs_ns`` the device time of
    what was launched as a graph. ``launch`` is the host event that launched each device event (-1: not in the trace). ``notes`` are
    sentences about what was left out or told with doubt.
    """

    rows: tuple[Row, ...]
    gaps: tuple[Gap, ...]
    windows: Intervals
    steps: int
    span_ns: int
    busy: Intervals
    launch: Int64s
    orphans: int
    graphs_ns: int
    notes: tuple[str, ...] = ()

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
    counts = _Counts(trace, calls, parameter_elements, parameter_dtype, noted)
    if compiled is not None:
        counts.take(compiled)
    ownership = _own(trace, calls, counts)
    steps = step_window(trace, calls)
    window = whole_window(trace, calls) if steps is None else steps
    inside = np.ones(len(trace.host), bool) if steps is None else _inside(trace.host.start_ns, steps)
    on_device = len(trace.device) > 0
    launch, doubtful = launching(trace)
    belongs = _belonging(trace, window, inside, launch)
    if on_device:
        rows, gaps, busy, orphans, graphs_ns = _attribute_device(trace, calls, counts, ownership, inside, launch, belongs)
        span_ns = int(busy[-1, 1] - busy[0, 0]) if len(busy) else 0
    else:
        rows, gaps, busy = _attribute_host(trace, calls, window, counts, ownership, inside)
        orphans, graphs_ns, span_ns = 0, 0, intervals.length(window)
    windows = window if steps is None else calls.steps
    return Attribution(
        rows=rows,
        gaps=gaps,
        windows=_lasting(windows, trace, launch, belongs) if on_device and steps is not None else windows,
        steps=0 if steps is None else len(calls.steps),
        span_ns=span_ns,
        busy=busy,
        launch=launch,
        orphans=orphans,
        graphs_ns=graphs_ns,
        notes=(*calls.notes, *_ambiguous(doubtful), *_left_out(trace, busy if on_device else None)),
    )


def _belonging(trace: Trace, window: Intervals, inside: Mask, launch: Int64s) -> Mask:
    """Which device events are those of the window: work launched in a step is that step's, whenever it runs.

    Of what has no launch in the trace only the begin is known, and the device runs behind the host: it is taken for the steps' from the
    begin of the first one until the device comes to what was launched behind the last one.
    """
    device, known = trace.device, launch >= 0
    if not len(window):
        return np.zeros(len(device), bool)
    behind = device.start_ns[known & (_of(trace.host.start_ns, launch) >= window[-1, 1])]
    orphans = (device.start_ns >= window[0, 0]) & (device.start_ns < behind.min() if len(behind) else True)
    belongs: Mask = np.where(known, _of(inside, launch), orphans)
    return belongs


def _ambiguous(ids: int) -> tuple[str, ...]:
    """A note on correlation ids that several calls have."""
    if not ids:
        return ()
    return (f"Correlation ids with several launches, of which the times told which launched what: {ids:,}.",)


def _left_out(trace: Trace, busy: Intervals | None) -> tuple[str, ...]:
    """A note on the device's time before and behind that of the steps, where it is worth one; ``busy`` is None for a CPU."""
    if busy is None:
        return ()
    left_ns = intervals.length(intervals.union(trace.device.start_ns, trace.device.end_ns)) - intervals.length(busy)
    if left_ns <= _WORTH_A_NOTE * intervals.length(busy):
        return ()
    return (f"{seconds(left_ns / 1e9)} of device time lie before or behind the work of the steps and are not counted.",)


def _lasting(steps: Intervals, trace: Trace, launch: Int64s, belongs: Mask) -> Intervals:
    """The steps, each from the end of the one before to the end of what it launched (as PyTorch's TensorBoard profiler draws them)."""
    device = trace.device
    began = np.where(launch >= 0, _of(trace.host.start_ns, launch), device.start_ns)
    number = np.searchsorted(steps[:, 0], began, side="right") - 1
    ends = steps[:, 1].copy()
    of_step = belongs & (number >= 0)
    np.maximum.at(ends, number[of_step], device.end_ns[of_step])
    before = device.end_ns[number < 0]
    ends = np.maximum.accumulate(ends)
    starts = np.maximum(steps[:, 0], np.concatenate(([before.max() if len(before) else steps[0, 0]], ends[:-1])))
    return np.stack((np.minimum(starts, ends), ends), axis=1)


class _Counts:
    """The count of every operator event, worked out once per distinct signature.

    Where the inputs do not determine the work (``aten::index``, lists of tensors whose dtype the trace lacks) the bytes that the call
    allocated and kept are its output, and calls that kept different amounts are different variants of the signature. Lists of more
    than 30 tensors are left out of traces; in the optimizer they are the parameters, shared among the calls that a step makes. Under
    autocast an operator casts its arguments and calls itself with them: the outer call only dispatches.
    """

    def __init__(
        self, trace: Trace, calls: Calls, parameter_elements: int | None, parameter_dtype: str, noted: tuple[NotedCall, ...]
    ) -> None:
        self.variants: list[tuple[Signature, CallCount]] = [(signature, count(signature)) for signature in trace.signatures]
        self.of_event = trace.host.signature.astype(np.int64)
        self.inferred: dict[int, str] = {}
        self._known: dict[tuple[int, int | None, int | None], int] = {}
        self._trace = trace
        self._calls = calls
        self._from_allocations()
        self._from_other_calls()
        if parameter_elements is not None:
            self._from_parameters(parameter_elements, parameter_dtype)
        self._from_notes(noted)
        self._pass_through_to_itself()

    def __getitem__(self, event: int) -> CallCount:
        return self.variants[int(self.of_event[event])][1]

    def take(self, compiled: CompiledCalls) -> None:
        """What compiled code's kernels count takes the place of what their names say."""
        known = compiled.of_event >= 0
        self.of_event[known] = compiled.of_event[known] + len(self.variants)
        self.variants += compiled.variants

    def _variant(
        self, code: int, output_bytes: int | None = None, parameter_elements: int | None = None, parameter_dtype: str = "float32"
    ) -> int:
        """The index of the signature ``code`` counted with these hints."""
        key = (code, output_bytes, parameter_elements)
        if key not in self._known:
            self._known[key] = len(self.variants)
            signature = self._trace.signatures[code]
            self.variants.append((signature, count(signature, output_bytes, parameter_elements, parameter_dtype)))
        return self._known[key]

    def _from_allocations(self) -> None:
        unclear = [code for code, (signature, found) in enumerate(self.variants) if _needs_output(signature, found)]
        host, memory = self._trace.host, self._trace.memory
        # Of the device whose time is divided: a call may allocate on the host as well.
        ours = (memory.device_type != 0) == bool(len(self._trace.device))
        if not unclear or not ours.any():
            return
        order = np.flatnonzero(ours)
        order = order[np.argsort(memory.thread[order], kind="stable")]
        threads, first = np.unique(memory.thread[order], return_index=True)
        by_thread = {
            thread: (memory.time_ns[part], np.cumsum(memory.size_bytes[part]))
            for thread, part in zip(threads.tolist(), np.split(order, first[1:]), strict=True)
        }
        for event in np.flatnonzero(np.isin(host.signature, unclear)).tolist():
            thread = int(host.thread[event])
            if thread not in by_thread:
                continue
            times, total = by_thread[thread]
            first, last = np.searchsorted(times, (host.start_ns[event], self._calls.end_ns[event]))
            kept = int(total[last - 1] if last else 0) - int(total[first - 1] if first else 0)
            if kept > 0:
                self.of_event[event] = self._variant(int(host.signature[event]), output_bytes=kept)

    def _from_other_calls(self) -> None:
        """Old traces hold shapes and nothing else; ``inferred.py`` knows where in the trace the rest stands."""
        unknown = np.array([*(found.kind == "unknown" for _, found in self.variants), False])
        for events, clues in infer(self._trace, self._calls, unknown[self.of_event]):
            signature = self._trace.signatures[int(self._trace.host.signature[events[0]])]
            outputs = None
            for clue in clues:
                signature, outputs = clue.fill(signature), clue.outputs or outputs
            found = count(signature, outputs=outputs)
            if found.kind != "unknown":
                self.inferred[len(self.variants)] = "; ".join(dict.fromkeys(clue.source for clue in clues))
                self.of_event[events] = len(self.variants)
                self.variants.append((signature, found))

    def _from_parameters(self, elements: int, dtype: str) -> None:
        host, calls = self._trace.host, self._calls
        steps = max(1, len(calls.steps))
        for code, signature in enumerate(self._trace.signatures):
            if signature.arg(0) != () or not signature.name.startswith(("aten::_foreach_", "aten::_fused_", "aten::_amp_foreach_")):
                continue
            events = np.flatnonzero((host.signature == code) & (calls.phase == OPTIMIZER))
            if len(events):
                self.of_event[events] = self._variant(code, None, elements * steps // len(events), dtype)

    def _from_notes(self, noted: tuple[NotedCall, ...]) -> None:
        """Every step makes the noted calls in the noted order; where the trace has another number of them, nothing is concluded."""
        host, calls = self._trace.host, self._calls
        if not noted or not len(host):
            return
        steps = step_window(self._trace, calls)
        inside = (host.kind == OPERATOR) & (True if steps is None else _inside(host.start_ns, steps))
        explicit = np.array([*(found.kind == "counted" and not found.decomposes for _, found in self.variants), False])
        names = sorted({call.name for call in noted})
        codes = np.array([names.index(name) if name in names else -1 for name in self._trace.names])[host.name]
        # The calls that a dispatch mode sees: not those that another operator makes for itself.
        seen = inside & (codes >= 0) & ~_covered(inside & ((codes >= 0) | explicit[self.of_event]), calls.after)
        for code, name in enumerate(names):
            listed = [call for call in noted if call.name == name]
            events = np.flatnonzero(seen & (codes == code))
            events = events[np.argsort(host.start_ns[events], kind="stable")]
            if len(events) != len(listed) * (1 if steps is None else len(calls.steps)):
                continue
            for place, call in enumerate(listed):
                self.of_event[events[place :: len(listed)]] = len(self.variants)
                signature = call.signature
                self.variants.append((signature, count(signature, outputs=call.results)))

    def pass_through(self, events: Int64s) -> None:
        """These operators only dispatch: their work is that of operators below them."""
        codes, place = np.unique(self.of_event[events], return_inverse=True)
        self.of_event[events] = len(self.variants) + place.reshape(-1)
        for code in codes.tolist():
            self.variants.append((self.variants[code][0], CallCount("composite", None, "other")))

    def _pass_through_to_itself(self) -> None:
        """What calls an operator of its own name: under autocast the same call with other dtypes, else the overload with a kernel."""
        host, calls, signatures = self._trace.host, self._calls, self._trace.signatures
        above = np.where(calls.parent >= 0, calls.operator[np.maximum(calls.parent, 0)], -1) if len(host) else calls.parent
        itself = (host.kind == OPERATOR) & (above >= 0)
        if len(host):
            itself &= host.name == host.name[np.maximum(above, 0)]
        pairs, pair_of = np.unique(
            np.stack((host.signature[above[itself]], host.signature[itself]), axis=1), axis=0, return_inverse=True
        )
        passed = np.array([_hands_on(signatures[outer], signatures[inner]) for outer, inner in pairs.tolist()], bool)
        self.pass_through(np.unique(above[itself][passed[pair_of.reshape(-1)]]) if len(pairs) else np.empty(0, np.int64))


def _hands_on(outer: Signature, inner: Signature) -> bool:
    """Whether a call only hands its arguments on to another of the same name."""
    if outer.name.removeprefix("aten::") in SOMETIMES_DECOMPOSED:
        return True
    before, after = outer.tensors, inner.tensors
    cast = [tensor.dtype for tensor in before] != [tensor.dtype for tensor in after]
    return cast and [tensor.shape for tensor in before] == [tensor.shape for tensor in after]


def _needs_output(signature: Signature, found: CallCount) -> bool:
    """Whether what the call allocated says more than its signature: the dtype of a list, a result whose size the device decides."""
    if found.kind == "unknown" or any(isinstance(arg, tuple) and arg and isinstance(arg[0], TensorArg) for arg in signature.args):
        return True
    return count(signature, output_bytes=1) != found


# --- ownership ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Ownership:
    """``owner`` is the operator call that owns each host event (-1: none). ``outermost`` are the events that are owned and lie in no
    owned one: the owners, or the wrappers around them. ``saved`` are owners inside of others, whose time is not that of those."""

    owner: Int64s
    outermost: Int64s
    saved: Int64s


def _own(trace: Trace, calls: Calls, counts: _Counts) -> _Ownership:
    """Who owns each host event, by the rule at the top of this file."""
    after = calls.after

    def where(test: Callable[[Signature, CallCount], bool]) -> Mask:
        # An event that is no operator has -1 for its variant.
        found: Mask = np.array([*(test(*variant) for variant in counts.variants), False])[counts.of_event]
        return found

    counted = where(lambda _, found: found.kind == "counted")
    working = counted & where(lambda _, found: found.work != Work())
    decomposes = counted & where(lambda _, found: found.decomposes)
    hidden = _covered(counted & ~decomposes, after)
    passed = decomposes & (_below(working & ~hidden, after) > 0)
    counts.pass_through(np.flatnonzero(passed))
    owning = counted & ~passed
    free = ~_covered(owning, after)
    owning &= free

    # A wrapper hides what it wraps: where something below it has no count, that is to be seen.
    unknown = free & where(lambda _, found: found.kind == "unknown")
    wrapping = where(lambda signature, found: found.kind != "unknown" and signature.name.startswith("aten::")) & free & ~owning
    wrapping &= (_below(owning & working, after) == 1) & (_below(unknown, after) == 0)
    wrapping &= ~_covered(wrapping, after)

    outermost = np.flatnonzero(wrapping | (owning & ~_covered(wrapping, after)))
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


def _covered(chosen: Mask, after: Int64s) -> Mask:
    """Which events a chosen one encloses."""
    reach = np.maximum.accumulate(np.where(chosen, after, 0))
    covered = np.zeros(len(after), bool)
    covered[1:] = reach[:-1] > np.arange(1, len(after))
    return covered


def _below(chosen: Mask, after: Int64s) -> Int64s:
    """How many chosen events each event encloses."""
    total = np.concatenate(([0], np.cumsum(chosen)))
    return total[after] - total[1:]


def _inside(times_ns: Int64s, window: Intervals) -> Mask:
    """Which of ``times_ns`` lie in the window."""
    at = np.searchsorted(window[:, 0], times_ns, side="right") - 1
    return (at >= 0) & (times_ns < window[np.maximum(at, 0), 1]) if len(window) else np.zeros(len(times_ns), bool)


# --- CPU ---------------------------------------------------------------------------------------------------------------------------


def _attribute_host(
    trace: Trace, calls: Calls, window: Intervals, counts: _Counts, ownership: _Ownership, inside: Mask
) -> tuple[tuple[Row, ...], tuple[Gap, ...], Intervals]:
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
    rows, gaps = _rows_and_gaps(trace, calls, counts, events, time)
    counted = np.concatenate((owned, passed_through))
    busy = intervals.union(host.start_ns[counted], host.start_ns[counted] + duration[counted])
    return rows, gaps, busy


def _window_end(times_ns: Int64s, window: Intervals) -> Int64s:
    """The end of the part of the window that each time lies in or follows; the time itself where there is no window."""
    if not len(window):
        return times_ns
    at = np.maximum(np.searchsorted(window[:, 0], times_ns, side="right") - 1, 0)
    ends: Int64s = window[at, 1]
    return ends


# --- GPU ---------------------------------------------------------------------------------------------------------------------------


def _attribute_device(
    trace: Trace, calls: Calls, counts: _Counts, ownership: _Ownership, inside: Mask, launch: Int64s, belongs: Mask
) -> tuple[tuple[Row, ...], tuple[Gap, ...], Intervals, int, int]:
    host, device, owner = trace.host, trace.device, ownership.owner
    known = launch >= 0
    owning = np.where(known, _of(owner, launch), -1)
    innermost = np.where(known, _of(calls.operator, launch), -1)

    owned = np.flatnonzero(belongs & (owning >= 0))
    owners, position = np.unique(owning[owned], return_inverse=True)
    # Counted operators that launched nothing still did their FLOPs somewhere; views and allocations among them are of no interest.
    has_flops = np.array([*(found.work is not None and found.work.flops > 0 for _, found in counts.variants), False])
    silent = np.flatnonzero((owner == np.arange(len(host))) & inside & has_flops[counts.of_event])
    silent = np.setdiff1d(silent, owners)
    events = np.concatenate((owners, silent)).astype(np.int64)
    keys, group = _group(calls, counts.of_event, events)
    busy_ns = intervals.lengths_by_group(group[position], device.start_ns[owned], device.end_ns[owned], len(keys))
    numbers = np.bincount(group, minlength=len(keys))
    rows = tuple(
        Row(counts.variants[variant][0], counts.variants[variant][1], module, phase, number, time_ns, counts.inferred.get(variant))
        for (variant, module, phase), number, time_ns in zip(keys.tolist(), numbers.tolist(), busy_ns.tolist(), strict=True)
    )
    gaps = _device_gaps(trace, counts, np.flatnonzero(belongs & (owning < 0)), innermost, known)
    busy = intervals.union(device.start_ns[belongs], device.end_ns[belongs])
    graphs = belongs & known & _of(_is_graph(trace), launch)
    graphs_ns = intervals.length(intervals.union(device.start_ns[graphs], device.end_ns[graphs]))
    if len(busy):
        # Beside what others launched the device is not idle, and its time is not the steps'.
        low, high = int(busy[0, 0]), int(busy[-1, 1])
        others = np.flatnonzero(~belongs & (device.start_ns < high) & (device.end_ns > low))
        starts, ends = np.maximum(device.start_ns[others], low), np.minimum(device.end_ns[others], high)
        gaps += _other_gaps(trace, others, starts, ends)
        busy = intervals.merge(busy, intervals.union(starts, ends))
    return rows, gaps, busy, int((belongs & ~known).sum()), graphs_ns


def _device_gaps(trace: Trace, counts: _Counts, events: Int64s, innermost: Int64s, known: Mask) -> tuple[Gap, ...]:
    """The device events that no counted operator owns, by the operator around their launch, or by kernel where there is none."""
    host, device = trace.host, trace.device
    operator = innermost[events]
    inside = operator >= 0
    # What decides the name and the reason: the operator's name and variant, or the kernel's name and whether its launch is known.
    name = np.where(inside, _of(host.name, operator), device.name[events])
    variant = np.where(inside, _of(counts.of_event, operator), np.where(known[events], -1, -2))
    kinds, kind_of = np.unique(np.stack((name, variant, inside), axis=1), axis=0, return_inverse=True)
    labels: dict[tuple[str, str], int] = {}
    label_of_kind = []
    for code, which, operated in kinds.tolist():
        reason = (counts.variants[which][1].reason or "no formula") if operated else NO_OPERATOR if which == -1 else NO_LAUNCH
        label_of_kind.append(labels.setdefault((trace.names[code], reason), len(labels)))
    group = np.array(label_of_kind, np.int64)[kind_of.reshape(-1)]
    busy_ns = intervals.lengths_by_group(group, device.start_ns[events], device.end_ns[events], len(labels))
    # A call is one of the operator; where there is none, one of the kernel.
    callers = np.unique(np.stack((group, np.where(inside, operator, -1 - events)), axis=1), axis=0)
    numbers = np.bincount(callers[:, 0], minlength=len(labels))
    return tuple(
        Gap(*label, number, time_ns) for label, number, time_ns in zip(labels, numbers.tolist(), busy_ns.tolist(), strict=True)
    )


def _other_gaps(trace: Trace, events: Int64s, starts: Int64s, ends: Int64s) -> tuple[Gap, ...]:
    """These device events, which are no step's, by name; ``starts`` and ``ends`` are those of their parts in the span."""
    names, group = np.unique(trace.device.name[events], return_inverse=True)
    busy_ns = intervals.lengths_by_group(group.astype(np.int64), starts, ends, len(names))
    numbers = np.bincount(group, minlength=len(names))
    return tuple(
        Gap(trace.names[code], OUTSIDE_STEPS, number, time_ns)
        for code, number, time_ns in zip(names.tolist(), numbers.tolist(), busy_ns.tolist(), strict=True)
    )


def _of(host_column: npt.NDArray[Any], launch: Int64s) -> npt.NDArray[Any]:
    """``host_column`` at every device event's launch; anything at all where there is none (-1), also in a trace without host events."""
    return host_column[launch] if len(host_column) else np.zeros(len(launch), host_column.dtype)


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
    trace: Trace, calls: Calls, counts: _Counts, events: Int64s, time_ns: Int64s
) -> tuple[tuple[Row, ...], tuple[Gap, ...]]:
    keys, group = _group(calls, counts.of_event, events)
    times = np.zeros(len(keys), np.int64)
    np.add.at(times, group, time_ns)
    numbers = np.bincount(group, minlength=len(keys)) if len(group) else np.empty(0, np.int64)
    rows: list[Row] = []
    gaps: dict[tuple[str, str], Gap] = {}
    for (variant, module, phase), total, number in zip(keys.tolist(), times.tolist(), numbers.tolist(), strict=True):
        signature, found = counts.variants[variant]
        if found.kind == "unknown":
            key = (signature.name, found.reason)
            before = gaps.get(key, Gap(*key, 0, 0))
            gaps[key] = Gap(*key, before.calls + number, before.time_ns + total)
        else:
            rows.append(Row(signature, found, module, phase, number, total, counts.inferred.get(variant)))
    return tuple(rows), tuple(gaps.values())


def step_window(trace: Trace, calls: Calls) -> Intervals | None:
    """The profiler steps of the trace as intervals; None when it has none, or when most of its operators lie outside them.

    The latter happens when the profiler was stepped without a schedule: the only mark is the sliver between the last step and the end.
    """
    if not len(calls.steps):
        return None
    steps = intervals.union(calls.steps[:, 0], calls.steps[:, 1])
    if not len(steps):
        return None
    operators = trace.host.kind == OPERATOR
    every = intervals.union(trace.host.start_ns[operators], calls.end_ns[operators])
    return steps if 2 * intervals.length(intervals.intersect(every, steps)) >= intervals.length(every) else None


def whole_window(trace: Trace, calls: Calls) -> Intervals:
    """From the first to the last event: of the device where the trace has device events, else of the operators."""
    if len(trace.device):
        starts, ends = trace.device.start_ns, trace.device.end_ns
    else:
        operators = trace.host.kind == OPERATOR
        starts, ends = trace.host.start_ns[operators], calls.end_ns[operators]
    if not len(starts):
        return np.empty((0, 2), np.int64)
    return np.array([[starts.min(), ends.max()]], np.int64)
