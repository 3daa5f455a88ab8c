"""Names beside the points of a chart: where each finds room on a plot of a given size.

Places are answered in the units of the axes, so that names which are apart on the size asked for stay apart on any larger one.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

import msgspec

from rooflines.reports.charts.axes import Limits
from rooflines.reports.charts.roofline import Chart, Roof, marker_diameter

# Lengths and costs are for text in lines of this height; they grow and shrink with it.
_LINE = 15.0
_DISTANCES = (6, 12, 20, 30, 42, 56, 72, 90, 110, 134, 160)
_ANGLES = tuple(math.radians(degrees) for degrees in range(0, 360, 15))
# A place that costs more than this is worse than none.
_FARTHEST = 300.0
# Names further out start on a grid, so that they line up.
_COLUMN, _ROW = 30.0, 16.0
# Room that stays free around a point and beside a line.
_CLEAR = 2.0
# What a leader costs besides its length: over a point, over a roof; and what a name gains that stands in a column with another.
_OVER_POINT, _OVER_POINTS = 40.0, 120.0
_OVER_LINE = 40.0
_IN_COLUMN = 14.0
# What a name is worth, the first one twice of it.
_NAMED = 600.0
# A leader may pass a point; only the largest are worth a detour. No name lies on any point, however small.
_MOST_DETOURS = 150
_ROUNDS = 3
_MOST_PLACES = 400
_TRIALS = 60

_Segment = tuple[float, float, float, float]
_Disc = tuple[float, float, float]


class Label(msgspec.Struct, frozen=True, kw_only=True):
    """A name written beside its point: ``rank`` by headroom from 1, the middle of the text at ``x``, ``y`` in the units of the axes."""

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
    off other names and leaders. Of the places left, the cheapest is taken: near its point, in a column with others, with a leader that
    passes no point. A name without room is left out. A point with a warning is as large as its mark, ``least_mark`` across at least.
    ``length`` measures a text that is not ``character`` wide on average.
    With ``ranks_only`` the text is the rank, for a plot too narrow for names.
    """
    limits = chart.limits
    discs = []
    for point in chart.points:
        diameter = marker_diameter(point.area, largest, smallest)
        # The mark of a warning may be a square: its corner reaches further than the point's edge.
        diameter = max(diameter, least_mark) * 1.2 if point.warning else diameter
        discs.append((*_pixel(limits, point.intensity, point.flop_per_s, width, height), diameter / 2))
    measure = length or (lambda text: len(text) * character)
    anchors = []
    for rank, point in enumerate(chart.labelled, start=1):
        x, y = _pixel(limits, point.intensity, point.flop_per_s, width, height)
        text = str(rank) if ranks_only else point.label
        radius = marker_diameter(point.area, largest, smallest) / 2
        anchors.append(_Anchor(rank, text, x, y, radius, (measure(text) + 8) / 2, line / 2))
    lines, boxes = _furniture(chart, discs, width, height, character, line)
    plot = _Plot(width, height, discs, lines, [*boxes, *reserved], line / _LINE)
    found = _arrange(plot, anchors)
    labels = []
    for anchor in anchors:
        if anchor.rank in found:
            box = found[anchor.rank].box
            x, y = limits.value((box.left + box.right) / 2 / width, (box.bottom + box.top) / 2 / height)
            labels.append(Label(rank=anchor.rank, row=chart.labelled[anchor.rank - 1].row, text=anchor.text, x=x, y=y))
    return tuple(labels)


def ring_text_is_left(chart: Chart) -> bool:
    """Whether the name of the ring stands left of it, below its middle: near the right edge it would not fit on the other side."""
    return chart.ring is not None and chart.limits.fraction(chart.ring.intensity, chart.ring.flop_per_s)[0] > 0.75


# --- places ----------------------------------------------------------------------------------------------------------------------


class _Anchor(msgspec.Struct, frozen=True):
    """A point that wants its name beside it, with the size of both."""

    rank: int
    text: str
    x: float
    y: float
    radius: float
    half_width: float
    half_height: float


class _Place(msgspec.Struct, frozen=True):
    """Where a name could stand, with the line to its point and what both cost."""

    cost: float
    box: Box
    leader: _Segment


