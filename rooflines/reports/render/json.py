"""A page as data: the same sections, tables, columns and units as in any other format, with numbers as
numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from rooflines.reports.document import (
    Block,
    Figure,
    Page,
    Paragraph,
    Plain,
    Row,
    Table,
    factor_of,
    texts,
    value_of,
)
from rooflines.serial import to_json, write_text

SCHEMA = "rooflines.page/1"


def write(page: Page, path: Path) -> Path:
    """Write ``page`` to ``path`` and return it."""
    write_text(path, render(page))
    return path


def render(page: Page) -> str:
    """The page as text."""
    sections = [
        {"name": one.name, "title": one.title, "blocks": [plain(block) for block in one.of_full_form()]}
        for one in page.sections
    ]
    facts = {
        name: getattr(page, name)
        for name in ("kind", "name", "title", "created", "rooflines", "verdict", "label", "said")
    }
    return to_json(
        {"schema": SCHEMA, **facts, "status": page.status and page.status[0], "sections": sections}
    )


def plain(block: Block) -> Plain:
    """A block as containers. A value times its column's ``factor`` is the figure in the unit without a
    prefix."""
    match block:
        case Table():
            return _table(block)
        case Figure():
            # The operators of a roofline are in the table of operators, the ceilings of a chart in that of
            # ceilings.
            drawn = msgspec.to_builtins(block.drawing) if block.drawing.is_data else None
            return {
                "block": "figure",
                "name": block.name,
                "caption": block.caption,
                "note": block.note,
                "data": drawn,
            }
    found: Plain = msgspec.to_builtins(block)
    return {
        "block": type(block).__name__.lower(),
        **{name: value for name, value in found.items() if name not in ("show", "first")},
    }


def _table(table: Table) -> Plain:
    found = texts(table)
    factors = [factor_of(table, column) for column in found.columns]
    columns = [
        {"key": column.name, "label": column.label, "unit": unit, "format": column.format, "factor": factor}
        for column, unit, factor in zip(found.columns, found.units, factors, strict=True)
    ]

    def cells(row: Row) -> list[Any]:
        values = [value_of(row.cells[place]) if place < len(row.cells) else None for place in found.places]
        return [
            value / factor if isinstance(value, int | float) and factor != 1 else value
            for value, factor in zip(values, factors, strict=True)
        ]

    rows = table.of_form(full=True)
    remarks = {
        str(number): [part.text if isinstance(part, Paragraph) else _table(part) for part in row.detail]
        for number, row in enumerate(rows)
        if row.detail
    }
    return {
        "block": "table",
        "name": table.name,
        "title": table.title or table.caption,
        "order": table.order,
        "columns": columns,
        "rows": [cells(row) for row in rows],
        "total": cells(Row(table.total)) if table.total else None,
        "details": remarks or None,
        "note": table.note_with(table.columns),
    }
