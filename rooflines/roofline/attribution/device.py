"""The time of a GPU: an owner's time is the union of the intervals of the kernels, copies and memsets launched below it."""

from __future__ import annotations

import numpy as np

from rooflines.profiler.trace import intervals
from rooflines.profiler.trace.breakdown import device_intervals
from rooflines.profiler.trace.calls import FORWARD, Calls
from rooflines.profiler.trace.distinct import distinct, distinct_rows
from rooflines.profiler.trace.intervals import Intervals
from rooflines.profiler.trace.nesting import Mask
from rooflines.profiler.trace.records import COMMUNICATION, KERNEL, MEMCPY, MEMSET, RUNTIME, Int64s, Trace
from rooflines.profiler.trace.windows import at_launch
from rooflines.roofline.attribution.ownership import Ownership
from rooflines.roofline.attribution.rows import DividedTime, Gap, LaunchedKernel, Pieces, Row, grouped
from rooflines.roofline.resolvers.counts import Counts

NO_OPERATOR = "launched outside any operator"
NO_LAUNCH = "its launch is not in the trace"
OUTSIDE_STEPS = "ran during the steps, but they did not launch it"


def attribute_device(
    trace: Trace,
    calls: Calls,
    counts: Counts,
    ownership: Ownership,
    inside: Mask,
    launch: Int64s,
    belongs: Mask,
    window: Intervals,
    step: Int64s,
    steps: int,
) -> DividedTime:
    """Divide the time of the device events that belong to the window; ``launch`` is the host event that launched each, ``step`` the
    number of its step."""
    host, device, owner = trace.host, trace.device, ownership.owner
    known = launch >= 0
    owning = np.where(known, at_launch(owner, launch), -1)
    innermost = np.where(known, at_launch(calls.operator, launch), -1)
    exposed = _exposed(trace)

    owned = np.flatnonzero(belongs & (owning >= 0))
    owners, position = distinct(owning[owned])
    # Counted operators that launched nothing still did their FLOPs somewhere; views and allocations among them are of no interest.
    has_flops = counts.where(lambda variant: variant.count.work is not None and variant.count.work.flops > 0)
    silent = np.flatnonzero((owner == np.arange(len(host))) & inside & has_flops)
    silent = silent[~np.isin(silent, owners)]
    events = np.concatenate((owners, silent)).astype(np.int64)
    keys, group = grouped(calls, counts.of_event, events)
    group_of = group[position]
    busy_ns = intervals.lengths_by_group(group_of, device.start_ns[owned], device.end_ns[owned], len(keys))
    numbers = np.bincount(group, minlength=len(keys))
    each = _by_step(trace, owned, group_of, len(keys), step, steps)
    ran, hidden = _kernels(trace, owned, group_of, len(keys)), _sums(exposed[owned], group_of, len(keys))
    rows = tuple(
        Row(
            counts.variants[variant].signature,
            counts.variants[variant].count,
            module,
            phase,
            number,
            time_ns,
            counts.variants[variant].inferred,
            step_ns,
            kernels,
            exposed_ns,
        )
        for (variant, module, phase), number, time_ns, step_ns, kernels, exposed_ns in zip(
            keys.tolist(), numbers.tolist(), busy_ns.tolist(), each, ran, hidden, strict=True
        )
    )
    gaps = _device_gaps(trace, calls, counts, np.flatnonzero(belongs & (owning < 0)), innermost, known, exposed, step, steps)
    graphs = belongs & known & at_launch(_is_graph(trace), launch)
    graphs_ns = intervals.length(intervals.union(device.start_ns[graphs], device.end_ns[graphs]))

    row_of = np.full(len(device), -1, np.int64)
    row_of[owned] = group_of
    event, starts, ends = intervals.split(device.start_ns, device.end_ns, window)
    # While the device runs work launched by others, it is not idle, and the time does not belong to the steps.
    others = ~belongs[event]
    gaps += _other_gaps(trace, event[others], starts[others], ends[others])
    busy = intervals.union(starts, ends)
    return DividedTime(rows, gaps, Pieces(event, starts, ends, row_of[event]), busy, int((belongs & ~known).sum()), graphs_ns)


