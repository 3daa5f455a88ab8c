"""A page as one HTML file that opens without a network, as interactive as its blocks allow.

``templates/`` decides how it looks. Everything that came from a trace is escaped: as HTML by Jinja, as XML in a figure, and as JSON
inside the page.
"""

from __future__ import annotations

import json
from functools import partial
from os.path import relpath
from pathlib import Path
from typing import Any
from urllib.parse import quote

from msgspec import structs

from rooflines.reports.charts.lanes import Lanes
from rooflines.reports.charts.palette import BOUNDS, COLORED, INK, THEMES, category_colour
from rooflines.reports.charts.roofline import Chart
from rooflines.reports.charts.timeline import Timeline
from rooflines.reports.document import Cell, Column, Figure, Page, Paragraph, Row, Table, texts, value_of
from rooflines.reports.render.figures import page_svg
from rooflines.reports.render.layout import CUTS
from rooflines.units import percent

SHOWN_AT_FIRST = 50
_MODULES_OPEN = 40
_HERE = Path(__file__).parent
# How wide the words of a long table are on a page; the pointer shows them in full.
_WIDTHS = {"name": 28, "path": 26, "shapes": 24}


def write(page: Page, path: Path) -> Path:
    """Write ``page`` to ``path`` and return it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(render(page, path.parent), encoding="utf-8")
    return path


def render(page: Page, directory: Path = Path()) -> str:
    """The page as text, with links as from ``directory``."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    colors = {name: {theme: category_colour(name, theme) for theme in THEMES} for name in sorted(COLORED)}
    return environment.get_template("page.html.j2").render(
        page=page,
        sections=[section for section in page.sections if any(block.show != "brief" for block in section.blocks)],
        drawn=_drawn,
        picture_of=partial(_picture, page),
        link=lambda file: quote(Path(relpath(file, directory)).as_posix()) if Path(file).is_file() else "",
        percent=percent,
        shown_at_first=SHOWN_AT_FIRST,
        ink=INK,
        bounds=BOUNDS,
        categories=colors,
    )


def embedded_json(value: Any) -> str:
    """JSON that may stand inside a script element: no character of it can end the element or open a comment."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _slug(color: str) -> str:
    """The color as the style sheet knows it."""
    return color if color in COLORED else "other"


# --- tables ------------------------------------------------------------------------------------------------------------------------


def _drawn(table: Table) -> dict[str, Any]:
    """A table as the template lays it out."""
    found = texts(table, aligned=True)
    columns = [structs.replace(column, unit=unit, key=column.name) for column, unit in zip(found.columns, found.units, strict=True)]
    words = next((index for index, column in enumerate(columns) if not column.numeric), 0)
    shown = table.of_form(full=True)
    depths = [*(row.depth for row in shown), 0]
    levels = (level for level in range(1, max(depths) + 1) if sum(depth <= level for depth in depths[:-1]) <= _MODULES_OPEN)
    open_to = max(levels, default=1)
    rows = []
    for number, (row, line) in enumerate(zip(shown, found.rows, strict=True)):
        has_children = depths[number + 1] > row.depth
        detail = row.detail if table.kind == "main" else ()
        following = number + 1 < len(shown) and shown[number + 1].muted
        cells = () if row.heading else zip(found.places, columns, line, strict=True)
        rows.append(
            {
                "cells": [
                    _cell(table, row, place, column, text, is_name=at == words) for at, (place, column, text) in enumerate(cells)
                ],
                "classes": "muted" if row.muted else "here" if following else "",
                "points": " ".join(f"point:{point}" for point in row.points),
                "heading": line[0] if row.heading else "",
                "detail": detail,
                "remarks": [] if detail else [part.text for part in row.detail if isinstance(part, Paragraph)],
                "depth": row.depth,
                "has_children": has_children,
                "is_open": has_children and row.depth < open_to,
                "is_hidden": row.depth > open_to,
            }
        )
    return {
        "title": table.title, "caption": table.caption or table.title, "sortable": table.kind == "main", "sorted_by": table.sorted_by,
        "columns": columns, "rows": rows, "total": found.total, "note": table.note_with(columns),
    }  # fmt: skip


def _cell(table: Table, row: Row, place: int, column: Column, text: str, *, is_name: bool) -> dict[str, Any]:
    given = row.cells[place] if place < len(row.cells) else ""
    cell = given if isinstance(given, Cell) else Cell(value=given)
    inset = not column.numeric and text.startswith(" ")
    sort = cell.sort if cell.sort is not None else value_of(given)
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
        "bar": "" if bar == "0" else bar,
        "color": _slug(row.color) if is_name and row.color and not row.muted and not inset else "",
        "letter": cell.letter,
        "warning": cell.warning,
        "opens": bool(is_name and table.kind == "main" and row.detail),
        "branch": is_name and table.kind == "tree",
    }


# --- figures -----------------------------------------------------------------------------------------------------------------------


def _picture(page: Page, figure: Figure) -> dict[str, Any]:
    """A figure as the template lays it out: for windows of any size, or for wide and for narrow ones, with what its script knows."""
    drawing, number = figure.drawing, page.figures().index(figure)
    sizes = ("wide", "narrow") if len(drawing.widths_in) > 1 else ("any",)
    svgs = [
        (size, page_svg(drawing, width, f"{figure.name[0]}{number}{size[0]}"))
        for size, width in zip(sizes, drawing.widths_in, strict=True)
    ]
    facts, lines = drawing.page_facts(), dict[str, int]()
    # Many marks share a line, so each line is written once.
    texts = {
        key: [lines.setdefault(line, len(lines)) for line in (mark.text[0], *(f"{name}: {said}" for name, said in mark.text[1]))]
        for key, mark in drawing.page_marks().items()
        if mark.text
    }
    return {
        "svgs": svgs,
        "facts": embedded_json({**facts, "said": [*lines], "texts": texts}) if facts or texts else "",
        "zooms": "x" in facts,
        "categories": [(name, _slug(name)) for name, *_ in drawing.legend] if isinstance(drawing, Chart | Lanes) else [],
        "roofs": drawing.roof_groups() if isinstance(drawing, Chart) else [],
        "ranks": [point.label for point in drawing.labeled] if isinstance(drawing, Chart) else [],
        "devices": drawing.devices if isinstance(drawing, Timeline) and len(drawing.devices) > 1 else [],
        "focus": drawing.focus if isinstance(drawing, Timeline) else "",
    }
