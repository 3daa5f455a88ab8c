"""report.html: the analysis as one page that opens without a network.

This file decides what the page says; ``templates/`` decides how it looks. Everything that came from a trace is escaped three times over
where it has to be: as HTML by Jinja, as JSON inside the page, and as plotly text, which reads tags of its own.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from rooflines.reports.charts.interactive import chart_caption, chart_data, off_chart_sentences, roof_groups
from rooflines.reports.charts.palette import BOUNDS, INK, THEMES, bound_style, category_colour
from rooflines.reports.charts.roofline import roofline_chart
from rooflines.reports.charts.usage import timeline_caption, usage_timeline
from rooflines.reports.charts.usage_interactive import timeline_data
from rooflines.reports.render.page import fill, plotly_source
from rooflines.reports.views.division import division_title, input_sentences
from rooflines.reports.views.run_tables import (
    Cell,
    Column,
    Table,
    category_slug,
    ceilings_table,
    division_table,
    module_columns,
    module_tree,
    operator_table,
    steps_table,
    unmodelled_table,
)
from rooflines.reports.views.usage_table import usage_table
from rooflines.reports.words.sentences import (
    breakdown_title,
    coverage_sentence,
    device_sentences,
    headline,
    inferred_sentence,
    memory_sentence,
    missing_bounds,
    missing_ceilings,
    missing_operators,
    per,
    saving,
    status_sentence,
    steps_sentences,
    subject,
)
from rooflines.reports.words.summary import bound_times, operators_summary, peak_memory, share_of_saving, share_of_step, step_time
from rooflines.reports.words.text import size_text
from rooflines.reports.words.usage_sentences import missing_usage, usage_remarks, usage_title
from rooflines.roofline.analysis import CATEGORIES, Analysis
from rooflines.units import binary_bytes, counted, percent, seconds

SHOWN_AT_FIRST = 50
_FINDINGS_AT_FIRST = 3
_MOST_STEP_MARKS = 400


class Part(NamedTuple):
    """A piece of a stacked bar."""

    name: str
    text: str
    share: float
    share_text: str
    letter: str = ""
    pattern: str = ""
    meaning: str = ""


class StepMark(NamedTuple):
    """A timed step in the plot of step times, in percent of the plot."""

    left: float
    bottom: float
    title: str


class StepPlot(NamedTuple):
    """The timed steps with their median and its interval; positions in percent of the plot."""

    marks: tuple[StepMark, ...]
    median_bottom: float
    median_text: str
    band_bottom: float
    band_height: float
    low_text: str
    high_text: str
    note: str


def write(analysis: Analysis, path: Path) -> Path:
    """Write the page to ``path`` and return it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(render(analysis), encoding="utf-8")
    return path


