"""The tables of a page as CSV files, one each, in the columns and units of the other formats."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from rooflines.reports.document import Page, Table, factor_of, texts, value_of
from rooflines.reports.words.text import inert


def write(page: Page, path: Path) -> Path:
    """Write every table of ``page`` as NAME.csv beside ``path``; returns the first of them, or ``path``, empty, without any."""
    path.parent.mkdir(parents=True, exist_ok=True)
    written = []
    for table in page.tables():
        if table.show != "brief":
            written.append(path.with_name(f"{table.name}.csv"))
            written[-1].write_text(render(table), encoding="utf-8", newline="")
    if not written:
        path.write_text("", encoding="utf-8")
    return written[0] if written else path


def render(table: Table) -> str:
    """A table as text: numbers in the unit that its header names, absent ones empty."""
    found = texts(table)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    writer.writerow(
        [" ".join(text for text in (column.label, unit) if text) for column, unit in zip(found.columns, found.units, strict=True)]
    )
    for row in table.of_form(full=True):
        if row.heading:
            continue
        cells: list[object] = []
        for column, place in zip(found.columns, found.places, strict=True):
            value = value_of(row.cells[place])
            number = isinstance(value, int | float)
            cells.append(value / factor_of(table, column) if number else "" if value is None else inert(str(value)))  # type: ignore[operator]
        writer.writerow(cells)
    return out.getvalue()
