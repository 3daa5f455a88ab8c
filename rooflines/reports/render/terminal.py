"""The analysis in a terminal: the verdict, where a step goes, which operators could gain, how sure all of it is."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from rooflines.device_specs.marks import MARKS, marks_of
from rooflines.device_specs.records import Ceiling
from rooflines.reports.views.division import division_rows, division_title, input_sentences
from rooflines.reports.views.usage_table import usage_table
from rooflines.reports.words.rows import (
    TableRow,
    bound_text,
    dominant_kernel,
    flagged,
    flagged_rows,
    module_text,
    table_order,
    table_rows,
    table_time,
    table_title,
)
from rooflines.reports.words.sentences import (
    NUMBER_AND_UNIT,
    age_before,
    breakdown_title,
    ceiling_name,
    coverage_sentence,
    device_sentences,
    flag_sentence,
    headline,
    inferred_sentence,
    listed,
    made,
    missing_bounds,
    missing_ceilings,
    missing_findings,
    missing_operators,
    roofs_of_run,
    saving,
    source_and_age,
    status_sentence,
    steps_sentences,
    subject,
)
from rooflines.reports.words.summary import bound_times, operators_summary, step_time
from rooflines.reports.words.text import (
    clip,
    column_scale,
    efficiency_text,
    marked_name,
    shorten_middle,
    shorten_name,
    shorten_path,
    shorten_shapes,
)
from rooflines.reports.words.usage_sentences import usage_remarks, usage_title
from rooflines.roofline.analysis import Analysis
from rooflines.units import binary_bytes, percent, seconds, si, significant

if TYPE_CHECKING:
    from rich.console import Console

Styled: TypeAlias = "str | tuple[str, str]"

_OPERATORS = 10
_FINDINGS = 3
_FLAGS = 3
_WIDEST = 160
# What a column of words keeps when the console is narrow.
_KEPT_WIDTH = {"operator": 16, "kernel": 16, "module": 14, "shapes": 11, "bound": 8, "longest kernel": 28, "ceiling": 12, "for": 6}
# A class is told by its fill and not by a hue, so that a pipe, a log and a grayscale print say the same (palette.py on bound classes).
_FILLS = {
    "compute": ("█", "#"), "memory": ("▓", "="), "latency": ("▒", ":"), "communication": ("╳", "x"), "host": ("░", "."),
    "input": ("▚", "%"), "far": ("◩", "/"), "transfer": ("▞", "\\"), "idle": ("┈", "_"),
    "unknown": ("?", "?"), "unmodelled": ("·", "-"),
}  # fmt: skip
# One character for one character, so that the styles of a line keep their places on a console that cannot show more than ASCII.
_ASCII = str.maketrans("±µ·…×–—−“”’", '~u-~x---""\'')
# Stands for a space at which no line may end (rich breaks at every Unicode space, the no-break one included).
_KEPT = "\ue000"


def print_analysis(analysis: Analysis, console: Console) -> None:
    """Print ``analysis`` on ``console``, in its width; what is missing is said where it would stand."""
    page = _Page(console)
    left_out = {
        _division: not division_rows(analysis) and analysis.input is None,
        _devices: analysis.usage is None,
    }
    for part in (_title, _where_a_step_goes, _division, _findings, _operators, _devices, _ceilings, _confidence):
        if not left_out.get(part):
            part(page, analysis)
            page.line()


class _Page:
    """Writes lines of text in the console's width, and in ASCII where the console can show no more."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.ascii = console.options.ascii_only
        self.width = min(console.width, _WIDEST)

    def line(self, *parts: Styled, indent: int = 0, hang: int | None = None) -> None:
        """One paragraph of text or (text, style), wrapped; the lines after the first start at ``hang``."""
        from rich.text import Text

        hang = indent if hang is None else hang
        text = Text.assemble(*parts)
        text.plain = self._printable(text.plain)
        text.plain = NUMBER_AND_UNIT.sub(_KEPT, text.plain)
        wrapped = text.wrap(self.console, max(20, self.width - max(indent, hang))) if text.plain else [text]
        for number, row in enumerate(wrapped):
            row.rstrip()
            row.plain = row.plain.replace(_KEPT, " ")
            self.console.print(Text(" " * (hang if number else indent)) + row, soft_wrap=True, highlight=False)

    def row(self, *parts: Styled) -> None:
        """One line of a table, which is already as wide as it may be."""
        from rich.text import Text

        text = Text.assemble("  ", *parts)
        text.plain = self._printable(text.plain)
        text.rstrip()
        self.console.print(text, soft_wrap=True, highlight=False)

    def heading(self, title: str, right: str = "") -> None:
        """A title with a remark at the right edge, or below it where there is no room for both."""
        gap = self.width - len(title) - len(right)
        if gap >= 2:
            self.line((title, "bold"), (" " * gap + right, "dim"))
        else:
            self.line((title, "bold"))
            self.line((right, "dim"))

    def fill(self, bound: str) -> str:
        """The character that bars of this bound class are drawn with."""
        return _FILLS.get(bound, _FILLS["unknown"])[self.ascii]

    def _printable(self, text: str) -> str:
        # Names come out of traces that other people made: an escape sequence in one must not reach the terminal.
        text = "".join(character if character.isprintable() or character == _KEPT else " " for character in text)
        if self.ascii:
            text = "".join(character if character.isascii() or character == _KEPT else "?" for character in text.translate(_ASCII))
        return text


