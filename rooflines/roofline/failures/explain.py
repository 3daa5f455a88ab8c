"""The likely cause of a failed training: the first rule that applies, special rules first."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from rooflines.roofline.failures import nonfinite, scaler, stuck
from rooflines.roofline.failures.records import Case, Explanation, TrainingFacts

if TYPE_CHECKING:
    import torch

    from rooflines.profiler.dispatch.gradients import Gradients
    from rooflines.profiler.dispatch.nonfinite import NonFinite

Rule = Callable[[Case], Explanation | None]

RULES: tuple[Rule, ...] = (
    nonfinite.masked_row,
    nonfinite.data,
    nonfinite.parameters,
    scaler.every_step_skipped,
    nonfinite.kernel,
    nonfinite.divergence,
    nonfinite.overflow,
    nonfinite.constant,
    nonfinite.infinities,
    nonfinite.undefined,
    stuck.underflow,
    stuck.silent,
    stuck.no_gradient,
    stuck.not_updated,
    stuck.small_steps,
    stuck.frozen,
)


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
