"""The time of a GPU: an owner's time is the union of the intervals of the kernels, copies and memsets launched below it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rooflines.profiler.trace import intervals
from rooflines.profiler.trace.breakdown import device_intervals
from rooflines.profiler.trace.distinct import distinct, distinct_rows
from rooflines.profiler.trace.graphs import is_graph_launch
from rooflines.profiler.trace.intervals import Intervals, lengths_by_group
from rooflines.profiler.trace.records import COMMUNICATION, KERNEL, MEMCPY, MEMSET, Int32s, Int64s, Mask, Trace
from rooflines.profiler.trace.signature import Signature
from rooflines.profiler.trace.tree import UNKNOWN, Calls
from rooflines.profiler.trace.windows import at_launch, step_number
from rooflines.roofline.attribution.origins import FROM_KERNEL, FROM_RUN, Origins
from rooflines.roofline.attribution.rows import DividedTime, LaunchedKernel, Pieces, TimeRow, calls_by_step, longest_by_group
from rooflines.roofline.formulas import CallCount
from rooflines.roofline.formulas.counter import NO_FORMULA
from rooflines.roofline.resolvers.batches import StepLengths
from rooflines.roofline.resolvers.counts import Variant

NO_OPERATOR = "launched outside any operator"
NO_LAUNCH = "its launch is not in the trace"
EAGER = {FROM_RUN: "the same kernels in the same order before the graph", FROM_KERNEL: "calls of the same kernel outside of the graph"}
OUTSIDE_STEPS = "ran during the steps, but they did not launch it"


def attribute_device(
    calls: Calls, origins: Origins, inside: Mask, belongs: Mask, window: Intervals, step: Int64s, steps: int, lost: Int64s
) -> DividedTime:
    """Divide the time of the device events that belong to the window; ``step`` is the number of each one's step, ``lost`` are the
    launches whose kernels the trace lacks."""
    device, owner = calls.trace.device, origins.owner
    owning = origins.at(owner)
    exposed = _exposed(calls.trace)

    owned = np.flatnonzero(belongs & (owning >= 0))
    # An owner in a captured graph is called once in every replay.
    called, position = distinct_rows(owning[owned], origins.replay[owned], origins.inferred[owned])
    one = np.empty(len(called), np.int64)
    one[position] = np.arange(len(position))  # a device event of each call
    # Counted operators that launched nothing still did their FLOPs somewhere; views and allocations among them are of no interest.
    works = np.array([*(one.count.work is not None and one.count.work.flops > 0 for one in origins.variants), False])
    silent = origins.silent & (owner == np.arange(len(owner))) & works[origins.variant]
    silent[: len(inside)] &= inside
    silent[called[:, 0]] = False
    unheard = np.flatnonzero(silent)
    events = np.concatenate((called[:, 0], unheard))
    inferred = np.concatenate((called[:, 2], np.zeros(len(unheard), np.int64)))
    during = np.concatenate((step[owned][one], step_number(calls.trace.host.start_ns[unheard], calls.steps)))
    # A captured call had the lengths of its capture, which are not those of the replay.
    replayed = np.concatenate((called[:, 1] >= 0, np.zeros(len(unheard), bool)))
    # An eager call of the same kernel does not say where in the network the graph calls it.
    place = events.copy()
    elsewhere = np.flatnonzero(inferred == FROM_KERNEL)
    place[elsewhere] = calls.launch[called[elsewhere, 1] - len(calls.trace.host)]
    variants, variant_of = _with_lengths(origins, events, np.where(replayed, during, -1), StepLengths(calls))
    module, phase = origins.module[place], origins.phase[place]
    for column, noted in ((module, origins.scope), (phase, origins.scope_phase)):
        column[: len(called)] = np.where(noted[owned][one] >= 0, noted[owned][one], column[: len(called)])
    keys, group = distinct_rows(variant_of, module, phase, inferred)
    group_of = group[position]
    numbers = np.bincount(group, minlength=len(keys))
    began = calls_by_step(group, len(keys), during, steps)
    figures = _figures(calls.trace, owned, group_of, len(keys), exposed, step, steps)
    alternates = alternating_attention(
        variants, variant_of[: len(called)][position], position, device.start_ns[owned], device.end_ns[owned]
    )  # fmt: skip
    callers = _callers(calls, events, group, len(keys))
    missing = _missing(events, group, len(keys), owner[lost])
    rows = tuple(
        TimeRow(
            variants[variant].signature, variants[variant].count, module, phase, number,
            inferred=EAGER.get(how, variants[variant].inferred), step_calls=began[at], alternates_ns=alternates.get(variant),
            caller=callers[at], lost=missing[at], **figures[at],
        )
        for at, ((variant, module, phase, how), number) in enumerate(zip(keys.tolist(), numbers.tolist(), strict=True))
    )  # fmt: skip
    left = np.flatnonzero(belongs & (owning < 0))
    gaps, gap_of = _device_gaps(calls, origins, left, exposed, step, steps)
    known = calls.launch >= 0
    graphs = belongs & known & at_launch(is_graph_launch(calls.trace), calls.launch)
    matched = graphs & (origins.replay >= 0)

    row_of = np.full(len(device), -1, np.int64)
    row_of[owned], row_of[left] = group_of, -2 - gap_of
    call_of = np.full(len(device), -1, np.int64)
    call_of[owned] = position
    event, starts, ends = intervals.split(device.start_ns, device.end_ns, window)
    # While the device runs work launched by others, it is not idle, and the time does not belong to the steps.
    others = ~belongs[event]
    other_gaps, other_of = _other_gaps(calls.trace, event[others], starts[others], ends[others])
    row = row_of[event]
    row[others] = -2 - len(gaps) - other_of
    return DividedTime(
        rows, gaps + other_gaps, Pieces(event, starts, ends, row, call_of[event]), busy=intervals.union(starts, ends),
        orphans=int((belongs & ~known).sum()), graphs_ns=_lasting(calls.trace, graphs), matched_ns=_lasting(calls.trace, matched),
    )  # fmt: skip


def _with_lengths(origins: Origins, events: Int64s, step: Int64s, lengths: StepLengths) -> tuple[list[Variant], Int64s]:
    """The variants and that of each event, counted with the lengths of the sequences of its ``step`` where it has one (-1: none)."""
    variants, variant_of = list(origins.variants), origins.variant[events]
    if not lengths.known:
        return variants, variant_of
    replayed = variant_of.copy()
    for code in np.unique(replayed[(replayed >= 0) & (step >= 0)]).tolist():
        of_code = np.flatnonzero((replayed == code) & (step >= 0))
        for chosen, variant in lengths.recounted(origins.variants[code], step[of_code]):
            variant_of[of_code[chosen]] = len(variants)
            variants.append(variant)
    return variants, variant_of


def _missing(events: Int64s, group: Int64s, groups: int, owners: Int64s) -> list[int]:
    """How many of ``owners`` are events of each group."""
    order = np.argsort(events, kind="stable")
    at = np.searchsorted(events[order], owners)
    found = at < len(events)
    found[found] = events[order[at[found]]] == owners[found]
    numbers: list[int] = np.bincount(group[order[at[found]]], minlength=groups).tolist()
    return numbers


def _callers(calls: Calls, events: Int64s, group: Int64s, groups: int) -> list[str]:
    """The nearest operator around the calls of each group that is none of ATen's, of most of them; empty where they have none."""
    host, found = calls.trace.host, [""] * groups
    foreign = np.array([*(not name.startswith("aten::") for name in calls.trace.names), True])
    chosen = (events >= 0) & (events < len(host))  # not of a captured graph
    at, which = events[chosen], group[chosen]
    while len(inner := np.flatnonzero(~foreign[np.where(at >= 0, host.name[at], -1)])):
        parent = calls.parent[at[inner]]
        at[inner] = np.where(parent >= 0, calls.operator[parent], -1)
    keys, each = distinct_rows(which, np.where(at >= 0, host.name[at], -1))
    for place in np.argsort(np.bincount(each), kind="stable").tolist():
        of, name = keys[place].tolist()
        found[of] = calls.trace.names[name].removeprefix("autograd::engine::evaluate_function: ") if name >= 0 else ""
    return found


