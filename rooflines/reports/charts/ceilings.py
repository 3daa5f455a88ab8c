"""The ceilings as a picture: a row a roof on a logarithmic scale, measured values next to the data sheet and
the derivation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rooflines.device_specs.compare import RoofComparison
from rooflines.device_specs.records import Ceilings, marks_of
from rooflines.reports.charts.palette import Ink
from rooflines.reports.charts.paper import SMALL, TEXT, Drawing, PaperSheet, Style, decades, logarithmic
from rooflines.reports.words.ceilings import SOURCE_WORDS, ceiling_name, roof_order
from rooflines.reports.words.text import joined
from rooflines.units import percent, scale, si

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Above this a measured rate beats its reference by more than noise.
ABOVE = 1.02
_PANELS = (("compute", "arithmetic", "FLOP/s"), ("memory", "memory", "B/s"), ("link", "links", "B/s"))
# What a value is drawn as; the first lie above the others.
_MARKS = {"measured": "o", "spec": "|", "derived": "D"}
_WIDTH_IN = 8.4
# In points.
_WIDTH, _ROW = 604.8, 14.4
_LEFT, _RIGHT = 126.0, 180.0
_ABOVE, _BELOW, _KEY = 24.48, 21.6, 14.4


class CeilingMarks(Drawing, frozen=True, kw_only=True):
    """The measured ceilings with what they are compared with."""

    widths_in = (_WIDTH_IN,)

    measured: Ceilings
    compared: tuple[RoofComparison, ...] = ()

    def figure(self, sheet: PaperSheet) -> Figure:
        """A panel for arithmetic, memory and links each: measured as a dot, the sheet's as a bar, the derived
        one a diamond."""
        panels = [(title, unit, rows) for kind, title, unit in _PANELS if (rows := self._rows(kind))]
        top = sum(_ABOVE + _ROW * len(rows) + _BELOW for _, _, rows in panels)
        figure = sheet.figure(_WIDTH, _KEY + top)
        _key(sheet, figure, [row for _, _, rows in panels for row in rows])
        for title, unit, rows in panels:
            tall = _ROW * len(rows)
            place = (_LEFT, top - tall - _ABOVE, _WIDTH - _LEFT - _RIGHT, tall)
            _panel(sheet, sheet.axes(figure, place, sides=("bottom",)), title, unit, rows)
            top -= _ABOVE + tall + _BELOW
        return figure

    def _rows(self, kind: str) -> list[RoofComparison]:
        """The measured roofs of a kind with their references, and below them those that only a reference
        has."""
        rows = []
        for roof in roof_order(self.measured.ceilings):
            if roof.kind == kind and roof.value > 0 and math.isfinite(roof.value):
                held = next((row for row in self.compared if row.measured is roof), None)
                rows.append(held or RoofComparison(measured=roof))
        return rows + [row for row in self.compared if not row.measured and row.any.kind == kind]


def _key(sheet: PaperSheet, figure: Figure, rows: Sequence[RoofComparison]) -> None:
    """The meaning of the marks that appear, and of a fraction."""
    from matplotlib.lines import Line2D

    width, height = figure.get_size_inches()
    x, y = 0.2, height - 0.1

    def text(words: str, color: str) -> None:
        figure.text(
            x / width,
            y / height,
            words,
            size=SMALL,
            color=color,
            family=sheet.family,
            va="center",
            parse_math=False,
        )

    for source, mark in _MARKS.items():
        if any(getattr(row, source) for row in rows):
            words = SOURCE_WORDS[source]
            figure.add_artist(Line2D([x / width], [y / height], **_mark(mark, sheet.ink, further=False)))
            x += 0.1
            text(words, sheet.ink.text)
            x += 0.25 + 0.07 * len(words)
    held = {row.reference_source for row in rows if row.fraction is not None}
    if held:
        of_sheet = "reached: of the data sheet's figure" if "spec" in held else "reached:"
        text(joined(", ", of_sheet, "* of the derived figure" if "derived" in held else ""), sheet.ink.muted)


def _mark(kind: str, ink: Ink, *, further: bool) -> Style:
    """How a value of a kind is drawn: measured a dot, the sheet a bar, derived a hollow diamond."""
    style: Style = {"markersize": 9, "color": ink.roof, "markeredgewidth": 1.6}
    if kind == "o":
        style = {
            "markersize": 3.6 if further else 5.5,
            "color": ink.faint_roof if further else ink.accent,
            "markeredgewidth": 0,
        }
    elif kind == "D":
        style = {
            "markersize": 4.4,
            "color": ink.page,
            "markeredgecolor": ink.faint_roof,
            "markeredgewidth": 1.0,
        }
    return {"marker": kind, "linestyle": "none", **style}


def _panel(sheet: PaperSheet, axes: Axes, title: str, unit: str, rows: Sequence[RoofComparison]) -> None:
    ink = sheet.ink
    values = [[one.value for one in (row.measured, row.spec, row.derived) if one] for row in rows]
    largest = max(map(max, values))
    low, high = min(map(min, values)) / 1.6, largest * 1.6
    factor, prefix = scale(largest)
    # Labeled at decades, and between them where it shows less than two.
    seen = [power for power in decades(low, high, factor) if low <= factor * 10.0**power <= high]
    logarithmic(axes, "x", low, high, factor, steps=(1,) if len(seen) > 1 else (1, 2, 5))
    axes.set(ylim=(len(rows) - 0.5, -0.5), yticks=[])
    axes.grid(axis="x", which="major", color=ink.grid, linewidth=0.6)

    def text(x: float, y: float, words: str, **style: Any) -> None:
        """``x`` as a share of the axes' width, ``y`` in rows."""
        sheet.write(axes, x, y, words, transform=axes.get_yaxis_transform(), **style)

    text(-0.02, -1.0, f"{title}, {prefix}{unit}", size=SMALL, color=ink.muted, ha="right")
    if any(row.fraction is not None for row in rows):
        text(1.42, -1.0, "reached", size=SMALL, color=ink.muted)
    for index, (row, drawn) in enumerate(zip(rows, values, strict=True)):
        roof = row.any
        color = ink.muted if roof.variant else ink.text
        text(-0.02, index, ceiling_name(roof), color=color, ha="right")
        if len(drawn) > 1:
            axes.plot([min(drawn), max(drawn)], [index, index], color=ink.line, linewidth=1.2, zorder=2)
        for order, (source, kind) in enumerate(_MARKS.items()):
            if one := getattr(row, source):
                axes.plot(
                    one.value,
                    index,
                    zorder=5 - order,
                    clip_on=False,
                    **_mark(kind, ink, further=bool(roof.variant)),
                )
        spread = f" ±{percent(roof.spread, 1)}" if row.measured and roof.spread is not None else ""
        warned = row.measured and marks_of(roof)
        value = si(roof.value, roof.unit) if row.measured else f"{si(roof.value, roof.unit)}, not measured"
        text(1.03, index, f"{value}{spread}{'  !' if warned else ''}", color=ink.warning if warned else color)
        if row.fraction is not None:
            of = "" if row.reference_source == "spec" else " *"
            weight = "bold" if row.fraction > ABOVE else "normal"
            text(1.42, index, f"{percent(row.fraction)}{of}", color=color, weight=weight, size=TEXT)
