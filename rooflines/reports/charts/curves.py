"""Curves and horizontal bars as Matplotlib draws them, each in the colour of its backend."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from rooflines.reports.charts.kinds import Beams, Choice, Choices, Curves
from rooflines.reports.charts.palette import INK, Ink, Theme, category_colour, category_mark
from rooflines.reports.charts.paper import POINTS_PER_INCH, SANS, SMALL, TEXT, axes_at, paper, pushed_apart, text_width
from rooflines.reports.words.text import clip
from rooflines.units import scale

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Picture

_CURVES_IN, _CHOICES_IN = 2.5, 3.2
_BAR_IN, _BARS_MARGIN_IN = 0.3, 0.55
_LEFT_IN, _RIGHT_IN, _TOP_IN, _BOTTOM_IN = 0.55, 1.75, 0.3, 0.4
_LABEL_IN = 1.35
_LABEL_GAP_IN, _PLOT_IN = 0.35, 1.2
_LINE_POINTS = 9.0
# From this ratio of the largest to the smallest value on, an axis is logarithmic.
_WIDE = 12.0
_MOST_MARKS = 12
_PAPER_DASH = (0, (1.5, 2))


def _axes(
    width_in: float, height_in: float, theme: Theme, *, left: float, right: float, top: float, bottom: float
) -> tuple[Picture, Axes]:
    # Long names make a narrow sheet wider.
    width_in = max(width_in, left + right + _PLOT_IN)
    picture = paper(width_in * POINTS_PER_INCH, height_in * POINTS_PER_INCH, INK[theme])
    place = (left, bottom, width_in - left - right, height_in - top - bottom)
    return picture, axes_at(picture, tuple(inches * POINTS_PER_INCH for inches in place), INK[theme])  # type: ignore[arg-type]


def curves_figure(curves: Curves, *, width_in: float, dark: bool = False) -> Picture:
    """Curves with their names at their ends, and what a paper printed as dotted lines."""
    from matplotlib.ticker import MaxNLocator

    theme: Theme = "dark" if dark else "light"
    ink = INK[theme]
    names = [one.backend + (", paper" if one.paper is not None or one.paper_points else "") for one in curves.series]
    right = _LABEL_GAP_IN + _width_in(names, SMALL)
    picture, axes = _axes(width_in, _CURVES_IN, theme, left=_LEFT_IN, right=right, top=_TOP_IN, bottom=_BOTTOM_IN)
    values = [
        value
        for one in curves.series
        for value in (*one.y, *one.low, *one.high, *([one.paper] if one.paper is not None else []), *(y for _, y in one.paper_points))
        if value > 0
    ]
    if not values:
        axes.set_axis_off()
        axes.text(0.5, 0.5, "nothing was measured", transform=axes.transAxes, ha="center", color=ink.muted, size=TEXT, family=SANS)
        return picture
    factor, prefix = (0.01, "") if curves.fraction else scale(max(values))
    low, high = _limits(axes, values, curves.fraction)
    xs = [x for one in curves.series for x in (*one.x, *(x for x, _ in one.paper_points))]
    first, last = min(xs), max(xs)
    room = 0.5 if first == last else (last - first) * 0.02
    if curves.log_x:
        axes.set_xscale("log")
        axes.set_xlim(first / 1.15, last * 1.15)
        _mark_powers(axes, xs)
    else:
        axes.set_xlim(first - room, last + room)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=10, integer=True, min_n_ticks=1))
    _number_axis(axes, low, high, factor, ink)
    ends = []
    for one in curves.series:
        named = one.colour or one.backend
        colour, mark = category_colour(named, theme), category_mark(named)
        every = max(1, len(one.x) // _MOST_MARKS)
        if one.low and one.high:
            axes.vlines(
                one.x,
                [max(value, low) for value in one.low],
                [min(value, high) for value in one.high],
                color=colour,
                linewidth=1.0,
                alpha=0.7,
                zorder=2.5,
            )
        axes.plot(one.x, one.y, color=colour, linewidth=1.3, marker=mark, markersize=4, markevery=every, markeredgewidth=0, zorder=3)
        ends.append((one.y[-1], one.backend, colour))
        if one.paper is not None:
            axes.plot(axes.get_xlim(), [one.paper] * 2, color=colour, linewidth=0.9, linestyle=_PAPER_DASH, zorder=2)
            ends.append((one.paper, f"{one.backend}, paper", colour))
        if one.paper_points:
            paper_x, paper_y = zip(*one.paper_points, strict=True)
            axes.plot(
                paper_x,
                paper_y,
                color=colour,
                linewidth=0.9,
                linestyle=_PAPER_DASH,
                marker=mark,
                markersize=4,
                markerfacecolor=ink.page,
                zorder=2,
            )
            ends.append((paper_y[-1], f"{one.backend}, paper", colour))
    _end_labels(axes, ends, low, high, ink)
    _titles(axes, curves.x_title, curves.y_title if curves.fraction else _with_prefix(curves.y_title, prefix), ink)
    return picture


def _with_prefix(title: str, prefix: str) -> str:
    return title.replace(", ", f", {prefix}", 1)


def _titles(axes: Axes, x_title: str, y_title: str, ink: Ink) -> None:
    """What the axes show: above the vertical one, and below the numbers of the horizontal one."""
    style: Any = {"size": SMALL, "color": ink.muted, "family": SANS, "xycoords": "axes fraction", "textcoords": "offset points"}
    axes.annotate(y_title, (0, 1), (0, 5), ha="left", va="bottom", **style)
    axes.annotate(x_title, (1, 0), (0, -17), ha="right", va="top", **style)


def _mark_powers(axes: Axes, xs: Sequence[float]) -> None:
    """The values themselves on a logarithmic axis, where they are few."""
    from matplotlib.ticker import FixedLocator, NullFormatter, NullLocator

    marks = sorted(set(xs))
    if len(marks) <= _MOST_MARKS:
        axes.xaxis.set_major_locator(FixedLocator(marks))
        axes.set_xticklabels([f"{mark:g}" for mark in marks])
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_minor_formatter(NullFormatter())


def _limits(axes: Axes, values: Sequence[float], fraction: bool) -> tuple[float, float]:
    """The ends of the vertical axis: logarithmic where values lie far apart, else from 0, and near the curves where they are shares."""
    smallest, largest = min(values), max(values)
    if fraction:
        low, high = max(0.0, smallest - (1 - smallest) * 0.15), 1.0
        low = min(low, 0.95)
    elif largest / smallest > _WIDE:
        axes.set_yscale("log")
        low, high = smallest / 1.6, largest * 1.6
    else:
        low, high = 0.0, largest * 1.12
    axes.set_ylim(low, high)
    return low, high


def _number_axis(axes: Axes, low: float, high: float, factor: float, ink: Ink) -> None:
    """Numbers in multiples of ``factor`` at the vertical axis, with fine lines."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    if axes.get_yscale() == "log":
        decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        steps = (1,) if len(decades) > 4 else (1, 2, 5)
        marks = [step * 10.0**power for power in decades for step in steps if low <= step * 10.0**power <= high]
        axes.yaxis.set_major_locator(FixedLocator(marks))
        axes.yaxis.set_minor_locator(LogLocator(subs=range(2, 10)))
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        axes.yaxis.set_major_locator(MaxNLocator(nbins=5))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / factor:g}"))
    axes.grid(axis="y", which="major", color=ink.grid, linewidth=0.6)


