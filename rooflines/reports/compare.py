"""A comparison in a terminal and as CSV: the sentence, what got slower, faster, is new or gone, and what the difference is made of."""

from __future__ import annotations

import csv
import io
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from rooflines.reports.chart import clip, short_name
from rooflines.reports.sentences import subject
from rooflines.reports.tables import Scale, column_scale, inert, shorten_name, shorten_path, shorten_shapes
from rooflines.roofline.analysis import Analysis
from rooflines.roofline.comparison.compare import count_of_calls, signed_seconds
from rooflines.roofline.comparison.records import Change, Comparison, Figures, Subject
from rooflines.units import percent, significant

if TYPE_CHECKING:
    from rich.console import Console

By = Literal["operator", "module"]
# In the order of the page.
_GROUPS = {"slower": "Slower", "faster": "Faster", "new": "New", "gone": "Gone"}
_WIDEST = 120
_MOST_DECIMALS = 4
# What names keep on a console that is too narrow for the table.
_LEAST_NAMES = 20
_ASCII = str.maketrans("±µ·…×–—−“”’→", '~u-~x---""\'>')


def print_comparison(comparison: Comparison, by: By, top: int, console: Console) -> None:
    """Print ``comparison`` in the console's width, at most ``top`` rows of a kind."""
    page = _Page(console)
    for letter, side in (("A", comparison.a), ("B", comparison.b)):
        page.line(f"{letter}  {side.source}", hang=3)
        page.line(_subject(side), style="dim", indent=3)
    if comparison.differs:
        page.line("differs: " + "; ".join(f"{fact.name} {fact.before} → {fact.after}" for fact in comparison.differs), hang=9)
    if comparison.unlike:
        page.line(
            f"Compared all the same: {', '.join(fact.name for fact in comparison.unlike)} make these times say little.",
            style="bold red",
        )
    page.line()
    page.line(comparison.verdict, style="bold")
    rows = comparison.modules if by == "module" else [row for row in comparison.rows if row.kind in ("operator", "unmodelled")]
    if rows:
        page.line()
        _table(page, rows, by, top)
    elif comparison.rows:
        page.line()
        page.line("The traces hold no modules." if by == "module" else "The traces hold no operators.")
    if by == "operator" and comparison.rows:
        page.line()
        _sum(page, comparison)
    if comparison.notes:
        page.line()
    for note in comparison.notes:
        page.line(f"{note[:1].upper()}{note[1:]}.", style="dim")


