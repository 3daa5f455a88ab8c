"""The ceilings as a picture: a row a roof on a logarithmic scale, measured values next to the data sheet and the derivation.

One figure serves all three formats: PNG and SVG are it alone, the page shows it in the reader's colours above a table of everything.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rooflines.device_specs.compare import RoofComparison
from rooflines.device_specs.records import Ceiling, Ceilings, marks_of
from rooflines.reports.charts.palette import INK, Theme
from rooflines.reports.charts.paper import POINTS_PER_INCH, SANS, SMALL, TEXT, axes_at, paper
from rooflines.reports.words.ceilings import ABOVE, ceiling_name, heading, roof_order
from rooflines.units import percent, scale, si

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PANELS = (("compute", "arithmetic", "FLOP/s"), ("memory", "memory", "B/s"), ("link", "links", "B/s"))
_WIDTH_IN = 8.4
_ROW_IN = 0.2
_LEFT_IN, _RIGHT_IN = 1.75, 2.5
_ABOVE_IN, _BELOW_IN = 0.34, 0.3
_TOP_IN, _KEY_IN = 0.66, 0.2
_PNG_DPI = 160


class _Row(NamedTuple):
    """A roof with its reference."""

    roof: Ceiling
    compared: RoofComparison


def ceilings_figure(measured: Ceilings, rows: Sequence[RoofComparison] = (), *, dark: bool = False, titled: bool = True) -> Figure:
    """A panel for arithmetic, memory and links each: the measured value as a dot, the sheet's as a bar, the derived as a diamond.

    Not ``titled`` where a page says above it what it is of.
    """
    theme: Theme = "dark" if dark else "light"
    panels = [(title, unit, found) for kind, title, unit in _PANELS if (found := _rows(measured, rows, kind))]
    heights = [_ABOVE_IN + _ROW_IN * len(found) + _BELOW_IN for _, _, found in panels]
    head = _TOP_IN if titled else _KEY_IN
    height = head + sum(heights)
    figure = paper(_WIDTH_IN * POINTS_PER_INCH, height * POINTS_PER_INCH, INK[theme])
    if titled:
        _title(figure, measured, height, theme)
    _key(figure, [row for _, _, found in panels for row in found], height - head + _KEY_IN, height, theme)
    top = height - head
    for (title, unit, found), tall in zip(panels, heights, strict=True):
        place = (_LEFT_IN, top - tall + _BELOW_IN, _WIDTH_IN - _LEFT_IN - _RIGHT_IN, _ROW_IN * len(found))
        axes = axes_at(figure, tuple(inches * POINTS_PER_INCH for inches in place), INK[theme], sides=("bottom",))  # type: ignore[arg-type]
        _panel(axes, title, unit, found, theme)
        top -= tall
    return figure


def _rows(measured: Ceilings, rows: Sequence[RoofComparison], kind: str) -> list[_Row]:
    """The measured roofs of a kind with their references, and below them those that only a reference has."""
    found = []
    for roof in roof_order(measured.ceilings):
        if roof.kind == kind and roof.value > 0 and math.isfinite(roof.value):
            held = next((row for row in rows if row.measured is roof), None)
            found.append(_Row(roof, held or RoofComparison(measured=roof)))
    found += [_Row(row.any, row) for row in rows if row.measured is None and row.any.kind == kind]
    return found


def _line(figure: Figure, x: float, y: float, text: str, **style: Any) -> None:
    """Text at ``x``, ``y`` in inches from the lower left corner of the figure."""
    width, height = figure.get_size_inches()
    figure.text(x / width, y / height, text, family=SANS, va="center", parse_math=False, **style)


def _title(figure: Figure, measured: Ceilings, height: float, theme: Theme) -> None:
    first, second = heading(measured)
    _line(figure, 0.12, height - 0.17, first, size=TEXT + 1.5, color=INK[theme].text, weight="bold")
    _line(figure, 0.12, height - 0.36, second, size=SMALL, color=INK[theme].muted)


def _key(figure: Figure, rows: Sequence[_Row], top: float, height: float, theme: Theme) -> None:
    """The meaning of the marks that appear, and of a fraction."""
    from matplotlib.lines import Line2D

    ink, x, y = INK[theme], 0.2, top - 0.1
    for text, mark, there in (
        ("measured", "o", any(row.compared.measured for row in rows)), ("data sheet", "|", any(row.compared.spec for row in rows)),
        ("derived", "D", any(row.compared.derived for row in rows)),
    ):  # fmt: skip
        if there:
            figure.add_artist(Line2D([x / _WIDTH_IN], [y / height], **_mark(mark, theme, further=False)))
            _line(figure, x + 0.1, y, text, size=SMALL, color=ink.text)
            x += 0.35 + 0.07 * len(text)
    held = {row.compared.reference_source for row in rows if row.compared.fraction is not None}
    if held:
        of_sheet = "reached: of the data sheet's figure" if "spec" in held else "reached:"
        of_derived = "* of the derived figure" if "derived" in held else ""
        _line(figure, x, y, ", ".join(part for part in (of_sheet, of_derived) if part), size=SMALL, color=ink.muted)


def _mark(kind: str, theme: Theme, *, further: bool) -> dict[str, Any]:
    """How a value of a kind is drawn: measured a dot, the sheet a bar, derived a hollow diamond."""
    ink = INK[theme]
    return {
        "o": {"marker": "o", "markersize": 3.6 if further else 5.5, "color": ink.faint_roof if further else ink.accent,
              "markeredgewidth": 0},
        "|": {"marker": "|", "markersize": 9, "color": ink.roof, "markeredgewidth": 1.6},
        "D": {"marker": "D", "markersize": 4.4, "color": ink.page, "markeredgecolor": ink.faint_roof, "markeredgewidth": 1.0},
    }[kind] | {"linestyle": "none"}  # fmt: skip


def _panel(axes: Axes, title: str, unit: str, rows: Sequence[_Row], theme: Theme) -> None:
    from matplotlib.ticker import FixedLocator, LogLocator, NullFormatter

    ink = INK[theme]
    values = [one.value for row in rows for one in (row.compared.measured, row.compared.spec, row.compared.derived) if one]
    low, high = min(values) / 1.6, max(values) * 1.6
    factor, prefix = scale(max(values))
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    marked = _marks_on_axis(low, high, factor)
    axes.xaxis.set_major_locator(FixedLocator(marked))
    axes.set_xticklabels([f"{value / factor:g}" for value in marked])
    axes.xaxis.set_minor_locator(LogLocator(subs=range(2, 10)))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.grid(axis="x", which="major", color=ink.grid, linewidth=0.6)
    axes.set_yticks([])

    def text(x: float, y: float, words: str, **style: Any) -> None:
        """``x`` as a share of the axes' width, ``y`` in rows."""
        style = {"size": TEXT, "color": ink.text, "va": "center", "family": SANS, "parse_math": False, **style}
        axes.text(x, y, words, transform=axes.get_yaxis_transform(), **style)

    text(-0.02, -1.0, f"{title}, {prefix}{unit}", size=SMALL, color=ink.muted, ha="right")
    reached = any(row.compared.fraction is not None for row in rows)
    if reached:
        text(1.42, -1.0, "reached", size=SMALL, color=ink.muted)
    for index, (roof, compared) in enumerate(rows):
        colour = ink.muted if roof.variant else ink.text
        text(-0.02, index, ceiling_name(roof), color=colour, ha="right")
        found = [one.value for one in (compared.measured, compared.spec, compared.derived) if one]
        if len(found) > 1:
            axes.plot([min(found), max(found)], [index, index], color=ink.line, linewidth=1.2, zorder=2)
        for one, kind, order in ((compared.derived, "D", 3), (compared.spec, "|", 4), (compared.measured, "o", 5)):
            if one is not None:
                axes.plot(one.value, index, zorder=order, clip_on=False, **_mark(kind, theme, further=bool(roof.variant)))
        spread = f" ±{percent(roof.spread, 1)}" if compared.measured and roof.spread is not None else ""
        warned = compared.measured is not None and marks_of(roof)
        value = si(roof.value, roof.unit) if compared.measured else f"{si(roof.value, roof.unit)}, not measured"
        text(1.03, index, f"{value}{spread}{'  !' if warned else ''}", color=ink.warning if warned else colour)
        if compared.fraction is not None:
            of = "" if compared.reference_source == "spec" else " *"
            weight = "bold" if compared.fraction > ABOVE else "normal"
            text(1.42, index, f"{percent(compared.fraction)}{of}", color=colour, weight=weight)


def _marks_on_axis(low: float, high: float, factor: float) -> list[float]:
    """Where the axis is labelled: at decades, and between them where it shows less than two."""
    decades = [factor * 10.0**power for power in range(math.floor(math.log10(low / factor)), math.ceil(math.log10(high / factor)) + 1)]
    seen = [value for value in decades if low <= value <= high]
    return seen if len(seen) > 1 else [value for decade in decades for step in (1, 2, 5) if low <= (value := step * decade) <= high]