class _Plot:
    """What is drawn besides the names. Whether a name may stand somewhere for all that, and at what cost."""

    def __init__(
        self, width: float, height: float, discs: Sequence[_Disc], lines: Sequence[_Segment], boxes: Sequence[Box], unit: float
    ) -> None:
        self.width, self.height, self.unit = width, height, unit
        self.lines, self.boxes = lines, boxes
        self.detours = discs[:_MOST_DETOURS]
        self.by_x = sorted(discs)
        self.widest = max((radius for _, _, radius in discs), default=0.0) + _CLEAR

    def place(self, anchor: _Anchor, middle_x: float, middle_y: float) -> _Place | None:
        """The place with its cost, or None where the name would lie on something."""
        box = Box(
            middle_x - anchor.half_width, middle_y - anchor.half_height, middle_x + anchor.half_width, middle_y + anchor.half_height
        )
        if box.left < 0 or box.bottom < 0 or box.right > self.width or box.top > self.height:
            return None
        if any(box.overlaps(other) for other in self.boxes) or any(_enters(line, box) for line in self.lines) or self._on_a_point(box):
            return None
        leader = (anchor.x, anchor.y, *box.leader_end(anchor.x, anchor.y))
        if any(_enters(leader, other) for other in self.boxes):
            return None
        cost = math.hypot(leader[2] - leader[0], leader[3] - leader[1]) - anchor.radius
        cost += self.unit * _OVER_LINE * any(_cross(leader, line) for line in self.lines)
        # A point that lies on this one is passed whichever way the leader goes.
        passed = sum(
            math.hypot(x - anchor.x, y - anchor.y) > radius and _gap(leader, x, y) < radius + 1 for x, y, radius in self.detours
        )
        cost += self.unit * min(_OVER_POINT * passed, _OVER_POINTS)
        return _Place(cost, box, leader) if cost <= _FARTHEST * self.unit else None

    def worth(self, placed: dict[int, _Place]) -> float:
        """How good an arrangement is: every name counts, those with more headroom count more, and what they cost goes off."""
        return sum(self.unit * _NAMED * (1 + 1 / rank) - place.cost for rank, place in placed.items())

    def places(self, anchor: _Anchor) -> list[_Place]:
        """The places around a point, cheapest first."""
        found = []
        for distance in _DISTANCES:
            for angle in _ANGLES:
                # The text starts where the leader ends: shift its middle away from the point by half its size.
                reach = anchor.radius + distance * self.unit
                middle_x = anchor.x + math.cos(angle) * (reach + anchor.half_width)
                middle_y = anchor.y + math.sin(angle) * (reach + anchor.half_height)
                found.append(self.place(anchor, middle_x, middle_y))
        column, row = _COLUMN * self.unit, _ROW * self.unit
        for across in range(int((self.width - 2 * anchor.half_width) / column) + 1):
            found += [
                self.place(anchor, across * column + anchor.half_width, up * row + anchor.half_height)
                for up in range(int((self.height - 2 * anchor.half_height) / row) + 1)
            ]
        return sorted((place for place in found if place is not None), key=lambda place: place.cost)[:_MOST_PLACES]

    def _on_a_point(self, box: Box) -> bool:
        first = bisect.bisect_left(self.by_x, (box.left - self.widest,))
        for x, y, radius in self.by_x[first:]:
            if x > box.right + self.widest:
                return False
            if box.touches(x, y, radius + _CLEAR):
                return True
        return False


def _arrange(plot: _Plot, anchors: Sequence[_Anchor]) -> dict[int, _Place]:
    """The places of the names by rank: as many names as find room, at the least cost."""
    places = {anchor.rank: plot.places(anchor) for anchor in anchors}
    best: dict[int, _Place] = {}
    # Who comes first decides who is boxed in: several orders are tried, and the names then placed anew among the others.
    for order in (lambda a: a.rank, lambda a: a.y, lambda a: -a.y, lambda a: a.x, lambda a: -a.x, lambda a: len(places[a.rank])):
        placed: dict[int, _Place] = {}
        for _ in range(_ROUNDS):
            before = dict(placed)
            for anchor in sorted(anchors, key=order):
                placed.pop(anchor.rank, None)
                place = _cheapest(plot, anchor, places[anchor.rank], list(placed.values()))
                if place is not None:
                    placed[anchor.rank] = place
            if placed == before:
                break
        best = max(best, placed, key=plot.worth)
    for anchor in anchors:
        if anchor.rank not in best:
            best = _insert(plot, anchors, places, best, anchor)
    return best


def _insert(
    plot: _Plot, anchors: Sequence[_Anchor], places: dict[int, list[_Place]], placed: dict[int, _Place], anchor: _Anchor
) -> dict[int, _Place]:
    """The same names with one more, at whose place one or two others stood that moved; the names as they were where nothing is won."""
    own = places[anchor.rank]
    best = placed
    for place in own[:: math.ceil(len(own) / _TRIALS) or 1]:
        kept = {rank: other for rank, other in placed.items() if _apart(place, (other,))}
        if len(placed) - len(kept) > 2:
            continue
        kept[anchor.rank] = place
        for moved in anchors:
            if moved.rank in placed and moved.rank not in kept:
                found = _cheapest(plot, moved, places[moved.rank], list(kept.values()))
                if found is not None:
                    kept[moved.rank] = found
        best = max(best, kept, key=plot.worth)
    return best


