"""Match launches with device work."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rooflines.profiler.read.distinct import distinct
from rooflines.profiler.read.nesting import covered
from rooflines.profiler.read.records import COMMUNICATION, RUNTIME, Int64s, Trace

# Runtime and driver calls that launch work, of CUDA, HIP and Level Zero; others have correlation ids as well.
LAUNCHING = ("Launch", "Memcpy", "Memset", "Enqueue")


# How the names of operators and ranges begin that exchange data; all that is launched inside of one is
# communication.
_EXCHANGING = (
    "c10d::",
    "_c10d_functional::",
    "c10d_functional::",
    "nccl:",
    "record_param_comms",
    "symm_mem::",
)


def is_launch(name: str) -> bool:
    """Whether a runtime call of this name launches work."""
    return any(word in name for word in LAUNCHING)


def launching(trace: Trace) -> tuple[Int64s, int]:
    """The host event that launched each device event (same correlation id), -1 where it is not in the trace,
    and the number of ids that several calls could have launched with.

    A profiler gives an id once; a trace merged from several processes has it several times. As many calls as
    device events go together in order; else it is the latest call that begins at or before the device event,
    the first one where none does.
    """
    host, device = trace.host, trace.device
    calls = np.flatnonzero((host.kind == RUNTIME) & (host.correlation >= 0))
    if not len(calls) or not len(device):
        return np.full(len(device), -1, np.int64), 0
    # By id, then time. Of an id the calls that do not launch count only where no other has it.
    launches = trace.named(is_launch)[calls]
    ids, which = distinct(host.correlation[calls])
    calls = calls[launches | ~(np.bincount(which, launches, len(ids)) > 0)[which]]
    calls = calls[np.lexsort((host.start_ns[calls], host.correlation[calls]))]
    ids, first, several = np.unique(host.correlation[calls], return_index=True, return_counts=True)
    at = np.minimum(np.searchsorted(ids, device.correlation), len(ids) - 1)
    known = ids[at] == device.correlation
    found = np.where(known, calls[first[at]], -1)
    doubtful = np.flatnonzero(known & (several[at] > 1))
    if len(doubtful):
        found[doubtful] = calls[
            _by_time(host.start_ns[calls], first, several, device.start_ns[doubtful], at[doubtful])
        ]
    return found, len(distinct(at[doubtful])[0])


def _by_time(called: Int64s, first: Int64s, several: Int64s, began: Int64s, which: Int64s) -> Int64s:
    """The position of the call behind each of the device events, which ``began`` in the order of time.
    ``which`` is the id of each, whose calls are the ``several`` from ``first`` on."""
    numbers = np.bincount(which, minlength=len(first))
    order = np.argsort(which, kind="stable")
    place = np.empty(len(which), np.int64)
    place[order] = np.arange(len(which)) - np.repeat(np.cumsum(numbers) - numbers, numbers)
    in_order = first[which] + np.minimum(place, several[which] - 1)
    paired = (numbers[which] == several[which]) & (called[in_order] <= began)
    # Ranks instead of times, so that the ids fit next to each other on one line.
    times, rank = distinct(np.concatenate((called, began)))
    line = np.repeat(np.arange(len(first)), several) * len(times) + rank[: len(called)]
    last = np.searchsorted(line, which * len(times) + rank[len(called) :], side="right") - 1
    return np.where(paired, in_order, np.maximum(last, first[which]))


def launched_by_collectives(trace: Trace, after: Int64s, launch: Int64s) -> Trace:
    """``trace`` with the kernels and copies that a collective launched marked as communication, regardless of
    their names.

    ``after`` and ``launch`` are those of ``Calls``.
    """
    device = trace.device
    exchanging = trace.named(lambda name: name.startswith(_EXCHANGING))
    if not exchanging.any():
        return trace
    exchanging |= covered(exchanging, after)
    kind = np.where((launch >= 0) & exchanging[launch], COMMUNICATION, device.kind).astype(device.kind.dtype)
    return replace(trace, device=replace(device, kind=kind))
