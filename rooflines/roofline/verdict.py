"""The one sentence that every report opens with: how fast, what bounds it, where the time is, what to gain."""

from __future__ import annotations

from rooflines.roofline.analysis import Analysis, OperatorRow, Rate, Steps
from rooflines.roofline.feeding import host_fraction, input_fraction
from rooflines.units import percent, seconds, significant

# A rate that is known less well than this is said as the interval it lies in: one number would say more than was measured.
_LARGE_ERROR = 0.25
# Plural nouns for the categories, as one would say them.
_PLURAL = {
    "convolution": "convolutions",
    "matmul": "matrix products",
    "attention": "attention",
    "normalisation": "normalisation",
    "element-wise": "element-wise operators",
    "reduction": "reductions and pooling",
    "copy": "copies",
    "communication": "communication",
    "optimizer": "the optimizer",
    "other": "other operators",
}


def verdict(analysis: Analysis) -> str:
    """A few sentences, each only as sure as what was measured."""
    sentences = [_speed(analysis.steps, analysis.workload.unit)] if analysis.steps else []
    if analysis.basis.start_up and analysis.division is not None:
        sentences.append(f"The whole program is one traced step of {seconds(analysis.division.step_s)}, start-up included.")
    if analysis.operators and analysis.timeline is not None:
        sentences.append(_bound(analysis))
    elif analysis.steps is None:
        sentences.append("The run ended before a step was timed.")
    else:
        sentences.append("No operators were traced, so nothing can be said about where the time goes.")
    best = max(analysis.findings, key=lambda finding: finding.saves_s, default=None)
    if best is not None and best.saves_s > 0:
        sentences.append(f"The largest gain in sight: {_lower_first(best.title)}, up to {seconds(best.saves_s, 2)} a step.")
    return " ".join(sentences)


def plural(category: str) -> str:
    """The category as a sentence would name it."""
    return _PLURAL.get(category, category)


def runs(category: str) -> str:
    """The verb that goes with ``plural(category)``."""
    return "runs" if category in ("attention", "normalisation", "communication", "optimizer") else "run"


def largest_category(operators: tuple[OperatorRow, ...]) -> tuple[str, float, float | None]:
    """The category with the most time: its name, its seconds, and the efficiency of those of its operators that have a bound."""
    times: dict[str, float] = {}
    for row in operators:
        times[row.category] = times.get(row.category, 0.0) + row.time_s
    name = max(times, key=lambda key: times[key])
    return name, times[name], efficiency_of(tuple(row for row in operators if row.category == name))


def efficiency_of(operators: tuple[OperatorRow, ...]) -> float | None:
    """Lower bound over time of those that have a bound; None when none has."""
    bounded = [row for row in operators if row.efficiency is not None]
    time_s = sum(row.time_s for row in bounded)
    return sum(row.lower_bound_s or 0.0 for row in bounded) / time_s if time_s > 0 else None


def _speed(steps: Steps, unit: str) -> str:
    if steps.ci95_s is None:
        error = "one step"
    else:
        low, high = steps.ci95_s
        error = f"±{percent(max(high - steps.median_s, steps.median_s - low) / steps.median_s)}"
    if steps.samples_per_s is None:
        return f"{seconds(steps.median_s)} a step ({error})."
    return f"{significant(steps.samples_per_s)} {unit}/s ({seconds(steps.median_s)} a step, {error})."


def _bound(analysis: Analysis) -> str:
    breakdown, timeline = analysis.bound_breakdown or {}, analysis.timeline
    assert timeline is not None
    total = sum(breakdown.values())
    bound = max(breakdown, key=lambda key: breakdown[key], default="unknown")
    share = breakdown.get(bound, 0.0) / total if total else 0.0
    category, time_s, efficiency = largest_category(analysis.operators)
    of_step = percent(time_s / total) if total else "?"
    reach = f", at {percent(efficiency)} of what this device could do" if efficiency is not None else ""
    take = "takes" if runs(category) == "runs" else "take"
    where = f"{plural(category)} {take} {of_step} of the step{reach}."
    if analysis.limited_by == "input":
        return f"{_input_bound(analysis)} {where[0].upper()}{where[1:]}"
    if (bound == "unknown" or not analysis.ceilings) and analysis.limited_by is None:
        return where[0].upper() + where[1:]
    if analysis.limited_by == "host":
        bound = "host"
        share = host_fraction(analysis) if analysis.input is not None else breakdown["host"] / total
    elif bound == "input":
        share = input_fraction(analysis)
    names = {
        "input": "The device waits for data",
        "host": "Host-bound: the device is idle" if analysis.limited_by == "host" else "The device is idle",
        "latency": "Latency-bound: operators too small for the device, and calls that only dispatch, take",
        "unmodelled": "Bound unknown: operators without a work model take",
    }
    opening = names.get(bound, f"{bound.capitalize()}-bound for")
    return f"{opening} {percent(share)} of the time; {where}"


def _input_bound(analysis: Analysis) -> str:
    share = percent(input_fraction(analysis))
    rates = rates_sentence(analysis)
    return f"Input-bound: for {share} of the step it waits for its data{f'; {rates}' if rates else ''}."


def rates_sentence(analysis: Analysis) -> str:
    """What the loader and the step reach alone, without a full stop; empty where they were not measured."""
    found = analysis.input
    if found is None or found.loader_rate is None or found.step_rate is None:
        return ""
    unit = f"{found.unit}/s"
    return (
        f"the loader alone delivers {_rate(found.loader_rate, unit)}, the step alone could take "
        f"{_rate(found.step_rate, unit, found.step_rate.how)}"
    )


def _rate(rate: Rate, unit: str, how: str = "") -> str:
    """A rate with what there is to say of it: ``7,010 images/s (±3 %, measured)``, ``40 to 190 images/s (measured)``."""
    number, spread = _rounded(rate.per_s), ""
    if rate.ci95_per_s is not None:
        low, high = rate.ci95_per_s
        error = max(high - rate.per_s, rate.per_s - low) / rate.per_s
        if error > _LARGE_ERROR:
            number = f"{_rounded(low)} to {_rounded(high)}"
        else:
            spread = f"±{percent(error)}"
    remarks = ", ".join(text for text in (spread, how) if text)
    return f"{number} {unit}{f' ({remarks})' if remarks else ''}"


def _rounded(per_s: float) -> str:
    return f"{float(significant(per_s)):,.0f}" if per_s >= 100 else significant(per_s)


def _lower_first(title: str) -> str:
    return title[0].lower() + title[1:] if title[1:2].islower() else title
