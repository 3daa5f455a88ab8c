"""A page in a terminal: the verdict, then what the short form has of each section, in the width of the
console."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from rooflines.reports.document import Bar, Block, Cell, Facts, Findings, Page, Paragraph, Section, Table
from rooflines.reports.render.layout import GAP, fitted
from rooflines.reports.words.text import NUMBER_AND_UNIT, joined, shorten_path
from rooflines.units import percent

if TYPE_CHECKING:
    from rich.console import Console

Styled: TypeAlias = "str | tuple[str, str]"

_WIDEST = 160
_INDENT = 2
_LONGEST_BAR = 40
# A column of words that is narrower holds no sentence.
_SENTENCE = 20
# A bar with few parts shows each in full.
_FEW_PARTS = 3
# Classes differ by fill, not by color, so that pipes, logs and grayscale prints show them too (see
# palette.py).
_FILLS = {
    "compute": ("█", "#"),
    "memory": ("▓", "="),
    "latency": ("▒", ":"),
    "communication": ("╳", "x"),
    "host": ("░", "."),
    "input": ("▚", "%"),
    "inefficient": ("◩", "/"),
    "transfer": ("▞", "\\"),
    "idle": ("┈", "_"),
    "unknown": ("?", "?"),
    "bound": ("█", "#"),
    "headroom": ("░", "."),
    "doubt": ("▩", "!"),
    "rest": (" ", " "),
}
_STYLES = {"bound": "green", "headroom": "dim"}
# One character for one character, so that the styles of a line keep their places on a console that cannot
# show more than ASCII.
_ASCII = str.maketrans("±µ·…×–—−“”’→²", '~u-~x---""\'>2')
# A module path, which is cut where it is longer than a line.
_PATH = re.compile(r"[\w*]+(?:\.[\w*]+)+")
# Stands for a space at which no line may end (rich breaks at every Unicode space, the no-break one included).
_KEPT = "\ue000"


def write(page: Page, path: Path) -> Path:
    """Write ``page`` to ``path`` as a terminal of 100 columns without colors shows it, and return the
    path."""
    from rich.console import Console

    with path.open("w", encoding="utf-8") as file:
        print_page(page, Console(file=file, width=100, color_system=None, force_terminal=False))
    return path


def print_page(page: Page, console: Console) -> None:
    """Print ``page`` on ``console``, in its width."""
    lines = _Lines(console, is_long=bool(page.last))
    lines.heading(page.title, page.made)
    if page.status:
        lines.line((page.status[1], "bold red" if page.status_ink == "warning" else "bold yellow"))
    if page.label:
        lines.line((page.label, "dim"))
    if not page.last:
        _verdict(lines, page)
    # What is gathered below one title follows the other sections.
    ordered = sorted(page.sections, key=lambda one: (one.name in page.last, one.under))
    for _, parts in groupby(ordered, key=lambda one: one.under or one.name):
        first, *more = parts
        kept = len(first.blocks) - first.folded * (first.name in page.last)
        every = (*first.blocks[:kept], *(block for one in more for block in one.blocks))
        blocks = [block for block in every if block.show != "full"]
        if blocks:
            _section(lines, Section(name="", title=first.under) if first.under else first, blocks)
    if page.last:
        _verdict(lines, page)


def _verdict(lines: _Lines, page: Page) -> None:
    lines.line()
    lines.line((page.verdict, "bold"), indent=_INDENT)
    for sentence in page.said:
        lines.line("- ", sentence, indent=_INDENT, hang=2 * _INDENT)


def _section(lines: _Lines, section: Section, blocks: Sequence[Block]) -> None:
    lines.line()
    if section.title:
        # A table without a title takes that of its section.
        own = blocks[0] if isinstance(blocks[0], Table) and not blocks[0].title else None
        lines.heading(section.title, section.remark or (_rows_shown(own) if own else ""))
    for number, block in enumerate(blocks):
        if number and (
            isinstance(block, Table | Bar | Findings)
            or (isinstance(block, Paragraph) and block.kind == "title")
        ):
            lines.line()
        if write_block := _WRITERS.get(type(block)):
            write_block(lines, block)


class _Lines:
    """Writes lines of text in the console's width, and in ASCII where the console can show no more."""

    def __init__(self, console: Console, *, is_long: bool) -> None:
        self.console, self.is_long = console, is_long
        self.ascii = console.options.ascii_only
        self.width = min(console.width, _WIDEST)

    def line(self, *parts: Styled, indent: int = 0, hang: int | None = None, whole: bool = False) -> None:
        """One paragraph of text or (text, style), wrapped unless ``whole``; the lines after the first start
        at ``hang``."""
        from rich.text import Text

        hang = indent if hang is None else hang
        room = max(20, self.width - max(indent, hang))
        text = Text.assemble(*(self._printable(part, room) for part in parts))
        text.plain = NUMBER_AND_UNIT.sub(_KEPT, text.plain)
        for number, row in enumerate(text.wrap(self.console, room) if text.plain and not whole else [text]):
            row.rstrip()
            row.plain = row.plain.replace(_KEPT, " ")
            self.console.print(
                Text(" " * (hang if number else indent)) + row, soft_wrap=True, highlight=False
            )

    def row(self, *parts: Styled) -> None:
        """One line of a table, which is already as wide as it may be."""
        from rich.text import Text

        text = Text.assemble(" " * _INDENT, *(self._printable(part) for part in parts))
        text.rstrip()
        text.truncate(self.width, overflow="crop")
        self.console.print(text, soft_wrap=True, highlight=False)

    def heading(self, title: str, right: str = "") -> None:
        """A title with a remark at the right edge, or below it where there is no room for both."""
        gap = self.width - len(title) - len(right)
        if right and gap >= GAP:
            self.line((title, "bold"), (" " * gap + right, "dim"))
        else:
            self.line((title, "bold"))
            if right:
                self.line((right, "dim"))

    def fill(self, pattern: str) -> str:
        """The character that parts of this pattern are drawn with."""
        return _FILLS.get(pattern, _FILLS["unknown"])[self.ascii]

    def _printable(self, part: Styled, room: int | None = None) -> Styled:
        text, *style = (part,) if isinstance(part, str) else part
        if room is not None:
            text = _PATH.sub(lambda path: shorten_path(path[0], room), text)
        # Names come out of traces that other people made: an escape sequence in one must not reach the
        # terminal.
        text = "".join(
            character if character.isprintable() or character == _KEPT else " " for character in text
        )
        if self.ascii:
            text = "".join(
                character if character.isascii() or character == _KEPT else "?"
                for character in text.translate(_ASCII)
            )
        return (text, style[0]) if style else text