def _by_step(trace: Trace, events: Int64s, group: Int64s, groups: int, step: Int64s, steps: int) -> list[tuple[int, ...]]:
    """The time of each group in each step: the union of the intervals of the device events that the step launched."""
    if steps < 2:
        return [()] * groups
    device = trace.device
    times = intervals.lengths_by_group(
        group * steps + np.maximum(step[events], 0), device.start_ns[events], device.end_ns[events], groups * steps
    )
    return [tuple(each) for each in times.reshape(groups, steps).tolist()]


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


def _kernels(trace: Trace, events: Int64s, group: Int64s, groups: int) -> list[tuple[LaunchedKernel, ...]]:
    """The device events of each group by name, longest first."""
    device = trace.device
    found: list[list[LaunchedKernel]] = [[] for _ in range(groups)]
    if not len(events):
        return [tuple(one) for one in found]
    keys, which = distinct_rows(group, device.name[events])
    numbers = np.bincount(which)
    times = np.zeros(len(keys), np.int64)
    np.add.at(times, which, device.end_ns[events] - device.start_ns[events])
    least, most = np.full(len(keys), len(trace.launch_shapes), np.int64), np.full(len(keys), -1, np.int64)
    np.minimum.at(least, which, device.shape[events])
    np.maximum.at(most, which, device.shape[events])
    shapes = [trace.launch_shapes[low] if low == high >= 0 else None for low, high in zip(least.tolist(), most.tolist(), strict=True)]
    streams: list[list[int]] = [[] for _ in range(len(keys))]
    for place, stream in distinct_rows(which, device.stream[events])[0].tolist():
        streams[place].append(stream)
    columns = zip(keys.tolist(), numbers.tolist(), times.tolist(), streams, shapes, strict=True)
    for (at, name), number, time_ns, ran_on, shape in columns:
        found[at].append(LaunchedKernel(trace.names[name], number, time_ns, tuple(ran_on), shape))
    return [tuple(sorted(one, key=lambda kernel: (-kernel.time_ns, kernel.name))) for one in found]


def _device_gaps(
    trace: Trace,
    calls: Calls,
    counts: Counts,
    events: Int64s,
    innermost: Int64s,
    known: Mask,
    exposed: Int64s,
    step: Int64s,
    steps: int,
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
    keys, group = distinct_rows(name, variant, module, phase)
    busy_ns = intervals.lengths_by_group(group, device.start_ns[events], device.end_ns[events], len(keys))
    # A call is one of the operator; where there is none, one of the kernel.
    callers, _ = distinct_rows(group, np.where(inside, operator, -1 - events))
    numbers = np.bincount(callers[:, 0], minlength=len(keys))
    each = _by_step(trace, events, group, len(keys), step, steps)
    ran, hidden = _kernels(trace, events, group, len(keys)), _sums(exposed[events], group, len(keys))
    gaps = []
    for place, (code, which, at, during) in enumerate(keys.tolist()):
        signature, reason = None, NO_OPERATOR if which == -1 else NO_LAUNCH
        if which >= 0:
            signature, reason = counts.variants[which].signature, counts.variants[which].count.reason or "no formula"
        gaps.append(
            Gap(
                trace.names[code],
                reason,
                int(numbers[place]),
                int(busy_ns[place]),
                at,
                during,
                signature,
                each[place],
                ran[place],
                hidden[place],
            )
        )
    return tuple(gaps)


def _other_gaps(trace: Trace, events: Int64s, starts: Int64s, ends: Int64s) -> tuple[Gap, ...]:
    """Device events outside of steps, by name; ``starts`` and ``ends`` are those of their parts in the span."""
    names, group = distinct(trace.device.name[events])
    busy_ns = intervals.lengths_by_group(group, starts, ends, len(names))
    numbers = np.bincount(group, minlength=len(names))
    return tuple(
        Gap(trace.names[code], OUTSIDE_STEPS, number, time_ns)
        for code, number, time_ns in zip(names.tolist(), numbers.tolist(), busy_ns.tolist(), strict=True)
    )


def _is_graph(trace: Trace) -> Mask:
    """The host events that launch a whole CUDA or HIP graph, in which operators have no separate launch."""
    named = np.array(["GraphLaunch" in name for name in trace.names], bool)
    chosen: Mask = named[trace.host.name] & (trace.host.kind == RUNTIME)
    return chosen
