"""The roofline chart as data: roofs, points, labels and limits, for every renderer (plotly on the page, Matplotlib in the PDF).

Nothing here knows a plotting library, a colour or a pixel of a real screen. ``roofline_chart`` turns an analysis into lines and points
in SI units; ``labels.place_labels`` finds room for the names on a plot of a given size.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

import msgspec

from rooflines.device_specs.records import Ceiling, Ceilings
from rooflines.reports.charts.axes import Limits, Tick, limits_around, ticks
from rooflines.reports.charts.palette import bound_style, category_order
from rooflines.reports.words.ceilings import SOURCE_WORDS
from rooflines.reports.words.rows import category_summaries
from rooflines.reports.words.sentences import categories_sentence
from rooflines.reports.words.text import clip, count_text, short_name, shorten_middle, shorten_path
from rooflines.roofline.analysis import Analysis, OperatorRow
from rooflines.roofline.shapes import path_pattern, repeated_key
from rooflines.units import percent, scale, seconds, si, significant

MOST_LABELS = 10
MOST_POINTS = 1500
# An operator this far above its bound is more than the noise of a measurement.
ABOVE_ROOF = 1.02
# A compute roof is drawn dark when it judges this share of the time.
PRIMARY_SHARE = 0.1
MOST_PRIMARY = 3
# And lighter from this share on.
SHOWN_SHARE = 0.01
BAND = 0.5
_LONGEST_NAME, _LONGEST_PATH = 28, 26
# Operators that take this share of the time at most do not stretch an axis over empty decades.
_OUTLIER_SHARE = 0.01
# The share of the time that has the largest area.
_FULL_SHARE = 0.15


class Roof(msgspec.Struct, frozen=True, kw_only=True):
    """One ceiling as a line through ``x`` (FLOP/byte) and ``y`` (FLOP/s).

    ``text`` names the roof with its source, ``short`` without. ``primary`` roofs are drawn dark, the others lighter. ``shown`` ones are
    drawn from the start, the rest when asked for. ``why_secondary`` groups those that are not primary in the reader's words.
    """

    kind: Literal["memory", "compute"]
    name: str
    text: str
    short: str
    value: float
    unit: str
    source: str
    detail: str
    primary: bool
    shown: bool
    why_secondary: str
    x: tuple[float, ...]
    y: tuple[float, ...]


class Ridge(msgspec.Struct, frozen=True, kw_only=True):
    """Where a memory roof meets a compute roof: left of it bytes set the pace, right of it arithmetic does."""

    memory: str
    compute: str
    intensity: float
    flop_per_s: float
    text: str


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One operator row. ``area`` is proportional to its time, 1 at most; ``row`` is its index in ``analysis.operators``."""

    row: int
    name: str
    label: str
    category: str
    bound: str
    intensity: float
    flop_per_s: float
    time_s: float
    area: float
    headroom_s: float
    warning: str
    hover: tuple[tuple[str, str], ...]


class Ring(msgspec.Struct, frozen=True, kw_only=True):
    """The whole run as one point: all FLOPs over all bytes, at FLOPs over the time of a step."""

    intensity: float
    flop_per_s: float
    text: str
    hover: tuple[tuple[str, str], ...]


class Band(msgspec.Struct, frozen=True, kw_only=True):
    """The strip from half of the roof up to the roof."""

    x: tuple[float, ...]
    upper: tuple[float, ...]
    lower: tuple[float, ...]


class Legend(msgspec.Struct, frozen=True, kw_only=True):
    """A category on the chart with its time, in the order of the palette."""

    category: str
    time_s: float
    share: float


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    """Everything to draw. ``wide_limits`` also show the roofs that are off by default; ``off_chart_*`` is what cannot be placed."""

    roofs: tuple[Roof, ...]
    ridges: tuple[Ridge, ...]
    points: tuple[Point, ...]
    labelled: tuple[Point, ...]
    ring: Ring | None
    band: Band | None
    limits: Limits
    wide_limits: Limits
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    y_unit: str
    legend: tuple[Legend, ...]
    off_chart_count: int
    off_chart_time_s: float
    left_out_count: int


