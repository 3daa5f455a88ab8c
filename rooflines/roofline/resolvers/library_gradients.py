"""Autograd nodes of libraries that are written in C++: their work depends on arguments that only their forward calls record.

A node (``torch::autograd::CppNode<SplitLookupFunction_rowwise_adagrad_Op>``) is given the gradient of its forward call's result and
nothing else. It has the sequence number that its thread counted when the forward call made it; the call itself may have none. Between
the last number that the thread shows before a forward call and the first one after it, nodes and calls are paired in order, if there
are as many of one as of the other and each gradient fits its call. The gradient in turn has the shape of what the call returned.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rooflines.profiler.trace.records import OPERATOR, Int64s
from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.formulas import count
from rooflines.roofline.resolvers.counts import Context, Counts, Variant
from rooflines.roofline.resolvers.dispatchers import enclosed

_NODE = "torch::autograd::CppNode<"
_SOURCE = "arguments from its forward call"
_RESULT = "output from its backward call"


def from_forward_calls(counts: Counts, context: Context) -> Counts:
    """Count nodes with the arguments of their forward calls, and forward calls with the results that their gradients show."""
    if not any(name.startswith(_NODE) for name in context.trace.names):
        return counts
    return counts.recounted(_groups(counts, context))


def _groups(counts: Counts, context: Context) -> Iterator[tuple[Int64s, Variant]]:
    from rooflines.roofline.formulas.libraries.fbgemm_embedding import forward_of  # loaded for traces that have such nodes

    trace, host = context.trace, context.trace.host
    forward_names = [forward_of(name) if name.startswith(_NODE) else None for name in trace.names]
    # Where a node calls operators that are counted, these have the work.
    inner = counts.where(lambda variant: variant.count.kind == "counted" and variant.signature.name.startswith("fbgemm::"))
    free = (host.kind == OPERATOR) & (enclosed(inner, context.calls.after) == 0)
    pairs: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for name in sorted({name for name in forward_names if name is not None}):
        is_node = np.array([one == name for one in forward_names], bool)[host.name]
        is_call = np.array([one == name for one in trace.names], bool)[host.name] & (host.kind == OPERATOR)
        nodes, makers = np.flatnonzero(is_node & free & (host.sequence >= 0)), np.flatnonzero(is_call)
        for node, call in _paired(context, nodes, makers):
            pairs.setdefault((int(host.signature[node]), int(host.signature[call])), []).append((node, call))
    for (node_code, call_code), events in pairs.items():
        node, call = trace.signatures[node_code], trace.signatures[call_code]
        gradient = node.args[0]
        result = TensorArg(gradient.shape, gradient.dtype)
        backward, forward = Signature(node.name, (gradient, *call.args)), count(call, outputs=(result,))
        counted = count(backward)
        if counted.kind == "counted":
            yield np.array([one for one, _ in events], np.int64), Variant(node, counted, _SOURCE)
        if forward.kind == "counted":
            yield np.array([one for _, one in events], np.int64), Variant(call, forward, _RESULT)


def _paired(context: Context, nodes: Int64s, calls: Int64s) -> Iterator[tuple[int, int]]:
    """Nodes with the calls that made them."""
    host = context.trace.host
    if not len(nodes) or not len(calls) or len(np.unique(host.thread[calls])) != 1:
        return
    # The numbers that the thread of the calls shows as time goes on: each is the next one that it gives to a node.
    forward = (host.kind == OPERATOR) & (host.sequence >= 0) & (host.forward_thread == 0) & (host.thread == host.thread[calls[0]])
    shown = np.flatnonzero(forward)
    shown = shown[np.argsort(host.start_ns[shown], kind="stable")]
    times, numbers = host.start_ns[shown], np.maximum.accumulate(host.sequence[shown]) if len(shown) else host.sequence[shown]
    limits = np.concatenate(([-1], numbers, [np.iinfo(np.int64).max]))
    calls = calls[np.argsort(host.start_ns[calls], kind="stable")]
    nodes = nodes[np.argsort(host.sequence[nodes], kind="stable")]
    first = limits[np.searchsorted(times, host.start_ns[calls], side="right")]
    # A number shown inside a call is not behind it.
    last = limits[np.searchsorted(times, context.calls.end_ns[calls], side="left") + 1]
    for low, high in sorted(set(zip(first.tolist(), last.tolist(), strict=True))):
        made = calls[(first == low) & (last == high)].tolist()
        between = host.sequence[nodes]
        theirs = nodes[(between >= low) & (between < high)].tolist()
        if len(made) == len(theirs) and all(_fits(context, *pair) for pair in zip(theirs, made, strict=True)):
            yield from zip(theirs, made, strict=True)


def _fits(context: Context, node: int, call: int) -> bool:
    """Whether the gradient has as many rows as the call has bags or indices."""
    signatures, codes = context.trace.signatures, context.trace.host.signature
    gradient, forward = signatures[codes[node]].arg(0), signatures[codes[call]]
    if not isinstance(gradient, TensorArg) or not gradient.shape:
        return False
    sizes = {tensor.shape[0] for tensor in forward.tensors if tensor.shape}
    return gradient.shape[0] in sizes or any((size - 1) % gradient.shape[0] == 0 for size in sizes if size > 1)
