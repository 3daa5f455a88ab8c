"""The queue between host and device: how long launched work waits, and how much of it there is at a time.

A long queue is a host that is ahead of the device, as it should be; an empty one is a device about to be idle.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rooflines.profiler.trace.intervals import Intervals
from rooflines.profiler.trace.records import Int64s, Trace


@dataclass(frozen=True, slots=True)
class Launches:
    """Device work with its launch in the trace. A delay is the time from the begin of the launch to that of the work; the queue is
    what has been launched and has not begun, its mean weighted with time over the device's span."""

    count: int
    delay_median_ns: float
    delay_p90_ns: float
    queue_mean: float
    queue_max: int
    queue_empty_fraction: float


def launches(trace: Trace, launch: Int64s, busy: Intervals) -> Launches | None:
    """The queue of the device work that was launched, over the span of ``busy``; None where no launch is known or nothing ran."""
    known = np.flatnonzero(launch >= 0)
    if not len(known) or not len(busy):
        return None
    launched = trace.host.start_ns[launch[known]]
    began = np.maximum(trace.device.start_ns[known], launched)  # clocks of host and device may differ by microseconds
    low, high = int(busy[0, 0]), int(busy[-1, 1])
    # Of a launch and a begin at the same time the begin counts first: what begins at once never waits.
    times = np.concatenate((launched, began))
    change = np.repeat((1, -1), len(known))
    order = np.lexsort((change, times))
    length = np.cumsum(change[order])
    edges = np.clip(np.append(times[order], high), low, high)
    lasting = np.diff(edges)
    span = max(1, high - low)
    within = lasting > 0
    delays = began - launched
    return Launches(
        count=len(known),
        delay_median_ns=float(np.median(delays)),
        delay_p90_ns=float(np.percentile(delays, 90)),
        queue_mean=float((length * lasting.astype(np.float64)).sum() / span),
        queue_max=int(length[within].max(initial=0)),
        queue_empty_fraction=float((lasting[length <= 0].sum() + max(0, int(edges[0]) - low)) / span),
    )
