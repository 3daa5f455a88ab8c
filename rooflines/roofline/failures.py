"""Why a training failed: its loss became infinite or NaN, grew, or stayed at chance. The first of ``RULES`` that applies explains it.

Rules about a non-finite result read the first operator that gives one; rules about a loss that stays where it was read the gradients of
a step.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable
from statistics import fmean
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from rooflines.profiler.options import Precision
from rooflines.units import counted, percent

if TYPE_CHECKING:
    import torch

    from rooflines.profiler.dispatch.gradients import Gradients
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
# torch's first scale is 65,536, and each skipped step halves it: after as many it is below 1, and scaling is not the reason.
_SKIPS: Final = 17
# The loss of the last quarter of the steps: above this share of the loss at chance, or of the first quarter's, it has not improved.
AT_CHANCE: Final = 0.97
_UNCHANGED: Final = 0.99
# Gradients lost to underflow are a cause from this share on.
_LOST: Final = 0.2
# All steps together should change the loss by more than this share of it.
_PROGRESS: Final = 0.01
# With fewer trainable parameters, as a share of all, the frozen ones are a cause.
_TRAINED: Final = 0.01
_NAMES: Final = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp64"}
_OTHER_KERNEL: Final = (
    "Use fp32 or another 16-bit precision: this kernel fails on this device. For convolutions on CUDA, another cuDNN version or "
    "torch.backends.cudnn.enabled = False may help."
)


class TrainingFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the training loop knows.

    ``losses`` are those of all steps so far, in order, non-finite ones included. ``skipped_steps`` is how many of them the gradient
    scaler skipped, None without a scaler. ``classes`` is the number of classes of a classification with cross-entropy: its loss at
    chance is their logarithm.
    """

    losses: tuple[float, ...] = ()
    precision: Precision = "fp32"
    skipped_steps: int | None = None
    learning_rate: float | None = None
    classes: int | None = None


class Explanation(msgspec.Struct, frozen=True):
    """The likely cause of a failure.

    ``operator``, ``module`` and ``step`` name the place (empty and None where the cause has none), ``cause`` is a title, ``evidence`` a
    sentence with the measured figures, ``suggestion`` a sentence that says what to change.
    """

    cause: str
    evidence: str
    suggestion: str
    operator: str = ""
    module: str = ""
    step: int | None = None


class Case(NamedTuple):
    """Input of the rules: the training, the first non-finite result of a step of it, and the gradients of a step."""

    facts: TrainingFacts
    nonfinite: NonFinite | None = None
    gradients: Gradients | None = None

    @property
    def failed(self) -> NonFinite | None:
        """The first non-finite result, unless all that it causes is a step that the gradient scaler skips."""
        found = self.nonfinite
        skipped = self.facts.skipped_steps is not None and found is not None and found.reaches == ("gradients",)
        return None if skipped else found


Rule = Callable[[Case], Explanation | None]


def _at(explanation: Explanation, found: NonFinite | None) -> Explanation:
    """``explanation`` with the place of ``found``."""
    if found is None:
        return explanation
    return msgspec.structs.replace(explanation, operator=found.operator, module=found.module, step=found.step)


def _of_result(rule: Callable[[Case, NonFinite], Explanation | None]) -> Rule:
    """A rule about the first non-finite result, whose place it explains."""

    @functools.wraps(rule)
    def explained(case: Case) -> Explanation | None:
        found = case.failed
        explanation = rule(case, found) if found is not None else None
        return explanation and _at(explanation, found)

    return explained


def _of_loss(rule: Callable[[TrainingFacts, Gradients, str], Explanation | None]) -> Rule:
    """A rule about a loss that stays where it was (the sentence that says so) with finite numbers everywhere."""

    @functools.wraps(rule)
    def explained(case: Case) -> Explanation | None:
        stays = _stays(case.facts)
        return rule(case.facts, case.gradients, stays) if stays is not None and case.gradients is not None else None

    return explained


# --- parts of sentences ------------------------------------------------------------------------------------------------------------


