"""A report as data: a page of sections of blocks, with every word and number in its place and nothing about
how it is drawn.

A view turns one record into a ``Page``; every renderer draws any ``Page``. A column states its key, label,
unit, format and priority once, here, so that a table has the same columns in a terminal, on a page, in print
and as data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, TypeAlias, get_args

import msgspec

from rooflines.device_specs.records import DISTURBED
from rooflines.errors import UsageError
from rooflines.reports.charts.palette import BOUNDS, bound_style
from rooflines.reports.words.text import count_text, decimals_of, efficiency_text, fixed, given, joined
from rooflines.units import quantity, scale, seconds, significant

if TYPE_CHECKING:
    from rooflines.reports.charts.paper import Drawing

CellValue: TypeAlias = str | float | int | None
# "always" is also in the short form, which a terminal shows; "full" is not; "brief" stands there only, for
# what is shortened.
Show = Literal["always", "full", "brief"]
Kind = Literal["text", "note", "absent", "alert", "code", "title"]
# Words: how they are cut where there is no room. Numbers: how they are written.
#   given      a number in words already, with its own unit ("12.3 GB/s")
#   own        a quantity, each with a prefix of its own, as where devices lie far apart
#   scaled     an SI quantity; the columns of one unit and group share one prefix
#   figures    three significant figures
#   count      a whole number, or three significant figures of one that is not
#   share      a fraction, in percent with one decimal
#   efficiency a fraction in whole percent; above one it is marked, because it cannot be
Words = Literal["text", "name", "path", "shapes", "middle", "class"]
Numbers = Literal["given", "own", "scaled", "figures", "count", "share", "efficiency"]

# What a format that is not text lays out: names with strings, numbers, lists and such again.
Plain: TypeAlias = dict[str, Any]

ABSENT = "–"
_MOST_DECIMALS = 3
# What is left of a difference of equal times.
_ROUNDING = 1e-12
# A figure space and a punctuation space are as wide as a digit and a point: they keep a column on its decimal
# point.
_FIGURE_SPACE, _POINT_SPACE = "\u2007", "\u2008"


class Column(msgspec.Struct, frozen=True):
    """A column of a table."""

    label: str
    unit: str = ""
    format: Words | Numbers = "given"
    #: Names it in data; without one the name is made of the label.
    key: str = ""
    #: Which columns give way where there is no room: those of 0 are always there, the highest go first.
    priority: int = 0
    #: What the header says longer.
    help: str = ""
    #: What stands below a table that shows the column.
    note: str = ""
    #: The width in characters that words keep.
    least: int = 12
    #: Whether it stands back.
    quiet: bool = False
    #: Scaled columns of one unit and group share a prefix.
    group: str = ""
    show: Show = "always"

    @property
    def numeric(self) -> bool:
        """Whether it holds numbers, right-aligned."""
        return self.format in get_args(Numbers)

    @property
    def name(self) -> str:
        """The key under which data has it."""
        return self.key or "_".join(
            f"{self.label} {self.unit if self.format == 'given' else ''}".lower().split()
        )


# Columns that several tables have.
SHARE, TIME = Column("share", "%", "share"), Column("time", "s", "scaled")
PART, CALLS = Column("part", format="text"), Column("calls", format="count")


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """A cell that is more than its value."""

    value: CellValue = None
    #: Replaces what the format of the column would make of the value.
    text: str = ""
    #: Stands before the text.
    prefix: str = ""
    #: Says more.
    hover: str = ""
    #: What its text opens.
    link: str = ""
    #: A length from 0 to 1 behind the text.
    bar: float | None = None
    #: That of a bound class.
    letter: str = ""
    #: Why the value should not be believed.
    warning: str = ""
    #: What it is sorted by, if not by its value.
    sort: CellValue = None


# What a row or a total holds, a value or more for each column.
Cells: TypeAlias = tuple[CellValue | Cell, ...]


class Row(msgspec.Struct, frozen=True):
    """A row."""

    cells: Cells
    #: The category or backend whose color marks it.
    color: str = ""
    #: Whether it stands back.
    muted: bool = False
    #: How far the words of a tree are indented.
    depth: int = 0
    #: Whether it has a title in its first cell and nothing else.
    heading: bool = False
    #: Which forms have it, and whether print does.
    show: Show = "always"
    printed: bool = True
    #: What stands below it, opened on demand.
    detail: tuple[Paragraph | Table, ...] = ()
    #: The keys of its points in the roofline of the page.
    points: tuple[int, ...] = ()

    def cell(self, place: int) -> Cell:
        """What it has in a column; a short row leaves out the last ones."""
        given = self.cells[place] if place < len(self.cells) else ""
        return given if isinstance(given, Cell) else Cell(value=given)

    @property
    def remarks(self) -> list[Paragraph]:
        """What its ``detail`` says in words."""
        return [part for part in self.detail if isinstance(part, Paragraph)]


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """A table."""

    name: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    #: Stands above it.
    title: str = ""
    #: Says what it is to those who do not see it.
    caption: str = ""
    #: Stands below it.
    note: str = ""
    #: How its rows are sorted, in words, and the name of the column by which they are.
    order: str = ""
    sorted_by: str = ""
    #: The last row.
    total: Cells = ()
    #: The rows of a tree are indented and fold, those of a main table can be sorted and filtered, the first
    #: numbers of parts are bars of one whole.
    kind: Literal["plain", "main", "tree", "parts"] = "plain"
    #: The most rows of a short form, and of print.
    brief: int | None = None
    printed: int | None = None
    #: A page folds the rows after these.
    first: int | None = None
    show: Show = "full"

    def note_with(self, columns: Iterable[Column]) -> str:
        """What stands below the table if it shows ``columns``."""
        return joined(" ", self.note, *(column.note for column in columns))

    def on_paper(self) -> tuple[Row, ...]:
        """The rows that print has."""
        return tuple(row for row in self.of_form(full=True) if row.printed)[: self.printed]

    def of_form(self, *, full: bool) -> tuple[Row, ...]:
        """The rows of the full or the short form."""
        rows = tuple(row for row in self.rows if row.show != ("brief" if full else "full"))
        return rows if full or self.brief is None else rows[: self.brief]


class Paragraph(msgspec.Struct, frozen=True):
    """A paragraph."""

    text: str
    kind: Kind = "text"
    show: Show = "full"
    #: A share shown as a bar below it.
    meter: float | None = None


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """Names with what they are."""

    #: A name and what it is; a third text is a remark.
    rows: tuple[tuple[str, ...], ...]
    #: The HTML pages of the rows, to which a page links if they are there.
    reports: tuple[str, ...] = ()
    #: Short facts side by side, or definitions in sentences.
    kind: Literal["facts", "definitions"] = "facts"
    show: Show = "full"


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """A figure."""

    name: str
    #: What to draw: one of the kinds that ``charts`` draws.
    drawing: Drawing
    #: What to see in it.
    caption: str = ""
    #: A remark below it.
    note: str = ""
    show: Show = "full"
    kind: ClassVar[str] = "picture"


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a bar."""

    name: str
    #: Its share of the whole bar, and how much it is in words.
    share: float
    text: str
    #: What it is drawn with.
    pattern: str
    letter: str = ""
    meaning: str = ""


