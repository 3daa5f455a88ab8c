"""Tables of a page that sort, search and unfold: the rows in the page's HTML, and all others as data from
which its script makes them.

A page of 20,000 rows thereby opens as fast as one of fifty.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator
from typing import Any

from msgspec import structs

from rooflines.reports.charts.palette import COLORED
from rooflines.reports.document import Column, Paragraph, Plain, Row, Table, texts
from rooflines.reports.render.layout import CUTS

_SHOWN_AT_FIRST = 20
_MODULES_OPEN = 40
# How wide the words of a long table are on a page; the pointer shows them in full.
_WIDTHS = {"name": 28, "path": 26, "shapes": 16}
# The least priority of the columns that paper has no room for, of words and of numbers.
_NOT_PRINTED = {True: 8, False: 3}


def packed(value: Any) -> str:
    """``value`` as JSON, deflated and in base64, which can stand in any element. Raises ValueError for a
    number that JSON lacks."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def slug(color: str) -> str:
    """The color as the style sheet knows it."""
    return color if color in COLORED else "other"


def drawn(table: Table) -> Plain:
    """``table`` as the template lays it out: the rows in its HTML, and under ``data`` what its script makes
    the others of."""
    found = texts(table, aligned=True)
    columns = [
        structs.replace(column, unit=unit, key=column.name)
        for column, unit in zip(found.columns, found.units, strict=True)
    ]
    rows = list(_rows(table, columns, found.places, found.rows))
    classes = [
        f"{'' if column.numeric else 'w'} {'quiet' if column.quiet else ''}".strip() for column in columns
    ]
    data = (
        packed({"columns": classes, "rows": [_as_data(row) for row in rows]})
        if table.kind in ("main", "tree")
        else ""
    )
    return {
        "title": table.title,
        "caption": table.caption or table.title,
        "sortable": table.kind == "main",
        "sorted_by": table.sorted_by,
        "columns": columns,
        "rows": [row for row in rows if not row["is_hidden"]],
        "size": len(rows),
        "data": data,
        "total": found.total,
        "note": table.note_with(columns),
        "not_printed": [
            place
            for place, column in enumerate(columns, 1)
            if column.priority >= _NOT_PRINTED[column.numeric]
        ],
    }


def _rows(
    table: Table, columns: list[Column], places: tuple[int, ...], lines: tuple[tuple[str, ...], ...]
) -> Iterator[Plain]:
    words = next((index for index, column in enumerate(columns) if not column.numeric), 0)
    shown = table.of_form(full=True)
    depths = [*(row.depth for row in shown), 0]
    levels = (
        level
        for level in range(1, max(depths) + 1)
        if sum(depth <= level for depth in depths[:-1]) <= _MODULES_OPEN
    )
    open_to = max(levels, default=1)
    for number, (row, line) in enumerate(zip(shown, lines, strict=True)):
        parent = depths[number + 1] > row.depth
        detail = row.detail if table.kind == "main" else ()
        following = number + 1 < len(shown) and shown[number + 1].muted
        cells = () if row.heading else zip(places, columns, line, strict=True)
        yield {
            "cells": [
                _cell(table, row, place, column, text, is_name=at == words)
                for at, (place, column, text) in enumerate(cells)
            ],
            "classes": "muted" if row.muted else "here" if following else "",
            "points": " ".join(f"point:{point}" for point in row.points),
            "heading": line[0] if row.heading else "",
            "detail": detail,
            "remarks": [] if detail else [part.text for part in row.remarks],
            "depth": row.depth,
            "parent": parent,
            "open": parent and row.depth < open_to,
            "is_hidden": number >= _SHOWN_AT_FIRST
            if table.kind == "main"
            else table.kind == "tree" and row.depth > open_to,
        }


def _cell(table: Table, row: Row, place: int, column: Column, text: str, *, is_name: bool) -> Plain:
    cell = row.cell(place)
    inset = not column.numeric and text.startswith(" ")
    sort = cell.value if cell.sort is None else cell.sort
    sort = f"{sort:.5g}" if isinstance(sort, int | float) else sort
    shown = CUTS[column.format](text, _WIDTHS[column.format]) if column.format in _WIDTHS else text
    hover = "" if cell.hover == shown else cell.hover or (text if shown != text else "")
    bar = f"{(cell.bar or 0.0) * 100:.1f}".removesuffix(".0")
    classes = (("w", not column.numeric), ("bar", bar != "0"), ("inset", inset), ("quiet", column.quiet))
    return {
        "text": shown,
        "classes": " ".join(name for name, on in classes if on),
        # The script sorts by what the pointer or the cell shows where nothing else is said.
        "sort": None if sort == (hover or shown) else sort or "",
        "hover": hover,
        "link": cell.link,
        "bar": "" if bar == "0" else bar,
        "color": slug(row.color) if is_name and row.color and not row.muted and not inset else "",
        "letter": cell.letter,
        "warning": cell.warning,
        "opens": bool(is_name and table.kind == "main" and row.detail),
        "branch": is_name and table.kind == "tree",
    }


# --- what the script knows --------------------------------------------------------------------------------

_CELL = ("text", "sort", "hover", "bar", "letter", "warning", "color")


def _as_data(row: Plain) -> Plain:
    """A row for the script: its ``cells`` if they are not in the HTML, its place in a tree, and what opens
    below it."""
    made = {name: row[name] for name in ("depth", "parent", "open")} | {
        "detail": [_part(part) for part in row["detail"]]
    }
    if row["is_hidden"]:
        cells = [_short([cell[name] for name in _CELL]) for cell in row["cells"]]
        made |= {"cells": cells, "points": row["points"], "classes": row["classes"]}
    return {name: value for name, value in made.items() if value}


def _part(part: Paragraph | Table) -> Any:
    """A paragraph, or a small table, that opens below a row."""
    if isinstance(part, Paragraph):
        return part.text
    found = texts(part, aligned=True)
    return {
        "caption": part.title or part.caption,
        "heads": [
            [column.label, unit, "" if column.numeric else "w"]
            for column, unit in zip(found.columns, found.units, strict=True)
        ],
        "rows": [
            [_short([text, row.cell(place).hover]) for text, place in zip(line, found.places, strict=True)]
            for row, line in zip(part.of_form(full=True), found.rows, strict=True)
        ],
    }


def _short(values: list[Any]) -> list[Any]:
    """``values`` without those at the end that say nothing."""
    while len(values) > 1 and values[-1] in ("", None):
        values.pop()
    return values
