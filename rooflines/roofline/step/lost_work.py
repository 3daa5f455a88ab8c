"""Launches without a kernel and kernels without a launch: how many, where, and what they do to the figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from rooflines.profiler.trace import intervals
from rooflines.profiler.trace.distinct import distinct
from rooflines.profiler.trace.windows import step_number
from rooflines.roofline.analysis import LostWork, OperatorRow
from rooflines.roofline.attribution.own import Attribution
from rooflines.units import counted, percent, seconds

_MOST_NAMED = 3
_SYNCHRONIZE = "The recording may have ended before they ran: synchronize the device before it ends."
_NEW_PROCESS = (
    "With CUDA 12.6 to 13.0, PyTorch can lose the first kernels of every session but the first of a process (pytorch#192021): record "
    "each session in a new process, or use CUDA 13.1."
)


def lost_work(attribution: Attribution, operators: Sequence[OperatorRow]) -> LostWork | None:
    """What is on one side of the trace only, None where nothing is; ``operators`` go with the rows of ``attribution``."""
    lost, device = attribution.lost, attribution.trace.device
    if not len(lost.launches) and not len(lost.events):
        return None
    starts, ends = device.start_ns[lost.events], device.end_ns[lost.events]
    times = np.concatenate((attribution.trace.host.start_ns[lost.launches], starts))
    numbers = distinct(step_number(times, attribution.calls.steps))[0].tolist() if attribution.steps else []
    flops = sum(row.flops for row in operators)
    unjudged = sum(one.flops for row, one in zip(attribution.rows, operators, strict=True) if row.doubt)
    return LostWork(
        launches=lost.launched,
        without_kernel=len(lost.launches),
        at_start=lost.at_start,
        at_end=lost.at_end,
        operators=sum(row.lost > 0 for row in attribution.rows),
        flops_fraction=unjudged / flops if flops else None,
        events=lost.ran,
        without_launch=len(lost.events),
        without_launch_s=intervals.length(intervals.union(starts, ends)) / 1e9 / (attribution.steps or 1),
        streams=tuple(distinct(device.stream[lost.events])[0].tolist()),
        steps=tuple(attribution.calls.step_names[number] for number in numbers if number >= 0),
    )


def about_lost(lost: LostWork, attribution: Attribution) -> Iterator[str]:
    """A note for each side: how many are lost, where, what follows for the figures, and what to do."""
    among = f" in {_some(lost.steps)}" if lost.steps else ""
    if lost.without_kernel:
        share = f"{lost.without_kernel:,} of {lost.launches:,} kernel launches ({percent(lost.without_kernel / lost.launches)})"
        between = lost.without_kernel - lost.at_start - lost.at_end
        places = {"at the start of the recording": lost.at_start, "in between": between, "at the end": lost.at_end}
        found = {place: number for place, number in places.items() if number}
        where = ", ".join(f"{number:,} {place}" if len(found) > 1 else place for place, number in found.items())
        rows = f"{counted(lost.operators, 'operator row')} and " if lost.operators else ""
        effect = f"Their time is missing from {rows}the busy time of the device, and may count as idle time."
        if lost.flops_fraction:
            effect += f" Rows with {percent(lost.flops_fraction)} of the FLOPs have no efficiency because of it."
        names, codes = attribution.trace.names, attribution.trace.host.name[attribution.lost.launches]
        of_cuda = any(names[code].startswith("cu") for code in codes.tolist())
        why = f" {_NEW_PROCESS}" if lost.at_start and not between and of_cuda else ""
        why += f" {_SYNCHRONIZE}" if lost.at_end else ""
        yield f"The trace has no kernel for {share}: {where}{among}. {effect}{why}"
    if lost.without_launch:
        share = f"{lost.without_launch:,} of {lost.events:,} device events ({percent(lost.without_launch / lost.events)})"
        streams = _some([str(stream) for stream in lost.streams])
        time = f"{seconds(lost.without_launch_s)}{' a step' if attribution.steps else ''}"
        yield f"The trace has no launch for {share}{among} on stream {streams}: {time} of device time without an operator."


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more
