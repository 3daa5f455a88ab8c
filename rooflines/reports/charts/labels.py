"""Places for the names of points on a plot of a given size: off each other, off points and lines, near to
their points."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

# Distances for text in lines of this height: close to the point, and on a grid as far as this.
_LINE = 15.0
_NEAR = (6, 12, 20, 30)
_FAR = 240.0
_ANGLES = tuple(math.radians(degrees) for degrees in range(0, 360, 15))
_COLUMN, _ROW = 30.0, 16.0
# Room that stays free around a point, and what a leader costs that passes a point or a line.
_CLEAR = 2.0
_OVER = 40.0
_MOST_DETOURS = 150
_MOST_PLACES = 200
_ROUNDS = 4
# Every n-th place is tried if other names have to move.
_TRIED = 4
# A name is worth this much; a place that costs half of it is worse than none.
_NAMED = 600.0
_FARTHEST = _NAMED / 2

Segment = tuple[float, float, float, float]


class Box(NamedTuple):
    """A rectangle on the plot, in the plot's unit from its lower left corner. Any number may be an array, for
    many at once."""

    left: Any
    bottom: Any
    right: Any
    top: Any

    def overlaps(self, other: Box) -> Any:
        """Whether the two share some area."""
        return (
            (self.left < other.right)
            & (other.left < self.right)
            & (self.bottom < other.top)
            & (other.bottom < self.top)
        )

    def distance(self, x: Any, y: Any) -> Any:
        """How far a place is from the rectangle."""
        return np.hypot(x - np.clip(x, self.left, self.right), y - np.clip(y, self.bottom, self.top))

    def leader_end(self, x: float, y: float) -> tuple[float, float]:
        """Where a line from ``x``, ``y`` meets the text: the middle of the side that faces it, or the nearest
        place above or below."""
        near_x, near_y = min(max(x, self.left), self.right), min(max(y, self.bottom), self.top)
        if abs(x - near_x) >= abs(y - near_y):
            return near_x, (self.bottom + self.top) / 2
        return near_x, near_y


class Disc(NamedTuple):
    """A point of the chart on the plot."""

    x: Any
    y: Any
    radius: Any


class _Place(NamedTuple):
    """Where a name could stand, with the line to its point and what both cost."""

    cost: float
    box: Box
    leader: Segment


def columns(rows: Iterable[Sequence[float]], width: int) -> Any:
    """The columns of ``rows``, which have ``width`` numbers each, as arrays."""
    return np.array([*rows], dtype=float).reshape(-1, width).T


def place_names(
    names: Sequence[tuple[Disc, float]],
    size: tuple[float, float],
    line: float,
    *,
    discs: Sequence[Disc],
    lines: Sequence[Segment],
    taken: Iterable[Box],
) -> dict[int, Box]:
    """The places of ``names``, each its point and its width, by their index, on a plot of ``size`` with text
    in lines of this height.

    A name stays on the plot and off every point, line, box and other name; its leader stays off other names
    and leaders. Of the places left, the one nearest to its point is taken, with a leader that passes no other
    point. A name without room is left out.
    """
    obstacles = Disc(*columns((*discs, *(disc for segment in lines for disc in dotted(segment, _CLEAR))), 3))
    detours = Disc(*columns(discs[:_MOST_DETOURS], 3))
    segments = columns(lines, 4)
    boxes = Box(*columns(taken, 4))
    places = []
    for point, length in names:
        candidates = []
        # A point that lies on this one is passed whichever way the leader goes.
        apart = Disc(
            *(
                values[np.hypot(detours.x - point.x, detours.y - point.y) > detours.radius]
                for values in detours
            )
        )
        for box in dict.fromkeys(_around(point, (length + 8, line))):
            if box.left < 0 or box.bottom < 0 or box.right > size[0] or box.top > size[1]:
                continue
            if (box.distance(obstacles.x, obstacles.y) < obstacles.radius + _CLEAR).any() or box.overlaps(
                boxes
            ).any():
                continue
            leader = (point.x, point.y, *box.leader_end(point.x, point.y))
            if _enters(leader, boxes).any():
                continue
            passed = (_gap(leader, apart) < apart.radius + 1).sum() + _cross(leader, segments).any()
            cost = (
                math.hypot(leader[2] - leader[0], leader[3] - leader[1])
                - point.radius
                + line / _LINE * _OVER * min(3, passed)
            )
            if cost < _FARTHEST * line / _LINE:
                candidates.append(_Place(cost, box, leader))
        places.append(sorted(candidates, key=lambda place: place.cost)[:_MOST_PLACES])
    return dict(sorted(_arranged(places).items()))


def _arranged(places: Sequence[Sequence[_Place]]) -> dict[int, Box]:
    """The boxes of the names by index: each takes the cheapest place left, in the order in which most names
    find one."""
    best: dict[int, _Place] = {}
    order = list(range(len(places)))
    for _ in range(_ROUNDS):
        placed = _filled({}, order, places)
        best = max(best, placed, key=_worth)
        # Those without a place choose first the next time, then those that had to go far.
        order.sort(key=lambda index: -placed[index].cost if index in placed else -math.inf)
    for index in order:
        for place in places[index][::_TRIED] if index not in best else ():
            # One or two names in the way may move to another place.
            kept = {other: at for other, at in best.items() if _apart(place, at)}
            if len(best) - len(kept) <= 2:
                best = max(best, _filled(kept | {index: place}, best, places), key=_worth)
    return {index: place.box for index, place in best.items()}


def _filled(
    placed: dict[int, _Place], order: Iterable[int], places: Sequence[Sequence[_Place]]
) -> dict[int, _Place]:
    """With the others of ``order`` at the cheapest place that is left to each."""
    placed = dict(placed)
    for index in order:
        free = (place for place in places[index] if all(_apart(place, other) for other in placed.values()))
        if index not in placed and (place := next(free, None)) is not None:
            placed[index] = place
    return placed


def _worth(placed: dict[int, _Place]) -> float:
    return sum(_NAMED - place.cost for place in placed.values())


def _around(point: Disc, size: tuple[float, float]) -> Iterator[Box]:
    """Boxes around a point; those further out have the side that faces it on a grid, so that names of a crowd
    line up."""
    width, height = size
    unit = height / _LINE
    for distance in _NEAR:
        for angle in _ANGLES:
            # The text starts where the leader ends: shift its middle away from the point by half its size.
            reach = point.radius + distance * unit
            x = point.x + math.cos(angle) * (reach + width / 2)
            y = point.y + math.sin(angle) * (reach + height / 2)
            yield Box(x - width / 2, y - height / 2, x + width / 2, y + height / 2)
    column, row = _COLUMN * unit, _ROW * unit
    for across in range(
        math.floor((point.x - _FAR * unit) / column), math.ceil((point.x + _FAR * unit) / column) + 1
    ):
        for up in range(
            math.floor((point.y - _FAR * unit) / row), math.ceil((point.y + _FAR * unit) / row) + 1
        ):
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


def dotted(segment: Segment, radius: float) -> list[Disc]:
    """Discs along a segment, so close that nothing lies between them."""
    ax, ay, bx, by = segment
    count = max(1, math.ceil(math.hypot(bx - ax, by - ay) / radius / 2))
    return [
        Disc(ax + (bx - ax) * step / count, ay + (by - ay) * step / count, radius)
        for step in range(count + 1)
    ]


def _cross(first: Segment, second: Any) -> Any:
    """Whether two segments cross."""
    ax, ay, bx, by = first
    cx, cy, dx, dy = second

    def turns(px: Any, py: Any, qx: Any, qy: Any, rx: Any, ry: Any) -> Any:
        return (qx - px) * (ry - py) - (qy - py) * (rx - px)

    astride = turns(ax, ay, bx, by, cx, cy) * turns(ax, ay, bx, by, dx, dy) < 0
    return astride & (turns(cx, cy, dx, dy, ax, ay) * turns(cx, cy, dx, dy, bx, by) < 0)


def _gap(segment: Segment, disc: Disc) -> Any:
    """How far the middle of a disc is from a segment."""
    ax, ay, bx, by = segment
    squared = (bx - ax) ** 2 + (by - ay) ** 2 or 1.0
    along = np.clip(((disc.x - ax) * (bx - ax) + (disc.y - ay) * (by - ay)) / squared, 0, 1)
    return np.hypot(disc.x - ax - along * (bx - ax), disc.y - ay - along * (by - ay))


def _enters(segment: Segment, box: Box) -> Any:
    """Whether a segment begins in a box or passes through it."""
    x, y, _, _ = segment
    begins = (box.left <= x) & (x <= box.right) & (box.bottom <= y) & (y <= box.top)
    rising, falling = (box.left, box.bottom, box.right, box.top), (box.left, box.top, box.right, box.bottom)
    return begins | _cross(segment, rising) | _cross(segment, falling)
