"""Why the loss of a recorded training is not finite: the same steps again, with every result checked."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rooflines.errors import RooflinesError
from rooflines.profiler.options import Options, eager
from rooflines.profiler.progress import Progress
from rooflines.profiler.records import Run
from rooflines.profiler.run import saved_with
from rooflines.profiler.workloads.optimizers import default_rate
from rooflines.profiler.workloads.prepare import Prepared
from rooflines.roofline.failures import TrainingFacts, explain

if TYPE_CHECKING:
    from rooflines.profiler.dispatch.nonfinite import NonFinite


def with_cause(run: Run, prepare: Callable[[Options], Prepared], options: Options, progress: Progress) -> Run:
    """Return ``run``, whose first or last loss was not finite, with a note that names the step, the operator and the likely cause.

    ``prepare`` builds the workload of the run again, with the weights and inputs that it began with.
    """
    times = run.facts.steps
    steps = 0 if times is None else len(times.warmup_ns) + len(times.timed_ns) + len(times.traced_ns)
    progress.stage("repeating the training to find why the loss is not finite", steps)
    try:
        note = _cause(prepare(eager(options)), options, steps, progress)
    except (RooflinesError, RuntimeError, MemoryError) as error:
        note = f"the loss is not finite; its cause was not found: {str(error).partition(chr(10))[0]}"
    return saved_with(run, note)


def _cause(prepared: Prepared, options: Options, steps: int, progress: Progress) -> str:
    from rooflines.profiler.dispatch.nonfinite import first_nonfinite

    losses: list[float] = []

    def step() -> object:
        loss: Any = prepared.step()
        losses.append(float(loss))
        progress.advance()
        return loss

    with prepared.flags():
        found = first_nonfinite(step, steps=steps)
    return _note(found, losses, options, prepared)


def _note(found: NonFinite | None, losses: list[float], options: Options, prepared: Prepared) -> str:
    if found is None or found.reaches == ("gradients",):  # a step that the gradient scaler skips
        return "the loss is not finite, but was finite when the same steps were repeated in eager mode"
    scaled = options.precision == "amp-fp16" and prepared.device.type == "cuda"
    facts = TrainingFacts(
        losses=tuple(losses), precision=options.precision, skipped_steps=0 if scaled else None,
        learning_rate=default_rate(options.optimizer),
    )  # fmt: skip
    # What breaks the parameters at the end of a step shows in the loss of the next one.
    begins = found.step if not math.isfinite(losses[-1]) else found.step + 1
    note = f"the loss is not finite at step {begins}"
    explanation = explain(facts, found)
    return note if explanation is None else f"{note}. {explanation.cause}: {explanation.evidence} {explanation.suggestion}"
