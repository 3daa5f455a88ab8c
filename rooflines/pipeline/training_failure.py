"""Why a training failed: its steps again from the last checkpoint, with every result checked."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from rooflines.profiler.progress import Progress
from rooflines.profiler.training.loop import NotFiniteError, Trainer, not_finite
from rooflines.profiler.training.records import Epoch, Failure
from rooflines.roofline.failures import AT_CHANCE, Explanation, TrainingFacts, explain, explain_step
from rooflines.units import counted, percent

if TYPE_CHECKING:
    from rooflines.profiler.dispatch.nonfinite import NonFinite


def not_finite_failure(error: NotFiniteError, trainer: Trainer, progress: Progress) -> Failure:
    """Return the failure with its likely cause. ``trainer`` is in the state that the epoch began with.

    The step before the one whose loss is not finite is checked as well: its update may have made the parameters non-finite.
    """
    from rooflines.profiler.dispatch.nonfinite import first_nonfinite

    failure = not_finite(error)
    first = max(1, error.step - 1)
    progress.stage("repeating the steps to find why the loss is not finite", error.step - 1)
    try:
        following = trainer.steps_from(error.epoch, first, progress)
        found = first_nonfinite(following, trainer.placed.network, steps=error.step - first + 1, first=first)
    except (RuntimeError, MemoryError) as problem:
        return msgspec.structs.replace(failure, evidence=f"The cause was not found: {str(problem).partition(chr(10))[0]}.")
    return _with_cause(failure, explain(_facts(trainer, error.losses, 0), found), found)


def stuck_failure(trainer: Trainer, epoch: Epoch, progress: Progress) -> Failure | None:
    """Return why the loss is still at chance after ``epoch``, the last one; None if it is not, or no cause was found.

    The parameters of ``trainer`` change.
    """
    classes = trainer.images.classes
    if not trainer.images.real or epoch.train_loss < AT_CHANCE * math.log(classes):
        return None
    progress.stage("checking a step to find why the loss stays at chance", None)
    try:
        step = trainer.steps_from(epoch.epoch, 1, progress)
        explanation = explain_step(step, trainer.placed.network, _facts(trainer, trainer.losses, epoch.skipped_steps))
    except (RuntimeError, MemoryError):
        return None
    what = f"the loss is at chance after {counted(epoch.epoch, 'epoch')} (accuracy {percent(epoch.test_accuracy, 1)})"
    return None if explanation is None else _with_cause(Failure(epoch=epoch.epoch, step=len(trainer.losses), what=what), explanation)


def _facts(trainer: Trainer, losses: list[float], skipped: int) -> TrainingFacts:
    return TrainingFacts(
        losses=tuple(losses),
        precision=trainer.options.precision,
        skipped_steps=skipped if trainer.scaler.is_enabled() else None,
        learning_rate=trainer.optimizer.param_groups[0]["lr"],
        classes=trainer.images.classes,
    )


def _with_cause(failure: Failure, explanation: Explanation | None, found: NonFinite | None = None) -> Failure:
    if explanation is None:
        return failure
    return msgspec.structs.replace(
        failure,
        operator=explanation.operator,
        module=explanation.module,
        phase=found.phase if found is not None else "",
        cause=explanation.cause,
        evidence=explanation.evidence,
        suggestion=explanation.suggestion,
    )
