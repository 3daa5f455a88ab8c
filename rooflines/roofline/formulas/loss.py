"""Losses, forward and backward."""

from __future__ import annotations

from functools import partial
from typing import Final

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.formulas import costs
from rooflines.roofline.formulas.arguments import Arguments, broadcast, distinct, elements, every, size, size_of, written
from rooflines.roofline.formulas.record import Work, precision_of
from rooflines.roofline.formulas.registry import Hints, formula, hinted_formula
from rooflines.roofline.formulas.rows import Row, row_work

_NO_REDUCTION: Final = 0  # at::Reduction: None, Mean, Sum
_MEAN: Final = 1


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
        bytes_read=min(target.numel, distinct(inputs)) * itemsize + size(target, weight),
        bytes_written=_losses(args, target.numel) * itemsize + total,
        precision=precision_of(inputs.dtype),
    )


@formula("aten::nll_loss_backward", "aten::nll_loss2d_backward", category="reduction")
def _nll_backward(signature: Signature) -> Work:
    """A gradient of zeros, but for each target's place. The log-probabilities give only their shape and are not read."""
    args = Arguments(signature, "grad self target weight reduction=1 ignore total_weight")
    inputs, target = args.tensor("self"), args.tensor("target")
    mean = not args.recorded("reduction") or args.integer("reduction") == _MEAN
    return Work(
        other_flops=target.numel,
        bytes_read=size(args.tensor("grad"), target, args.optional("weight"), args.optional("total_weight") if mean else None),
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
    return Work(
        other_flops=inputs.numel * cost,
        bytes_read=size(args.tensor("grad"), inputs, args.tensor("target"), args.optional("weight")),
        bytes_written=written(inputs),
        precision=precision_of(inputs.dtype),
    )


for _name, (_cost, _backward_cost, _schema) in _ELEMENTWISE.items():
    formula(f"aten::{_name}", category="reduction")(partial(_elementwise, cost=_cost, schema=_schema))
    formula(f"aten::{_name}_backward", category="reduction")(partial(_elementwise_backward, cost=_backward_cost))


@formula("aten::multi_margin_loss", category="reduction")
def _multi_margin(signature: Signature) -> Work:
    """max(0, margin - x[target] + x)^p over every class of a sample: subtract, add, maximum, sum; a product for p = 2, for weights."""
    args = Arguments(signature, "self target p=1 margin=1 weight=None reduction=1")
    inputs, target, weight = args.tensor("self"), args.tensor("target"), args.optional("weight")
    return Work(
        other_flops=inputs.numel * (4 + (args.value("p") == 2) + (weight is not None)),
        bytes_read=size(inputs, target, weight),
        bytes_written=_losses(args, target.numel) * size_of(inputs.dtype),
        precision=precision_of(inputs.dtype),
    )


@formula("aten::multi_margin_loss_backward", category="reduction")
def _multi_margin_backward(signature: Signature) -> Work:
    """Every class above the margin pushes the sample's own down: margin - x[target] + x, compare, add to it."""
    args = Arguments(signature, "grad self target p margin weight=None reduction=1")
    inputs, weight = args.tensor("self"), args.optional("weight")
    return Work(
        other_flops=inputs.numel * (4 + 2 * (args.value("p") == 2) + (weight is not None)),
        bytes_read=size(args.tensor("grad"), inputs, args.tensor("target"), weight),
        bytes_written=written(inputs),
        precision=precision_of(inputs.dtype),
    )


# How many labels a sample has is in the data: these count one, against all classes.
@formula("aten::multilabel_margin_loss_forward", category="reduction")
def _multilabel_margin(signature: Signature) -> Work:
    """max(0, 1 - x[label] + x) over every class that is not a label; the label mask is a second result, of the input's dtype."""
    args = Arguments(signature, "self target reduction")
    inputs, target = args.tensor("self"), args.tensor("target")
    samples = inputs.shape[0] if len(inputs.shape) > 1 else 1
    return Work(
        other_flops=inputs.numel * 4,
        bytes_read=size(inputs, target),
        bytes_written=(_losses(args, samples) + target.numel) * size_of(inputs.dtype),
        precision=precision_of(inputs.dtype),
    )


_MULTILABEL_BACKWARD: Final = Row(
    "read grad, read self, read target, reduction, read is_target", 4, per="self", result="self", precision="self"
)
formula("aten::multilabel_margin_loss_backward", category="reduction")(partial(row_work, row=_MULTILABEL_BACKWARD))


# Connectionist temporal classification (Graves et al. 2006): log_probs [t, n, c]; a target of l labels has 2 l + 1 states, blanks
# between them, and every state of every step is reached from up to three.


def _ctc_states(args: Arguments) -> tuple[int, int]:
    """States over all samples and steps, and the elements of ``log_probs`` that they look at, at most each of a step once.

    Lengths that are in a tensor are data: then every sample is as long as its rows.
    """
    log_probs, targets = args.tensor("log_probs"), args.tensor("targets")
    batched = len(log_probs.shape) == 3
    steps, classes = log_probs.shape[0], log_probs.shape[-1]
    samples = log_probs.shape[1] if batched else 1
    lengths = [(steps, _target_length(targets, samples)) for _ in every(samples)]
    given, labels = args.value("input_lengths"), args.value("target_lengths")
    if isinstance(given, tuple) and isinstance(labels, tuple):
        lengths = list(zip(given, labels, strict=True))
    states = sum(time * (2 * count + 1) for time, count in lengths)
    return states, sum(time * min(count + 1, classes) for time, count in lengths)


def _target_length(targets: TensorArg, samples: int) -> int:
    """Labels of a sample: a row of [n, l], or an even share of targets that follow one another."""
    return targets.shape[-1] if len(targets.shape) > 1 else -(-targets.numel // max(samples, 1))


_CTC: Final = "log_probs targets input_lengths target_lengths blank"


def _lengths(args: Arguments) -> int:
    return size(args.optional("input_lengths"), args.optional("target_lengths"))


@hinted_formula("aten::_ctc_loss", category="reduction")
def _ctc(signature: Signature, hints: Hints) -> Work:
    """The forward recursion; the logarithm of every state's probability is kept."""
    args = Arguments(signature, _CTC)
    log_probs = args.tensor("log_probs")
    states, looked_at = _ctc_states(args)
    return Work(
        other_flops=states * costs.CTC_STEP,
        bytes_read=looked_at * size_of(log_probs.dtype) + size(args.tensor("targets")) + _lengths(args),
        bytes_written=written(*hints.results(signature)),
        precision=precision_of(log_probs.dtype),
    )


@formula("aten::_ctc_loss_backward", category="reduction")
def _ctc_backward(signature: Signature) -> Work:
    """The backward recursion, both recursions joined at every state (a log-sum of two), and exp(log_prob) - exp(sum) of every class."""
    args = Arguments(signature, "grad log_probs targets input_lengths target_lengths neg_log_likelihood log_alpha")
    log_probs = args.tensor("log_probs")
    states, _ = _ctc_states(args)
    kept = (args.tensor("neg_log_likelihood"), args.tensor("log_alpha"))
    return Work(
        other_flops=states * (costs.CTC_STEP + costs.LOG_ADD + 1) + log_probs.numel * (2 * costs.TRANSCENDENTAL + 4),
        bytes_read=size(args.tensor("grad"), log_probs, args.tensor("targets"), *kept) + _lengths(args),
        bytes_written=written(log_probs),
        precision=precision_of(log_probs.dtype),
    )


@formula("aten::_cudnn_ctc_loss", "aten::miopen_ctc_loss", category="reduction")
def _ctc_with_gradient(signature: Signature) -> Work:
    """Both recursions and the gradient at once: a loss for each sample, and a gradient like ``log_probs``."""
    args = Arguments(signature, _CTC)
    log_probs = args.tensor("log_probs")
    states, _ = _ctc_states(args)
    samples = log_probs.shape[1] if len(log_probs.shape) == 3 else 1
    return Work(
        other_flops=states * (2 * costs.CTC_STEP + costs.LOG_ADD + 1) + log_probs.numel * (2 * costs.TRANSCENDENTAL + 4),
        bytes_read=size(log_probs, args.tensor("targets")) + _lengths(args),
        bytes_written=written(log_probs) + samples * size_of(log_probs.dtype),
        precision=precision_of(log_probs.dtype),
    )


# The last layer of a language model and its loss at once: input [n, f], weight [c, f], never all of the logits [n, c].
_LINEAR: Final = "input linear_weight target linear_bias weight"


def _linear_cross_entropy(args: Arguments, of_input: bool, of_weight: bool, of_bias: bool) -> tuple[int, int, int]:
    """Matrix FLOPs, other FLOPs, bytes read. Gradients are computed along with the loss: softmax minus target, a product for each."""
    inputs, weight, bias = args.tensor("input"), args.tensor("linear_weight"), args.optional("linear_bias")
    target, class_weight = args.tensor("target"), args.optional("weight")
    logits = inputs.shape[0] * weight.shape[0]
    matrix = 2 * logits * inputs.shape[-1] * (1 + of_input + of_weight)
    each = costs.SOFTMAX + (bias is not None) + 2 * (of_input or of_weight or of_bias) + of_bias
    return matrix, logits * each + 2 * inputs.shape[0], size(inputs, weight, bias, target, class_weight)


@formula("torch_nn::_linear_cross_entropy_batch_chunked", category="matmul")
def _linear_cross_entropy_reduced(signature: Signature) -> Work:
    names = " reduction ignore smoothing chunk policy dtype retain of_input of_weight of_bias"
    args = Arguments(signature, _LINEAR + names)
    of_input, of_weight, of_bias = args.flag("of_input"), args.flag("of_weight"), args.flag("of_bias")
    inputs, weight = args.tensor("input"), args.tensor("linear_weight")
    matrix, other, read = _linear_cross_entropy(args, of_input, of_weight, of_bias)
    results = 1 + inputs.numel * of_input + weight.numel * of_weight + weight.shape[0] * of_bias
    return Work(matrix, other, read, results * size_of(inputs.dtype), precision_of(inputs.dtype))


@formula("torch_nn::_linear_cross_entropy_batch_chunked_no_reduction", category="matmul")
def _linear_cross_entropy_of_each(signature: Signature) -> Work:
    args = Arguments(signature, _LINEAR)
    inputs = args.tensor("input")
    matrix, other, read = _linear_cross_entropy(args, False, False, False)
    return Work(matrix, other, read, inputs.shape[0] * size_of(inputs.dtype), precision_of(inputs.dtype))