class BarRow(msgspec.Struct, frozen=True, kw_only=True):
    """One of several bars on one scale."""

    label: str
    text: str
    parts: tuple[Part, ...]


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    """A whole and its parts; with several ``rows`` a bar each, all on the scale of the longest, and one key
    for all."""

    name: str
    caption: str
    rows: tuple[BarRow, ...]
    title: str = ""
    show: Show = "full"
    kind: ClassVar[str] = "bar"

    def key(self) -> tuple[Part, ...]:
        """Every part once, in the order of the first bar that has it."""
        parts = [part for row in self.rows for part in row.parts]
        return tuple(
            {part.name: part for part in reversed(parts)}[name]
            for name in dict.fromkeys(part.name for part in parts)
        )


class Recommendation(msgspec.Struct, frozen=True, kw_only=True):
    """A recommendation."""

    title: str
    #: What it saves, in words and as a share.
    saves: str
    share: float
    #: Whether that is a limit, and not an estimate.
    is_limit: bool
    evidence: str
    #: What to do, one after another.
    steps: tuple[str, ...]


class Findings(msgspec.Struct, frozen=True, kw_only=True):
    """Recommendations."""

    items: tuple[Recommendation, ...]
    #: How many any form has.
    first: int = 3
    show: Show = "always"
    kind: ClassVar[str] = "findings"