def _title(page: _Page, analysis: Analysis) -> None:
    page.heading(subject(analysis), made(analysis))
    status = status_sentence(analysis)
    if status:
        page.line((status, "bold red"))
    page.line()
    page.line((headline(analysis), "bold"), indent=2)


def _where_a_step_goes(page: _Page, analysis: Analysis) -> None:
    whole = step_time(analysis)
    timed = analysis.steps is not None and analysis.division is not None and analysis.division.of == "device"
    of = "traced" if analysis.basis.per == "trace" else "a step" if timed else "a traced step"
    long = f"{seconds(whole)} {of}" if whole > 0 else ""
    page.heading(breakdown_title(analysis), long)
    shares = bound_times(analysis)
    if not shares or whole <= 0:
        page.line(missing_bounds(analysis), indent=2)
        return
    cells = _cells(list(shares.values()), whole, page.width - 2)
    page.row(*(page.fill(name) * count for name, count in zip(shares, cells, strict=True)))
    legend = [f"{page.fill(name)} {name} {percent(value / whole)}" for name, value in shares.items()]
    page.line("   ".join(text.replace(" ", _KEPT) for text in legend), indent=2)
    missing = missing_ceilings(analysis)
    if missing:
        page.line(missing, indent=2)
        return
    operators = operators_summary(analysis)
    lower, headroom = operators.lower_bound_s, operators.headroom_s
    if lower > 0:
        page.line()
        page.heading("Against the bound", "on the same scale")
        solid, light = page.fill("compute"), page.fill("host")
        counts = _cells([lower, max(0.0, headroom)], whole, page.width - 2)
        page.row((solid * counts[0], "green"), (light * counts[1], "dim"))
        page.line((solid, "green"), f" lower bound {seconds(lower)}   ", (light, "dim"), f" headroom {seconds(headroom)}", indent=2)


def _division(page: _Page, analysis: Analysis) -> None:
    rows = division_rows(analysis)
    page.heading(division_title(analysis))
    times = column_scale([row.time_s for row in rows], "s")
    widest = max((len(row.name) for row in rows), default=0)
    room = min(40, page.width - widest - 24)
    for row in rows:
        bar = page.fill("compute") * (max(1, round(row.share * room)) if row.share > 0 and room > 0 else 0)
        page.row(row.name.ljust(widest), f"{row.share * 100:7.1f} %", f"{times.text(row.time_s):>8} {times.unit}  ", (bar, "dim"))
    for sentence in input_sentences(analysis):
        page.line(sentence, indent=2, hang=4)


def _findings(page: _Page, analysis: Analysis) -> None:
    page.heading("Recommendations")
    if not analysis.findings:
        page.line(missing_findings(analysis), indent=2)
    for number, finding in enumerate(analysis.findings[:_FINDINGS], start=1):
        page.line(f"{number}. ", (finding.title, "bold"), f": {saving(finding.saves_s, analysis)}", indent=2, hang=5)
        page.line(finding.evidence, indent=5)
        page.line(("try ", "dim"), (finding.suggestion, "cyan"), indent=5, hang=9)
    more = len(analysis.findings) - _FINDINGS
    if more > 0:
        page.line((f"{more} more in the full report", "dim"), indent=5)


