"""Work that is on one side of a trace only: launches without a kernel, and device work without a launch.

CUPTI of CUDA 12.6 to 13.0 gives wrong times to the first kernels of each session but the first of a process,
and Kineto drops them (pytorch#192021).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rooflines.profiler.read import intervals
from rooflines.profiler.read.intervals import Intervals
from rooflines.profiler.read.nesting import covered, enclosed
from rooflines.profiler.read.records import Int64s, Mask, Trace
from rooflines.profiler.tree.graphs import runtime_calls
from rooflines.profiler.tree.tree import Calls
from rooflines.profiler.tree.windows import earlier, inside


class Lost(NamedTuple):
    """``launches`` are the host events whose kernels are not in the trace, in the order of time: ``at_start``
    of them before every launch that has one, ``at_end`` after. ``launched`` is the number of launches of
    kernels. ``events`` are the device events without a launch, ``ran`` is the number of device events.
    """

    launches: Int64s = np.empty(0, np.int64)
    at_start: int = 0
    at_end: int = 0
    launched: int = 0
    events: Int64s = np.empty(0, np.int64)
    ran: int = 0


def find_lost(calls: Calls, within: Mask, belongs: Mask) -> Lost:
    """What is lost of the launches ``within`` the steps and of the device events that belong to them; nothing
    in a truncated trace, or in one that does not record launches."""
    trace, launch = calls.trace, calls.launch
    host, device = trace.host, trace.device
    # Calls that always run something: copies and fills of no bytes do not, nor do functions of the host.
    launching = runtime_calls(trace, "Launch") & ~runtime_calls(trace, "HostFunc") & _has_id(host.correlation)
    if trace.cut_ns is not None or not launching.any():
        return Lost()
    ran = np.isin(np.arange(len(host)), launch)
    events = np.flatnonzero(belongs & (launch < 0) & _has_id(device.correlation))
    events = events[~earlier(calls)[events]] if len(events) else events
    silent = np.flatnonzero(launching & ~ran & within)
    if not len(silent):
        return Lost(events=events, ran=int(belongs.sum()))
    # Of several launches with one id, as in a trace of several processes, it is not known which one ran.
    ran[silent[np.isin(host.correlation[silent], device.correlation)]] = True
    # A runtime call and the driver's call in it are one launch, and either one may have the kernel's id.
    launching &= ~covered(launching, calls.after)
    ran |= enclosed(ran, calls.after) > 0
    launching[launching] = ~inside(host.start_ns[launching], _captures(trace))
    lost = np.flatnonzero(launching & ~ran & within)
    lost = lost[np.argsort(host.start_ns[lost], kind="stable")]
    known = host.start_ns[launching & ran]
    at_start = np.searchsorted(host.start_ns[lost], known.min()) if len(known) else 0
    at_end = len(lost) - np.searchsorted(host.start_ns[lost], known.max()) if len(known) else 0
    return Lost(lost, int(at_start), int(at_end), int((launching & within).sum()), events, int(belongs.sum()))


def _has_id(correlation: Int64s) -> Mask:
    return np.asarray((correlation != -1) & (correlation != 0))


def _captures(trace: Trace) -> Intervals:
    """When graphs were captured: what is launched meanwhile runs only when the graph does."""
    begins = np.sort(trace.host.start_ns[runtime_calls(trace, "BeginCapture")])
    ends = np.sort(trace.host.start_ns[runtime_calls(trace, "EndCapture")])
    # Of a capture of which the trace has one end only, that to the edge of the trace is one.
    until = np.append(ends, np.iinfo(np.int64).max)[np.searchsorted(ends, begins)]
    since = np.append(np.iinfo(np.int64).min, begins)[np.searchsorted(begins, ends)]
    return intervals.union(np.concatenate((begins, since)), np.concatenate((until, ends)))
