"""The roofline as data: roofs, points, names and the reach of the axes, from points and ceilings of any
origin."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from rooflines.device_specs.records import Ceiling, Ceilings
from rooflines.reports.charts.palette import SERIES_COLORS, category_order
from rooflines.reports.charts.paper import Mark, PaperSheet
from rooflines.reports.charts.roofline_parts import Limits, Ridge, Ring, Roof, RooflineParts, RooflinePoint
from rooflines.reports.words.ceilings import SOURCE_WORDS, shares_of_roofs
from rooflines.reports.words.text import clip
from rooflines.roofline.count.by_key import grouped, longest_first
from rooflines.units import scale, si

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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


class RooflineChart(RooflineParts, frozen=True, kw_only=True):
    """The chart: what it has on a page, and how it is drawn."""

    def figure(self, sheet: PaperSheet) -> Figure:
        """Draw it with Matplotlib."""
        from rooflines.reports.charts.roofline_figure import roofline_figure  # with Matplotlib

        return roofline_figure(self, sheet)

    def page_marks(self) -> dict[str, Mark]:
        """Points tell all of their operator, roofs their source; categories and groups of roofs are
        switches."""
        found = {}
        for point in self.points:
            found[f"point:{point.key}"] = Mark(
                (clip(" ".join(point.name.split()), 80), point.lines), point.category
            )
            found |= {
                f"{kind}:{point.key}": Mark(to=point.category) for kind in ("name", "leader", "warning")
            }
        for number, roof in enumerate(self.roofs):
            ceiling, off = roof.ceiling, not roof.shown
            lines = (
                ("ceiling", si(ceiling.value, ceiling.unit)),
                (SOURCE_WORDS[ceiling.source.kind], ceiling.source.detail),
            )
            found[f"roof:{number}"] = Mark((ceiling.name, lines), roof.group, off)
            found[f"roofname:{number}"] = Mark(to=roof.group, off=off)
        for number, ridge in enumerate(self.ridges):
            value = (("ridge point", ridge.text.removeprefix("ridge ")),)
            found[f"ridge:{number}"] = Mark((f"{ridge.memory} meets {ridge.compute}", value))
        found |= {f"ring:{number}": Mark((ring.name, ring.lines)) for number, ring in enumerate(self.rings)}
        return found

    def page_facts(self) -> dict[str, Any]:
        """How the axes are numbered, and how far up and down they reach with roofs that are off from the
        start."""
        off = {number: roof for number, roof in enumerate(self.roofs) if not roof.shown}
        return {
            "x": {"log": True, "factor": 1},
            "y": {"log": True, "factor": self.y_factor},
            "wide": {
                "with": sorted({roof.group for roof in off.values()}),
                "y": [round(math.log10(value), 4) for value in (self.wide.y_low, self.wide.y_high)],
            },
            # Matplotlib leaves out what lies off the sheet.
            "lines": {
                f"roof:{number}": [
                    [round(math.log10(value), 4) for value in corner]
                    for corner in zip(roof.x, roof.y, strict=True)
                ]
                for number, roof in off.items()
            },
        }

    def roof_groups(self) -> list[tuple[str, str, bool]]:
        """The groups of roofs that can be switched, with what they hold and whether they are on from the
        start."""
        groups = grouped((roof for roof in self.roofs if not roof.primary), lambda roof: roof.group)
        return [
            (name, "; ".join(roof.text for roof in roofs), roofs[0].shown) for name, roofs in groups.items()
        ]


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
    ridges: list[Ridge] = []
    if outermost is not None:
        ridges = [
            Ridge(
                memory=outermost.name,
                compute=roof.name,
                intensity=roof.value / outermost.value,
                flop_per_s=roof.value,
            )
            for roof in primary
        ]
    drawn = _worth_drawing(points)
    marks = [(point.intensity, point.flop_per_s) for point in drawn] + [
        (ridge.intensity, ridge.flop_per_s) for ridge in ridges
    ]
    marks += [(ring.intensity, ring.flop_per_s) for ring in rings]
    marks += [(top / cache.value, top) for cache in caches] if top else []
    levels = [c.value for c in (*primary, *others)]
    limits, wide = _limits(marks, levels), _limits(marks, levels + [c.value for c in compute])
    band: tuple[tuple[float, float], ...] = ()
    if outermost is not None and top is not None:
        band = tuple(
            (x, min(top, outermost.value * x)) for x in (wide.x_low, top / outermost.value, wide.x_high)
        )
    # Where many points take the same time, they would cover each other with the full area: the longest still
    # has a fifth of it.
    longest = max((point.time_s for point in points), default=1.0)
    y_factor, prefix = scale(max([point.flop_per_s for point in drawn] + levels))
    # In the legend categories are in the order of the palette; points of a series have names instead.
    time_of, total_s = (
        longest_first((point.category, point.time_s) for point in drawn),
        total_s or sum(one.time_s for one in points),
    )
    return RooflineChart(
        roofs=(
            *_memory_roofs(memory, outermost, caches, top, wide),
            *_compute_roofs(compute, primary, others, outermost, wide),
        ),
        ridges=tuple(ridges),
        points=tuple(drawn),
        labeled=tuple(_labelled(drawn)),
        rings=tuple(rings),
        band=band,
        limits=limits,
        wide=wide,
        y_factor=y_factor,
        y_unit=f"{prefix}FLOP/s",
        legend=tuple(
            (name, time_of[name] / total_s)
            for name in sorted(time_of, key=category_order)
            if name not in SERIES_COLORS
        ),
        full_s=max(longest, min(_FULL_SHARE * sum(point.time_s for point in points), 5 * longest)),
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
) -> Iterable[Roof]:
    """Slanted lines that end at the top primary compute roof."""
    outwards = [*caches, *([outermost] if outermost else [])]
    for ceiling in memory:
        start, end = (
            max(limits.x_low, limits.y_low / ceiling.value),
            min(limits.x_high, top / ceiling.value) if top else limits.x_high,
        )
        x = (start, end) if start < end else (end,)
        y = tuple(value * ceiling.value for value in x)
        cache = any(ceiling is level for level in caches)
        if cache and top:
            # A faster level reaches the compute roof earlier: draw the piece of that roof which only it makes
            # reachable, up to where the next level outwards does.
            following = outwards[
                next(index for index, level in enumerate(outwards) if level is ceiling) + 1 :
            ]
            knee = top / max((level.value for level in following), default=ceiling.value)
            if knee > end:
                x, y = (*x, min(knee, limits.x_high)), (*y, top)
        if len(x) > 1:
            primary = ceiling is outermost
            group = "" if primary else "caches" if cache else "other access patterns"
            yield Roof(ceiling=ceiling, primary=primary, shown=primary or cache, group=group, x=x, y=y)


def _compute_roofs(
    compute: Iterable[Ceiling],
    primary: Sequence[Ceiling],
    others: Sequence[Ceiling],
    outermost: Ceiling | None,
    limits: Limits,
) -> Iterable[Roof]:
    """Flat lines that begin at the primary memory roof."""
    top = max((c.value for c in primary), default=None)
    for ceiling in compute:
        start = max(limits.x_low, ceiling.value / outermost.value) if outermost else limits.x_low
        x, y = (start, limits.x_high), (ceiling.value, ceiling.value)
        dark, shown = ceiling in primary, ceiling in primary or ceiling in others
        if not dark and outermost is not None and top and ceiling.value > top:
            x, y = (top / outermost.value, *x), (top, *y)  # type: ignore[assignment]
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


def _labelled(points: Iterable[RooflinePoint]) -> Iterable[RooflinePoint]:
    """The points to name, each with a name of its own."""
    taken: set[str] = set()
    for point in _ranked(points):
        label = next(
            text
            for number in itertools.count(1)
            if (text := point.label if number == 1 else f"{point.label} #{number}") not in taken
        )
        taken.add(label)
        yield replace(point, label=label)


def _limits(marks: Sequence[tuple[float, float]], levels: Sequence[float]) -> Limits:
    """The smallest axes that hold every mark and level with a margin. They end where the data ends, so no
    empty decade is left."""
    x_low, x_high = _padded([x for x, _ in marks])
    y_low, y_high = _padded([*(y for _, y in marks), *levels])
    return Limits(x_low=x_low, x_high=x_high, y_low=y_low, y_high=y_high)


def _padded(values: Sequence[float]) -> tuple[float, float]:
    low, high = math.log10(min(values)) - _MARGIN, math.log10(max(values)) + _MARGIN
    missing = max(0.0, _LEAST_SPAN - (high - low)) / 2
    return 10 ** (low - missing), 10 ** (high + missing)