def roofline_chart(analysis: Analysis) -> Chart | None:
    """The chart of ``analysis``, or None when there is neither a roof nor a point to draw."""
    placeable = [(index, row) for index, row in enumerate(analysis.operators) if _can_be_placed(row)]
    placeable.sort(key=lambda pair: pair[1].time_s, reverse=True)
    known = Ceilings(device="", kind="", ceilings=tuple(c for c in analysis.ceilings if _positive(c.value)))
    memory, compute = known.main("memory"), known.main("compute")
    if not placeable and not (memory and compute):
        return None

    primary_memory = known.outermost_memory() or max(memory, key=lambda c: c.capacity_bytes or 0, default=None)
    primary_compute, other_compute = _compute_in_run(compute, known, analysis.operators)
    caches = [level for level in known.memory_levels() if level is not primary_memory]
    top = max((c.value for c in primary_compute), default=None)
    ridges = _ridges(primary_memory, primary_compute)
    ring = _ring(analysis)
    points = _points(_worth_drawing(placeable))
    marks = [(p.intensity, p.flop_per_s) for p in points] + [(r.intensity, r.flop_per_s) for r in ridges]
    marks += [(ring.intensity, ring.flop_per_s)] if ring else []
    marks += [(top / cache.value, top) for cache in caches] if top else []
    levels = [c.value for c in (*primary_compute, *other_compute)]
    limits = limits_around(marks, levels)
    wide_limits = limits_around(marks, levels + [c.value for c in compute])
    drawn = _Drawn(primary_memory, tuple(caches), primary_compute, other_compute, top)
    roofs = _roofs(memory, compute, drawn, wide_limits)
    labelled = _with_most_headroom(points, analysis.operators)
    y_factor, prefix = scale(max([p.flop_per_s for p in points] + levels))
    shown = {row.row for row in points}
    off_chart = [row for row in analysis.operators if not _can_be_placed(row)]
    return Chart(
        roofs=roofs,
        ridges=ridges,
        points=points,
        labelled=labelled,
        ring=ring,
        band=_band(primary_memory, primary_compute, wide_limits),
        limits=limits,
        wide_limits=wide_limits,
        x_ticks=ticks(wide_limits.x_low, wide_limits.x_high, 1.0),
        y_ticks=ticks(wide_limits.y_low, wide_limits.y_high, y_factor),
        y_unit=f"{prefix}FLOP/s",
        legend=_legend(points, analysis.operators),
        off_chart_count=len(off_chart),
        off_chart_time_s=sum(row.time_s for row in off_chart),
        left_out_count=len(placeable) - len(shown),
    )


def marker_diameter(area: float, largest: float = 44.0, smallest: float = 6.0) -> float:
    """The diameter of a point, so that its area is its time; the smallest ones are kept large enough to see and to hit."""
    return max(smallest, largest * math.sqrt(max(area, 0.0)))


# --- roofs ---------------------------------------------------------------------------------------------------------------------


class _Drawn(NamedTuple):
    """What is drawn from the start: the outermost memory and the compute roofs that judge much of the time dark, the rest lighter."""

    memory: Ceiling | None
    caches: tuple[Ceiling, ...]
    compute: list[Ceiling]
    other_compute: list[Ceiling]
    top: float | None


def _compute_in_run(compute: Sequence[Ceiling], known: Ceilings, rows: Iterable[OperatorRow]) -> tuple[list[Ceiling], list[Ceiling]]:
    """The compute roofs that judge a real share of the time, highest share first, and those that judge a small one.

    Where nothing says, it is the best fp32 one.
    """
    time_of: dict[Ceiling, float] = {}
    for row in rows:
        if row.precision is None or not row.flops:
            continue
        roof = known.compute(row.precision, "matrix" if row.engine == "matrix" else "vector")
        if roof is not None:
            time_of[roof] = time_of.get(roof, 0.0) + row.time_s
    total = sum(time_of.values())
    if total > 0:
        ranked = sorted(time_of, key=lambda roof: time_of[roof], reverse=True)
        primary = [roof for rank, roof in enumerate(ranked) if rank == 0 or time_of[roof] / total >= PRIMARY_SHARE][:MOST_PRIMARY]
        return primary, [roof for roof in ranked if roof not in primary and time_of[roof] / total >= SHOWN_SHARE]
    preferred = [c for c in compute if c.precision == "fp32"] or list(compute)
    return sorted(preferred, key=lambda c: c.value, reverse=True)[:1], []


