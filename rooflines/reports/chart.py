"""The roofline chart as data: roofs, points, labels and limits, for whatever draws it (plotly on the page, Matplotlib in the PDF).

Nothing here knows a plotting library, a colour or a pixel of a real screen. ``roofline_chart`` turns an analysis into lines and points
in SI units; ``place_labels`` finds room for names on a plot of a given size and answers in fractions of that plot, so that labels
which are apart on the size asked for stay apart on any larger one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Literal

import msgspec

from rooflines.device_specs.records import Ceiling, Ceilings
from rooflines.reports.palette import bound_style, category_order
from rooflines.roofline.analysis import Analysis, OperatorRow
from rooflines.units import percent, scale, seconds, si, significant

MOST_LABELS = 10
MOST_POINTS = 1500
# An operator this far above its bound is more than the noise of a measurement.
ABOVE_ROOF = 1.02
# A roof is drawn from the start when it judges this share of the time.
PRIMARY_SHARE = 0.1
MOST_PRIMARY = 3
BAND = 0.5
# Room around the outermost mark, and the least that an axis spans, in decades.
_MARGIN = 0.25
_LEAST_SPAN = 2.0
_LONGEST_NAME = 28
# Operators that take this share of the time at most do not stretch an axis over empty decades.
_OUTLIER_SHARE = 0.01
# The share of the time that has the largest area.
_FULL_SHARE = 0.15

SOURCE_WORDS = {"measured": "measured", "spec": "data sheet", "derived": "derived", "user": "given"}


class Roof(msgspec.Struct, frozen=True, kw_only=True):
    """One ceiling as a line through ``x`` (FLOP/byte) and ``y`` (FLOP/s).

    ``primary`` roofs are drawn dark from the start; the others are lighter and off until asked for. ``why_secondary`` groups those in
    the reader's words.
    """

    kind: Literal["memory", "compute"]
    name: str
    text: str
    value: float
    unit: str
    source: str
    detail: str
    primary: bool
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


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The axes: FLOP/byte from ``x_low`` to ``x_high``, FLOP/s from ``y_low`` to ``y_high``, both logarithmic."""

    x_low: float
    x_high: float
    y_low: float
    y_high: float

    def fraction(self, x: float, y: float) -> tuple[float, float]:
        """Where a value lies between the ends of the axes, 0 to 1."""
        return _share(x, self.x_low, self.x_high), _share(y, self.y_low, self.y_high)

    def value(self, across: float, up: float) -> tuple[float, float]:
        """The inverse of ``fraction``."""
        return self.x_low * (self.x_high / self.x_low) ** across, self.y_low * (self.y_high / self.y_low) ** up

    def contains(self, x: float, y: float) -> bool:
        """Whether a value can be seen."""
        return self.x_low <= x <= self.x_high and self.y_low <= y <= self.y_high


class Tick(msgspec.Struct, frozen=True, kw_only=True):
    """A decade of an axis with the number written at it."""

    value: float
    text: str


class Label(msgspec.Struct, frozen=True, kw_only=True):
    """A name written beside its point: ``rank`` by headroom from 1, the middle of the text at ``x``, ``y`` in the units of the axes."""

    rank: int
    row: int
    text: str
    x: float
    y: float


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
    labels: tuple[Label, ...]
    ring: Ring | None
    band: Band | None
    limits: Limits
    wide_limits: Limits
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    y_unit: str
    y_factor: float
    legend: tuple[Legend, ...]
    off_chart_count: int
    off_chart_time_s: float
    left_out_count: int


