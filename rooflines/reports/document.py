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
from rooflines.reports.charts.palette import BOUNDS, bound_style
from rooflines.reports.words.text import count_text, decimals_of, efficiency_text, fixed
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
Words = Literal["text", "name", "path", "shapes", "middle"]
Numbers = Literal["given", "own", "scaled", "figures", "count", "share", "efficiency"]

ABSENT = "–"
_MOST_DECIMALS = 3
# What is left of a difference of equal times.
_ROUNDING = 1e-12
# A figure space and a punctuation space are as wide as a digit and a point: they keep a column on its decimal
# point.
_FIGURE_SPACE, _POINT_SPACE = "\u2007", "\u2008"


class Column(msgspec.Struct, frozen=True):
    """A column of a table.

    ``key`` names it in data; without one it is made of the label. ``priority`` says which columns give way
    where there is no room: those of 0 are always there, the highest go first. ``least`` is the width in
    characters that words keep, ``help`` what the header says longer, ``note`` what stands below a table that
    shows the column.
    """

    label: str
    unit: str = ""
    format: Words | Numbers = "given"
    key: str = ""
    priority: int = 0
    help: str = ""
    note: str = ""
    least: int = 12
    quiet: bool = False
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


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """A cell that is more than its value.

    ``text`` replaces what the format of the column would make of the value, ``prefix`` stands before it,
    ``hover`` says more, ``bar`` is a length from 0 to 1 behind it, ``letter`` that of a bound class,
    ``warning`` why the value should not be believed, ``sort`` what it is sorted by.
    """

    value: CellValue = None
    text: str = ""
    prefix: str = ""
    hover: str = ""
    bar: float | None = None
    letter: str = ""
    warning: str = ""
    sort: CellValue = None


class Row(msgspec.Struct, frozen=True):
    """A row.

    ``color`` names the category or backend whose color marks it; ``muted`` rows stand back; ``depth`` indents
    the words of a tree; ``heading`` rows have a title in their first cell and nothing else; ``show`` and
    ``printed`` say which forms have it; ``detail`` is what stands below it, opened on demand; ``points`` are
    the keys of its points in the roofline of the page.
    """

    cells: tuple[CellValue | Cell, ...]
    color: str = ""
    muted: bool = False
    depth: int = 0
    heading: bool = False
    show: Show = "always"
    printed: bool = True
    detail: tuple[Paragraph | Table, ...] = ()
    points: tuple[int, ...] = ()


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """A table.

    ``title`` stands above it, ``caption`` says what it is to those who do not see it, ``order`` how its rows
    are sorted and ``sorted_by`` by which column. ``total`` is its last row. A short form has ``brief`` rows
    at most, print has ``printed``. The rows of a ``tree`` are indented and fold, those of a ``main`` table
    can be sorted and filtered, the first numbers of ``parts`` are bars of one whole. A page folds the rows
    after the ``first`` ones.
    """

    name: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    title: str = ""
    caption: str = ""
    note: str = ""
    order: str = ""
    sorted_by: str = ""
    total: tuple[CellValue | Cell, ...] = ()
    kind: Literal["plain", "main", "tree", "parts"] = "plain"
    brief: int | None = None
    printed: int | None = None
    first: int | None = None
    show: Show = "full"

    def note_with(self, columns: Iterable[Column]) -> str:
        """What stands below the table if it shows ``columns``."""
        return " ".join(filter(None, (self.note, *(column.note for column in columns))))

    def on_paper(self) -> tuple[Row, ...]:
        """The rows that print has."""
        return tuple(row for row in self.of_form(full=True) if row.printed)[: self.printed]

    def of_form(self, *, full: bool) -> tuple[Row, ...]:
        """The rows of the full or the short form."""
        rows = tuple(row for row in self.rows if row.show != ("brief" if full else "full"))
        return rows if full or self.brief is None else rows[: self.brief]