def _operators(page: _Page, analysis: Analysis) -> None:
    missing = missing_operators(analysis)
    if missing:
        page.heading("Operators")
        page.line(missing, indent=2)
        return
    everything = table_rows(analysis)
    rows = everything[:_OPERATORS]
    page.heading(table_title(everything), f"{len(rows)} of {len(everything)}, {table_order(everything)}")
    columns = _fitted(_columns(analysis, rows, everything, page.width), page.width - 2)
    page.row(("  ".join(column.padded(column.title) for column in columns), "dim"))
    page.row(("  ".join(column.padded(column.unit) for column in columns), "dim"))
    for index, one in enumerate(rows):
        parts: list[Styled] = []
        for column in columns:
            style = "bold red" if flagged(one) and column.title == "eff." else column.style
            parts += [(column.padded(column.cells[index]), style), "  "]
        page.row(*parts)
    page.row(("  ".join(column.padded(column.total) for column in columns), "bold"))
    # An efficiency above 1 has no headroom, so a flagged operator is rarely among the ten; the flag is for every reader all the same.
    wrong = flagged_rows(analysis)
    for one in wrong[:_FLAGS]:
        page.line(("! ", "bold red"), flag_sentence(one), indent=2, hang=4)
    if len(wrong) > _FLAGS:
        page.line((f"{len(wrong) - _FLAGS} more are flagged in the full report", "dim"), indent=4)
    inferred = inferred_sentence(analysis)
    if inferred:
        page.line((inferred, "dim"), indent=2, hang=4)


def _devices(page: _Page, analysis: Analysis) -> None:
    page.heading(usage_title(analysis))
    table = usage_table(analysis)
    if table is not None:
        columns = [_numbers(title, unit, [row[index] for row in table.rows]) for index, (title, unit) in enumerate(table.columns)]
        columns[0] = columns[0]._replace(cut=shorten_middle)
        while sum(column.width + 2 for column in columns) > page.width and len(columns) > 2:
            columns.pop()
        page.row(("  ".join(column.padded(column.title) for column in columns), "dim"))
        page.row(("  ".join(column.padded(column.unit) for column in columns), "dim"))
        for index in range(len(table.rows)):
            page.row("  ".join(column.padded(column.cells[index]) for column in columns))
    for text in usage_remarks(analysis):
        page.line(text, indent=2, hang=4)


def _ceilings(page: _Page, analysis: Analysis) -> None:
    roofs = roofs_of_run(analysis)
    if not roofs:
        page.heading("Ceilings")
        page.line(missing_ceilings(analysis) or "None of this device's ceilings judges an operator of this run.", indent=2)
        return
    more = len(analysis.ceilings) - len(roofs)
    page.heading("Ceilings used", f"{more} more in the full report" if more else "")
    columns = [
        _words("ceiling", [ceiling_name(roof) for roof in roofs], shorten_middle),
        _numbers("value", "", [si(roof.value, roof.unit) for roof in roofs]),
        _numbers("±", "%", [_spread(roof) for roof in roofs]),
        _words("source", [_source(roof, analysis) for roof in roofs], shorten_middle),
        _words("for", [_holds_for(roof) for roof in roofs], clip, style="dim"),
    ]
    columns = _fitted(columns[: None if page.width >= 72 else -1], page.width - 2)
    page.row(("  ".join(column.padded(column.title) for column in columns), "dim"))
    for index, roof in enumerate(roofs):
        parts: list[Styled] = []
        for column in columns:
            style = "bold red" if marks_of(roof) and column.title == "±" else column.style
            parts += [(column.padded(column.cells[index]), style), "  "]
        page.row(*parts)
    for word, why in MARKS.items():
        names = [ceiling_name(roof) for roof in roofs if word in marks_of(roof)]
        if names:
            page.line(("! ", "bold red"), f"{word}: {listed(names)}: {why}", indent=2, hang=4)


def _source(roof: Ceiling, analysis: Analysis) -> str:
    """The source with its age where it has one, else with its date: the table has no room for both."""
    older = age_before(roof.source.date, analysis.created) if roof.source.kind == "measured" else ""
    return f"{roof.source.kind} {older}" if older else source_and_age(roof, analysis.created)


def _spread(roof: Ceiling) -> str:
    return "–" if roof.spread is None else f"{'!' if marks_of(roof) else ''}{roof.spread * 100:.1f}"


def _holds_for(roof: Ceiling) -> str:
    if roof.kind == "compute":
        sums = f", sums in {roof.accumulate}" if roof.accumulate and roof.accumulate != roof.precision else ""
        return f"{roof.precision} {roof.engine}{sums}"
    return f"up to {binary_bytes(roof.capacity_bytes)}" if roof.capacity_bytes else ""


def _confidence(page: _Page, analysis: Analysis) -> None:
    page.heading("Measurement quality")
    for text in (*device_sentences(analysis), *steps_sentences(analysis), coverage_sentence(analysis), *analysis.notes):
        if text:
            page.line(text, indent=2, hang=4)