def _figures(
    trace: Trace, events: Int64s, group: Int64s, groups: int, exposed: Int64s, step: Int64s, steps: int
) -> list[dict[str, Any]]:
    """The figures of a row that come from the device ``events`` of each group."""
    device = trace.device
    start_ns, end_ns = device.start_ns[events], device.end_ns[events]
    columns = {
        "time_ns": intervals.lengths_by_group(group, start_ns, end_ns, groups).tolist(),
        "step_ns": _by_step(trace, events, group, groups, step, steps),
        "kernels": _kernels(trace, events, group, groups),
        "exposed_ns": _exposed_by_group(trace, exposed, events, group, groups),
        "longest": longest_by_group(group, groups, start_ns, end_ns - start_ns, step[events], device.stream[events]),
    }
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _lasting(trace: Trace, chosen: Mask) -> int:
    """The time in which one of the chosen device events runs."""
    return intervals.length(intervals.union(trace.device.start_ns[chosen], trace.device.end_ns[chosen]))


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


def _exposed_by_group(trace: Trace, exposed: Int64s, events: Int64s, group: Int64s, groups: int) -> list[int]:
    """The sum of ``exposed`` in each group of ``events``, and of its kernels the time when no other kernel runs."""
    own = exposed[events]
    has = own >= 0
    total = np.bincount(group[has], weights=own[has], minlength=groups)
    # All other kernels are one more group.
    of = np.full(len(trace.device), groups, np.int64)
    of[events[~has]] = group[~has]
    running = np.flatnonzero(trace.device.kind != MEMCPY)
    alone = intervals.alone_by_group(of[running], trace.device.start_ns[running], trace.device.end_ns[running], groups + 1)[:groups]
    return [round(value) for value in (total + alone).tolist()]