class Paragraph(msgspec.Struct, frozen=True):
    """A paragraph. ``meter`` is a share shown as a bar below it."""

    text: str
    kind: Kind = "text"
    show: Show = "full"
    meter: float | None = None


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """Names with what they are: short ``facts`` side by side, or ``definitions`` in sentences. A third text
        is a remark.

    ``reports`` are the HTML pages of the rows, to which a page links if they are there.
    """

    rows: tuple[tuple[str, ...], ...]
    reports: tuple[str, ...] = ()
    kind: Literal["facts", "definitions"] = "facts"
    show: Show = "full"


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """A figure: what to see in it, what to draw (one of the kinds that ``charts`` draws), and a remark below
    it."""

    name: str
    drawing: Drawing
    caption: str = ""
    note: str = ""
    show: Show = "full"
    kind: ClassVar[str] = "picture"


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a bar: its share of the whole bar, in words as well, and the pattern that it is drawn
    with."""

    name: str
    share: float
    text: str
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
    """A recommendation with what it saves, in words and as a share."""

    title: str
    saves: str
    share: float
    evidence: str
    suggestion: str


class Findings(msgspec.Struct, frozen=True, kw_only=True):
    """Recommendations, the first ``first`` in any form."""

    items: tuple[Recommendation, ...]
    first: int = 3
    show: Show = "always"
    kind: ClassVar[str] = "findings"


Block: TypeAlias = Paragraph | Facts | Table | Figure | Bar | Findings


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """Blocks under a title, with a remark next to it. What a short form takes of a section with ``under``
    stands at its end, below that."""

    name: str
    title: str
    blocks: tuple[Block, ...] = ()
    remark: str = ""
    under: str = ""


def table(
    name: str,
    columns: Iterable[Column],
    rows: Iterable[Row | tuple[CellValue | Cell, ...]],
    caption: str = "",
    **more: Any,
) -> Table:
    """A table whose rows may be plain tuples of cells; ``more`` are further fields of ``Table``."""
    made = tuple(row if isinstance(row, Row) else Row(row) for row in rows)
    return Table(name=name, columns=tuple(columns), rows=made, caption=caption, **more)


def filled(
    name: str,
    columns: Sequence[Column],
    rows: Iterable[Row | tuple[CellValue | Cell, ...]],
    caption: str = "",
    **more: Any,
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


def section(name: str, title: str, *blocks: Block | None, remark: str = "", under: str = "") -> Section:
    """A section of the ``blocks`` that are there."""
    return Section(
        name=name,
        title=title,
        blocks=tuple(block for block in blocks if block is not None),
        remark=remark,
        under=under,
    )


def sections_of(*parts: Section | None) -> tuple[Section, ...]:
    """The sections of a page that have something to show."""
    return tuple(part for part in parts if part is not None and part.blocks)


def said(texts: Iterable[str], kind: Kind = "text", show: Show = "always") -> list[Paragraph]:
    """A paragraph for each of ``texts`` that says something."""
    return [Paragraph(text, kind, show) for text in texts if text]


def bar_of(name: str, parts: Iterable[Part], **more: Any) -> Bar:
    """A bar of one row."""
    return Bar(name=name, rows=(BarRow(label="", text="", parts=tuple(parts)),), **more)


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
    names = (*(name for name in BOUNDS if name in times), *(name for name in times if name not in BOUNDS))
    parts = timed_parts(((name, times[name], name, bound_style(name).meaning) for name in names), whole_s)
    return tuple(msgspec.structs.replace(part, letter=bound_style(part.name).letter) for part in parts)


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """A report of one ``kind`` of record. ``title`` is its subject in one line, ``name`` a short one,
    ``label`` what data it is of.

    ``status`` is what to know before reading it: a word and a sentence.
    """

    kind: str
    name: str
    title: str
    verdict: str
    created: str = ""
    rooflines: str = ""
    status: tuple[str, str] | None = None
    label: str = ""
    said: tuple[str, ...] = ()
    sections: tuple[Section, ...] = ()
    footer: str = ""

    @property
    def status_ink(self) -> str:
        """The color of the status: what other programs did is no fault of the report."""
        return "notice" if self.status is not None and self.status[0] == DISTURBED else "warning"

    @property
    def made(self) -> str:
        """When it was made, and by which version."""
        return " · ".join(
            text
            for text in (self.created[:10], f"rooflines {self.rooflines}" if self.rooflines else "")
            if text
        )

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
    """A value of a curve; ``wall_s`` is seconds since the epoch."""

    tag: str
    value: float
    step: int = 0
    wall_s: float = 0.0


class Measured(NamedTuple):
    """What a record has besides its page: curves, the figures by which records are compared, and what was
        run.

    Without ``pictures`` nothing is drawn.
    """

    points: Iterable[CurvePoint] = ()
    summary: Mapping[str, float] = {}
    settings: Mapping[str, Any] = {}
    pictures: bool = True


# --- the texts of a table ---------------------------------------------------------------------------------


class Texts(NamedTuple):
    """The columns shown with their places among all, their units, and the cells as they are read."""

    columns: tuple[Column, ...]
    places: tuple[int, ...]
    units: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    total: tuple[str, ...]

    def titles(self) -> list[str]:
        """The labels of the columns with their units."""
        return [
            " ".join(filter(None, (column.label, unit)))
            for column, unit in zip(self.columns, self.units, strict=True)
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
        cells = [
            row.cells[index] if index < len(row.cells) else ""
            for row in (*chosen, *([Row(table.total)] if table.total else []))
        ]
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
            values = (value_of(row.cells[index]) for row in table.rows if index < len(row.cells))
            key = (column.unit, column.group)
            largest[key] = max(
                [largest.get(key, 0.0), *(abs(value) for value in values if isinstance(value, int | float))]
            )
    return {key: scale(value) for key, value in largest.items()}


def _column_texts(
    column: Column, cells: Sequence[CellValue | Cell], rows: int, factor: float, aligned: bool
) -> list[str]:
    """The cells of a column in words, of which the first ``rows`` are not the total."""
    values = [value_of(cell) for cell in cells]
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
        (cell.prefix if isinstance(cell, Cell) else "")
        + (cell.text if isinstance(cell, Cell) and cell.text else value if isinstance(value, str) else text)
        for cell, value, text in zip(cells, values, made, strict=True)
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