Block: TypeAlias = Paragraph | Facts | Table | Figure | Bar | Findings


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """Blocks under a title."""

    name: str
    title: str
    blocks: tuple[Block, ...] = ()
    #: Stands next to the title.
    remark: str = ""
    #: What a short form takes of the section stands at its end, below this title.
    under: str = ""
    #: How many of twelve columns it takes on a wide page.
    columns: int = 12
    #: The last blocks, which a page folds below ``fold``, or below the title where there is none.
    folded: int = 0
    fold: str = ""

    def of_full_form(self, *, folded: bool | None = None) -> list[Block]:
        """The blocks that a full report has: all, those that a page folds, or those that it shows."""
        opened = len(self.blocks) - self.folded
        part = slice(None) if folded is None else slice(opened, None) if folded else slice(opened)
        return [block for block in self.blocks[part] if block.show != "brief"]


def table(
    name: str, columns: Iterable[Column], rows: Iterable[Row | Cells], caption: str = "", **more: Any
) -> Table:
    """A table whose rows may be plain tuples of cells; ``more`` are further fields of ``Table``."""
    made = tuple(row if isinstance(row, Row) else Row(row) for row in rows)
    return Table(name=name, columns=tuple(columns), rows=made, caption=caption, **more)


def filled(
    name: str, columns: Sequence[Column], rows: Iterable[Row | Cells], caption: str = "", **more: Any
) -> Table:
    """A table of those of the ``columns`` in which a row has a value; otherwise like ``table``."""
    whole = table(name, columns, rows, caption, **more)
    full = [row.cells for row in whole.rows if not row.heading]
    kept = [
        at
        for at, cells in enumerate(zip(*full, strict=True))
        if any(cell not in (None, "", Cell()) for cell in cells)
    ]
    shown = (
        row if row.heading else msgspec.structs.replace(row, cells=tuple(row.cells[at] for at in kept))
        for row in whole.rows
    )
    return msgspec.structs.replace(whole, columns=tuple(columns[at] for at in kept), rows=tuple(shown))


def section(
    name: str, title: str, *blocks: Block | None, folded: Iterable[Block | None] = (), **more: Any
) -> Section:
    """A section of the ``blocks`` that are there, and of those that a page folds; ``more`` are further fields
    of ``Section``."""
    below = [block for block in folded if block]
    shown = [block for block in blocks if block]
    return Section(name=name, title=title, blocks=(*shown, *below), folded=len(below), **more)


def sections_of(*parts: Section | None) -> tuple[Section, ...]:
    """The sections of a page that have something to show."""
    return tuple(part for part in parts if part and part.blocks)


def facts_of(known: Iterable[tuple[str, object]]) -> Facts:
    """Short facts side by side: those that are known."""
    return Facts(rows=tuple((name, str(value)) for name, value in known if value not in (None, "")))


def said(texts: str | Iterable[str], kind: Kind = "text", show: Show = "always") -> list[Paragraph]:
    """A paragraph for each of ``texts``, or for the only one, that says something."""
    every = (texts,) if isinstance(texts, str) else texts
    return [Paragraph(text, kind, show) for text in every if text]


def timed_parts(parts: Iterable[tuple[str, float, str, str]], whole_s: float) -> tuple[Part, ...]:
    """The parts of a bar of ``whole_s`` that take time, from the name, the seconds, the pattern and the
    meaning of each."""
    return tuple(
        Part(name=name, share=time_s / whole_s, text=seconds(time_s), pattern=pattern, meaning=meaning)
        for name, time_s, pattern, meaning in parts
        if time_s > _ROUNDING * whole_s
    )


