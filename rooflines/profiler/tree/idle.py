"""Causes of idle time: what the host did in each gap between two pieces of device work.

A gap ends when the next piece of work begins. Until the host began to launch that work the device had nothing
to do: the host was loading data, waiting for the device itself, or too slow. From then on the device had work
and did not begin it: it waited for the launch to arrive. A launch arrives within microseconds; a longer wait
is for something that this trace does not hold, such as work launched before the recording began, work of
another process, or a driver that hands launches over late. Where the work is that of a graph, the trace may
lack kernels of it.
"""

from __future__ import annotations

import numpy as np

from rooflines.profiler.read import intervals
from rooflines.profiler.read.intervals import Intervals
from rooflines.profiler.read.records import MEMCPY, RUNTIME, Int64s, Mask, Trace
from rooflines.profiler.tree.breakdown import data_loading, host_intervals
from rooflines.profiler.tree.graphs import is_graph_launch
from rooflines.profiler.tree.tree import Calls
from rooflines.profiler.tree.windows import at_launch

# Calls in which the host waits for the device, of CUDA, HIP, SYCL and Level Zero; a copy without Async waits
# until it is done.
_WAITS = ("Synchronize", "cudaMemcpy", "hipMemcpy", "urEventWait", "urQueueFinish")
_DOES_NOT_WAIT = ("Async", "MemcpyBatch")
# No launch takes longer to arrive, and a call that lasts longer was at other work, such as loading the
# kernel;
LONGEST_ARRIVAL_NS = 100_000
# but a graph may, with its parameters, and what is longer is no matter of single launches.
_LONGEST_OF_GRAPHS_NS = 1_000_000
# The share of a step's work that may run before the step begins in earnest: preparations on another stream.
_LITTLE = 0.05


def idle_causes(calls: Calls, gaps: Intervals) -> dict[str, Intervals]:
    """``gaps``, in which no device event lies, by cause: together they are all of it. After a gap that no
    device event ends, such as the last one of a step, nothing had been launched."""
    trace, device = calls.trace, calls.trace.device
    first = np.searchsorted(device.start_ns, gaps[:, 1], side="left")
    ended = np.append(device.start_ns, np.iinfo(np.int64).min)[first] == gaps[:, 1]
    launched_by = np.where(ended, np.append(calls.launch, -1)[first], -1)
    launched = launched_by >= 0
    known = launched | ~ended
    began, ends = gaps[:, 1].copy(), gaps[known, 1]
    began[launched] = handed_over(trace, launched_by[launched])
    waiting_from = np.clip(began[known], gaps[known, 0], ends)
    by_graph = at_launch(is_graph_launch(trace), launched_by)[known]
    long = ends - waiting_from > np.where(by_graph, _LONGEST_OF_GRAPHS_NS, LONGEST_ARRIVAL_NS)
    without_work = intervals.union(gaps[known, 0], waiting_from)
    loading = intervals.intersect(without_work, data_loading(calls))
    rest = intervals.subtract(without_work, loading)
    synchronizing = intervals.intersect(rest, host_intervals(calls, waiting(calls)))
    return {
        "host_bound": intervals.subtract(rest, synchronizing),
        "kernel_wait": intervals.union(waiting_from[~long], ends[~long]),
        "outside": intervals.union(waiting_from[long & ~by_graph], ends[long & ~by_graph]),
        "graph": intervals.union(waiting_from[long & by_graph], ends[long & by_graph]),
        "synchronization": synchronizing,
        "data_loading": loading,
        "unknown": intervals.union(gaps[~known, 0], gaps[~known, 1]),
    }


def unrecorded_until(calls: Calls, window: Intervals, belongs: Mask) -> int:
    """When the device has done what it was launched before the recording began, as far as the waiting of the
    first of ``window`` shows.

    That is the end of the step's last wait for work that is not in the trace, if little of its own work runs
    before, else its begin.
    """
    first = window[:1]
    device = calls.trace.device
    gaps = intervals.subtract(first, intervals.union(device.start_ns, device.end_ns))
    causes = idle_causes(calls, gaps)
    waits = intervals.merge(causes["outside"], causes["graph"])
    waits = waits[waits[:, 1] - waits[:, 0] > _LONGEST_OF_GRAPHS_NS]
    begin = int(first[0, 0])
    if not len(waits):
        return begin
    until = int(waits[-1, 1])
    own = intervals.intersect(intervals.union(device.start_ns[belongs], device.end_ns[belongs]), first)
    done_ns = intervals.length(intervals.clip(own, begin, until))
    return until if done_ns <= _LITTLE * intervals.length(own) else begin


def handed_over(trace: Trace, calls: Int64s) -> Int64s:
    """When each launching call handed its work over: at its begin, a long one that does not wait for the
    device at its end."""
    began, ends = trace.host.start_ns[calls], trace.host.end_ns[calls]
    waits = trace.named(is_wait)[calls]
    return np.where(~waits & (ends - began > LONGEST_ARRIVAL_NS), ends, began)


def is_wait(name: str) -> bool:
    """Whether the host waits for the device in a runtime call of this name."""
    return any(word in name for word in _WAITS) and not any(word in name for word in _DOES_NOT_WAIT)


def waiting(calls: Calls) -> Mask:
    """The runtime calls in which the host waits for the device, such as those that copy from or to pageable
    memory and end later."""
    trace, waits = calls.trace, calls.trace.named(is_wait, RUNTIME)
    copies = np.flatnonzero((trace.device.kind == MEMCPY) & (calls.launch >= 0))
    pageable = np.array([*("Pageable" in name for name in trace.names), False])[trace.device.name[copies]]
    lasting = trace.host.end_ns[calls.launch[copies]] >= trace.device.end_ns[copies]
    waits[calls.launch[copies[pageable & lasting]]] = True
    return waits
