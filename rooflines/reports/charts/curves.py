"""Curves, horizontal bars, scatter charts of choices and the times of steps: their records, and how
Matplotlib draws them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from rooflines.profiler.records import MemoryCurve
from rooflines.reports.charts.palette import SERIES_COLORS, category_mark
from rooflines.reports.charts.paper import (
    HALF,
    POINTS_PER_INCH,
    SMALL,
    TEXT,
    Drawing,
    Mark,
    PaperSheet,
    Style,
    decades,
    logarithmic,
    pushed_apart,
)
from rooflines.reports.words.text import clip
from rooflines.roofline.analysis import Steps
from rooflines.units import binary_bytes, binary_scale, scale, seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# In points.
_CURVES, _CHOICES = 180.0, 230.4
_STEPS_SHAPE, _LOWEST_STEPS = 0.235, 108.0
_BAR, _BARS_MARGIN = 21.6, 39.6
_LEFT, _RIGHT, _TOP, _BOTTOM = 39.6, 126.0, 21.6, 28.8
_LABEL = 97.2
_LABEL_GAP, _PLOT = 25.2, 86.4
_LINE = 9.0
# From this ratio of the largest to the smallest value on, an axis is logarithmic.
_WIDE = 12.0
_MOST_MARKS = 12
_MOST_STEPS = 400
# The share of the width from which on a step of memory is drawn as one.
_SEEN_STEP = 0.02
_PAPER_DASH = (0, (1.5, 2))
# What memory is held for, from the bottom: what stays over the step, then what comes and goes; and its color.
_HELD = ("parameters", "optimizer", "gradients", "inputs", "activations", "workspace", "overhead")
_MEMORY = {**dict(zip(_HELD, SERIES_COLORS, strict=False)), "allocated": SERIES_COLORS[0]}


class CurveSeries(msgspec.Struct, frozen=True, kw_only=True):
    """A curve."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    #: The ends of the interval of each ``y``.
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    #: A level that a paper printed for it, and points (x, y) that it printed.
    paper: float | None = None
    paper_points: tuple[tuple[float, float], ...] = ()
    #: The name of its color if that is not ``name``.
    color: str = ""


