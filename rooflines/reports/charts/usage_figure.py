"""The devices' timeline as Matplotlib draws it, for the PDF and TensorBoard: the rows of ``usage_chart``, one above the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rooflines.reports.charts.palette import INK, Ink
from rooflines.reports.charts.paper import POINTS_PER_INCH, SANS, SMALL, TEXT, axes_at, paper, pushed_apart
from rooflines.reports.charts.usage import Row, Timeline
from rooflines.units import significant

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_ROW, _GAP, _TOP, _BOTTOM, _LEFT, _RIGHT = 46.0, 17.0, 16.0, 28.0, 34.0, 84.0
# Names beside one row; with more lines only those of the device in focus are named.
_MOST_NAMES = 5


def timeline_figure(timeline: Timeline, *, width_in: float = 7, dark: bool = False, family: str = SANS) -> Figure:
    """Power, load, memory, temperature and clock of the devices over time."""
    ink, rows = INK["dark" if dark else "light"], timeline.rows
    width = width_in * POINTS_PER_INCH
    height = _TOP + len(rows) * _ROW + (len(rows) - 1) * _GAP + _BOTTOM
    figure = paper(width, height, ink)
    for index, row in enumerate(rows):
        bottom = height - _TOP - (index + 1) * _ROW - index * _GAP
        axes = axes_at(figure, (_LEFT, bottom, width - _LEFT - _RIGHT, _ROW), ink, family=family)
        _draw(axes, row, timeline, ink, family)
        last = index == len(rows) - 1
        axes.tick_params(axis="x", labelbottom=last, length=3.0 if last else 0.0)
        if last:
            axes.set_xlabel(timeline.time_text, size=SMALL, color=ink.muted, family=family, loc="right", labelpad=2)
    return figure


def _draw(axes: Axes, row: Row, timeline: Timeline, ink: Ink, family: str) -> None:
    from matplotlib.ticker import FixedLocator, MaxNLocator

    axes.set_xlim(timeline.begin, timeline.end)
    axes.set_ylim(row.bottom, row.top)
    if timeline.window_text:
        axes.axvspan(*timeline.window, color=ink.band, linewidth=0, zorder=0)
        axes.vlines(timeline.marks, row.bottom, row.top, color=ink.line, linewidth=0.35, zorder=0.5)
    seen: set[str] = set()
    for line in sorted(row.lines, key=lambda line: line.device == timeline.focus):
        strong = line.device == timeline.focus
        style = ":" if line.device in seen else "-"
        seen.add(line.device)
        axes.plot(line.x, line.y, style, color=ink.accent if strong else ink.muted, linewidth=1.2 if strong else 0.7)
    for level in row.levels:
        if level.device == timeline.focus:
            axes.axhline(level.value, color=ink.text, linewidth=0.6, dashes=(5, 3))
            axes.text(
                timeline.begin, level.value, f" {level.text} {significant(level.value)} {row.unit}", size=SMALL, color=ink.muted,
                va="bottom", family=family,
            )  # fmt: skip
    if row.name == "clock":
        for held in timeline.held:
            if held.device == timeline.focus:
                axes.axvspan(held.begin, held.end, 0, 0.07, color=ink.warning, linewidth=0)
    heading: dict[str, Any] = {"size": TEXT, "color": ink.text, "va": "bottom", "family": family, "parse_math": False}
    axes.text(-_LEFT, _ROW + 4, ", ".join(filter(None, (row.name, row.unit))), transform=_in_points(axes), **heading)
    _names(axes, row, timeline, ink, family)
    axes.yaxis.set_major_locator(FixedLocator([0, 50, 100]) if row.unit == "%" else MaxNLocator(nbins=3))
    axes.grid(axis="y", color=ink.grid, linewidth=0.4)
    axes.tick_params(color=ink.line, labelcolor=ink.muted, pad=2)
    axes.tick_params(axis="y", length=0)


def _names(axes: Axes, row: Row, timeline: Timeline, ink: Ink, family: str) -> None:
    """The lines' names at their right ends, pushed apart from the lowest upwards and back into the row."""
    lines = [line for line in row.lines if len(row.lines) <= _MOST_NAMES or line.device == timeline.focus]
    lines.sort(key=lambda line: line.y[-1])
    share = [(line.y[-1] - row.bottom) / (row.top - row.bottom) for line in lines]
    places = pushed_apart([one * _ROW for one in share], SMALL + 1.2, _ROW)
    width = axes.get_position().width * axes.figure.get_figwidth() * POINTS_PER_INCH  # type: ignore[union-attr]
    for line, place in zip(lines, places, strict=True):
        colour = ink.accent if line.device == timeline.focus else ink.muted
        # A dollar sign in a device's name is not the start of a formula.
        style: dict[str, Any] = {"size": SMALL, "color": colour, "va": "center", "family": family, "parse_math": False}
        axes.text(width + 4, place, line.name, transform=_in_points(axes), **style)


def _in_points(axes: Axes) -> object:
    """Coordinates in points from the lower left corner of the axes."""
    from matplotlib.transforms import Affine2D, ScaledTranslation

    figure = axes.figure
    corner = axes.get_position()
    to_corner = ScaledTranslation(corner.x0 * figure.get_figwidth(), corner.y0 * figure.get_figheight(), figure.dpi_scale_trans)  # type: ignore
    return Affine2D().scale(1 / POINTS_PER_INCH) + figure.dpi_scale_trans + to_corner
