"""What the figures of an analysis assume and what makes them less sure, in a few words each, to stand beside the verdict."""

from __future__ import annotations

from rooflines.roofline.analysis import Analysis
from rooflines.roofline.verdict import plural
from rooflines.units import percent, seconds

# Less than this share of the time changes no figure that is read.
_WORTH_SAYING = 0.01
_MOST_ASSUMPTIONS = 2


def caveats(analysis: Analysis) -> tuple[str, ...]:
    """The recording first, then what was inferred, then assumptions, those of the most time first."""
    basis, whole_s = analysis.basis, analysis.timeline.span_s if analysis.timeline is not None else 0.0
    found = []
    if basis.per == "step" and basis.steps == 1 and analysis.traced_steps and analysis.steps is None:
        found.append("one traced step")
    if basis.stacks:
        found.append("stacks recorded: host times inflated")
    if basis.overhead_s is not None and basis.overhead_s > _WORTH_SAYING * whole_s:
        found.append(f"{seconds(basis.overhead_s)} of profiler overhead left out")
    return (*found, *_assumed(analysis))


def _assumed(analysis: Analysis) -> list[str]:
    operators_s = sum(row.time_s for row in analysis.operators)
    least_s = _WORTH_SAYING * operators_s
    found = []
    inferred_s = sum(row.time_s for row in analysis.operators if row.inferred)
    if inferred_s > least_s:
        found.append(f"shapes inferred for {percent(inferred_s / operators_s)} of the operator time")
    times: dict[tuple[str, str], float] = {}
    for row in analysis.operators:
        if row.assumption:
            times[row.category, row.assumption] = times.get((row.category, row.assumption), 0.0) + row.time_s
    worth = sorted((one for one in times.items() if one[1] > least_s), key=lambda one: -one[1])
    for (category, assumption), time_s in worth[:_MOST_ASSUMPTIONS]:
        found.append(f"assumed for {plural(category)} ({percent(time_s / operators_s)} of the operator time): {assumption}")
    more = len(worth) - _MOST_ASSUMPTIONS
    return [*found, f"{more} more assumption{'s' if more > 1 else ''} in the table of operators"] if more > 0 else found
