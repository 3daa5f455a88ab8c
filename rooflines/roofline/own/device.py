"""The time of a GPU: an owner's time is the union of the intervals of the kernels, copies and memsets
launched below it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from rooflines.profiler.read import intervals
from rooflines.profiler.read.distinct import distinct, distinct_rows
from rooflines.profiler.read.intervals import Intervals, lengths_by_group
from rooflines.profiler.read.records import (
    COMMUNICATION,
    KERNEL,
    MEMCPY,
    MEMSET,
    Int64s,
    Mask,
    Trace,
)
from rooflines.profiler.read.signature import Signature
from rooflines.profiler.tree.breakdown import device_intervals
from rooflines.profiler.tree.graphs import is_graph_launch
from rooflines.profiler.tree.tree import UNKNOWN, Calls
from rooflines.profiler.tree.windows import at_launch, step_number
from rooflines.roofline.count.batches import StepLengths
from rooflines.roofline.count.counts import Variant, places_of, same_in_group, unset
from rooflines.roofline.count.formulas import CallCount
from rooflines.roofline.count.formulas.counter import NO_FORMULA
from rooflines.roofline.own.origins import FROM_KERNEL, FROM_RUN, Origins
from rooflines.roofline.own.rows import (
    DividedTime,
    LaunchedKernel,
    Pieces,
    TimeRow,
    by_step,
    longest_by_group,
)

NO_OPERATOR = "launched outside any operator"
NO_LAUNCH = "its launch is not in the trace"
EAGER = {
    FROM_RUN: "the same kernels in the same order before the graph",
    FROM_KERNEL: "calls of the same kernel outside of the graph",
}
OUTSIDE_STEPS = "ran during the steps, but they did not launch it"

# Rows or gaps, and which of them each call or event is in.
_Grouped: TypeAlias = tuple[tuple[TimeRow, ...], Int64s]


class InWindows(NamedTuple):
    """Where the device events of a trace lie: ``belongs`` and ``step`` have an entry for each of them."""

    #: the windows without the profiler's overhead
    window: Intervals
    #: whether the event was launched in the windows
    belongs: Mask
    #: the number of the step that launched it
    step: Int64s
    #: the number of steps; 0 of a trace without
    steps: int


def attribute_device(
    calls: Calls, origins: Origins, inside: Mask, placed: InWindows, lost: Int64s
) -> DividedTime:
    """Divide the time of the device events that belong to the windows.

    ``inside`` says of each host event whether it is in them; ``lost`` are the launches whose kernels the
    trace lacks.
    """
    device = calls.trace.device
    belongs = placed.belongs
    owning = origins.at(origins.owner)
    exposed = _exposed(calls.trace)
    owned = np.flatnonzero(belongs & (owning >= 0))
    left = np.flatnonzero(belongs & (owning < 0))
    counted = _counted_calls(calls, origins, inside, owned, placed.step)
    rows, row_of_call = _rows(
        calls, counted, _Events(calls.trace, owned, exposed, placed), origins.owner[lost]
    )
    gaps, gap_of = _device_gaps(calls, origins, _Events(calls.trace, left, exposed, placed))
    known = calls.launch >= 0
    graphs = belongs & known & at_launch(is_graph_launch(calls.trace), calls.launch)
    matched = graphs & (origins.replay >= 0)

    row_of, call_of = np.full((2, len(device)), -1, np.int64)
    row_of[owned], row_of[left] = row_of_call[counted.of], -2 - gap_of
    call_of[owned] = counted.of
    event, starts, ends = intervals.split(device.start_ns, device.end_ns, placed.window)
    # While the device runs work launched by others, it is not idle, and the time does not belong to the
    # steps.
    others = ~belongs[event]
    other_gaps, other_of = _other_gaps(calls.trace, event[others], starts[others], ends[others])
    row = row_of[event]
    row[others] = -2 - len(gaps) - other_of
    return DividedTime(
        rows,
        gaps + other_gaps,
        Pieces(event, starts, ends, row, call_of[event]),
        busy=intervals.union(starts, ends),
        orphans=int((belongs & ~known).sum()),
        graphs_ns=busy_ns(calls.trace, graphs),
        matched_ns=busy_ns(calls.trace, matched),
    )


class _Events(NamedTuple):
    """Device events that become rows: the ``chosen`` ones of a trace, and of all of them the time in which
    they are ``exposed``."""

    trace: Trace
    chosen: Int64s
    exposed: Int64s
    placed: InWindows

    def figures(self, group: Int64s, groups: int) -> list[dict[str, Any]]:
        """The figures of each of ``groups`` rows that come from its events; ``group`` is that of each
        event."""
        device = self.trace.device
        events = self.chosen
        start_ns = device.start_ns[events]
        end_ns = device.end_ns[events]
        step = self.placed.step[events]
        columns = {
            "time_ns": lengths_by_group(group, start_ns, end_ns, groups).tolist(),
            "step_ns": by_step(
                group,
                groups,
                step,
                self.placed.steps,
                lambda of, number: lengths_by_group(of, start_ns, end_ns, number),
            ),
            "kernels": self._kernels(group, groups),
            "exposed_ns": self._exposed(group, groups),
            "longest": longest_by_group(
                group, groups, start_ns, end_ns - start_ns, step, device.stream[events]
            ),
        }
        return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]

    def _exposed(self, group: Int64s, groups: int) -> list[int]:
        """The sum of ``exposed`` in each group, and of its kernels the time when no other kernel runs."""
        device = self.trace.device
        own = self.exposed[self.chosen]
        has = own >= 0
        total = np.bincount(group[has], weights=own[has], minlength=groups)
        # All other kernels are one more group.
        of = np.full(len(device), groups, np.int64)
        of[self.chosen[~has]] = group[~has]
        running = np.flatnonzero(device.kind != MEMCPY)
        alone = intervals.alone_by_group(
            of[running], device.start_ns[running], device.end_ns[running], groups + 1
        )
        return [round(value) for value in (total + alone[:groups]).tolist()]

    def _kernels(self, group: Int64s, groups: int) -> list[tuple[LaunchedKernel, ...]]:
        """The events of each group by name, longest first."""
        trace = self.trace
        device = self.trace.device
        events = self.chosen
        found: list[list[LaunchedKernel]] = [[] for _ in range(groups)]
        keys, which = distinct_rows(group, device.name[events])
        lasting_ns = device.end_ns[events] - device.start_ns[events]
        times = np.zeros(len(keys), np.int64)
        np.add.at(times, which, lasting_ns)
        shape, registers, shared = (
            [
                None if value < 0 else value
                for value in same_in_group(column[events], which, len(keys)).tolist()
            ]
            for column in (device.shape, device.registers, device.shared_bytes)
        )
        shapes = [None if at is None else trace.launch_shapes[at] for at in shape]
        occupancy = np.where(device.occupancy[events] < 0, np.nan, device.occupancy[events] / 100)
        occupied = np.bincount(which, weights=lasting_ns * occupancy) / np.maximum(times, 1)
        means = [None if np.isnan(mean) else min(1.0, mean) for mean in occupied.tolist()]
        streams: list[list[int]] = [[] for _ in range(len(keys))]
        for place, stream in distinct_rows(which, device.stream[events])[0].tolist():
            streams[place].append(stream)
        numbers = np.bincount(which).tolist()
        columns = zip(
            numbers, times.tolist(), map(tuple, streams), shapes, registers, shared, means, strict=True
        )
        for (at, name), facts in zip(keys.tolist(), columns, strict=True):
            found[at].append(LaunchedKernel(trace.names[name], *facts))
        return [tuple(sorted(each, key=lambda kernel: (-kernel.time_ns, kernel.name))) for each in found]


class _CountedCalls(NamedTuple):
    """The counted calls in the windows: first those that own device events, then those that launched
    nothing."""

    #: the call: a host event, or one of a captured graph
    event: Int64s
    variants: Sequence[Variant]
    #: its index in ``variants``
    variant: Int64s
    module: Int64s
    phase: Int64s
    #: how its owner was found
    inferred: Int64s
    step: Int64s
    #: the call of each owned device event
    of: Int64s
    alternates_ns: dict[int, tuple[float, float]]


def _counted_calls(
    calls: Calls, origins: Origins, inside: Mask, owned: Int64s, step: Int64s
) -> _CountedCalls:
    host = calls.trace.host
    device = calls.trace.device
    # An owner in a captured graph is called once in every replay.
    heard, of = distinct_rows(
        origins.at(origins.owner)[owned], origins.replay[owned], origins.inferred[owned]
    )
    owner, replay, how = heard.T
    of_call = np.empty(len(heard), np.int64)
    of_call[of] = owned  # a device event of each call
    silent = np.flatnonzero(_silent(origins, inside, owner))
    nothing = np.zeros(len(silent), np.int64)
    event = np.concatenate((owner, silent))
    inferred = np.concatenate((how, nothing))
    during = np.concatenate((step[of_call], step_number(host.start_ns[silent], calls.steps)))
    # A captured call had the lengths of its capture, which are not those of the replay.
    replayed = np.concatenate((replay >= 0, nothing > 0))
    variants, variant = _with_lengths(origins, event, np.where(replayed, during, -1), StepLengths(calls))
    # An eager call of the same kernel does not say where in the network the graph calls it.
    place = event.copy()
    elsewhere = np.flatnonzero(inferred == FROM_KERNEL)
    place[elsewhere] = calls.launch[replay[elsewhere] - len(host)]
    module = origins.module[place]
    phase = origins.phase[place]
    own = slice(len(heard))
    module[own], phase[own] = origins.noted(of_call, module[own], phase[own])
    alternates = alternating_attention(
        variants, variant[of], of, device.start_ns[owned], device.end_ns[owned]
    )
    return _CountedCalls(event, variants, variant, module, phase, inferred, during, of, alternates)


def _silent(origins: Origins, inside: Mask, heard: Int64s) -> Mask:
    """The owners besides those ``heard`` that launched nothing and still did FLOPs somewhere, unlike views
    and allocations."""
    works = np.array(
        [*(one.count.work is not None and one.count.work.flops > 0 for one in origins.variants), False]
    )
    silent: Mask = origins.silent & (origins.owner == np.arange(len(origins.owner))) & works[origins.variant]
    silent[: len(inside)] &= inside
    silent[heard] = False
    return silent


def _rows(calls: Calls, counted: _CountedCalls, events: _Events, lost: Int64s) -> _Grouped:
    """The rows of counted calls, and the row of each; ``lost`` are calls whose kernels the trace lacks."""
    keys, row = distinct_rows(counted.variant, counted.module, counted.phase, counted.inferred)
    columns = zip(
        keys.tolist(),
        np.bincount(row, minlength=len(keys)).tolist(),
        by_step(row, len(keys), counted.step, events.placed.steps),
        _callers(calls, counted.event, row, len(keys)),
        _missing(counted.event, row, len(keys), lost),
        events.figures(row[counted.of], len(keys)),
        strict=True,
    )
    rows = []
    for (code, module, phase, how), number, began, caller, missing, figures in columns:
        variant = counted.variants[code]
        alternates = counted.alternates_ns.get(code)
        rows.append(
            TimeRow(
                variant.signature,
                variant.count,
                module,
                phase,
                number,
                inferred=EAGER.get(how, variant.inferred),
                step_calls=began,
                alternates_ns=alternates,
                caller=caller,
                lost=missing,
                **figures,
            )
        )
    return tuple(rows), row


def _with_lengths(
    origins: Origins, events: Int64s, step: Int64s, lengths: StepLengths
) -> tuple[list[Variant], Int64s]:
    """The variants and that of each event, counted with the lengths of the sequences of its ``step`` where it
    has one (-1: none)."""
    variants = list(origins.variants)
    variant_of = origins.variant[events]
    if not lengths.known:
        return variants, variant_of
    replayed = np.flatnonzero((variant_of >= 0) & (step >= 0))
    for code, places in places_of(variant_of[replayed]):
        of_code = replayed[places]
        for chosen, variant in lengths.recounted(origins.variants[code], step[of_code]):
            variant_of[of_code[chosen]] = len(variants)
            variants.append(variant)
    return variants, variant_of


def _missing(events: Int64s, group: Int64s, groups: int, owners: Int64s) -> list[int]:
    """How many of ``owners`` are events of each group."""
    # Of several calls of an event the first counts.
    known, first = np.unique(events, return_index=True)
    at = np.searchsorted(known, owners)
    at = at[np.append(known, -2)[at] == owners]
    numbers: list[int] = np.bincount(group[first[at]], minlength=groups).tolist()
    return numbers


def _callers(calls: Calls, events: Int64s, group: Int64s, groups: int) -> list[str]:
    """The nearest operator around the calls of each group that is none of ATen's, of most of them; empty
    where they have none."""
    host = calls.trace.host
    found = [""] * groups
    named = np.append(host.name, -1)
    foreign = np.array([*(not name.startswith("aten::") for name in calls.trace.names), True])
    chosen = (events >= 0) & (events < len(host))  # not of a captured graph
    at = events[chosen]
    which = group[chosen]
    while len(inner := np.flatnonzero(~foreign[named[at]])):
        parent = calls.parent[at[inner]]
        at[inner] = np.append(calls.operator, -1)[parent]
    keys, each = distinct_rows(which, named[at])
    for place in np.argsort(np.bincount(each), kind="stable").tolist():
        of, name = keys[place].tolist()
        found[of] = (
            calls.trace.names[name].removeprefix("autograd::engine::evaluate_function: ") if name >= 0 else ""
        )
    return found


def busy_ns(trace: Trace, chosen: Mask) -> int:
    """The time in which one of the chosen device events runs."""
    return intervals.length(intervals.union(trace.device.start_ns[chosen], trace.device.end_ns[chosen]))


def _exposed(trace: Trace) -> Int64s:
    """Of each copy and collective the time in which nothing of a higher priority runs; -1 for everything
    else."""
    device = trace.device
    found = unset(len(device))
    hiding = device_intervals(trace, KERNEL, MEMSET)
    for kind in (MEMCPY, COMMUNICATION):
        chosen = device.kind == kind
        if not chosen.any():
            continue
        alone = intervals.subtract(device_intervals(trace, kind), hiding)
        found[chosen] = intervals.covered(
            alone, np.stack((device.start_ns[chosen], device.end_ns[chosen]), axis=1)
        )
        hiding = intervals.merge(hiding, device_intervals(trace, kind))
    return found


def _device_gaps(calls: Calls, origins: Origins, left: _Events) -> _Grouped:
    """The device events that no counted operator owns, by the operator around their launch, by graph where it
    has no capture, or by kernel where there is none; and the gap of each event."""
    events = left.chosen
    if not len(events):
        return (), events
    graph = origins.graph[events]
    operator = np.where(graph >= 0, -1, origins.at(origins.operator)[events])
    inside = operator >= 0
    known = calls.launch[events] >= 0
    # What decides: the operator's variant, module and phase, the graph, or the kernel's name and whether its
    # launch is known.
    variant = np.where(
        inside,
        at_launch(origins.variant, operator),
        np.where(graph >= 0, -3 - graph, np.where(known, -1, -2)),
    )
    name = np.where(
        inside, at_launch(origins.name, operator), np.where(graph >= 0, -1, calls.trace.device.name[events])
    )
    # A kernel launched from Python, below no operator, belongs to the module around the launch.
    module = np.where(inside, at_launch(origins.module, operator), origins.at(origins.module)[events])
    phase = np.where(inside, at_launch(origins.phase, operator), UNKNOWN)
    module, phase = origins.noted(events, module, phase)
    keys, group = distinct_rows(name, variant, module, phase)
    # A call is one of the operator, in each replay of a graph, or a launch of the graph; where there is
    # neither, one of the kernel.
    caller = np.where(inside, operator, np.where(graph >= 0, calls.launch[events], -1 - events))
    callers, _ = distinct_rows(group, caller, origins.replay[events])
    numbers = np.bincount(callers[:, 0], minlength=len(keys))
    figures = left.figures(group, len(keys))
    around = _callers(calls, operator, group, len(keys))
    gaps = []
    for place, (code, which, at, during) in enumerate(keys.tolist()):
        category = "other"
        if which >= 0:
            signature = origins.variants[which].signature
            counted = origins.variants[which].count
            category = counted.category
            reason = counted.reason or NO_FORMULA
        elif which <= -3:
            graph_name, reason = origins.graphs[-3 - which]
            signature = Signature(graph_name)
        else:
            signature = Signature(calls.trace.names[code])
            reason = NO_OPERATOR if which == -1 else NO_LAUNCH
        count = CallCount("unknown", None, category, reason)
        gaps.append(
            TimeRow(signature, count, at, during, int(numbers[place]), caller=around[place], **figures[place])
        )
    return tuple(gaps), group


def _other_gaps(trace: Trace, events: Int64s, starts: Int64s, ends: Int64s) -> _Grouped:
    """Device events outside of steps, by name, and the gap of each; ``starts`` and ``ends`` are those of
    their parts in the span."""
    names, group = distinct(trace.device.name[events])
    busy_ns = intervals.lengths_by_group(group, starts, ends, len(names))
    numbers = np.bincount(group, minlength=len(names))
    count = CallCount("unknown", None, "other", OUTSIDE_STEPS)
    gaps = tuple(
        TimeRow(Signature(trace.names[code]), count, -1, UNKNOWN, number, time_ns)
        for code, number, time_ns in zip(names.tolist(), numbers.tolist(), busy_ns.tolist(), strict=True)
    )
    return gaps, group


# Calls of one signature that take turns in being short and long, as those of layers with and without a
# sliding window do.

# Fewer calls than this show no pattern; the longer kind takes this many times as long; half of each kind lies
# this near together.
_FEWEST = 8
_APART = 1.5
_TOGETHER = 0.2


def alternating(times_ns: Int64s) -> tuple[float, float] | None:
    """The medians in nanoseconds of the shorter and the longer kind if every other one of ``times_ns`` is of
    one kind, else None."""
    if len(times_ns) < _FEWEST:
        return None
    # Not numpy.percentile, which imports numpy's masked arrays.
    ordered = [np.sort(times_ns[first::2]).tolist() for first in (0, 1)]
    (_, short, _), (_, long, _) = kinds = sorted(
        ((each[len(each) // 4], each[len(each) // 2], each[3 * len(each) // 4]) for each in ordered),
        key=lambda kind: kind[1],
    )
    tight = all(high - low <= _TOGETHER * median for low, median, high in kinds)
    return (float(short), float(long)) if tight and long >= _APART * short > 0 else None


def alternating_attention(
    variants: Sequence[Variant], variant_of: Int64s, call: Int64s, start_ns: Int64s, end_ns: Int64s
) -> dict[int, tuple[float, float]]:
    """The two times of every variant of attention whose calls alternate; of each kernel, in order, its
    variant, call, begin and end."""
    found = {}
    for variant, chosen in places_of(variant_of):
        if variants[variant].count.category == "attention":
            # Calls in the order in which their first kernels begin.
            calls, first, number = np.unique(call[chosen], return_index=True, return_inverse=True)
            times_ns = lengths_by_group(number, start_ns[chosen], end_ns[chosen], len(calls))
            kinds = alternating(times_ns[np.argsort(first, kind="stable")])
            if kinds is not None:
                found[variant] = kinds
    return found
