"""The likely cause of a failed training: its loss became infinite or NaN, grew, or stayed at chance.

``explain`` tests the causes in order. Those of a non-finite result read the first operator that gives one; those of a loss that stays
where it was read what one step does.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from statistics import fmean
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from rooflines.roofline.formulas.record import precision_of
from rooflines.units import counted, percent

if TYPE_CHECKING:
    import torch

    from rooflines.profiler.dispatch.nonfinite import NonFinite

_LARGEST: Final = {"float16": 65504.0, "bfloat16": 3.3895e38, "float32": 3.4028e38, "float64": 1.7977e308}
# A loss above this multiple of the first one, among the last few steps before it fails, has diverged.
_DIVERGED: Final = 2.0
_LAST: Final = 3
# torch's first scale is 65,536, and each skipped step halves it: after as many it is below 1, and scaling is not the reason.
_SKIPS: Final = 17
# The loss of the last quarter of the steps: above this share of the loss at chance, or of the first quarter's, it has not improved.
AT_CHANCE: Final = 0.97
_UNCHANGED: Final = 0.99
# All steps together should change the loss by more than this share of it.
_PROGRESS: Final = 0.01
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


class Update(NamedTuple):
    """The effect of a training step: the change of its loss to first order, and the modules (ReLU) whose whole output is zero."""

    loss_change: float
    silent: tuple[str, ...]


def explain(facts: TrainingFacts, nonfinite: NonFinite | None = None, update: Update | None = None) -> Explanation | None:
    """Return the likely cause of a failed training; None if none is known.

    ``nonfinite`` is what ``first_nonfinite`` returned for the step that failed, ``update`` what ``update_of`` returned for a step of a
    training whose loss stays where it was.
    """
    cause = _of_nonfinite(facts, nonfinite)
    if cause is not None:
        place = (nonfinite.operator, nonfinite.module, nonfinite.step) if nonfinite is not None else ()
        return Explanation(*cause, *place)
    return _of_update(facts, update) if update is not None else None


def explain_step(step: Callable[[], object], network: torch.nn.Module, facts: TrainingFacts) -> Explanation | None:
    """Run ``step`` of the training of ``network`` again, at most twice, and return the likely cause of its failure.

    ``step`` returns its loss; it is taken as the last one in ``facts``. For a loss that became non-finite, ``network`` must hold the
    parameters from before that step (docs/training.md). Parameters change. What the step raises passes through.
    """
    from rooflines.profiler.dispatch.nonfinite import first_nonfinite

    nonfinite = first_nonfinite(step, network, first=max(1, len(facts.losses)))
    explanation = explain(facts, nonfinite)
    return explanation or explain(facts, nonfinite, update_of(step, network))


def update_of(step: Callable[[], object], network: torch.nn.Module) -> Update:
    """Run one training step of ``network`` and return its effect. Parameters change; what the step raises passes through."""
    import torch

    silent: dict[str, None] = {}
    parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]
    before = [parameter.detach().clone() for parameter in parameters]
    with contextlib.ExitStack() as stack:
        for name, module in network.named_modules():
            if isinstance(module, (torch.nn.ReLU, torch.nn.ReLU6)):

                def look(_: object, inputs: object, output: torch.Tensor, name: str = name) -> None:
                    if not output.any():
                        silent[name] = None

                stack.callback(module.register_forward_hook(look).remove)
        step()
    changes = [
        float((parameter.grad * (parameter.detach() - old)).sum())
        for parameter, old in zip(parameters, before, strict=True)
        if parameter.grad is not None
    ]
    return Update(sum(changes), tuple(silent))


def _of_nonfinite(facts: TrainingFacts, found: NonFinite | None) -> tuple[str, str, str] | None:
    """The cause, evidence and suggestion for a result that is not finite, or for a loss that grew."""
    steps = len(facts.losses)
    wrong_kernel = found is not None and _is_nan_for_a_small_result(found)
    if steps and facts.skipped_steps == steps and (wrong_kernel or steps >= _SKIPS):
        evidence = f"The scaler skipped all {steps:,} steps because gradients were not finite: no parameter changed."
        first = f" {_result(found)} {_inputs(found)}{_again(found)}." if found is not None else ""
        suggestion = _OTHER_KERNEL if wrong_kernel else "Use fp32 or amp-bf16: a lower scale does not help."
        return "The gradient scaler skips every step", evidence + first, suggestion
    if found is not None and facts.skipped_steps is not None and found.reaches == ("gradients",):
        found = None  # all that it causes is a step that the scaler skips
    if found is not None and found.given:
        which = {"input": "An input of the step", "parameter": "A parameter"}.get(found.given, found.given)
        held = "NaN" if found.inputs == "nan" else "infinities"
        return (
            "Non-finite input data" if found.given == "input" else "Parameters that were not finite before the step",
            f"{which} holds {held} before the step; {_place(found)} is the first operator that uses it.",
            "Check each batch with torch.isfinite(batch).all(); for parameters, repeat the steps from an earlier checkpoint.",
        )
    if found is not None and wrong_kernel:
        return f"Wrong result in {_precision(found.dtype)}", f"{_result(found)} {_inputs(found)}{_again(found)}.", _OTHER_KERNEL
    finite = facts.losses[: next((step for step, loss in enumerate(facts.losses) if not math.isfinite(loss)), steps)]
    last = max(finite[-_LAST:], default=0.0)
    if finite and last > _DIVERGED * finite[0] > 0:
        rate = facts.learning_rate
        at, lower = (f" at a learning rate of {rate:.3g}", f" (for example to {rate / 10:.3g})") if rate else ("", "")
        then = "" if found is None else f"; then {_result(found)}"
        return (
            "Divergence",
            f"The loss grew from {finite[0]:.2g} to {last:.2g} over {counted(len(finite), 'step')}{at}{then}.",
            f"Lower the learning rate{lower}, warm it up, or clip the gradients (torch.nn.utils.clip_grad_norm_).",
        )
    if found is None:
        return None
    if found.wider_finite or (found.wider_finite is None and found.dtype == "float16" and found.what == "inf"):
        low = _precision(found.dtype)
        limit = f", and {low} ends at {_LARGEST[found.dtype]:,.6g}" if found.dtype in _LARGEST else ""
        return f"{low} overflow", f"{_result(found)}{_again(found)}{limit}.", _in_range(found)
    return (
        "Undefined result",
        f"{_result(found)} {_inputs(found)}{_again(found)}.",
        "Look for a division by zero, a logarithm or root of zero, an average over no elements, or a row that is masked completely; "
        "clamp the argument, or use log_softmax and cross_entropy for logarithms of probabilities.",
    )


def _of_update(facts: TrainingFacts, update: Update) -> Explanation | None:
    """The cause of a loss that stays where it was."""
    losses = facts.losses
    if len(losses) < 2 or not all(map(math.isfinite, losses)):
        return None
    quarter = max(1, len(losses) // 4)
    first, last = fmean(losses[:quarter]), fmean(losses[-quarter:])
    chance = math.log(facts.classes) if facts.classes and facts.classes > 1 else math.inf
    if last < first - (1 - _UNCHANGED) * abs(first) and last < AT_CHANCE * chance:
        return None
    at_chance = f" ({chance:.3g} is chance for {facts.classes:,} classes)" if facts.classes and chance < math.inf else ""
    stays = f"The loss stays at {last:.3g} over {counted(len(losses), 'step')}{at_chance}."
    if update.silent:
        more = f" (and of {len(update.silent) - 1} more)" if len(update.silent) > 1 else ""
        return Explanation(
            "Dead ReLUs",
            f"{stays} The output of {update.silent[0] or 'the network'}{more} is zero for the whole batch, so no gradient passes it.",
            "Start again with a lower learning rate or smaller biases, normalize its input, or use LeakyReLU or GELU.",
            module=update.silent[0],
        )
    change = abs(update.loss_change) * len(losses)
    if not change < _PROGRESS * abs(losses[-1]):
        return None
    rate = f" at a learning rate of {facts.learning_rate:.3g}" if facts.learning_rate is not None else ""
    return Explanation(
        "Steps too small",
        f"{stays} A step changes the loss by about {update.loss_change:.2g}{rate}: {percent(change / abs(losses[-1]))} of it in all "
        "steps together.",
        "Raise the learning rate, or train for longer; check that the optimizer has the parameters of the network.",
    )


def _precision(dtype: str) -> str:
    """``fp16`` for ``float16``."""
    return precision_of(dtype) or dtype


def _place(found: NonFinite) -> str:
    """``aten::mm in fc (Linear)``, ``aten::mm in the backward pass of fc (Linear)``, ``aten::addcdiv_ in the optimizer step``."""
    where = {"forward": "", "backward": "the backward pass", "optimizer": "the optimizer step"}[found.phase]
    if found.phase != "optimizer" and (found.module or found.module_type):
        module = f"{found.module or 'the network'}{f' ({found.module_type})' if found.module_type else ''}"
        where = f"{where} of {module}" if where else module
    return f"{found.operator} in {where}" if where else found.operator


def _result(found: NonFinite) -> str:
    """``aten::mm in fc (Linear) gives inf for 25 % of its elements in fp16``."""
    what = "NaN" if found.what == "nan" else "inf"
    return f"{_place(found)} gives {what} for {percent(found.share)} of its elements in {_precision(found.dtype)}"


def _inputs(found: NonFinite) -> str:
    """``from finite inputs (largest magnitude 40,000)``."""
    if found.inputs != "finite":
        return "from inputs that hold infinities"
    return f"from finite inputs (largest magnitude {found.input_magnitude:,.6g})" if found.input_magnitude is not None else ""


def _again(found: NonFinite) -> str:
    """``; the same call gives 1.2e+05 in fp32``."""
    if found.wider is None:
        return "; the call could not be repeated in a wider type"
    magnitude = f"{found.wider_magnitude:.2g}" if found.wider_magnitude is not None else "no finite result either"
    return f"; the same call gives {magnitude} in {_precision(found.wider)}"


def _is_nan_for_a_small_result(found: NonFinite) -> bool:
    """Whether it is NaN in a 16-bit type, from finite inputs, and fp32 gives a result that the type can hold."""
    low = found.what == "nan" and found.inputs == "finite" and found.dtype in ("float16", "bfloat16")
    return low and found.wider_magnitude is not None and found.wider_magnitude <= _LARGEST[found.dtype]


def _in_range(found: NonFinite) -> str:
    """What to do about a number that is too large for its type."""
    if found.dtype != "float16":
        return "Lower the learning rate or clip the gradients if the inputs have grown; use logsumexp or log_softmax for exponentials."
    if found.phase == "forward":
        where = found.module or "this operator"
        return f"Use amp-bf16, or compute {where} in fp32: a gradient scaler scales gradients, not the forward pass."
    return "Use amp-bf16, or amp-fp16 with a gradient scaler, which keeps parameters in fp32 and lowers its scale until gradients fit."
