"""The figures as Matplotlib draws them: the roofline of an analysis and its step times, for the PDF, TensorBoard and notebooks.

What to draw comes from ``chart``; here it gets lines, type and colour. Figures are built without pyplot, so nothing global changes
and no window opens.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterable
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from rooflines.reports.charts.axes import Limits
from rooflines.reports.charts.labels import Box, place_labels
from rooflines.reports.charts.palette import INK, SERIES, Ink, Theme, category_colour, category_mark
from rooflines.reports.charts.paper import POINTS_PER_INCH, SANS, SERIF, SMALL, TEXT, axes_at, paper, text_width
from rooflines.reports.charts.roofline import Chart, Roof, marker_diameter, roofline_chart
from rooflines.reports.words.sentences import missing_ceilings, missing_operators, steps_sentences
from rooflines.reports.words.text import shorten_name
from rooflines.roofline.analysis import Analysis
from rooflines.units import percent, scale, seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LARGEST_POINT = 30.0
_SMALLEST_POINT = 3.5
_OBSTACLES = 400  # points that words keep off; the chart lists those with the most time first
_OPACITY = 0.82
_PNG_DPI = 160
_LONGEST_NAME = 36
_CLEAR = 2.5
_BESIDE_RIDGE = 26.0
_MOST_STEPS = 400
# The id of the marks of the timed steps in an SVG.
STEPS_GROUP = "timed-steps"
# A point above its bound is outlined; one with less than this share of the longest point's time gets no mark beside it.
_MARKED = 0.02


class _Plot(NamedTuple):
    """An axes whose place on the paper is known: ``width`` and ``height`` in points, and the mean width of a character."""

    axes: Axes
    limits: Limits
    width: float
    height: float
    family: str
    ink: Ink

    def length(self, text: str, size: float) -> float:
        """How long ``text`` is, in points."""
        return text_width(text, size, self.family)

    def points(self, x: float, y: float) -> tuple[float, float]:
        across, up = self.limits.fraction(x, y)
        return across * self.width, up * self.height

    def write(self, x: float, y: float, text: str, **style: Any) -> None:
        """Text at ``x``, ``y`` in points from the lower left corner of the plot."""
        style = {"size": TEXT, "color": self.ink.text, "va": "center", **style}
        # A dollar sign in an operator's name is not the start of a formula.
        self.axes.text(
            x / self.width, y / self.height, text, transform=self.axes.transAxes, family=self.family, parse_math=False, **style
        )


def roofline_figure(
    analysis: Analysis, *, width_in: float = 7, height_in: float = 4.5, dark: bool = False, family: str = SANS, paths: bool = False
) -> Figure:
    """The roofline of ``analysis``: roofs with their sources, operators by time and category, the ten with the most headroom named.

    ``paths`` connects the operators of a category in the order of their rows.
    An analysis without roofs or without operators gives a figure that says so in their place.
    """
    theme: Theme = "dark" if dark else "light"
    chart = roofline_chart(analysis)
    if chart is None:
        return _sentence_figure(missing_operators(analysis) or "No operator has a FLOP and byte count.", width_in, 1.0, theme, family)
    figure, axes, width, height = _page(width_in, height_in, INK[theme], family, top=30.0, bottom=30.0)
    plot = _Plot(axes, chart.limits, width, height, family, INK[theme])
    _scales(plot, chart)
    _band(plot, chart)
    taken = _paths(plot, chart, theme) if paths else []
    taken += _points(plot, chart, theme)
    taken += _names(plot, chart, taken)
    taken += _ring(plot, chart, taken)
    for roof in sorted((roof for roof in chart.roofs if roof.shown), key=lambda roof: (not roof.primary, roof.kind == "memory")):
        taken += _roof(plot, chart, roof, taken)
    _ridges(plot, chart, taken)
    _band_name(plot, chart, taken)
    if not any(point.category in SERIES for point in chart.points):  # their points have names
        _key(plot, chart, theme)
    missing = missing_ceilings(analysis) or (None if chart.points else missing_operators(analysis))
    if missing:
        plot.write(width, height + 8, missing, ha="right", size=SMALL, color=plot.ink.warning)
    return figure


def steps_figure(analysis: Analysis, *, width_in: float = 7, height_in: float = 1.7, dark: bool = False, family: str = SANS) -> Figure:
    """Every timed step that was not disturbed in the order run, the median with its 95 % interval, and the 10th to 90th percentile."""
    from matplotlib.ticker import MaxNLocator

    theme: Theme = "dark" if dark else "light"
    steps = analysis.steps
    if steps is None or not steps.durations_s:
        sentence = steps_sentences(analysis)[0] if steps is None else "The durations of single steps were not kept."
        return _sentence_figure(sentence, width_in, 0.6, theme, family)
    figure, axes, width, height = _page(width_in, height_in, INK[theme], family, top=16.0, bottom=26.0, right=96.0)
    ink = INK[theme]
    factor, prefix = scale(max(steps.quiet_s))
    values = [value / factor for value in steps.quiet_s]
    # Half a step of room at both ends; the vertical axis ends where the data ends, and is never so short that noise looks like a trend.
    low, high = min([*values, steps.p10_s / factor]), max([*values, steps.p90_s / factor])
    middle, half = (low + high) / 2, max((high - low) / 2 * 1.15, steps.median_s / factor * 0.02)
    limits = Limits(x_low=0.5, x_high=len(steps.durations_s) + 0.5, y_low=middle - half, y_high=middle + half)
    axes.set_xlim(limits.x_low, limits.x_high)
    axes.set_ylim(limits.y_low, limits.y_high)
    axes.axhspan(steps.p10_s / factor, steps.p90_s / factor, color=ink.band, linewidth=0)
    if steps.ci95_s is not None:
        axes.axhspan(steps.ci95_s[0] / factor, steps.ci95_s[1] / factor, color=ink.line, linewidth=0)
    axes.axhline(steps.median_s / factor, color=ink.roof, linewidth=0.9)
    numbers, drawn = zip(*((number, value / factor) for number, value in drawn_steps(analysis)), strict=True)
    axes.plot(numbers, drawn, "o", markersize=3.2 if len(drawn) < 200 else 1.6, color=ink.accent, markeredgewidth=0, gid=STEPS_GROUP)
    plot = _Plot(axes, limits, width, height, family, ink)

    def level(value: float) -> float:
        return (value / factor - limits.y_low) / (limits.y_high - limits.y_low) * height

    apart = TEXT + 2.5
    texts = [(level(steps.median_s), f"median {seconds(steps.median_s)}", ink.text)]
    texts.append((max(level(steps.p90_s), texts[0][0] + apart), f"90 % below {seconds(steps.p90_s)}", ink.muted))
    texts.append((min(level(steps.p10_s), texts[0][0] - apart), f"10 % below {seconds(steps.p10_s)}", ink.muted))
    for y, text, colour in texts:
        plot.write(width + 5, y, text, color=colour, size=SMALL)
    plot.write(0, height + 9, f"step time, {prefix}s", color=ink.muted, size=SMALL)
    plot.write(width, -20, "timed step", color=ink.muted, size=SMALL, ha="right")
    axes.xaxis.set_major_locator(MaxNLocator(nbins=10, integer=True, min_n_ticks=1))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=4))
    return figure


def drawn_steps(analysis: Analysis) -> list[tuple[int, float]]:
    """The timed steps that the figure shows, with their numbers; of very many every n-th."""
    steps = analysis.steps
    drawn = [] if steps is None else [(i + 1, time_s) for i, time_s in enumerate(steps.durations_s) if i not in steps.disturbed]
    return drawn[:: max(1, math.ceil(len(drawn) / _MOST_STEPS))]


def as_svg(figure: Figure, family: str | None = None) -> str:
    """The figure as SVG with its text as text; ``family`` is the font family of the text."""
    import matplotlib

    buffer = io.StringIO()
    # The salt fixes the ids in the file: the same figure is the same text.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "rooflines"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    return text.replace(SERIF, family) if family else text


def as_png(figure: Figure) -> bytes:
    """The figure as a PNG that is the same from run to run."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=_PNG_DPI, metadata={"Software": None})
    return buffer.getvalue()


