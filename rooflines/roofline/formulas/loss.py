"""Losses, forward and backward."""

from __future__ import annotations

from typing import Final

from rooflines.profiler.trace.signature import Signature
from rooflines.roofline.formulas import costs
from rooflines.roofline.formulas.arguments import Arguments, every, size, size_of, written
from rooflines.roofline.formulas.record import Work, precision_of
from rooflines.roofline.formulas.registry import Hints, formula, hinted_formula
from rooflines.roofline.formulas.rows import Row, register


def _loss(schema: str, each: str, other: str, reads: str = "", kept: str = "0", where: str = "") -> Row:
    """The row of a loss: ``each`` losses are written, or their mean or sum, which is the default where traces record no values, and
    ``kept`` numbers for the backward."""
    losses = f"(({each}) if value('reduction') == 0 else 1)"  # at::Reduction: None, Mean, Sum
    return Row(schema, other=other, reads=reads, writes=f"({losses} + {kept}) * self.item", precision="self", where=where)


# Picks one log-probability for each target: [n, c] read at n places, negated and summed.
_NLL: Final = "view self, read target, read weight?, reduction=1"
_NLL_FLOPS: Final = "target.n * (4 if weight else 2)"
_NLL_READS: Final = "selected(self, target.n) + target.size + weight.size"
_LOSSES: Final[dict[str, Row]] = {
    "nll_loss nll_loss_nd nll_loss2d": _loss(_NLL, "target.n", _NLL_FLOPS, _NLL_READS),
    # the sum of weights is kept
    "nll_loss_forward nll_loss2d_forward": _loss(_NLL, "target.n", _NLL_FLOPS, _NLL_READS, kept="1"),
    # A gradient of zeros, but for each target's place. The log-probabilities give only their shape and are not read.
    "nll_loss_backward nll_loss2d_backward": Row(
        "read grad, view self, read target, read weight?, reduction=1, ignore, view total_weight?", 1, per="target", result="self",
        reads="grad.size + target.size + weight.size + (total_weight.size if value('reduction') in (None, 1) else 0)",
        precision="self",
    ),
    # log_softmax over the classes, then the target's entry; label smoothing, or targets that are probabilities, touch every entry
    "cross_entropy_loss": _loss(
        "read self, read target, read weight?, reduction=1, ignore=-100, smoothing=0.0",
        "samples", "self.n * (SOFTMAX + 2 * probable + smooth) + 2 * samples",
        where="probable = target.shape == self.shape;"
        " samples = self.n // (self[1 if self.rank > 1 else 0] or 1) if probable else target.n;"
        " smooth = isinstance(value('smoothing'), float) and value('smoothing') > 0",
    ),
    # max(0, margin - x[target] + x)^p over every class of a sample: subtract, add, maximum, sum; a product for p = 2, for weights
    "multi_margin_loss": _loss(
        "read self, read target, p=1, margin=1, read weight?, reduction=1",
        "target.n", "self.n * (4 + (known('p') == 2) + bool(weight))",
    ),
    # every class above the margin pushes the sample's own down: margin - x[target] + x, compare, add to it
    "multi_margin_loss_backward": Row(
        "read grad, read self, read target, p, margin, read weight?",
        other="self.n * (4 + 2 * (known('p') == 2) + bool(weight))", result="self", precision="self",
    ),
    # max(0, 1 - x[label] + x) over every class that is not a label; the label mask is a second result, of the input's dtype. How many
    # labels a sample has is in the data: these count one, against all classes.
    "multilabel_margin_loss_forward": _loss(
        "read self, read target, reduction", "self[0] if self.rank > 1 else 1", "4 * self.n", kept="target.n"
    ),
    "multilabel_margin_loss_backward": Row(
        "read grad, read self, read target, reduction, read is_target", 4, per="self", result="self", precision="self"
    ),
}  # fmt: skip
# Element-wise losses -> FLOPs an element with the sum, FLOPs an element of the gradient, the tensors after the target.
_ELEMENTWISE: Final[dict[str, tuple[int, int, str]]] = {
    "mse_loss": (3, 3, ""),  # subtract, square, add; 2 * (x - t) * g
    "l1_loss": (3, 3, ""),
    "smooth_l1_loss": (5, 4, ""),
    "huber_loss": (5, 4, ""),
    "soft_margin_loss": (costs.SOFTPLUS + 3, costs.SIGMOID + 3, ""),
    # t * log(x) + (1 - t) * log(1 - x)
    "binary_cross_entropy": (2 * costs.TRANSCENDENTAL + 6, 5, ", read weight?"),
    # max(x, 0) - x * t + log(1 + exp(-|x|))
    "binary_cross_entropy_with_logits": (costs.SOFTPLUS + 6, costs.SIGMOID + 2, ", read weight?, read pos_weight?"),
    "kl_div": (costs.TRANSCENDENTAL + 4, 3, ""),
}
for _name, (_cost, _gradient_cost, _weights) in _ELEMENTWISE.items():
    _each = "joined(self, target)"
    _LOSSES[_name] = _loss(f"read self, read target{_weights}, reduction=1", _each, f"{_cost} * {_each}")
    _LOSSES[f"{_name}_backward"] = Row(
        "read grad, read self, read target, read weight?", _gradient_cost, per="self", result="self", precision="self"
    )
