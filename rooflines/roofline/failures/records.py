"""What is known of a training that failed, and its explanation."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from rooflines.profiler.options import Precision

if TYPE_CHECKING:
    from rooflines.profiler.dispatch.gradients import Gradients
    from rooflines.profiler.dispatch.nonfinite import NonFinite


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


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
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
    def finite_losses(self) -> list[float]:
        """The losses before the first one that is not finite."""
        losses = self.facts.losses
        return list(losses[: next((place for place, loss in enumerate(losses) if not math.isfinite(loss)), len(losses))])

    @property
    def failed(self) -> NonFinite | None:
        """The first non-finite result, unless all that it causes is a step that the gradient scaler skips."""
        found = self.nonfinite
        skipped = self.facts.skipped_steps is not None and found is not None and found.reaches == ("gradients",)
        return None if skipped else found