def _page(
    width_in: float, height_in: float, ink: Ink, family: str, *, top: float, bottom: float, left: float = 40.0, right: float = 10.0
) -> tuple[Figure, Axes, float, float]:
    """A figure with one axes inside the given margins in points, and the size of that axes in points."""
    figure = paper(width_in * POINTS_PER_INCH, height_in * POINTS_PER_INCH, ink)
    width, height = width_in * POINTS_PER_INCH - left - right, height_in * POINTS_PER_INCH - top - bottom
    axes = axes_at(figure, (left, bottom, width, height), ink, edge=ink.faint_roof, size=TEXT, family=family)
    return figure, axes, width, height


def _sentence_figure(sentence: str, width_in: float, height_in: float, theme: Theme, family: str) -> Figure:
    figure, axes, _, _ = _page(width_in, height_in, INK[theme], family, top=4.0, bottom=4.0)
    axes.set_axis_off()
    axes.text(0.5, 0.5, sentence, ha="center", va="center", color=INK[theme].muted, size=TEXT, family=family, wrap=True)
    return figure


def _scales(plot: _Plot, chart: Chart) -> None:
    from matplotlib.ticker import FixedLocator, LogLocator, NullFormatter

    axes, limits, ink = plot.axes, plot.limits, plot.ink
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(limits.x_low, limits.x_high)
    axes.set_ylim(limits.y_low, limits.y_high)
    for axis, ticks, low, high in (
        (axes.xaxis, chart.x_ticks, limits.x_low, limits.x_high),
        (axes.yaxis, chart.y_ticks, limits.y_low, limits.y_high),
    ):
        shown = [tick for tick in ticks if low <= tick.value <= high]
        axis.set_major_locator(FixedLocator([tick.value for tick in shown]))
        axis.set_ticklabels([tick.text for tick in shown])
        axis.set_minor_locator(LogLocator(subs=range(2, 10)))
        axis.set_minor_formatter(NullFormatter())
    axes.grid(which="major", color=ink.grid, linewidth=0.5)
    plot.write(plot.width, -22, "arithmetic intensity, FLOP/byte", color=ink.muted, ha="right")
    plot.write(-34, plot.height + 8, chart.y_unit, color=ink.muted)


