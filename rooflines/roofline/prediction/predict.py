"""The prediction of a change, by its kind."""

from __future__ import annotations

from rooflines.roofline.analysis import Analysis
from rooflines.roofline.prediction import allocator, batch, fusion, launches, loading, optimizer, precision, threads
from rooflines.roofline.prediction.allocator import PageCosts
from rooflines.roofline.prediction.records import Change, Prediction
from rooflines.roofline.prediction.step import Step
from rooflines.units import seconds

_RULES = {
    "precision": precision.predict, "compile": fusion.predict, "threads": threads.predict, "batch-size": batch.predict,
    "optimizer": optimizer.predict, "data-workers": loading.workers, "pin-memory": loading.pinned, "cuda-graphs": launches.predict,
}  # fmt: skip


def predict(change: Change, analysis: Analysis, costs: PageCosts | None = None) -> Prediction | None:
    """Return the gain of ``change`` for the run of ``analysis``; None where nothing in the analysis gives one.

    A change that has no rule of its own has the saving of the recommendation that names its option.
    """
    step = Step(analysis)
    if not step.whole_s:
        return None
    if change.kind == "allocator":
        return allocator.predict(change, step, costs)
    if change.kind in _RULES:
        return _RULES[change.kind](change, step)
    named = (one for one in analysis.findings if one.saves_s > 0 and change.options == {one.option: one.value})
    finding = next(named, None)
    if finding is None:
        return None
    return Prediction(
        speedup=step.speedup(max(step.compute_s - finding.saves_s, 0.01 * step.compute_s)),
        reason=f"at most {seconds(finding.saves_s)} a step: {finding.evidence}",
    )
