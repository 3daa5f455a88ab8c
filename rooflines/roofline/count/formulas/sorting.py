"""Sorting, selection, search, sets and histograms. A sort of n elements costs n log2(n) compares, a search
among n log2(n)."""

from __future__ import annotations

from rooflines.profiler.read.signature import MISSING, Signature
from rooflines.roofline.count.formulas import costs
from rooflines.roofline.count.formulas.arguments import Arguments, NotCounted, size, size_of
from rooflines.roofline.count.formulas.record import Work, precision_of
from rooflines.roofline.count.formulas.reduction import INDEX_BYTES


def sort(signature: Signature) -> Work:
    """n log2(n) compares a row, rows along the last dimension recorded as an integer."""
    inputs = Arguments(signature, "self").tensor("self")
    axes = [arg for arg in signature.args[1:] if isinstance(arg, int) and not isinstance(arg, bool)]
    if not axes and MISSING in signature.args and signature.name != "aten::msort":
        raise NotCounted("argument 'dim' not recorded")
    axis = 0 if signature.name == "aten::msort" else axes[0] if axes else -1
    length = inputs.shape[axis] if inputs.shape else 1
    values = 0 if signature.name == "aten::argsort" else size_of(inputs.dtype)
    indices = 0 if signature.name == "aten::msort" else INDEX_BYTES
    return Work(
        other_flops=inputs.numel * costs.compares(length),
        bytes_read=size(inputs),
        bytes_written=inputs.numel * (values + indices),
        precision=precision_of(inputs.dtype),
    )
