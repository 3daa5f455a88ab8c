"""The windows of time that a trace is divided over: its profiler steps, or the whole of it.

On a device a step is a stretch of the device's time: from the end of the work of the step before, or its own
mark where that is later, to the end of the last work that it launched. So steps neither overlap nor leave a
gap, and what the host does before a step's first kernel is in the step.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rooflines.profiler.read import intervals
from rooflines.profiler.read.distinct import distinct_rows
from rooflines.profiler.read.intervals import Intervals
from rooflines.profiler.read.records import OPERATOR, Int64s, Mask
from rooflines.profiler.tree.tree import Calls


def step_window(calls: Calls) -> Intervals | None:
    """The profiler steps of the trace as intervals; None when it has none, or when most of its operators lie
    outside them, by their time and by their number.

    The latter happens when the profiler was stepped without a schedule: the only mark is the sliver between
    the last step and the end. A single operator outside may be delayed by more than short steps take.
    """
    steps = intervals.union(calls.steps[:, 0], calls.steps[:, 1])
    if not len(steps):
        return None
    operators = calls.trace.host.kind == OPERATOR
    every = intervals.union(calls.trace.host.start_ns[operators], calls.end_ns[operators])
    mostly = 2 * intervals.length(intervals.intersect(every, steps)) >= intervals.length(every)
    return steps if mostly or inside(calls.trace.host.start_ns[operators], steps).mean() > 0.5 else None


def whole_window(calls: Calls) -> Intervals:
    """From the first to the last event: of the device where the trace has device events, else of the
    operators."""
    if len(calls.trace.device):
        starts, ends = calls.trace.device.start_ns, calls.trace.device.end_ns
    else:
        operators = calls.trace.host.kind == OPERATOR
        starts, ends = calls.trace.host.start_ns[operators], calls.end_ns[operators]
    if not len(starts):
        return intervals.NONE
    return np.array([[starts.min(), ends.max()]], np.int64)


def inside(times_ns: Int64s, window: Intervals) -> Mask:
    """Mask of the ``times_ns`` in the window."""
    # The last end is that of none.
    ends = np.append(window[:, 1], np.iinfo(np.int64).min)
    within: Mask = times_ns < ends[step_number(times_ns, window)]
    return within


def earlier(calls: Calls) -> Mask:
    """Mask of the device events that were launched before the recording began.

    Their launch is not in the trace, and they run before the first work whose launch is: before all such
    work, or before that on their own stream, which runs in order, with a lower correlation id.
    """
    device, known = calls.trace.device, calls.launch >= 0
    if not known.any():
        return np.zeros(len(device), bool)
    before = device.start_ns < device.start_ns[known].min()
    streams, stream_of = distinct_rows(device.device, device.stream)
    first = np.full(len(streams), np.iinfo(np.int64).max)
    np.minimum.at(first, stream_of[known], device.start_ns[known])
    first_id = device.correlation[known].min()
    in_order = (
        (device.start_ns < first[stream_of]) & (device.correlation > 0) & (device.correlation < first_id)
    )
    found: Mask = ~known & (before | in_order)
    return found


def belonging(calls: Calls, window: Intervals, launched_inside: Mask, before: Mask) -> Mask:
    """Mask of the device events of the window: work launched in a step belongs to it, whenever it runs.

    ``launched_inside`` says of each host event whether it lies in the window, ``before`` which device events
    are ``earlier`` work. Of other work without a launch in the trace only the begin is known, and the device
    runs behind the host: it is taken for the steps' from the begin of the first one until the device comes to
    what was launched behind the last one.
    """
    trace, launch = calls.trace, calls.launch
    device, known = trace.device, launch >= 0
    if not len(window):
        return np.zeros(len(device), bool)
    behind = device.start_ns[known & (at_launch(trace.host.start_ns, launch) >= window[-1, 1])]
    orphans = (
        ~before
        & (device.start_ns >= window[0, 0])
        & (device.start_ns < behind.min() if len(behind) else True)
    )
    belongs: Mask = np.where(known, at_launch(launched_inside, launch), orphans)
    return belongs


def lasting(calls: Calls, steps: Intervals, belongs: Mask, before: Mask) -> Intervals:
    """The steps, each from the end of the one before to the end of what it launched (as PyTorch's TensorBoard
    profiler draws them).

    The first begins when earlier work has ended, unless that outlasts all that the step launched.
    """
    device = calls.trace.device
    number = step_number(launched_ns(calls), steps)
    of_step = belongs & (number >= 0)
    ends = steps[:, 1].copy()
    np.maximum.at(ends, number[of_step], device.end_ns[of_step])
    ends = np.maximum.accumulate(ends)
    work_before = device.end_ns[before | (number < 0)]
    free = int(work_before.max()) if len(work_before) else int(steps[0, 0])
    first = int(device.end_ns[of_step & (number == 0)].max(initial=ends[0]))
    starts = np.maximum(steps[:, 0], np.concatenate(([free if free < first else steps[0, 0]], ends[:-1])))
    return np.stack((np.minimum(starts, ends), ends), axis=1)


def launched_ns(calls: Calls) -> Int64s:
    """When each device event was launched; its own begin where the launch is not in the trace."""
    trace, launch = calls.trace, calls.launch
    return np.where(launch >= 0, at_launch(trace.host.start_ns, launch), trace.device.start_ns)


def step_number(times_ns: Int64s, steps: Intervals) -> Int64s:
    """The number of the last step that has begun at each time; -1 before the first one, and everywhere
    without steps."""
    return np.searchsorted(steps[:, 0], times_ns, side="right") - 1


def at_launch(host_column: npt.NDArray[Any], launch: Int64s) -> npt.NDArray[Any]:
    """``host_column`` at every device event's launch; anything at all where there is none (-1), also in a
    trace without host events."""
    return host_column[launch] if len(host_column) else np.zeros(len(launch), host_column.dtype)