def _end_labels(axes: Axes, ends: Sequence[tuple[float, str, str]], low: float, high: float, ink: Ink) -> None:
    """The names at the right ends of their lines, moved apart where they would touch, in the order of the lines."""
    height = axes.get_window_extent().height / axes.figure.get_dpi() * 72
    logarithmic = axes.get_yscale() == "log"

    def up(value: float) -> float:
        share = math.log(value / low) / math.log(high / low) if logarithmic else (value - low) / (high - low)
        return share * height

    ordered = sorted(ends, key=lambda end: up(end[0]))
    places = pushed_apart([up(value) for value, _, _ in ordered], _LINE_POINTS, height)
    for (value, text, colour), place in zip(ordered, places, strict=True):
        axes.annotate(
            text, xy=(1, up(value) / height), xytext=(1.035, place / height), xycoords="axes fraction", textcoords="axes fraction",
            size=SMALL, color=ink.muted if text.endswith("paper") else ink.text, family=SANS, va="center", ha="left",
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.8, "shrinkA": 1, "shrinkB": 0}, annotation_clip=False,
        )  # fmt: skip


def choices_figure(chart: Choices, *, width_in: float, dark: bool = False) -> Picture:
    """Points with their names where there is room, and the Pareto front as a line."""
    theme: Theme = "dark" if dark else "light"
    ink = INK[theme]
    picture, axes = _axes(width_in, _CHOICES_IN, theme, left=_LEFT_IN, right=0.3, top=_TOP_IN, bottom=_BOTTOM_IN)
    xs, ys = [one.x for one in chart.choices], [one.y for one in chart.choices if one.y > 0]
    if not xs or not ys:
        axes.set_axis_off()
        axes.text(0.5, 0.5, "nothing was measured", transform=axes.transAxes, ha="center", color=ink.muted, size=TEXT, family=SANS)
        return picture
    factor, prefix = (0.01, "") if chart.fraction else scale(max(ys))
    x_factor, x_prefix = scale(max(xs))
    low, high = _limits(axes, ys, chart.fraction)
    if chart.log_x:
        axes.set_xscale("log")
        axes.set_xlim(min(xs) / 1.4, max(xs) * 1.4)
    else:
        axes.set_xlim(0, max(xs) * 1.12)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value / x_factor:g}")
    _number_axis(axes, low, high, factor, ink)
    front = sorted((one for one in chart.choices if one.front), key=lambda one: one.x)
    axes.plot([one.x for one in front], [one.y for one in front], color=ink.faint_roof, linewidth=1.0, zorder=2)
    for one in chart.choices:
        axes.plot(
            one.x,
            one.y,
            category_mark(one.colour),
            color=category_colour(one.colour, theme),
            markersize=6 if one.front else 4,
            alpha=1.0 if one.front else 0.6,
            markeredgewidth=0,
            zorder=3,
        )
    _point_labels(axes, front, ink)
    _titles(axes, _with_prefix(chart.x_title, x_prefix), _with_prefix(chart.y_title, prefix), ink)
    return picture