def _paragraph(lines: _Lines, block: Paragraph) -> None:
    if block.kind == "title":
        lines.line((block.text, "bold"), indent=_INDENT)
    elif block.kind == "alert":
        lines.line(("! ", "bold red"), block.text, indent=_INDENT, hang=2 * _INDENT)
    elif block.kind == "code":
        for text in block.text.split("\n"):
            lines.line((text, "cyan"), indent=_INDENT, whole=True)
    else:
        style = "dim" if block.kind in ("note", "absent") else ""
        lines.line((block.text, style), indent=_INDENT, hang=2 * _INDENT)


def _facts(lines: _Lines, block: Facts) -> None:
    widest = max((len(row[0]) for row in block.rows), default=0)
    for name, *texts in block.rows:
        lines.line(f"{name.ljust(widest)}  {'  '.join(texts)}", indent=_INDENT, hang=widest + 2 * _INDENT)


def _findings(lines: _Lines, block: Findings) -> None:
    for number, finding in enumerate(block.items[: block.first], start=1):
        lines.line(f"{number}. ", (finding.title, "bold"), f": {finding.saves}", indent=_INDENT, hang=5)
        if not lines.is_long:
            lines.line(finding.evidence, indent=5)
        for step in finding.steps:
            lines.line(("try ", "dim"), (step, "cyan"), indent=5, hang=9)
    more = len(block.items) - block.first
    if more > 0:
        lines.line((f"{more} more in the full report", "dim"), indent=5)


