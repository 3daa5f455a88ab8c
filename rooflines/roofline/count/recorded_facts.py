"""Calls counted by what was recorded besides their arguments: memory events, the network's parameters, stored
calls.

The bytes that a call allocated and kept are its output. They are used where the recorded inputs do not
determine the work: ``aten::index``, lists of tensors whose dtype the trace lacks. Calls of one signature that
kept different amounts are counted apart. Traces leave out lists of more than 30 tensors, which in the
optimizer are the parameters. Calls are stored with the run because a trace cannot hold their arguments
(``profiler/read/signature.py``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from rooflines.profiler.read.distinct import distinct, distinct_rows
from rooflines.profiler.read.nesting import covered
from rooflines.profiler.read.records import OPERATOR
from rooflines.profiler.read.signature import TensorArg
from rooflines.profiler.tree.tree import OPTIMIZER
from rooflines.profiler.tree.windows import inside, step_window
from rooflines.roofline.count.counts import Counts, Group, Variant, places_of
from rooflines.roofline.count.formulas import count
from rooflines.roofline.count.formulas.arguments import size_of
from rooflines.roofline.count.formulas.counter import NO_FORMULA
from rooflines.roofline.count.formulas.shapes import fitted

# The bytes of an element in the name of a kernel that copies, and a dtype of as many.
_WIDTH = re.compile(r"CatArrayBatchedCopy.*?OpaqueType<(\d+)u?>")
_OF_SIZE = {1: "uint8", 2: "bfloat16", 4: "float32", 8: "int64"}
_OF_LISTS = ("aten::_foreach_", "aten::_fused_", "aten::_amp_foreach_")


def from_allocations(counts: Counts) -> Iterator[Group]:
    """Count calls whose output is not determined by their inputs with what they allocated."""
    trace = counts.trace
    # Without recorded shapes, the few operators with known allocations would represent all.
    unclear = (
        [code for code, variant in enumerate(counts.variants) if _needs_output(variant)]
        if trace.shapes_recorded
        else []
    )
    host, memory = trace.host, trace.memory
    # Of the device whose time is divided: a call may allocate on the host as well.
    ours = (memory.device_type != 0) == bool(len(trace.device))
    if not unclear or not ours.any():
        return
    on_device = np.flatnonzero(ours)
    by_thread = {
        thread: (
            memory.time_ns[on_device[places]],
            np.append(0, np.cumsum(memory.size_bytes[on_device[places]])),
        )
        for thread, places in places_of(memory.thread[on_device])
    }
    groups: dict[tuple[int, int], list[int]] = {}
    for event in np.flatnonzero(np.isin(host.signature, unclear)).tolist():
        thread = int(host.thread[event])
        if thread not in by_thread:
            continue
        times, total = by_thread[thread]
        first, last = np.searchsorted(times, (host.start_ns[event], counts.calls.end_ns[event]))
        kept = int(total[last] - total[first])
        if kept > 0:
            groups.setdefault((int(host.signature[event]), kept), []).append(event)
    for (code, kept), events in groups.items():
        yield events, Variant(trace.signatures[code], count(trace.signatures[code], output_bytes=kept))


def _needs_output(variant: Variant) -> bool:
    """Whether what the call allocated says more than its signature: the dtype of a list, a result whose size
    the device decides."""
    has_list = any(
        isinstance(arg, tuple) and arg and isinstance(arg[0], TensorArg) for arg in variant.signature.args
    )
    return (
        variant.count.kind == "unknown"
        or has_list
        or count(variant.signature, output_bytes=1) != variant.count
    )


def from_copying_kernels(counts: Counts) -> Iterator[Group]:
    """Count calls that copy lists of tensors with the size of an element that their kernels name
    (``CatArrayBatchedCopy``)."""
    trace, launch = counts.trace, counts.calls.launch
    width = np.array([*(int(found[1]) if (found := _WIDTH.search(name)) else 0 for name in trace.names), 0])[
        trace.device.name
    ]
    copies = np.flatnonzero((width > 0) & (launch >= 0))
    owner = counts.calls.operator[launch[copies]]
    known = (owner >= 0) & (trace.host.signature[owner] >= 0)
    copies = copies[known]
    owner = owner[known]
    pairs, pair = distinct_rows(trace.host.signature[owner], width[copies])
    for which, places in places_of(pair):
        code, size = pairs[which].tolist()
        signature = trace.signatures[code]
        args = tuple(
            _of_size(arg, size) if isinstance(arg, tuple) and size in _OF_SIZE else arg
            for arg in signature.args
        )
        if args != signature.args:
            sized = replace(signature, args=args)
            yield distinct(owner[places])[0], Variant(sized, count(sized))


def _of_size(tensors: tuple[Any, ...], size: int) -> tuple[Any, ...]:
    """A list with tensors of elements of ``size`` bytes, where it has others."""
    return tuple(
        replace(tensor, dtype=_OF_SIZE[size])
        if isinstance(tensor, TensorArg) and size_of(tensor.dtype) != size
        else tensor
        for tensor in tensors
    )


def from_parameters(counts: Counts) -> Iterator[Group]:
    """Count the optimizer's calls whose lists were left out with the parameters, shared among the calls that
    a step makes."""
    host, calls, elements = counts.trace.host, counts.calls, counts.known.parameter_elements
    if elements is None:
        return
    steps = max(1, len(calls.steps))
    for code, signature in enumerate(counts.trace.signatures):
        if signature.arg(0) != () or not signature.name.startswith(_OF_LISTS):
            continue
        events = np.flatnonzero((host.signature == code) & (calls.phase == OPTIMIZER))
        if len(events):
            each = elements * steps // len(events)
            yield (
                events,
                Variant(
                    signature,
                    count(signature, parameter_elements=each, parameter_dtype=counts.known.parameter_dtype),
                ),
            )


def from_interpreter(counts: Counts) -> Iterator[Group]:
    """Count what a function of TorchScript calls with its own arguments: below them, its interpreter records
    the rest of its stack."""
    trace, above = counts.trace, counts.calls.above
    functions = counts.where(
        lambda variant: variant.count.reason == NO_FORMULA and "::" not in variant.signature.name
    )
    called = np.flatnonzero((trace.host.kind == OPERATOR) & (above >= 0) & functions[above])
    for code, places in places_of(trace.host.signature[called]):
        signature = fitted(trace.signatures[code])
        if signature != trace.signatures[code]:
            yield called[places], Variant(signature, count(signature))


def from_stored_calls(counts: Counts) -> Iterator[Group]:
    """Count the k-th call of an operator in each step as the k-th stored one. An operator that is called
    another number of times in the trace stays as it is."""
    if not counts.known.stored_calls or not len(counts.trace.host):
        return
    trace, calls, stored = counts.trace, counts.calls, counts.known.stored_calls
    host = trace.host
    steps = step_window(calls)
    in_steps = (host.kind == OPERATOR) & (True if steps is None else inside(host.start_ns, steps))
    explicit = counts.of_kind("counted") & ~counts.decomposing
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
            yield (
                events[place :: len(listed)],
                Variant(call.signature, count(call.signature, outputs=call.results)),
            )
