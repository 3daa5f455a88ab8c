"""Names beside the points of a chart: where each finds room on a plot of a given size.

Places are answered in the units of the axes, so that names which are apart on the size asked for stay apart on any larger one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise

import msgspec

from rooflines.reports.axes import Limits
from rooflines.reports.chart import Chart, Roof, marker_diameter

_DISTANCES = (8, 16, 26, 42, 62, 86, 114, 150, 200, 260)
_ANGLES = tuple(math.radians(degrees) for degrees in range(0, 360, 20))
# Only the largest points are worth avoiding; the work of placing stays bounded.
_MOST_OBSTACLES = 150

_Segment = tuple[float, float, float, float]


class Label(msgspec.Struct, frozen=True, kw_only=True):
    """A name written beside its point: ``rank`` by headroom from 1, the middle of the text at ``x``, ``y`` in the units of the axes."""

    rank: int
    row: int
    text: str
    x: float
    y: float


def place_labels(
    chart: Chart,
    width: float = 900,
    height: float = 460,
    *,
    character: float = 6.2,
    line: float = 15,
    largest: float = 44.0,
    ranks_only: bool = False,
) -> tuple[Label, ...]:
    """Places for the names of ``chart.labelled`` on a plot of ``width`` by ``height`` with text of the given size (all in one unit).

    Names are set one after the other, each at the cheapest free place near its point: it may not touch another
    name, leave the plot, or draw a leader across another; covering points or roofs costs. A name without room is left out rather than
    drawn over another. With ``ranks_only`` the text is the rank, for a plot too narrow for names.
    """
    limits = chart.limits
    discs = [
        (*_pixel(limits, p.intensity, p.flop_per_s, width, height), marker_diameter(p.area, largest) / 2)
        for p in chart.points[:_MOST_OBSTACLES]
    ]
    anchors = []
    for rank, point in enumerate(chart.labelled, start=1):
        x, y = _pixel(limits, point.intensity, point.flop_per_s, width, height)
        text = str(rank) if ranks_only else point.label
        anchors.append(_Anchor(rank, text, x, y, marker_diameter(point.area, largest) / 2, (len(text) * character + 8) / 2, line / 2))
    furniture = _furniture(chart, width, height, character, line)
    best: dict[int, _Box] = {}
    # Who comes first decides who is boxed in: where names are missing, other orders may find room for more.
    for order in (lambda a: a.rank, lambda a: a.y, lambda a: -a.y, lambda a: a.x, lambda a: -a.x):
        boxes = _place(sorted(anchors, key=order), discs, *furniture, width, height)
        best = max(best, boxes, key=len)
        if len(best) == len(anchors):
            break
    labels = []
    for anchor in anchors:
        if anchor.rank in best:
            box = best[anchor.rank]
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


class _Box(msgspec.Struct, frozen=True):
    left: float
    bottom: float
    right: float
    top: float

    def overlaps(self, other: _Box) -> bool:
        return self.left < other.right and other.left < self.right and self.bottom < other.top and other.bottom < self.top

    def covers(self, x: float, y: float, radius: float) -> bool:
        nearest_x, nearest_y = min(max(x, self.left), self.right), min(max(y, self.bottom), self.top)
        return math.hypot(x - nearest_x, y - nearest_y) < radius


def _place(
    anchors: Iterable[_Anchor],
    discs: Sequence[tuple[float, float, float]],
    lines: Sequence[_Segment],
    reserved: Sequence[_Box],
    width: float,
    height: float,
) -> dict[int, _Box]:
    """The boxes of the names by rank, each at the cheapest place that those before it left free."""
    boxes = list(reserved)
    leaders: list[_Segment] = []
    placed = {}
    for anchor in anchors:
        others = [disc for disc in discs if disc[:2] != (anchor.x, anchor.y)]
        best: tuple[float, _Box, _Segment] | None = None
        for distance in _DISTANCES:
            # A place further out costs its distance at least; nothing there can be cheaper.
            if best is not None and best[0] <= distance:
                break
            for angle in _ANGLES:
                # The text starts where the leader ends: shift its middle away from the point by half its size.
                reach = anchor.radius + distance
                middle_x = anchor.x + math.cos(angle) * (reach + anchor.half_width)
                middle_y = anchor.y + math.sin(angle) * (reach + anchor.half_height)
                box = _Box(
                    middle_x - anchor.half_width,
                    middle_y - anchor.half_height,
                    middle_x + anchor.half_width,
                    middle_y + anchor.half_height,
                )
                if box.left < 0 or box.bottom < 0 or box.right > width or box.top > height:
                    continue
                leader = (anchor.x, anchor.y, min(max(anchor.x, box.left), box.right), min(max(anchor.y, box.bottom), box.top))
                if any(box.overlaps(other) for other in boxes) or any(_cross(leader, other) for other in leaders):
                    continue
                if any(_enters(leader, other) for other in boxes) or any(_enters(other, box) for other in leaders):
                    continue
                cost = distance + 45 * sum(_enters(other, box) for other in lines) + 8 * sum(_cross(leader, other) for other in lines)
                if best is not None and best[0] <= cost:
                    continue
                cost += 14 * box.covers(anchor.x, anchor.y, anchor.radius) + sum(
                    40 * box.covers(*disc) + 40 * (_gap(leader, disc[0], disc[1]) < disc[2] + 2) for disc in others
                )
                if best is None or cost < best[0]:
                    best = (cost, box, leader)
        if best is not None:
            boxes.append(best[1])
            leaders.append(best[2])
            placed[anchor.rank] = best[1]
    return placed


def _furniture(chart: Chart, width: float, height: float, character: float, line: float) -> tuple[list[_Segment], list[_Box]]:
    """What names should not cross and may not cover: the roofs with the strip of text above them, the ring with its name."""
    lines: list[_Segment] = []
    boxes: list[_Box] = []
    for roof in chart.roofs:
        if not roof.primary:
            continue
        for segment in _segments(roof, chart.limits, width, height):
            ax, ay, bx, by = segment
            length = math.hypot(bx - ax, by - ay) or 1.0
            aside_x, aside_y = -(by - ay) / length, (bx - ax) / length
            lines += [(ax + aside_x * d, ay + aside_y * d, bx + aside_x * d, by + aside_y * d) for d in (0.0, 0.6 * line, 1.2 * line)]
        if roof.kind == "compute":
            text, level = len(roof.text) * character, _pixel(chart.limits, chart.limits.x_high, roof.value, width, height)[1]
            boxes.append(_Box(max(0.0, width - text), level, width, level + 1.2 * line))
    if chart.ring is not None:
        x, y = _pixel(chart.limits, chart.ring.intensity, chart.ring.flop_per_s, width, height)
        boxes.append(_Box(x - line, y - line, x + line, y + line))
        text = len(chart.ring.text) * character
        start = x - 0.8 * line - text if ring_text_is_left(chart) else x + 0.8 * line
        boxes.append(_Box(start, y - 1.8 * line, start + text, y - 0.5 * line))
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


def _enters(segment: _Segment, box: _Box) -> bool:
    """Whether a segment passes through a box."""
    ax, ay, _, _ = segment
    if box.left < ax < box.right and box.bottom < ay < box.top:
        return True
    diagonals = ((box.left, box.bottom, box.right, box.top), (box.left, box.top, box.right, box.bottom))
    return any(_cross(segment, diagonal) for diagonal in diagonals)
