"""A table in a width of characters: which columns have room, how wide each is, and how its words are cut."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from rooflines.reports.document import ABSENT, Column, Row, Table, texts
from rooflines.reports.words.text import clip, shorten_middle, shorten_name, shorten_path, shorten_shapes

GAP = 2
_CUTTING = 4
CUTS: dict[str, Callable[[str, int], str]] = {
    "text": clip,
    "name": shorten_name,
    "path": shorten_path,
    "shapes": shorten_shapes,
    "middle": shorten_middle,
    # The nearest roof of an operator goes before its class is cut.
    "class": lambda text, width: text if len(text) <= width else text.partition(" (")[0],
}


class Fitted(NamedTuple):
    """A column as it is set: its texts, their width in characters, and its place in the table."""

    column: Column
    place: int
    unit: str
    cells: tuple[str, ...]
    total: str
    width: int

    def padded(self, text: str) -> str:
        """``text`` cut to the width and aligned in it."""
        if self.column.numeric:
            return text.rjust(self.width)
        return self.cut(text).ljust(self.width)

    def cut(self, text: str) -> str:
        """``text`` in the width of the column, shortened as its format asks for."""
        return text if self.column.numeric else CUTS[self.column.format](text, self.width)

    @property
    def least(self) -> int:
        """The width below which it does not go."""
        return self.width if self.column.numeric else min(self.width, self.column.least)


def fitted(table: Table, width: int, rows: Sequence[Row], *, full: bool = False) -> list[Fitted]:
    """The columns of ``table`` that have room in ``width`` characters, in their order, for ``rows``.

    The ones of low priority go first, and those in which no row has anything; then the widest words give way.
    """
    found = texts(table, full=full, rows=rows)
    columns = []
    for index, (column, unit) in enumerate(zip(found.columns, found.units, strict=True)):
        first = not column.numeric and all(one.numeric for one in found.columns[:index])
        cells = tuple(
            ("  " * row.depth if first else "") + line[index]
            for row, line in zip(rows, found.rows, strict=True)
        )
        total = found.total[index] if found.total else ""
        counted = [cell for cell, row in zip(cells, rows, strict=True) if not row.heading]
        can_go = column.priority or column.format in ("own", "scaled", "figures", "efficiency")
        if can_go and not any(cell.strip(f"{ABSENT} ") for cell in counted):
            continue
        wide = max(len(text) for text in (column.label, unit, total, *counted))
        columns.append(Fitted(column, found.places[index], unit, cells, total, wide))
    kept: list[Fitted] = []
    for one in sorted(columns, key=lambda one: one.column.priority):
        # The least important columns are no reason to cut a class.
        whole = one.column.priority > _CUTTING
        needed = one.least + sum(
            other.width if whole and other.column.format == "class" else other.least for other in kept
        )
        if one.column.priority and needed + GAP * len(kept) > width:
            break
        kept.append(one)
    kept.sort(key=lambda one: one.place)
    while sum(one.width for one in kept) + GAP * (len(kept) - 1) > width:
        spare = [one.width - one.least for one in kept]
        if not kept or max(spare) <= 0:
            break
        at = spare.index(max(spare))
        kept[at] = kept[at]._replace(width=kept[at].width - 1)
    return kept
