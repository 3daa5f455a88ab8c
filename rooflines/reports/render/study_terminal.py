"""The report of a study in a terminal: the verdict, what the data is, the main tables, what did not run; 80 columns are enough."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rooflines.reports.document import Page, Table

if TYPE_CHECKING:
    from rich.console import Console

_WIDEST = 100
_GAP = 2
# One character for one character, for a console that can show no more than ASCII.
_ASCII = str.maketrans("±µ·…×–—²", "~u-~x--2")


def print_page(page: Page, console: Console) -> None:
    """Print ``page`` on ``console``, in its width."""
    _say(console, f"{page.title} · {page.machine}", style="bold")
    if page.status:
        _say(console, page.status, style="bold")
    _say(console, page.data_label, hang="  ")
    console.print()
    _say(console, page.verdict, style="bold")
    for sentence in page.findings:
        _say(console, sentence, hang="  ", first="- ")
    for table in page.tables():
        if table.in_terminal and table.rows:
            console.print()
            _table(table, console)
    if page.missing:
        console.print()
        _say(console, "did not run, or not to the end", style="bold")
        for backend, reason in page.missing:
            _say(console, f"{backend}: {reason}", hang="    ", first="  ")


def _table(table: Table, console: Console) -> None:
    from rich.text import Text

    _say(console, table.title, style="bold")
    rows = [
        tuple(column.title for column in table.columns),
        tuple(column.unit for column in table.columns),
        *(row.cells for row in table.rows),
    ]
    widths = [max(len(row[index]) for row in rows) for index in range(len(table.columns))]
    room = min(console.width, _WIDEST) - sum(widths[1:]) - _GAP * (len(widths) - 1)
    widths[0] = max(8, min(widths[0], room))
    muted = {index + 2 for index, row in enumerate(table.rows) if row.muted}
    for number, row in enumerate(rows):
        if number == 1 and not any(row):
            continue
        cells = [
            cell[: width - 1] + "…" if len(cell) > width else cell.rjust(width) if column.numeric else cell.ljust(width)
            for cell, width, column in zip(row, widths, table.columns, strict=True)
        ]
        line = _printable(console, (" " * _GAP).join(cells).rstrip())
        console.print(Text(line, style="dim" if number < 2 or number in muted else ""), soft_wrap=True, highlight=False)
    if table.note:
        _say(console, table.note, style="dim")


def _say(console: Console, text: str, *, style: str = "", hang: str = "", first: str = "") -> None:
    """A paragraph in the console's width; the lines after the first begin with ``hang``."""
    from rich.text import Text

    width = min(console.width, _WIDEST) - max(len(hang), len(first))
    for number, line in enumerate(Text(_printable(console, text)).wrap(console, max(20, width))):
        line.rstrip()
        line.stylize(style)
        console.print(Text(hang if number else first) + line, soft_wrap=True, highlight=False)


def _printable(console: Console, text: str) -> str:
    return text.translate(_ASCII).encode("ascii", "replace").decode() if console.options.ascii_only else text
