"""Why a device was idle: what the host did in each gap between two pieces of device work.

A gap ends when the next piece of work begins. Until the host began to launch that work the device had nothing to do: the host was
loading data, waiting for the device itself, or too slow. From then on the device had work and did not begin it: it waited for the
launch to arrive, or for other streams.
"""

from __future__ import annotations

import numpy as np

from rooflines.profiler.trace import intervals
from rooflines.profiler.trace.breakdown import host_intervals
from rooflines.profiler.trace.calls import OUTSIDE, Calls
from rooflines.profiler.trace.intervals import Intervals
from rooflines.profiler.trace.records import ANNOTATION, RUNTIME, Int64s, Trace

# Runtime calls in which the host waits for the device, of CUDA and of HIP; a plain copy waits until it is done.
_WAITS = ("Synchronize", "cudaMemcpy", "hipMemcpy")
_DOES_NOT_WAIT = ("Async", "WithStream", "MemcpyBatch")


def idle_breakdown(trace: Trace, calls: Calls, launch: Int64s, busy: Intervals) -> dict[str, float]:
    """Seconds of the gaps in ``busy`` by cause; the values sum to the device's idle time.

    ``launch`` is the host event that launched each device event (-1: not in the trace, which makes the gap before it ``unknown_s``).
    """
    gaps = np.stack((busy[:-1, 1], busy[1:, 0]), axis=1) if len(busy) > 1 else np.empty((0, 2), np.int64)
    first = _first_at(trace, gaps[:, 1])
    launched_by = launch[first] if len(first) else np.empty(0, np.int64)
    known = launched_by >= 0
    began = trace.host.start_ns[launched_by[known]] if known.any() else np.empty(0, np.int64)
    waiting_from = np.clip(began, gaps[known, 0], gaps[known, 1])
    without_work = intervals.union(gaps[known, 0], waiting_from)
    loading = intervals.intersect(without_work, _data_loading(trace, calls))
    rest = intervals.subtract(without_work, loading)
    synchronising = intervals.intersect(rest, _synchronisation(trace, calls))
    return {
        "host_bound_s": (intervals.length(rest) - intervals.length(synchronising)) / 1e9,
        "kernel_wait_s": intervals.length(intervals.union(waiting_from, gaps[known, 1])) / 1e9,
        "synchronisation_s": intervals.length(synchronising) / 1e9,
        "data_loading_s": intervals.length(loading) / 1e9,
        "unknown_s": intervals.length(gaps[~known]) / 1e9,
    }


def _first_at(trace: Trace, times_ns: Int64s) -> Int64s:
    """The first device event that starts at each of the times, at which one does."""
    return np.searchsorted(trace.device.start_ns, times_ns, side="left")


def _data_loading(trace: Trace, calls: Calls) -> Intervals:
    return host_intervals(trace, calls, (trace.host.kind == ANNOTATION) & (calls.phase == OUTSIDE))


def _synchronisation(trace: Trace, calls: Calls) -> Intervals:
    waits = [
        any(word in name for word in _WAITS) and not any(word in name for word in _DOES_NOT_WAIT) for name in trace.names
    ]  # fmt: skip
    return host_intervals(trace, calls, (trace.host.kind == RUNTIME) & np.array(waits, bool)[trace.host.name])
