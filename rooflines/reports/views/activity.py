"""What ran when in one step: its timeline, the time of each stream and thread, and idle time by cause."""

from __future__ import annotations

import math
from itertools import repeat

from msgspec.structs import replace

from rooflines.reports.charts.lanes import Item, LaneOf, Lanes
from rooflines.reports.charts.palette import bound_style, category_order
from rooflines.reports.charts.timeline import Line, Timeline
from rooflines.reports.document import Cell, Column, Figure, Paragraph, Section, Table, said, section, table
from rooflines.reports.views.timeline import usage_timeline
from rooflines.reports.words.sentences import RUNS_NOTHING
from rooflines.reports.words.text import clip, operator_name, shorten_path
from rooflines.roofline.analysis import Activity, Analysis, Lane, OperatorRow
from rooflines.roofline.kernel_names import kernel_category
from rooflines.units import counted, percent, scale, seconds

# A caption is about idle time, or about work of several streams at once, from this share of the step on.
_WORTH_SAYING = 0.05
_CAUSES_SAID = 2
_LONGEST_NAME, _LONGEST_PATH = 60, 36
# What samples say of a device that is shown for a step, and the fewest readings in it.
_SAMPLED, _FEWEST_READINGS = ("power", "clock", "memory"), 3
_NODE = "autograd::engine::evaluate_function: "
# Causes of idle time: the bound class of each and a short name.
_IDLE = {
    "data_loading": ("input", "data loading"), "host_bound": ("host", "host"), "synchronisation": ("host", "host waits"),
    "communication": ("communication", "exchange"), "kernel_wait": ("idle", "not begun"), "outside": ("idle", "other work"),
    "graph": ("idle", "graph"), "unknown": ("idle", "unknown"), "profiler": ("idle", "profiler"),
}  # fmt: skip
_ON_DEVICE = {cause: text for reasons in RUNS_NOTHING.values() for cause, text in reasons.items()} | {
    "profiler_s": "the profiler did work of its own"
}
_ON_HOST = {
    "data_loading_s": "the program was in the data loader", "communication_s": "processes exchanged data",
    "host_bound_s": "the program was outside of operators",
}  # fmt: skip


def timeline_section(analysis: Analysis) -> Section:
    """The timeline of one step with its tables, or why there is none."""
    found = analysis.activity
    if found is None:
        return section("timeline", "Timeline", Paragraph("No timeline: no work was traced.", "absent"))
    usage, why = _usage(analysis, found)
    caption, note, drawing = _caption(analysis, found), _note(analysis, found), lanes(analysis, found, usage)
    figure, texts = Figure(name="activity", drawing=drawing, caption=caption, note=note), said([why], "note", "full")
    return section("timeline", "Timeline", figure, *texts, _lanes_table(analysis, found), _idle_table(analysis, found))


def lanes(analysis: Analysis, found: Activity, usage: Timeline | None = None) -> Lanes:
    """The drawing of ``found``, with the rows of ``usage`` below it."""
    places: dict[Item, int] = {}

    def place(row: int, launched: int) -> int:
        return places.setdefault(_item(analysis, found, row, launched), len(places))

    drawn = []
    for lane in _in_order(analysis, found):
        of = (place(row, launched) for row, launched in zip(lane.rows, lane.launched or repeat(-1, len(lane.rows)), strict=True))
        if lane.kind == "idle":
            idle = Item(name=f"idle: {_meaning(analysis, lane)}")
            of = (places.setdefault(idle, len(places)) for _ in lane.begins_ns)
        drawn.append(LaneOf(
            label=_label(found, lane), text=percent(lane.busy_ns / found.duration_ns) if lane.kind != "steps" else "", group=lane.kind,
            is_work=lane.kind == ("stream" if _on_device(analysis) else "thread"), items=tuple(of),
            begins_s=tuple(begin / 1e9 for begin in lane.begins_ns),
            durations_s=tuple(lasting / 1e9 for lasting in lane.durations_ns),
        ))  # fmt: skip
    factor, prefix = scale(found.duration_ns / 1e9)
    return Lanes(
        lanes=tuple(drawn), items=tuple(places), duration_s=found.duration_ns / 1e9, whole=_whole(found), factor=factor,
        unit=f"{prefix}s", usage=usage,
        legend=tuple((name,) for name in sorted({item.category for item in places if item.category}, key=category_order)),
        merged=tuple((row, parts) for row, parts in found.merged.items() if row < len(analysis.operators)),
    )  # fmt: skip


