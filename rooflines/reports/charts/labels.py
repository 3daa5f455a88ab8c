"""Labels of the points of a chart, placed on a plot of a given size.

Places are answered in the units of the axes, so that names which are apart on the size asked for stay apart on any larger one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec

from rooflines.reports.charts.axes import Limits
from rooflines.reports.charts.roofline import Chart, Point, marker_diameter

# Distances for text in lines of this height: close to the point, and on a grid as far as this.
_LINE = 15.0
_NEAR = (6, 12, 20, 30)
_FAR = 240.0
_ANGLES = tuple(math.radians(degrees) for degrees in range(0, 360, 15))
_COLUMN, _ROW = 30.0, 16.0
# Room that stays free around a point and beside a line, and what a leader costs that passes a point or a roof.
_CLEAR = 2.0
_OVER = 40.0
_MOST_DETOURS = 150
_MOST_PLACES = 200
_ROUNDS = 4
# Number of places that are tried if other labels have to move.
_TRIED = 4
# A name is worth this much; a place that costs half of it is worse than none.
_NAMED = 600.0
_FARTHEST = _NAMED / 2

_Segment = tuple[float, float, float, float]


class Label(msgspec.Struct, frozen=True, kw_only=True):
    """A label next to its point: ``rank`` by headroom from 1, the middle of the text at ``x``, ``y`` in the units of the axes."""

    rank: int
    row: int
    text: str
    x: float
    y: float


class Box(msgspec.Struct, frozen=True):
    """A rectangle on the plot, in the plot's unit from its lower left corner."""

    left: float
    bottom: float
    right: float
    top: float

    def overlaps(self, other: Box) -> bool:
        """Whether the two share some area."""
        return self.left < other.right and other.left < self.right and self.bottom < other.top and other.bottom < self.top

    def touches(self, x: float, y: float, radius: float) -> bool:
        """Whether a circle reaches into the rectangle."""
        nearest_x, nearest_y = min(max(x, self.left), self.right), min(max(y, self.bottom), self.top)
        return math.hypot(x - nearest_x, y - nearest_y) < radius

    def leader_end(self, x: float, y: float) -> tuple[float, float]:
        """Where a line from ``x``, ``y`` meets the text: the middle of the side that faces it, or the nearest place above or below."""
        near_x, near_y = min(max(x, self.left), self.right), min(max(y, self.bottom), self.top)
        if abs(x - near_x) >= abs(y - near_y):
            return near_x, (self.bottom + self.top) / 2
        return near_x, near_y


class _Disc(NamedTuple):
    x: float
    y: float
    radius: float


class _Plot(NamedTuple):
    """What names keep off: ``discs`` and ``boxes``; what their leaders go around if they can: ``detours`` and ``lines``."""

    width: float
    height: float
    discs: Sequence[_Disc]
    detours: Sequence[_Disc]
    lines: Sequence[_Segment]
    boxes: Sequence[Box]


class _Place(NamedTuple):
    """Where a name could stand, with the line to its point and what both cost."""

    cost: float
    box: Box
    leader: _Segment


def place_labels(
    chart: Chart,
    width: float = 900,
    height: float = 460,
    *,
    character: float = 6.2,
    line: float = 15,
    largest: float = 44.0,
    smallest: float = 6.0,
    least_mark: float = 14.0,
    reserved: Iterable[Box] = (),
    length: Callable[[str], float] | None = None,
    ranks_only: bool = False,
) -> tuple[Label, ...]:
    """Places for the names of ``chart.labelled`` on a plot of ``width`` by ``height`` with text of the given size (all in one unit).

    A name stays on the plot and off every point, roof, ridge line, roof name, the ring, ``reserved`` and other names; its leader stays
    off other names and leaders. Of the places left, the one nearest to its point is taken, with a leader that passes no other point. A
    name without room is left out. A point with a warning is as large as its mark, ``least_mark`` across at least. ``length`` measures a
    text that is not ``character`` wide on average. With ``ranks_only`` the text is the rank, for a plot too narrow for names.
    """
    limits, measure = chart.limits, length or (lambda text: len(text) * character)

    def disc(point: Point, *, marked: bool) -> _Disc:
        diameter = marker_diameter(point.area, largest, smallest)
        # The mark of a warning may be a square: its corner reaches further than the point's edge.
        diameter = max(diameter, least_mark) * 1.2 if marked and point.warning else diameter
        return _Disc(*_pixel(limits, point.intensity, point.flop_per_s, width, height), diameter / 2)

    discs = [disc(point, marked=True) for point in chart.points]
    lines, strips, boxes = _furniture(chart, discs, width, height, character, line)
    plot = _Plot(width, height, (*discs, *strips), discs[:_MOST_DETOURS], lines, (*boxes, *reserved))
    texts = [str(rank) if ranks_only else point.label for rank, point in enumerate(chart.labelled, start=1)]
    places = [
        _places(disc(point, marked=False), (measure(text) + 8, line), plot) for point, text in zip(chart.labelled, texts, strict=True)
    ]
    labels = []
    for index, box in sorted(_arranged(places).items()):
        x, y = limits.value((box.left + box.right) / 2 / width, (box.bottom + box.top) / 2 / height)
        labels.append(Label(rank=index + 1, row=chart.labelled[index].row, text=texts[index], x=x, y=y))
    return tuple(labels)


