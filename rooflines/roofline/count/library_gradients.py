"""Autograd nodes of libraries: their work depends on arguments that only their forward calls record.

A node (``LigerRMSNormFunctionBackward``) is given the gradients of its forward call's results and nothing
else. It has the sequence number that its thread counted when the forward call made it. The call of a Python
function has this number, too. The call of a C++ function
(``torch::autograd::CppNode<SplitLookupFunction_rowwise_adagrad_Op>``) may have none: nodes and calls between
two numbers that the thread shows are paired in order, if there are as many of one as of the other and each
gradient fits its call. The gradient in turn has the shape of what the call returned.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rooflines.profiler.read.nesting import enclosed
from rooflines.profiler.read.records import OPERATOR, Int64s
from rooflines.profiler.read.signature import Signature, TensorArg
from rooflines.roofline.count.counts import Counts, Group, Variant, places_of
from rooflines.roofline.count.formulas import count
from rooflines.roofline.count.formulas.arguments import listed
from rooflines.roofline.count.formulas.nodes import FORWARD_NEEDED

_NATIVE = "torch::autograd::CppNode<"
_BACKWARD = "Backward"


def from_forward_calls(counts: Counts) -> Iterator[Group]:
    """Count nodes with the arguments of their forward calls, and forward calls with the results that their
    gradients show."""
    waiting = counts.where(lambda variant: variant.count.reason == FORWARD_NEEDED)
    if not waiting.any():
        return
    trace, host = counts.trace, counts.trace.host
    operators = host.kind == OPERATOR
    # What libraries register as operators of their own has the work of a node that calls it.
    own = counts.where(
        lambda variant: variant.count.kind == "counted" and variant.signature.name.startswith("fbgemm::")
    )
    waiting = waiting & operators & (host.sequence >= 0) & (enclosed(own, counts.calls.after) == 0)
    codes = {name: code for code, name in enumerate(trace.names)}
    pairs: dict[tuple[int, int], list[tuple[int, int]]] = {}
    every = np.flatnonzero(waiting)
    for code, places in places_of(host.name[every]):
        name = trace.names[code]
        nodes = every[places]
        calls = np.flatnonzero(operators & (host.name == codes.get(_forward_of(name), -1)))
        found = (
            _between_numbers(counts, nodes, calls)
            if name.startswith(_NATIVE)
            else _by_number(counts, nodes, calls)
        )
        for node, call in found:
            pairs.setdefault((int(host.signature[node]), int(host.signature[call])), []).append((node, call))
    for (node_code, call_code), events in pairs.items():
        gradient = trace.signatures[node_code]
        forward = trace.signatures[call_code]
        gradients = tuple(TensorArg(one.shape, one.dtype) for one in listed(gradient.args))
        backward = count(Signature(gradient.name, (gradients, *forward.args)))
        if backward.kind == "counted":
            yield [node for node, _ in events], Variant(gradient, backward, "arguments from its forward call")
        counted = count(forward, outputs=gradients)
        if counted.kind == "counted" and counted != count(forward):
            yield [call for _, call in events], Variant(forward, counted, "output from its backward call")


def _forward_of(node: str) -> str:
    if not node.startswith(_NATIVE):
        return node.removesuffix(_BACKWARD)
    from rooflines.roofline.count.formulas.libraries.fbgemm_embedding import (
        forward_of,
    )  # loaded for traces that have such nodes

    return forward_of(node) or ""


def _by_number(counts: Counts, nodes: Int64s, calls: Int64s) -> Iterator[tuple[int, int]]:
    """Nodes with the one call of the same sequence number."""
    host = counts.trace.host
    of = {
        number: int(calls[places[0]])
        for number, places in places_of(host.sequence[calls])
        if len(places) == 1
    }
    for node, number in zip(nodes.tolist(), host.sequence[nodes].tolist(), strict=True):
        if number in of and host.start_ns[of[number]] <= host.start_ns[node]:
            yield node, of[number]


def _between_numbers(counts: Counts, nodes: Int64s, calls: Int64s) -> Iterator[tuple[int, int]]:
    """Nodes with the calls that lie where their numbers were counted."""
    host = counts.trace.host
    if not len(calls) or len(np.unique(host.thread[calls])) != 1:
        return
    # The numbers that the thread of the calls shows as time goes on: each is the next one that it gives to a
    # node.
    shown = np.flatnonzero(
        (host.kind == OPERATOR)
        & (host.sequence >= 0)
        & (host.forward_thread == 0)
        & (host.thread == host.thread[calls[0]])
    )
    shown = shown[np.argsort(host.start_ns[shown], kind="stable")]
    times = host.start_ns[shown]
    numbers = np.maximum.accumulate(host.sequence[shown])
    limits = np.concatenate(([-1], numbers, [np.iinfo(np.int64).max]))
    calls = calls[np.argsort(host.start_ns[calls], kind="stable")]
    nodes = nodes[np.argsort(host.sequence[nodes], kind="stable")]
    given = host.sequence[nodes]
    first = limits[np.searchsorted(times, host.start_ns[calls], side="right")]
    last = limits[np.searchsorted(times, counts.calls.end_ns[calls], side="left") + 1]
    for low, high in sorted(set(zip(first.tolist(), last.tolist(), strict=True))):
        made = calls[(first == low) & (last == high)].tolist()
        theirs = nodes[(given >= low) & (given < high)].tolist()
        if len(made) == len(theirs) and all(_fits(counts, *pair) for pair in zip(theirs, made, strict=True)):
            yield from zip(theirs, made, strict=True)


def _fits(counts: Counts, node: int, call: int) -> bool:
    """Whether the gradient has as many rows as the call has indices, or a number by which its offsets divide
    into bags."""
    signatures, codes = counts.trace.signatures, counts.trace.host.signature
    gradient = signatures[codes[node]].arg(0)
    forward = signatures[codes[call]]
    if not isinstance(gradient, TensorArg) or not gradient.shape:
        return False
    rows = gradient.shape[0]
    sizes = {one.shape[0] for one in forward.tensors if one.shape and one.dtype.startswith("int")}
    return rows in sizes or any(rows and size > 1 and (size - 1) % rows == 0 for size in sizes)