def _ridges(memory: Ceiling | None, compute: Iterable[Ceiling]) -> tuple[Ridge, ...]:
    if memory is None:
        return ()
    return tuple(
        Ridge(
            memory=memory.name,
            compute=roof.name,
            intensity=roof.value / memory.value,
            flop_per_s=roof.value,
            text=f"ridge {significant(roof.value / memory.value)} FLOP/byte",
        )
        for roof in compute
    )


def _roofs(memory: Sequence[Ceiling], compute: Sequence[Ceiling], drawn: _Drawn, limits: Limits) -> tuple[Roof, ...]:
    """Lines for every main ceiling: slanted ones end at the top primary compute roof, flat ones begin at the primary memory roof."""
    outermost, top = drawn.memory, drawn.top
    outwards = [*drawn.caches, *([outermost] if outermost else [])]
    roofs = []
    for ceiling in memory:
        x_end = min(limits.x_high, top / ceiling.value) if top else limits.x_high
        x, y = _slanted(ceiling.value, limits, x_end)
        cache = any(ceiling is one for one in drawn.caches)
        if cache and top:
            # A faster level reaches the compute roof earlier: draw the piece of that roof which only it makes reachable, up to where
            # the next level outwards does.
            following = outwards[next(index for index, one in enumerate(outwards) if one is ceiling) + 1 :]
            knee = top / max((one.value for one in following), default=ceiling.value)
            if knee > x_end:
                x, y = (*x, min(knee, limits.x_high)), (*y, top)
        primary = ceiling is outermost
        roofs.append(_roof(ceiling, primary, primary or cache, "caches" if cache else "other access patterns", x, y))
    for ceiling in compute:
        primary = ceiling in drawn.compute
        x_start = max(limits.x_low, ceiling.value / outermost.value) if outermost else limits.x_low
        x, y = (x_start, limits.x_high), (ceiling.value, ceiling.value)
        if not primary and outermost is not None and top and ceiling.value > top:
            x, y = (top / outermost.value, *x), (top, *y)
        other = ceiling in drawn.other_compute
        group = "other precisions in this run" if other else "other precisions and engines"
        roofs.append(_roof(ceiling, primary, primary or other, group, x, y))
    return tuple(roof for roof in roofs if len(roof.x) > 1)


