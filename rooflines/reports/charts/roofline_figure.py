"""The roofline as data and as Matplotlib draws it: every mark has an id, every text a place where it covers
nothing."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import msgspec

from rooflines.device_specs.records import Ceiling
from rooflines.reports.charts.labels import Box, Disc, columns, dotted, place_names
from rooflines.reports.charts.palette import category_mark
from rooflines.reports.charts.paper import (
    POINTS_PER_INCH,
    SMALL,
    TEXT,
    WIDE,
    Drawing,
    Mark,
    PaperSheet,
    Style,
    logarithmic,
)
from rooflines.reports.words.ceilings import SOURCE_WORDS
from rooflines.reports.words.text import clip, shorten_name
from rooflines.roofline.count.by_key import grouped
from rooflines.units import percent, si, significant

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SHAPE, _TALLEST_IN = 0.63, 4.4
_LEFT, _RIGHT, _TOP, _BOTTOM = 40.0, 10.0, 16.0, 30.0
_KEY = 14.0
# On a page of this width at most, ranks stand for names.
_NARROW = 324.0
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


class RooflinePoint(msgspec.Struct, frozen=True, kw_only=True):
    """An operator, or a whole step, whose area is its time."""

    #: What tells it from the others.
    key: int
    name: str
    #: Has its color.
    category: str
    intensity: float
    flop_per_s: float
    time_s: float
    #: With ``engine``, which compute roof judges it.
    precision: str | None = None
    engine: str = "vector"
    #: Of the points with a label those with the largest ``gain_s`` are named.
    label: str = ""
    gain_s: float = 0.0
    warning: str = ""
    #: Its shape where that is not the category's.
    mark: str = ""
    #: The 10th percentile and the median of its speed over the steps, drawn as a bar.
    spread: tuple[float, float] | None = None
    #: Its hover text.
    lines: tuple[tuple[str, str], ...] = ()


class Ring(msgspec.Struct, frozen=True, kw_only=True):
    """The whole run, or a phase of it, as one point: all FLOPs over all bytes, at FLOPs over the time of a
    step."""

    name: str = "whole run"
    intensity: float
    flop_per_s: float
    lines: tuple[tuple[str, str], ...] = ()


class Roof(msgspec.Struct, frozen=True, kw_only=True):
    """One ceiling as a line."""

    ceiling: Ceiling
    #: Drawn dark, the others lighter.
    primary: bool
    #: Drawn from the start.
    shown: bool
    #: What is switched together.
    group: str
    #: FLOP/byte of its corners, and their FLOP/s.
    x: tuple[float, ...]
    y: tuple[float, ...]

    @property
    def short(self) -> str:
        """Its name and value."""
        return f"{self.ceiling.name} {si(self.ceiling.value, self.ceiling.unit)}"

    @property
    def text(self) -> str:
        """Its name, value and source."""
        return f"{self.short}, {SOURCE_WORDS[self.ceiling.source.kind]}"


class Ridge(msgspec.Struct, frozen=True, kw_only=True):
    """Where a memory roof meets a compute roof: left of it bytes set the pace, right of it arithmetic
    does."""

    memory: str
    compute: str
    intensity: float
    flop_per_s: float

    @property
    def value(self) -> str:
        """Its intensity in words."""
        return f"{significant(self.intensity)} FLOP/byte"


class Limits(NamedTuple):
    """The ends of the axes, which are logarithmic: ``x`` in FLOP/byte, ``y`` in FLOP/s."""

    x: tuple[float, float]
    y: tuple[float, float]

    def contains(self, x: float, y: float) -> bool:
        """Whether a value can be seen."""
        return self.x[0] <= x <= self.x[1] and self.y[0] <= y <= self.y[1]


class RooflineChart(Drawing, frozen=True, kw_only=True):
    """Everything to draw."""

    # It stands next to the recommendations of a run.
    widths_in: ClassVar[tuple[float, ...]] = (7.8, WIDE[1])

    roofs: tuple[Roof, ...]
    ridges: tuple[Ridge, ...]
    points: tuple[RooflinePoint, ...]
    #: The points with names.
    labeled: tuple[RooflinePoint, ...]
    rings: tuple[Ring, ...]
    #: The corners of the roof, from half of which on a strip is shaded.
    band: tuple[tuple[float, float], ...]
    limits: Limits
    #: The limits that also hold the roofs that are off from the start.
    wide: Limits
    y_factor: float
    y_unit: str
    #: The categories with their shares of the time.
    legend: tuple[tuple[str, float], ...]
    #: The time with the largest area.
    full_s: float
    #: The number of points that would stretch the axes.
    left_out: int
    #: Why there are no roofs or points.
    missing: str = ""
    #: Whether a line connects the points of a category in the order of their keys.
    paths: bool = False

    def figure(self, sheet: PaperSheet) -> Figure:
        """Roofs with their sources, points by time and category, those with the largest gain named."""
        plot = _Plot(self, sheet)
        plot.axes.grid(which="major", color=sheet.ink.grid, linewidth=0.5)
        plot.write(
            plot.width, -22, "arithmetic intensity, FLOP/byte", color=sheet.ink.muted, ha="right", size=TEXT
        )
        plot.write(-34, plot.height + 8, self.y_unit, color=sheet.ink.muted, size=TEXT)
        if self.band:
            x, upper = zip(*self.band, strict=True)
            lower = [_BAND * y for y in reversed(upper)]
            plot.axes.fill(
                (*x, *reversed(x)),
                (*upper, *lower),
                color=sheet.ink.band,
                linewidth=0,
                zorder=0.5,
                gid="band:0",
            )
        if self.paths:
            plot.draw_paths()
        plot.draw_points()
        for number, ring in enumerate(self.rings):
            plot.draw_ring(number, ring)
        roofs = sorted(
            enumerate(self.roofs), key=lambda pair: (not pair[1].shown, pair[1].ceiling.kind == "memory")
        )
        for number, roof in roofs:
            if roof.primary:
                plot.draw_roof(number, roof)
        plot.draw_names()
        for number, roof in roofs:
            if not roof.primary and (roof.shown or sheet.page):
                plot.draw_roof(number, roof)
        for number, ridge in enumerate(self.ridges):
            plot.draw_ridge(number, ridge)
        if self.band:
            knee, edge = plot.place(self.band[1][0], _BAND * self.band[-1][1])
            text = "half of the roof"
            starts = range(int(plot.width - sheet.length(text) - 4), max(0, int(knee)), -6)
            plot.write_where_free(
                ((x, edge - 6) for x in starts), text, color=sheet.ink.muted, gid="bandname:0"
            )
        if plot.keyed:
            plot.draw_key()
        if self.missing and not sheet.page:
            plot.write(plot.width, plot.height + 8, self.missing, ha="right", color=sheet.ink.warning)
        return plot.figure

    def diameter(self, point: RooflinePoint, largest: float, smallest: float) -> float:
        """The diameter of a point, so that its area is its time; the smallest ones are kept large enough to
        see and to hit."""
        return max(smallest, largest * math.sqrt(point.time_s / self.full_s))

    def page_marks(self) -> dict[str, Mark]:
        """Points tell all of their operator, roofs their source; categories and groups of roofs are
        switches."""
        found = {}
        for point in self.points:
            found[f"point:{point.key}"] = Mark(
                (clip(" ".join(point.name.split()), 80), point.lines), point.category
            )
            found |= {
                f"{kind}:{point.key}": Mark(to=point.category)
                for kind in ("name", "leader", "warning", "spread")
            }
        for number, roof in enumerate(self.roofs):
            ceiling, off = roof.ceiling, not roof.shown
            lines = (
                ("ceiling", si(ceiling.value, ceiling.unit)),
                (SOURCE_WORDS[ceiling.source.kind], ceiling.source.detail),
            )
            found[f"roof:{number}"] = Mark((ceiling.name, lines), roof.group, off)
            found[f"roofname:{number}"] = Mark(to=roof.group, off=off)
        for number, ridge in enumerate(self.ridges):
            found[f"ridge:{number}"] = Mark(
                (f"{ridge.memory} meets {ridge.compute}", (("ridge point", ridge.value),))
            )
        return found | {
            f"ring:{number}": Mark((ring.name, ring.lines)) for number, ring in enumerate(self.rings)
        }

    def page_facts(self) -> dict[str, Any]:
        """How the axes are numbered, and how far up and down they reach with roofs that are off from the
        start."""
        off = {number: roof for number, roof in enumerate(self.roofs) if not roof.shown}
        return {
            "x": {"log": True, "factor": 1},
            "y": {"log": True, "factor": self.y_factor},
            "wide": {"with": sorted({roof.group for roof in off.values()}), "y": _logarithms(self.wide.y)},
            # Matplotlib leaves out what lies off the sheet.
            "lines": {
                f"roof:{number}": [_logarithms(corner) for corner in zip(roof.x, roof.y, strict=True)]
                for number, roof in off.items()
            },
        }

    def page_switches(self) -> dict[str, Any]:
        """Categories, groups of roofs with what they hold and whether they are on from the start, and the
        names behind ranks."""
        groups = grouped((roof for roof in self.roofs if not roof.primary), lambda roof: roof.group)
        return {
            "categories": [name for name, _ in self.legend],
            "roofs": [
                (name, "; ".join(roof.text for roof in roofs), roofs[0].shown)
                for name, roofs in groups.items()
            ],
            "ranks": [point.label for point in self.labeled],
        }


def _logarithms(values: Iterable[float]) -> list[float]:
    return [round(math.log10(value), 4) for value in values]


class _Plot:
    """The axes of a chart whose size in points is known, with what was drawn and written on them so far."""

    def __init__(self, chart: RooflineChart, sheet: PaperSheet) -> None:
        height = min(_SHAPE * sheet.width_in, _TALLEST_IN) * POINTS_PER_INCH
        # A page has the key as switches above the figure.
        self.keyed = bool(chart.legend) and not sheet.page
        top = _TOP + _KEY if self.keyed else _TOP
        self.chart, self.sheet, self.ink = chart, sheet, sheet.ink
        self.width, self.height = sheet.width - _LEFT - _RIGHT, height - top - _BOTTOM
        self.figure = sheet.figure(sheet.width, height)
        self.axes = sheet.axes(self.figure, (_LEFT, _BOTTOM, self.width, self.height), size=TEXT)
        logarithmic(self.axes, "x", *chart.limits.x)
        logarithmic(self.axes, "y", *chart.limits.y, chart.y_factor)
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
        (left, right), (bottom, top) = self.chart.limits
        across = math.log(x / left) / math.log(right / left)
        up = math.log(y / bottom) / math.log(top / bottom)
        return across * self.width, up * self.height

    def disc(self, point: RooflinePoint) -> Disc:
        diameter = self.chart.diameter(point, _LARGEST_POINT, _SMALLEST_POINT)
        return Disc(*self.place(point.intensity, point.flop_per_s), diameter / 2)

    def draw(self, corners: Iterable[tuple[float, float]], *marker: str, **style: Any) -> None:
        """A line through places in points, or a marker at each."""
        x, y = zip(*((x / self.width, y / self.height) for x, y in corners), strict=True)
        self.axes.plot(x, y, *marker, transform=self.axes.transAxes, **style)

    def write(self, x: float, y: float, text: str, **style: Any) -> None:
        """A small text at a place in points."""
        style = {"zorder": 6, "size": SMALL, **style}
        self.sheet.write(
            self.axes, x / self.width, y / self.height, text, transform=self.axes.transAxes, **style
        )

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
        """A text from the first of the places on that it covers nothing at, or nowhere."""
        length = self.sheet.length(text)
        for x, y in starts:
            if not self.covered(_along(x, y, length, 0.0)):
                self.write(x, y, text, **style)
                self.taken.append(Box(x, y - SMALL / 2, x + length, y + SMALL / 2))
                return

    def draw_paths(self) -> None:
        """A line through the points of each category."""
        points = sorted(self.chart.points, key=lambda point: point.key)
        for category, here in grouped(points, lambda point: point.category).items():
            corners = [self.place(point.intensity, point.flop_per_s) for point in here]
            self.draw(
                corners,
                gid=f"path:{category}",
                color=self.sheet.color(category),
                linewidth=1.2,
                alpha=0.7,
                zorder=2.8,
            )
            for (ax, ay), (bx, by) in pairwise(corners):
                places = _along(ax, ay, math.hypot(bx - ax, by - ay), math.atan2(by - ay, bx - ax))
                self.taken += [Box(x, y, x, y) for x, y in places[1:-1]]

    def draw_points(self) -> None:
        """The points, longest first, so that a small one lies on a large one; what is above its bound is
        outlined and marked."""
        from matplotlib.collections import PathCollection
        from matplotlib.markers import MarkerStyle
        from matplotlib.transforms import IdentityTransform

        points, ink = self.chart.points, self.ink
        if not points:
            return
        shapes = [MarkerStyle(point.mark or category_mark(point.category)) for point in points]
        drawn = PathCollection(
            [shape.get_path().transformed(shape.get_transform()) for shape in shapes],
            sizes=[(2 * disc.radius) ** 2 for disc in self.discs],
            offsets=[(point.intensity, point.flop_per_s) for point in points],
            offset_transform=self.axes.transData,
            transform=IdentityTransform(),
            facecolors=[self.sheet.color(point.category) for point in points],
            edgecolors=[ink.warning if point.warning else ink.page for point in points],
            linewidths=[1.1 if point.warning else 0.6 for point in points],
            alpha=_OPACITY,
            zorder=3,
            gid="points:" + ",".join(str(point.key) for point in points),
        )
        self.axes.add_collection(drawn, autolim=False)
        for point, (x, y, radius) in zip(points, self.discs, strict=True):
            if point.spread and point.time_s >= _MARKED * self.chart.full_s:
                self.axes.plot(
                    (point.intensity, point.intensity),
                    point.spread,
                    "-_",
                    color=self.sheet.color(point.category),
                    linewidth=1,
                    markersize=5,
                    zorder=2.5,
                    gid=f"spread:{point.key}",
                )
            if point.warning and point.time_s >= _MARKED * self.chart.full_s:
                x += radius + 3
                self.write(
                    x,
                    y,
                    "!",
                    color=ink.warning,
                    weight="bold",
                    size=TEXT + 1.5,
                    ha="center",
                    gid=f"warning:{point.key}",
                )
                self.taken.append(Box(x - 3, y - 5, x + 3, y + 5))

    def draw_names(self) -> None:
        """The names of the points, each with a line to its point; on a narrow page their ranks."""
        chart, ranked = self.chart, self.sheet.page and self.sheet.width < _NARROW
        texts = [
            str(rank) if ranked else shorten_name(point.label, _LONGEST_NAME)
            for rank, point in enumerate(chart.labeled, start=1)
        ]
        feet = [
            (x, 0.0, x, y)
            for x, y in (self.place(ridge.intensity, ridge.flop_per_s) for ridge in chart.ridges)
        ]
        discs = [self.disc(point) for point in chart.labeled]
        named, size = [*zip(discs, map(self.sheet.length, texts), strict=True)], (self.width, self.height)
        for index, box in place_names(
            named, size, SMALL + 3.5, discs=self.discs, lines=[*self.roofs, *feet], taken=self.taken
        ).items():
            key, (from_x, from_y, radius) = chart.labeled[index].key, discs[index]
            end = box.leader_end(from_x, from_y)
            angle = math.atan2(end[1] - from_y, end[0] - from_x)
            length = math.dist(end, (from_x, from_y)) - radius
            if length > 1:
                start = (from_x + math.cos(angle) * radius, from_y + math.sin(angle) * radius)
                self.draw(
                    (start, end), gid=f"leader:{key}", color=self.ink.faint_roof, linewidth=0.5, zorder=4
                )
                self.taken += [Box(*at, *at) for at in _along(*start, length, angle)]
            self.write(
                (box.left + box.right) / 2,
                (box.bottom + box.top) / 2,
                texts[index],
                ha="center",
                gid=f"name:{key}",
            )
            self.taken.append(box)

    def draw_ring(self, number: int, ring: Ring) -> None:
        """The whole run or a phase as a ring, named where there is room beside it."""
        if not self.chart.limits.contains(ring.intensity, ring.flop_per_s):
            return
        self.axes.plot(
            ring.intensity,
            ring.flop_per_s,
            "o",
            markersize=9,
            gid=f"ring:{number}",
            fillstyle="none",
            color=self.ink.text,
            markeredgewidth=1.4,
            zorder=5,
        )
        x, y = self.place(ring.intensity, ring.flop_per_s)
        length = self.sheet.length(ring.name)
        beside = (
            (8, 0),
            (-8 - length, 0),
            (-length / 2, 11),
            (-length / 2, -11),
            (8, 10),
            (8, -10),
            (-8 - length, -10),
        )
        self.write_where_free(
            [(x + dx, y + dy) for dx, dy in beside], ring.name, style="italic", gid=f"ringname:{number}"
        )
        self.taken.append(Box(x - 6, y - 6, x + 6, y + 6))

    def draw_roof(self, number: int, roof: Roof) -> None:
        """A thin line with its value written along it, where no name stands.

        A primary roof is dark and tells its source; the others, caches as a rule, are lighter and leave that
        to the table.
        """
        style: Style = {"color": self.ink.roof, "linewidth": 1.0, "zorder": 2}
        text, size, color = roof.text, TEXT, self.ink.roof
        if not roof.primary:
            style = {"color": self.ink.faint_roof, "linewidth": 0.6, "linestyle": (0, (4, 2)), "zorder": 1.5}
            text, size, color = roof.short, SMALL, self.ink.muted
        self.axes.plot(roof.x, roof.y, solid_capstyle="butt", gid=f"roof:{number}", **style)
        # A cache's line goes on along the roof that it reaches: its name stands on the slope.
        flat = roof.ceiling.kind == "compute"
        corners = [self.place(x, y) for x, y in zip(roof.x, roof.y, strict=True)]
        (x0, y0), (x1, y1) = corners[-2:] if flat else corners[:2]
        angle, length = math.atan2(y1 - y0, x1 - x0), self.sheet.length(text, size)
        left = math.hypot(x1 - x0, y1 - y0) - length
        if flat:
            # At its right end if it can; its left end lies under the slanted roof.
            room = left - 4
            starts = [
                room if room <= 0 else max(room * (1 - step / 24), min(_BESIDE_RIDGE, room))
                for step in range(25)
            ]
            # Else in front of it, over the slanted roof.
            starts += [-length - before for before in range(6, 60, 6)] if roof.primary else []
        else:
            # Near the middle of its slope.
            starts = [(0.5 + (step + 1) // 2 / 24 * (-1) ** step) * left for step in range(25)]
        places = [
            (
                x0 + math.cos(angle) * start - math.sin(angle) * height,
                y0 + math.sin(angle) * start + math.cos(angle) * height,
            )
            for height in (_ABOVE_ROOF if roof.primary else _ABOVE_ROOF[:1])
            for start in starts
        ]
        covered, (x, y) = 0, places[0]
        if not flat or roof.shown or 0 < y0 + _ABOVE_ROOF[0] < self.height:
            covered, (x, y) = min(
                ((self.covered(_along(*place, length, angle)), place) for place in places),
                key=lambda pair: pair[0],
            )
        # A primary roof is never left without its name: where no place is free, the least covered will do.
        # The table names the others.
        if covered and not roof.primary:
            return
        self.write(
            x,
            y,
            text,
            size=size,
            gid=f"roofname:{number}",
            rotation=math.degrees(angle),
            rotation_mode="anchor",
            ha="left",
            color=color,
        )
        self.taken += [Box(px - 5, py - 5, px + 5, py + 5) for px, py in _along(x, y, length, angle)]

    def draw_ridge(self, number: int, ridge: Ridge) -> None:
        """A mark where the roofs meet, and its intensity at the foot of a fine line."""
        if not self.chart.limits.contains(ridge.intensity, ridge.flop_per_s):
            return
        x, y = self.place(ridge.intensity, ridge.flop_per_s)
        self.draw(
            ((x, 0), (x, y)),
            gid=f"foot:{number}",
            color=self.ink.faint_roof,
            linewidth=0.5,
            linestyle=(0, (1, 2.5)),
            zorder=1,
        )
        self.axes.plot(
            ridge.intensity,
            ridge.flop_per_s,
            "D",
            markersize=3,
            color=self.ink.roof,
            zorder=4,
            gid=f"ridge:{number}",
        )
        text = f"ridge {ridge.value}"
        length = self.sheet.length(text)
        feet = ((start, foot) for foot in range(7, int(y), 6) for start in (x + 3, x - 3 - length))
        self.write_where_free(feet, text, color=self.ink.muted, gid=f"ridgename:{number}")

    def draw_key(self) -> None:
        """Which color is which category, with its share of the time: one line above the plot, as many as
        fit."""
        x, y = 10.0, self.height + 21.0
        entries: Sequence[tuple[str, str]] = [
            (f"{category} {percent(share)}", category) for category, share in self.chart.legend
        ]
        for text, category in [*entries, ("area: time", "")]:
            length = self.sheet.length(text)
            if x + length > self.width:
                x, y = 10.0, y - SMALL - 3
            if category:
                self.draw(
                    [(x - 6, y)],
                    category_mark(category),
                    color=self.sheet.color(category),
                    markersize=5,
                    alpha=_OPACITY,
                    markeredgewidth=0,
                    clip_on=False,
                )
            self.write(x, y, text, color=self.ink.text if category else self.ink.muted)
            x += length + 20


def _along(x: float, y: float, length: float, angle: float) -> list[tuple[float, float]]:
    """Places along a line of text, close enough together that nothing fits between two of them."""
    count = max(2, math.ceil(length / 5))
    return [
        (x + math.cos(angle) * length * i / count, y + math.sin(angle) * length * i / count)
        for i in range(count + 1)
    ]
