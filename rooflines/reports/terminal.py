"""The analysis in a terminal: the verdict, where a step goes, which operators could gain, how sure all of it is.

The words that other reports share (the subject line, the sentences on coverage and step times) are here as well, because here they are
nothing but words.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from rooflines.device_specs.records import Ceiling, Ceilings
from rooflines.reports.tables import (
    column_scale,
    efficiency_text,
    operator_module,
    operator_name,
    operators_by_headroom,
    shorten_middle,
    shorten_name,
    shorten_path,
    shorten_shapes,
    step_time,
)
from rooflines.roofline.analysis import Analysis, OperatorRow
from rooflines.units import percent, seconds, si, significant

if TYPE_CHECKING:
    from rich.console import Console

Styled: TypeAlias = "str | tuple[str, str]"

_OPERATORS = 10
_FINDINGS = 3
_FLAGS = 3
_WIDEST = 160
# What a column of words keeps when the console is narrow.
_KEPT_WIDTH = {"operator": 16, "module": 13, "shapes": 11, "bound": 5}
# A class is told by its fill and not by a hue, so that a pipe, a log and a grayscale print say the same (palette.py on bound classes).
_FILLS = {
    "compute": ("█", "#"), "memory": ("▓", "="), "latency": ("▒", ":"), "communication": ("╳", "x"), "host": ("░", "."),
    "unknown": ("?", "?"), "unmodelled": ("·", "-"),
}  # fmt: skip
# One character for one character, so that the styles of a line keep their places on a console that cannot show more than ASCII.
_ASCII = str.maketrans("±µ·…×–—−“”’", '~u-~x---""\'')
# Stands for a space at which no line may end (rich breaks at every Unicode space, the no-break one included).
_KEPT = "\ue000"
# A space between a number and its unit, at which no line should end.
NUMBER_AND_UNIT = re.compile(r"(?<=\d) (?=(?:%|[mµn]?s|min|[kMGTP]?(?:FLOP|OP|B)/s|[KMGTP]?i?B)(?:\W|$))")


def print_analysis(analysis: Analysis, console: Console) -> None:
    """Print ``analysis`` on ``console``, in its width; what is missing is said where it would stand."""
    page = _Page(console)
    for part in (_title, _where_a_step_goes, _findings, _operators, _confidence):
        part(page, analysis)
        page.line()


def subject(analysis: Analysis) -> str:
    """What was run, in one line: ``resnet50 · training · batch 4 · fp32 · SGD · 2-core AMD EPYC (Zen 5)``."""
    workload, environment = analysis.workload, analysis.environment
    device = environment.device_name
    if environment.device.startswith("cpu") and environment.cpu_cores:
        device = f"{environment.cpu_cores}-core {device}"
    parts = [workload.name, workload.mode]
    if workload.batch_size is not None:
        parts.append(f"batch {workload.batch_size}")
    parts += [workload.precision, "compiled" if workload.compiled else "", "channels last" if workload.channels_last else "", device]
    return " · ".join(part for part in parts if part)


def status_sentence(analysis: Analysis) -> str | None:
    """What to know before reading on: that the run did not end. None for a complete run."""
    return {
        "interrupted": "This run was interrupted: what follows covers the steps that were done.",
        "failed": "This run failed: what follows covers the steps that were done before the error.",
        "running": "This run has not ended, or was killed: what follows covers what it had written.",
    }.get(analysis.status)


def per(analysis: Analysis) -> str:
    """What a time is per, to be put behind it: ``a step`` or ``in the trace``."""
    return "a step" if analysis.basis.per == "step" else "in the trace"


def missing_operators(analysis: Analysis) -> str | None:
    """Why there is no operator table, or None when there is one."""
    if analysis.operators:
        return None
    return "No operators: this run has no trace" + (
        ", because it ended before its traced pass." if analysis.status != "complete" else "; profile it again to record one."
    )


def missing_ceilings(analysis: Analysis) -> str | None:
    """Why nothing is judged against a roof, or None when something is."""
    if analysis.ceilings:
        return None
    return "No ceilings are known for this device, so no bound, efficiency or headroom is given."


def missing_findings(analysis: Analysis) -> str:
    """Why there is no advice: because nothing stands out, or because nothing could be judged."""
    if any(row.headroom_s is not None for row in analysis.operators):
        return "Nothing stands out: no single change is expected to save a noticeable part of the time."
    return "No advice: without operators and ceilings to judge them by, nothing says what could be gained."


def coverage_sentence(analysis: Analysis) -> str | None:
    """How much of the operator time has a count, and what has none: None when nothing was traced."""
    coverage = analysis.coverage
    if coverage is None or coverage.modelled_time_fraction is None:
        return None
    # 99.96 % must not be printed as "100 %" beside a list of what is missing.
    fraction = min(coverage.modelled_time_fraction, 0.999) if coverage.unmodelled else coverage.modelled_time_fraction
    text = f"{percent(fraction, 1)} of operator time has a count"
    if not coverage.unmodelled:
        return f"{text}; nothing is left out." if fraction < 0.9995 else "All of the operator time has a count."
    named = [f"{item.name} ({seconds(item.time_s)}, {item.reason})" for item in coverage.unmodelled[:3]]
    more = len(coverage.unmodelled) - len(named)
    return f"{text}; not modelled: {', '.join(named)}{f' and {more} more' if more else ''}."


def steps_sentences(analysis: Analysis) -> list[str]:
    """The step times, how sure they are, and what the profiler cost."""
    steps = analysis.steps
    if steps is None:
        return ["Step times were not measured: there was no timed pass, and times under the profiler are too long to stand for them."]
    rate = f"{significant(steps.samples_per_s)} {analysis.workload.unit}/s" if steps.samples_per_s is not None else ""
    low, high = steps.ci95_s
    texts = [
        f"{seconds(steps.median_s)} a step{f' ({rate})' if rate else ''}: median of {steps.count} with the profiler off, "
        f"95 % interval {seconds(low)} to {seconds(high)}, 10th to 90th percentile {seconds(steps.p10_s)} to {seconds(steps.p90_s)}."
    ]
    if steps.rule or steps.warmup_count:
        # A rule that tells the count itself is not told it again.
        counted = "Warm-up" if "warm-up" in steps.rule else f"{steps.warmup_count} warm-up steps"
        texts.append(f"{counted}: {steps.rule}." if steps.rule else f"{counted} before them.")
    if steps.profiler_dilation is not None:
        slower = steps.profiler_dilation - 1
        pace = f"{percent(abs(slower))} {'slower' if slower >= 0 else 'faster'} than" if abs(slower) >= 0.005 else "as fast as"
        # A profiler does not make anything faster: a tenth is more than chance.
        doubt = "; something else slowed the machine down while the steps were timed" if slower < -0.1 else ""
        texts.append(f"Under the profiler steps ran {pace} the timed ones{doubt}. The traced steps only divide the time.")
    return texts


def headline(analysis: Analysis) -> str:
    """The verdict; where nobody could give one, what is known instead."""
    if analysis.verdict:
        return analysis.verdict
    return steps_sentences(analysis)[0] if analysis.steps else "No verdict: this run has no step times."


def saving(saves_s: float, analysis: Analysis) -> str:
    """What a finding could save: ``up to 21.0 ms a step (26 %)``."""
    whole = step_time(analysis)
    share = f" ({percent(saves_s / whole)})" if whole > 0 else ""
    return f"up to {seconds(saves_s)} {per(analysis)}{share}"


def roofs_sentence(analysis: Analysis) -> str | None:
    """The roofs that judge this workload, each with its source; None when there are none."""
    # A precision that a hundredth of the time is spent in is worth a roof here; a counter in fp64 is not.
    time_of: dict[str, float] = {}
    for row in analysis.operators:
        if row.precision and row.flops:
            time_of[row.precision] = time_of.get(row.precision, 0.0) + row.time_s
    used = [name for name in sorted(time_of, key=lambda name: -time_of[name]) if time_of[name] >= 0.01 * sum(time_of.values())]
    device = Ceilings(device=analysis.environment.device_name, kind=analysis.environment.device, ceilings=analysis.ceilings)
    candidates = [device.compute(precision, "matrix") for precision in used] + [device.outermost_memory()]
    roofs = [f"{roof.name} {si(roof.value, roof.unit)} ({source_words(roof)})" for roof in candidates if roof]
    return f"Judged against {', '.join(roofs)}." if roofs else None


def source_words(roof: Ceiling) -> str:
    """How sure a ceiling is: ``measured 2026-11-20, ±0.4 %``, ``from the data sheet, not measured``."""
    source = roof.source
    if source.kind == "measured":
        return f"measured{f' {source.date}' if source.date else ''}{f', ±{percent(roof.spread, 1)}' if roof.spread is not None else ''}"
    return {
        "spec": "from the data sheet, not measured",
        "derived": "derived from cores, clock and vector width, not measured",
        "user": "given by the user",
    }[source.kind]


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
    made = " · ".join(part for part in (analysis.created[:10], f"rooflines {analysis.environment.rooflines}") if part.strip())
    page.heading(subject(analysis), made)
    status = status_sentence(analysis)
    if status:
        page.line((status, "bold red"))
    page.line()
    page.line((headline(analysis), "bold"), indent=2)


def _where_a_step_goes(page: _Page, analysis: Analysis) -> None:
    whole = step_time(analysis)
    a_step = analysis.basis.per == "step"
    long = f"{seconds(whole)} {'a traced step' if a_step else 'traced'}" if whole > 0 else ""
    page.heading("Where a step goes" if a_step else "Where the time goes", long)
    shares = {name: value for name, value in (analysis.bound_breakdown or {}).items() if value > 0}
    if not shares or whole <= 0:
        page.line(missing_operators(analysis) or "The time could not be divided into bound classes.", indent=2)
        return
    cells = _cells(list(shares.values()), whole, page.width - 2)
    page.row(*(page.fill(name) * count for name, count in zip(shares, cells, strict=True)))
    legend = [f"{page.fill(name)} {name} {percent(value / whole)}" for name, value in shares.items()]
    page.line("   ".join(text.replace(" ", _KEPT) for text in legend), indent=2)
    missing = missing_ceilings(analysis)
    if missing:
        page.line(missing, indent=2)
        return
    lower = sum(row.lower_bound_s for row in analysis.operators if row.lower_bound_s is not None)
    headroom = sum(row.headroom_s for row in analysis.operators if row.headroom_s is not None)
    if lower > 0:
        page.line()
        page.heading("Against the bound", "on the same scale")
        solid, light = page.fill("compute"), page.fill("host")
        counts = _cells([lower, max(0.0, headroom)], whole, page.width - 2)
        page.row((solid * counts[0], "green"), (light * counts[1], "dim"))
        page.line((solid, "green"), f" lower bound {seconds(lower)}   ", (light, "dim"), f" headroom {seconds(headroom)}", indent=2)


def _findings(page: _Page, analysis: Analysis) -> None:
    page.heading("What to try")
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
    rows = operators_by_headroom(analysis)[:_OPERATORS]
    missing = missing_operators(analysis)
    if missing:
        page.heading("Operators")
        page.line(missing, indent=2)
        return
    judged = any(row.headroom_s is not None for row in rows)
    page.heading("Operators", f"{len(rows)} of {len(analysis.operators)}, {'most headroom first' if judged else 'longest first'}")
    columns = _fitted(_columns(analysis, rows, page.width), page.width - 2)
    page.row(("  ".join(column.padded(column.title) for column in columns), "dim"))
    page.row(("  ".join(column.padded(column.unit) for column in columns), "dim"))
    for index, row in enumerate(rows):
        parts: list[Styled] = []
        for column in columns:
            style = "bold red" if row.flag and column.title == "eff." else column.style
            parts += [(column.padded(column.cells[index]), style), "  "]
        page.row(*parts)
    page.row(("  ".join(column.padded(column.total) for column in columns), "bold"))
    # An efficiency above 1 has no headroom, so a flagged operator is rarely among the ten; the flag is for every reader all the same.
    flagged = sorted((row for row in analysis.operators if row.flag), key=lambda row: -row.time_s)
    for row in flagged[:_FLAGS]:
        reached = f" reaches {percent(row.efficiency)} of its bound" if row.efficiency is not None else ""
        where = f" in {operator_module(row)}" if operator_module(row) else ""
        page.line(("! ", "bold red"), f"{operator_name(row)}{where}{reached}: {row.flag}", indent=2, hang=4)
    if len(flagged) > _FLAGS:
        page.line((f"{len(flagged) - _FLAGS} more are flagged in the full report", "dim"), indent=4)


def _confidence(page: _Page, analysis: Analysis) -> None:
    page.heading("How sure")
    for text in (*steps_sentences(analysis), coverage_sentence(analysis), roofs_sentence(analysis), *analysis.notes):
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


def _columns(analysis: Analysis, rows: Sequence[OperatorRow], width: int) -> list[_Column]:
    whole = step_time(analysis) or math.nan
    everything = analysis.operators
    time_s = sum(row.time_s for row in everything)
    bounded = sum(row.time_s for row in everything if row.lower_bound_s is not None)
    lower = sum(row.lower_bound_s for row in everything if row.lower_bound_s is not None)
    gains = [row.headroom_s for row in everything if row.headroom_s is not None]
    times, rates = column_scale([row.time_s for row in rows], "s"), column_scale([row.flop_per_s for row in rows], "FLOP/s")
    headroom = column_scale([row.headroom_s for row in rows], "s")
    columns = [
        _numbers("time", "%", [f"{row.time_s / whole * 100:.1f}" for row in rows], f"{time_s / whole * 100:.1f}"),
        _words("operator", [operator_name(row) for row in rows], shorten_name, f"all {len(everything)}"),
        _words("module", [operator_module(row) for row in rows], shorten_path),
        _words("shapes", [row.shapes for row in rows], shorten_shapes, style="dim"),
        _numbers("calls", "", [f"{row.calls:.4g}" for row in rows]),
        _numbers("time", times.unit, [times.text(row.time_s) for row in rows], times.text(time_s)),
        _numbers("rate", rates.unit, [rates.text(row.flop_per_s) for row in rows]),
        _numbers("intensity", "FLOP/byte", [_or_dash(row.intensity_flop_per_byte) for row in rows]),
        _numbers("eff.", "%", [efficiency_text(row.efficiency) for row in rows], efficiency_text(lower / bounded) if bounded else ""),
        _words("bound", [row.bound for row in rows], shorten_middle),
        _numbers(
            "headroom", headroom.unit, [headroom.text(row.headroom_s) for row in rows], headroom.text(sum(gains)) if gains else ""
        ),
    ]
    # Columns that have to wait for room, by their place above: module, shapes, calls, time, rate, intensity, bound.
    from_width = {2: 58, 3: 76, 4: 100, 5: 100, 6: 120, 7: 120, 9: 66}
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
