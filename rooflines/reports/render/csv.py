"""The tables of a page as CSV files, one each, in the columns and units of the other formats."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rooflines.reports.document import CellValue, Page, Row, Table, factor_of, texts, value_of
from rooflines.reports.words.text import csv_text


def write(page: Page, path: Path) -> Path:
    """Write every table of ``page`` as NAME.csv next to ``path``; returns the first of them, or ``path``,
    empty, without any."""
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

    def cells(row: Row) -> Iterator[CellValue]:
        for column, place in zip(found.columns, found.places, strict=True):
            value = value_of(row.cells[place])
            yield value / factor_of(table, column) if isinstance(value, int | float) else value

    return csv_text(found.titles(), (cells(row) for row in table.of_form(full=True) if not row.heading))
