"""What the report of a study shows, whatever the study is of: sentences, tables and figures in their order.

A study says what it found as a ``Page``; the terminal, the page and the pictures are three ways to draw it. Every number in here is a
text already, but for those that a figure needs as numbers.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from rooflines.roofline.analysis import Analysis


class Column(msgspec.Struct, frozen=True):
    """A column of a table: its title, its unit, and whether it holds numbers."""

    title: str
    unit: str = ""
    numeric: bool = True


class Row(msgspec.Struct, frozen=True):
    """A row; ``backend`` colours it, ``muted`` rows are what a paper printed or what stands back."""

    cells: tuple[str, ...]
    backend: str = ""
    muted: bool = False


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """A table with a note below it. ``in_terminal`` tables are for 80 columns, too."""

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    note: str = ""
    in_terminal: bool = False


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """A curve of a backend through ``x`` and ``y``; ``paper`` is a level that a paper printed for it."""

    backend: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    paper: float | None = None


class Curves(msgspec.Struct, frozen=True, kw_only=True):
    """Curves over epochs or iterations. ``fraction`` says that y is a share, shown in percent."""

    name: str
    caption: str
    x_title: str
    y_title: str
    series: tuple[Series, ...]
    fraction: bool = False
    log_x: bool = False


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    """A bar with its value in words; ``paper`` is what a paper printed for it."""

    backend: str
    label: str
    value: float
    text: str
    paper: float | None = None
    paper_text: str = ""


class Bars(msgspec.Struct, frozen=True, kw_only=True):
    """Horizontal bars."""

    name: str
    caption: str
    x_title: str
    bars: tuple[Bar, ...]


class Rooflines(msgspec.Struct, frozen=True, kw_only=True):
    """The operators of several backends on the roofs of one device; the category of an operator is its backend."""

    name: str
    caption: str
    note: str
    analysis: Analysis


Figure: TypeAlias = Curves | Bars | Rooflines
Block: TypeAlias = Table | Figure


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """Blocks under a title, with sentences before them."""

    title: str
    sentences: tuple[str, ...] = ()
    blocks: tuple[Block, ...] = ()


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """A report. ``data_label`` says what data the numbers are of and stands at the top; ``missing`` are
    backends that did not run, or not to the end."""

    title: str
    machine: str
    created: str
    command: str
    data_label: str
    verdict: str
    status: str = ""
    findings: tuple[str, ...] = ()
    sections: tuple[Section, ...] = ()
    missing: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()

    def figures(self) -> tuple[Figure, ...]:
        """All figures in their order."""
        return tuple(block for section in self.sections for block in section.blocks if not isinstance(block, Table))

    def tables(self) -> tuple[Table, ...]:
        """All tables in their order."""
        return tuple(block for section in self.sections for block in section.blocks if isinstance(block, Table))
