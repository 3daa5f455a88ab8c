"""Match launches with device work, and analyze the queue between host and device: its delay and its length.

A long queue is a host that is ahead of the device, as it should be; an empty one is a device about to be idle.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from rooflines.profiler.trace.distinct import distinct
from rooflines.profiler.trace.intervals import Intervals
from rooflines.profiler.trace.nesting import covered
from rooflines.profiler.trace.records import COMMUNICATION, RUNTIME, Int64s, Trace

# Runtime and driver calls that launch work, of CUDA, HIP and Level Zero; others have correlation ids as well.
LAUNCHING = ("Launch", "Memcpy", "Memset", "Enqueue")


# How the names of operators and ranges begin that exchange data; all that is launched inside of one is communication.
_EXCHANGING = ("c10d::", "_c10d_functional::", "c10d_functional::", "nccl:", "record_param_comms", "symm_mem::")


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


def launching(trace: Trace) -> tuple[Int64s, int]:
    """The host event that launched each device event (same correlation id), -1 where it is not in the trace, and the number of ids that
    several calls could have launched with.

    A profiler gives an id once; a trace merged from several processes has it several times. As many calls as device events go together
    in order; else it is the latest call that begins at or before the device event, the first one where none does.
    """
    host, device = trace.host, trace.device
    calls = np.flatnonzero((host.kind == RUNTIME) & (host.correlation >= 0))
    if not len(calls) or not len(device):
        return np.full(len(device), -1, np.int64), 0
    # By id; of one id those that launch, each in the order of time.
    other = ~np.array([any(word in name for word in LAUNCHING) for name in trace.names], bool)[host.name[calls]]
    order = np.lexsort((host.start_ns[calls], other, host.correlation[calls]))
    calls, other = calls[order], other[order]
    ids, first, several = np.unique(host.correlation[calls], return_index=True, return_counts=True)
    launchers = np.add.reduceat(~other, first, dtype=np.int64)
    several = np.where(launchers > 0, launchers, several)
    at = np.minimum(np.searchsorted(ids, device.correlation), len(ids) - 1)
    known = ids[at] == device.correlation
    found = np.where(known, calls[first[at]], -1)
    doubtful = np.flatnonzero(known & (several[at] > 1))
    if len(doubtful):
        found[doubtful] = calls[_by_time(host.start_ns[calls], first, several, device.start_ns[doubtful], at[doubtful])]
    return found, len(distinct(at[doubtful])[0])


def _by_time(called: Int64s, first: Int64s, several: Int64s, began: Int64s, which: Int64s) -> Int64s:
    """The position of the call behind each of the device events, which ``began`` in the order of time. ``which`` is the id of each,
    whose calls are the ``several`` from ``first`` on."""
    numbers = np.bincount(which, minlength=len(first))
    order = np.argsort(which, kind="stable")
    place = np.empty(len(which), np.int64)
    place[order] = np.arange(len(which)) - np.repeat(np.cumsum(numbers) - numbers, numbers)
    in_order = first[which] + np.minimum(place, several[which] - 1)
    paired = (numbers[which] == several[which]) & (called[in_order] <= began)
    # By bisection, how many of the calls had begun.
    low, high = first[which], first[which] + several[which]
    while (low < high).any():
        middle = (low + high) // 2
        open_, before = low < high, called[np.minimum(middle, len(called) - 1)] <= began
        low, high = np.where(open_ & before, middle + 1, low), np.where(open_ & ~before, middle, high)
    return np.where(paired, in_order, np.maximum(low - 1, first[which]))


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
        delay_p90_ns=_quantile(delays, 0.9),
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


def launched_by_collectives(trace: Trace, after: Int64s, launch: Int64s) -> Trace:
    """``trace`` with the kernels and copies that a collective launched marked as communication, regardless of their names.

    ``after`` and ``launch`` are those of ``Calls``.
    """
    host, device = trace.host, trace.device
    named = np.array([name.startswith(_EXCHANGING) for name in trace.names], bool)
    if not named.any() or not len(host):
        return trace
    exchanging = named[host.name]
    exchanging |= covered(exchanging, after)
    kind = np.where((launch >= 0) & exchanging[launch], COMMUNICATION, device.kind).astype(device.kind.dtype)
    return replace(trace, device=replace(device, kind=kind))
