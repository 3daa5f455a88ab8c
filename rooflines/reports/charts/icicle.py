"""An icicle: the modules of a network as cells, each below its parent and as wide as its share of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from rooflines.reports.charts.paper import SMALL, WIDTH_IN, Drawing, PaperSheet
from rooflines.reports.words.text import clip, given
from rooflines.roofline.analysis import ModuleRow
from rooflines.units import percent, seconds, si

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Deeper modules are seen after zooming in.
_LEVELS = 7
_ROW, _LEAST = 17.0, 0.7
# The least room for a label, and what stays free beside it, in points.
_LABEL, _PAD = 15.0, 5.0
# Opacity of a module without headroom and of one that is all headroom.
_FAINT, _STRONG = 0.06, 0.55


class Node(NamedTuple):
    """A module with everything below it."""

    #: Its path from its parent; empty for the model.
    name: str
    #: The place of that; -1 without any.
    parent: int
    row: ModuleRow

    @property
    def opacity(self) -> float | None:
        """By the share of headroom in the time; None if it is unknown."""
        if self.row.headroom_s is None or self.row.time_s <= 0:
            return None
        return round(_FAINT + (_STRONG - _FAINT) * min(1.0, self.row.headroom_s / self.row.time_s), 2)


class IcicleCell(NamedTuple):
    """The place of a module: its left end and its width as shares of the figure, and its level."""

    x: float
    width: float
    level: int


class Icicle(Drawing, frozen=True, kw_only=True):
    """The modules by time, each after its parent; ``whole_s`` is the time of the step."""

    nodes: tuple[Node, ...]
    whole_s: float
    widths_in = (WIDTH_IN,)

    def figure(self, sheet: PaperSheet) -> Figure:
        """Cells by time with as many labels as fit; time of a module that is in none of its children stays
        empty."""
        from matplotlib.colors import to_rgba

        width, places = sheet.width, zip(self.nodes, self.cells(), strict=True)
        cells = [
            (node, cell) for node, cell in places if cell.level < _LEVELS and cell.width * width >= _LEAST
        ]
        height = _ROW * (1 + max(cell.level for _, cell in cells))
        figure = sheet.figure(width, height + 2)
        axes = sheet.axes(figure, (1, 1, width - 2, height), sides=())
        axes.set(xlim=(0, 1), ylim=(height, 0), xticks=[], yticks=[])
        opacities, (xs, shares, levels) = (
            [node.opacity for node, _ in cells],
            zip(*(cell for _, cell in cells), strict=True),
        )
        colors = [
            sheet.ink.band if opacity is None else to_rgba(sheet.ink.accent, opacity) for opacity in opacities
        ]
        tops = [level * _ROW for level in levels]
        axes.barh(
            tops, shares, _ROW, xs, align="edge", color=colors, edgecolor=sheet.ink.faint_roof, linewidth=0.4
        )
        for node, (x, share, level) in cells:
            label = node.name or node.row.type
            length, room = sheet.length(label), share * width - _PAD
            if length <= room or room >= _LABEL:
                label = label if length <= room else clip(label, int(len(label) * room / length))
                sheet.write(axes, x + share / 2, (level + 0.5) * _ROW, label, size=SMALL, ha="center")
        return figure

    def page_facts(self) -> dict[str, Any]:
        """Of each module its place, its name, its figures in words, its opacity, and the measures by which it
        can be drawn."""
        nodes = [
            [node.parent, node.name, self._said(node.row), node.opacity]
            + [
                value and float(f"{value:.4g}")
                for value in (node.row.time_s, node.row.flops, node.row.bytes, node.row.headroom_s)
            ]
            for node in self.nodes
        ]
        return {"icicle": {"nodes": nodes, "levels": _LEVELS}}

    def _said(self, row: ModuleRow) -> str:
        lines = (
            row.type,
            f"time {seconds(row.time_s)}, {percent(row.time_s / self.whole_s)} of the step",
            f"work {si(row.flops, 'FLOP')}",
            f"traffic {si(row.bytes, 'B')}",
            f"headroom {given('{}', row.headroom_s, seconds) or 'unknown'}",
            f"efficiency {given('{}', row.efficiency, percent) or 'unknown'}",
        )
        return "\n".join(lines)

    def cells(self) -> list[IcicleCell]:
        """The place of each module."""
        found: list[IcicleCell] = []
        free: dict[int, float] = {}  # the left end of the next module below each
        whole_s = sum(node.row.time_s for node in self.nodes if node.parent < 0)
        for node in self.nodes:
            x, width, level = found[node.parent] if node.parent >= 0 else IcicleCell(0.0, 1.0, -1)
            of_s = self.nodes[node.parent].row.time_s if node.parent >= 0 else whole_s
            cell = IcicleCell(
                free.get(node.parent, x), node.row.time_s / of_s * width if of_s > 0 else 0.0, level + 1
            )
            free[node.parent] = cell.x + cell.width
            found.append(cell)
        return found
