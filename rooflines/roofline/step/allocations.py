"""Memory that is allocated over a traced step, from the memory events of the trace."""

from __future__ import annotations

from typing import cast

import numpy as np

from rooflines.profiler.extremes import extremes
from rooflines.profiler.records import MemoryCurve
from rooflines.profiler.trace.tree import PHASES, Calls
from rooflines.profiler.trace.windows import inside, step_number
from rooflines.roofline.analysis import Allocated, Phase
from rooflines.roofline.attribution.own import Attribution

# Operators that allocate for the one around them.
_ALLOCATING = ("aten::empty", "aten::new_empty", "aten::resize_")


def allocated(attribution: Attribution) -> Allocated | None:
    """The allocated memory over the step with the highest peak; None where the trace does not record it.

    Of several devices it is that with the highest peak, and any device comes before the host.
    """
    calls, memory = attribution.calls, attribution.trace.memory
    windows = calls.steps if attribution.steps else attribution.windows
    step = step_number(memory.time_ns, windows)
    known = (memory.allocated_bytes >= 0) & inside(memory.time_ns, windows)
    on_device = known & (memory.device_type != 0)
    chosen = np.flatnonzero(on_device if on_device.any() else known)
    if not len(chosen):
        return None
    at = int(chosen[np.argmax(memory.allocated_bytes[chosen])])
    own = known & (step == step[at]) & (memory.device_type == memory.device_type[at]) & (memory.device == memory.device[at])
    held, time_ns = memory.allocated_bytes[own], memory.time_ns[own]
    kept = extremes(held)
    operator = _operator(calls, int(memory.thread[at]), int(memory.time_ns[at]))
    module = int(calls.module[operator]) if operator >= 0 else -1
    times = tuple(round(time / 1e9, 9) for time in (time_ns[kept] - int(windows[step[at], 0])).tolist())
    return Allocated(
        peak_bytes=int(memory.allocated_bytes[at]),
        of="device" if memory.device_type[at] else "host",
        curve=MemoryCurve(unit="s", at=times, parts={"allocated": tuple(held[kept].tolist())}),
        step=calls.step_names[step[at]] if attribution.steps else "",
        operator=attribution.trace.names[calls.trace.host.name[operator]] if operator >= 0 else "",
        module=calls.modules[module].path if module >= 0 else "",
        phase=cast("Phase", PHASES[calls.phase[operator]]) if operator >= 0 else "",
    )


def _operator(calls: Calls, thread: int, time_ns: int) -> int:
    """The operator that allocates on ``thread`` at ``time_ns``, as a host event; -1 for none."""
    host = calls.trace.host
    around = np.flatnonzero((host.thread == thread) & (host.start_ns <= time_ns) & (calls.end_ns >= time_ns))
    if not len(around):
        return -1
    names = calls.trace.names
    return next((one for one in calls.operators_around(int(around[-1])) if not names[host.name[one]].startswith(_ALLOCATING)), -1)