def _band(plot: _Plot, chart: Chart) -> None:
    if chart.band is None:
        return
    band = chart.band
    plot.axes.fill_between(band.x, band.lower, band.upper, color=plot.ink.band, linewidth=0, zorder=0.5)


def _band_name(plot: _Plot, chart: Chart, taken: list[Box]) -> None:
    """What the band means, under its lower edge at the right, where that is free."""
    if chart.band is None:
        return
    text = "half of the roof"
    length = plot.length(text, SMALL)
    knee, edge = plot.points(chart.band.x[1], chart.band.lower[-1])
    for x in range(int(plot.width - length - 4), max(0, int(knee)), -6):
        if _free(plot, chart, _along(x, edge - 6, length, 0.0), taken):
            plot.write(x, edge - 6, text, size=SMALL, color=plot.ink.muted, zorder=6)
            return


def _paths(plot: _Plot, chart: Chart, theme: Theme) -> list[Box]:
    """A line through the operators of each category; returns the places on the lines."""
    taken = []
    for category in {point.category for point in chart.points}:
        path = sorted((point for point in chart.points if point.category == category), key=lambda point: point.row)
        plot.axes.plot(
            [point.intensity for point in path], [point.flop_per_s for point in path], color=category_colour(category, theme),
            linewidth=1.2, alpha=0.7, zorder=2.8,
        )  # fmt: skip
        for (ax, ay), (bx, by) in pairwise(plot.points(point.intensity, point.flop_per_s) for point in path):
            length = math.hypot(bx - ax, by - ay)
            taken += [Box(x, y, x, y) for x, y in _along(ax, ay, length, math.atan2(by - ay, bx - ax))[1:-1]]
    return taken


def _points(plot: _Plot, chart: Chart, theme: Theme) -> list[Box]:
    """The operators, longest first, so that a small point lies on a large one; what is above its bound is outlined and marked.

    Returns the boxes that the marks fill.
    """
    marks = []
    for point in chart.points:
        diameter = marker_diameter(point.area, _LARGEST_POINT, smallest=_SMALLEST_POINT)
        warned = bool(point.warning)
        plot.axes.plot(
            point.intensity, point.flop_per_s, category_mark(point.category), markersize=diameter,
            color=category_colour(point.category, theme), alpha=_OPACITY,
            markeredgecolor=plot.ink.warning if warned else plot.ink.page, markeredgewidth=1.1 if warned else 0.6,
            zorder=3.5 if warned else 3, gid=f"point-{point.row}",
        )  # fmt: skip
        if warned and point.area >= _MARKED:
            x, y = plot.points(point.intensity, point.flop_per_s)
            x += diameter / 2 + 3
            plot.write(x, y, "!", color=plot.ink.warning, weight="bold", size=TEXT + 1.5, ha="center", zorder=6)
            marks.append(Box(x - 3, y - 5, x + 3, y + 5))
    return marks