def ring_text_is_left(chart: Chart) -> bool:
    """Whether the name of the ring stands left of it, below its middle: near the right edge it would not fit on the other side."""
    return chart.ring is not None and chart.limits.fraction(chart.ring.intensity, chart.ring.flop_per_s)[0] > 0.75


def _arranged(places: Sequence[Sequence[_Place]]) -> dict[int, Box]:
    """The boxes of the names by index: each takes the cheapest place left, in the order in which most names find one."""
    best: dict[int, _Place] = {}
    order = list(range(len(places)))
    for _ in range(_ROUNDS):
        placed = _filled({}, order, places)
        best = max(best, placed, key=_worth)
        # Those without a place choose first the next time, then those that had to go far.
        order.sort(key=lambda index: -placed[index].cost if index in placed else -math.inf)
    for index in range(len(places)):
        for place in places[index][::_TRIED] if index not in best else ():
            # One or two labels in the way may move to another place.
            kept = {other: at for other, at in best.items() if _apart(place, at)}
            if len(best) - len(kept) <= 2:
                best = max(best, _filled(kept | {index: place}, best, places), key=_worth)
    return {index: place.box for index, place in best.items()}


def _filled(placed: dict[int, _Place], order: Iterable[int], places: Sequence[Sequence[_Place]]) -> dict[int, _Place]:
    """With the others of ``order`` at the cheapest place that is left to each."""
    placed = dict(placed)
    for index in order:
        if index not in placed:
            place = next((one for one in places[index] if all(_apart(one, other) for other in placed.values())), None)
            placed |= {index: place} if place is not None else {}
    return placed


def _worth(placed: dict[int, _Place]) -> float:
    return sum(_NAMED - place.cost for place in placed.values())


def _places(point: _Disc, size: tuple[float, float], plot: _Plot) -> list[_Place]:
    """The places around a point where a name of ``size`` lies on nothing, cheapest first."""
    import numpy as np

    unit = size[1] / _LINE
    x, y, radius = np.array(plot.discs, dtype=float).reshape(-1, 3).T
    # A point that lies on this one is passed whichever way the leader goes.
    others = [one for one in plot.detours if math.hypot(one.x - point.x, one.y - point.y) > one.radius]
    found = []
    for box in dict.fromkeys(_around(point, size, unit)):
        if box.left < 0 or box.bottom < 0 or box.right > plot.width or box.top > plot.height:
            continue
        gap = np.hypot(x - np.clip(x, box.left, box.right), y - np.clip(y, box.bottom, box.top))
        if (gap < radius + _CLEAR).any() or any(box.overlaps(other) for other in plot.boxes):
            continue
        leader = (point.x, point.y, *box.leader_end(point.x, point.y))
        if any(_enters(leader, other) for other in plot.boxes):
            continue
        passed = sum(_gap(leader, one.x, one.y) < one.radius + 1 for one in others) + any(_cross(leader, line) for line in plot.lines)
        cost = math.hypot(leader[2] - leader[0], leader[3] - leader[1]) - point.radius + unit * _OVER * min(3, passed)
        if cost < _FARTHEST * unit:
            found.append(_Place(cost, box, leader))
    return sorted(found, key=lambda place: place.cost)[:_MOST_PLACES]


def _around(point: _Disc, size: tuple[float, float], unit: float) -> Iterator[Box]:
    """Boxes around a point; those further out have the side that faces it on a grid, so that names of a crowd line up."""
    width, height = size
    for distance in _NEAR:
        for angle in _ANGLES:
            # The text starts where the leader ends: shift its middle away from the point by half its size.
            reach = point.radius + distance * unit
            x, y = point.x + math.cos(angle) * (reach + width / 2), point.y + math.sin(angle) * (reach + height / 2)
            yield Box(x - width / 2, y - height / 2, x + width / 2, y + height / 2)
    column, row = _COLUMN * unit, _ROW * unit
    for across in range(math.floor((point.x - _FAR * unit) / column), math.ceil((point.x + _FAR * unit) / column) + 1):
        for up in range(math.floor((point.y - _FAR * unit) / row), math.ceil((point.y + _FAR * unit) / row) + 1):
            left = across * column - (width if across * column < point.x else 0.0)
            yield Box(left, up * row, left + width, up * row + height)


