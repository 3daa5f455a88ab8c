"""Outputs from memory events: the bytes that a call allocated and kept are its output.

They are used where the recorded inputs do not determine the work: ``aten::index``, lists of tensors whose dtype the trace lacks. Calls
of one signature that kept different amounts are counted apart.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rooflines.profiler.trace.signature import TensorArg
from rooflines.roofline.formulas import count
from rooflines.roofline.resolvers.counts import Counts, Group, Variant


def from_allocations(counts: Counts) -> Iterator[Group]:
    """Count calls whose output is not determined by their inputs with what they allocated."""
    trace = counts.trace
    # Without recorded shapes, the few operators with known allocations would represent all.
    unclear = [code for code, variant in enumerate(counts.variants) if _needs_output(variant)] if trace.shapes_recorded else []
    host, memory = trace.host, trace.memory
    # Of the device whose time is divided: a call may allocate on the host as well.
    ours = (memory.device_type != 0) == bool(len(trace.device))
    if not unclear or not ours.any():
        return
    order = np.flatnonzero(ours)
    order = order[np.argsort(memory.thread[order], kind="stable")]
    threads, first = np.unique(memory.thread[order], return_index=True)
    by_thread = {
        thread: (memory.time_ns[part], np.cumsum(memory.size_bytes[part]))
        for thread, part in zip(threads.tolist(), np.split(order, first[1:]), strict=True)
    }
    groups: dict[tuple[int, int], list[int]] = {}
    for event in np.flatnonzero(np.isin(host.signature, unclear)).tolist():
        thread = int(host.thread[event])
        if thread not in by_thread:
            continue
        times, total = by_thread[thread]
        first, last = np.searchsorted(times, (host.start_ns[event], counts.calls.end_ns[event]))
        kept = int(total[last - 1] if last else 0) - int(total[first - 1] if first else 0)
        if kept > 0:
            groups.setdefault((int(host.signature[event]), kept), []).append(event)
    for (code, kept), events in groups.items():
        yield events, Variant(trace.signatures[code], count(trace.signatures[code], output_bytes=kept))


def _needs_output(variant: Variant) -> bool:
    """Whether what the call allocated says more than its signature: the dtype of a list, a result whose size the device decides."""
    has_list = any(isinstance(arg, tuple) and arg and isinstance(arg[0], TensorArg) for arg in variant.signature.args)
    return variant.count.kind == "unknown" or has_list or count(variant.signature, output_bytes=1) != variant.count
