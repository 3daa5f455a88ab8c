"""The roofline of an analysis: its operators as points with what they tell, the whole run as a ring, and the
words below the chart."""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import median

from rooflines.reports.charts.palette import bound_style
from rooflines.reports.charts.roofline import MOST_LABELS, MOST_POINTS, roofline_drawing
from rooflines.reports.charts.roofline_figure import Ring, RooflineChart, RooflinePoint
from rooflines.reports.words import sentences
from rooflines.reports.words.rows import share_of_step, table_rows
from rooflines.reports.words.text import (
    clip,
    count_text,
    given,
    joined,
    short_name,
    shorten_middle,
    shorten_path,
)
from rooflines.roofline.advise.verdict import category_efficiency, plural
from rooflines.roofline.analysis import Analysis, OperatorRow
from rooflines.roofline.count.by_key import grouped, longest_first
from rooflines.roofline.judge.call_sites import summed
from rooflines.roofline.judge.step.interference import is_delayed
from rooflines.units import counted, percent, seconds, sentence, si, significant

# An operator this far above its bound is more than the noise of a measurement.
ABOVE_ROOF = 1.02
_LONGEST_NAME, _LONGEST_PATH = 28, 26
# The shapes of points by the phase of a generation; discs are those of all others.
_MARKS = {"prefill": "s"}


def roofline_of(analysis: Analysis) -> RooflineChart | None:
    """The chart of ``analysis``, or None when there is nothing to draw; the key of a point is the index of
    its operator."""
    placed, labels = ({}, {}) if analysis.unrecorded else _placed(analysis)
    points = [
        RooflinePoint(
            key=index,
            name=row.name,
            category=row.category,
            intensity=row.flops / row.bytes,
            flop_per_s=row.flops / row.time_s,
            time_s=row.time_s,
            precision=row.precision,
            engine=row.engine or "vector",
            label=label,
            gain_s=gain_s,
            warning=roofline_warning(row.efficiency, row.flag),
            mark=_MARKS.get(row.phase, ""),
            spread=_spread(row) if is_delayed(analysis) else None,
            lines=_lines(row),
        )
        for index, row in placed.items()
        for label, gain_s in [labels.get(index, ("", 0.0))]
    ]
    missing = sentences.missing_ceilings(analysis) or (
        None if points else sentences.missing_operators(analysis)
    )
    total_s = sum(row.time_s for row in analysis.operators)
    rings = () if analysis.unrecorded else _rings(analysis)  # their times are not those of the work
    return roofline_drawing(points, analysis.ceilings, rings=rings, total_s=total_s, missing=missing or "")


def _spread(row: OperatorRow) -> tuple[float, float] | None:
    """The 10th percentile and the median of the speed over the traced steps; None with fewer than two."""
    times_s = sorted(filter(None, row.step_times_s or ()))
    if len(times_s) < 2:
        return None
    return row.flops / times_s[round(0.9 * (len(times_s) - 1))], row.flops / median(times_s)


def roofline_warning(efficiency: float | None, flag: str | None = None) -> str:
    """Why an efficiency should not be believed, or an empty string; ``flag`` is the reason if it is known."""
    if efficiency is None or efficiency <= ABOVE_ROOF:
        return ""
    return flag or (
        "faster than its bound: a wrong count, a wrong ceiling, or an algorithm that does less "
        "than the formula"
    )


def rate_lines(
    flops: float, size: float, time_s: float, flop_per_s: float | None = None
) -> tuple[tuple[str, str], ...]:
    """Work, traffic, time, intensity and speed in words."""
    return (
        ("time", seconds(time_s)),
        ("work", si(flops, "FLOP")),
        ("traffic", si(size, "B")),
        ("intensity", f"{significant(flops / size)} FLOP/byte"),
        ("achieved", si(flops / time_s if flop_per_s is None else flop_per_s, "FLOP/s")),
    )


def chart_caption(analysis: Analysis) -> str:
    """The categories that take the most time, and how close they run to their bound."""
    times = longest_first((row.category, row.time_s) for row in analysis.operators)
    times |= {name: time_s for name, time_s in (analysis.category_breakdown or {}).items() if name in times}
    parts = []
    for category, time_s in sorted(times.items(), key=lambda item: -item[1]):
        efficiency = category_efficiency(analysis, category, time_s)
        if efficiency is not None:
            share = percent(share_of_step(time_s, analysis))
            reached = f"{percent(efficiency)} efficiency{' or more' if analysis.other_programs else ''}"
            parts.append(f"{plural(category)}: {share} of the time at {reached}")
    without = (
        "Operators by intensity and speed."
        if analysis.operators and not analysis.unrecorded
        else "The roofs of this device."
    )
    return sentence("; ".join(parts[:2])) or without


