"""A page in print, set by Typst with its figures as vectors: at most 50 pages, and the rows that they lack in
an appendix.

The template holds the layout, this module gives it the blocks in words. Everything goes there as one JSON
text and is set as it is, so an operator's name cannot become markup. Only faces that Typst brings along are
used: the document is the same on every machine.
"""

from __future__ import annotations

import json
import re
from datetime import datetime
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from rooflines.reports.charts.palette import INK, bound_style, category_color, contrast
from rooflines.reports.charts.paper import SERIF, as_svg, draw
from rooflines.reports.document import (
    Bar,
    Block,
    Facts,
    Figure,
    Findings,
    Page,
    Paragraph,
    Part,
    Plain,
    Row,
    Table,
    section,
)
from rooflines.reports.render.layout import Fitted, fitted
from rooflines.reports.words.text import NUMBER_AND_UNIT, joined
from rooflines.units import percent

_VERBATIM = {"code", "steps", "svg"}
_FACE = "Libertinus Serif"
_INK = INK["light"]
_FIGURE_IN = 6.85
# What a line of a table holds, in characters of the mean width.
_CHARACTERS = 118
_MOST_PAGES = 50
# Rows of a table: those that it asks for, and fewer in a document that would have more pages.
_MOST_ROWS = (None, 100, 20)
_FILLS = {"bound": _INK.accent, "headroom": _INK.grid, "rest": _INK.page, "doubt": _INK.warning}


def write(page: Page, path: Path) -> Path:
    """Write ``page`` to ``path`` and return it. The same page gives the same file.

    Where tables have more rows than print has room for, the whole tables are in NAME-appendix.pdf next to it.
    """
    appendix = path.with_name(f"{path.stem}-appendix.pdf")
    for most in _MOST_ROWS:
        document = _set(content(page, appendix.name, most))
        if len(re.findall(rb"/Type */Page\b", document)) <= _MOST_PAGES:
            break
    path.write_bytes(document)
    appendix.unlink(missing_ok=True)
    cut = tuple(
        section(
            part.name,
            part.title,
            replace(one, printed=None, rows=tuple(replace(row, printed=True) for row in one.rows)),
        )
        for part in page.sections
        for one in part.blocks
        if isinstance(one, Table) and len(one.on_paper()[:most]) < len(one.of_form(full=True))
    )
    if cut:
        appendix.write_bytes(
            _set(content(replace(page, name=f"{page.name}: appendix", said=(), sections=cut)))
        )
    return path


def _set(content: Plain) -> bytes:
    """The document."""
    import typst

    # A path and not the text: the oldest Typst that we accept takes only paths.
    with resources.as_file(
        resources.files("rooflines.reports.render") / "templates" / "page.typ"
    ) as template:
        text = json.dumps(_kept_together(content), ensure_ascii=False)
        return bytes(
            typst.compile(str(template), format="pdf", sys_inputs={"page": text}, ignore_system_fonts=True)
        )


def content(page: Page, appendix: str = "", most: int | None = None) -> Plain:
    """What the template shows, in words and formatted numbers, with ``most`` rows of a table; ``appendix`` is
    the file with all."""
    return {
        "ink": msgspec.to_builtins(_INK),
        "title": page.name,
        "date": _date(page.created),
        "subject": page.title,
        "made": page.made,
        "status": page.status[1] if page.status else None,
        "status_ink": page.status_ink,
        "verdict": page.verdict,
        "label": page.label,
        "said": page.said,
        "sections": [
            {"title": part.title, "blocks": blocks}
            for part in page.sections
            if (blocks := [_block(block, appendix, most) for block in part.of_full_form()])
        ],
    }


def _kept_together(value: Any, key: str = "") -> Any:
    """Every sentence with no-break spaces between numbers and units; what is copied from the page or drawn
    stays as it is."""
    if isinstance(value, dict):
        return {name: _kept_together(item, name) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_kept_together(item, key) for item in value]
    return NUMBER_AND_UNIT.sub("\u00a0", value) if isinstance(value, str) and key not in _VERBATIM else value


