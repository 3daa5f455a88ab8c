"""Recover the usable part of a trace that is cut off among its events.

Kineto writes what threads did first, then launches and device events, buffer by buffer. Neither part is in the order of time: operators
may be there without the kernels that they launched, and kernels of a late step without some of an earlier one.
"""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np

from rooflines.profiler.trace.launches import launching
from rooflines.profiler.trace.nesting import Mask
from rooflines.profiler.trace.records import ANNOTATION, OPERATOR, RUNTIME, Trace
from rooflines.profiler.trace.request_marks import is_step_mark
from rooflines.profiler.trace.tree import tree


def lacks_device(trace: Trace) -> bool:
    """Whether the cut lies before the events of a device that the trace names, launches on or communicates from."""
    if trace.cut_ns is None or len(trace.device):
        return False
    backend = trace.rank.backend if trace.rank is not None else None
    return bool(trace.devices) or "nccl" in (backend or "") or bool((trace.host.kind == RUNTIME).any())


def whole_part(trace: Trace) -> Trace:
    """``trace`` without what the cut makes misleading, and with notes on it; the same trace where all of its events are there.

    On a CPU the steps count that end before the last event that was read. With a device no step counts, because some of its device
    events may be missing, and operators without a device event are left out: their FLOPs would be counted without their time.
    """
    if trace.cut_ns is None:
        return trace
    host, notes = trace.host, []
    is_step = (host.kind == ANNOTATION) & np.array([is_step_mark(name) for name in trace.names], bool)[host.name]
    on_device, lacking = len(trace.device) > 0, lacks_device(trace)
    whole = is_step & (host.end_ns <= trace.cut_ns) & (not on_device and not lacking)
    keep = ~is_step | whole
    if whole.any():
        keep &= host.start_ns < host.end_ns[whole].max()
        if cut_off := int((is_step & ~whole).sum()):
            notes.append(f"steps not counted because they may be incomplete: {cut_off:,}")
    else:
        notes.append("no step is known to be complete: figures are those of the part that was read")
    if on_device:
        silent = (host.kind == OPERATOR) & ~_launches(trace)
        keep &= ~silent
        notes.append(f"operators left out because their device event may be missing: {int(silent.sum()):,}")
        notes.append("idle time of the device may be work whose events are missing")
    elif not lacking:
        notes.append("no device event was read: the time of any device is missing")
    kept = {column.name: getattr(host, column.name)[keep] for column in fields(host)}
    return replace(trace, host=replace(host, **kept), notes=(*trace.notes, *notes))


def _launches(trace: Trace) -> Mask:
    """Which host events launched a device event that was read, or enclose one that did."""
    launch = launching(trace)[0]
    before = np.concatenate(([0], np.cumsum(np.bincount(launch[launch >= 0], minlength=len(trace.host)))))
    found: Mask = before[tree(trace).after] > before[:-1]
    return found
