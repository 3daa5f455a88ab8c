"""The kernels or operators of a trace that took longest."""

from __future__ import annotations

from heapq import nlargest

import numpy as np

from rooflines.profiler.read.records import COMMUNICATION, KERNEL, OPERATOR, Trace, of_kinds
from rooflines.profiler.tree.tree import tree


def slowest(trace: Trace, most: int) -> tuple[str, list[tuple[str, float, float]]]:
    """What took longest, kernels or without any operators, and for each its name, seconds, and share of the
    time of all.

    The time of an operator is without that of operators inside it.
    """
    device, host = trace.device, trace.host
    chosen = of_kinds(device.kind, (KERNEL, COMMUNICATION))
    if chosen.any():
        what, names, times_ns = "kernels", device.name[chosen], (device.end_ns - device.start_ns)[chosen]
    else:
        calls, chosen = tree(trace), host.kind == OPERATOR
        duration_ns, inside = calls.end_ns - host.start_ns, chosen & (calls.above >= 0)
        own_ns = duration_ns - np.bincount(calls.above[inside], duration_ns[inside], len(host))
        what, names, times_ns = "operators (self time)", host.name[chosen], own_ns[chosen]
    totals_ns: list[float] = np.bincount(names, times_ns, len(trace.names)).tolist()
    longest = nlargest(most, zip(totals_ns, trace.names, strict=True))
    return what, [(name, time_ns / 1e9, time_ns / sum(totals_ns)) for time_ns, name in longest if time_ns > 0]
