"""The gain of an allocator that keeps its memory, or takes it in huge pages."""

from __future__ import annotations

from typing import NamedTuple

from rooflines.roofline.prediction.records import Change, Prediction
from rooflines.roofline.prediction.step import Step
from rooflines.roofline.prediction.threads import busy_cores
from rooflines.units import seconds, significant

# torch's allocator on a CPU asks for huge pages.
HUGE_PAGES = "THP_MEM_ALLOC_ENABLE"


class PageCosts(NamedTuple):
    """What 4 KiB of new memory cost on this machine: in a page of their own, and as part of a huge page (None where there are none)."""

    page_s: float
    in_huge_page_s: float | None = None


def predict(change: Change, step: Step, costs: PageCosts | None) -> Prediction | None:
    """The page faults of a step at the measured cost of one, divided among the busy threads; huge pages leave a part of it."""
    faults = step.analysis.page_faults
    if faults is None or costs is None or change.environment.keys() == {"PYTORCH_CUDA_ALLOC_CONF"}:
        return None
    left_s, kept = 0.0, ""
    if HUGE_PAGES in change.environment:
        if costs.in_huge_page_s is None:
            return None
        left_s, kept = costs.in_huge_page_s, f"; in huge pages it is {seconds(costs.in_huge_page_s)}"
    busy = max(1.0, busy_cores(step.analysis) or 1.0)
    saved_s = faults.timed * max(0.0, costs.page_s - left_s) / busy
    return Prediction(
        speedup=step.speedup(max(step.compute_s - saved_s, 0.01 * step.compute_s)),
        reason=f"a step takes {faults.timed:,.0f} pages from the system; one costs {seconds(costs.page_s)} here{kept}"
        + (f"; {significant(busy)} busy threads share them" if busy > 1 else ""),
    )