def roofline_chart(analysis: Analysis) -> Chart | None:
    """The chart of ``analysis``, or None when there is neither a roof nor a point to draw."""
    placeable = [(index, row) for index, row in enumerate(analysis.operators) if _can_be_placed(row)]
    placeable.sort(key=lambda pair: pair[1].time_s, reverse=True)
    memory = [c for c in analysis.ceilings if c.kind == "memory" and _positive(c.value)]
    compute = [c for c in analysis.ceilings if c.kind == "compute" and _positive(c.value)]
    if not placeable and not (memory and compute):
        return None

    known = Ceilings(device="", kind="", ceilings=analysis.ceilings)
    primary_memory = known.outermost_memory() or max(memory, key=lambda c: c.capacity_bytes or 0, default=None)
    primary_compute = _primary_compute(compute, known, analysis.operators)
    ridges = _ridges(primary_memory, primary_compute)
    ring = _ring(analysis)
    points = _points(_worth_drawing(placeable))
    marks = [(p.intensity, p.flop_per_s) for p in points] + [(r.intensity, r.flop_per_s) for r in ridges]
    marks += [(ring.intensity, ring.flop_per_s)] if ring else []
    levels = [c.value for c in primary_compute]
    limits = _limits(marks, levels)
    wide_limits = _limits(marks, levels + [c.value for c in compute])
    roofs = _roofs(memory, compute, primary_memory, primary_compute, wide_limits)
    labelled = _with_most_headroom(points, analysis.operators)
    y_factor, prefix = scale(max([p.flop_per_s for p in points] + levels))
    shown = {row.row for row in points}
    off_chart = [row for row in analysis.operators if not _can_be_placed(row)]
    chart = Chart(
        roofs=roofs,
        ridges=ridges,
        points=points,
        labelled=labelled,
        labels=(),
        ring=ring,
        band=_band(primary_memory, primary_compute, wide_limits),
        limits=limits,
        wide_limits=wide_limits,
        x_ticks=_ticks(wide_limits.x_low, wide_limits.x_high, 1.0),
        y_ticks=_ticks(wide_limits.y_low, wide_limits.y_high, y_factor),
        y_unit=f"{prefix}FLOP/s",
        y_factor=y_factor,
        legend=_legend(points, analysis.operators),
        off_chart_count=len(off_chart),
        off_chart_time_s=sum(row.time_s for row in off_chart),
        left_out_count=len(placeable) - len(shown),
    )
    return msgspec.structs.replace(chart, labels=place_labels(chart))


def marker_diameter(area: float, largest: float = 44.0, smallest: float = 6.0) -> float:
    """The diameter of a point, so that its area is its time; the smallest ones are kept large enough to see and to hit."""
    return max(smallest, largest * math.sqrt(max(area, 0.0)))


