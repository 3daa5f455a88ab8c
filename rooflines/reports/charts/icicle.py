"""An icicle: the modules of a network as cells, each below its parent and as wide as its share of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import msgspec

from rooflines.reports.charts.paper import POINTS_PER_INCH, SMALL, WIDTH_IN, Drawing, Sheet
from rooflines.reports.words.text import clip

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Deeper modules are seen after zooming in.
_LEVELS = 7
_ROW, _MARGIN, _LEAST = 17.0, 1.0, 0.7
# The least room for a label, and what stays free beside it, in points.
_LABEL, _PAD = 15.0, 5.0
# Opacity of a module without headroom and of one that is all headroom.
SHADES = (0.06, 0.55)


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A module with everything below it; ``name`` is its path from its parent (empty: the model), ``depth`` its level."""

    name: str
    type: str
    depth: int
    time_s: float
    flops: float
    bytes: float
    headroom_s: float | None = None
    efficiency: float | None = None

    @property
    def opacity(self) -> float | None:
        """By the share of headroom in the time; None if it is unknown."""
        if self.headroom_s is None or self.time_s <= 0:
            return None
        return SHADES[0] + (SHADES[1] - SHADES[0]) * min(1.0, self.headroom_s / self.time_s)


class _Cell(NamedTuple):
    """The place of a module: its left end and its width as shares of the figure."""

    node: Node
    x: float
    width: float


class Icicle(Drawing, frozen=True, kw_only=True):
    """The modules by time, each after its parent; ``whole_s`` is the time of the step."""

    nodes: tuple[Node, ...]
    whole_s: float
    widths_in: ClassVar[tuple[float, ...]] = (WIDTH_IN,)

    def figure(self, sheet: Sheet) -> Figure:
        """Cells by time with as many labels as fit; time of a module that is in none of its children stays empty."""
        from matplotlib.collections import PolyCollection
        from matplotlib.colors import to_rgba

        width = sheet.width_in * POINTS_PER_INCH - 2 * _MARGIN
        cells = [cell for cell in self._cells() if cell.node.depth < _LEVELS and cell.width * width >= _LEAST]
        height = _ROW * (1 + max(cell.node.depth for cell in cells))
        figure = sheet.figure(width + 2 * _MARGIN, height + 2 * _MARGIN)
        axes = sheet.axes(figure, (_MARGIN, _MARGIN, width, height), sides=())
        axes.set(xlim=(0, width), ylim=(height, 0), xticks=[], yticks=[])
        corners, colors = [], []
        for node, x, share in cells:
            left, right, top = x * width, (x + share) * width, node.depth * _ROW
            corners.append([(left, top), (right, top), (right, top + _ROW), (left, top + _ROW)])
            colors.append(to_rgba(sheet.ink.band) if node.opacity is None else to_rgba(sheet.ink.accent, node.opacity))
            room = share * width - _PAD
            label = node.name or node.type
            length = sheet.length(label, SMALL)
            if length <= room or room >= _LABEL:
                label = label if length <= room else clip(label, int(len(label) * room / length))
                sheet.write(axes, (left + right) / 2, top + _ROW / 2, label, size=SMALL, ha="center")
        axes.add_collection(PolyCollection(corners, facecolors=colors, edgecolors=sheet.ink.faint_roof, linewidths=0.4))
        return figure

    def page_facts(self) -> dict[str, Any]:
        """The modules as lists of numbers; types are written once."""
        types = list(dict.fromkeys(node.type for node in self.nodes))
        numbers = ("time_s", "flops", "bytes", "headroom_s", "efficiency")
        nodes = [
            [node.depth, node.name, types.index(node.type), *(_short(getattr(node, name)) for name in numbers)] for node in self.nodes
        ]
        return {"icicle": {"nodes": nodes, "types": types, "whole": self.whole_s, "levels": _LEVELS, "shades": SHADES}}

    def _cells(self) -> list[_Cell]:
        found: list[_Cell] = []
        above: list[_Cell] = []  # the cells around the next one
        free = [0.0]  # the left end of the next cell at each depth
        whole_s = sum(node.time_s for node in self.nodes if node.depth == 0)
        for node in self.nodes:
            del above[node.depth :], free[node.depth + 1 :]
            around = above[-1] if above else None
            of_s = around.node.time_s if around is not None else whole_s
            share = node.time_s / of_s * (around.width if around is not None else 1.0) if of_s > 0 else 0.0
            cell = _Cell(node, free[node.depth], share)
            free[node.depth] += share
            above.append(cell)
            free.append(cell.x)
            found.append(cell)
        return found


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")
