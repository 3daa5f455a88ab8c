"""Losses, forward and backward."""

from __future__ import annotations

from typing import Final

from rooflines.profiler.trace.signature import Argument
from rooflines.roofline.formulas import costs
from rooflines.roofline.formulas.arguments import every
from rooflines.roofline.formulas.rows import Row, Tensors, named, register


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


@named
def ctc_states(log_probs: Tensors, targets: Tensors, given: Argument, labels: Argument) -> tuple[int, int]:
    """States over all samples and steps, and the elements of ``log_probs`` that they look at, at most each of a step once.

    Lengths that are in a tensor are data: then every sample is as long as its rows.
    """
    steps, classes, samples = log_probs[0], log_probs[-1], log_probs[1] if log_probs.rank == 3 else 1
    # labels of a sample: a row of [n, l], or an even share of targets that follow one another
    length = targets[-1] if targets.rank > 1 else -(-targets.n // max(samples, 1))
    lengths = [(steps, length) for _ in every(samples)]
    if isinstance(given, tuple) and isinstance(labels, tuple):
        lengths = list(zip(given, labels, strict=True))
    states = sum(time * (2 * count + 1) for time, count in lengths)
    return states, sum(time * min(count + 1, classes) for time, count in lengths)


_TARGETS: Final = "read targets, read input_lengths?, read target_lengths?"
_STATES: Final = "ctc_states(log_probs, targets, known('input_lengths'), known('target_lengths'))"
# Of both recursions joined at every state (a log-sum of two); and exp(log_prob) - exp(sum) of every class.
_JOINED: Final = costs.LOG_ADD + 1
_CLASSES: Final = f"log_probs.n * {2 * costs.TRANSCENDENTAL + 4}"
_CTC: Final[dict[str, Row]] = {
    # The forward recursion; the logarithm of every state's probability is kept.
    "_ctc_loss": Row(
        f"view log_probs, {_TARGETS}", other=f"{_STATES}[0] * CTC_STEP", also=f"{_STATES}[1] * log_probs.item",
        writes="results().full", precision="log_probs",
    ),
    # the backward recursion, joined with the forward's
    "_ctc_loss_backward": Row(
        f"read grad, read log_probs, {_TARGETS}, read neg_log_likelihood, read log_alpha", result="log_probs", precision="log_probs",
        other=f"{_STATES}[0] * {costs.CTC_STEP + _JOINED} + {_CLASSES}",
    ),
    # both recursions and the gradient at once: a loss for each sample, and a gradient like ``log_probs``
    "_cudnn_ctc_loss miopen_ctc_loss": Row(
        f"read log_probs, {_TARGETS}", other=f"{_STATES}[0] * {2 * costs.CTC_STEP + _JOINED} + {_CLASSES}", result="log_probs",
        writes="(log_probs[1] if log_probs.rank == 3 else 1) * log_probs.item",
    ),
}  # fmt: skip
register(_CTC, "reduction", namespace="aten::")

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
