"""Calls that were stored with the run because a trace cannot hold their arguments: ``profiler/trace/signature.py``."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rooflines.profiler.trace.nesting import covered
from rooflines.profiler.trace.records import OPERATOR
from rooflines.profiler.trace.windows import inside, step_window
from rooflines.roofline.formulas import count
from rooflines.roofline.resolvers.counts import Counts, Group, Variant


def from_stored_calls(counts: Counts) -> Iterator[Group]:
    """Count the k-th call of an operator in each step as the k-th stored one. An operator that is called another number of times in the
    trace stays as it is."""
    if not counts.known.stored_calls or not len(counts.trace.host):
        return
    trace, calls, stored = counts.trace, counts.calls, counts.known.stored_calls
    host = trace.host
    steps = step_window(calls)
    in_steps = (host.kind == OPERATOR) & (True if steps is None else inside(host.start_ns, steps))
    explicit = counts.where(lambda variant: variant.count.kind == "counted" and not variant.count.decomposes)
    names = sorted({call.name for call in stored})
    codes = np.array([names.index(name) if name in names else -1 for name in trace.names])[host.name]
    # The calls that a dispatch mode sees: not those that another operator makes for itself.
    seen = in_steps & (codes >= 0) & ~covered(in_steps & ((codes >= 0) | explicit), calls.after)
    for code, name in enumerate(names):
        listed = [call for call in stored if call.name == name]
        events = np.flatnonzero(seen & (codes == code))
        events = events[np.argsort(host.start_ns[events], kind="stable")]
        if len(events) != len(listed) * (1 if steps is None else len(calls.steps)):
            continue
        for place, call in enumerate(listed):
            yield events[place :: len(listed)], Variant(call.signature, count(call.signature, outputs=call.results))