def _point_labels(axes: Axes, points: Sequence[Choice], ink: Ink) -> None:
    """Names beside their points, on the side with more room and cut to it; a name that would cover another is left out."""
    place = axes.get_window_extent()
    taken: list[tuple[float, float, float]] = []
    for one in points:
        x, y = (value * POINTS_PER_INCH / axes.figure.get_dpi() for value in axes.transData.transform((one.x, one.y)))
        left, right = (value * POINTS_PER_INCH / axes.figure.get_dpi() for value in (place.x0, place.x1))
        length = _width_in([one.label], SMALL) * POINTS_PER_INCH
        to_right = x + 6 + length < right or right - x > x - left
        room = (right - x if to_right else x - left) - 8
        text = one.label if length < room else clip(one.label, int(len(one.label) * room / length))
        length = min(length, room)
        first = x + 6 if to_right else x - 6 - length
        if any(abs(y - other) < _LINE_POINTS and first < end and begin < first + length for begin, end, other in taken):
            continue
        taken.append((first, first + length, y))
        axes.annotate(
            text, (one.x, one.y), xytext=(6 if to_right else -6, 0), textcoords="offset points", size=SMALL, color=ink.text,
            family=SANS, va="center", ha="left" if to_right else "right", parse_math=False,
        )  # fmt: skip


def _width_in(texts: Iterable[str], size: float) -> float:
    """The width in inches of the longest of ``texts``."""
    return max((text_width(text, size, SANS) for text in texts), default=0.0) / POINTS_PER_INCH


def beams_figure(bars: Beams, *, width_in: float, dark: bool = False) -> Picture:
    """Bars with their values at their ends, and what a paper printed below them in outline."""
    theme: Theme = "dark" if dark else "light"
    ink = INK[theme]
    left = max(_LABEL_IN, _width_in((bar.label for bar in bars.beams), TEXT) + 0.15)
    height = _BARS_MARGIN_IN + _BAR_IN * max(1, len(bars.beams))
    picture, axes = _axes(width_in, height, theme, left=left, right=_RIGHT_IN, top=0.3, bottom=0.25)
    largest = max([value for bar in bars.beams for value in (bar.value, bar.paper or 0.0)], default=1.0) or 1.0
    axes.set_xlim(0, largest)
    axes.set_ylim(len(bars.beams) - 0.5, -0.5)
    axes.set_yticks([])
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)

    def text(x: float, y: float, words: str, **style: Any) -> None:
        style = {"size": TEXT, "color": ink.text, "va": "center", "family": SANS, "parse_math": False, **style}
        axes.text(x, y, words, **style)

    beside = largest * 0.012
    for index, bar in enumerate(bars.beams):
        colour = category_colour(bar.colour or bar.backend, theme)
        text(-0.015, index, bar.label, ha="right", transform=axes.get_yaxis_transform())
        if bar.value > 0:
            axes.barh(index - 0.12, bar.value, height=0.44, color=colour, linewidth=0, zorder=2)
            text(bar.value + beside, index - 0.12, bar.text)
        if bar.paper is not None:
            # Below our bar, or in its place.
            down = 0.25 if bar.value > 0 else 0.0
            axes.barh(index + down, bar.paper, height=0.18, facecolor=ink.page, edgecolor=colour, linewidth=0.8, zorder=2)
            text(bar.paper + beside, index + down, bar.paper_text, size=SMALL, color=ink.muted)
    axes.text(0, 1.06, bars.x_title, transform=axes.transAxes, size=SMALL, color=ink.muted, family=SANS, ha="left", va="bottom")
    return picture
