"""The queue between host and device: its delay and its length.

A long queue is a host that is ahead of the device, as it should be; an empty one is a device about to be idle.
"""

from __future__ import annotations

import numpy as np

from rooflines.profiler.trace.idle import handed_over
from rooflines.profiler.trace.records import Int64s
from rooflines.roofline.analysis import Launches
from rooflines.roofline.attribution.own import Attribution


def launch_queue(attribution: Attribution) -> Launches | None:
    """The queue of the device work that was launched, over the span of the busy time; None where no launch is known or nothing ran."""
    trace, launch, busy = attribution.trace, attribution.calls.launch, attribution.busy
    of = np.flatnonzero(launch >= 0)
    known = of[np.unique(launch[of], return_index=True)[1]]  # of a graph the first work
    if not len(known) or not len(busy):
        return None
    launched = handed_over(trace, launch[known], trace.host.start_ns[launch[known]])
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
        delay_median_s=float(np.median(delays)) / 1e9,
        delay_p90_s=_quantile(delays, 0.9) / 1e9,
        queue_mean=float((length * lasting.astype(np.float64)).sum() / span),
        queue_max=int(length[within].max(initial=0)),
        queue_empty_fraction=float((lasting[length <= 0].sum() + max(0, int(edges[0]) - low)) / span),
    )


def _quantile(values: Int64s, share: float) -> float:
    """The value that ``share`` of ``values`` are below, to the bit that of ``numpy.quantile``, which imports the masked arrays."""
    at = (len(values) - 1) * share
    part = at - int(at)
    low, high = (float(value) for value in np.sort(values)[[int(at), min(int(at) + 1, len(values) - 1)]])
    return high - (high - low) * (1 - part) if part >= 0.5 else low + (high - low) * part