class Curves(Drawing, frozen=True, kw_only=True):
    """Curves over epochs, iterations or an option."""

    is_data = True
    x_title: str
    y_title: str
    series: tuple[CurveSeries, ...]
    #: Whether y is a share, shown in percent.
    fraction: bool = False
    log_x: bool = False

    def figure(self, sheet: PaperSheet) -> Figure:
        """Curves with their names at their ends, and what a paper printed as dotted lines."""
        from matplotlib.ticker import FixedLocator, MaxNLocator, NullFormatter, NullLocator

        names = [
            one.name + (", paper" if one.paper is not None or one.paper_points else "") for one in self.series
        ]
        figure, axes = _axes(sheet, _CURVES, right=_LABEL_GAP + _longest(sheet, names))
        values = [
            value
            for one in self.series
            for value in (
                *one.y,
                *one.low,
                *one.high,
                one.paper or 0.0,
                *(y for _, y in one.paper_points),
            )
            if value > 0
        ]
        if not values:
            return _empty(sheet, figure, axes)
        y_title = _y_axis(sheet, axes, values, self.y_title, fraction=self.fraction)
        low, high = axes.get_ylim()
        xs = sorted({x for one in self.series for x in (*one.x, *(x for x, _ in one.paper_points))})
        first, last = xs[0], xs[-1]
        if self.log_x:
            axes.set(xscale="log", xlim=(first / 1.15, last * 1.15))
            # The values themselves, where they are few.
            if len(xs) <= _MOST_MARKS:
                axes.xaxis.set_major_locator(FixedLocator(xs))
                axes.set_xticklabels([f"{x:g}" for x in xs])
                axes.xaxis.set_minor_locator(NullLocator())
                axes.xaxis.set_minor_formatter(NullFormatter())
        else:
            room = 0.5 if first == last else (last - first) * 0.02
            axes.set_xlim(first - room, last + room)
            axes.xaxis.set_major_locator(MaxNLocator(nbins=10, integer=True, min_n_ticks=1))
        ends = []
        for one in self.series:
            named = one.color or one.name
            color, mark = sheet.color(named), category_mark(named)
            dashed: Style = {
                "color": color,
                "linewidth": 0.9,
                "linestyle": _PAPER_DASH,
                "zorder": 2,
                "markersize": 4,
            }
            if one.low and one.high:
                intervals = ([max(value, low) for value in one.low], [min(value, high) for value in one.high])
                axes.vlines(one.x, *intervals, color=color, linewidth=1.0, alpha=0.7, zorder=2.5)
            axes.plot(
                one.x,
                one.y,
                color=color,
                marker=mark,
                markersize=4,
                linewidth=1.3,
                markevery=max(1, len(one.x) // _MOST_MARKS),
                markeredgewidth=0,
                zorder=3,
            )
            ends.append((one.y[-1], one.name, color))
            if one.paper is not None:
                axes.plot(axes.get_xlim(), [one.paper] * 2, **dashed)
                ends.append((one.paper, f"{one.name}, paper", color))
            if one.paper_points:
                axes.plot(
                    *zip(*one.paper_points, strict=True),
                    marker=mark,
                    markerfacecolor=sheet.ink.page,
                    **dashed,
                )
                ends.append((one.paper_points[-1][1], f"{one.name}, paper", color))
        _end_labels(sheet, axes, ends)
        _titles(sheet, axes, self.x_title, y_title)
        return figure


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """A point of a scatter chart."""

    label: str
    x: float
    y: float
    color: str = ""
    #: Not worse than any other in both directions.
    front: bool = False


class Choices(Drawing, frozen=True, kw_only=True):
    """A scatter chart of what can be chosen between two quantities, with its Pareto front as a line."""

    x_title: str
    y_title: str
    choices: tuple[Choice, ...]
    log_x: bool = False
    fraction: bool = False

    def figure(self, sheet: PaperSheet) -> Figure:
        """Points with their names where there is room, and the Pareto front as a line."""
        figure, axes = _axes(sheet, _CHOICES, right=21.6)
        xs, ys = [one.x for one in self.choices], [one.y for one in self.choices if one.y > 0]
        if not xs or not ys:
            return _empty(sheet, figure, axes)
        y_title = _y_axis(sheet, axes, ys, self.y_title, fraction=self.fraction)
        if self.log_x:
            axes.set(xscale="log", xlim=(min(xs) / 1.4, max(xs) * 1.4))
        else:
            axes.set_xlim(0, max(xs) * 1.12)
        factor, prefix = scale(max(xs))
        axes.xaxis.set_major_formatter(lambda value, _: f"{value / factor:g}")
        front = sorted((one for one in self.choices if one.front), key=lambda one: one.x)
        axes.plot(
            [one.x for one in front],
            [one.y for one in front],
            color=sheet.ink.faint_roof,
            linewidth=1.0,
            zorder=2,
        )
        for one in self.choices:
            size, opacity = (6, 1.0) if one.front else (4, 0.6)
            mark, color = category_mark(one.color), sheet.color(one.color)
            axes.plot(
                one.x, one.y, mark, color=color, markersize=size, alpha=opacity, markeredgewidth=0, zorder=3
            )
        self._names(sheet, axes, front)
        _titles(sheet, axes, self.x_title.replace(", ", f", {prefix}", 1), y_title)
        return figure

    def _names(self, sheet: PaperSheet, axes: Axes, points: Sequence[Choice]) -> None:
        """Names beside their points, on the side with more room and cut to it; a name that would cover
        another is left out."""
        width, height = _size(axes)
        taken: list[tuple[float, float, float]] = []
        for one in points:
            across, up = _fractions(axes, (one.x, one.y))
            x, y = across * width, up * height
            length = sheet.length(one.label)
            to_right = x + 6 + length < width or width - x > x
            room = (width - x if to_right else x) - 8
            text = one.label if length < room else clip(one.label, int(len(one.label) * room / length))
            length = min(length, room)
            first = x + 6 if to_right else x - 6 - length
            if any(
                abs(y - other) < _LINE and first < end and begin < first + length
                for begin, end, other in taken
            ):
                continue
            taken.append((first, first + length, y))
            sheet.write(axes, first / width, up, text, size=SMALL, transform=axes.transAxes)


class Beam(msgspec.Struct, frozen=True, kw_only=True):
    """A horizontal bar with its value in words."""

    label: str
    #: The name of its color.
    color: str
    value: float
    text: str
    #: What a paper printed for it.
    paper: float | None = None
    paper_text: str = ""


class Beams(Drawing, frozen=True, kw_only=True):
    """Horizontal bars."""

    is_data = True
    x_title: str
    beams: tuple[Beam, ...]

    def figure(self, sheet: PaperSheet) -> Figure:
        """Bars with their values at their ends, and what a paper printed below them in outline."""
        left = max(_LABEL, _longest(sheet, (bar.label for bar in self.beams), TEXT) + 10.8)
        height = _BARS_MARGIN + _BAR * max(1, len(self.beams))
        figure, axes = _axes(sheet, height, left=left, right=_RIGHT, bottom=18.0)
        largest = (
            max([value for bar in self.beams for value in (bar.value, bar.paper or 0.0)], default=1.0) or 1.0
        )
        axes.set(xlim=(0, largest), ylim=(len(self.beams) - 0.5, -0.5), xticks=[], yticks=[])
        axes.spines["bottom"].set_visible(False)
        beside = largest * 0.012
        for index, bar in enumerate(self.beams):
            color = sheet.color(bar.color)
            sheet.write(axes, -0.015, index, bar.label, ha="right", transform=axes.get_yaxis_transform())
            if bar.value > 0:
                axes.barh(index - 0.12, bar.value, height=0.44, color=color, linewidth=0, zorder=2)
                sheet.write(axes, bar.value + beside, index - 0.12, bar.text)
            if bar.paper is not None:
                # Below our bar, or in its place.
                down = 0.25 if bar.value > 0 else 0.0
                axes.barh(
                    index + down,
                    bar.paper,
                    height=0.18,
                    facecolor=sheet.ink.page,
                    edgecolor=color,
                    linewidth=0.8,
                    zorder=2,
                )
                sheet.write(
                    axes, bar.paper + beside, index + down, bar.paper_text, size=SMALL, color=sheet.ink.muted
                )
        sheet.write(
            axes,
            0,
            1.06,
            self.x_title,
            transform=axes.transAxes,
            size=SMALL,
            color=sheet.ink.muted,
            va="bottom",
        )
        return figure


class StepTimesCurve(Drawing, frozen=True, kw_only=True):
    """The timed steps in the order run; ``steps`` has at least one duration."""

    widths_in = HALF

    steps: Steps

    def figure(self, sheet: PaperSheet) -> Figure:
        """Every step that was not disturbed, the median with its 95 % interval, and the 10th to 90th
        percentile."""
        from matplotlib.ticker import MaxNLocator

        steps, ink = self.steps, sheet.ink
        height = max(_STEPS_SHAPE * sheet.width, _LOWEST_STEPS)
        figure, axes = _axes(sheet, height, right=100.8, top=17.28, bottom=25.92)
        factor, prefix = scale(max(steps.quiet_s))
        # Half a step of room at both ends; the vertical axis ends where the data ends, and is never so short
        # that noise looks like a trend.
        low, high = min([*steps.quiet_s, steps.p10_s]), max([*steps.quiet_s, steps.p90_s])
        middle, half = (low + high) / 2 / factor, max((high - low) / 2 * 1.15, steps.median_s * 0.02) / factor
        axes.set(xlim=(0.5, len(steps.durations_s) + 0.5), ylim=(middle - half, middle + half))
        axes.axhspan(steps.p10_s / factor, steps.p90_s / factor, color=ink.band, linewidth=0)
        if steps.ci95_s:
            axes.axhspan(steps.ci95_s[0] / factor, steps.ci95_s[1] / factor, color=ink.line, linewidth=0)
        axes.axhline(steps.median_s / factor, color=ink.roof, linewidth=0.9)
        drawn = self._drawn()
        size = 3.2 if len(drawn) < 200 else 1.6
        gid = "steps:" + ",".join(map(str, drawn))
        durations = [time_s / factor for time_s in drawn.values()]
        axes.plot([*drawn], durations, "o", markersize=size, color=ink.accent, markeredgewidth=0, gid=gid)

        apart, at_median = (TEXT + 2.5) / _size(axes)[1] * 2 * half, steps.median_s / factor
        for y, text, color in (
            (at_median, f"median {seconds(steps.median_s)}", ink.text),
            (max(steps.p90_s / factor, at_median + apart), f"90 % below {seconds(steps.p90_s)}", ink.muted),
            (min(steps.p10_s / factor, at_median - apart), f"10 % below {seconds(steps.p10_s)}", ink.muted),
        ):
            sheet.write(axes, 1.01, y, text, transform=axes.get_yaxis_transform(), color=color, size=SMALL)
        _titles(sheet, axes, "timed step", f"step time, {prefix}s")
        axes.xaxis.set_major_locator(MaxNLocator(nbins=10, integer=True, min_n_ticks=1))
        axes.yaxis.set_major_locator(MaxNLocator(nbins=4))
        return figure

    def page_marks(self) -> dict[str, Mark]:
        """Every step tells its time."""
        return {
            f"step:{number}": Mark((f"step {number}: {seconds(time_s)}", ()))
            for number, time_s in self._drawn().items()
        }

    def _drawn(self) -> dict[int, float]:
        """The steps that the figure shows, by their numbers; of very many every n-th."""
        quiet = [
            (i + 1, time_s)
            for i, time_s in enumerate(self.steps.durations_s)
            if i not in self.steps.disturbed
        ]
        return dict(quiet[:: max(1, math.ceil(len(quiet) / _MOST_STEPS))])


class Areas(Drawing, frozen=True, kw_only=True):
    """Memory over a step, its parts on each other."""

    widths_in = HALF

    curve: MemoryCurve

    def figure(self, sheet: PaperSheet) -> Figure:
        """The areas, the peak with its size, and at the right the names of several, each with its size at the
        peak."""
        from matplotlib.ticker import MaxNLocator

        instants = self.curve.at
        # What is held stays until it changes. Steps between all points would double the file, and cannot be
        # seen between close ones.
        far = (instants[-1] - instants[0]) * _SEEN_STEP
        points = [
            (instant, known)
            for at, instant in enumerate(instants)
            for known in ((at - 1, at) if at and instant - instants[at - 1] > far else (at,))
        ]
        parts = {
            name: [self.curve.parts[name][known] for _, known in points]
            for name in _MEMORY
            if name in self.curve.parts
        }
        totals = [sum(values) for values in zip(*parts.values(), strict=True)]
        most = max(totals)
        at = totals.index(most)
        # One area needs no name.
        names = (
            [f"{name}  {binary_bytes(values[at])}" for name, values in parts.items()]
            if len(parts) > 1
            else []
        )
        figure, axes = _axes(sheet, _CURVES, right=_LABEL_GAP + _longest(sheet, names))
        in_time = self.curve.unit == "s"
        (unit, x_prefix), (factor, prefix) = (
            scale(self.curve.at[-1]) if in_time else (1.0, ""),
            binary_scale(most),
        )
        x = [instant / unit for instant, _ in points]
        rows = ([value / factor for value in values] for values in parts.values())
        areas = axes.stackplot(
            x, *rows, colors=[sheet.color(_MEMORY[name]) for name in parts], alpha=0.75, linewidth=0
        )
        if names:
            # The names stand beside their areas, in the same order.
            font = {"family": sheet.family, "size": SMALL}
            axes.legend(
                areas[::-1],
                names[::-1],
                loc="upper left",
                bbox_to_anchor=(1, 1.04),
                handlelength=0.7,
                handleheight=0.7,
                frameon=False,
                prop=font,
                labelcolor=sheet.ink.text,
            )
        axes.plot(x, [total / factor for total in totals], color=sheet.ink.roof, linewidth=0.7)
        axes.set(xlim=(x[0], x[-1] if x[-1] > x[0] else x[0] + 1), ylim=(0, most / factor * 1.14 or 1.0))
        axes.plot(
            x[at],
            most / factor,
            "o",
            markersize=3.5,
            color=sheet.ink.roof,
            markeredgewidth=0,
            zorder=4,
            clip_on=False,
        )
        # The words lie on the side of the peak with more room.
        side = "left" if x[at] - x[0] < x[-1] - x[at] else "right"
        sheet.write(axes, x[at], most / factor * 1.07, f" peak {binary_bytes(most)} ", ha=side, size=SMALL)
        _titles(
            sheet,
            axes,
            f"{x_prefix}s since the step began" if in_time else "operator calls",
            f"memory, {prefix}B",
        )
        axes.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=not in_time))
        axes.yaxis.set_major_locator(MaxNLocator(nbins=5))
        return figure


