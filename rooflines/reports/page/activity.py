"""What ran when in one step: its timeline, and the time of each stream, thread and cause of idle time."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import ChainMap

from msgspec.structs import replace

from rooflines.reports.charts.lanes import Item, Lanes
from rooflines.reports.charts.palette import bound_style
from rooflines.reports.charts.timeline import TimelineFigure
from rooflines.reports.document import (
    Figure,
    Paragraph,
    Section,
    said,
    section,
)
from rooflines.reports.page.timeline import usage_timeline
from rooflines.reports.words.sentences import RUNS_NOTHING, device_sentences
from rooflines.reports.words.text import clip, operator_name, shorten_path
from rooflines.roofline.analysis import Activity, Analysis, Lane, OperatorRow
from rooflines.roofline.count.kernel_names import kernel_category
from rooflines.units import counted, percent, seconds

# A caption is about idle time, or about work of several streams at once, from this share of the step on.
_WORTH_SAYING = 0.05
_CAUSES_SAID = 2
_LONGEST_NAME, _LONGEST_PATH = 60, 36
# What samples say of a device that is shown for a step, and the fewest readings in it.
_SAMPLED, _FEWEST_READINGS = ("power", "clock", "memory"), 3
_NODE = "autograd::engine::evaluate_function: "
# Causes of idle time: the bound class of each and a short name; the others are idle for a reason of that
# name.
_IDLE = {
    "data_loading": ("input", "data loading"),
    "host_bound": ("host", "host"),
    "synchronization": ("host", "host waits"),
    "communication": ("communication", "exchange"),
    "kernel_wait": ("idle", "not begun"),
    "outside": ("idle", "other work"),
}
_ON_DEVICE = ChainMap({"profiler_s": "the profiler did work of its own"}, *RUNS_NOTHING.values())
_ON_HOST = {
    "data_loading_s": "the program was in the data loader",
    "communication_s": "processes exchanged data",
    "host_bound_s": "the program was outside of operators",
}


def timeline_section(analysis: Analysis, under: str) -> Section:
    """The timeline of one step with its table, or why there is none."""
    found = analysis.activity
    if not found:
        missing = Paragraph("No timeline: no work was traced.", "absent")
        said_of_it = said(text for text, _ in device_sentences(analysis))
        return section("timeline", "Timeline", missing, *said_of_it, under=under)
    items = [_item(analysis, name, row) for name, row in zip(found.names, found.rows, strict=True)]
    meanings = _ON_HOST if analysis.idle_breakdown is None else _ON_DEVICE
    for lane in found.of("idle"):
        items[lane.longest] = Item(name=meanings.get(f"{lane.cause}_s", "unknown"))
    usage, why = _usage(analysis, found)
    drawn = (replace(lane, items=lane.items or (lane.longest,) * len(lane.begins_ns)) for lane in found.lanes)
    drawing = Lanes(
        lanes=tuple((_label(found, lane), lane) for lane in drawn),
        items=tuple(items),
        duration_s=found.duration_ns / 1e9,
        unplaced=tuple(f"point:{row}" for row in found.unplaced if row < len(analysis.operators)),
        whole="step" if found.step else "trace",
        usage=usage,
    )
    figure = Figure(
        name="activity",
        drawing=drawing,
        caption=_caption(analysis, found, drawing),
    )
    return section(
        "timeline",
        "Timeline",
        figure,
        *said(text for text, _ in device_sentences(analysis)),
        folded=said([_note(analysis, found), why], "note", "full"),
        fold="Which step this is",
        under=under,
    )


def _item(analysis: Analysis, name: str, row: int) -> Item:
    """A step, or work of the host with the color of what it launched, or the work of a row itself."""
    named = clip(name.removeprefix(_NODE), _LONGEST_NAME)
    if row < 0:
        return Item(name=named)
    of = analysis.rows[row]
    category, key = (
        (of.category, f"point:{row}")
        if isinstance(of, OperatorRow)
        else (kernel_category(of.kernels[0].name if of.kernels else "") or "other", None)
    )
    work, module = clip(operator_name(of), _LONGEST_NAME), shorten_path(of.module, _LONGEST_PATH)
    return Item(name=named or work, launched=work if named else "", category=category, module=module, key=key)


def _label(found: Activity, lane: Lane) -> str:
    """The name of a lane: what it is, and its number where there are several; of idle time the letter of its
    bound class."""
    if lane.kind == "steps":
        return "host's step"
    if lane.kind == "idle":
        bound, name = _IDLE.get(lane.cause or "", ("idle", lane.cause))
        return f"{bound_style(bound).letter} idle: {name}"
    if lane.kind == "stream":
        several = len({other.device for other in found.of("stream")}) > 1
        return f"{f'GPU {lane.device} ' if several else ''}stream {lane.stream}"
    return f"{lane.role} thread" if lane.role else f"thread {lane.thread}"


def _caption(analysis: Analysis, found: Activity, drawing: Lanes) -> str:
    """What to see: idle time with its longest causes, work of several streams at once, or that the step is
    full."""
    whole, on_device = found.duration_ns, analysis.idle_breakdown is not None
    if whole - found.busy_ns >= _WORTH_SAYING * whole:
        causes = [
            f"for {percent(lane.busy_ns / whole)} {drawing.items[lane.longest].name}"
            for lane in found.of("idle")[:_CAUSES_SAID]
        ]
        nothing = "The device runs nothing" if on_device else "No operator runs"
        return (
            f"{nothing} for {percent(1 - found.busy_ns / whole)} of this {drawing.whole}: "
            f"{', '.join(causes)}."
        )
    busy = (
        f"{'The device works' if on_device else 'Operators run'} for {percent(found.busy_ns / whole)} "
        f"of this {drawing.whole}"
    )
    twice = sum(lane.busy_ns for lane in found.of("stream")) - found.busy_ns
    together = (
        f"; the work of its streams overlaps by {seconds(twice / 1e9)}"
        if twice >= _WORTH_SAYING * whole
        else ""
    )
    return f"{busy}{together}."


def _note(analysis: Analysis, found: Activity) -> str:
    """Which step this is, on which clock, and what is not drawn by itself."""
    name = clip(found.step, _LONGEST_NAME) or "The whole trace"
    steps = counted(analysis.basis.steps, "traced step")
    which = (
        f"the {found.steps} of {steps} that resemble the timed ones"
        if found.steps < analysis.basis.steps
        else steps
    )
    nearest = f", nearest the median of {which}" if analysis.basis.steps > 1 else ""
    texts = [
        f"{name} ({seconds(found.duration_ns / 1e9)}){nearest}. Times are as traced, with the "
        "profiler on, and not scaled."
    ]
    every, drawn = sum(lane.count for lane in found.lanes), sum(len(lane.begins_ns) for lane in found.lanes)
    if drawn < every:
        texts.append(f"Neighbors below {seconds(found.resolution_ns / 1e9)} are drawn as one.")
    if found.of("stream") and found.of("thread"):
        texts.append("Operators of host threads have the color of what they launched.")
    if found.left_out:
        texts.append(f"{counted(found.left_out, 'stream')} or threads with less time are left out.")
    return " ".join(texts)


def _usage(analysis: Analysis, found: Activity) -> tuple[TimelineFigure, str]:
    """Power, clock and memory during the step, in seconds from its begin, or why they are not shown."""
    whole, usage, duration_s = usage_timeline(analysis), analysis.usage, found.duration_ns / 1e9
    nothing = "Power, clock and memory are not shown"
    if not whole or not usage:
        return TimelineFigure(), f"{nothing}: the run has no device samples."
    begin_s = (found.began_ns - usage.began_ns) / 1e9
    rows = []
    for row in whole.rows:
        lines = []
        for line in row.lines:
            first, behind = bisect_left(line.x, begin_s), bisect_right(line.x, begin_s + duration_s)
            # The curve enters and leaves the figure.
            x, y = (values[max(0, first - 1) : behind + 1] for values in (line.x, line.y))
            if behind - first >= _FEWEST_READINGS:
                lines.append(replace(line, x=tuple(time_s - begin_s for time_s in x), y=y))
        if lines and row.name in _SAMPLED:
            rows.append(replace(row, lines=tuple(lines)))
    if rows:
        return replace(
            whole, rows=tuple(rows), begin=0.0, end=duration_s, window_text="", marks=(), held=()
        ), ""
    return (
        TimelineFigure(),
        f"{nothing}: fewer than {_FEWEST_READINGS} device samples were taken in these {seconds(duration_s)}.",
    )