def shorten_left(text: str, most: int) -> str:
    """``text`` with its beginning cut at a dot where one is near: the end of a module path tells it apart."""
    if len(text) <= most:
        return text
    tail = text[-(most - 1) :]
    dot = tail.find(".")
    return "…" + (tail[dot:] if 0 <= dot < len(tail) // 2 else tail)


def short_path(path: str, most: int) -> str:
    """A module path that stays apart from its sisters: ``layer.11…query`` for ``bert.encoder.layer.11.attention.self.query``."""
    if len(path) <= most:
        return path
    parts = path.split(".")
    numbered = [index for index, part in enumerate(parts[:-1]) if part.isdigit()]
    if not numbered:
        return shorten_left(path, most)
    start, last = numbered[-1], parts[-1]
    if start > 0 and len(f"{parts[start - 1]}.{parts[start]}…{last}") <= most:
        start -= 1
    head = ".".join(parts[start : numbered[-1] + 1])
    return head + ("." if numbered[-1] + 2 == len(parts) else "…") + last


def short_name(name: str) -> str:
    """An operator without its namespace: ``conv2d`` for ``aten::conv2d``."""
    return name.removeprefix("aten::")


# --- roofs ---------------------------------------------------------------------------------------------------------------------


def _primary_compute(compute: Sequence[Ceiling], known: Ceilings, rows: Iterable[OperatorRow]) -> list[Ceiling]:
    """The compute roofs that judge a real share of the time, highest share first; the best fp32 one when nothing says."""
    time_of: dict[Ceiling, float] = {}
    for row in rows:
        if row.precision is None or not row.flops:
            continue
        roof = known.compute(row.precision, "matrix" if row.engine == "matrix" else "vector")
        if roof is not None and roof in compute:
            time_of[roof] = time_of.get(roof, 0.0) + row.time_s
    total = sum(time_of.values())
    if total > 0:
        ranked = sorted(time_of, key=lambda roof: time_of[roof], reverse=True)
        return [roof for position, roof in enumerate(ranked) if position == 0 or time_of[roof] / total >= PRIMARY_SHARE][:MOST_PRIMARY]
    preferred = [c for c in compute if c.precision == "fp32"] or list(compute)
    return sorted(preferred, key=lambda c: c.value, reverse=True)[:1]


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


def _roofs(
    memory: Sequence[Ceiling],
    compute: Sequence[Ceiling],
    primary_memory: Ceiling | None,
    primary_compute: Sequence[Ceiling],
    limits: Limits,
) -> tuple[Roof, ...]:
    """Lines for every ceiling: slanted ones end at the top primary compute roof, flat ones begin where the primary memory roof is."""
    top = max((c.value for c in primary_compute), default=None)
    roofs = []
    for ceiling in memory:
        primary = ceiling is primary_memory
        x_end = min(limits.x_high, top / ceiling.value) if top else limits.x_high
        x, y = _slanted(ceiling.value, limits, x_end)
        if not primary and primary_memory is not None and top and top / primary_memory.value > x_end:
            # A faster level reaches the compute roof earlier: draw the piece of that roof which only it makes reachable.
            x, y = (*x, top / primary_memory.value), (*y, top)
        same_place = primary_memory is not None and ceiling.capacity_bytes == primary_memory.capacity_bytes
        roofs.append(_roof(ceiling, primary, "other access patterns" if same_place else "caches", x, y))
    for ceiling in compute:
        primary = ceiling in primary_compute
        x_start = max(limits.x_low, ceiling.value / primary_memory.value) if primary_memory else limits.x_low
        x, y = (x_start, limits.x_high), (ceiling.value, ceiling.value)
        if not primary and primary_memory is not None and top and ceiling.value > top:
            x, y = (top / primary_memory.value, *x), (top, *y)
        roofs.append(_roof(ceiling, primary, "other precisions and engines", x, y))
    return tuple(roof for roof in roofs if len(roof.x) > 1)


def _slanted(bandwidth: float, limits: Limits, x_end: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
    x_start = max(limits.x_low, limits.y_low / bandwidth)
    if x_start >= x_end:
        return (x_end,), (x_end * bandwidth,)
    return (x_start, x_end), (x_start * bandwidth, x_end * bandwidth)


def _roof(ceiling: Ceiling, primary: bool, why_secondary: str, x: tuple[float, ...], y: tuple[float, ...]) -> Roof:
    source = SOURCE_WORDS[ceiling.source.kind]
    return Roof(
        kind="memory" if ceiling.kind == "memory" else "compute",
        name=ceiling.name,
        text=f"{ceiling.name} {si(ceiling.value, ceiling.unit)}, {source}",
        value=ceiling.value,
        unit=ceiling.unit,
        source=source,
        detail=ceiling.source.detail,
        primary=primary,
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
            label=_label_text(row),
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


def _label_text(row: OperatorRow) -> str:
    name = short_name(row.name).replace("backward", "bwd")
    if len(name) > _LONGEST_NAME:
        # Long names differ at both ends: _scaled_dot_pr…attention_bwd.
        name = f"{name[: _LONGEST_NAME // 2]}…{name[-(_LONGEST_NAME // 2 - 1) :]}"
    return f"{name} {short_path(row.module, 22)}".strip()


def _hover(row: OperatorRow) -> tuple[tuple[str, str], ...]:
    bound = bound_style(row.bound)
    lines: list[tuple[str, str | None]] = [
        ("module", row.module or None),
        ("phase", row.phase or None),
        ("shapes", _clip(row.shapes, 70) or None),
        ("calls", significant(row.calls) if row.calls != int(row.calls) else str(int(row.calls))),
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
    """The whole run. The profiler-off step time divides where there is one; the traced span otherwise."""
    totals = analysis.totals
    if totals is None or not (_positive(totals.flops) and _positive(totals.bytes)):
        return None
    if analysis.steps is not None and analysis.basis.per == "step":
        time_s, basis = analysis.steps.median_s, "over the median step, profiler off"
    elif analysis.timeline is not None:
        time_s, basis = analysis.timeline.span_s, "over the traced span"
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
    """The points to name, most headroom first, each by a name that no other has."""
    ranked = sorted((p for p in points if p.headroom_s > 0), key=lambda p: p.headroom_s, reverse=True)[:MOST_LABELS]
    taken: set[str] = set()
    named = []
    for point in ranked:
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
        yield f"{point.label} {_clip(row.shapes.split(',')[0], 18)}"
    number = 2
    while True:
        yield f"{point.label} #{number}"
        number += 1


# --- axes ----------------------------------------------------------------------------------------------------------------------


def _limits(marks: Sequence[tuple[float, float]], levels: Sequence[float]) -> Limits:
    """The smallest axes that hold every mark and level with a margin. They end where the data ends, so no empty decade is left."""
    x_low, x_high = _padded([x for x, _ in marks])
    y_low, y_high = _padded([y for _, y in marks] + list(levels))
    return Limits(x_low=x_low, x_high=x_high, y_low=y_low, y_high=y_high)


def _padded(values: Sequence[float]) -> tuple[float, float]:
    low, high = math.log10(min(values)) - _MARGIN, math.log10(max(values)) + _MARGIN
    missing = max(0.0, _LEAST_SPAN - (high - low)) / 2
    return 10 ** (low - missing), 10 ** (high + missing)


def _ticks(low: float, high: float, factor: float) -> tuple[Tick, ...]:
    """A tick at every decade between ``low`` and ``high``, written in multiples of ``factor``."""
    first, last = math.ceil(math.log10(low / factor) - 1e-9), math.floor(math.log10(high / factor) + 1e-9)
    every = max(1, math.ceil((last - first + 1) / 10))
    return tuple(Tick(value=factor * 10.0**power, text=significant(10.0**power, 1)) for power in range(first, last + 1, every))


# --- labels --------------------------------------------------------------------------------------------------------------------


class _Box(msgspec.Struct, frozen=True):
    left: float
    bottom: float
    right: float
    top: float

    def overlaps(self, other: _Box) -> bool:
        return self.left < other.right and other.left < self.right and self.bottom < other.top and other.bottom < self.top

    def covers(self, x: float, y: float, radius: float) -> bool:
        nearest_x, nearest_y = min(max(x, self.left), self.right), min(max(y, self.bottom), self.top)
        return math.hypot(x - nearest_x, y - nearest_y) < radius


_Segment = tuple[float, float, float, float]
_DISTANCES = (8, 16, 26, 42, 62, 86, 114, 150, 200, 260)
# Only the largest points are worth avoiding; the work of placing stays bounded.
_MOST_OBSTACLES = 150
_ANGLES = tuple(math.radians(degrees) for degrees in range(0, 360, 20))


def place_labels(
    chart: Chart,
    width: float = 900,
    height: float = 460,
    *,
    character: float = 6.2,
    line: float = 15,
    largest: float = 44.0,
    ranks_only: bool = False,
) -> tuple[Label, ...]:
    """Places for the names of ``chart.labelled`` on a plot of ``width`` by ``height`` with text of the given size (all in one unit).

    Names are set one after the other, each at the cheapest free place near its point: it may not touch another
    name, leave the plot, or draw a leader across another; covering points or roofs costs. A name without room is left out rather than
    drawn over another. With ``ranks_only`` the text is the rank, for a plot too narrow for names.
    """
    limits = chart.limits
    discs = [
        (*_pixel(limits, p.intensity, p.flop_per_s, width, height), marker_diameter(p.area, largest) / 2)
        for p in chart.points[:_MOST_OBSTACLES]
    ]
    anchors = []
    for rank, point in enumerate(chart.labelled, start=1):
        x, y = _pixel(limits, point.intensity, point.flop_per_s, width, height)
        text = str(rank) if ranks_only else point.label
        anchors.append(_Anchor(rank, text, x, y, marker_diameter(point.area, largest) / 2, (len(text) * character + 8) / 2, line / 2))
    furniture = _furniture(chart, width, height, character, line)
    best: dict[int, _Box] = {}
    # Who comes first decides who is boxed in: where names are missing, other orders may find room for more.
    for order in (lambda a: a.rank, lambda a: a.y, lambda a: -a.y, lambda a: a.x, lambda a: -a.x):
        boxes = _place(sorted(anchors, key=order), discs, *furniture, width, height)
        best = max(best, boxes, key=len)
        if len(best) == len(anchors):
            break
    labels = []
    for anchor in anchors:
        if anchor.rank in best:
            box = best[anchor.rank]
            x, y = limits.value((box.left + box.right) / 2 / width, (box.bottom + box.top) / 2 / height)
            labels.append(Label(rank=anchor.rank, row=chart.labelled[anchor.rank - 1].row, text=anchor.text, x=x, y=y))
    return tuple(labels)


class _Anchor(msgspec.Struct, frozen=True):
    """A point that wants its name beside it, with the size of both."""

    rank: int
    text: str
    x: float
    y: float
    radius: float
    half_width: float
    half_height: float


def _place(
    anchors: Iterable[_Anchor],
    discs: Sequence[tuple[float, float, float]],
    lines: Sequence[_Segment],
    reserved: Sequence[_Box],
    width: float,
    height: float,
) -> dict[int, _Box]:
    """The boxes of the names by rank, each at the cheapest place that those before it left free."""
    boxes = list(reserved)
    leaders: list[_Segment] = []
    placed = {}
    for anchor in anchors:
        others = [disc for disc in discs if disc[:2] != (anchor.x, anchor.y)]
        best: tuple[float, _Box, _Segment] | None = None
        for distance in _DISTANCES:
            # A place further out costs its distance at least; nothing there can be cheaper.
            if best is not None and best[0] <= distance:
                break
            for angle in _ANGLES:
                # The text starts where the leader ends: shift its middle away from the point by half its size.
                reach = anchor.radius + distance
                middle_x = anchor.x + math.cos(angle) * (reach + anchor.half_width)
                middle_y = anchor.y + math.sin(angle) * (reach + anchor.half_height)
                box = _Box(
                    middle_x - anchor.half_width,
                    middle_y - anchor.half_height,
                    middle_x + anchor.half_width,
                    middle_y + anchor.half_height,
                )
                if box.left < 0 or box.bottom < 0 or box.right > width or box.top > height:
                    continue
                leader = (anchor.x, anchor.y, min(max(anchor.x, box.left), box.right), min(max(anchor.y, box.bottom), box.top))
                if any(box.overlaps(other) for other in boxes) or any(_cross(leader, other) for other in leaders):
                    continue
                if any(_enters(leader, other) for other in boxes) or any(_enters(other, box) for other in leaders):
                    continue
                cost = distance + 45 * sum(_enters(other, box) for other in lines) + 8 * sum(_cross(leader, other) for other in lines)
                if best is not None and best[0] <= cost:
                    continue
                cost += 14 * box.covers(anchor.x, anchor.y, anchor.radius) + sum(
                    40 * box.covers(*disc) + 40 * (_gap(leader, disc[0], disc[1]) < disc[2] + 2) for disc in others
                )
                if best is None or cost < best[0]:
                    best = (cost, box, leader)
        if best is not None:
            boxes.append(best[1])
            leaders.append(best[2])
            placed[anchor.rank] = best[1]
    return placed


def _furniture(chart: Chart, width: float, height: float, character: float, line: float) -> tuple[list[_Segment], list[_Box]]:
    """What names should not cross and may not cover: the roofs with the strip of text above them, the ring with its name."""
    lines: list[_Segment] = []
    boxes: list[_Box] = []
    for roof in chart.roofs:
        if not roof.primary:
            continue
        for segment in _segments(roof, chart.limits, width, height):
            ax, ay, bx, by = segment
            length = math.hypot(bx - ax, by - ay) or 1.0
            aside_x, aside_y = -(by - ay) / length, (bx - ax) / length
            lines += [(ax + aside_x * d, ay + aside_y * d, bx + aside_x * d, by + aside_y * d) for d in (0.0, 0.6 * line, 1.2 * line)]
        if roof.kind == "compute":
            text, level = len(roof.text) * character, _pixel(chart.limits, chart.limits.x_high, roof.value, width, height)[1]
            boxes.append(_Box(max(0.0, width - text), level, width, level + 1.2 * line))
    if chart.ring is not None:
        x, y = _pixel(chart.limits, chart.ring.intensity, chart.ring.flop_per_s, width, height)
        boxes.append(_Box(x - line, y - line, x + line, y + line))
        text = len(chart.ring.text) * character
        start = x - 0.8 * line - text if ring_text_is_left(chart) else x + 0.8 * line
        boxes.append(_Box(start, y - 1.8 * line, start + text, y - 0.5 * line))
    return lines, boxes


def ring_text_is_left(chart: Chart) -> bool:
    """Whether the name of the ring stands left of it, below its middle: near the right edge it would not fit on the other side."""
    return chart.ring is not None and chart.limits.fraction(chart.ring.intensity, chart.ring.flop_per_s)[0] > 0.75


def _pixel(limits: Limits, x: float, y: float, width: float, height: float) -> tuple[float, float]:
    across, up = limits.fraction(x, y)
    return across * width, up * height


def _segments(roof: Roof, limits: Limits, width: float, height: float) -> list[_Segment]:
    corners = [_pixel(limits, x, y, width, height) for x, y in zip(roof.x, roof.y, strict=True)]
    return [(*start, *end) for start, end in pairwise(corners)]


def _cross(first: _Segment, second: _Segment) -> bool:
    """Whether two segments cross."""
    ax, ay, bx, by = first
    cx, cy, dx, dy = second
    return (
        _turn(ax, ay, bx, by, cx, cy) * _turn(ax, ay, bx, by, dx, dy) < 0
        and _turn(cx, cy, dx, dy, ax, ay) * _turn(cx, cy, dx, dy, bx, by) < 0
    )


def _turn(ax: float, ay: float, bx: float, by: float, cx: float, cy: float) -> float:
    return (bx - ax) * (cy - ay) - (by - ay) * (cx - ax)


def _gap(segment: _Segment, x: float, y: float) -> float:
    """How far a place is from a segment."""
    ax, ay, bx, by = segment
    squared = (bx - ax) ** 2 + (by - ay) ** 2
    along = 0.0 if squared == 0 else min(1.0, max(0.0, ((x - ax) * (bx - ax) + (y - ay) * (by - ay)) / squared))
    return math.hypot(x - ax - along * (bx - ax), y - ay - along * (by - ay))


def _enters(segment: _Segment, box: _Box) -> bool:
    """Whether a segment passes through a box."""
    ax, ay, _, _ = segment
    if box.left < ax < box.right and box.bottom < ay < box.top:
        return True
    diagonals = ((box.left, box.bottom, box.right, box.top), (box.left, box.top, box.right, box.bottom))
    return any(_cross(segment, diagonal) for diagonal in diagonals)


# --- small helpers -------------------------------------------------------------------------------------------------------------


def _positive(value: float) -> bool:
    return value > 0 and math.isfinite(value)


def _share(value: float, low: float, high: float) -> float:
    return math.log(value / low) / math.log(high / low)


def _clip(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
