"""Causes of an infinite or NaN loss, gradient or parameter, from the first operator whose result is not finite."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from rooflines.roofline.failures.records import Case, Explanation
from rooflines.roofline.failures.sentences import again, explained, inputs, number, place, precision, result
from rooflines.units import counted

if TYPE_CHECKING:
    from rooflines.profiler.dispatch.nonfinite import NonFinite

# The largest finite number of each type.
_LARGEST: Final = {"float16": 65504.0, "bfloat16": 3.3895e38, "float32": 3.4028e38, "float64": 1.7977e308}
# A loss above this multiple of the first one, among the last few steps before it fails, has diverged.
_DIVERGED: Final = 2.0
_LAST: Final = 3
_NODE: Final = re.compile(r"([A-Z]\w*?)Backward\d+")
_REACHED: Final = {"result": "the loss", "gradients": "gradients", "parameters": "parameters"}
_REDUCTIONS: Final = frozenset({"mean", "nll_loss_forward", "nll_loss2d_forward", "var", "std", "var_mean", "std_mean"})
_PRODUCTS: Final = re.compile("mm|mv|dot|convolution|linear|attention")
_SOFTMAX: Final = re.compile("softmax|attention")

_LOGARITHM = "the logarithm of a number that is not positive"
_NO_TARGETS = "an average over no targets (all are ignored, or their weights are zero)"
# What has no finite result: in the forward pass by the operator, in the backward pass by autograd's function.
_FORWARD: Final = {
    "div": "a division by zero",
    "reciprocal": "a division by zero",
    **dict.fromkeys(("log", "log2", "log10", "log1p", "logit"), _LOGARITHM),
    "sqrt": "the square root of a negative number",
    "rsqrt": "the inverse square root of a number that is not positive",
    "pow": "a power that is not defined for its base",
    **dict.fromkeys(("acos", "asin", "acosh", "atanh"), "a function outside of its domain"),
    "mean": "an average over no elements",
    **dict.fromkeys(("nll_loss_forward", "nll_loss2d_forward"), _NO_TARGETS),
    **dict.fromkeys(("var", "std", "var_mean", "std_mean"), "the variance of a single element"),
}
_BACKWARD: Final = {
    "Sqrt": "the slope of sqrt at 0",
    "Rsqrt": "the slope of rsqrt at 0",
    "Pow": "the slope of a power at 0",
    "Log": "the slope of log at 0",
    "Div": "the slope of a division by zero",
    "Reciprocal": "the slope of 1/x at 0",
    "Acos": "the slope of acos at 1",
    "Asin": "the slope of asin at 1",
    "Std": "the slope of a standard deviation of 0",
}


OTHER_KERNEL: Final = (
    "Use fp32 or another 16-bit precision: this kernel fails on this device. For convolutions on CUDA, another cuDNN version or "
    "torch.backends.cudnn.enabled = False may help."
)


def masked_row(case: Case) -> Explanation | None:
    """A softmax over a row that holds ``-inf`` alone."""
    found = case.failed
    if found is None or found.what != "nan" or found.inputs != "inf" or not _SOFTMAX.search(found.operator):
        return None
    return explained(
        found,
        cause="Softmax over infinities",
        evidence=f"{result(found)}, and its inputs hold infinities. A row that is masked completely (only -inf) gives NaN.",
        suggestion="Leave at least one position of every row unmasked, or mask with torch.finfo(dtype).min.",
    )


def data(case: Case) -> Explanation | None:
    """A batch that is not finite itself."""
    found = case.failed
    if found is None or found.given != "input":
        return None
    held = "NaN" if found.inputs == "nan" else "infinities"
    return explained(
        found,
        cause="Non-finite input data",
        evidence=f"An input of the step holds {held} before the step; {place(found)} is the first operator that fails on it.",
        suggestion="Check each batch with torch.isfinite(batch).all(), and correct the data or the transform that makes these values.",
    )


def parameters(case: Case) -> Explanation | None:
    """Parameters that an earlier step, or the checkpoint, made non-finite."""
    found = case.failed
    if found is None or not found.given:
        return None
    held = "NaN" if found.inputs == "nan" else "infinities"
    which = "A parameter" if found.given == "parameter" else found.given
    return explained(
        found,
        cause="Parameters that were not finite before the step",
        evidence=f"{which} holds {held} before the step; {place(found)} is the first operator that uses it.",
        suggestion="Repeat the steps from an earlier checkpoint to find the operator that made them.",
    )


def kernel(case: Case) -> Explanation | None:
    """An operator that gives NaN in low precision, though the result fits."""
    found = case.failed
    if found is None or not nan_for_a_small_result(found):
        return None
    return explained(
        found,
        cause=f"Wrong result in {precision(found.dtype)}",
        evidence=f"{result(found)} {inputs(found)}; {again(found)}.",
        suggestion=OTHER_KERNEL,
    )


def nan_for_a_small_result(found: NonFinite) -> bool:
    """Whether it is NaN in a 16-bit type, from finite inputs, and fp32 gives a result that the type can hold."""
    return (
        found.what == "nan"
        and found.inputs == "finite"
        and found.dtype in ("float16", "bfloat16")
        and found.wider_magnitude is not None
        and found.wider_magnitude <= _LARGEST[found.dtype]
    )


def overflow(case: Case) -> Explanation | None:
    """A result beyond the range of its type."""
    found = case.failed
    if found is None or found.inputs != "finite" or found.filled or not overflows(found):
        return None
    low = precision(found.dtype)
    unscaled = found.phase == "backward" and case.facts.skipped_steps is None
    return explained(
        found,
        cause=f"{low} overflow" + (" without a gradient scaler" if low == "fp16" and unscaled else ""),
        evidence=exceeds(found),
        suggestion=_in_range(case, found)
        if low == "fp16"
        else "Lower the learning rate or clip the gradients if the inputs have grown; use logsumexp or log_softmax for exponentials.",
    )


def overflows(found: NonFinite) -> bool:
    """Whether the same call is finite in a wider type; for fp16 also if it could not be repeated."""
    return found.wider_finite is True or (found.wider_finite is None and found.dtype == "float16" and found.what == "inf")


def exceeds(found: NonFinite) -> str:
    """``... gives inf ...; the same call gives 1.2e+05 in fp32, and fp16 ends at 65,504.``"""
    limit = _LARGEST.get(found.dtype)
    ends = f", and {precision(found.dtype)} ends at {number(limit)}" if limit is not None else ""
    if found.wider_magnitude is not None and limit is not None and found.wider_magnitude <= limit:
        ends += ": a sum inside the operator is larger"
    return f"{result(found)}; {again(found)}{ends}."


def _in_range(case: Case, found: NonFinite) -> str:
    """What to do about a number that is too large for fp16."""
    if found.phase == "optimizer":
        return "Keep the parameters and the optimizer's state in fp32: use amp-bf16, or amp-fp16 with a gradient scaler."
    if found.phase == "backward":
        return "Use amp-bf16, or amp-fp16 with a gradient scaler: it lowers its scale until the gradients fit."
    if case.facts.precision == "fp16" and not _PRODUCTS.search(found.operator):
        return "Use amp-bf16, or amp-fp16 with a gradient scaler: autocast leaves most operators other than products in fp32."
    where = found.module or "this operator"
    return f"Use amp-bf16, or compute {where} in fp32: a gradient scaler scales gradients, not the forward pass."


def divergence(case: Case) -> Explanation | None:
    """A loss that grew over the steps before."""
    losses, found = case.finite_losses, case.failed
    last = max(losses[-_LAST:], default=0.0)
    if not losses or losses[0] <= 0 or last <= _DIVERGED * losses[0]:
        return None
    rate = case.facts.learning_rate
    at, lower = "", ""
    if rate:
        at, lower = f" at a learning rate of {number(rate)}", f" (for example to {number(rate / 10)})"
    return Explanation(
        cause="Divergence",
        evidence=f"The loss grew from {number(losses[0])} to {number(last)} over {counted(len(losses), 'step')}{at}"
        f"{'' if found is None else f'; then {result(found)}'}.",
        suggestion=f"Lower the learning rate{lower}, warm it up, or clip the gradients (torch.nn.utils.clip_grad_norm_).",
        operator=found.operator if found is not None else "",
        module=found.module if found is not None else "",
        step=found.step if found is not None else None,
    )


def constant(case: Case) -> Explanation | None:
    """A non-finite number that the program fills in itself."""
    found = case.failed
    if found is None or not found.filled:
        return None
    filled = "NaN" if found.what == "nan" else "infinities"
    return explained(
        found,
        cause="A non-finite constant reaches the loss",
        evidence=f"{place(found)} fills in {filled}, and {' and '.join(map(_REACHED.__getitem__, found.reaches))} became non-finite.",
        suggestion="Fill in a large finite number (torch.finfo(dtype).min), or leave these elements out of the loss.",
    )


def infinities(case: Case) -> Explanation | None:
    """NaN from infinities that were meant until then."""
    found = case.failed
    if found is None or found.what != "nan" or found.inputs != "inf":
        return None
    return explained(
        found,
        cause="NaN from infinities",
        evidence=f"{result(found)}, and its inputs hold infinities (inf - inf and 0 * inf are NaN).",
        suggestion="Replace the infinities by large finite numbers (torch.finfo(dtype).min) before this operator.",
    )


def undefined(case: Case) -> Explanation | None:
    """A division by zero, a logarithm of zero, the slope of a root at zero: no type has a finite result."""
    found = case.failed
    if found is None or found.inputs != "finite":
        return None
    operator = found.operator.removeprefix("aten::").removeprefix("_foreach_").rstrip("_")
    node = _NODE.match(found.node)
    what = _BACKWARD.get(node[1] if node else "") or _FORWARD.get(operator)
    wide = f", also in {precision(found.wider)}" if found.wider is not None else ""
    return explained(
        found,
        cause=f"Undefined result: {what}" if what else "Undefined result",
        evidence=f"{result(found)} {inputs(found)}{wide}.",
        suggestion="Leave out batches and groups for which nothing is left to average."
        if operator in _REDUCTIONS
        else "Keep the argument away from that point: add a small number (x + 1e-8) or clamp it (x.clamp(min=1e-8)). For logarithms of "
        "probabilities use log_softmax, cross_entropy or binary_cross_entropy_with_logits.",
    )