def _names(plot: _Plot, chart: Chart, taken: Iterable[Box]) -> list[Box]:
    """The names of the operators with the most headroom, each with a line to its point; returns the boxes both fill."""
    labelled = tuple(msgspec.structs.replace(point, label=shorten_name(point.label, _LONGEST_NAME)) for point in chart.labelled)
    named = msgspec.structs.replace(chart, labelled=labelled)
    labels = place_labels(
        named, plot.width, plot.height, character=0.5 * TEXT, line=SMALL + 3.5, largest=_LARGEST_POINT, smallest=_SMALLEST_POINT,
        least_mark=_SMALLEST_POINT, reserved=taken, length=lambda text: plot.length(text, SMALL),
    )  # fmt: skip
    point_of = {point.row: point for point in chart.points}
    boxes = []
    for label in labels:
        point = point_of[label.row]
        x, y = plot.points(label.x, label.y)
        half_width, half_height = plot.length(label.text, SMALL) / 2, SMALL / 2
        box = Box(x - half_width, y - half_height, x + half_width, y + half_height)
        from_x, from_y = plot.points(point.intensity, point.flop_per_s)
        to_x, to_y = box.leader_end(from_x, from_y)
        radius = marker_diameter(point.area, _LARGEST_POINT, smallest=_SMALLEST_POINT) / 2
        length = math.hypot(to_x - from_x, to_y - from_y)
        if length > radius + _CLEAR + 1:
            # The line ends short of the text, which the reader's face may set a little wider than ours.
            to_x, to_y = to_x - (to_x - from_x) * _CLEAR / length, to_y - (to_y - from_y) * _CLEAR / length
            length -= _CLEAR
            start_x, start_y = from_x + (to_x - from_x) * radius / length, from_y + (to_y - from_y) * radius / length
            plot.axes.plot(
                [start_x / plot.width, to_x / plot.width], [start_y / plot.height, to_y / plot.height],
                transform=plot.axes.transAxes, color=plot.ink.faint_roof, linewidth=0.5, zorder=4,
            )  # fmt: skip
            pieces = math.ceil(length / 5)
            for piece in range(pieces + 1):
                at_x, at_y = start_x + (to_x - start_x) * piece / pieces, start_y + (to_y - start_y) * piece / pieces
                boxes.append(Box(at_x, at_y, at_x, at_y))
        plot.write(x, y, label.text, size=SMALL, ha="center", zorder=6, gid=f"name-{label.row}")
        boxes.append(box)
    return boxes


def _ring(plot: _Plot, chart: Chart, taken: Iterable[Box]) -> list[Box]:
    """The whole run as a ring, named where there is room beside it."""
    ring = chart.ring
    if ring is None or not plot.limits.contains(ring.intensity, ring.flop_per_s):
        return []
    plot.axes.plot(
        ring.intensity, ring.flop_per_s, "o", markersize=9, fillstyle="none", color=plot.ink.text, markeredgewidth=1.4, zorder=5
    )
    x, y = plot.points(ring.intensity, ring.flop_per_s)
    length = plot.length(ring.text, SMALL)
    for dx, dy in ((8, 0), (-8 - length, 0), (-length / 2, 11), (-length / 2, -11), (8, 10), (8, -10), (-8 - length, -10)):
        box = Box(x + dx, y + dy - SMALL / 2, x + dx + length, y + dy + SMALL / 2)
        if _free(plot, chart, _along(box.left, y + dy, length, 0.0), taken):
            plot.write(box.left, y + dy, ring.text, size=SMALL, style="italic", zorder=6)
            return [box]
    return []


