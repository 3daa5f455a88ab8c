"""The work of a fused kernel: the FLOPs of the graph's operators that it computes, and the bytes that enter
and leave it.

A fused kernel moves what an operator by itself would read and write only at its edges: each distinct element
of a buffer from outside is read once, each of a buffer that is used afterwards is written once. Values made
and used up inside move nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from rooflines.profiler.compiled.records import Access, Buffer, CompiledKernel
from rooflines.profiler.read.signature import StoredCall
from rooflines.roofline.count.formulas.arguments import NotCounted, distinct, size_of
from rooflines.roofline.count.formulas.counter import count
from rooflines.roofline.count.formulas.record import Work
from rooflines.roofline.count.formulas.registry import CallCount


def count_kernel(kernel: CompiledKernel, buffers: Sequence[Buffer], nodes: Sequence[StoredCall]) -> CallCount:
    """The work of one call of ``kernel``: unknown, with the reason, as soon as one of its operators is.

    Its category is that of the operators with the most FLOPs, ``copy`` where nothing is computed.
    """
    if kernel.reason:
        return CallCount("unknown", None, "other", kernel.reason)
    flops: dict[str, int] = {}
    total = Work()
    for number in kernel.nodes:
        node = nodes[number]
        found = count_node(node)
        if found.work is None:
            return CallCount(
                "unknown",
                None,
                "other",
                f"{node.name} in it: {found.reason or 'it is made of other operators'}",
            )
        flops[found.category] = flops.get(found.category, 0) + found.work.flops
        total += Work(found.work.matrix_flops, found.work.other_flops, precision=found.work.precision)
    category = max(flops, key=flops.__getitem__, default="copy") if total.flops else "copy"
    added = [access for access in kernel.writes if access.adds]
    try:
        moved = Work(
            bytes_read=touched(kernel.reads, buffers) + touched(added, buffers),
            bytes_written=touched(kernel.writes, buffers),
        )
    except NotCounted as error:
        return CallCount("unknown", None, category, str(error))
    return CallCount("counted", total + moved, category)


def touched(accesses: Iterable[Access], buffers: Sequence[Buffer]) -> int:
    """Bytes of the distinct elements that ``accesses`` reach, at most; NotCounted for a dtype without a size.

    For one buffer this is at most what all accesses reach together, the range between their ends, and the
    size of the buffer.
    """
    total = 0
    for number, group in groupby(
        sorted(accesses, key=lambda access: access.buffer), key=lambda access: access.buffer
    ):
        mine = list(group)
        tensor = buffers[number].tensor
        # The same elements in another order of the loops are the same access.
        fixed = {(access.elements, access.first, access.last) for access in mine if not access.anywhere}
        elements = sum(size for size, _, _ in fixed) + sum(
            access.elements for access in mine if access.anywhere
        )
        total += min(elements, _between(mine), distinct(tensor)) * size_of(tensor.dtype)
    return total


def _between(accesses: list[Access]) -> int:
    """Elements in the union of the accesses' ranges."""
    total, end = 0, -1
    for access in sorted(accesses, key=lambda access: access.first):
        total += max(0, access.last - max(access.first, end + 1) + 1)
        end = max(end, access.last)
    return total


def count_node(node: StoredCall) -> CallCount:
    """The work of an operator call in a graph, by itself."""
    if node.name == "aten::reshape":  # a call of others where it runs, and a view of memory in a graph
        return CallCount("counted", Work(), "view")
    return count(node.signature, outputs=node.results or None)