def _whole(found: Activity) -> str:
    """What the timeline is of."""
    return "step" if found.step else "trace"


def _on_device(analysis: Analysis) -> bool:
    """Whether idle time is that of a device."""
    return analysis.idle_breakdown is not None


def _in_order(analysis: Analysis, found: Activity) -> tuple[Lane, ...]:
    """The lanes from the top down: idle time stands below the work that it interrupts."""
    kinds = ("steps", "stream", "idle", "thread") if _on_device(analysis) else ("steps", "thread", "idle")
    return tuple(lane for kind in kinds for lane in found.of(kind))


def _meaning(analysis: Analysis, lane: Lane) -> str:
    """What the host or the program did during idle time."""
    return (_ON_DEVICE if _on_device(analysis) else _ON_HOST).get(f"{lane.cause}_s", "unknown")


def _item(analysis: Analysis, found: Activity, row: int, launched: int = -1) -> Item:
    """What the segments of ``row`` are; what has no row is a step or work of the host, which has the color of what it ``launched``."""
    if row < 0:
        name = clip(found.names[-1 - row].removeprefix(_NODE), _LONGEST_NAME)
        if launched < 0:
            return Item(name=name)
        device = _item(analysis, found, launched)
        return replace(device, name=name, launched=device.name)
    one = analysis.rows[row]
    item = Item(name=clip(operator_name(one), _LONGEST_NAME), category="other", module=shorten_path(one.module, _LONGEST_PATH))
    if isinstance(one, OperatorRow):
        return replace(item, category=one.category, point=row)
    return replace(item, category=kernel_category(one.kernels[0].name) or "other") if one.kernels else item


def _label(found: Activity, lane: Lane) -> str:
    """The name of a lane: what it is, and its number where there are several."""
    if lane.kind == "steps":
        return "host's step"
    if lane.kind == "idle":
        letter, name = _idle(lane)
        return f"{letter} idle: {name}"
    if lane.kind == "stream":
        several = len({other.device for other in found.of("stream")}) > 1
        return f"{f'GPU {lane.device} ' if several else ''}stream {lane.stream}"
    return f"{lane.role or 'thread'}{' thread' if lane.role else f' {lane.thread}'}"


def _idle(lane: Lane) -> tuple[str, str]:
    """The letter of the bound class of idle time, and its short name."""
    bound, name = _IDLE.get(lane.cause or "", ("idle", "unknown"))
    return bound_style(bound).letter, name


def _caption(analysis: Analysis, found: Activity) -> str:
    """What to see: idle time with its longest causes, work of several streams at once, or that the step is full."""
    whole, idle = found.duration_ns, sorted(found.of("idle"), key=lambda lane: -lane.busy_ns)
    streams, step, on_device = found.of("stream"), _whole(found), _on_device(analysis)
    if whole - found.busy_ns >= _WORTH_SAYING * whole:
        causes = [f"for {percent(lane.busy_ns / whole)} {_meaning(analysis, lane)}" for lane in idle[:_CAUSES_SAID]]
        nothing = "The device runs nothing" if on_device else "No operator runs"
        return f"{nothing} for {percent(1 - found.busy_ns / whole)} of this {step}: {', '.join(causes)}."
    busy = f"{'The device works' if on_device else 'Operators run'} for {percent(found.busy_ns / whole)} of this {step}"
    twice = sum(lane.busy_ns for lane in streams) - found.busy_ns
    together = f"; the work of its streams overlaps by {seconds(twice / 1e9)}" if twice >= _WORTH_SAYING * whole else ""
    return f"{busy}{together}."


