"""The tables that a ``study.toml`` lists: what was measured here beside what the paper printed, by the names
of their lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import msgspec

from rooflines.ext import (
    SERIES_COLORS,
    Cell,
    CellValue,
    Column,
    Numbers,
    Row,
    Show,
    SweepRow,
    Table,
    Words,
    category_color,
    percent,
    si,
    significant,
    value_of,
)

# Values of a row that only the page of a study can compute, by name.
Functions: TypeAlias = Mapping[str, Callable[[SweepRow], CellValue]]
_PAPER = "paper"
_NOT_NAMES = ("quantity", "unit", "where")
_UNITS = {"s": 1.0, "ms": 1e-3, "MB": 1e6}


class TableColumn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A column of a table. Without ``here`` and ``paper`` both are called as ``label`` is."""

    label: str
    unit: str = ""
    format: Words | Numbers = "figures"
    key: str = ""
    #: A value, a fact or an option of a point, or a function of ``page.py``; of several (``A or B``) the
    #: first that is there.
    #: ``PART.NAME`` is that of the point of another part with the same names.
    here: str = ""
    #: The column of the paper's file.
    paper: str = ""
    #: What was measured is multiplied by it.
    factor: float = 1.0
    #: It is divided by what was measured.
    over: float | None = None
    #: What was printed is multiplied by it.
    paper_factor: float = 1.0
    priority: int = 0
    help: str = ""
    note: str = ""
    least: int = 12

    def shown(self) -> Column:
        """The column of the report."""
        return Column(
            self.label, self.unit, self.format, self.key, self.priority, self.help, self.note, self.least
        )


class TableFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of a study, with a line for each different name of the points of ``parts`` and for those of the
    paper."""

    section: str
    name: str
    title: str = ""
    note: str = ""
    parts: tuple[str, ...] = ()
    #: How many of the first columns are the names of a line.
    names: int = 1
    #: A CSV file beside the ``study.toml``; its values have lines of their own behind those of the same first
    #: name.
    paper: str = ""
    #: Whether the values of the paper stand on the line of the same names.
    joined: bool = False
    #: Whether the lines stand side by side; then the file has a column for each name.
    turned: bool = False
    #: Whether lines of ours have the color of their first name in the figures.
    colored: bool = False
    show: Show = "always"
    columns: tuple[TableColumn, ...]


class _Named(NamedTuple):
    """A line before it is drawn: its names, the cells behind them, and whether the paper printed them."""

    names: tuple[str, ...]
    cells: tuple[CellValue | Cell, ...]
    printed: bool = False


@cache
def printed(file: Path) -> tuple[Mapping[str, Any], ...]:
    """Return the rows of a CSV file with a paper's numbers: numbers, text, and None for a cell that is empty
    or no number."""
    import csv

    with file.open(newline="", encoding="utf-8") as stream:
        return tuple({name: _cell(cell) for name, cell in row.items()} for row in csv.DictReader(stream))


def _cell(text: str) -> float | str | None:
    try:
        return float(text) if text not in ("", "nan") else None
    except ValueError:
        return text


def by_name(file: Path) -> dict[str, dict[str, float]]:
    """Return a file with a row for each quantity and a column for each name as values by name and by
    quantity, in seconds and bytes."""
    rows = printed(file)
    names = [name for name in rows[0] if name not in _NOT_NAMES]
    return {name: {row["quantity"]: row[name] * _UNITS[row["unit"]] for row in rows} for name in names}


def look(row: SweepRow, name: str, functions: Functions) -> CellValue:
    """Return what a row has under ``name``; None where it has nothing."""
    if name in functions:
        return functions[name](row)
    if name in ("part", "reason"):
        return row.point.part if name == "part" else row.reason
    value = row.value(name)
    return value if value is not None else row.facts.get(name) or row.point.options.get(name)


def make_table(
    file: TableFile, rows: Sequence[SweepRow], folder: Path, functions: Functions, more: str = ""
) -> Table | None:
    """Return the table of ``file`` with the ``rows`` of a study, and ``more`` behind its note; None without a
    line."""
    lines = list(_lines(file, rows, folder, functions))
    if not lines:
        return None
    first = list(dict.fromkeys(line.names[0] for line in lines))
    lines.sort(key=lambda line: first.index(line.names[0]))
    if file.turned:
        columns, drawn = _turned(file, lines)
    else:
        columns = tuple(one.shown() for one in file.columns)
        # that of a backend, else one for each first name
        colors = {
            name: name
            if category_color(name) != category_color("other")
            else SERIES_COLORS[place % len(SERIES_COLORS)]
            for place, name in enumerate(first)
            if file.colored
        }
        drawn = tuple(
            Row(
                (*line.names, *line.cells),
                muted=line.printed,
                color="" if line.printed else colors.get(line.names[0], ""),
            )
            for line in lines
        )
    note = " ".join(filter(None, (file.note, more)))
    return Table(name=file.name, title=file.title, columns=columns, rows=drawn, note=note, show=file.show)


def _lines(file: TableFile, rows: Sequence[SweepRow], folder: Path, functions: Functions) -> Iterator[_Named]:
    names, values = file.columns[: file.names], file.columns[file.names :]
    found: dict[tuple[str, ...], dict[str, SweepRow]] = {}
    for row in rows:
        key = tuple(value_text(look(row, one.here or one.label, functions)) for one in names)
        found.setdefault(key, {}).setdefault(row.point.part, row)
    theirs = dict(_printed_lines(file, folder))
    for key, parts in found.items():
        if any(part in parts for part in file.parts):
            paper = theirs.pop(key, {}) if file.joined else {}
            cells = tuple(_measured(one, file, parts, functions, paper) for one in values)
            if any(cell is not None for cell in cells):
                yield _Named(key, cells)
    for key, paper in theirs.items():
        yield _Named(
            key,
            tuple(_as_printed(paper.get(one.paper or one.label), one) for one in values),
            printed=not file.joined,
        )


def _printed_lines(file: TableFile, folder: Path) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
    """The names and values of the paper's lines; the names differ from ours unless the table is joined."""
    if not file.paper:
        return
    if file.turned:
        for name, values in by_name(folder / file.paper).items():
            yield (name, *(_PAPER,) * (file.names - 1)), values
        return
    for row in printed(folder / file.paper):
        if all(row.get(one.paper or one.label) is None for one in file.columns[file.names :]):
            continue
        names = [value_text(row.get(one.paper or one.label)) for one in file.columns[: file.names]]
        if not file.joined and names[-1]:
            names[-1] += f" ({_PAPER})"
        elif not file.joined:
            names[names.index("")] = _PAPER
        yield tuple(names), row


