"""Figures of the traced steps: the launch queue, the longest gap, allocated memory, collectives, and work on
one side of the trace."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

import numpy as np

from rooflines.profiler.read import intervals
from rooflines.profiler.read.distinct import distinct
from rooflines.profiler.read.extremes import extremes
from rooflines.profiler.read.intervals import Intervals
from rooflines.profiler.read.records import COMMUNICATION, KERNEL, MEMCPY, MEMSET, OPERATOR, Int64s
from rooflines.profiler.records import MemoryCurve
from rooflines.profiler.tree.breakdown import device_intervals
from rooflines.profiler.tree.collectives import read_collectives
from rooflines.profiler.tree.idle import handed_over
from rooflines.profiler.tree.tree import PHASES
from rooflines.profiler.tree.windows import inside, step_number
from rooflines.roofline.analysis import Allocated, CollectiveRow, Gap, Launches, LostWork, OperatorRow, Phase
from rooflines.roofline.count.counts import places_of
from rooflines.roofline.judge.step.times import per_step
from rooflines.roofline.own.own import Attribution
from rooflines.units import counted, percent, seconds

# The share of all idle time, and of the whole time, that one gap takes.
_MOST, _WORTH = 0.5, 0.1
# Operators that allocate for the one around them.
_ALLOCATING = ("aten::empty", "aten::new_empty", "aten::resize_")
# Kernels without a note are looked up among the operators around their launch: at most this many.
_MOST_LOOKED_UP = 20_000
_MOST_NAMED = 3
_SYNCHRONIZE = "The recording may have ended before they ran: synchronize the device before it ends."
_NEW_PROCESS = (
    "With CUDA 12.6 to 13.0, PyTorch can lose the first kernels of every session but the first "
    "of a process (pytorch#192021): record "
    "each session in a new process, or use CUDA 13.1."
)


def launch_queue(attribution: Attribution) -> Launches | None:
    """The queue between host and device, over the span of the busy time; None where no launch is known or
    nothing ran.

    A long queue is a host that is ahead of the device, as it should be; an empty one is a device about to be
    idle.
    """
    trace, launch, busy = attribution.trace, attribution.calls.launch, attribution.busy
    of = np.flatnonzero(launch >= 0)
    known = of[np.unique(launch[of], return_index=True)[1]]  # of a graph the first work
    if not len(known) or not len(busy):
        return None
    launched = handed_over(trace, launch[known])
    began = np.maximum(
        trace.device.start_ns[known], launched
    )  # clocks of host and device may differ by microseconds
    low = int(busy[0, 0])
    high = int(busy[-1, 1])
    # Of a launch and a begin at the same time the begin counts first: what begins at once never waits.
    times = np.concatenate((launched, began))
    change = np.repeat((1, -1), len(known))
    order = np.lexsort((change, times))
    length = np.cumsum(change[order])
    edges = np.clip(np.append(times[order], high), low, high)
    lasting = np.diff(edges)
    span = max(1, high - low)
    delays = began - launched
    return Launches(
        count=len(known),
        delay_median_s=float(np.median(delays)) / 1e9,
        delay_p90_s=_quantile(delays, 0.9) / 1e9,
        queue_mean=float((length * lasting.astype(np.float64)).sum() / span),
        queue_max=int(length[lasting > 0].max(initial=0)),
        queue_empty_fraction=float((lasting[length <= 0].sum() + max(0, int(edges[0]) - low)) / span),
    )


def _quantile(values: Int64s, share: float) -> float:
    """The value that ``share`` of ``values`` are below, to the bit that of ``numpy.quantile``, which imports
    the masked arrays."""
    below, part = divmod((len(values) - 1) * share, 1)
    low, high = (
        float(value) for value in np.sort(values)[[int(below), min(int(below) + 1, len(values) - 1)]]
    )
    return high - (high - low) * (1 - part) if part >= 0.5 else low + (high - low) * part


def one_gap(attribution: Attribution, host_bound: Intervals) -> Gap | None:
    """The gap that is most of the idle time of the steps, or of the trace, where the host takes most of it
    (``host_bound``): what occurs once is no property of a step.

    None where there is no such gap, where it is the only one, or where it may recur: another one is more than
    half as long, or there is a single step.
    """
    trace = attribution.trace
    gaps = intervals.subtract(attribution.window, attribution.busy)
    lasting = gaps[:, 1] - gaps[:, 0]
    if attribution.steps == 1 or len(lasting) < 2:
        return None
    *_, second, longest = np.sort(lasting).tolist()
    idle_ns = int(lasting.sum())
    gap = gaps[[np.argmax(lasting)]]
    host_ns = int(intervals.covered(host_bound, gap)[0])
    if (
        longest < max(_MOST * idle_ns, _WORTH * attribution.span_ns)
        or 2 * second > longest
        or 2 * host_ns < longest
    ):
        return None
    begin, end = gap[0].tolist()
    names, starts = trace.device.name, trace.device.start_ns
    if not len(trace.device):
        operators = trace.host.kind == OPERATOR
        names = trace.host.name[operators]
        starts = trace.host.start_ns[operators]
    next_ = np.flatnonzero(starts >= end)
    return Gap(
        at_s=(begin - trace.began_ns) / 1e9,
        lasts_s=longest / 1e9,
        before=trace.names[names[next_[np.argmin(starts[next_])]]] if len(next_) else "",
        share=longest / idle_ns,
        host_s=host_ns / 1e9,
    )


def allocated(attribution: Attribution) -> Allocated | None:
    """The allocated memory over the step with the highest peak; None where the trace does not record it.

    Of several devices it is that with the highest peak, and any device comes before the host.
    """
    calls, trace, memory = attribution.calls, attribution.trace, attribution.trace.memory
    windows = calls.steps if attribution.steps else attribution.windows
    step = step_number(memory.time_ns, windows)
    known = (memory.allocated_bytes >= 0) & inside(memory.time_ns, windows)
    on_device = known & (memory.device_type != 0)
    chosen = np.flatnonzero(on_device if on_device.any() else known)
    if not len(chosen):
        return None
    peak = chosen[np.argmax(memory.allocated_bytes[chosen])]
    own = known & (step == step[peak])
    own &= (memory.device_type == memory.device_type[peak]) & (memory.device == memory.device[peak])
    held = memory.allocated_bytes[own]
    time_ns = memory.time_ns[own]
    kept = extremes(held)
    host = trace.host
    when = memory.time_ns[peak]
    around = np.flatnonzero(
        (host.thread == memory.thread[peak]) & (host.start_ns <= when) & (calls.end_ns >= when)
    )
    operators = calls.operators_around(int(around[-1])) if len(around) else ()
    operator = next(
        (event for event in operators if not trace.names[host.name[event]].startswith(_ALLOCATING)), -1
    )
    times = tuple(round(time / 1e9, 9) for time in (time_ns[kept] - int(windows[step[peak], 0])).tolist())
    return Allocated(
        peak_bytes=int(memory.allocated_bytes[peak]),
        of="device" if memory.device_type[peak] else "host",
        curve=MemoryCurve(unit="s", at=times, parts={"allocated": tuple(held[kept].tolist())}),
        step=calls.step_names[step[peak]] if attribution.steps else "",
        operator=trace.names[host.name[operator]] if operator >= 0 else "",
        module=attribution.path(int(calls.module[operator])) if operator >= 0 else "",
        phase=cast("Phase", PHASES[calls.phase[operator]]) if operator >= 0 else "",
    )


def collective_rows(attribution: Attribution) -> tuple[CollectiveRow, ...]:
    """The collectives of the steps by kind and size, per step, those with the most time that nothing hides
    first."""
    trace = attribution.trace
    kernels = np.flatnonzero(trace.device.kind == COMMUNICATION)
    if not len(kernels) or (trace.device.collective[kernels] < 0).sum() > _MOST_LOOKED_UP:
        return ()
    collectives = read_collectives(trace, attribution.calls)
    hiding = device_intervals(trace, KERNEL, MEMSET, MEMCPY)
    alone = intervals.subtract(device_intervals(trace, COMMUNICATION), hiding)
    exposed = intervals.covered(alone, np.stack((collectives.start_ns, collectives.end_ns), axis=1))
    ours = np.flatnonzero(np.isin(kernels, attribution.pieces.event))
    steps = attribution.per
    rows = []
    for which, places in places_of(collectives.what[ours]):
        exchange = collectives.exchanges[which]
        lasting_ns = collectives.duration_ns[ours[places]]
        rows.append(
            CollectiveRow(
                kind=exchange.kind,
                bytes=exchange.bytes,
                calls=per_step(len(places), steps),
                time_s=int(lasting_ns.sum()) * attribution.factor / 1e9 / steps,
                exposed_s=int(exposed[ours[places]].sum()) * attribution.factor / 1e9 / steps,
                group_size=exchange.group_size,
                shortest_s=int(lasting_ns.min()) * attribution.factor / 1e9,
                longest_s=int(lasting_ns.max()) * attribution.factor / 1e9,
            )
        )
    return tuple(sorted(rows, key=lambda row: (-row.exposed_s, -row.time_s, row.kind)))


def lost_work(attribution: Attribution, operators: Sequence[OperatorRow]) -> LostWork | None:
    """Launches without a kernel and kernels without a launch, None where there are none; ``operators`` go
    with the rows of ``attribution``."""
    lost, device = attribution.lost, attribution.trace.device
    if not len(lost.launches) and not len(lost.events):
        return None
    starts = device.start_ns[lost.events]
    ends = device.end_ns[lost.events]
    times = np.concatenate((attribution.trace.host.start_ns[lost.launches], starts))
    numbers = distinct(step_number(times, attribution.calls.steps))[0].tolist() if attribution.steps else []
    flops = sum(row.flops for row in operators)
    unjudged = sum(row.flops for timed, row in zip(attribution.rows, operators, strict=True) if timed.doubt)
    return LostWork(
        launches=lost.launched,
        without_kernel=len(lost.launches),
        at_start=lost.at_start,
        at_end=lost.at_end,
        operators=sum(row.lost > 0 for row in attribution.rows),
        flops_fraction=unjudged / flops if flops else None,
        events=lost.ran,
        without_launch=len(lost.events),
        without_launch_s=intervals.length(intervals.union(starts, ends)) / 1e9 / attribution.per,
        streams=tuple(distinct(device.stream[lost.events])[0].tolist()),
        steps=tuple(attribution.calls.step_names[number] for number in numbers if number >= 0),
    )


def about_lost(lost: LostWork, attribution: Attribution) -> Iterator[str]:
    """A note for each side: how many are lost, where, what follows for the figures, and what to do."""
    among = f" in {_some(lost.steps)}" if lost.steps else ""
    if lost.without_kernel:
        share = (
            f"{lost.without_kernel:,} of {lost.launches:,} kernel launches "
            f"({percent(lost.without_kernel / lost.launches)})"
        )
        between = lost.without_kernel - lost.at_start - lost.at_end
        places = {
            "at the start of the recording": lost.at_start,
            "in between": between,
            "at the end": lost.at_end,
        }
        places = {place: number for place, number in places.items() if number}
        where = ", ".join(
            f"{number:,} {place}" if len(places) > 1 else place for place, number in places.items()
        )
        rows = f"{counted(lost.operators, 'operator row')} and " if lost.operators else ""
        effect = f"Their time is missing from {rows}the busy time of the device, and may count as idle time."
        if lost.flops_fraction:
            effect += (
                f" Rows with {percent(lost.flops_fraction)} of the FLOPs have no efficiency because of it."
            )
        codes = attribution.trace.host.name[attribution.lost.launches]
        of_cuda = any(attribution.trace.names[code].startswith("cu") for code in codes.tolist())
        why = f" {_NEW_PROCESS}" if lost.at_start and not between and of_cuda else ""
        why += f" {_SYNCHRONIZE}" if lost.at_end else ""
        yield f"The trace has no kernel for {share}: {where}{among}. {effect}{why}"
    if lost.without_launch:
        share = (
            f"{lost.without_launch:,} of {lost.events:,} device events "
            f"({percent(lost.without_launch / lost.events)})"
        )
        streams = _some([str(stream) for stream in lost.streams])
        time = f"{seconds(lost.without_launch_s)}{' a step' if attribution.steps else ''}"
        yield (
            f"The trace has no launch for {share}{among} on stream {streams}: {time} of device time "
            "without an operator."
        )


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more