register(_LOSSES, "reduction", namespace="aten::")


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
    # labels of a sample: a row of [n, l], or an even share of targets that follow one another
    length = targets.shape[-1] if len(targets.shape) > 1 else -(-targets.numel // max(samples, 1))
    lengths = [(steps, length) for _ in every(samples)]
    given, labels = args.value("input_lengths"), args.value("target_lengths")
    if isinstance(given, tuple) and isinstance(labels, tuple):
        lengths = list(zip(given, labels, strict=True))
    states = sum(time * (2 * count + 1) for time, count in lengths)
    return states, sum(time * min(count + 1, classes) for time, count in lengths)


_CTC: Final = "log_probs targets input_lengths target_lengths blank"
# Of both recursions joined at every state (a log-sum of two); and exp(log_prob) - exp(sum) of every class.
_JOINED: Final = costs.LOG_ADD + 1
_CLASS: Final = 2 * costs.TRANSCENDENTAL + 4


def _ctc_work(args: Arguments, state_cost: int, read: int, made: int, gradient: bool) -> Work:
    """``state_cost`` FLOPs of every state; ``read`` and ``made`` are bytes besides the targets and what a gradient is as large as."""
    log_probs, states = args.tensor("log_probs"), _ctc_states(args)[0]
    return Work(
        other_flops=states * state_cost + log_probs.numel * _CLASS * gradient,
        bytes_read=read + size(args.tensor("targets"), args.optional("input_lengths"), args.optional("target_lengths")),
        bytes_written=made + written(log_probs) * gradient,
        precision=precision_of(log_probs.dtype),
    )


@hinted_formula("aten::_ctc_loss", category="reduction")
def _ctc(signature: Signature, hints: Hints) -> Work:
    """The forward recursion; the logarithm of every state's probability is kept."""
    args = Arguments(signature, _CTC)
    looked_at = _ctc_states(args)[1] * size_of(args.tensor("log_probs").dtype)
    return _ctc_work(args, costs.CTC_STEP, looked_at, written(*hints.results(signature)), gradient=False)


@formula("aten::_ctc_loss_backward", category="reduction")
def _ctc_backward(signature: Signature) -> Work:
    """The backward recursion, joined with the forward's."""
    args = Arguments(signature, "grad log_probs targets input_lengths target_lengths neg_log_likelihood log_alpha")
    read = size(*(args.tensor(name) for name in ("grad", "log_probs", "neg_log_likelihood", "log_alpha")))
    return _ctc_work(args, costs.CTC_STEP + _JOINED, read, 0, gradient=True)


@formula("aten::_cudnn_ctc_loss", "aten::miopen_ctc_loss", category="reduction")
def _ctc_with_gradient(signature: Signature) -> Work:
    """Both recursions and the gradient at once: a loss for each sample, and a gradient like ``log_probs``."""
    args = Arguments(signature, _CTC)
    log_probs = args.tensor("log_probs")
    losses = (log_probs.shape[1] if len(log_probs.shape) == 3 else 1) * size_of(log_probs.dtype)
    return _ctc_work(args, 2 * costs.CTC_STEP + _JOINED, size(log_probs), losses, gradient=True)


# The last layer of a language model and its loss at once: input [n, f], weight [c, f], never all of the logits [n, c]. Gradients are
# computed along with the loss: softmax minus target, a product for each.
_LINEAR: Final = "read input[n f], read linear_weight[c g], read target, read linear_bias?, read weight?"
_GRADIENTS: Final = "reduction, ignore, smoothing, chunk, policy, dtype, retain, of_input, of_weight, of_bias"
_LINEAR_LOSSES: Final[dict[str, Row]] = {
    "_linear_cross_entropy_batch_chunked": Row(
        f"{_LINEAR}, {_GRADIENTS}", matrix="2 * n * c * f * (1 + of_input + of_weight)",
        other="n * c * (SOFTMAX + bool(linear_bias) + 2 * (of_input or of_weight or of_bias) + of_bias) + 2 * n",
        writes="(1 + input.n * of_input + linear_weight.n * of_weight + c * of_bias) * input.item",
    ),
    "_linear_cross_entropy_batch_chunked_no_reduction": Row(
        _LINEAR, matrix="2 * n * c * f", other="n * c * (SOFTMAX + bool(linear_bias)) + 2 * n", writes="n * input.item"
    ),
}  # fmt: skip
register(_LINEAR_LOSSES, "matmul", namespace="torch_nn::")
