"""Distances between the rows of matrices, forward and backward. p = 2 is a square and an addition, other norms by ``norm_cost``."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from rooflines.profiler.trace.signature import Argument, Signature, TensorArg
from rooflines.roofline.formulas import costs
from rooflines.roofline.formulas.arguments import Arguments, broadcast, elements, size, size_of
from rooflines.roofline.formulas.record import Work, precision_of
from rooflines.roofline.formulas.reduction import norm_cost
from rooflines.roofline.formulas.registry import formula


def _gradient_cost(order: Argument) -> int:
    """FLOPs of one coordinate's share of a distance's gradient: subtract, times gradient over distance, add; other powers too."""
    return 4 if order in (0, 1, 2) or norm_cost(order) == norm_cost(2) else costs.POW + 4


def _distances(like: TensorArg, flops: int, read: int, results: int) -> Work:
    """``flops`` in the precision of ``like``; ``results`` elements of its dtype are written."""
    return Work(other_flops=flops, bytes_read=read, bytes_written=results * size_of(like.dtype), precision=precision_of(like.dtype))


@formula("aten::dist", category="reduction")
def _dist(signature: Signature) -> Work:
    """The norm of the difference of two tensors: one number."""
    args = Arguments(signature, "self other p=2")
    left, right = args.tensor("self"), args.tensor("other")
    pairs = elements(broadcast((left.shape, right.shape)))
    return _distances(left, pairs * (1 + norm_cost(args.value("p"))), size(left, right), 1)


def _pairs(left: TensorArg, right: TensorArg) -> tuple[int, int]:
    """[.., p, m], [.., r, m] -> pairs of rows over all batches, and coordinates of a row."""
    batch = elements(broadcast((left.shape[:-2], right.shape[:-2])))
    return batch * left.shape[-2] * right.shape[-2], left.shape[-1]


@formula("aten::_cdist_forward", category="reduction")
def _cdist(signature: Signature) -> Work:
    """Every row of one matrix against every row of the other, by subtraction."""
    args = Arguments(signature, "x1 x2 p")
    left, right = args.tensor("x1"), args.tensor("x2")
    pairs, coordinates = _pairs(left, right)
    return _distances(left, pairs * coordinates * (1 + norm_cost(args.value("p"))), size(left, right), pairs)


@formula("aten::_euclidean_dist", category="matmul")
def _euclidean_dist(signature: Signature) -> Work:
    """sqrt(|x|² - 2 x·y + |y|²) as one product of [.., p, m + 2] and [.., m + 2, r]; the squares, the smallest 0, the root besides."""
    args = Arguments(signature, "x1 x2")
    left, right = args.tensor("x1"), args.tensor("x2")
    pairs, coordinates = _pairs(left, right)
    others = _distances(left, 3 * left.numel + 2 * right.numel + 2 * pairs, size(left, right), pairs)
    return replace(others, matrix_flops=2 * pairs * (coordinates + 2))


@formula("aten::_cdist_backward", category="reduction")
def _cdist_backward(signature: Signature) -> Work:
    """The gradient of the first matrix; the distances themselves are needed unless they are sums of absolute values."""
    args = Arguments(signature, "grad x1 x2 p distances")
    grad, left, right, order = args.tensor("grad"), args.tensor("x1"), args.tensor("x2"), args.value("p")
    pairs, coordinates = _pairs(left, right)
    batch = elements(broadcast((left.shape[:-2], right.shape[:-2])))
    read = size(grad, left, right, args.tensor("distances") if order != 1 else None)
    return _distances(left, pairs * coordinates * _gradient_cost(order), read, batch * prod(left.shape[-2:]))


@formula("aten::_pdist_forward", category="reduction")
def _pdist(signature: Signature) -> Work:
    """[n, m]: every row against every later one."""
    args = Arguments(signature, "self p=2")
    inputs = args.tensor("self")
    rows, coordinates = inputs.shape
    pairs = rows * (rows - 1) // 2
    return _distances(inputs, pairs * coordinates * (1 + norm_cost(args.value("p"))), size(inputs), pairs)


@formula("aten::_pdist_backward", category="reduction")
def _pdist_backward(signature: Signature) -> Work:
    """Each pair's gradient, to one row added and from the other subtracted."""
    args = Arguments(signature, "grad self p distances")
    grad, inputs, order = args.tensor("grad"), args.tensor("self"), args.value("p")
    read = size(grad, inputs, args.tensor("distances") if order != 1 else None)
    return _distances(inputs, grad.numel * inputs.shape[-1] * (_gradient_cost(order) + 1), read, inputs.numel)
