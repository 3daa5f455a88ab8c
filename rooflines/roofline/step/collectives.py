"""The collectives of the steps by kind and size, with the part of their time that nothing hides."""

from __future__ import annotations

import numpy as np

from rooflines.profiler.trace import intervals
from rooflines.profiler.trace.breakdown import device_intervals
from rooflines.profiler.trace.collectives import read_collectives
from rooflines.profiler.trace.distinct import distinct
from rooflines.profiler.trace.records import COMMUNICATION, KERNEL, MEMCPY, MEMSET
from rooflines.roofline.analysis import CollectiveRow
from rooflines.roofline.attribution.own import Attribution
from rooflines.roofline.step.times import per_step

# Kernels without a note are looked up among the operators around their launch: at most this many.
_MOST_LOOKED_UP = 20_000


def collective_rows(attribution: Attribution) -> tuple[CollectiveRow, ...]:
    """The collectives of ``attribution``'s steps, per step, those that are exposed longest first."""
    trace = attribution.trace
    kernels = np.flatnonzero(trace.device.kind == COMMUNICATION)
    if not len(kernels) or (trace.device.collective[kernels] < 0).sum() > _MOST_LOOKED_UP:
        return ()
    found = read_collectives(trace, attribution.calls)
    hiding = intervals.merge(device_intervals(trace, KERNEL, MEMSET), device_intervals(trace, MEMCPY))
    alone = intervals.subtract(device_intervals(trace, COMMUNICATION), hiding)
    exposed = intervals.covered(alone, np.stack((found.start_ns, found.end_ns), axis=1))
    ours = np.isin(kernels, attribution.pieces.event)
    steps = attribution.steps or 1
    result = []
    for which in distinct(found.what[ours])[0].tolist():
        chosen, one = ours & (found.what == which), found.exchanges[which]
        count, each_ns = int(chosen.sum()), found.duration_ns[chosen]
        result.append(
            CollectiveRow(
                kind=one.kind,
                bytes=one.bytes,
                calls=per_step(count, steps),
                time_s=int(each_ns.sum()) * attribution.factor / 1e9 / steps,
                exposed_s=int(exposed[chosen].sum()) * attribution.factor / 1e9 / steps,
                group_size=one.group_size,
                shortest_s=int(each_ns.min()) * attribution.factor / 1e9,
                longest_s=int(each_ns.max()) * attribution.factor / 1e9,
            )
        )
    return tuple(sorted(result, key=lambda one: (-one.exposed_s, -one.time_s, one.kind)))