class _Column(NamedTuple):
    """One column of the operator table; ``cut`` shortens its words, and a column that has none is never narrowed."""

    title: str
    unit: str
    cells: Sequence[str]
    total: str
    width: int
    cut: Callable[[str, int], str] | None = None
    style: str = ""

    def padded(self, text: str) -> str:
        if self.cut is None:
            return text.rjust(self.width)
        return self.cut(text, self.width).ljust(self.width)


def _columns(analysis: Analysis, rows: Sequence[TableRow], everything: Sequence[TableRow], width: int) -> list[_Column]:
    whole = step_time(analysis) or math.nan
    judged = operators_summary(analysis)
    time_s = table_time(analysis, everything)
    reached = "" if judged.efficiency is None else efficiency_text(judged.efficiency)
    sums = [one.row for one in rows]
    times, rates = column_scale([row.time_s for row in sums], "s"), column_scale([row.flop_per_s for row in sums], "FLOP/s")
    headroom = column_scale([row.headroom_s for row in sums], "s")
    gained = headroom.text(judged.headroom_s) if judged.is_judged else ""
    columns = [
        _numbers("time", "%", [f"{row.time_s / whole * 100:.1f}" for row in sums], f"{time_s / whole * 100:.1f}"),
        _words(
            table_title(everything).lower().removesuffix("s"),
            [marked_name(row) for row in sums],
            shorten_name,
            f"all {len(everything)}",
        ),
        _words("module", [module_text(one) for one in rows], shorten_path),
        _words("shapes", [row.shapes for row in sums], shorten_shapes, style="dim"),
        _numbers("calls", "", [f"{row.calls:.4g}" for row in sums]),
        _numbers("time", times.unit, [times.text(row.time_s) for row in sums], times.text(time_s)),
        _numbers("rate", rates.unit, [rates.text(row.flop_per_s) for row in sums]),
        _numbers("intensity", "FLOP/byte", [_or_dash(row.intensity_flop_per_byte) for row in sums]),
        _numbers("eff.", "%", [efficiency_text(row.efficiency) for row in sums], reached),
        _words("bound", [bound_text(one) for one in rows], clip),
        _numbers("headroom", headroom.unit, [headroom.text(row.headroom_s) for row in sums], gained),
        _words("longest kernel", [dominant_kernel(row) for row in sums], shorten_middle, style="dim"),
    ]
    # Columns that have to wait for room, by their place above: module, shapes, calls, time, rate, intensity, bound, kernel.
    from_width = {2: 58, 3: 76, 4: 100, 5: 100, 6: 120, 7: 120, 9: 68, 11: 140}
    # What no row has leaves its room to the others.
    empty = [index for index in (3, 6, 7, 8, 10, 11) if not any(text.strip("–") for text in columns[index].cells)]
    from_width |= {4: 70, 5: 70} if 3 in empty else {}
    from_width |= dict.fromkeys(empty, _WIDEST + 1)
    return [column for index, column in enumerate(columns) if width >= from_width.get(index, 0)]


def _numbers(title: str, unit: str, cells: Sequence[str], total: str = "") -> _Column:
    return _Column(title, unit, cells, total, max(len(text) for text in (title, unit, total, *cells)))


def _words(title: str, cells: Sequence[str], cut: Callable[[str, int], str], total: str = "", style: str = "") -> _Column:
    return _Column(title, "", cells, total, max(len(text) for text in (title, total, *cells)), cut, style)


def _fitted(columns: list[_Column], width: int) -> list[_Column]:
    """The columns narrowed to ``width`` together: the widest column of words gives way first, a name after the others."""
    while sum(column.width for column in columns) + 2 * (len(columns) - 1) > width:
        spare = [column.width - _KEPT_WIDTH.get(column.title, column.width) for column in columns]
        if max(spare) <= 0:
            break
        index = spare.index(max(spare))
        columns[index] = columns[index]._replace(width=columns[index].width - 1)
    return columns


def _cells(values: Sequence[float], whole: float, width: int) -> list[int]:
    """How many of ``width`` characters each value gets: their sum is right to half a character, and nothing is drawn as nothing."""
    edges, counts = 0.0, []
    for value in values:
        start = round(edges / whole * width)
        edges += value
        counts.append(max(round(edges / whole * width) - start, int(value > 0)))
    while sum(counts) > width:
        counts[counts.index(max(counts))] -= 1
    return counts


def _or_dash(value: float | None) -> str:
    return "–" if value is None else significant(value)
