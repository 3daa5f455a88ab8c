"""The longest stretch in which nothing ran, where it is most of the idle time: what occurs once is no property of a step."""

from __future__ import annotations

import numpy as np

from rooflines.profiler.trace import intervals
from rooflines.profiler.trace.records import OPERATOR
from rooflines.roofline.analysis import Gap
from rooflines.roofline.attribution.own import Attribution

# The share of all idle time, and of the whole time, that one gap takes.
_MOST, _WORTH = 0.5, 0.1


def one_gap(attribution: Attribution) -> Gap | None:
    """The gap that is most of the idle time of the steps, or of the trace; None where no single one is, or there is no other."""
    trace = attribution.trace
    gaps = intervals.subtract(attribution.window, attribution.busy)
    lasting = gaps[:, 1] - gaps[:, 0]
    longest = int(lasting.max(initial=0))
    if len(lasting) < 2 or longest < max(_MOST * lasting.sum(), _WORTH * attribution.span_ns):
        return None
    begin, end = gaps[int(np.argmax(lasting))].tolist()
    names, starts = trace.device.name, trace.device.start_ns
    if not len(trace.device):
        operators = trace.host.kind == OPERATOR
        names, starts = trace.host.name[operators], trace.host.start_ns[operators]
    next_ = np.flatnonzero(starts >= end)
    before = trace.names[names[next_[np.argmin(starts[next_])]]] if len(next_) else ""
    return Gap(at_s=(begin - trace.began_ns) / 1e9, lasts_s=longest / 1e9, before=before, share=longest / int(lasting.sum()))