def render(analysis: Analysis) -> str:
    """The page as text. It renders whatever the analysis holds and says in place what it does not."""
    chart, usage = roofline_chart(analysis), usage_timeline(analysis)
    return fill(
        "report.html.j2",
        analysis=analysis,
        subject=subject(analysis),
        status=status_sentence(analysis),
        headline=headline(analysis),
        per=per(analysis),
        basis=_basis(analysis),
        created=analysis.created.replace("T", " ")[:16],
        where=_where(analysis),
        against=_against(analysis),
        division_title=division_title(analysis),
        division=division_table(analysis),
        input_text=input_sentences(analysis),
        findings=[
            (finding, saving(finding.saves_s, analysis), share_of_saving(finding.saves_s, analysis)) for finding in analysis.findings
        ],
        findings_at_first=_FINDINGS_AT_FIRST,
        breakdown_title=breakdown_title(analysis),
        missing_bounds=missing_bounds(analysis),
        missing_operators=missing_operators(analysis),
        missing_ceilings=missing_ceilings(analysis),
        chart=chart,
        chart_json=embedded_json(chart_data(chart)) if chart else "",
        chart_caption=chart_caption(analysis),
        off_chart=off_chart_sentences(chart),
        roof_groups=roof_groups(chart),
        operators=operator_table(analysis),
        shown_at_first=SHOWN_AT_FIRST,
        inferred=inferred_sentence(analysis),
        modules=module_tree(analysis),
        module_columns=module_columns(analysis),
        steps_text=steps_sentences(analysis),
        step_plot=step_plot(analysis),
        usage_title=usage_title(analysis),
        usage_missing=missing_usage(analysis),
        usage_table=_usage_table(analysis),
        usage_text=usage_remarks(analysis),
        usage=usage,
        usage_json=embedded_json(timeline_data(usage)) if usage else "",
        usage_caption=timeline_caption(usage) if usage else "",
        device=_device(analysis),
        timeline=_timeline(analysis),
        device_text=device_sentences(analysis),
        traced_steps=steps_table(analysis),
        memory=_memory(analysis),
        coverage=coverage_sentence(analysis),
        unmodelled=unmodelled_table(analysis),
        ceilings=ceilings_table(analysis),
        graph_launch=seconds(analysis.coverage.graph_launch_time_s) if analysis.coverage else "",
        ink=INK,
        bounds=BOUNDS,
        categories={name: {theme: category_colour(name, theme) for theme in THEMES} for name in CATEGORIES},
        slug=category_slug,
        # Library code, not data: it holds no closing script tag (a test looks) and must not be escaped.
        plotly_js=plotly_source() if chart or usage else "",
    )


