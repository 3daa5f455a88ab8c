"""Break down the time of a step by the kind of running event: step breakdown and device timeline.

Each nanosecond of a step belongs to one kind, the first of: kernel, memcpy, memset, communication, runtime
call, data loader, operator on the CPU (an optimizer's own Python with it), other. These are the kinds and the
order of PyTorch's TensorBoard profiler.
"""

from __future__ import annotations

import numpy as np

from rooflines.profiler.read import intervals
from rooflines.profiler.read.intervals import Intervals
from rooflines.profiler.read.records import (
    ANNOTATION,
    COMMUNICATION,
    KERNEL,
    MEMCPY,
    MEMSET,
    OPERATOR,
    RUNTIME,
    Int64s,
    Trace,
    of_kinds,
)
from rooflines.profiler.tree.tree import OPTIMIZER, OUTSIDE, Calls


def device_intervals(trace: Trace, *kinds: int) -> Intervals:
    """The union of the device events of the given kinds (all kinds when none is given)."""
    chosen = of_kinds(trace.device.kind, kinds) if kinds else np.ones(len(trace.device), bool)
    return intervals.union(trace.device.start_ns[chosen], trace.device.end_ns[chosen])


def host_intervals(calls: Calls, chosen: np.ndarray) -> Intervals:
    """The union of the chosen host events over all threads."""
    return intervals.union(calls.begin_ns[chosen], calls.end_ns[chosen])


def data_loading(calls: Calls) -> Intervals:
    """The intervals in which any thread was in a data loader."""
    return host_intervals(calls, (calls.trace.host.kind == ANNOTATION) & (calls.phase == OUTSIDE))


def step_breakdown(
    calls: Calls, windows: Intervals, without: Intervals = intervals.NONE
) -> dict[str, Int64s]:
    """Nanoseconds of each of ``windows`` by kind, leaving out ``without``; over the kinds they sum to the
    length that is left."""
    host = calls.trace.host
    sets = {
        "kernel_s": device_intervals(calls.trace, KERNEL),
        "memcpy_s": device_intervals(calls.trace, MEMCPY),
        "memset_s": device_intervals(calls.trace, MEMSET),
        "communication_s": device_intervals(calls.trace, COMMUNICATION),
        "runtime_s": host_intervals(calls, host.kind == RUNTIME),
        "dataloader_s": data_loading(calls),
        "cpu_s": host_intervals(
            calls, (host.kind == OPERATOR) | ((host.kind == ANNOTATION) & (calls.phase == OPTIMIZER))
        ),
    }
    taken = without
    left = windows[:, 1] - windows[:, 0] - intervals.covered(without, windows)
    found: dict[str, Int64s] = {}
    for kind, busy in sets.items():
        found[kind] = intervals.covered(intervals.subtract(busy, taken), windows)
        taken = intervals.merge(taken, busy)
        left = left - found[kind]
    return {**found, "other_s": left}
