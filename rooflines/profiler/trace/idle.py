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

# Calls in which the host waits for the device, of CUDA, HIP, SYCL and Level Zero; a copy without Async waits until it is done.
_WAITS = ("Synchronize", "cudaMemcpy", "hipMemcpy", "urEventWait", "urQueueFinish")
_DOES_NOT_WAIT = ("Async", "MemcpyBatch")


def idle_breakdown(trace: Trace, calls: Calls, launch: Int64s, busy: Intervals) -> dict[str, float]:
    """Seconds of the gaps in ``busy`` by cause; the values sum to the device's idle time.

    ``launch`` is the host event that launched each device event (-1: not in the trace, which makes the gap before it ``unknown_s``).
    """
    gaps = np.stack((busy[:-1, 1], busy[1:, 0]), axis=1) if len(busy) > 1 else np.empty((0, 2), np.int64)
    return {f"{cause}_s": intervals.length(found) / 1e9 for cause, found in idle_causes(trace, calls, launch, gaps).items()}


def idle_causes(trace: Trace, calls: Calls, launch: Int64s, gaps: Intervals) -> dict[str, Intervals]:
    """``gaps``, in which no device event lies, by cause: together they are all of it. After a gap that no device event ends, such as
    the last one of a step, nothing had been launched."""
    first = _first_at(trace, gaps[:, 1])
    ended = first < len(trace.device)
    first = np.where(ended, first, 0)
    if len(trace.device):
        ended &= trace.device.start_ns[first] == gaps[:, 1]
    launched_by = np.where(ended, launch[first] if len(launch) else -1, -1)
    known = (launched_by >= 0) | ~ended
    began = np.where(ended & known & (len(trace.host) > 0), _start_of(trace, launched_by), gaps[:, 1])[known]
    waiting_from = np.clip(began, gaps[known, 0], gaps[known, 1])
    without_work = intervals.union(gaps[known, 0], waiting_from)
    loading = intervals.intersect(without_work, data_loading(trace, calls))
    rest = intervals.subtract(without_work, loading)
    synchronising = intervals.intersect(rest, _synchronisation(trace, calls))
    return {
        "host_bound": intervals.subtract(rest, synchronising),
        "kernel_wait": intervals.union(waiting_from, gaps[known, 1]),
        "synchronisation": synchronising,
        "data_loading": loading,
        "unknown": intervals.union(gaps[~known, 0], gaps[~known, 1]),
    }


def _start_of(trace: Trace, events: Int64s) -> Int64s:
    """When host events began; anything at all for those that are none (-1)."""
    return trace.host.start_ns[events] if len(trace.host) else np.zeros(len(events), np.int64)


def _first_at(trace: Trace, times_ns: Int64s) -> Int64s:
    """The first device event that starts at each of the times, at which one does."""
    return np.searchsorted(trace.device.start_ns, times_ns, side="left")


def data_loading(trace: Trace, calls: Calls) -> Intervals:
    """When any thread was in a data loader."""
    return host_intervals(trace, calls, (trace.host.kind == ANNOTATION) & (calls.phase == OUTSIDE))


def _synchronisation(trace: Trace, calls: Calls) -> Intervals:
    waits = [
        any(word in name for word in _WAITS) and not any(word in name for word in _DOES_NOT_WAIT) for name in trace.names
    ]  # fmt: skip
    return host_intervals(trace, calls, (trace.host.kind == RUNTIME) & np.array(waits, bool)[trace.host.name])