def _kernels(trace: Trace, events: Int64s, group: Int64s, groups: int) -> list[tuple[LaunchedKernel, ...]]:
    """The device events of each group by name, longest first."""
    device = trace.device
    found: list[list[LaunchedKernel]] = [[] for _ in range(groups)]
    keys, which = distinct_rows(group, device.name[events])
    numbers = np.bincount(which)
    times = np.zeros(len(keys), np.int64)
    np.add.at(times, which, device.end_ns[events] - device.start_ns[events])
    shapes = [None if at is None else trace.launch_shapes[at] for at in _same(device.shape[events], which, len(keys))]
    registers, shared = (_same(column[events], which, len(keys)) for column in (device.registers, device.shared_bytes))
    occupancy = np.where(device.occupancy[events] < 0, np.nan, device.occupancy[events] / 100)
    occupied = np.bincount(which, weights=(device.end_ns[events] - device.start_ns[events]) * occupancy) / np.maximum(times, 1)
    means = [None if np.isnan(mean) else min(1.0, mean) for mean in occupied.tolist()]
    streams: list[list[int]] = [[] for _ in range(len(keys))]
    for place, stream in distinct_rows(which, device.stream[events])[0].tolist():
        streams[place].append(stream)
    columns = zip(numbers.tolist(), times.tolist(), map(tuple, streams), shapes, registers, shared, means, strict=True)
    for (at, name), facts in zip(keys.tolist(), columns, strict=True):
        found[at].append(LaunchedKernel(trace.names[name], *facts))
    return [tuple(sorted(one, key=lambda kernel: (-kernel.time_ns, kernel.name))) for one in found]


def _same(values: Int64s | Int32s, group: Int64s, groups: int) -> list[int | None]:
    """The value of each group in which all ``values`` are the same, else None; so of a group in which they are -1."""
    least, most = np.full(groups, np.iinfo(np.int64).max), np.full(groups, -1, np.int64)
    np.minimum.at(least, group, values)
    np.maximum.at(most, group, values)
    return [low if low == high >= 0 else None for low, high in zip(least.tolist(), most.tolist(), strict=True)]


