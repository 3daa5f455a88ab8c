"""The lines of the user's program, each with the time of what runs for it."""

from __future__ import annotations

import os
from urllib.parse import quote

from rooflines.reports.charts.palette import bound_style
from rooflines.reports.document import SHARE, TIME, Cell, Column, Row, Table, table
from rooflines.reports.words.rows import known_share
from rooflines.reports.words.text import clip, shorten_name
from rooflines.roofline.analysis import Analysis, LineRow
from rooflines.units import percent, si

_SHOWN, _BRIEF, _PRINTED, _NAMED, _NAME, _SOURCE = 15, 5, 25, 2, 28, 56
_NOTE = (
    "A line has the time of the operators that it calls, forward and backward; a line of a loop has all of "
    "its turns. A kernel that torch.compile fused from several lines is divided equally among them."
)
_FUNCTIONS = (
    "A line has the time of the operators that its function calls, forward and backward: the trace says "
    "which function ran, not which of its lines; rooflines profile records these."
)


def line_table(analysis: Analysis) -> Table | None:
    """The lines, longest first; None without any."""
    if not analysis.lines:
        return None
    most_s = max(row.time_s for row in analysis.lines) or 1.0
    rest_s = sum(row.time_s for row in analysis.rows) - sum(row.time_s for row in analysis.lines)
    functions = any(row.is_function for row in analysis.lines)
    note = _FUNCTIONS if functions else _NOTE
    if (left := known_share(rest_s, analysis)) and left >= 0.01:
        note += f" No line is known for {percent(left)} of the {analysis.basis.per}."
    columns = (
        SHARE,
        Column("line", format="middle", key="place", least=24),
        Column("function" if functions else "source", format="text", least=20, priority=1),
        TIME,
        Column("headroom", "s", "scaled", priority=2),
        Column("class", format="text", least=11, priority=3),
        Column("work", "FLOP", "scaled", priority=5),
        Column("operators", format="text", least=20, priority=4, quiet=True),
    )
    return table(
        "lines",
        columns,
        (
            Row(
                (
                    Cell(value=known_share(row.time_s, analysis), bar=row.time_s / most_s),
                    Cell(value=row.place, hover=f"{row.path}:{row.line}", link=_link(row)),
                    Cell(value=clip(said, _SOURCE), hover=said),
                    row.time_s,
                    row.headroom_s,
                    Cell(value=row.bound, letter=bound_style(row.bound).letter),
                    Cell(value=row.flops, hover=si(row.flops, "FLOP")),
                    _named(row),
                )
            )
            for row in analysis.lines
            for said in [row.function if functions else row.text]
        ),
        "Lines of the program by time",
        note=note,
        first=_SHOWN,
        brief=_BRIEF,
        printed=_PRINTED,
        show="always",
    )


def _link(row: LineRow) -> str:
    """What opens the line in an editor (Visual Studio Code and those made of it)."""
    path = quote(row.path.lstrip("/"), safe="/:")
    return f"vscode://file/{path}:{row.line}" if os.path.isabs(row.path) else ""


def _named(row: LineRow) -> str:
    more = len(row.operators) - _NAMED
    names = [shorten_name(name.removeprefix("aten::"), _NAME) for name in row.operators[:_NAMED]]
    return ", ".join(names) + (f" and {more} more" if more > 0 else "")