def bound_parts(times: Mapping[str, float], whole_s: float) -> tuple[Part, ...]:
    """The parts of a bar of ``whole_s`` by bound class, in the order of the palette."""
    parts = timed_parts(
        # Waiting for the host or for data is idle time, too.
        (
            ("other idle" if name == "idle" else name, times[name], name, bound_style(name).meaning)
            for name in dict.fromkeys((*BOUNDS, *times))
            if name in times
        ),
        whole_s,
    )
    return tuple(msgspec.structs.replace(part, letter=bound_style(part.pattern).letter) for part in parts)


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """A report of one record."""

    #: The kind of record.
    kind: str
    #: A short title, and the subject in one line.
    name: str
    title: str
    verdict: str
    created: str = ""
    #: The version that made it.
    rooflines: str = ""
    #: What to know before reading it: a word and a sentence.
    status: tuple[str, str] | None = None
    #: What data it is of.
    label: str = ""
    #: Sentences below the verdict.
    said: tuple[str, ...] = ()
    sections: tuple[Section, ...] = ()
    #: The sections that a terminal shows last, above the verdict: there its last lines are read first.
    last: tuple[str, ...] = ()
    footer: str = ""

    @property
    def status_ink(self) -> str:
        """The color of the status: what other programs did is no fault of the report."""
        return "notice" if self.status and self.status[0] == DISTURBED else "warning"

    @property
    def made(self) -> str:
        """When it was made, and by which version."""
        return joined(" · ", self.created[:10], given("rooflines {}", self.rooflines))

    def of_table(self, name: str) -> Page:
        """The page with the table ``name`` and nothing else, all of its rows; raises UsageError where there
        is none."""
        found = next((table for table in self.tables() if table.name == name), None)
        if found is None:
            raise UsageError(f"nothing is known of the {name} of {self.title}.")
        whole = msgspec.structs.replace(found, brief=None, show="always")
        return msgspec.structs.replace(self, sections=(section(name, found.caption, whole),))

    def blocks(self) -> Iterator[Block]:
        """All blocks in their order."""
        for section in self.sections:
            yield from section.blocks

    def figures(self) -> tuple[Figure, ...]:
        """All figures in their order."""
        return tuple(block for block in self.blocks() if isinstance(block, Figure))

    def tables(self) -> tuple[Table, ...]:
        """All tables in their order."""
        return tuple(block for block in self.blocks() if isinstance(block, Table))


# --- what a record has besides its page -------------------------------------------------------------------


class CurvePoint(NamedTuple):
    """A value of a curve."""

    tag: str
    value: float
    step: int = 0
    #: Seconds since the epoch.
    wall_s: float = 0.0


class Measured(NamedTuple):
    """What a record has besides its page."""

    #: Its curves.
    points: Iterable[CurvePoint] = ()
    #: The figures by which records are compared.
    summary: Mapping[str, float] = {}
    #: What was run.
    settings: Mapping[str, Any] = {}
    #: Whether figures are drawn.
    pictures: bool = True


# --- the texts of a table ---------------------------------------------------------------------------------


class Texts(NamedTuple):
    """The columns shown, and the cells as they are read."""

    columns: tuple[Column, ...]
    #: The places of the columns among all.
    places: tuple[int, ...]
    #: Their units with prefixes.
    units: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    total: tuple[str, ...]

    def titles(self) -> list[str]:
        """The labels of the columns with their units."""
        return [
            joined(" ", column.label, unit) for column, unit in zip(self.columns, self.units, strict=True)
        ]