def _device_gaps(
    calls: Calls, origins: Origins, events: Int64s, exposed: Int64s, step: Int64s, steps: int
) -> tuple[tuple[TimeRow, ...], Int64s]:
    """The device events that no counted operator owns, by the operator around their launch, by graph where it has no capture, or by
    kernel where there is none; and the gap of each event."""
    if not len(events):
        return (), events
    device = calls.trace.device
    graph = origins.graph[events]
    operator = np.where(graph >= 0, -1, origins.at(origins.operator)[events])
    inside = operator >= 0
    known = calls.launch[events] >= 0
    # What decides: the operator's variant, module and phase, the graph, or the kernel's name and whether its launch is known.
    variant = np.where(inside, at_launch(origins.variant, operator), np.where(graph >= 0, -3 - graph, np.where(known, -1, -2)))
    name = np.where(inside, at_launch(origins.name, operator), np.where(graph >= 0, -1, device.name[events]))
    # A kernel launched from Python, below no operator, belongs to the module around the launch.
    module = np.where(inside, at_launch(origins.module, operator), origins.at(origins.module)[events])
    phase = np.where(inside, at_launch(origins.phase, operator), UNKNOWN)
    module, phase = (
        np.where(noted[events] >= 0, noted[events], column)
        for column, noted in ((module, origins.scope), (phase, origins.scope_phase))
    )  # fmt: skip
    keys, group = distinct_rows(name, variant, module, phase)
    # A call is one of the operator, in each replay of a graph, or a launch of the graph; where there is neither, one of the kernel.
    caller = np.where(inside, operator, np.where(graph >= 0, calls.launch[events], -1 - events))
    callers, _ = distinct_rows(group, caller, origins.replay[events])
    numbers = np.bincount(callers[:, 0], minlength=len(keys))
    figures, around = _figures(calls.trace, events, group, len(keys), exposed, step, steps), _callers(calls, operator, group, len(keys))
    gaps = []
    for place, (code, which, at, during) in enumerate(keys.tolist()):
        category = "other"
        if which >= 0:
            signature, counted = origins.variants[which].signature, origins.variants[which].count
            category, reason = counted.category, counted.reason or NO_FORMULA
        elif which <= -3:
            graph_name, reason = origins.graphs[-3 - which]
            signature = Signature(graph_name)
        else:
            signature, reason = Signature(calls.trace.names[code]), NO_OPERATOR if which == -1 else NO_LAUNCH
        count = CallCount("unknown", None, category, reason)
        gaps.append(TimeRow(signature, count, at, during, int(numbers[place]), caller=around[place], **figures[place]))
    return tuple(gaps), group


def _other_gaps(trace: Trace, events: Int64s, starts: Int64s, ends: Int64s) -> tuple[tuple[TimeRow, ...], Int64s]:
    """Device events outside of steps, by name, and the gap of each; ``starts`` and ``ends`` are those of their parts in the span."""
    names, group = distinct(trace.device.name[events])
    busy_ns = intervals.lengths_by_group(group, starts, ends, len(names))
    numbers = np.bincount(group, minlength=len(names))
    count = CallCount("unknown", None, "other", OUTSIDE_STEPS)
    gaps = tuple(
        TimeRow(Signature(trace.names[code]), count, -1, UNKNOWN, number, time_ns)
        for code, number, time_ns in zip(names.tolist(), numbers.tolist(), busy_ns.tolist(), strict=True)
    )
    return gaps, group


# Calls of one signature that take turns in being short and long, as those of layers with and without a sliding window do.

# Fewer calls than this show no pattern; the longer kind takes this many times as long; half of each kind lies this near together.
_FEWEST, _APART, _TOGETHER = 8, 1.5, 0.2


def alternating(times_ns: Int64s) -> tuple[float, float] | None:
    """The medians in nanoseconds of the shorter and the longer kind if every other one of ``times_ns`` is of one kind, else None."""
    if len(times_ns) < _FEWEST:
        return None
    # Not numpy.percentile, which imports numpy's masked arrays.
    ordered = [np.sort(times_ns[first::2]).tolist() for first in (0, 1)]
    (_, short, _), (_, long, _) = kinds = sorted(
        ((each[len(each) // 4], each[len(each) // 2], each[3 * len(each) // 4]) for each in ordered), key=lambda kind: kind[1]
    )
    tight = all(high - low <= _TOGETHER * median for low, median, high in kinds)
    return (float(short), float(long)) if tight and long >= _APART * short > 0 else None


def alternating_attention(
    variants: Sequence[Variant], variant_of: Int64s, call: Int64s, start_ns: Int64s, end_ns: Int64s
) -> dict[int, tuple[float, float]]:
    """The two times of every variant of attention whose calls alternate; of each kernel, in order, its variant, call, begin and end."""
    found = {}
    for variant in distinct(variant_of)[0].tolist():
        if variants[variant].count.category == "attention":
            chosen = np.flatnonzero(variant_of == variant)
            # Calls in the order in which their first kernels begin.
            calls, number = distinct(call[chosen])
            first = np.full(len(calls), len(chosen))
            np.minimum.at(first, number, np.arange(len(chosen)))
            times_ns = lengths_by_group(number, start_ns[chosen], end_ns[chosen], len(calls))
            kinds = alternating(times_ns[np.argsort(first, kind="stable")])
            if kinds is not None:
                found[variant] = kinds
    return found
