"""Causes of a loss that stays where it was, or at chance, with finite numbers everywhere."""

from __future__ import annotations

import math
from statistics import fmean
from typing import Final

from rooflines.roofline.failures.records import Case, Explanation, TrainingFacts
from rooflines.roofline.failures.sentences import named, number
from rooflines.units import counted, percent

# The loss of the last quarter of the steps: above this share of the loss at chance, or of the first quarter's, it has not improved.
AT_CHANCE: Final = 0.97
_UNCHANGED: Final = 0.99
# Gradients lost to underflow are a cause from this share on.
_LOST: Final = 0.2
# All steps together should change the loss by more than this share of it.
_PROGRESS: Final = 0.01
# With fewer trainable parameters, as a share of all, the frozen ones are a cause.
_TRAINED: Final = 0.01


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
    at_chance = f" ({number(chance)} is chance for {facts.classes:,} classes)" if chance is not None else ""
    return f"The loss stays at {number(last)} over {counted(len(losses), 'step')}{at_chance}"


def underflow(case: Case) -> Explanation | None:
    """Gradients too small for fp16, without a scaler."""
    stays, found = _stays(case.facts), case.gradients
    if stays is None or found is None or case.facts.skipped_steps is not None or (found.underflow_share or 0.0) < _LOST:
        return None
    assert found.underflow_share is not None
    operator = f"{found.underflow_operator} of {named(found.underflow_module)}" if found.underflow_module else found.underflow_operator
    return Explanation(
        cause="Gradients underflow in fp16",
        evidence=f"{stays}. Of the elements of the backward pass that are not zero in fp32, {percent(found.underflow_share)} are zero "
        f"in fp16, most of them in {operator}; {percent(found.zero_share)} of the "
        "gradients of parameters are zero.",
        suggestion="Use a gradient scaler (torch.amp.GradScaler), or amp-bf16.",
        operator=found.underflow_operator,
        module=found.underflow_module,
    )


def silent(case: Case) -> Explanation | None:
    """A rectifier that outputs zeros only (dead ReLUs)."""
    stays, found = _stays(case.facts), case.gradients
    if stays is None or found is None or not found.silent:
        return None
    path = found.silent[0]
    name = path or "a ReLU of the network"
    name += f" (and of {len(found.silent) - 1} more)" if len(found.silent) > 1 else ""
    return Explanation(
        cause="Dead ReLUs",
        evidence=f"{stays}. The output of {name} is zero for the whole batch, so no gradient passes it: "
        f"{percent(found.zero_share)} of the gradients of parameters are zero.",
        suggestion="Start again with a lower learning rate or smaller biases, normalize its input, or use LeakyReLU or GELU.",
        module=path,
    )


def no_gradient(case: Case) -> Explanation | None:
    """A loss that does not depend on any parameter."""
    stays, found = _stays(case.facts), case.gradients
    if stays is None or found is None or found.zero_share < 1 or not found.trainable:
        return None
    return Explanation(
        cause="No gradient reaches the parameters",
        evidence=f"{stays}. The gradients of all {found.trainable:,} trainable parameters are zero or missing.",
        suggestion="Check that the loss is computed from the output of the network, without detach(), torch.no_grad() or argmax().",
    )


def not_updated(case: Case) -> Explanation | None:
    """Gradients, and an optimizer that does not change what they belong to."""
    stays, found = _stays(case.facts), case.gradients
    if stays is None or found is None or not found.norm or found.loss_change != 0 or case.facts.skipped_steps:
        return None
    narrow = case.facts.precision in ("fp16", "bf16")
    return Explanation(
        cause="The optimizer does not change the parameters",
        evidence=f"{stays}. The gradients have a norm of {number(found.norm)}, and no trainable parameter changes in a step.",
        suggestion=f"Keep the parameters in fp32 (amp-bf16): an update may be too small for {case.facts.precision}."
        if narrow
        else "Create the optimizer after the layers were replaced, from the network's own parameters, and check its learning rate.",
    )


def small_steps(case: Case) -> Explanation | None:
    """Steps that are too small for the loss to change (learning rate)."""
    stays, found, facts = _stays(case.facts), case.gradients, case.facts
    if stays is None or found is None or not found.loss_change or not found.norm:
        return None
    loss, steps = abs(facts.losses[-1]), len(facts.losses)
    if abs(found.loss_change) * steps >= _PROGRESS * loss:
        return None
    rate = f" at a learning rate of {number(facts.learning_rate)}" if facts.learning_rate is not None else ""
    return Explanation(
        cause="Steps too small",
        evidence=f"{stays}. A step changes the loss by about {number(found.loss_change)}{rate} (gradient norm {number(found.norm)}): "
        f"{percent(abs(found.loss_change) * steps / loss)} of it in all steps together.",
        suggestion="Raise the learning rate, or train for longer.",
    )


def frozen(case: Case) -> Explanation | None:
    """Parameters of which few are trained."""
    stays, found = _stays(case.facts), case.gradients
    if stays is None or found is None or found.trainable > _TRAINED * found.elements:
        return None
    return Explanation(
        cause="Frozen parameters",
        evidence=f"{stays}. Only {found.trainable:,} of {found.elements:,} parameter elements are trainable.",
        suggestion="Set requires_grad on the layers that should learn, and give them to the optimizer.",
    )
