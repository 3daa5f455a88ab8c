"""The gain of an allocator that keeps its memory, or takes it in huge pages."""

from __future__ import annotations

from rooflines.roofline.prediction.records import Change, Prediction
from rooflines.roofline.prediction.step import Step
from rooflines.units import seconds, significant

# torch's allocator on a CPU asks for huge pages.
HUGE_PAGES = "THP_MEM_ALLOC_ENABLE"


def predict(change: Change, step: Step) -> Prediction | None:
    """The page faults of a step at the measured cost of one, divided among the busy threads; huge pages leave a part of it."""
    faults, costs = step.analysis.page_faults, step.costs
    if faults is None or costs is None or change.environment.keys() == {"PYTORCH_CUDA_ALLOC_CONF"}:
        return None
    left_s, kept = 0.0, ""
    if HUGE_PAGES in change.environment:
        if costs.in_huge_page_s is None:
            return None
        left_s, kept = costs.in_huge_page_s, f"; in huge pages it is {seconds(costs.in_huge_page_s)}"
    busy = max(1.0, step.busy_cores or 1.0)
    return Prediction(
        speedup=step.speedup(max(step.compute_s - step.faults_s(left_s), 0.01 * step.compute_s)),
        reason=f"a step takes {faults.timed:,.0f} pages from the system; one costs {seconds(costs.page_s)} here{kept}"
        + (f"; {significant(busy)} busy threads share them" if busy > 1 else ""),
    )
