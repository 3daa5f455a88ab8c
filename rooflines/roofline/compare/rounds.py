"""Rounds in which A and B ran in turn become one comparison, judged by how much the rounds differ."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import Literal

from msgspec.structs import replace

from rooflines.roofline.compare.compare import cause_of, row_of, verdict_of, with_noise
from rooflines.roofline.compare.noise import PairTimes, judge_rounds
from rooflines.roofline.compare.records import ChangedRow, Comparison, Figures, StepPace, Subject
from rooflines.roofline.count.by_key import grouped
from rooflines.roofline.uncertainty import half_width, quantile
from rooflines.units import si

# More rounds than this are not suggested.
MOST_ROUNDS = 100


def combine(rounds: Sequence[Comparison], small: float) -> Comparison:
    """The comparisons of three or more rounds, none of them ``judged``, as one whose noise is that between
    the rounds.

    An interval that contains 1 shows that there is no difference only if it excludes one of the share
    ``small``.
    """
    first = rounds[0]
    spans = {
        name: [getattr(one, name) for one in rounds]
        for name in ("span_before_s", "span_after_s", "span_difference_s")
    }
    comparison = replace(
        first,
        a=_subject([one.a for one in rounds]),
        b=_subject([one.b for one in rounds]),
        clocks=" ".join(f"Round {at}: {one.clocks}" for at, one in enumerate(rounds, 1) if one.clocks),
        pace=_pace([one.pace for one in rounds if one.pace is not None], small),
        **{name: None if None in times else fmean(times) for name, times in spans.items()},
        rows=_rows(rounds, "rows"),
        modules=_rows(rounds, "modules"),
        notes=tuple(dict.fromkeys(note for one in rounds for note in one.notes)),
    )
    # Counts have no noise.
    a, b = comparison.flops
    work = (f"FLOPs per {first.basis}: {si(a, 'FLOP')} in A, {si(b, 'FLOP')} in B",) if a != b else ()
    return replace(comparison, verdict=verdict_of(comparison), notes=(*work, *comparison.notes))


def _subject(sides: Sequence[Subject]) -> Subject:
    return replace(
        sides[0],
        others_cores=max((one.others_cores for one in sides if one.others_cores is not None), default=None),
    )


def _pace(paces: Sequence[StepPace], small: float) -> StepPace:
    """Drift multiplies times, so the ratios are averaged as logarithms."""
    ratios = [math.log(one.ratio) for one in paces]
    change = fmean(ratios)
    half = half_width(ratios)
    before_s = math.exp(fmean(math.log(one.before_s) for one in paces))
    more = range(len(ratios) + 1, MOST_ROUNDS + 1)
    needed = next(
        (count for count in more if quantile(count - 1) * stdev(ratios) / math.sqrt(count) < abs(change)),
        None,
    )
    exceeds = True if abs(change) > half else False if abs(change) + half < math.log1p(small) else None
    return replace(
        paces[0],
        before_s=before_s,
        after_s=before_s * math.exp(change),
        ratio=math.exp(change),
        ci95=(math.exp(change - half), math.exp(change + half)),
        exceeds_noise=exceeds,
        before_count=sum(one.before_count for one in paces),
        after_count=sum(one.after_count for one in paces),
        rounds=tuple((one.before_s, one.after_s) for one in paces),
        rounds_needed=needed if exceeds is None else None,
    )


def _rows(rounds: Sequence[Comparison], of: Literal["rows", "modules"]) -> tuple[ChangedRow, ...]:
    """The rows of all rounds with their mean times, which add up as those of each round do, the largest
    differences first."""
    every = (row for one in rounds for row in (one.rows if of == "rows" else one.modules))
    rows: list[tuple[ChangedRow, PairTimes | None]] = []
    for each in grouped(
        every, lambda row: (row.kind, row.name, _place(row.before), _place(row.after))
    ).values():
        row = _mean(each, len(rounds))
        whole = len(each) == len(rounds)
        times = PairTimes(
            [row.before.time_s for row in each if row.before], [row.after.time_s for row in each if row.after]
        )
        # Idle time and overlap are not work.
        known = (
            whole
            and len(times.before) == len(times.after)
            and min(*times.before, *times.after) > 0
            and _computes(row)
        )
        rows.append((row if whole else replace(row, direction="unknown"), times if known else None))
    return with_noise(rows, judge_rounds)


def _computes(row: ChangedRow) -> bool:
    return row.kind not in ("idle", "overlap")


def _place(side: Figures | None) -> tuple[object, ...] | None:
    return None if side is None else (side.module, side.phase, side.shapes, side.precision, side.reason)


def _mean(rows: Sequence[ChangedRow], rounds: int) -> ChangedRow:
    first = rows[0]
    before = _figures([row.before for row in rows if row.before], rounds)
    after = _figures([row.after for row in rows if row.after], rounds)
    cause = (
        cause_of(before, after)
        if _computes(first) and before is not None and after is not None
        else first.cause
    )
    return row_of(first.kind, first.name, first.match, before, after, cause)


def _figures(sides: Sequence[Figures], rounds: int) -> Figures | None:
    if not sides:
        return None
    first = sides[0]
    time_s = sum(side.time_s for side in sides) / rounds
    efficiency = first.efficiency * first.time_s / time_s if first.efficiency is not None and time_s else None
    return replace(first, time_s=time_s, efficiency=efficiency)
