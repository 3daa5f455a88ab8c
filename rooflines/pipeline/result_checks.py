"""Checks of a result by other steps: its difference from that in fp32, and why a training failed.

A failed training makes its steps again, with every result checked.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from rooflines.errors import RooflinesError, first_line
from rooflines.profiler.directory import saved_with
from rooflines.profiler.options import Options, eager
from rooflines.profiler.progress import Progress
from rooflines.profiler.records import OutputError, Run
from rooflines.profiler.training.loop import NotFiniteError, Trainer, not_finite
from rooflines.profiler.training.records import Epoch, Failure
from rooflines.profiler.workloads.inputs import tensors_in
from rooflines.profiler.workloads.prepare import Prepared
from rooflines.profiler.workloads.steps import default_rate
from rooflines.roofline.failures import AT_CHANCE, Explanation, TrainingFacts, explain, explain_step
from rooflines.units import counted, percent

if TYPE_CHECKING:
    import torch

    from rooflines.profiler.dispatch.nonfinite import NonFinite


# What a reference leaves out: all that may change the result.
_PLAIN = ("precision", "quantize", "compile", "channels_last", "cuda_graphs", "checkpointing", "parallel")


class FirstResult:
    """A step that keeps the result of its first call on the host, in fp32."""

    def __init__(self, step: Callable[[], object]) -> None:
        self._step = step
        self.tensors: list[torch.Tensor] | None = None

    def __call__(self) -> object:
        result = self._step()
        if self.tensors is None:
            self.tensors = floats(result)
        return result


def reference_options(options: Options) -> Options | None:
    """Return the options of the reference in fp32 for a run with ``options``; None if that is what it is."""
    plain = dataclasses.replace(options, **{name: getattr(Options, name) for name in _PLAIN})
    return None if plain == options else plain


def floats(result: object) -> list[torch.Tensor]:
    """Return the floating-point tensors in ``result`` as copies on the host in fp32."""
    import torch

    return [t.detach().to("cpu", torch.float32, copy=True) for t in tensors_in(result) if t.is_floating_point()]


def output_error(result: list[Any], reference: list[Any], *, classifies: bool) -> OutputError | None:
    """Compare the tensors of two results; None where they do not correspond, are not finite, or the reference is zero.

    ``classifies`` says that they are scores of classes [N, classes].
    """
    if [tensor.shape for tensor in result] != [tensor.shape for tensor in reference]:
        return None
    norm = math.sqrt(sum(float(tensor.double().square().sum()) for tensor in reference))
    distance = math.sqrt(sum(float((a.double() - b.double()).square().sum()) for a, b in zip(result, reference, strict=True)))
    if not norm > 0 or not math.isfinite(distance):
        return None
    same = None
    if classifies and len(result) == 1 and result[0].dim() == 2 and result[0].shape[1] > 1:
        same = float((result[0].argmax(1) == reference[0].argmax(1)).double().mean())
    return OutputError(relative=distance / norm, same_class=same)


def with_cause(run: Run, prepare: Callable[[Options], Prepared], options: Options, progress: Progress) -> Run:
    """Return ``run``, whose first or last loss was not finite, with a note that names the step, the operator and the likely cause.

    ``prepare`` builds the workload of the run again, with the weights and inputs that it began with.
    """
    from rooflines.profiler.dispatch.nonfinite import first_nonfinite

    times = run.facts.steps
    steps = 0 if times is None else len(times.warmup_ns) + len(times.timed_ns) + len(times.traced_ns)
    progress.stage("repeating the training to find why the loss is not finite", steps)
    losses: list[float] = []
    try:
        prepared = prepare(eager(options))

        def step() -> object:
            loss: Any = prepared.step()
            losses.append(float(loss))
            progress.advance()
            return loss

        with prepared.flags():
            nonfinite = first_nonfinite(step, steps=steps)
        note = _note(nonfinite, losses, options, prepared)
    except (RooflinesError, RuntimeError, MemoryError) as error:
        note = f"the loss is not finite; its cause was not found: {first_line(error)}"
    return saved_with(run, note)


def _note(nonfinite: NonFinite | None, losses: list[float], options: Options, prepared: Prepared) -> str:
    if nonfinite is None or nonfinite.reaches == ("gradients",):  # a step that the gradient scaler skips
        return "the loss is not finite, but was finite when the same steps were repeated in eager mode"
    scaled = options.precision == "amp-fp16" and prepared.device.type == "cuda"
    facts = TrainingFacts(
        losses=tuple(losses), skipped_steps=0 if scaled else None, learning_rate=default_rate(options.optimizer),
    )  # fmt: skip
    # What breaks the parameters at the end of a step shows in the loss of the next one.
    begins = nonfinite.step if not math.isfinite(losses[-1]) else nonfinite.step + 1
    note = f"the loss is not finite at step {begins}"
    explanation = explain(facts, nonfinite)
    return note if explanation is None else f"{note}. {explanation.cause}: {explanation.evidence} {explanation.suggestion}"


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
        nonfinite = first_nonfinite(following, trainer.placed.network, steps=error.step - first + 1, first=first)
    except (RuntimeError, MemoryError) as problem:
        return msgspec.structs.replace(failure, evidence=f"The cause was not found: {first_line(problem)}.")
    return _with_cause(failure, explain(_facts(trainer, error.losses, 0), nonfinite), nonfinite)


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
        skipped_steps=skipped if trainer.scaler.is_enabled() else None,
        learning_rate=trainer.optimizer.param_groups[0]["lr"],
        classes=trainer.images.classes,
    )


def _with_cause(failure: Failure, explanation: Explanation | None, nonfinite: NonFinite | None = None) -> Failure:
    if explanation is None:
        return failure
    return msgspec.structs.replace(
        failure,
        operator=explanation.operator,
        module=explanation.module,
        phase=nonfinite.phase if nonfinite is not None else "",
        cause=explanation.cause,
        evidence=explanation.evidence,
        suggestion=explanation.suggestion,
    )
