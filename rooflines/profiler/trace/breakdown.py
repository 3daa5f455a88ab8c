"""Where the time of a step went, by the kind of event that was running: the step breakdown and the device timeline.

Each nanosecond of a step belongs to one kind, the first of: kernel, memcpy, memset, communication, runtime call, data loader,
operator on the CPU, other (the order of PyTorch's TensorBoard profiler).
"""

from __future__ import annotations

import numpy as np

from rooflines.profiler.trace import intervals
from rooflines.profiler.trace.calls import OUTSIDE, Calls
from rooflines.profiler.trace.intervals import Intervals
from rooflines.profiler.trace.records import ANNOTATION, COMMUNICATION, KERNEL, MEMCPY, MEMSET, OPERATOR, RUNTIME, Trace

BREAKDOWN_ORDER = ("kernel_s", "memcpy_s", "memset_s", "communication_s", "runtime_s", "dataloader_s", "cpu_s", "other_s")


def device_intervals(trace: Trace, *kinds: int) -> Intervals:
    """The union of the device events of the given kinds (all kinds when none is given)."""
    chosen = np.isin(trace.device.kind, kinds) if kinds else np.ones(len(trace.device), bool)
    return intervals.union(trace.device.start_ns[chosen], trace.device.end_ns[chosen])


def host_intervals(trace: Trace, calls: Calls, chosen: np.ndarray) -> Intervals:
    """The union of the chosen host events over all threads."""
    return intervals.union(trace.host.start_ns[chosen], calls.end_ns[chosen])


def step_breakdown(trace: Trace, calls: Calls, window: Intervals) -> dict[str, float]:
    """Seconds of ``window`` by kind; the values sum to the length of the window."""
    host = trace.host
    sets = {
        "kernel_s": device_intervals(trace, KERNEL),
        "memcpy_s": device_intervals(trace, MEMCPY),
        "memset_s": device_intervals(trace, MEMSET),
        "communication_s": device_intervals(trace, COMMUNICATION),
        "runtime_s": host_intervals(trace, calls, host.kind == RUNTIME),
        "dataloader_s": host_intervals(trace, calls, (host.kind == ANNOTATION) & (calls.phase == OUTSIDE)),
        "cpu_s": host_intervals(trace, calls, host.kind == OPERATOR),
    }
    left = window
    seconds: dict[str, float] = {}
    for kind, found in sets.items():
        remaining = intervals.subtract(left, found)
        seconds[kind] = (intervals.length(left) - intervals.length(remaining)) / 1e9
        left = remaining
    seconds["other_s"] = intervals.length(left) / 1e9
    return seconds