def _bar(lines: _Lines, block: Bar) -> None:
    if block.title:
        lines.heading(block.title, block.caption)
    labels = max(len(row.label) for row in block.rows)
    ends = max(len(row.text) for row in block.rows)
    room = lines.width - _INDENT - sum(width + GAP for width in (labels, ends) if width)
    for row in block.rows:
        counts = _cells([part.share for part in row.parts], room)
        drawn: list[Styled] = [
            (lines.fill(part.pattern) * count, _STYLES.get(part.pattern, ""))
            for part, count in zip(row.parts, counts, strict=True)
        ]
        if labels:
            drawn.insert(0, row.label.rjust(labels) + " " * GAP)
        lines.row(*drawn, *([" " * (room - sum(counts) + GAP) + row.text.rjust(ends)] if ends else []))
    parts = [part for part in block.key() if part.pattern != "rest"]
    told = [f" ({one.text})" if one.text and len(parts) <= _FEW_PARTS else "" for one in parts]
    key = (
        f"{lines.fill(one.pattern)} {one.name} {percent(one.share)}{text}"
        for one, text in zip(parts, told, strict=True)
    )
    lines.line("   ".join(text.replace(" ", _KEPT) for text in key), indent=_INDENT)


def _cells(shares: Sequence[float], width: int) -> list[int]:
    """How many of ``width`` characters each share gets: their sum is right to half a character, and nothing
    is drawn as nothing."""
    edge, counts = 0.0, []
    for share in shares:
        start = round(edge * width)
        edge += share
        counts.append(max(round(edge * width) - start, int(share > 0)))
    while sum(counts) > width:
        counts[counts.index(max(counts))] -= 1
    return counts


def _table(lines: _Lines, table: Table) -> None:
    rows = table.of_form(full=False)
    if table.title:
        lines.heading(table.title, _rows_shown(table))
    columns = fitted(table, lines.width - _INDENT, rows)
    lines.row(("  ".join(one.padded(one.column.label) for one in columns), "dim"))
    if any(one.unit for one in columns):
        lines.row(("  ".join(one.padded(one.unit) for one in columns), "dim"))
    free = lines.width - _INDENT - sum(one.width + GAP for one in columns)
    bars = min(_LONGEST_BAR, free) if table.kind == "parts" else 0
    for number, row in enumerate(rows):
        if row.heading:
            lines.row((columns[0].cells[number], "bold"))
            continue
        parts: list[Styled] = []
        # A sentence in the last column goes on below itself.
        last = columns[-1]
        sentence = (
            textwrap.wrap(last.cells[number], last.width)
            if last.column.format == "text" and last.width >= _SENTENCE
            else []
        )
        for one in columns:
            style = (
                "bold red" if row.cell(one.place).warning else "dim" if row.muted or one.column.quiet else ""
            )
            text = sentence[0] if one is last and sentence else one.cells[number]
            parts += [(one.padded(text), style), " " * GAP]
        share = next((cell.bar for cell in row.cells if isinstance(cell, Cell) and cell.bar is not None), 0.0)
        if bars and share:
            parts.append((lines.fill("compute") * max(1, round(share * bars)), "dim"))
        lines.row(*parts)
        for rest in sentence[1:]:
            lines.row((" " * (sum(one.width + GAP for one in columns) - GAP - last.width) + rest, style))
        for remark in row.remarks:
            if remark.show != "full":
                lines.line((remark.text, "dim"), indent=2 * _INDENT, hang=2 * _INDENT)
    if any(one.total for one in columns):
        lines.row(("  ".join(one.padded(one.total) for one in columns), "bold"))
    if note := table.note_with(one.column for one in columns):
        lines.line((note, "dim"), indent=_INDENT)


# A figure is in the full report only.
_WRITERS: dict[type, Callable[[_Lines, Any], None]] = {
    Paragraph: _paragraph,
    Facts: _facts,
    Findings: _findings,
    Bar: _bar,
    Table: _table,
}


def _rows_shown(table: Table) -> str:
    """How many rows of how many the short form has, and in which order."""
    shown = len(table.of_form(full=False))
    return joined(", ", f"{shown} of {len(table.rows)}" if table.order else "", table.order)
