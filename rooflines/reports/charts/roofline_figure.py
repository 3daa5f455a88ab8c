"""The roofline as Matplotlib draws it: every mark has an id, every text a place where it covers no point and
no other text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from rooflines.reports.charts.labels import Box, Disc, columns, dotted, place_names
from rooflines.reports.charts.palette import category_mark
from rooflines.reports.charts.paper import POINTS_PER_INCH, SMALL, TEXT, PaperSheet, logarithmic
from rooflines.reports.words.text import shorten_name
from rooflines.units import percent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from rooflines.reports.charts.roofline_parts import Ring, Roof, RooflineParts, RooflinePoint

_SHAPE, _TALLEST_IN = 0.63, 4.4
_LEFT, _RIGHT, _TOP, _BOTTOM = 40.0, 10.0, 16.0, 30.0
_KEY = 14.0
# On a page of this width at most, ranks stand for names.
_NARROW_IN = 4.5
_LARGEST_POINT, _SMALLEST_POINT = 30.0, 3.5
_OPACITY = 0.82
# The part of the roof from which on a strip is shaded.
_BAND = 0.5
_LONGEST_NAME = 36
_BESIDE_RIDGE = 26.0
# How far above its line the name of a roof stands: close to it, or where points leave no room there, further
# up or below.
_ABOVE_ROOF = (7.5, 16.0, -9.0, 26.0, -20.0, 38.0, -32.0)
# A point above its bound is outlined; one with less than this share of the largest area gets no sign next to
# it.
_MARKED = 0.02


class _Plot:
    """The axes of a chart whose size in points is known, with what was drawn and written on them so far."""

    def __init__(self, chart: RooflineParts, sheet: PaperSheet) -> None:
        width, height = (
            sheet.width_in * POINTS_PER_INCH,
            min(_SHAPE * sheet.width_in, _TALLEST_IN) * POINTS_PER_INCH,
        )
        # A page has the key as switches above the figure.
        self.keyed = bool(chart.legend) and not sheet.page
        top = _TOP + _KEY if self.keyed else _TOP
        self.chart, self.sheet, self.ink = chart, sheet, sheet.ink
        self.width, self.height = width - _LEFT - _RIGHT, height - top - _BOTTOM
        self.figure = sheet.figure(width, height)
        self.axes = sheet.axes(self.figure, (_LEFT, _BOTTOM, self.width, self.height), size=TEXT)
        self.discs = [self.disc(point) for point in chart.points]
        self.roofs = [
            (*self.place(*start), *self.place(*end))
            for roof in chart.roofs
            if roof.primary
            for start, end in pairwise(zip(roof.x, roof.y, strict=True))
        ]
        self.taken: list[Box] = []

    def place(self, x: float, y: float) -> tuple[float, float]:
        """Where a value is, in points from the lower left corner of the plot."""
        across, up = self.chart.limits.fraction(x, y)
        return across * self.width, up * self.height

    def disc(self, point: RooflinePoint) -> Disc:
        x, y = self.place(point.intensity, point.flop_per_s)
        return Disc(x, y, self.chart.diameter(point, _LARGEST_POINT, _SMALLEST_POINT) / 2)

    def line(self, corners: Iterable[tuple[float, float]], gid: str, **style: Any) -> None:
        """A line through places in points."""
        x, y = zip(*corners, strict=True)
        scaled = ([value / self.width for value in x], [value / self.height for value in y])
        self.axes.plot(*scaled, transform=self.axes.transAxes, gid=gid, **style)

    def write(self, x: float, y: float, text: str, **style: Any) -> None:
        """Text at a place in points."""
        self.sheet.write(
            self.axes,
            x / self.width,
            y / self.height,
            text,
            transform=self.axes.transAxes,
            **{"zorder": 6, **style},
        )

    def length(self, text: str, size: float = SMALL) -> float:
        return self.sheet.length(text, size)

    def covered(self, places: Iterable[tuple[float, float]]) -> int:
        """How many of the places lie off the plot, on other text, on a point or on a dark roof."""
        x, y = columns(places, 2)[..., None]
        off = (x < 0) | (x > self.width) | (y < 0) | (y > self.height + 4)
        on_text = Box(*columns(self.taken, 4)).distance(x, y) < SMALL / 2 + 0.5
        across, up, radius = columns(
            (*self.discs, *(disc for roof in self.roofs for disc in dotted(roof, 2.0))), 3
        )
        on_point = (x - across) ** 2 + (y - up) ** 2 < (radius + 3) ** 2
        return int((off[:, 0] | on_text.any(axis=1) | on_point.any(axis=1)).sum())

    def write_where_free(self, starts: Iterable[tuple[float, float]], text: str, **style: Any) -> None:
        """A small text from the first of the places on that it covers nothing at, or nowhere."""
        length = self.length(text)
        for x, y in starts:
            if not self.covered(_along(x, y, length, 0.0)):
                self.write(x, y, text, size=SMALL, **style)
                self.taken.append(Box(x, y - SMALL / 2, x + length, y + SMALL / 2))
                return


def roofline_figure(chart: RooflineParts, sheet: PaperSheet) -> Figure:
    """Roofs with their sources, points by time and category, those with the largest gain named."""
    plot = _Plot(chart, sheet)
    limits, axes = chart.limits, plot.axes
    logarithmic(axes, "x", limits.x_low, limits.x_high)
    logarithmic(axes, "y", limits.y_low, limits.y_high, chart.y_factor)
    axes.grid(which="major", color=plot.ink.grid, linewidth=0.5)
    plot.write(plot.width, -22, "arithmetic intensity, FLOP/byte", color=plot.ink.muted, ha="right")
    plot.write(-34, plot.height + 8, chart.y_unit, color=plot.ink.muted)
    if chart.band:
        x, upper = zip(*chart.band, strict=True)
        lower = [_BAND * y for y in reversed(upper)]
        axes.fill(
            (*x, *reversed(x)), (*upper, *lower), color=plot.ink.band, linewidth=0, zorder=0.5, gid="band:0"
        )
    if chart.paths:
        _paths(plot)
    _points(plot)
    for number, ring in enumerate(chart.rings):
        _ring(plot, number, ring)
    roofs = sorted(
        enumerate(chart.roofs), key=lambda pair: (not pair[1].shown, pair[1].ceiling.kind == "memory")
    )
    for number, roof in roofs:
        if roof.primary:
            _roof(plot, number, roof)
    _names(plot)
    for number, roof in roofs:
        if not roof.primary and (roof.shown or sheet.page):
            _roof(plot, number, roof)
    _ridges(plot)
    if chart.band:
        knee, edge = plot.place(chart.band[1][0], _BAND * chart.band[-1][1])
        text = "half of the roof"
        starts = range(int(plot.width - plot.length(text) - 4), max(0, int(knee)), -6)
        plot.write_where_free(((x, edge - 6) for x in starts), text, color=plot.ink.muted, gid="bandname:0")
    if plot.keyed:
        _key(plot)
    if chart.missing and not sheet.page:
        plot.write(plot.width, plot.height + 8, chart.missing, ha="right", size=SMALL, color=plot.ink.warning)
    return plot.figure


def _paths(plot: _Plot) -> None:
    """A line through the points of each category."""
    points = sorted(plot.chart.points, key=lambda point: point.key)
    for category in dict.fromkeys(point.category for point in points):
        corners = [
            plot.place(point.intensity, point.flop_per_s) for point in points if point.category == category
        ]
        plot.line(
            corners,
            f"path:{category}",
            color=plot.sheet.color(category),
            linewidth=1.2,
            alpha=0.7,
            zorder=2.8,
        )
        for (ax, ay), (bx, by) in pairwise(corners):
            places = _along(ax, ay, math.hypot(bx - ax, by - ay), math.atan2(by - ay, bx - ax))
            plot.taken += [Box(x, y, x, y) for x, y in places[1:-1]]


def _points(plot: _Plot) -> None:
    """The points, longest first, so that a small one lies on a large one; what is above its bound is outlined
    and marked."""
    from matplotlib.collections import PathCollection
    from matplotlib.markers import MarkerStyle
    from matplotlib.transforms import IdentityTransform

    points, ink = plot.chart.points, plot.ink
    if not points:
        return
    shapes = [MarkerStyle(point.mark or category_mark(point.category)) for point in points]
    plot.axes.add_collection(
        PathCollection(
            [shape.get_path().transformed(shape.get_transform()) for shape in shapes],
            sizes=[(2 * disc.radius) ** 2 for disc in plot.discs],
            offsets=[(point.intensity, point.flop_per_s) for point in points],
            offset_transform=plot.axes.transData,
            transform=IdentityTransform(),
            facecolors=[plot.sheet.color(point.category) for point in points],
            edgecolors=[ink.warning if point.warning else ink.page for point in points],
            linewidths=[1.1 if point.warning else 0.6 for point in points],
            alpha=_OPACITY,
            zorder=3,
            gid="points:" + ",".join(str(point.key) for point in points),
        ),
        autolim=False,
    )
    for point, (x, y, radius) in zip(points, plot.discs, strict=True):
        if point.warning and point.time_s >= _MARKED * plot.chart.full_s:
            x += radius + 3
            gid = f"warning:{point.key}"
            plot.write(x, y, "!", color=ink.warning, weight="bold", size=TEXT + 1.5, ha="center", gid=gid)
            plot.taken.append(Box(x - 3, y - 5, x + 3, y + 5))


def _names(plot: _Plot) -> None:
    """The names of the points, each with a line to its point; on a narrow page their ranks."""
    ranked = plot.sheet.page and plot.sheet.width_in < _NARROW_IN
    texts = [
        str(rank) if ranked else shorten_name(point.label, _LONGEST_NAME)
        for rank, point in enumerate(plot.chart.labeled, start=1)
    ]
    feet = [
        (x, 0.0, x, y)
        for x, y in (plot.place(ridge.intensity, ridge.flop_per_s) for ridge in plot.chart.ridges)
    ]
    boxes = place_names(
        [
            (plot.disc(point), plot.length(text))
            for point, text in zip(plot.chart.labeled, texts, strict=True)
        ],
        (plot.width, plot.height),
        SMALL + 3.5,
        discs=plot.discs,
        lines=[*plot.roofs, *feet],
        taken=plot.taken,
    )
    for index, box in boxes.items():
        point, text = plot.chart.labeled[index], texts[index]
        from_x, from_y, radius = plot.disc(point)
        end = box.leader_end(from_x, from_y)
        angle, length = (
            math.atan2(end[1] - from_y, end[0] - from_x),
            math.dist(end, (from_x, from_y)) - radius,
        )
        if length > 1:
            start = (from_x + math.cos(angle) * radius, from_y + math.sin(angle) * radius)
            plot.line((start, end), f"leader:{point.key}", color=plot.ink.faint_roof, linewidth=0.5, zorder=4)
            plot.taken += [Box(*at, *at) for at in _along(*start, length, angle)]
        x, y = (box.left + box.right) / 2, (box.bottom + box.top) / 2
        plot.write(x, y, text, size=SMALL, ha="center", gid=f"name:{point.key}")
        plot.taken.append(box)


def _ring(plot: _Plot, number: int, ring: Ring) -> None:
    """The whole run or a phase as a ring, named where there is room beside it."""
    if not plot.chart.limits.contains(ring.intensity, ring.flop_per_s):
        return
    style: dict[str, Any] = {"fillstyle": "none", "color": plot.ink.text, "markeredgewidth": 1.4, "zorder": 5}
    plot.axes.plot(ring.intensity, ring.flop_per_s, "o", markersize=9, gid=f"ring:{number}", **style)
    x, y = plot.place(ring.intensity, ring.flop_per_s)
    length = plot.length(ring.name)
    beside = (
        (8, 0),
        (-8 - length, 0),
        (-length / 2, 11),
        (-length / 2, -11),
        (8, 10),
        (8, -10),
        (-8 - length, -10),
    )
    plot.write_where_free(
        [(x + dx, y + dy) for dx, dy in beside], ring.name, style="italic", gid=f"ringname:{number}"
    )
    plot.taken.append(Box(x - 6, y - 6, x + 6, y + 6))


def _roof(plot: _Plot, number: int, roof: Roof) -> None:
    """A thin line with its value written along it, where no name stands.

    A primary roof is dark and tells its source; the others, caches as a rule, are lighter and leave that to
    the table.
    """
    style: dict[str, Any] = {"color": plot.ink.roof, "linewidth": 1.0}
    if not roof.primary:
        style = {"color": plot.ink.faint_roof, "linewidth": 0.6, "linestyle": (0, (4, 2))}
    order = 2 if roof.primary else 1.5
    plot.axes.plot(roof.x, roof.y, zorder=order, solid_capstyle="butt", gid=f"roof:{number}", **style)
    text, size, color = (
        (roof.text, TEXT, plot.ink.roof) if roof.primary else (roof.short, SMALL, plot.ink.muted)
    )
    # A cache's line goes on along the roof that it reaches: its name stands on the slope.
    flat = roof.ceiling.kind == "compute"
    corners = [plot.place(x, y) for x, y in zip(roof.x, roof.y, strict=True)]
    (x0, y0), (x1, y1) = corners[-2:] if flat else corners[:2]
    angle, reach, length = math.atan2(y1 - y0, x1 - x0), math.hypot(x1 - x0, y1 - y0), plot.length(text, size)
    room = reach - length - 4
    starts = []
    for step in range(25):
        if flat:
            # At its right end if it can; its left end lies under the slanted roof.
            starts.append(room if room <= 0 else max(room * (1 - step / 24), min(_BESIDE_RIDGE, room)))
        else:
            # Near the middle of its slope.
            starts.append((0.5 + (step + 1) // 2 / 24 * (-1) ** step) * (reach - length))
    if flat and roof.primary:
        # Else in front of it, over the slanted roof.
        starts += [-length - before for before in range(6, 60, 6)]
    places = [
        (
            x0 + math.cos(angle) * start - math.sin(angle) * height,
            y0 + math.sin(angle) * start + math.cos(angle) * height,
        )
        for height in (_ABOVE_ROOF if roof.primary else _ABOVE_ROOF[:1])
        for start in starts
    ]
    if flat and not roof.shown and not 0 < y0 + _ABOVE_ROOF[0] < plot.height:
        covered, (x, y) = 0, places[0]
    else:
        covered, (x, y) = min(
            ((plot.covered(_along(*place, length, angle)), place) for place in places),
            key=lambda pair: pair[0],
        )
    # A primary roof is never left without its name: where no place is free, the least covered will do. The
    # table names the others.
    if covered and not roof.primary:
        return
    style = {"rotation": math.degrees(angle), "rotation_mode": "anchor", "ha": "left", "color": color}
    plot.write(x, y, text, size=size, gid=f"roofname:{number}", **style)
    plot.taken += [Box(px - 5, py - 5, px + 5, py + 5) for px, py in _along(x, y, length, angle)]


def _ridges(plot: _Plot) -> None:
    """A mark where the roofs meet, and its intensity at the foot of a fine line."""
    for number, ridge in enumerate(plot.chart.ridges):
        if not plot.chart.limits.contains(ridge.intensity, ridge.flop_per_s):
            continue
        x, y = plot.place(ridge.intensity, ridge.flop_per_s)
        plot.line(
            ((x, 0), (x, y)),
            f"foot:{number}",
            color=plot.ink.faint_roof,
            linewidth=0.5,
            linestyle=(0, (1, 2.5)),
            zorder=1,
        )
        plot.axes.plot(
            ridge.intensity,
            ridge.flop_per_s,
            "D",
            markersize=3,
            color=plot.ink.roof,
            zorder=4,
            gid=f"ridge:{number}",
        )
        length = plot.length(ridge.text)
        feet = ((start, foot) for foot in range(7, int(y), 6) for start in (x + 3, x - 3 - length))
        plot.write_where_free(feet, ridge.text, color=plot.ink.muted, gid=f"ridgename:{number}")


def _key(plot: _Plot) -> None:
    """Which color is which category, with its share of the time: one line above the plot, as many as fit."""
    x, y = 10.0, plot.height + 21.0
    entries: Sequence[tuple[str, str]] = [
        (f"{category} {percent(share)}", category) for category, share in plot.chart.legend
    ]
    for text, category in [*entries, ("area: time", "")]:
        length = plot.length(text)
        if x + length > plot.width:
            x, y = 10.0, y - SMALL - 3
        if category:
            plot.axes.plot(
                (x - 6) / plot.width,
                y / plot.height,
                category_mark(category),
                markersize=5,
                color=plot.sheet.color(category),
                alpha=_OPACITY,
                markeredgewidth=0,
                transform=plot.axes.transAxes,
                clip_on=False,
            )
        plot.write(x, y, text, size=SMALL, color=plot.ink.text if category else plot.ink.muted)
        x += length + 20


def _along(x: float, y: float, length: float, angle: float) -> list[tuple[float, float]]:
    """Places along a line of text, close enough together that nothing fits between two of them."""
    count = max(2, math.ceil(length / 5))
    return [
        (x + math.cos(angle) * length * i / count, y + math.sin(angle) * length * i / count)
        for i in range(count + 1)
    ]