def _apart(one: _Place, other: _Place) -> bool:
    """Whether neither names nor leaders get in each other's way."""
    return not (
        one.box.overlaps(other.box)
        or _cross(one.leader, other.leader)
        or _enters(one.leader, other.box)
        or _enters(other.leader, one.box)
    )


def _furniture(
    chart: Chart, discs: Sequence[_Disc], width: float, height: float, character: float, line: float
) -> tuple[list[_Segment], list[_Disc], list[Box]]:
    """The roofs and ridges as lines; as discs with the text above the roofs; and the boxes of the ring and of names."""
    lines: list[_Segment] = []
    strips: list[_Disc] = []
    boxes: list[Box] = []
    for roof in (roof for roof in chart.roofs if roof.primary):
        corners = [_pixel(chart.limits, x, y, width, height) for x, y in zip(roof.x, roof.y, strict=True)]
        for (ax, ay), (bx, by) in pairwise(corners):
            lines.append((ax, ay, bx, by))
            up = 0.6 * line / (math.hypot(bx - ax, by - ay) or 1.0)
            strips += _dotted((ax - (by - ay) * up, ay + (bx - ax) * up, bx - (by - ay) * up, by + (bx - ax) * up), 0.6 * line)
        if roof.kind == "compute":
            boxes.append(Box(max(0.0, width - len(roof.text) * character), corners[-1][1], width, corners[-1][1] + 1.2 * line))
    for ridge in chart.ridges:
        x, y = _pixel(chart.limits, ridge.intensity, ridge.flop_per_s, width, height)
        lines.append((x, 0.0, x, y))
        if ridge == chart.ridges[0]:
            boxes.append(Box(x - 4 - len(ridge.text) * character, y, x, y + 1.2 * line))
    strips += [disc for segment in lines for disc in _dotted(segment, _CLEAR)]
    if chart.ring is not None:
        x, y = _pixel(chart.limits, chart.ring.intensity, chart.ring.flop_per_s, width, height)
        boxes.append(Box(x - line, y - line, x + line, y + line))
        text = len(chart.ring.text) * character
        starts = sorted((x + 0.8 * line, x - 0.8 * line - text), reverse=not ring_text_is_left(chart))
        names = [Box(start, y + up - 0.65 * line, start + text, y + up + 0.65 * line) for up in (-line, line) for start in starts]
        boxes.append(next((box for box in names if not any(box.touches(*disc) for disc in discs)), names[0]))
    return lines, strips, boxes


def _pixel(limits: Limits, x: float, y: float, width: float, height: float) -> tuple[float, float]:
    across, up = limits.fraction(x, y)
    return across * width, up * height


def _dotted(segment: _Segment, radius: float) -> list[_Disc]:
    """Discs along a segment, so close that nothing lies between them."""
    ax, ay, bx, by = segment
    count = max(1, math.ceil(math.hypot(bx - ax, by - ay) / radius / 2))
    return [_Disc(ax + (bx - ax) * step / count, ay + (by - ay) * step / count, radius) for step in range(count + 1)]


def _cross(first: _Segment, second: _Segment) -> bool:
    """Whether two segments cross."""
    ax, ay, bx, by = first
    cx, cy, dx, dy = second

    def turns(px: float, py: float, qx: float, qy: float, rx: float, ry: float) -> float:
        return (qx - px) * (ry - py) - (qy - py) * (rx - px)

    return (
        turns(ax, ay, bx, by, cx, cy) * turns(ax, ay, bx, by, dx, dy) < 0
        and turns(cx, cy, dx, dy, ax, ay) * turns(cx, cy, dx, dy, bx, by) < 0
    )


def _gap(segment: _Segment, x: float, y: float) -> float:
    """How far a place is from a segment."""
    ax, ay, bx, by = segment
    squared = (bx - ax) ** 2 + (by - ay) ** 2
    along = min(1.0, max(0.0, ((x - ax) * (bx - ax) + (y - ay) * (by - ay)) / squared)) if squared else 0.0
    return math.hypot(x - ax - along * (bx - ax), y - ay - along * (by - ay))


def _enters(segment: _Segment, box: Box) -> bool:
    """Whether a segment begins in a box or passes through it."""
    diagonals = ((box.left, box.bottom, box.right, box.top), (box.left, box.top, box.right, box.bottom))
    return box.touches(segment[0], segment[1], 1e-9) or any(_cross(segment, diagonal) for diagonal in diagonals)