def _cheapest(plot: _Plot, anchor: _Anchor, places: Iterable[_Place], others: Sequence[_Place]) -> _Place | None:
    """The cheapest place that keeps clear of the names already placed, above or below one of them rather than anywhere else."""
    best = next((place for place in places if _apart(place, others)), None)
    for other in others:
        height = 2 * anchor.half_height
        for middle_x in (other.box.left + anchor.half_width, other.box.right - anchor.half_width):
            for middle_y in (other.box.top + height / 2, other.box.bottom - height / 2):
                place = plot.place(anchor, middle_x, middle_y)
                if place is None:
                    continue
                place = msgspec.structs.replace(place, cost=place.cost - plot.unit * _IN_COLUMN)
                if (best is None or place.cost < best.cost) and _apart(place, others):
                    best = place
    return best


def _apart(place: _Place, others: Iterable[_Place]) -> bool:
    """Whether neither names nor leaders get in each other's way."""
    return not any(
        place.box.overlaps(other.box)
        or _cross(place.leader, other.leader)
        or _enters(place.leader, other.box)
        or _enters(other.leader, place.box)
        for other in others
    )


# --- what names keep off ----------------------------------------------------------------------------------------------------------


def _furniture(
    chart: Chart, discs: Sequence[_Disc], width: float, height: float, character: float, line: float
) -> tuple[list[_Segment], list[Box]]:
    """The roofs with the strip of text above them, the ridges with their names, the ring with its name."""
    lines: list[_Segment] = []
    boxes: list[Box] = []
    for roof in chart.roofs:
        if not roof.primary:
            continue
        for segment in _segments(roof, chart.limits, width, height):
            ax, ay, bx, by = segment
            length = math.hypot(bx - ax, by - ay) or 1.0
            aside_x, aside_y = -(by - ay) / length, (bx - ax) / length
            strip = (-_CLEAR, 0.0, 0.6 * line, 1.2 * line)
            lines += [(ax + aside_x * d, ay + aside_y * d, bx + aside_x * d, by + aside_y * d) for d in strip]
        if roof.kind == "compute":
            text, level = len(roof.text) * character, _pixel(chart.limits, chart.limits.x_high, roof.value, width, height)[1]
            boxes.append(Box(max(0.0, width - text), level, width, level + 1.2 * line))
    for ridge in chart.ridges:
        x, y = _pixel(chart.limits, ridge.intensity, ridge.flop_per_s, width, height)
        lines += [(x + d, 0.0, x + d, y) for d in (-_CLEAR, _CLEAR)]
        if ridge == chart.ridges[0]:
            boxes.append(Box(x - 4 - len(ridge.text) * character, y, x, y + 1.2 * line))
    if chart.ring is not None:
        x, y = _pixel(chart.limits, chart.ring.intensity, chart.ring.flop_per_s, width, height)
        boxes.append(Box(x - line, y - line, x + line, y + line))
        text = len(chart.ring.text) * character
        starts = (x + 0.8 * line, x - 0.8 * line - text)
        corners = [
            Box(start, y + up - 0.65 * line, start + text, y + up + 0.65 * line)
            for up in (-line, line)
            for start in (reversed(starts) if ring_text_is_left(chart) else starts)
        ]
        free = (box for box in corners if not any(box.touches(*disc) for disc in discs))
        boxes.append(next(free, corners[0]))
    return lines, boxes


def _pixel(limits: Limits, x: float, y: float, width: float, height: float) -> tuple[float, float]:
    across, up = limits.fraction(x, y)
    return across * width, up * height


def _segments(roof: Roof, limits: Limits, width: float, height: float) -> list[_Segment]:
    corners = [_pixel(limits, x, y, width, height) for x, y in zip(roof.x, roof.y, strict=True)]
    return [(*start, *end) for start, end in pairwise(corners)]


# --- crossings -------------------------------------------------------------------------------------------------------------------


def _cross(first: _Segment, second: _Segment) -> bool:
    """Whether two segments cross."""
    ax, ay, bx, by = first
    cx, cy, dx, dy = second
    return (
        _turn(ax, ay, bx, by, cx, cy) * _turn(ax, ay, bx, by, dx, dy) < 0
        and _turn(cx, cy, dx, dy, ax, ay) * _turn(cx, cy, dx, dy, bx, by) < 0
    )


def _turn(ax: float, ay: float, bx: float, by: float, cx: float, cy: float) -> float:
    return (bx - ax) * (cy - ay) - (by - ay) * (cx - ax)


def _gap(segment: _Segment, x: float, y: float) -> float:
    """How far a place is from a segment."""
    ax, ay, bx, by = segment
    squared = (bx - ax) ** 2 + (by - ay) ** 2
    along = 0.0 if squared == 0 else min(1.0, max(0.0, ((x - ax) * (bx - ax) + (y - ay) * (by - ay)) / squared))
    return math.hypot(x - ax - along * (bx - ax), y - ay - along * (by - ay))


def _enters(segment: _Segment, box: Box) -> bool:
    """Whether a segment passes through a box."""
    ax, ay, _, _ = segment
    if box.left < ax < box.right and box.bottom < ay < box.top:
        return True
    diagonals = ((box.left, box.bottom, box.right, box.top), (box.left, box.top, box.right, box.bottom))
    return any(_cross(segment, diagonal) for diagonal in diagonals)
