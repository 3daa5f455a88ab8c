"""Summaries of an analysis for reports: shares of a step, totals, categories, peak memory."""

from __future__ import annotations

from typing import NamedTuple

from rooflines.roofline.analysis import Analysis
from rooflines.roofline.verdict import category_efficiency


class OperatorsSummary(NamedTuple):
    """Sums over all operators, and over the ones that have a bound (``judged_s``, ``lower_bound_s``, ``headroom_s``), which stand for
    all of them where the step ``is_judged``."""

    time_s: float
    is_judged: bool
    judged_s: float
    lower_bound_s: float
    headroom_s: float

    @property
    def efficiency(self) -> float | None:
        """Lower bound divided by time, for operators that have a bound."""
        return self.lower_bound_s / self.judged_s if self.is_judged and self.judged_s > 0 else None


class CategorySummary(NamedTuple):
    """An operator category with its share of the operator time; ``efficiency`` is None where none of it has a bound."""

    category: str
    time_s: float
    share: float
    efficiency: float | None


class PeakMemory(NamedTuple):
    """The peak memory, how it was measured, and the size of the device's memory."""

    peak_bytes: int
    kind: str
    available_bytes: int | None


def share_of_step(time_s: float, analysis: Analysis) -> float:
    """``time_s`` as a share of the step, 0 where no step time is known."""
    whole = analysis.whole_s
    return max(0.0, time_s / whole) if whole > 0 else 0.0


def bound_times(analysis: Analysis) -> dict[str, float]:
    """The step by bound class, longest first, empty classes left out."""
    return {name: value for name, value in (analysis.bound_breakdown or {}).items() if value > 0}


def operators_summary(analysis: Analysis) -> OperatorsSummary:
    """The sums below a table of operators and in the bar against the bound; one faster than its bound counts with its time."""
    judged = [(row.time_s, min(row.lower_bound_s, row.time_s)) for row in analysis.operators if row.lower_bound_s is not None]
    return OperatorsSummary(
        time_s=sum(row.time_s for row in analysis.operators),
        is_judged=bool(judged) and (analysis.totals is None or analysis.totals.lower_bound_s is not None),
        judged_s=sum(time_s for time_s, _ in judged),
        lower_bound_s=sum(lower_s for _, lower_s in judged),
        headroom_s=sum(row.headroom_s for row in analysis.operators if row.headroom_s is not None),
    )


def category_summaries(analysis: Analysis) -> list[CategorySummary]:
    """The categories that operators are in, longest first, with their share of the step."""
    whole = analysis.whole_s
    times: dict[str, float] = {}
    for row in analysis.operators:
        times[row.category] = times.get(row.category, 0.0) + row.time_s
    times |= {name: time_s for name, time_s in (analysis.category_breakdown or {}).items() if name in times}
    summaries = [
        CategorySummary(category, time_s, time_s / whole if whole > 0 else 0.0, category_efficiency(analysis, category, time_s))
        for category, time_s in times.items()
    ]
    return sorted(summaries, key=lambda summary: -summary.time_s)


def peak_memory(analysis: Analysis) -> PeakMemory | None:
    """The peak of this run; None when it was not measured."""
    memory, environment, totals = analysis.memory, analysis.environment, analysis.totals
    peak = memory.peak_bytes if memory and memory.peak_bytes is not None else totals.peak_memory_bytes if totals else None
    if peak is None:
        return None
    available = environment.memory_bytes if environment.device.startswith("cpu") else environment.device_memory_bytes
    return PeakMemory(peak, (memory.kind or "") if memory else "", available)