def _precision(dtype: str) -> str:
    """``fp16`` for ``float16``."""
    return _NAMES.get(dtype, dtype)


def _number(value: float) -> str:
    """A number of any size: ``0.01``, ``2.3``, ``65,504``, ``1.2e+05``."""
    if value == round(value) and 1e3 <= abs(value) < 1e5:
        return f"{value:,.0f}"
    return f"{value:.3g}" if 1e-3 <= abs(value) < 1e3 or value == 0 else f"{value:.2g}"


def _place(found: NonFinite) -> str:
    """``aten::mm in fc (Linear)``, ``aten::mm in the backward pass of fc (Linear)``, ``aten::addcdiv_ in the optimizer step``."""
    module = f"{found.module or 'the network'}{f' ({found.module_type})' if found.module_type else ''}"
    inside = bool(found.module or found.module_type)
    if found.phase == "optimizer":
        return f"{found.operator} in the optimizer step"
    if found.phase == "backward":
        return f"{found.operator} in the backward pass{f' of {module}' if inside else ''}"
    return f"{found.operator} in {module}" if inside else found.operator


def _what(found: NonFinite) -> str:
    return "NaN" if found.what == "nan" else "inf"


def _result(found: NonFinite) -> str:
    """``aten::mm in fc (Linear) gives inf for 25 % of its elements in fp16``."""
    return f"{_place(found)} gives {_what(found)} for {percent(found.share)} of its elements in {_precision(found.dtype)}"


def _inputs(found: NonFinite) -> str:
    """``from finite inputs (largest magnitude 40,000)``."""
    largest = f" (largest magnitude {_number(found.input_magnitude)})" if found.input_magnitude is not None else ""
    return f"from finite inputs{largest}"


def _again(found: NonFinite) -> str:
    """``the same call gives 1.2e+05 in fp32``."""
    if found.wider is None or found.wider_magnitude is None:
        return "the call could not be repeated in fp32"
    return f"the same call gives {_number(found.wider_magnitude)} in {_precision(found.wider)}"


def _exceeds(found: NonFinite) -> str:
    """``... gives inf ...; the same call gives 1.2e+05 in fp32, and fp16 ends at 65,504.``"""
    limit = _LARGEST.get(found.dtype)
    ends = f", and {_precision(found.dtype)} ends at {_number(limit)}" if limit is not None else ""
    if found.wider_magnitude is not None and limit is not None and found.wider_magnitude <= limit:
        ends += ": a sum inside the operator is larger"
    return f"{_result(found)}; {_again(found)}{ends}."