class _Page:
    """Writes lines in the console's width, and in ASCII where it can show no more."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.ascii = console.options.ascii_only
        self.width = min(console.width, _WIDEST)

    def line(self, text: str = "", *, style: str = "", indent: int = 0, hang: int = 0) -> None:
        """A paragraph, wrapped; the lines after the first start at ``hang``."""
        rows = textwrap.wrap(self._printable(text), self.width, initial_indent=" " * indent, subsequent_indent=" " * max(indent, hang))
        for row in rows or [""]:
            self.row(row, style)

    def row(self, text: str, style: str = "") -> None:
        """One line that fits already."""
        from rich.text import Text

        self.console.print(Text(self._printable(text).rstrip(), style=style), soft_wrap=True, highlight=False)

    def _printable(self, text: str) -> str:
        # An escape sequence in a name must not reach the terminal.
        text = "".join(character if character.isprintable() else " " for character in text)
        if self.ascii:
            text = "".join(character if character.isascii() else "?" for character in text.translate(_ASCII))
        return text


def _subject(side: Subject) -> str:
    """What ran, where and when."""
    words = subject(Analysis(workload=side.workload, environment=side.environment))
    return " · ".join(
        part for part in (words, f"torch {side.environment.torch}" if side.environment.torch else "", side.created[:10]) if part
    )


class _Columns(NamedTuple):
    """The widths of a table: the name and the module share what the numbers leave."""

    name: int
    module: int
    time: int
    change: int
    ratio: int
    times: Scale

    def row(self, name: str, module: str, before: str, after: str, change: str, ratio: str) -> str:
        cells = [f"{name:{self.name}}"]
        if self.module:
            cells.append(f"{module:{self.module}}")
        cells += [f"{before:>{self.time}}", f"{after:>{self.time}}", f"{change:>{self.change}}", f"{ratio:>{self.ratio}}"]
        return "  ".join(cells)


def _table(page: _Page, rows: Sequence[Change], by: By, top: int) -> None:
    shown = [row for name in _GROUPS for row in _group(rows, name)[:top]]
    columns = _columns(page, shown, by)
    unit = columns.times.unit
    page.row(columns.row(by, "class" if by == "module" else "module", "A", "B", "change", "ratio"), "dim")
    page.row(columns.row("", "", unit, unit, unit, ""), "dim")
    for name, title in _GROUPS.items():
        group = _group(rows, name)
        if not group:
            continue
        remark = f", with all that runs below {'them' if len(group) > 1 else 'it'}" if by == "module" else ""
        # Modules lie within each other: their sum says nothing.
        total = "" if by == "module" else f", {signed_seconds(sum(row.difference_s for row in group))}"
        page.row(f"{title}: {len(group)} {by}{'s' if len(group) > 1 else ''}{total}{remark}", "bold")
        for row in group[:top]:
            page.row(_row(row, columns, by))
            detail = _detail(row)
            if detail:
                page.row("    " + clip(detail, page.width - 4), "dim")
        if len(group) > top:
            page.row(f"    and {len(group) - top} more (--top {len(group)} shows all)", "dim")
    same = sum(row.direction == "same" for row in rows)
    if same:
        page.row(f"{same} {by}{'s take' if same > 1 else ' takes'} exactly the same time", "dim")


def _group(rows: Sequence[Change], direction: str) -> list[Change]:
    return [row for row in rows if row.direction == direction]


def _columns(page: _Page, rows: Sequence[Change], by: By) -> _Columns:
    times = _scale(rows)
    texts = [_times(row, times) for row in rows]
    time = max(len("A"), len(times.unit), *(len(text) for row in texts for text in row[:2])) if texts else 6
    change = max(len("change"), *(len(row[2]) for row in texts)) if texts else 6
    ratio = max(len("ratio"), *(len(row[3]) for row in texts)) if texts else 5
    room = max(_LEAST_NAMES, page.width - 2 * time - change - ratio - 2 * 4)
    first, second = max([len(by), *(len(_first(row, by)) for row in rows)]), max([0, *(len(_second(row, by)) for row in rows)])
    if not second:
        return _Columns(min(first, room), 0, time, change, ratio, times)
    second = max(second, len("module"))
    room -= 2
    name = min(first, max(room // 2, room - second))
    return _Columns(name, min(second, room - name), time, change, ratio, times)


def _scale(rows: Sequence[Change]) -> Scale:
    """One unit for all times, with as many decimals as three figures of the largest difference take."""
    times = column_scale([side.time_s for row in rows for side in (row.before, row.after) if side is not None], "s")
    largest = max((abs(row.difference_s) for row in rows), default=0.0) / times.factor
    decimals = len(significant(largest).partition(".")[2]) if largest else times.decimals
    return times._replace(decimals=min(max(decimals, times.decimals), _MOST_DECIMALS))


def _times(row: Change, times: Scale) -> tuple[str, str, str, str]:
    before, after = (times.text(side.time_s) if side is not None else "–" for side in (row.before, row.after))
    size = f"{abs(row.difference_s) / times.factor:.{times.decimals}f}"
    sign = "+" if row.difference_s > 0 else "−" if row.difference_s < 0 else ""
    return before, after, f"{sign}{size}", "–" if row.ratio is None else f"{significant(row.ratio)}"


def _row(row: Change, columns: _Columns, by: By) -> str:
    shorten = shorten_path if by == "module" else shorten_name
    return columns.row(
        shorten(_first(row, by), columns.name),
        shorten_path(_second(row, by), columns.module) if columns.module else "",
        *_times(row, columns.times),
    )


def _first(row: Change, by: By) -> str:
    return _side(row).module or "(all)" if by == "module" else short_name(row.name)


def _second(row: Change, by: By) -> str:
    if by == "module":
        return row.name
    side = _side(row)
    return side.module or (f"({side.phase})" if side.phase else "(no count)" if row.kind == "unmodelled" else "")


def _side(row: Change) -> Figures:
    side = row.after or row.before
    assert side is not None
    return side


def _detail(row: Change) -> str:
    """Why, how well before and after, and which shapes."""
    before, after = row.before, row.after
    parts = [row.cause]
    if before is not None and after is not None and before.efficiency is not None and after.efficiency is not None:
        parts.append(f"efficiency {percent(before.efficiency)} → {percent(after.efficiency)}")
    one = _side(row)
    if before is None or after is None:
        parts.append(count_of_calls(one.calls) if one.calls else "")
        parts.append(one.reason or "")
    shapes = [shorten_shapes(side.shapes, 40) for side in (before, after) if side is not None and side.shapes]
    parts.append(" → ".join(dict.fromkeys(shapes)))
    return "; ".join(part for part in parts if part)


def _sum(page: _Page, comparison: Comparison) -> None:
    """The differences of all rows, which sum to that of the spans."""
    lines = []
    for name, title in _GROUPS.items():
        group = [row for row in comparison.rows if row.kind in ("operator", "unmodelled") and row.direction == name]
        if group:
            lines.append((f"{title.lower()} ({len(group)})", sum(row.difference_s for row in group), ""))
    for row in comparison.rows:
        if row.kind in ("idle", "overlap"):
            why = "what ran beside other work" if row.kind == "overlap" else row.cause
            lines.append((row.kind, row.difference_s, why))
    lines.append(("together", comparison.span_difference_s or 0.0, "the step" if comparison.basis == "step" else "the trace"))
    page.row("What the difference is made of", "bold")
    named, valued = max(len(name) for name, *_ in lines), max(len(signed_seconds(value)) for _, value, _ in lines)
    for name, value, why in lines:
        page.row(clip(f"  {name:{named}}  {signed_seconds(value):>{valued}}  {why}", page.width), "bold" if name == "together" else "")


def comparison_csv(comparisons: Sequence[Comparison], by: By) -> str:
    """The rows of all comparisons as CSV text: what they were compared with, the change, and the figures of both sides.

    A cell of text that a spreadsheet would run as a formula gets a leading apostrophe.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    facts = [info.name for info in msgspec.structs.fields(Change) if info.name not in ("before", "after")]
    figures = [info.name for info in msgspec.structs.fields(Figures)]
    writer.writerow(["a", "b", *facts, *(f"{side}_{name}" for side in ("before", "after") for name in figures)])
    for comparison in comparisons:
        for row in comparison.modules if by == "module" else comparison.rows:
            cells = [comparison.a.source, comparison.b.source, *(getattr(row, name) for name in facts)]
            for side in (row.before, row.after):
                cells += [None if side is None else getattr(side, name) for name in figures]
            writer.writerow([inert(cell) if isinstance(cell, str) else "" if cell is None else cell for cell in cells])
    return out.getvalue()