def _axes(
    sheet: PaperSheet,
    height: float,
    *,
    right: float,
    left: float = _LEFT,
    top: float = _TOP,
    bottom: float = _BOTTOM,
) -> tuple[Figure, Axes]:
    # Long names make a narrow sheet wider.
    width = max(sheet.width, left + right + _PLOT)
    figure = sheet.figure(width, height)
    return figure, sheet.axes(figure, (left, bottom, width - left - right, height - top - bottom))


def _size(axes: Axes) -> tuple[float, float]:
    """Width and height in points."""
    place = axes.get_window_extent()
    points = POINTS_PER_INCH / axes.figure.get_dpi()
    return place.width * points, place.height * points


def _fractions(axes: Axes, places: Any) -> Any:
    """Where values are, as shares of the axes' width and height."""
    return (axes.transScale + axes.transLimits).transform(places)


def _empty(sheet: PaperSheet, figure: Figure, axes: Axes) -> Figure:
    axes.set_axis_off()
    sheet.write(
        axes, 0.5, 0.5, "nothing was measured", transform=axes.transAxes, ha="center", color=sheet.ink.muted
    )
    return figure


def _titles(sheet: PaperSheet, axes: Axes, x_title: str, y_title: str) -> None:
    """What the axes show: above the vertical one, and below the numbers of the horizontal one."""
    style: Style = {
        "size": SMALL,
        "color": sheet.ink.muted,
        "family": sheet.family,
        "textcoords": "offset points",
    }
    axes.annotate(y_title, (0, 1), (0, 5), xycoords="axes fraction", ha="left", va="bottom", **style)
    axes.annotate(x_title, (1, 0), (0, -17), xycoords="axes fraction", ha="right", va="top", **style)