def _measured(
    column: TableColumn,
    file: TableFile,
    parts: Mapping[str, SweepRow],
    functions: Functions,
    paper: Mapping[str, Any],
) -> CellValue | Cell:
    """The cell of a line of ours; in a joined table a column may be the paper's."""
    if column.paper and not column.here:
        return _as_printed(paper.get(column.paper), column)
    for name in (column.here or column.label).split(" or "):
        part, _, value_name = name.rpartition(".")
        for row in (parts[one] for one in ((part,) if part else file.parts) if one in parts):
            value = look(row, value_name, functions)
            if value is not None:
                if column.over is not None and isinstance(value, int | float):
                    value = column.over / value if value else None
                return _shown(value, column, column.factor)
    return None


def _shown(value: Any, column: TableColumn, factor: float) -> CellValue:
    """A value in the unit of its column; words stay words."""
    if isinstance(value, str) or value is None:
        return value or None
    return float(factor * value) if column.shown().numeric else value_text(value)


def _as_printed(value: Any, column: TableColumn) -> CellValue | Cell:
    """A value of the paper, with all its digits where its unit is that of the column."""
    found = _shown(value, column, column.paper_factor)
    whole = column.format == "figures" and column.paper_factor == 1.0 and isinstance(found, float)
    return Cell(value=found, text=f"{found:g}") if whole else found


def value_text(value: Any) -> str:
    """A value of a paper as it was printed; empty where it has none."""
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _turned(file: TableFile, lines: Sequence[_Named]) -> tuple[tuple[Column, ...], tuple[Row, ...]]:
    """The lines as columns, the columns behind the names as rows; each cell has its unit."""
    several = len({line.names[1:] for line in lines if not line.printed}) > 1
    heads = [
        Column(
            line.names[0] + f" ({', '.join(line.names[1:])})" * (several and not line.printed),
            _PAPER if line.printed else "here",
        )
        for line in lines
    ]
    rows = tuple(
        Row((one.label, *(_in_words(value_of(line.cells[index]), one) for line in lines)))
        for index, one in enumerate(file.columns[file.names :])
    )
    return (Column("", format="text"), *heads), rows


def _in_words(value: CellValue, column: TableColumn) -> CellValue:
    if not isinstance(value, int | float):
        return value
    if column.format in ("scaled", "share"):
        return si(value, column.unit) if column.format == "scaled" else percent(value, 1)
    return f"{significant(value)} {column.unit}".strip()