def texts(
    table: Table, *, full: bool = True, rows: Sequence[Row] | None = None, aligned: bool = False
) -> Texts:
    """The cells of ``table`` in words: all columns or those of the short form, all rows or ``rows``.

    Units do not depend on which rows are shown. A scaled column has three significant figures of its largest
    row, or, ``aligned``, of each value, with spaces as wide as digits behind them so that right-aligned
    numbers meet at the point.
    """
    shown = [
        index for index, column in enumerate(table.columns) if column.show != ("brief" if full else "full")
    ]
    columns = tuple(table.columns[index] for index in shown)
    chosen = table.of_form(full=full) if rows is None else rows
    factors = _factors(table)
    found, units = [], []
    for index, column in zip(shown, columns, strict=True):
        factor, prefix = factors.get((column.unit, column.group), (1.0, ""))
        units.append(
            f"{prefix}{column.unit}"
            if column.format == "scaled"
            else ""
            if column.format == "own"
            else column.unit
        )
        cells = [row.cell(index) for row in (*chosen, *([Row(table.total)] if table.total else []))]
        found.append(_column_texts(column, cells, len(chosen), factor, aligned))
    lines = tuple(zip(*found, strict=True)) if found else ()
    return Texts(columns, tuple(shown), tuple(units), lines[: len(chosen)], lines[-1] if table.total else ())


def or_absent(value: float | None, form: str | Callable[[float], str], factor: float = 1.0) -> str:
    """``factor`` times ``value`` in words, by a function or in the format ``form``; a dash where it is
    absent."""
    if value is None:
        return ABSENT
    return format(factor * value, form) if isinstance(form, str) else form(factor * value)


def value_of(cell: CellValue | Cell) -> CellValue:
    """What a cell holds."""
    return cell.value if isinstance(cell, Cell) else cell


def factor_of(table: Table, column: Column) -> float:
    """What a shown number of ``column`` is multiplied with to be in its unit without a prefix: 0.001 in a
    column of ms, 0.01 of percents."""
    if column.format == "scaled":
        return _factors(table)[column.unit, column.group][0]
    return 0.01 if column.format in ("share", "efficiency") else 1.0


def _factors(table: Table) -> dict[tuple[str, str], tuple[float, str]]:
    """The factor and prefix of each unit and group of scaled columns, for the largest value in any row."""
    largest: dict[tuple[str, str], float] = {}
    for index, column in enumerate(table.columns):
        if column.format == "scaled":
            values = (row.cell(index).value for row in table.rows)
            key = (column.unit, column.group)
            largest[key] = max(
                [largest.get(key, 0.0), *(abs(value) for value in values if isinstance(value, int | float))]
            )
    return {key: scale(value) for key, value in largest.items()}


def _column_texts(
    column: Column, cells: Sequence[Cell], rows: int, factor: float, aligned: bool
) -> list[str]:
    """The cells of a column in words, of which the first ``rows`` are not the total."""
    values = [cell.value for cell in cells]
    numbers = [value / factor if isinstance(value, int | float) else None for value in values]
    if column.format == "scaled" and not aligned:
        # One number of decimals for all, three significant figures of the largest.
        largest = max((abs(number) for number in numbers[:rows] if number is not None), default=0.0)
        made = [fixed(number, decimals_of(largest)) for number in numbers]
    elif column.format == "scaled" or (column.format == "figures" and aligned):
        made = _aligned(numbers)
    else:
        made = [_text(column, value) for value in values]
    return [
        cell.prefix + (cell.text or (cell.value if isinstance(cell.value, str) else text))
        for cell, text in zip(cells, made, strict=True)
    ]


def _text(column: Column, value: CellValue) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return ABSENT if column.numeric else ""
    if column.format == "share":
        return f"{value * 100:.1f}"
    if column.format == "efficiency":
        return efficiency_text(value)
    if column.format == "own":
        return quantity(value, column.unit)
    if column.format == "figures":
        return significant(value)
    return count_text(value)


def _aligned(values: Sequence[float | None]) -> list[str]:
    """Three significant figures, but no more decimals than a column can spare, that meet at the point where
    they are right-aligned."""
    made = [
        fixed(value, _MOST_DECIMALS)
        if value is None or decimals_of(value) > _MOST_DECIMALS
        else significant(value)
        for value in values
    ]
    tails = [len(text.partition(".")[2]) for text in made]
    most = max(tails, default=0)
    return [
        text + ("" if "." in text or not most else _POINT_SPACE) + _FIGURE_SPACE * (most - tail)
        for text, tail in zip(made, tails, strict=True)
    ]