def _note(analysis: Analysis, found: Activity) -> str:
    """Which step this is, on which clock, and what is not drawn by itself."""
    texts = [f"The whole trace ({seconds(found.duration_ns / 1e9)})"]
    if found.step:
        steps = analysis.basis.steps
        which = f", nearest the median of {counted(steps, 'traced step')}" if steps > 1 else ""
        texts = [f"{clip(found.step, _LONGEST_NAME)} ({seconds(found.duration_ns / 1e9)}){which}"]
    texts[0] += ". Times are as traced, with the profiler on, and not scaled."
    every, drawn = sum(lane.count for lane in found.lanes), sum(len(lane.begins_ns) for lane in found.lanes)
    if drawn < every:
        merged = f"{every - drawn:,} of {every:,} segments are merged"
        texts.append(f"{merged}: neighbors below {seconds(found.resolution_ns / 1e9)} are one, in the color of the longest row.")
    if found.of("stream") and found.of("thread"):
        texts.append("Host threads show their outermost operators and calls in the color of what they launched; gray launched nothing.")
    if found.left_out:
        texts.append(f"{counted(found.left_out, 'stream')} or threads with less time are left out.")
    return " ".join(texts)


def _lanes_table(analysis: Analysis, found: Activity) -> Table:
    columns = (
        Column("row", format="text"), Column("busy", "s", "scaled"), Column("share", "%", "share"),
        Column("segments", format="count"), Column("longest operator", format="middle", least=24),
    )  # fmt: skip
    rows = []
    for lane in _in_order(analysis, found):
        if lane.kind in ("stream", "thread"):
            longest = _item(analysis, found, lane.longest) if lane.longest is not None else Item(name="")
            name = Cell(value=longest.name, hover=f"{longest.name} {longest.module}".strip())
            rows.append((_label(found, lane), lane.busy_ns / 1e9, lane.busy_ns / found.duration_ns, lane.count, name))
    title = "Streams and threads" if _on_device(analysis) else "Threads"
    return table("step_lanes", columns, rows, f"{title} in this {_whole(found)}", title=title)


def _idle_table(analysis: Analysis, found: Activity) -> Table | None:
    idle = sorted(found.of("idle"), key=lambda lane: -lane.busy_ns)
    if not idle:
        return None
    columns = (
        Column("cause", format="text", least=30), Column("idle", "s", "scaled"), Column("share", "%", "share"),
        Column("gaps", format="count"),
    )  # fmt: skip
    whole, cells = found.duration_ns, (Cell(value=_meaning(analysis, lane), letter=_idle(lane)[0]) for lane in idle)
    rows = ((cell, lane.busy_ns / 1e9, lane.busy_ns / whole, lane.count) for cell, lane in zip(cells, idle, strict=True))
    return table("step_idle", columns, rows, f"Idle time in this {_whole(found)} by cause", title="Idle time by cause")


# --- samples of the device in the same time ----------------------------------------------------------------------------------------


def _usage(analysis: Analysis, found: Activity) -> tuple[Timeline | None, str]:
    """Power, clock and memory during the step, in the unit of its axis, or why they are not shown."""
    whole, usage = usage_timeline(analysis), analysis.usage
    nothing = "Power, clock and memory are not shown"
    if whole is None or usage is None:
        return None, f"{nothing}: the run has no device samples."
    factor, _ = scale(found.duration_ns / 1e9)
    shift_s, end_s = (usage.began_ns - found.began_ns) / 1e9, found.duration_ns / 1e9
    rows = []
    pause_s, covers = math.inf, False
    for row in whole.rows:
        lines = []
        for line in row.lines if row.name in _SAMPLED else ():
            inside = [at for at, x in enumerate(line.x) if 0 <= x + shift_s <= end_s]
            covers |= line.x[0] + shift_s < end_s and line.x[-1] + shift_s > 0
            pause_s = min(pause_s, (line.x[-1] - line.x[0]) / (len(line.x) - 1))
            if len(inside) >= _FEWEST_READINGS:
                kept = slice(max(0, inside[0] - 1), inside[-1] + 2)
                times = tuple((x + shift_s) / factor for x in line.x[kept])
                lines.append(Line(device=line.device, name=line.name, x=times, y=line.y[kept]))
        if lines:
            rows.append(replace(row, lines=tuple(lines)))
    if rows:
        return replace(whole, rows=tuple(rows), begin=0.0, end=end_s / factor, window_text="", marks=(), held=()), ""
    if not covers:
        return None, f"{nothing}: no device sample was taken during this {_whole(found)}."
    return None, f"{nothing}: devices were sampled every {seconds(pause_s, 2)}, and the {_whole(found)} lasts {seconds(end_s)}."