def chart_note(analysis: Analysis, chart: RooflineChart) -> str:
    """What the marks mean, which points a cache serves, and which operators are not drawn."""
    off_chart = [row for row in analysis.operators if not _can_be_placed(row)] if chart.points else []
    texts = [
        "A point is an operator: its area is its time, its color its category." if chart.points else "",
        (
            "The rings are the phases. Operators of prefill are squares; calls of decode whose "
            "tensors grow are one point."
        )
        if len(chart.rings) > 1
        else "The ring is the whole run."
        if chart.rings
        else "",
        "Bars: 10th percentile to median of an operator's speed over the steps."
        if any(point.spread for point in chart.points)
        else "",
    ]
    if off_chart:
        time = seconds(sum(row.time_s for row in off_chart))
        texts.append(
            f"Not on the chart, without FLOPs or bytes: {counted(len(off_chart), 'operator')} ({time})."
        )
    if chart.left_out:
        crowded = (
            f" or not among the {MOST_POINTS} longest"
            if len(chart.points) + chart.left_out > MOST_POINTS
            else ""
        )
        texts.append(f"{chart.left_out} more, short and far from the rest{crowded}, are in the table only.")
    return joined(" ", *texts)


def _can_be_placed(row: OperatorRow) -> bool:
    return all(value > 0 and math.isfinite(value) for value in (row.flops, row.bytes, row.time_s))


def _lines(row: OperatorRow) -> tuple[tuple[str, str], ...]:
    """The hover text of an operator: labels and values."""
    bound = bound_style(row.bound)
    lines = [
        ("module", row.module),
        ("phase", row.phase),
        ("shapes", clip(row.shapes, 70)),
        ("calls", count_text(row.calls)),
        *rate_lines(row.flops, row.bytes, row.time_s, row.flop_per_s),
        ("attainable", "" if row.attainable_flop_per_s is None else si(row.attainable_flop_per_s, "FLOP/s")),
        ("efficiency", given("{}", row.efficiency, percent)),
        ("headroom", given("{}", row.headroom_s, seconds)),
        ("bound", f"{bound.name} ({bound.letter})" + given(", against {}", row.memory_level)),
        ("warning", roofline_warning(row.efficiency, row.flag)),
    ]
    return tuple((name, text) for name, text in lines if text)


def _placed(analysis: Analysis) -> tuple[dict[int, OperatorRow], dict[int, tuple[str, float]]]:
    """The rows that have a place, by their index, and the name and headroom of those that have the most.

    Calls of one module whose tensors grow from token to token are one. Repeated layers have one name, and the
    headroom of all.
    """
    index_of = {id(row): index for index, row in enumerate(analysis.operators)}
    placed: dict[int, OperatorRow] = {}
    labels: dict[int, tuple[str, float]] = {}
    for folded in sorted(table_rows(analysis), key=lambda folded: -(folded.row.headroom_s or 0.0)):
        modules = grouped(
            filter(_can_be_placed, folded.members if not folded.reason else ()), lambda row: row.module
        )
        here: dict[int, OperatorRow] = {}
        for rows in modules.values():
            grows = len({row.shapes for row in rows}) > 1
            here |= (
                {index_of[id(rows[0])]: summed(rows)} if grows else {index_of[id(row)]: row for row in rows}
            )
        placed |= here
        if folded.row.headroom_s and here and len(labels) < MOST_LABELS:
            longest = max(here, key=lambda index: here[index].headroom_s or 0.0)
            name = shorten_middle(short_name(here[longest].name).replace("backward", "bwd"), _LONGEST_NAME)
            times = f" ×{len(modules)}" if len(modules) > 1 else ""
            label = f"{name} {shorten_path(folded.row.module, _LONGEST_PATH)}".strip() + times
            taken = {label for label, _ in labels.values()}
            # The chart numbers those that are still equal.
            text = next((text for text in _longer(label, here[longest]) if text not in taken), label)
            labels[longest] = text, folded.row.headroom_s
    return dict(sorted(placed.items())), labels


def _rings(analysis: Analysis) -> tuple[Ring, ...]:
    """The phases of a generation, or else the whole run."""
    phases = analysis.generation.phases if analysis.generation else ()
    rings = tuple(
        Ring(
            name=phase.kind,
            intensity=phase.work.flops / phase.work.bytes,
            flop_per_s=phase.work.flops / phase.step_s,
            lines=rate_lines(phase.work.flops, phase.work.bytes, phase.step_s),
        )
        for phase in phases
        if phase.work and phase.work.flops > 0 and phase.work.bytes > 0 and phase.step_s > 0
    )
    whole = _ring(analysis)
    return rings or ((whole,) if whole else ())


def _ring(analysis: Analysis) -> Ring | None:
    """The whole run, on the clock of its points."""
    totals = analysis.totals
    if not totals or not totals.flops or not totals.bytes or totals.time_s is None:
        return None
    time_s, basis = totals.time_s, "over the time of all operators"
    if analysis.timeline:
        time_s = analysis.timeline.span_s
        basis = "over the median step, profiler off" if analysis.basis.timed else "over the traced span"
    if time_s <= 0:
        return None
    lines = tuple(
        (name, f"{text} ({basis})" if name == "time" else text)
        for name, text in rate_lines(totals.flops, totals.bytes, time_s)
    )
    return Ring(intensity=totals.flops / totals.bytes, flop_per_s=totals.flops / time_s, lines=lines)


def _longer(label: str, row: OperatorRow) -> Iterable[str]:
    """The label of a row alone, with its phase, and with its first shape."""
    yield label
    if row.phase:
        yield f"{label} ({row.phase})"
    if row.shapes:
        yield f"{label} {clip(row.shapes.split(',')[0], 18)}"