def _stays(facts: TrainingFacts) -> str | None:
    """``The loss stays at 2.30 over 40 steps (2.30 at chance of 10 classes)``; None if it improves or is not finite."""
    losses = facts.losses
    if len(losses) < 2 or not all(map(math.isfinite, losses)):
        return None
    quarter = max(1, len(losses) // 4)
    first, last = fmean(losses[:quarter]), fmean(losses[-quarter:])
    chance = math.log(facts.classes) if facts.classes and facts.classes > 1 else None
    if not (last >= first - (1 - _UNCHANGED) * abs(first) or (chance is not None and last >= AT_CHANCE * chance)):
        return None
    at_chance = f" ({_number(chance)} is chance for {facts.classes:,} classes)" if chance is not None else ""
    return f"The loss stays at {_number(last)} over {counted(len(losses), 'step')}{at_chance}"


# --- non-finite results ------------------------------------------------------------------------------------------------------------


@_of_result
def _masked_row(case: Case, found: NonFinite) -> Explanation | None:
    """A softmax over a row that holds ``-inf`` alone."""
    if found.what != "nan" or found.inputs != "inf" or not _SOFTMAX.search(found.operator):
        return None
    return Explanation(
        "Softmax over infinities",
        f"{_result(found)}, and its inputs hold infinities. A row that is masked completely (only -inf) gives NaN.",
        "Leave at least one position of every row unmasked, or mask with torch.finfo(dtype).min.",
    )


@_of_result
def _not_finite_before(case: Case, found: NonFinite) -> Explanation | None:
    """A batch that is not finite itself, or parameters that an earlier step or the checkpoint made non-finite."""
    if not found.given:
        return None
    held = "NaN" if found.inputs == "nan" else "infinities"
    if found.given == "input":
        return Explanation(
            "Non-finite input data",
            f"An input of the step holds {held} before the step; {_place(found)} is the first operator that fails on it.",
            "Check each batch with torch.isfinite(batch).all(), and correct the data or the transform that makes these values.",
        )
    which = "A parameter" if found.given == "parameter" else found.given
    return Explanation(
        "Parameters that were not finite before the step",
        f"{which} holds {held} before the step; {_place(found)} is the first operator that uses it.",
        "Repeat the steps from an earlier checkpoint to find the operator that made them.",
    )


def _every_step_skipped(case: Case) -> Explanation | None:
    """Gradients that are never finite: the scale falls, and no parameter changes."""
    steps, found = len(case.facts.losses), case.nonfinite
    defect = found if found is not None and _nan_for_a_small_result(found) else None
    if not steps or case.facts.skipped_steps != steps or not (defect is not None or steps >= _SKIPS):
        return None
    first, suggestion = "", "Use fp32 or amp-bf16."
    if defect is not None:
        first, suggestion = f" {_result(defect)} {_inputs(defect)}; {_again(defect)}.", _OTHER_KERNEL
    elif found is not None and found.inputs == "finite" and _overflows(found):
        first, suggestion = f" {_exceeds(found)}", "Use amp-bf16: a lower scale does not help."
    elif found is not None:
        first = f" {_result(found)}."
    evidence = f"The scaler skipped all {steps:,} steps because gradients were not finite: no parameter changed.{first}"
    return _at(Explanation("The gradient scaler skips every step", evidence, suggestion), found)


@_of_result
def _wrong_kernel(case: Case, found: NonFinite) -> Explanation | None:
    """An operator that gives NaN in low precision, though the result fits."""
    if not _nan_for_a_small_result(found):
        return None
    evidence = f"{_result(found)} {_inputs(found)}; {_again(found)}."
    return Explanation(f"Wrong result in {_precision(found.dtype)}", evidence, _OTHER_KERNEL)


def _nan_for_a_small_result(found: NonFinite) -> bool:
    """Whether it is NaN in a 16-bit type, from finite inputs, and fp32 gives a result that the type can hold."""
    low = found.what == "nan" and found.inputs == "finite" and found.dtype in ("float16", "bfloat16")
    return low and found.wider_magnitude is not None and found.wider_magnitude <= _LARGEST[found.dtype]


def _divergence(case: Case) -> Explanation | None:
    """A loss that grew over the steps before the first one that is not finite."""
    every, found = case.facts.losses, case.failed
    losses = every[: next((step for step, loss in enumerate(every) if not math.isfinite(loss)), len(every))]
    last = max(losses[-_LAST:], default=0.0)
    if not losses or losses[0] <= 0 or last <= _DIVERGED * losses[0]:
        return None
    rate = case.facts.learning_rate
    at, lower = (f" at a learning rate of {_number(rate)}", f" (for example to {_number(rate / 10)})") if rate else ("", "")
    then = "" if found is None else f"; then {_result(found)}"
    explanation = Explanation(
        "Divergence",
        f"The loss grew from {_number(losses[0])} to {_number(last)} over {counted(len(losses), 'step')}{at}{then}.",
        f"Lower the learning rate{lower}, warm it up, or clip the gradients (torch.nn.utils.clip_grad_norm_).",
    )
    return _at(explanation, found)


@_of_result
def _overflow(case: Case, found: NonFinite) -> Explanation | None:
    """A result beyond the range of its type."""
    if found.inputs != "finite" or found.filled or not _overflows(found):
        return None
    low = _precision(found.dtype)
    unscaled = low == "fp16" and found.phase == "backward" and case.facts.skipped_steps is None
    suggestion = (
        "Lower the learning rate or clip the gradients if the inputs have grown; use logsumexp or log_softmax for exponentials."
    )
    return Explanation(
        f"{low} overflow{' without a gradient scaler' if unscaled else ''}",
        _exceeds(found),
        _in_range(case, found) if low == "fp16" else suggestion,
    )


def _overflows(found: NonFinite) -> bool:
    """Whether the same call is finite in a wider type; for fp16 also if it could not be repeated."""
    return found.wider_finite is True or (found.wider_finite is None and found.dtype == "float16" and found.what == "inf")


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


@_of_result
def _constant(case: Case, found: NonFinite) -> Explanation | None:
    """A non-finite number that the program fills in itself."""
    if not found.filled:
        return None
    filled = "NaN" if found.what == "nan" else "infinities"
    return Explanation(
        "A non-finite constant reaches the loss",
        f"{_place(found)} fills in {filled}, and {' and '.join(map(_REACHED.__getitem__, found.reaches))} became non-finite.",
        "Fill in a large finite number (torch.finfo(dtype).min), or leave these elements out of the loss.",
    )


@_of_result
def _infinities(case: Case, found: NonFinite) -> Explanation | None:
    """NaN from infinities that were meant until then."""
    if found.what != "nan" or found.inputs != "inf":
        return None
    return Explanation(
        "NaN from infinities",
        f"{_result(found)}, and its inputs hold infinities (inf - inf and 0 * inf are NaN).",
        "Replace the infinities by large finite numbers (torch.finfo(dtype).min) before this operator.",
    )


@_of_result
def _undefined(case: Case, found: NonFinite) -> Explanation | None:
    """A division by zero, a logarithm of zero, the slope of a root at zero: no type has a finite result."""
    if found.inputs != "finite":
        return None
    operator = found.operator.removeprefix("aten::").removeprefix("_foreach_").rstrip("_")
    node = _NODE.match(found.node)
    what = _BACKWARD.get(node[1] if node else "") or _FORWARD.get(operator)
    wide = f", also in {_precision(found.wider)}" if found.wider is not None else ""
    suggestion = (
        "Keep the argument away from that point: add a small number (x + 1e-8) or clamp it (x.clamp(min=1e-8)). For logarithms of "
        "probabilities use log_softmax, cross_entropy or binary_cross_entropy_with_logits."
    )
    return Explanation(
        f"Undefined result: {what}" if what else "Undefined result",
        f"{_result(found)} {_inputs(found)}{wide}.",
        "Leave out batches and groups for which nothing is left to average." if operator in _REDUCTIONS else suggestion,
    )


# --- a loss that stays where it was ------------------------------------------------------------------------------------------------


@_of_loss
def _underflow(facts: TrainingFacts, found: Gradients, stays: str) -> Explanation | None:
    """Gradients too small for fp16, without a scaler."""
    if facts.skipped_steps is not None or found.underflow_share is None or found.underflow_share < _LOST:
        return None
    operator = f"{found.underflow_operator} of {found.underflow_module}" if found.underflow_module else found.underflow_operator
    return Explanation(
        "Gradients underflow in fp16",
        f"{stays}. Of the elements of the backward pass that are not zero in fp32, {percent(found.underflow_share)} are zero in fp16, "
        f"most of them in {operator}; {percent(found.zero_share)} of the gradients of parameters are zero.",
        "Use a gradient scaler (torch.amp.GradScaler), or amp-bf16.",
        found.underflow_operator,
        found.underflow_module,
    )


@_of_loss
def _silent(facts: TrainingFacts, found: Gradients, stays: str) -> Explanation | None:
    """A rectifier that outputs zeros only (dead ReLUs)."""
    if not found.silent:
        return None
    more = f" (and of {len(found.silent) - 1} more)" if len(found.silent) > 1 else ""
    return Explanation(
        "Dead ReLUs",
        f"{stays}. The output of {found.silent[0] or 'a ReLU of the network'}{more} is zero for the whole batch, so no gradient passes "
        f"it: {percent(found.zero_share)} of the gradients of parameters are zero.",
        "Start again with a lower learning rate or smaller biases, normalize its input, or use LeakyReLU or GELU.",
        module=found.silent[0],
    )


@_of_loss
def _no_gradient(facts: TrainingFacts, found: Gradients, stays: str) -> Explanation | None:
    """A loss that does not depend on any parameter."""
    if found.zero_share < 1 or not found.trainable:
        return None
    return Explanation(
        "No gradient reaches the parameters",
        f"{stays}. The gradients of all {found.trainable:,} trainable parameters are zero or missing.",
        "Check that the loss is computed from the output of the network, without detach(), torch.no_grad() or argmax().",
    )


@_of_loss
def _not_updated(facts: TrainingFacts, found: Gradients, stays: str) -> Explanation | None:
    """Gradients, and an optimizer that does not change what they belong to."""
    if not found.norm or found.loss_change != 0 or facts.skipped_steps:
        return None
    return Explanation(
        "The optimizer does not change the parameters",
        f"{stays}. The gradients have a norm of {_number(found.norm)}, and no trainable parameter changes in a step.",
        f"Keep the parameters in fp32 (amp-bf16): an update may be too small for {facts.precision}."
        if facts.precision in ("fp16", "bf16")
        else "Create the optimizer after the layers were replaced, from the network's own parameters, and check its learning rate.",
    )


@_of_loss
def _small_steps(facts: TrainingFacts, found: Gradients, stays: str) -> Explanation | None:
    """Steps that are too small for the loss to change (learning rate)."""
    loss, steps = abs(facts.losses[-1]), len(facts.losses)
    if not found.loss_change or not found.norm or abs(found.loss_change) * steps >= _PROGRESS * loss:
        return None
    rate = f" at a learning rate of {_number(facts.learning_rate)}" if facts.learning_rate is not None else ""
    return Explanation(
        "Steps too small",
        f"{stays}. A step changes the loss by about {_number(found.loss_change)}{rate} (gradient norm {_number(found.norm)}): "
        f"{percent(abs(found.loss_change) * steps / loss)} of it in all steps together.",
        "Raise the learning rate, or train for longer.",
    )


@_of_loss
def _frozen(facts: TrainingFacts, found: Gradients, stays: str) -> Explanation | None:
    """Parameters of which few are trained."""
    if found.trainable > _TRAINED * found.elements:
        return None
    return Explanation(
        "Frozen parameters",
        f"{stays}. Only {found.trainable:,} of {found.elements:,} parameter elements are trainable.",
        "Set requires_grad on the layers that should learn, and give them to the optimizer.",
    )


# Special rules first.
RULES: Final[tuple[Rule, ...]] = (
    _masked_row, _not_finite_before, _every_step_skipped, _wrong_kernel, _divergence, _overflow, _constant, _infinities, _undefined,
    _underflow, _silent, _no_gradient, _not_updated, _small_steps, _frozen,
)  # fmt: skip


def explain(facts: TrainingFacts, nonfinite: NonFinite | None = None, gradients: Gradients | None = None) -> Explanation | None:
    """Return the likely cause of a failed training; None if no rule applies.

    ``nonfinite`` is what ``first_nonfinite`` returned for the step that failed, ``gradients`` what ``gradients_of`` returned for a step
    of a training whose loss stays where it was.
    """
    case = Case(facts, nonfinite, gradients)
    return next((found for rule in RULES if (found := rule(case)) is not None), None)


def explain_step(step: Callable[[], object], network: torch.nn.Module, facts: TrainingFacts) -> Explanation | None:
    """Run ``step`` of the training of ``network`` again, at most twice, and return the likely cause of its failure.

    ``step`` returns its loss; it is taken as the last one in ``facts``. For a loss that became non-finite, ``network`` must hold the
    parameters from before that step (docs/training.md). Parameters change. What the step raises passes through.
    """
    from rooflines.profiler.dispatch.gradients import gradients_of
    from rooflines.profiler.dispatch.nonfinite import first_nonfinite

    found = first_nonfinite(step, network, first=max(1, len(facts.losses)))
    explanation = explain(facts, found)
    return explanation or explain(facts, found, gradients_of(step, network))
