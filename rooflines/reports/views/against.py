"""The operators with the most time against their lower bounds, on a linear scale."""

from __future__ import annotations

from rooflines.reports.charts.palette import bound_style
from rooflines.reports.document import Bar, BarRow, Paragraph, Part, Section, said, section, timed_parts
from rooflines.reports.views.roofline import roofline_warning
from rooflines.reports.words import sentences
from rooflines.reports.words.rows import TableRow, module_text, table_rows
from rooflines.reports.words.text import (
    efficiency_text,
    operator_name,
    shorten_name,
    shorten_path,
    shorten_shapes,
)
from rooflines.roofline.analysis import Analysis
from rooflines.roofline.count.by_key import longest_first
from rooflines.units import seconds

_MOST_ROWS, _MOST_NAMED = 12, 5
_NAME, _PLACE = 28, 24


def against_section(analysis: Analysis) -> Section:
    """The operators with the most time, each with its lower bound and its headroom, and those that have no
    bound."""
    rows = sorted(table_rows(analysis), key=lambda row: -row.row.time_s)
    bounded = [row for row in rows if row.row.lower_bound_s is not None and row.row.time_s > 0]
    title = "Time against bound"
    # Views need no time on any device: their bound of zero says nothing of this one.
    if not any(row.row.lower_bound_s for row in bounded):
        missing = (
            sentences.missing_operators(analysis)
            or sentences.missing_ceilings(analysis)
            or "No operator has a lower bound."
        )
        return section("against", title, Paragraph(missing, "absent"))
    if len(bounded) == 1:
        judged: Paragraph | Bar = Paragraph(f"{_label(bounded[0])}: {_text(bounded[0])}.")
    else:
        shown, longest_s = bounded[:_MOST_ROWS], bounded[0].row.time_s
        of = f": {len(shown)} of {len(bounded)} rows with a bound" if len(bounded) > len(shown) else ""
        caption = f"Lower bound and headroom of the operators with the most time, on one linear scale{of}"
        bars = tuple(
            BarRow(label=_label(row), text=_text(row), parts=_parts(row, longest_s)) for row in shown
        )
        judged = Bar(name="against-rows", caption=caption, rows=bars)
    return section("against", title, judged, *said([_without(rows)], "note", "full"))


def _label(row: TableRow) -> str:
    """The name of the operator and its module, without one its shapes."""
    name = shorten_name(operator_name(row.row), _NAME)
    place = (
        shorten_path(module_text(row), _PLACE) if row.row.module else shorten_shapes(row.row.shapes, _PLACE)
    )
    return f"{name}, {place}" if place else name


def _text(row: TableRow) -> str:
    text = f"{seconds(row.row.time_s)}, bound {seconds(row.row.lower_bound_s or 0.0)}"
    if row.row.efficiency is not None:
        text += f", {efficiency_text(row.row.efficiency)} %"
    return text


def _parts(row: TableRow, longest_s: float) -> tuple[Part, ...]:
    """The time of a row: lower bound, headroom, and the rest of it that has no bound or that computation
    hides."""
    time_s = row.row.time_s
    if roofline_warning(row.row.efficiency, row.row.flag):
        meaning = "a wrong count, a wrong ceiling, or less work than the formula assumes"
        return timed_parts([("faster than its bound", time_s, "doubt", meaning)], longest_s)
    lower_s = min(row.row.lower_bound_s or 0.0, time_s)
    headroom_s = min(row.row.headroom_s or 0.0, time_s - lower_s)
    parts = [
        ("lower bound", lower_s, "bound", "the least time that this device needs for the work"),
        ("headroom", headroom_s, "headroom", "time above the lower bound"),
        (
            "not judged",
            time_s - lower_s - headroom_s,
            "unknown",
            f"{bound_style('unknown').meaning}, or hidden by computation",
        ),
    ]
    return timed_parts(parts, longest_s)


def _without(rows: list[TableRow]) -> str:
    """The operators without a bound, with their time."""
    without = [row.row for row in rows if row.row.lower_bound_s is None and row.row.time_s > 0]
    times = list(longest_first((operator_name(row), row.time_s) for row in without).items())
    named = [f"{name} {seconds(time_s)}" for name, time_s in times[:_MOST_NAMED]]
    if rest := times[_MOST_NAMED:]:
        named.append(f"{len(rest)} more {seconds(sum(time_s for _, time_s in rest))}")
    return f"Without a bound: {sentences.listed(named)}." if named else ""
