"""Sorting, selection, search, sets and histograms. A sort of n elements costs n log2(n) compares, a search
among n log2(n)."""

from __future__ import annotations

from rooflines.profiler.read.signature import MISSING, Signature, TensorArg
from rooflines.roofline.count.formulas import costs
from rooflines.roofline.count.formulas.arguments import Arguments, NotCounted, size, size_of
from rooflines.roofline.count.formulas.record import Work, precision_of
from rooflines.roofline.count.formulas.reduction import INDEX_BYTES


def _axis_length(tensor: TensorArg, axis: int) -> int:
    return tensor.shape[axis] if tensor.shape else 1


def sort(signature: Signature) -> Work:
    """n log2(n) compares a row, rows along the last dimension recorded as an integer."""
    inputs = Arguments(signature, "self").tensor("self")
    axes = [arg for arg in signature.args[1:] if isinstance(arg, int) and not isinstance(arg, bool)]
    if not axes and MISSING in signature.args and signature.name != "aten::msort":
        raise NotCounted("argument 'dim' not recorded")
    length = _axis_length(inputs, 0 if signature.name == "aten::msort" else axes[0] if axes else -1)
    values = 0 if signature.name == "aten::argsort" else size_of(inputs.dtype)
    indices = 0 if signature.name == "aten::msort" else INDEX_BYTES
    return Work(
        other_flops=inputs.numel * costs.compares(length),
        bytes_read=size(inputs),
        bytes_written=inputs.numel * (values + indices),
        precision=precision_of(inputs.dtype),
    )


def median(signature: Signature) -> Work:
    """Selects as ``topk`` does, of all elements one value, along a dimension its index too; nanmedian first
    looks for numbers."""
    inputs = Arguments(signature, "self").tensor("self")
    cost = 1 if signature.name == "aten::median" else 2
    axis = signature.arg(1, default=None)
    if MISSING in signature.args:
        raise NotCounted("argument 'dim' not recorded")
    whole = not isinstance(axis, int)
    length = inputs.numel if whole else _axis_length(inputs, axis)
    results = (1 if whole else inputs.numel // length if length else 0) * (
        size_of(inputs.dtype) + (0 if whole else INDEX_BYTES)
    )
    return Work(0, cost * inputs.numel, size(inputs), results, precision_of(inputs.dtype))