def _roof(plot: _Plot, chart: Chart, roof: Roof, taken: list[Box]) -> list[Box]:
    """A thin line with its value written along it, where no name stands; returns the boxes the words fill.

    A primary roof is dark and tells its source; the others, caches as a rule, are lighter and leave that to the table.
    """
    style: dict[str, Any] = {"color": plot.ink.roof, "linewidth": 1.0}
    if not roof.primary:
        style = {"color": plot.ink.faint_roof, "linewidth": 0.6, "linestyle": (0, (4, 2))}
    plot.axes.plot(roof.x, roof.y, zorder=2 if roof.primary else 1.5, solid_capstyle="butt", gid=f"roof-{roof.name}", **style)
    text, size, colour = (roof.text, TEXT, plot.ink.roof) if roof.primary else (roof.short, SMALL, plot.ink.muted)
    # A cache's line goes on along the roof that it reaches: its name stands on the slope.
    (x0, y0), (x1, y1) = (plot.points(x, y) for x, y in zip(roof.x[:2], roof.y[:2], strict=True))
    if roof.kind == "compute":
        (x0, y0), (x1, y1) = (plot.points(x, y) for x, y in zip(roof.x[-2:], roof.y[-2:], strict=True))
    angle = math.atan2(y1 - y0, x1 - x0)
    length = plot.length(text, size)
    reach = math.hypot(x1 - x0, y1 - y0)
    above_x, above_y = -math.sin(angle) * 7.5, math.cos(angle) * 7.5
    flat = roof.kind == "compute"
    room = reach - length - 4
    starts = []
    for step in range(25):
        if flat:
            # At its right end if it can; its left end lies under the slanted roof.
            starts.append(room if room <= 0 else max(room * (1 - step / 24), min(_BESIDE_RIDGE, room)))
        else:
            # Near the middle of its slope.
            starts.append((0.5 + (step + 1) // 2 / 24 * (-1) ** step) * (reach - length))
    lines = [(x0 + math.cos(angle) * start + above_x, y0 + math.sin(angle) * start + above_y) for start in starts]
    found = [(_covered(plot, chart, _along(*line, length, angle), taken), line) for line in lines]
    covered, (x, y) = min(found, key=lambda pair: pair[0])
    # A primary roof is never left without its name: where no place is free, the least covered will do. The table names the others.
    if covered and not roof.primary:
        return []
    plot.write(x, y, text, size=size, rotation=math.degrees(angle), rotation_mode="anchor", ha="left", color=colour, zorder=6)
    return [Box(px - 5, py - 5, px + 5, py + 5) for px, py in _along(x, y, length, angle)]


def _ridges(plot: _Plot, chart: Chart, taken: list[Box]) -> None:
    """A mark where the roofs meet, and its intensity at the foot of a fine line."""
    for ridge in chart.ridges:
        if not plot.limits.contains(ridge.intensity, ridge.flop_per_s):
            continue
        x, y = plot.points(ridge.intensity, ridge.flop_per_s)
        plot.axes.plot(
            [ridge.intensity] * 2, [plot.limits.y_low, ridge.flop_per_s], color=plot.ink.faint_roof, linewidth=0.5,
            linestyle=(0, (1, 2.5)), zorder=1,
        )  # fmt: skip
        plot.axes.plot(ridge.intensity, ridge.flop_per_s, "D", markersize=3, color=plot.ink.roof, zorder=4)
        length = plot.length(ridge.text, SMALL)
        for foot in range(7, int(y), 6):
            start = next((s for s in (x + 3, x - 3 - length) if _free(plot, chart, _along(s, foot, length, 0.0), taken)), None)
            if start is not None:
                plot.write(start, foot, ridge.text, size=SMALL, color=plot.ink.muted, zorder=6)
                taken.append(Box(start, foot - 4, start + length, foot + 4))
                break


def _key(plot: _Plot, chart: Chart, theme: Theme) -> None:
    """Which colour is which category, with its share of the operator time: one line above the plot, as many as fit."""
    x, y = 10.0, plot.height + 21.0
    entries = [
        (f"{entry.category} {percent(entry.share)}", category_colour(entry.category, theme), category_mark(entry.category))
        for entry in chart.legend
    ]
    for text, colour, mark in [*entries, *([("area: time", None, "")] if chart.points else [])]:
        length = plot.length(text, SMALL)
        if x + length > plot.width:
            x, y = 10.0, y - SMALL - 3
        if colour is not None:
            plot.axes.plot(
                (x - 6) / plot.width, y / plot.height, mark, markersize=5, color=colour, alpha=_OPACITY, markeredgewidth=0,
                transform=plot.axes.transAxes, clip_on=False,
            )  # fmt: skip
        plot.write(x, y, text, size=SMALL, color=plot.ink.muted if colour is None else plot.ink.text)
        x += length + 20


def _along(x: float, y: float, length: float, angle: float) -> list[tuple[float, float]]:
    """Places along a line of text, close enough together that nothing fits between two of them."""
    count = max(2, math.ceil(length / 5))
    return [(x + math.cos(angle) * length * i / count, y + math.sin(angle) * length * i / count) for i in range(count + 1)]


def _free(plot: _Plot, chart: Chart, places: Iterable[tuple[float, float]], taken: Iterable[Box]) -> bool:
    """Whether text over ``places`` stays on the plot and off other text and the points."""
    return _covered(plot, chart, places, taken) == 0


def _covered(plot: _Plot, chart: Chart, places: Iterable[tuple[float, float]], taken: Iterable[Box]) -> int:
    """How many of ``places`` lie off the plot, on other text, or on one of the points with the most time."""
    discs = []
    for point in chart.points[:_OBSTACLES]:
        diameter = marker_diameter(point.area, _LARGEST_POINT)
        discs.append((*plot.points(point.intensity, point.flop_per_s), diameter / 2 + 3))
    boxes = list(taken)
    return sum(
        not (0 <= x <= plot.width and 0 <= y <= plot.height + 4)
        or any(box.touches(x, y, SMALL / 2 + 0.5) for box in boxes)
        or any(math.hypot(x - cx, y - cy) < radius for cx, cy, radius in discs)
        for x, y in places
    )
