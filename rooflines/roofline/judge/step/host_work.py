"""Work of the host while a device was idle, and repeated work: the basis of advice about the host.

A wait for the device makes it idle afterwards: its queue is empty, and the host has still to launch what
comes next. A host that had not waited would have been ahead by as long as the wait lasted, so no more than
that is put down to a wait.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import Literal, NamedTuple

import numpy as np

from rooflines.profiler.read import intervals
from rooflines.profiler.read.distinct import distinct
from rooflines.profiler.read.intervals import Intervals
from rooflines.profiler.read.nesting import covered, enclosed, exclusive, nest
from rooflines.profiler.read.records import (
    ANNOTATION,
    COMPILING,
    OPERATOR,
    RUNTIME,
    Int32s,
    Int64s,
    Mask,
    Trace,
    of_kinds,
)
from rooflines.profiler.tree.idle import is_wait, waiting
from rooflines.profiler.tree.lines import ProgramLines
from rooflines.profiler.tree.tree import BACKWARD, Calls, is_backward_node
from rooflines.roofline.analysis import HostWork, Recomputation, Synchronization
from rooflines.roofline.count.by_key import grouped
from rooflines.roofline.count.counts import places_of, unset
from rooflines.roofline.judge.step.partition import COMMUNICATION_CALLS
from rooflines.roofline.judge.step.times import per_step
from rooflines.roofline.own.own import Attribution

# An operator that computes on the host takes longer than one that only makes a view.
_LONG_OPERATOR_NS = 200_000
# Between two launches of a host that is only slow there is less time than this.
_LONG_STRETCH_NS = 1_000_000
_MOST = 12
# Operators that only take memory.
_TAKES_MEMORY = "aten::empty"
_COMPILED = re.compile(
    r"triton_(?:(?:poi|red|per|tem|for|mm)_|_\d)|CompiledF|## Call CompiledFxGraph|Torch-Compiled Region"
)
# An allocation that lasts longer than this begins to use the device or one of its libraries.
_FIRST_ALLOCATION_NS = 50_000_000
_ALLOCATES = re.compile(r"(?:cuda|hip)(?:Malloc|Free)(?:Async|Managed)?(?:_v\d+)?$")
_REGION = re.compile(r"Torch-Compiled Region|CompiledF|## Call CompiledFxGraph")
# What only a first call does takes this many times what the next ones take.
_FIRST = 10
# As many equal ranges show which part of the first one they do not repeat.
_FEWEST_RANGES = 3
Kind = Literal[
    "operator", "python", "runtime", "allocator", "optimizer", "compiled", "broadcast", "unrecorded"
]
# Ranges and operators around work of these kinds, by their names.
_RANGES: dict[Kind, Callable[[str], bool]] = {
    "optimizer": lambda name: name.startswith("Optimizer.step#"),
    "compiled": lambda name: _REGION.match(name) is not None,
    "broadcast": lambda name: name.endswith("flatten_dense_tensors"),
}


def is_compiled(trace: Trace) -> bool:
    """Whether code that ``torch.compile`` made ran in ``trace``, by names of kernels and ranges."""
    return any(_COMPILED.match(name) for name in trace.names)


def synchronizations(
    attribution: Attribution, causes: dict[str, Intervals], lines: ProgramLines
) -> tuple[Synchronization, ...]:
    """The waits for the device by call, operator and place, those that leave it idle the longest first.

    ``causes`` are the idle times of the device by cause.
    """
    host, steps = attribution.trace.host, attribution.per
    waits = np.flatnonzero(waiting(attribution.calls))
    times = np.stack((host.start_ns[waits], host.end_ns[waits]), axis=1)
    waits = waits[intervals.covered(attribution.window, times) > 0]
    start = host.start_ns[waits]
    end = host.end_ns[waits]
    gaps = intervals.subtract(attribution.window, attribution.busy)
    if not len(waits) or not len(gaps):
        return ()
    # The gap in which each wait ends, where the device became idle during the wait.
    at = np.maximum(np.searchsorted(gaps[:, 0], end, side="right") - 1, 0)
    follows = (gaps[at, 0] >= start) & (gaps[at, 0] <= end)
    own = intervals.merge(causes["synchronization"], causes["host_bound"])
    idle = np.where(follows, np.minimum(end - start, intervals.covered(own, gaps[at])), 0)

    def site(wait: int) -> tuple[str, str, str]:
        event = int(waits[wait])
        name = attribution.trace.names[host.name[event]]
        return name, _operator_around(attribution.calls, event), lines.where(event)

    made = [
        Synchronization(
            call=call,
            operator=operator,
            where=where,
            calls=per_step(len(own), steps),
            wait_s=int((end - start)[own].sum()) / 1e9 / steps,
            idle_s=int(idle[own].sum()) / 1e9 / steps,
        )
        for (call, operator, where), own in grouped(range(len(waits)), site).items()
    ]
    return tuple(
        sorted(made, key=lambda wait: (-wait.idle_s, -wait.wait_s, wait.call, wait.operator, wait.where))
    )[:_MOST]


def host_work(attribution: Attribution, host_bound: Intervals, lines: ProgramLines) -> tuple[HostWork, ...]:
    """Work of the launching threads in ``host_bound``, while the device had nothing to do, longest first."""
    launched = attribution.calls.launch[attribution.calls.launch >= 0]
    if not len(launched) or not len(host_bound):
        return ()
    trace, calls, steps = attribution.trace, attribution.calls, attribution.per
    threads, _ = distinct(trace.host.thread[launched])
    host = trace.host
    on_launching = np.isin(trace.host.thread, threads)
    compiling = _ranges(calls, host_bound, on_launching, "runtime", _is_compiling)
    within = on_launching & trace.named(_is_compiling, ANNOTATION)
    host_bound = intervals.subtract(host_bound, intervals.union(host.start_ns[within], host.end_ns[within]))
    functions, inside = _functions(trace, host_bound, threads)
    left = intervals.subtract(host_bound, inside)
    operators = _operators(calls, left, on_launching, lines)
    pieces = [*compiling, *functions, *operators, *_allocations(trace, attribution.window, host_bound)]
    for kind, test in _RANGES.items():
        pieces += _ranges(calls, host_bound, on_launching, kind, test)
    pieces += _unrecorded(trace, left, on_launching)
    if not attribution.steps:
        pieces += _first_ranges(
            calls, left, on_launching, sum(piece.idle_ns for piece in operators if piece.kind == "runtime")
        )
    made = [
        HostWork(
            kind=of.kind,
            name=of.name,
            shapes=of.shapes,
            where=of.where,
            calls=per_step(len(own), steps),
            idle_s=idle_ns / 1e9 / steps,
        )
        for of, own in grouped(pieces, lambda piece: piece._replace(idle_ns=0)).items()
        if (idle_ns := sum(piece.idle_ns for piece in own))
    ]
    return tuple(sorted(made, key=lambda work: (-work.idle_s, work.name)))[:_MOST]


class _Idle(NamedTuple):
    kind: Kind
    name: str
    shapes: str
    idle_ns: int
    where: str = ""


def _idle_in(
    kind: Kind, listed: Sequence[str], names: Int32s, times: Intervals, host_bound: Intervals
) -> list[_Idle]:
    """The idle time in each of ``times``, whose ``names`` are those of ``listed``."""
    idle = intervals.covered(host_bound, times).tolist()
    return [
        _Idle(kind, listed[code], "", idle_ns) for code, idle_ns in zip(names.tolist(), idle, strict=True)
    ]


def _operators(calls: Calls, host_bound: Intervals, on_launching: Mask, lines: ProgramLines) -> list[_Idle]:
    """Operators that compute on the host, with no call of a device's runtime below them, and long first calls
    of that runtime or of operators around them that wait for nothing: they load a library or a kernel. All by
    their own time, without what they call."""
    host = calls.trace.host
    alone = enclosed(host.kind == RUNTIME, calls.after) == 0
    waits = calls.trace.named(
        lambda name: is_wait(name) or name.startswith(COMMUNICATION_CALLS) or is_backward_node(name)
    )
    library = alone | (host.kind == RUNTIME) | calls.trace.named(lambda name: name.startswith("aten::"))
    on_host = alone & (host.kind == OPERATOR)
    # Keep long operators and those inside them.
    lasting = calls.end_ns - host.start_ns >= _LONG_OPERATOR_NS
    chosen = np.flatnonzero(
        on_launching
        & of_kinds(host.kind, (OPERATOR, RUNTIME))
        & ~waits
        & library
        & (lasting | covered(lasting, calls.after))
    )
    which, starts, ends = exclusive(host.thread[chosen], host.start_ns[chosen], calls.end_ns[chosen])
    own = np.bincount(which, weights=ends - starts, minlength=len(chosen))
    idle = np.bincount(
        which, weights=intervals.covered(host_bound, np.stack((starts, ends), axis=1)), minlength=len(chosen)
    )
    kept = (
        ~calls.trace.named(_is_allocation)[chosen]
        & (own >= np.where(on_host[chosen], _LONG_OPERATOR_NS, _LONG_STRETCH_NS))
        & (idle > 0)
    )
    first = _firsts(calls, chosen[kept & on_host[chosen]])
    again = _again(calls)
    names = calls.trace.names
    found = []
    for event, idle_ns in zip(chosen[kept].tolist(), idle[kept].tolist(), strict=True):
        signature = int(host.signature[event])
        computes = on_host[event] and event not in first
        waited = names[host.name[event]].startswith(_TAKES_MEMORY) if computes else again[event]
        if waited:  # a thread that had to wait for a processor, or a full queue
            continue
        kind: Kind = "operator" if computes else "runtime"
        shapes = calls.trace.signatures[signature].shapes() if signature >= 0 else ""
        found.append(_Idle(kind, names[host.name[event]], shapes, round(idle_ns), lines.where(event)))
    return found


def _firsts(calls: Calls, events: Int64s) -> set[int]:
    """Those of the operators ``events`` that are the first of equal calls and take far longer than all
    others."""
    host = calls.trace.host
    found = set()
    for code in {*host.signature[events].tolist()}:
        equal = np.flatnonzero(host.signature == code)
        lasting = calls.end_ns[equal] - host.start_ns[equal]
        first = int(np.argmin(host.start_ns[equal]))
        if code >= 0 and len(equal) > 1 and lasting[first] >= _FIRST * np.delete(lasting, first).max():
            found.add(int(equal[first]))
    return found


def _again(calls: Calls) -> Mask:
    """The events that are no first calls: the kernel that they launch has been launched before, or else the
    operator that they are or that is around them has been called before with the same arguments."""
    host = calls.trace.host
    launched = np.flatnonzero(calls.launch >= 0)
    kernel = unset(len(host))
    kernel[calls.launch[launched]] = calls.trace.device.name[launched]
    operator = np.where(host.kind == OPERATOR, np.arange(len(host)), calls.above)
    signature = np.where(operator >= 0, host.signature[operator].astype(np.int64), -1)
    is_launch = kernel >= 0
    return np.where(
        is_launch,
        _seen(kernel, host.start_ns, is_launch),
        _seen(signature, host.start_ns[operator], operator >= 0),
    )


def _seen(code: Int64s, start: Int64s, known: Mask) -> Mask:
    """Whether a ``known`` event of the same ``code`` began before each."""
    codes, which = distinct(code)
    first = np.full(len(codes), np.iinfo(np.int64).max)
    np.minimum.at(first, which[known], start[known])
    return known & (code >= 0) & (start > first[which])


def _allocations(trace: Trace, window: Intervals, host_bound: Intervals) -> list[_Idle]:
    """The calls in ``window`` that take memory of a device or give it back."""
    host = trace.host
    chosen = np.flatnonzero((host.kind == RUNTIME) & trace.named(_is_allocation))
    calls = np.stack((host.start_ns[chosen], host.end_ns[chosen]), axis=1)
    inside = intervals.covered(window, calls) > 0
    long = calls[:, 1] - calls[:, 0] >= _FIRST_ALLOCATION_NS
    kinds: tuple[tuple[Kind, Mask], ...] = (("allocator", inside & ~long), ("runtime", inside & long))
    return [
        one
        for kind, of in kinds
        for one in _idle_in(kind, trace.names, host.name[chosen[of]], calls[of], host_bound)
    ]


def _is_allocation(name: str) -> bool:
    return _ALLOCATES.match(name) is not None


def _is_compiling(name: str) -> bool:
    return name.endswith(COMPILING)


def _ranges(
    calls: Calls, host_bound: Intervals, on_launching: Mask, kind: Kind, test: Callable[[str], bool]
) -> list[_Idle]:
    """The outermost of the ranges and operators whose names pass ``test``."""
    host = calls.trace.host
    named = on_launching & of_kinds(host.kind, (ANNOTATION, OPERATOR)) & calls.trace.named(test)
    chosen = np.flatnonzero(named & ~covered(named, calls.after))
    times = np.stack((calls.begin_ns[chosen], calls.end_ns[chosen]), axis=1)
    return _idle_in(kind, calls.trace.names, host.name[chosen], times, host_bound)


def _first_ranges(calls: Calls, host_bound: Intervals, on_launching: Mask, known_ns: int) -> list[_Idle]:
    """What the first of equal ranges takes longer than the others do in the median: libraries and kernels
    that are loaded, in more calls than ``known_ns`` of long ones."""
    host = calls.trace.host
    ranges = on_launching & (host.kind == ANNOTATION)
    outermost = np.flatnonzero(ranges & ~covered(ranges, calls.after))
    found = []
    for code, places in places_of(host.name[outermost]):
        own = outermost[places]
        if len(own) < _FEWEST_RANGES:
            continue
        first, *others = intervals.covered(
            host_bound, np.stack((host.start_ns[own], calls.end_ns[own]), axis=1)
        ).tolist()
        more_ns = round(first - float(np.median(others))) - known_ns
        if more_ns > max(others):
            found.append(_Idle("runtime", f"the first of {len(own)} {calls.trace.names[code]}", "", more_ns))
    return found


def _functions(trace: Trace, host_bound: Intervals, threads: Int64s) -> tuple[list[_Idle], Intervals]:
    """Functions of the Python stack that make no call of a device's runtime, the outermost of them, and when
    they ran."""
    frames, host = trace.frames, trace.host
    silent = np.zeros(len(frames), bool)
    for thread in threads.tolist():
        own = np.flatnonzero(frames.thread == thread)
        called = np.sort(host.start_ns[(host.kind == RUNTIME) & (host.thread == thread)])
        first = np.searchsorted(called, frames.start_ns[own])
        behind = np.searchsorted(called, frames.end_ns[own])
        silent[own] = (first == behind) & (frames.end_ns[own] - frames.start_ns[own] >= _LONG_OPERATOR_NS)
    after, _ = nest(frames.thread, frames.start_ns, frames.end_ns)
    chosen = np.flatnonzero(silent & ~covered(silent, after))
    times = np.stack((frames.start_ns[chosen], frames.end_ns[chosen]), axis=1)
    found = _idle_in("python", trace.frame_names, frames.name[chosen], times, host_bound)
    return found, intervals.union(*times.T)


def _unrecorded(trace: Trace, host_bound: Intervals, on_launching: Mask) -> list[_Idle]:
    """Long stretches outside of operators and runtime calls."""
    host = trace.host
    recorded = np.flatnonzero(on_launching & of_kinds(host.kind, (OPERATOR, RUNTIME)))
    outside = intervals.subtract(host_bound, intervals.union(host.start_ns[recorded], host.end_ns[recorded]))
    lasting = outside[:, 1] - outside[:, 0]
    return [
        _Idle("unrecorded", "", "", length_ns) for length_ns in lasting[lasting >= _LONG_STRETCH_NS].tolist()
    ]


def recomputation(attribution: Attribution) -> Recomputation | None:
    """Operators of the forward pass that ran inside the backward pass, as checkpointing makes them; None
    where there are none.

    Only a forward pass gives operators autograd's numbers. Where operators of the backward pass have them as
    well, its own gradient is wanted, and the two cannot be told apart.
    """
    host = attribution.trace.host
    is_node = attribution.trace.named(is_backward_node)
    graded = (
        (host.kind == OPERATOR)
        & (attribution.calls.phase == BACKWARD)
        & (host.sequence >= 0)
        & (host.forward_thread == 0)
        & ~is_node
    )
    # A range that says backward may be around the loss as well; below a node nothing is forward.
    graded &= covered(is_node, attribution.calls.after)
    if not graded.any() or (graded & attribution.trace.named(lambda name: "_backward" in name)).any():
        return None
    events = np.flatnonzero(graded & ~covered(graded, attribution.calls.after))
    ran = intervals.union(host.start_ns[events], attribution.calls.end_ns[events])
    if len(device := attribution.trace.device):  # the work that was launched below them
        launch = attribution.calls.launch
        around = events[np.maximum(np.searchsorted(events, launch, side="right") - 1, 0)]
        below = (launch >= around) & (launch < attribution.calls.after[around])
        ran = intervals.union(device.start_ns[below], device.end_ns[below])
    time_ns = intervals.length(intervals.intersect(ran, attribution.window))
    steps = attribution.per
    names = Counter(attribution.trace.names[code] for code in np.sort(host.name[events]).tolist())
    time_s = time_ns * attribution.pace / 1e9 / steps
    most = tuple(name for name, _ in names.most_common(_MOST))
    return (
        Recomputation(time_s=time_s, calls=per_step(len(events), steps), operators=most) if time_ns else None
    )


def _operator_around(calls: Calls, event: int) -> str:
    """The outermost of the ATen operators directly around ``event``: ``aten::item`` rather than
    ``aten::_local_scalar_dense``."""
    names = (
        calls.trace.names[code]
        for code in calls.trace.host.name[list(calls.operators_around(event))].tolist()
    )
    native = list(takewhile(lambda name: name.startswith("aten::"), names))
    return native[-1] if native else ""
