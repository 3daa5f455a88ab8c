"""The roofline chart of the page: the data that its script draws."""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import Any

import msgspec

from rooflines.reports.charts.labels import Label, place_labels, ring_text_is_left
from rooflines.reports.charts.palette import INK, THEMES, category_colour
from rooflines.reports.charts.roofline import Chart, marker_diameter
from rooflines.reports.charts.usage import Timeline
from rooflines.reports.words.text import clip
from rooflines.units import si

# The plot sizes that labels are placed for, widest first, in pixels; below the last one only ranks fit.
_LABEL_SIZES = ((1100, 450), (880, 450), (580, 370))
_RANK_SIZE = (270, 330)


def chart_data(chart: Chart) -> dict[str, Any]:
    """The chart for the page's script: every text escaped for plotly, every colour by name so that the theme can change."""
    plain: dict[str, Any] = msgspec.to_builtins(chart)
    for roof in plain["roofs"]:
        roof["hover"] = _hover(roof["name"], (("ceiling", si(roof["value"], roof["unit"])), (roof["source"], roof["detail"])))
        roof["text"] = plotly_text(roof["text"])
        roof["short"] = plotly_text(roof["short"])
    for ridge in plain["ridges"]:
        ridge["hover"] = _hover(f"{ridge['memory']} meets {ridge['compute']}", (("ridge point", ridge["text"].removeprefix("ridge ")),))
    plain["points"] = [
        {
            "x": float(f"{point.intensity:.6g}"),
            "y": float(f"{point.flop_per_s:.6g}"),
            "size": round(marker_diameter(point.area), 1),
            "category": point.category,
            "warning": bool(point.warning),
            "hover": _hover(point.name, point.hover),
        }
        for point in chart.points
    ]
    positions = {point.row: index for index, point in enumerate(chart.points)}
    plain["labels"] = _placed(chart, positions)
    # With more roofs the axes reach further: names need other places there.
    wide = chart if chart.wide_limits == chart.limits else msgspec.structs.replace(chart, limits=chart.wide_limits)
    plain["wide_labels"] = plain["labels"] if wide is chart else _placed(wide, positions)
    if chart.ring:
        plain["ring"]["left"] = ring_text_is_left(chart)
        plain["ring"]["hover"] = _hover(chart.ring.text, chart.ring.hover)
    plain["colours"] = {
        theme: {
            "ink": msgspec.to_builtins(INK[theme]),
            "category": {legend.category: category_colour(legend.category, theme) for legend in chart.legend},
        }
        for theme in THEMES
    }
    del plain["labelled"]
    return plain


def roof_groups(chart: Chart | None) -> tuple[tuple[str, str, bool], ...]:
    """The groups of roofs that can be switched, with what they hold and whether they are on from the start."""
    if chart is None:
        return ()
    groups: dict[str, tuple[list[str], bool]] = {}
    for roof in chart.roofs:
        if not roof.primary:
            groups.setdefault(roof.why_secondary, ([], roof.shown))[0].append(roof.text)
    return tuple((name, "; ".join(texts), on) for name, (texts, on) in groups.items())


def timeline_data(timeline: Timeline) -> dict[str, Any]:
    """The timeline as plain containers; a line that is not the first of its device in a row is marked as ``second``."""
    plain: dict[str, Any] = msgspec.to_builtins(timeline)
    for row in plain["rows"]:
        row |= {"name": plotly_text(row["name"]), "unit": plotly_text(row["unit"])}
        seen: set[str] = set()
        for line in row["lines"]:
            line["second"] = line["device"] in seen
            seen.add(line["device"])
            line["name"] = plotly_text(line["name"])
    plain["colours"] = {theme: msgspec.to_builtins(INK[theme]) for theme in THEMES}
    return plain


def plotly_text(text: str) -> str:
    """``text`` for a plotly label, where tags and entities would be read as markup."""
    return html.escape(" ".join(text.split()), quote=False)


def _placed(chart: Chart, positions: dict[int, int]) -> list[dict[str, Any]]:
    """The names for every width that the page may have, widest first."""
    placed = [
        {"least_width": width, "labels": _labels(place_labels(chart, width, height), positions)} for width, height in _LABEL_SIZES
    ]
    narrow = place_labels(chart, *_RANK_SIZE, line=16, largest=32.0, ranks_only=True)
    return [*placed, {"least_width": 0, "labels": _labels(narrow, positions)}]


def _labels(labels: Iterable[Label], positions: dict[int, int]) -> list[dict[str, Any]]:
    return [{"text": plotly_text(label.text), "x": label.x, "y": label.y, "point": positions[label.row]} for label in labels]


def _hover(title: str, lines: Iterable[tuple[str, str]]) -> str:
    wrapped = [f"<b>{plotly_text(clip(title, 80))}</b>"]
    for name, text in lines:
        for number, piece in enumerate(_wrap(text, 64)):
            wrapped.append(f"{plotly_text(name)}: {plotly_text(piece)}" if number == 0 else f"   {plotly_text(piece)}")
    return "<br>".join(wrapped)


def _wrap(text: str, width: int) -> list[str]:
    return [text[start : start + width] for start in range(0, len(text), width)] or [""]