def _y_axis(sheet: PaperSheet, axes: Axes, values: Sequence[float], title: str, *, fraction: bool) -> str:
    """Number the vertical axis: logarithmic where values lie far apart, else from 0, and near the curves
    where they are shares.

    Returns its title with the prefix of the unit.
    """
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    smallest, largest = min(values), max(values)
    factor, prefix = (0.01, "") if fraction else scale(largest)
    low, high = 0.0, largest * 1.12
    if fraction:
        low, high = min(0.95, max(0.0, smallest - (1 - smallest) * 0.15)), 1.0
    elif largest / smallest > _WIDE:
        low, high = smallest / 1.6, largest * 1.6
        logarithmic(axes, "y", low, high, factor, steps=(1,) if len(decades(low, high)) > 4 else (1, 2, 5))
    if axes.get_yscale() == "linear":
        axes.set_ylim(low, high)
        axes.yaxis.set_major_locator(MaxNLocator(nbins=5))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / factor:g}"))
    axes.grid(axis="y", which="major", color=sheet.ink.grid, linewidth=0.6)
    return title if fraction else title.replace(", ", f", {prefix}", 1)


def _end_labels(sheet: PaperSheet, axes: Axes, ends: Sequence[tuple[float, str, str]]) -> None:
    """The names at the right ends of their lines, moved apart where they would touch, in the order of the
    lines."""
    _, height = _size(axes)
    ordered = sorted(ends, key=lambda end: end[0])
    ups = _fractions(axes, [(1, value) for value, _, _ in ordered])[:, 1].tolist()
    places = pushed_apart([up * height for up in ups], _LINE, height)
    for (_, text, color), up, place in zip(ordered, ups, places, strict=True):
        axes.annotate(
            text,
            xy=(1, up),
            xytext=(1.035, place / height),
            xycoords="axes fraction",
            textcoords="axes fraction",
            size=SMALL,
            color=sheet.ink.muted if text.endswith("paper") else sheet.ink.text,
            family=sheet.family,
            va="center",
            arrowprops={"arrowstyle": "-", "color": color, "linewidth": 0.8, "shrinkA": 1, "shrinkB": 0},
            annotation_clip=False,
        )


def _longest(sheet: PaperSheet, texts: Iterable[str], size: float = SMALL) -> float:
    """The width in points of the longest of ``texts``."""
    return max((sheet.length(text, size) for text in texts), default=0.0)
