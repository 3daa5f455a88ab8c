"""The prediction of a change, by its kind."""

from __future__ import annotations

from rooflines.roofline.analysis import Analysis
from rooflines.roofline.prediction import allocator, batch, fusion, launches, layout, loading, optimizer, precision, threads
from rooflines.roofline.prediction.records import Change, PageCosts, Prediction
from rooflines.roofline.prediction.step import Step

_RULES = {
    "allocator": allocator.predict,
    "precision": precision.predict,
    "channels-last": layout.predict,
    "compile": fusion.predict,
    "threads": threads.predict,
    "batch-size": batch.predict,
    "optimizer": optimizer.predict,
    "data-workers": loading.workers,
    "pin-memory": loading.pinned,
    "cuda-graphs": launches.predict,
}


def predict(change: Change, analysis: Analysis, costs: PageCosts | None = None) -> Prediction | None:
    """Return the gain of ``change`` for the run of ``analysis``; None where nothing in the analysis gives one.

    ``costs`` are those of new memory on this machine; without them a page costs what it did in the run.
    """
    step = Step(analysis, costs)
    if not step.whole_s:
        return None
    rule = _RULES.get(change.kind)
    return rule(change, step) if rule is not None else None
