"""The longest stretch in which nothing ran, where it is most of the idle time: what occurs once is no property of a step."""

from __future__ import annotations

import numpy as np

from rooflines.profiler.trace import intervals
from rooflines.profiler.trace.intervals import Intervals
from rooflines.profiler.trace.records import OPERATOR
from rooflines.roofline.analysis import Gap
from rooflines.roofline.attribution.own import Attribution

# The share of all idle time, and of the whole time, that one gap takes.
_MOST, _WORTH = 0.5, 0.1


def one_gap(attribution: Attribution, host_bound: Intervals) -> Gap | None:
    """The gap that is most of the idle time of the steps, or of the trace, where the host takes most of it (``host_bound``).

    None where there is no such gap, where it is the only one, or where it may recur: another one is more than half as long, or there is
    a single step.
    """
    trace = attribution.trace
    gaps = intervals.subtract(attribution.window, attribution.busy)
    lasting = gaps[:, 1] - gaps[:, 0]
    longest = int(lasting.max(initial=0))
    if attribution.steps == 1 or len(lasting) < 2 or longest < max(_MOST * lasting.sum(), _WORTH * attribution.span_ns):
        return None
    at = int(np.argmax(lasting))
    begin, end = gaps[at].tolist()
    host_ns = int(intervals.covered(host_bound, gaps[at : at + 1])[0])
    if 2 * int(np.delete(lasting, at).max()) > longest or 2 * host_ns < longest:
        return None
    names, starts = trace.device.name, trace.device.start_ns
    if not len(trace.device):
        operators = trace.host.kind == OPERATOR
        names, starts = trace.host.name[operators], trace.host.start_ns[operators]
    next_ = np.flatnonzero(starts >= end)
    before = trace.names[names[next_[np.argmin(starts[next_])]]] if len(next_) else ""
    share = longest / int(lasting.sum())
    return Gap(at_s=(begin - trace.began_ns) / 1e9, lasts_s=longest / 1e9, before=before, share=share, host_s=host_ns / 1e9)