def _slanted(bandwidth: float, limits: Limits, x_end: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
    x_start = max(limits.x_low, limits.y_low / bandwidth)
    if x_start >= x_end:
        return (x_end,), (x_end * bandwidth,)
    return (x_start, x_end), (x_start * bandwidth, x_end * bandwidth)


def _roof(ceiling: Ceiling, primary: bool, shown: bool, why_secondary: str, x: tuple[float, ...], y: tuple[float, ...]) -> Roof:
    source = SOURCE_WORDS[ceiling.source.kind]
    short = f"{ceiling.name} {si(ceiling.value, ceiling.unit)}"
    return Roof(
        kind="memory" if ceiling.kind == "memory" else "compute",
        name=ceiling.name,
        text=f"{short}, {source}",
        short=short,
        value=ceiling.value,
        unit=ceiling.unit,
        source=source,
        detail=ceiling.source.detail,
        primary=primary,
        shown=shown,
        why_secondary="" if primary else why_secondary,
        x=x,
        y=y,
    )


def _band(memory: Ceiling | None, compute: Sequence[Ceiling], limits: Limits) -> Band | None:
    if memory is None or not compute:
        return None
    top = max(c.value for c in compute)
    x = (limits.x_low, top / memory.value, limits.x_high)
    upper = tuple(min(top, memory.value * value) for value in x)
    return Band(x=x, upper=upper, lower=tuple(BAND * value for value in upper))


# --- points --------------------------------------------------------------------------------------------------------------------


def _can_be_placed(row: OperatorRow) -> bool:
    return all(_positive(value) for value in (row.flops, row.bytes, row.time_s))


def _worth_drawing(rows: Sequence[tuple[int, OperatorRow]]) -> list[tuple[int, OperatorRow]]:
    """The rows, given longest first, without outliers that would stretch an axis over empty decades for next to no time.

    From each end of both axes, what lies a decade or more beyond the rest goes if it takes ``_OUTLIER_SHARE`` of the time at most; an
    operator that earns a name by its headroom stays.
    """
    rows = rows[:MOST_POINTS]
    named = {index for index, _ in sorted(rows, key=lambda pair: pair[1].headroom_s or 0.0, reverse=True)[:MOST_LABELS]}
    allowed = _OUTLIER_SHARE * sum(row.time_s for _, row in rows)
    outliers: set[int] = set()
    for axis, inward in itertools.product((0, 1), (False, True)):
        ordered = sorted(rows, key=lambda pair: _position(pair[1])[axis], reverse=inward)
        passed: list[int] = []
        time_s = 0.0
        for (index, row), (_, neighbour) in pairwise(ordered):
            passed.append(index)
            time_s += row.time_s
            if time_s > allowed or index in named:
                break
            if abs(math.log10(_position(neighbour)[axis] / _position(row)[axis])) >= 1:
                outliers.update(passed)
    return [pair for pair in rows if pair[0] not in outliers]


def _position(row: OperatorRow) -> tuple[float, float]:
    return row.flops / row.bytes, row.flops / row.time_s


def _points(rows: Sequence[tuple[int, OperatorRow]]) -> tuple[Point, ...]:
    """One point a row, longest first: large ones are drawn first and do not hide small ones.

    The full area stands for ``_FULL_SHARE`` of the time or the longest point, whichever is more, so that many points of equal time do
    not cover each other; the longest still has a fifth of it.
    """
    longest = max((row.time_s for _, row in rows), default=0.0)
    full = max(longest, min(_FULL_SHARE * sum(row.time_s for _, row in rows), 5 * longest))
    return tuple(
        Point(
            row=index,
            name=row.name,
            label=_label_text(row, row.module),
            category=row.category,
            bound=row.bound,
            intensity=_position(row)[0],
            flop_per_s=_position(row)[1],
            time_s=row.time_s,
            area=row.time_s / full,
            headroom_s=row.headroom_s or 0.0,
            warning=warning(row),
            hover=_hover(row),
        )
        for index, row in rows
    )


def warning(row: OperatorRow) -> str:
    """Why the efficiency of ``row`` should not be believed, or an empty string."""
    if row.efficiency is None or row.efficiency <= ABOVE_ROOF:
        return ""
    return row.flag or "faster than its bound: a wrong count, a wrong ceiling, or an algorithm that does less than the formula"


def _label_text(row: OperatorRow, path: str) -> str:
    name = shorten_middle(short_name(row.name).replace("backward", "bwd"), _LONGEST_NAME)
    return f"{name} {shorten_path(path, _LONGEST_PATH)}".strip()


def _hover(row: OperatorRow) -> tuple[tuple[str, str], ...]:
    bound = bound_style(row.bound)
    lines: list[tuple[str, str | None]] = [
        ("module", row.module or None),
        ("phase", row.phase or None),
        ("shapes", clip(row.shapes, 70) or None),
        ("calls", count_text(row.calls)),
        ("time", seconds(row.time_s)),
        ("work", si(row.flops, "FLOP")),
        ("traffic", si(row.bytes, "B")),
        ("intensity", f"{significant(row.flops / row.bytes)} FLOP/byte"),
        ("achieved", si(row.flop_per_s if row.flop_per_s is not None else row.flops / row.time_s, "FLOP/s")),
        ("attainable", None if row.attainable_flop_per_s is None else si(row.attainable_flop_per_s, "FLOP/s")),
        ("efficiency", None if row.efficiency is None else percent(row.efficiency)),
        ("headroom", None if row.headroom_s is None else seconds(row.headroom_s)),
        ("bound", f"{bound.name} ({bound.letter})" + (f", against {row.memory_level}" if row.memory_level else "")),
        ("warning", warning(row) or None),
    ]
    return tuple((name, text) for name, text in lines if text is not None)


def _ring(analysis: Analysis) -> Ring | None:
    """The whole run, on the clock of its points."""
    totals = analysis.totals
    if totals is None or not (_positive(totals.flops) and _positive(totals.bytes)):
        return None
    if analysis.timeline is not None:
        time_s = analysis.timeline.span_s
        basis = "over the median step, profiler off" if analysis.basis.timed else "over the traced span"
    else:
        time_s, basis = totals.time_s, "over the time of all operators"
    if not _positive(time_s):
        return None
    hover = (
        ("work", si(totals.flops, "FLOP")),
        ("traffic", si(totals.bytes, "B")),
        ("time", f"{seconds(time_s)} ({basis})"),
        ("intensity", f"{significant(totals.flops / totals.bytes)} FLOP/byte"),
        ("achieved", si(totals.flops / time_s, "FLOP/s")),
    )
    return Ring(intensity=totals.flops / totals.bytes, flop_per_s=totals.flops / time_s, text="whole run", hover=hover)


def _legend(points: Iterable[Point], rows: Iterable[OperatorRow]) -> tuple[Legend, ...]:
    total = sum(row.time_s for row in rows)
    time_of: dict[str, float] = {}
    for point in points:
        time_of[point.category] = time_of.get(point.category, 0.0) + point.time_s
    ordered = sorted(time_of, key=category_order)
    return tuple(Legend(category=name, time_s=time_of[name], share=time_of[name] / total if total else 0.0) for name in ordered)


def _with_most_headroom(points: Iterable[Point], rows: Sequence[OperatorRow]) -> tuple[Point, ...]:
    """The points to label, most headroom first, each with a unique name; one point represents repeated layers."""
    groups: dict[tuple[object, ...], list[Point]] = {}
    for point in points:
        if point.headroom_s > 0:
            groups.setdefault(repeated_key(rows[point.row]), []).append(point)
    ranked = sorted(groups.values(), key=lambda group: sum(point.headroom_s for point in group), reverse=True)[:MOST_LABELS]
    taken: set[str] = set()
    named = []
    for group in ranked:
        point = max(group, key=lambda one: one.headroom_s)
        modules = {rows[one.row].module for one in group}
        if len(modules) > 1:
            pattern = path_pattern(sorted(modules))
            point = msgspec.structs.replace(point, label=f"{_label_text(rows[point.row], pattern)} ×{len(modules)}")
        text = next(text for text in _distinguishing(point, rows[point.row]) if text not in taken)
        taken.add(text)
        named.append(msgspec.structs.replace(point, label=text))
    return tuple(named)


def _distinguishing(point: Point, row: OperatorRow) -> Iterable[str]:
    """Ever longer names of a point: with its phase, with its first shape, with a number."""
    yield point.label
    if row.phase:
        yield f"{point.label} ({row.phase})"
    if row.shapes:
        yield f"{point.label} {clip(row.shapes.split(',')[0], 18)}"
    number = 2
    while True:
        yield f"{point.label} #{number}"
        number += 1


# --- the words below the chart -------------------------------------------------------------------------------------------------


def chart_caption(analysis: Analysis) -> str:
    """The categories that take the most time, and how close they run to their bound."""
    judged = [one for one in category_summaries(analysis) if one.efficiency is not None]
    without = "Operators by intensity and speed." if analysis.operators else "The roofs of this device."
    return categories_sentence(judged[:2], analysis.basis.per) or without


def off_chart_sentences(chart: Chart | None) -> str:
    """Which points a cache serves, and which operators are not drawn."""
    if chart is None:
        return ""
    texts = []
    if any(_above_the_line(point, chart) for point in chart.points):
        texts.append("Points above the slanted line move bytes that a cache holds and are judged against its roof.")
    if chart.off_chart_count:
        rows = "1 operator" if chart.off_chart_count == 1 else f"{chart.off_chart_count} operators"
        verb = "is" if chart.off_chart_count == 1 else "are"
        texts.append(
            f"{rows} ({seconds(chart.off_chart_time_s)}) {verb} not on the chart: without FLOPs or without bytes there is no intensity."
        )
    if chart.left_out_count:
        crowded = f" or not among the {MOST_POINTS} longest" if len(chart.points) + chart.left_out_count > MOST_POINTS else ""
        texts.append(f"{chart.left_out_count} more, short and far from the rest{crowded}, are in the table only.")
    return " ".join(texts)


def _above_the_line(point: Point, chart: Chart) -> bool:
    lines = [roof.value for roof in chart.roofs if roof.kind == "memory" and roof.primary]
    return not point.warning and any(point.flop_per_s > line * point.intensity for line in lines)


# --- small helpers -------------------------------------------------------------------------------------------------------------


def _positive(value: float) -> bool:
    return value > 0 and math.isfinite(value)