def _date(created: str) -> list[int] | None:
    """Year, month and day of the run, which is the document's date as well: the day it was set would change
    the file."""
    try:
        day = datetime.fromisoformat(created)
    except ValueError:
        return None
    return [day.year, day.month, day.day]


def _block(block: Block, appendix: str, most: int | None) -> Plain:
    match block:
        case Paragraph(kind="code"):
            return {"kind": "code", "code": block.text}
        case Paragraph():
            return {"kind": block.kind, "text": block.text}
        case Facts():
            return {"kind": block.kind, "rows": [(name, "  ".join(texts)) for name, *texts in block.rows]}
        case Findings():
            return {"kind": "findings", "items": msgspec.to_builtins(block.items)}
        case Bar():
            return _bar(block)
        case Figure():
            svg = as_svg(draw(block.drawing, width_in=_FIGURE_IN, family=SERIF), _FACE)
            return {"kind": "figure", "svg": svg, "caption": block.caption, "note": block.note}
        case Table():
            return _table(block, appendix, most)


def _bar(block: Bar) -> Plain:
    single = len(block.rows) == 1
    return {
        "kind": "bar",
        "title": joined(", ", block.title, block.caption) if block.title or not single else "",
        "rows": [
            {"label": row.label, "text": row.text, "parts": [_part(part) for part in row.parts]}
            for row in block.rows
        ],
        "key": [_part(part, in_full=single) for part in block.key() if part.pattern != "rest"],
    }


def _part(part: Part, *, in_full: bool = True) -> Plain:
    fill = _FILLS.get(part.pattern) or bound_style(part.pattern).light
    on = max(("#ffffff", _INK.text), key=lambda color: contrast(color, fill))
    text = f"{part.name} {percent(part.share)} ({part.text})" if in_full else part.name
    text = f"{part.letter} · {text}" if part.letter else text
    return {
        "share": part.share,
        "letter": part.letter,
        "pattern": "solid" if part.pattern in _FILLS else bound_style(part.pattern).pattern,
        "fill": fill,
        "on": on,
        "text": text,
    }


def _table(table: Table, appendix: str, most: int | None) -> Plain:
    rows = table.on_paper()[:most]
    columns = fitted(table, _CHARACTERS, rows, full=True)
    # Sentences and names that have no room are wrapped; paths and shapes are cut, as everywhere.
    wrapped = [
        one
        for one in columns
        if one.column.format in ("text", "middle") and any(len(cell) > one.width for cell in one.cells)
    ]
    count = len(table.of_form(full=True))
    some = (
        f"{len(rows)} of {count} rows{f' ({appendix} has all)' if appendix else ''}"
        if len(rows) < count
        else ""
    )
    caption = joined(", ", some, table.order)
    return {
        "kind": "table",
        "title": table.title,
        "caption": f"{caption[:1].upper()}{caption[1:]}." if caption else "",
        "note": table.note_with(one.column for one in columns),
        "columns": [
            {
                "label": one.column.label,
                "unit": one.unit,
                "numeric": one.column.numeric,
                "wraps": one.width if one in wrapped else None,
                "bar": any(row.cell(one.place).bar is not None for row in rows),
                "quiet": one.column.quiet,
            }
            for one in columns
        ],
        "rows": [_row(row, number, columns, wrapped) for number, row in enumerate(rows)],
        "total": [one.total if one in wrapped else one.cut(one.total) for one in columns]
        if table.total
        else [],
    }


def _row(row: Row, number: int, columns: list[Fitted], wrapped: list[Fitted]) -> Plain:
    if row.heading:
        return {"heading": columns[0].cells[number], "cells": [], "remarks": []}
    words = next((one for one in columns if not one.column.numeric), None)
    cells = []
    for one in columns:
        cell = row.cell(one.place)
        text = one.cells[number] if one in wrapped else one.cut(one.cells[number])
        cells.append(
            {
                "text": text.strip(),
                "bar": cell.bar,
                "warned": bool(cell.warning),
                "color": category_color(row.color) if row.color and one is words and not row.muted else None,
                "depth": min(row.depth, 6) if one is words else 0,
            }
        )
    remarks = [part.text for part in row.remarks if part.show != "full"]
    return {"heading": None, "muted": row.muted, "cells": cells, "remarks": remarks}
