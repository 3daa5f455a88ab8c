"""The roofline of points and ceilings of any origin: which roofs are drawn and how, which points have names,
the reach of the axes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from msgspec.structs import replace

from rooflines.device_specs.records import Ceiling, Ceilings
from rooflines.reports.charts.palette import SERIES_COLORS, category_order
from rooflines.reports.charts.roofline_figure import Limits, Ridge, Ring, Roof, RooflineChart, RooflinePoint
from rooflines.reports.words.ceilings import shares_of_roofs
from rooflines.roofline.count.by_key import longest_first
from rooflines.units import scale

MOST_LABELS = 10
MOST_POINTS = 1500
# A compute roof is drawn dark when it judges this share of the time, and lighter from the second share on.
PRIMARY_SHARE = 0.1
MOST_PRIMARY = 3
SHOWN_SHARE = 0.01
# Points that take this share of the time at most do not stretch an axis over empty decades.
_OUTLIER_SHARE = 0.01
# The share of the time that has the largest area.
_FULL_SHARE = 0.15
# Room around the outermost mark, and the least that an axis spans, in decades.
_MARGIN, _LEAST_SPAN = 0.25, 2.0


def roofline_drawing(
    points: Sequence[RooflinePoint],
    ceilings: Iterable[Ceiling],
    *,
    rings: Sequence[Ring] = (),
    total_s: float = 0.0,
    missing: str = "",
    paths: bool = False,
) -> RooflineChart | None:
    """The chart of ``points`` on the roofs of ``ceilings``; None where there is neither a roof nor a point to
    draw.

    ``total_s`` is the time that the shares of the legend are of.
    """
    points = sorted(points, key=lambda point: point.time_s, reverse=True)
    known = Ceilings(
        device="", kind="", ceilings=tuple(c for c in ceilings if c.value > 0 and math.isfinite(c.value))
    )
    memory, compute = known.main("memory"), known.main("compute")
    if not points and not (memory and compute):
        return None
    outermost = known.outermost_memory() or max(memory, key=lambda c: c.capacity_bytes or 0, default=None)
    caches = [level for level in known.memory_levels() if level is not outermost]
    primary, others = _compute_in_run(compute, known, points)
    top = max((c.value for c in primary), default=None)
    ridges = [
        Ridge(memory=level.name, compute=roof.name, intensity=roof.value / level.value, flop_per_s=roof.value)
        for level in ([outermost] if outermost else [])
        for roof in primary
    ]
    drawn = _worth_drawing(points)
    placed: tuple[RooflinePoint | Ridge | Ring, ...] = (*drawn, *ridges, *rings)
    marks = [(one.intensity, one.flop_per_s) for one in placed]
    marks += [(top / cache.value, top) for cache in caches] if top else []
    levels = [c.value for c in (*primary, *others)]
    limits, wide = _limits(marks, levels), _limits(marks, levels + [c.value for c in compute])
    band: tuple[tuple[float, float], ...] = ()
    if outermost and top is not None:
        band = tuple(
            (x, min(top, outermost.value * x)) for x in (wide.x[0], top / outermost.value, wide.x[1])
        )
    # Where many points take the same time, they would cover each other with the full area: the longest still
    # has a fifth of it.
    longest = max((point.time_s for point in points), default=1.0)
    all_s = sum(point.time_s for point in points)
    y_factor, prefix = scale(max([point.flop_per_s for point in drawn] + levels))
    # In the legend categories are in the order of the palette; points of a series have names instead.
    time_of = longest_first((point.category, point.time_s) for point in drawn)
    legend = sorted((name for name in time_of if name not in SERIES_COLORS), key=category_order)
    return RooflineChart(
        roofs=(
            *_memory_roofs(memory, outermost, caches, top, wide),
            *_compute_roofs(compute, primary, others, outermost, wide),
        ),
        ridges=tuple(ridges),
        points=tuple(drawn),
        labeled=tuple(_labeled(drawn)),
        rings=tuple(rings),
        band=band,
        limits=limits,
        wide=wide,
        y_factor=y_factor,
        y_unit=f"{prefix}FLOP/s",
        legend=tuple((name, time_of[name] / (total_s or all_s)) for name in legend),
        full_s=max(longest, min(_FULL_SHARE * all_s, 5 * longest)),
        left_out=len(points) - len(drawn),
        missing=missing,
        paths=paths,
    )


# --- roofs ------------------------------------------------------------------------------------------------


def _compute_in_run(
    compute: Sequence[Ceiling], known: Ceilings, points: Iterable[RooflinePoint]
) -> tuple[list[Ceiling], list[Ceiling]]:
    """The compute roofs that judge a real share of the time, highest share first, and those that judge a
    small one.

    Where nothing says, it is the best fp32 one.
    """
    shares = shares_of_roofs(known, points)
    if shares:
        primary = [roof for rank, roof in enumerate(shares) if rank == 0 or shares[roof] >= PRIMARY_SHARE][
            :MOST_PRIMARY
        ]
        return primary, [roof for roof in shares if roof not in primary and shares[roof] >= SHOWN_SHARE]
    preferred = [c for c in compute if c.precision == "fp32"] or list(compute)
    return sorted(preferred, key=lambda c: c.value, reverse=True)[:1], []


def _memory_roofs(
    memory: Iterable[Ceiling],
    outermost: Ceiling | None,
    caches: Sequence[Ceiling],
    top: float | None,
    limits: Limits,
) -> Iterator[Roof]:
    """Slanted lines that end at the top primary compute roof."""
    outwards = [*caches, *([outermost] if outermost else [])]
    (left, right), (bottom, _) = limits
    for ceiling in memory:
        start, end = max(left, bottom / ceiling.value), min(right, top / ceiling.value) if top else right
        x = (start, end) if start < end else (end,)
        y = tuple(value * ceiling.value for value in x)
        following = next(
            (outwards[index + 1 :] for index, level in enumerate(caches) if level is ceiling), None
        )
        if following is not None and top:
            # A faster level reaches the compute roof earlier: draw the piece of that roof which only it makes
            # reachable, up to where the next level outwards does.
            knee = top / max((level.value for level in following), default=ceiling.value)
            if knee > end:
                x, y = (*x, min(knee, right)), (*y, top)
        if len(x) > 1:
            primary, cache = ceiling is outermost, following is not None
            group = "" if primary else "caches" if cache else "other access patterns"
            yield Roof(ceiling=ceiling, primary=primary, shown=primary or cache, group=group, x=x, y=y)


def _compute_roofs(
    compute: Iterable[Ceiling],
    primary: Sequence[Ceiling],
    others: Sequence[Ceiling],
    outermost: Ceiling | None,
    limits: Limits,
) -> Iterator[Roof]:
    """Flat lines that begin at the primary memory roof."""
    top = max((c.value for c in primary), default=None)
    for ceiling in compute:
        left, right = limits.x
        x: tuple[float, ...] = (max(left, ceiling.value / outermost.value) if outermost else left, right)
        y: tuple[float, ...] = (ceiling.value, ceiling.value)
        dark = ceiling in primary
        shown = dark or ceiling in others
        if not dark and outermost and top and ceiling.value > top:
            x, y = (top / outermost.value, *x), (top, *y)
        group = "" if dark else "other precisions used" if shown else "other precisions and engines"
        yield Roof(ceiling=ceiling, primary=dark, shown=shown, group=group, x=x, y=y)


# --- points and axes --------------------------------------------------------------------------------------


def _worth_drawing(points: Sequence[RooflinePoint]) -> list[RooflinePoint]:
    """The points, given longest first, without outliers that would stretch an axis over empty decades for
    next to no time.

    From each end of both axes, what lies a decade or more beyond the rest goes if it takes ``_OUTLIER_SHARE``
    of the time at most; a point that earns a name stays.
    """
    points = points[:MOST_POINTS]
    named = {point.key for point in _ranked(points)}
    allowed = _OUTLIER_SHARE * sum(point.time_s for point in points)
    outliers: set[int] = set()
    for of, inward in itertools.product(
        (lambda point: point.intensity, lambda point: point.flop_per_s), (False, True)
    ):
        passed: list[int] = []
        time_s = 0.0
        for point, neighbor in pairwise(sorted(points, key=of, reverse=inward)):
            passed.append(point.key)
            time_s += point.time_s
            if time_s > allowed or point.key in named:
                break
            if abs(math.log10(of(neighbor) / of(point))) >= 1:
                outliers.update(passed)
    return [point for point in points if point.key not in outliers]


def _ranked(points: Iterable[RooflinePoint]) -> list[RooflinePoint]:
    """The points to name, most gain first."""
    candidates = [point for point in points if point.label and point.gain_s > 0]
    return sorted(candidates, key=lambda point: point.gain_s, reverse=True)[:MOST_LABELS]


def _labeled(points: Iterable[RooflinePoint]) -> Iterator[RooflinePoint]:
    """The points to name, each with a name of its own."""
    taken: set[str] = set()
    for point in _ranked(points):
        numbered = (f"{point.label} #{number}" for number in itertools.count(2))
        label = next(text for text in itertools.chain([point.label], numbered) if text not in taken)
        taken.add(label)
        yield replace(point, label=label)


def _limits(marks: Sequence[tuple[float, float]], levels: Sequence[float]) -> Limits:
    """The smallest axes that hold every mark and level with a margin. They end where the data ends, so no
    empty decade is left."""
    return Limits(_padded([x for x, _ in marks]), _padded([*(y for _, y in marks), *levels]))


def _padded(values: Sequence[float]) -> tuple[float, float]:
    low, high = math.log10(min(values)) - _MARGIN, math.log10(max(values)) + _MARGIN
    missing = max(0.0, _LEAST_SPAN - (high - low)) / 2
    return 10 ** (low - missing), 10 ** (high + missing)