def embedded_json(value: Any) -> str:
    """JSON that may stand inside a script element: no character of it can end the element or open a comment."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


# --- where a step goes ---------------------------------------------------------------------------------------------------------


def _basis(analysis: Analysis) -> str:
    count = analysis.basis.steps
    steps = counted(count, "traced step")
    if analysis.basis.per == "step":
        return f"Times, FLOPs and bytes are per step: the mean over {steps}."
    return f"Times, FLOPs and bytes are for the whole trace of {steps}."


def _where(analysis: Analysis) -> tuple[Part, ...]:
    """The step by bound class, in the order of the palette, empty classes left out."""
    times = bound_times(analysis)
    whole = sum(times.values())
    order = list(BOUNDS)
    names = sorted(times, key=lambda name: order.index(name) if name in order else len(order))
    parts = []
    for name in names:
        style = bound_style(name)
        share = times[name] / whole
        parts.append(
            Part(
                name=name,
                text=seconds(times[name]),
                share=share,
                share_text=percent(share),
                letter=style.letter,
                pattern=style.name,
                meaning=style.meaning,
            )
        )
    return tuple(parts)


def _against(analysis: Analysis) -> tuple[Part, ...]:
    """Lower bound and headroom of the operators that have a bound, on the scale of the step."""
    operators = operators_summary(analysis)
    whole = sum((analysis.bound_breakdown or {}).values()) or step_time(analysis)
    if not operators.is_judged or whole <= 0:
        return ()
    lower = operators.lower_bound_s
    headroom = max(0.0, operators.headroom_s)
    rest = max(0.0, whole - lower - headroom)
    parts = (
        ("lower bound", lower, "bound", "what the work needs at the roofs of this device"),
        ("headroom", headroom, "headroom", "time above the lower bound"),
        ("not judged", rest, "rest", "idle time and operators without a bound"),
    )
    return tuple(
        Part(name=name, text=seconds(value), share=value / whole, share_text=percent(value / whole), pattern=pattern, meaning=meaning)
        for name, value, pattern, meaning in parts
        if value > 0
    )


# --- steps, device, memory --------------------------------------------------------------------------------------------------------


def step_plot(analysis: Analysis) -> StepPlot | None:
    """The timed steps in the order run; None when they were not kept. Very long runs are thinned evenly."""
    steps = analysis.steps
    if steps is None or not steps.durations_s:
        return None
    durations = steps.durations_s
    every = -(-len(durations) // _MOST_STEP_MARKS)
    sure = steps.ci95_s or (steps.median_s, steps.median_s)
    low, high = min(*durations, sure[0], steps.median_s), max(*durations, sure[1], steps.median_s)
    room = (high - low) * 0.08 or high * 0.01 or 1.0
    bottom, span = low - room, high - low + 2 * room

    def up(value: float) -> float:
        return round(100 * (value - bottom) / span, 2)

    marks = tuple(
        StepMark(round(100 * (index + 0.5) / len(durations), 2), up(value), f"step {index + 1}: {seconds(value)}")
        for index, value in enumerate(durations)
        if index % every == 0
    )
    return StepPlot(
        marks=marks,
        median_bottom=up(steps.median_s),
        median_text=f"median {seconds(steps.median_s)}",
        band_bottom=up(sure[0]),
        band_height=round(up(sure[1]) - up(sure[0]), 2),
        low_text=seconds(low),
        high_text=seconds(high),
        note=f"every {every}th of {len(durations)} steps is drawn" if every > 1 else "",
    )


def _device(analysis: Analysis) -> tuple[tuple[str, str], ...]:
    environment = analysis.environment
    facts: tuple[tuple[str, str | None], ...] = (
        ("device", f"{environment.device_name} ({environment.device})" if environment.device_name else environment.device),
        ("device inferred from", environment.device_inferred),
        ("device memory", size_text(environment.device_memory_bytes)),
        ("driver", environment.driver),
        ("CUDA", environment.cuda),
        ("cuDNN", environment.cudnn),
        ("CPU", environment.cpu if environment.cpu != environment.device_name else None),
        ("CPU cores", _text(environment.cpu_cores)),
        ("CPU instructions", environment.cpu_isa),
        ("threads used", _text(environment.threads)),
        ("main memory", size_text(environment.memory_bytes)),
        ("host", environment.host),
        ("system", environment.os),
        ("Python", environment.python),
        ("PyTorch", environment.torch),
        ("torchvision", environment.torchvision),
        ("rooflines", environment.rooflines),
        ("commit", environment.git_commit),
    )
    return tuple((name, text) for name, text in facts if text)


def _timeline(analysis: Analysis) -> tuple[tuple[str, str, str], ...]:
    """The step of the device and, without shares, the trace as recorded: name, time, share of the step."""
    timeline = analysis.timeline
    if timeline is None:
        return ()
    facts = [("span", timeline.span_s), ("busy", timeline.busy_s), ("idle", timeline.idle_s), ("compute", timeline.compute_s)]
    optional = (
        ("memory copies", timeline.memcpy_s),
        ("copies that no kernel hides", timeline.exposed_memcpy_s),
        ("communication", timeline.communication_s),
        ("communication that nothing hides", timeline.exposed_communication_s),
        ("overlap", timeline.overlap_s),
    )
    facts += [(name, value) for name, value in optional if value > 0]
    recorded, whole = [], analysis.trace_timeline
    if whole is not None:
        recorded = [("trace as recorded", whole.span_s), ("busy in it", whole.busy_s), ("launched before it", whole.earlier_s or 0.0)]
    return (
        *((name, seconds(value), percent(share_of_step(value, analysis))) for name, value in facts),
        *((name, seconds(value), "") for name, value in recorded if value > 0),
    )


def _usage_table(analysis: Analysis) -> Table | None:
    table = usage_table(analysis)
    if table is None:
        return None
    columns = tuple(Column(title, remark, numeric=index > 0) for index, (title, remark) in enumerate(table.columns))
    return Table(columns, tuple(tuple(Cell(text) for text in row) for row in table.rows))


def _memory(analysis: Analysis) -> tuple[str, float | None]:
    """The sentence on memory, with the share of the device's memory where that is known."""
    peak = peak_memory(analysis)
    sentence = memory_sentence(peak)
    if peak is None or not peak.available_bytes:
        return sentence, None
    share = peak.peak_bytes / peak.available_bytes
    return f"{sentence.removesuffix('.')}, {percent(share)} of {binary_bytes(peak.available_bytes)}.", min(1.0, share)


def _text(value: int | None) -> str | None:
    return None if value is None else str(value)
