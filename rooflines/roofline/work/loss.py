"""Losses, forward and backward."""

from __future__ import annotations

from functools import partial
from typing import Final

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.work import costs
from rooflines.roofline.work.arguments import Arguments, broadcast, elements, size, size_of
from rooflines.roofline.work.record import Work, precision_of
from rooflines.roofline.work.table import aten, composite, formula

_NO_REDUCTION: Final = 0  # at::Reduction: None, Mean, Sum


def _losses(args: Arguments, each: int) -> int:
    """How many losses are written: one for each, or their mean or sum, which is the default where traces record no values."""
    return each if args.recorded("reduction") and args.integer("reduction") == _NO_REDUCTION else 1


_NLL: Final = "self target weight=None reduction=1 ignore=-100"


@formula("aten::nll_loss", "aten::nll_loss_nd", "aten::nll_loss2d", "aten::nll_loss_forward", "aten::nll_loss2d_forward",
         category="reduction")  # fmt: skip
def _nll(signature: Signature) -> Work:
    """Picks one log-probability for each target: [n, c] read at n places, negated and summed."""
    args = Arguments(signature, _NLL)
    inputs, target, weight = args.tensor("self"), args.tensor("target"), args.optional("weight")
    itemsize = size_of(inputs.dtype)
    total = itemsize if "forward" in signature.name else 0  # the sum of weights, kept for the backward
    return Work(
        other_flops=target.numel * (2 if weight is None else 4),
        bytes_read=target.numel * itemsize + size(target, weight),
        bytes_written=_losses(args, target.numel) * itemsize + total,
        precision=precision_of(inputs.dtype),
    )


@formula("aten::nll_loss_backward", "aten::nll_loss2d_backward", category="reduction")
def _nll_backward(signature: Signature) -> Work:
    """A gradient of zeros, but for each target's place. The log-probabilities give only their shape and are not read."""
    args = Arguments(signature, "grad self target weight reduction ignore total_weight")
    inputs, target = args.tensor("self"), args.tensor("target")
    return Work(
        other_flops=target.numel,
        bytes_read=size(args.tensor("grad"), target, args.optional("weight"), args.optional("total_weight")),
        bytes_written=inputs.numel * size_of(inputs.dtype),
        precision=precision_of(inputs.dtype),
    )


@formula("aten::cross_entropy_loss", category="reduction")
def _cross_entropy(signature: Signature) -> Work:
    """log_softmax over the classes, then the target's entry; label smoothing, or targets that are probabilities, touch every entry."""
    args = Arguments(signature, "self target weight=None reduction=1 ignore=-100 smoothing=0.0")
    inputs, target, weight = args.tensor("self"), args.tensor("target"), args.optional("weight")
    probabilities = target.shape == inputs.shape
    samples = target.numel if not probabilities else inputs.numel // (inputs.shape[1 if len(inputs.shape) > 1 else 0] or 1)
    smoothing = args.value("smoothing") if args.recorded("smoothing") else 0.0
    each = costs.SOFTMAX + 2 * probabilities + (isinstance(smoothing, float) and smoothing > 0)
    return Work(
        other_flops=inputs.numel * each + 2 * samples,
        bytes_read=size(inputs, target, weight),
        bytes_written=_losses(args, samples) * size_of(inputs.dtype),
        precision=precision_of(inputs.dtype),
    )


# Element-wise losses -> (FLOPs an element with the sum, FLOPs an element of the gradient, schema of the forward).
_ELEMENTWISE: Final[dict[str, tuple[int, int, str]]] = {
    "mse_loss": (3, 3, "self target reduction=1"),  # subtract, square, add; 2 * (x - t) * g
    "l1_loss": (3, 3, "self target reduction=1"),
    "smooth_l1_loss": (5, 4, "self target reduction=1"),
    "huber_loss": (5, 4, "self target reduction=1"),
    "soft_margin_loss": (costs.SOFTPLUS + 3, costs.SIGMOID + 3, "self target reduction=1"),
    # t * log(x) + (1 - t) * log(1 - x)
    "binary_cross_entropy": (2 * costs.TRANSCENDENTAL + 6, 5, "self target weight=None reduction=1"),
    # max(x, 0) - x * t + log(1 + exp(-|x|))
    "binary_cross_entropy_with_logits": (costs.SOFTPLUS + 6, costs.SIGMOID + 2, "self target weight=None pos_weight=None reduction=1"),
    "kl_div": (costs.TRANSCENDENTAL + 4, 3, "self target reduction=1"),
}  # fmt: skip


def _elementwise(signature: Signature, cost: int, schema: str) -> Work:
    args = Arguments(signature, schema)
    inputs, target = args.tensor("self"), args.tensor("target")
    each = elements(broadcast((inputs.shape, target.shape)))
    return Work(
        other_flops=each * cost,
        bytes_read=size(inputs, target, args.optional("weight"), args.optional("pos_weight")),
        bytes_written=_losses(args, each) * size_of(inputs.dtype),
        precision=precision_of(inputs.dtype),
    )


def _elementwise_backward(signature: Signature, cost: int) -> Work:
    args = Arguments(signature, "grad self target weight=None")
    inputs = args.tensor("self")
    read: list[TensorArg | None] = [args.tensor("grad"), inputs, args.tensor("target"), args.optional("weight")]
    return Work(
        other_flops=inputs.numel * cost,
        bytes_read=size(*read),
        bytes_written=inputs.numel * size_of(inputs.dtype),
        precision=precision_of(inputs.dtype),
    )


for _name, (_cost, _backward_cost, _schema) in _ELEMENTWISE.items():
    formula(f"aten::{_name}", category="reduction")(partial(_elementwise, cost=_cost, schema=_schema))
    formula(f"aten::{_name}_backward", category="reduction")(partial(_elementwise_backward, cost=_backward_cost))

composite(
    *aten(
        "cosine_embedding_loss hinge_embedding_loss margin_ranking_loss poisson_nll_loss triplet_margin_loss gaussian_nll_loss"
        " ctc_loss multilabel_margin_loss"
    )
)
