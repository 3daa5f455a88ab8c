"""The findings as a plan: each with what it gives on top of those before it, by replay of the trace."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from rooflines.roofline.advise.case import Advice
from rooflines.roofline.analysis import Analysis, Finding, Key, ReplayedStep, Settled
from rooflines.roofline.predict.rows import exchanges_data
from rooflines.roofline.replay.replay import HOST_IN_TIME, NO_WAITS, UNCHANGED, Edit
from rooflines.roofline.replay.replays import MOST_WRONG, Replays

# What gives less than this part of its time need not be worked on.
_LITTLE = 0.1
# Rows that need no work are named where they are this part of the step, and this part of its time is counted.
_WORTH_SAYING = 0.1
_COUNTED = 0.9


class Planned(NamedTuple):
    """Findings in their order, the edit of each that is replayed, by title, and the rows they are about."""

    findings: Sequence[Finding]
    edits: Mapping[str, Edit] = {}
    rows: frozenset[Key] = frozenset()


def planned(found: Sequence[tuple[Finding, Advice]], replays: Replays, least_s: float) -> Planned:
    """The findings in an order in which each next one gives most, and those of which nothing can be replayed.

    What gives less than ``least_s`` behind all others comes last if it gives more once the host is never
    late (``later_s``; its ``about_s`` is on top of the plan and part of no sum); else the replay refutes it,
    and it is left out. It keeps its bound where much of the window is waiting that the trace does not
    explain: that may be what it shortens. On a processor a gain is no better known than its bound, and has
    no ``alone_s``.
    """
    edits = [(finding, _edit(advice, replays)) for finding, advice in found]
    left = [(finding, edit) for finding, edit in edits if edit is not None]
    alone_s: dict[str, float] = {}
    if not replays.stated.by_construction:
        titles = (finding.title for finding, _ in left)
        alone_s = dict(zip(titles, _gains_s(left, replays, UNCHANGED), strict=True))
    plan = list[Finding]()
    before = UNCHANGED
    while gains_s := _gains_s(left, replays, before):
        at = max(range(len(left)), key=gains_s.__getitem__)
        if gains_s[at] < least_s:
            break
        finding, edit = left.pop(at)
        plan.append(replace(finding, about_s=gains_s[at], alone_s=alone_s.get(finding.title)))
        before = before.joined(edit)
    later = _gains_s(left, replays, before.joined(HOST_IN_TIME))
    for (finding, _), about_s, later_s in zip(left, gains_s, later, strict=True):
        if later_s >= least_s:
            alone = alone_s.get(finding.title)
            plan.append(replace(finding, about_s=about_s, alone_s=alone, later_s=later_s))
        elif replays.stated.kept_fraction > MOST_WRONG:
            plan.append(finding)
    return Planned(
        (*plan, *(finding for finding, edit in edits if edit is None)),
        {finding.title: edit for finding, edit in edits if edit is not None},
        frozenset(key for _, advice in found for key in advice.of),
    )


def with_plan(plan: Planned, replays: Replays, analysis: Analysis) -> ReplayedStep:
    """What is stated of a replay, with the step after each of its findings, what is the limit after the last
    one, and the rows that need no work."""
    taken = [one for one in plan.findings if one.about_s is not None and one.later_s is None]
    last = functools.reduce(Edit.joined, (plan.edits[one.title] for one in taken), UNCHANGED)
    stated = replace(replays.stated, settled=_settled(last, plan, replays, analysis))
    if not taken:
        return stated
    return replace(
        stated,
        chain_s=tuple(itertools.accumulate((-one.gain_s for one in taken), initial=analysis.step_s)),
        limits_s=_limits(last, replays, analysis),
    )


def _limits(last: Edit, replays: Replays, analysis: Analysis) -> dict[str, float]:
    """What the step after the ``last`` change would gain without its host's time, its communication, and its
    other work."""
    talks = np.array([*map(exchanges_data, analysis.rows), False])[replays.row]
    edits = {
        "host": HOST_IN_TIME.joined(NO_WAITS),
        "communication": Edit(scale=np.where(talks, 0.0, 1.0)),
        "operators": Edit(scale=np.where(talks | (replays.row < 0), 1.0, 0.0)),
    }
    gains_s = replays.gains_s([*edits.values()], last)
    return {name: gain_s for name, gain_s in zip(edits, gains_s, strict=True) if gain_s > 0}


def _settled(last: Edit, plan: Planned, replays: Replays, analysis: Analysis) -> Settled | None:
    """The rows with time that no finding is about and that give little at their bounds, now and after the
    ``last`` change. None where they take little, and where much of the step is without a count or not
    explained."""
    coverage = analysis.coverage
    counted = coverage.modeled_time_fraction if coverage is not None else None
    if (counted or 0.0) < _COUNTED or replays.stated.kept_fraction > MOST_WRONG:
        return None
    rows = {
        place: row
        for place, row in enumerate(analysis.operators)
        if place not in plan.rows
        and row.gain_s is not None
        and row.headroom_s is not None
        and row.gain_s <= _LITTLE * row.time_s
    }
    edits = [replays.of_rows({place: row.headroom_s or 0.0}) for place, row in rows.items()]
    later_s = replays.gains_s(edits, last)
    most = [(row, max(row.gain_s or 0.0, gain_s)) for row, gain_s in zip(rows.values(), later_s, strict=True)]
    left = sorted((one for one in most if one[1] <= _LITTLE * one[0].time_s), key=lambda one: -one[0].time_s)
    time_s = sum(row.time_s for row, _ in left)
    if time_s < _WORTH_SAYING * analysis.step_s:
        return None
    return Settled(
        time_s=time_s,
        gain_s=sum(gain_s for _, gain_s in left),
        operators=tuple(dict.fromkeys(row.name for row, _ in left)),
    )


def in_order(findings: Sequence[Finding]) -> list[Finding]:
    """Findings with the largest gain first, those of a plan in its order."""
    keys = list[float]()
    largest = 0.0
    for one in reversed(findings):
        largest = max(largest, one.about_s or 0.0)
        keys.append(one.most_s if one.about_s is None else largest)
    ordered = sorted(zip(reversed(keys), findings, strict=True), key=lambda pair: -pair[0])
    return [finding for _, finding in ordered]


def _edit(advice: Advice, replays: Replays) -> Edit | None:
    """What an advice changes; None where it has no saving, or the trace does not hold what it is about."""
    of_s = sum(advice.of.values())
    if not advice.saves_s or not of_s:
        return None
    share = min(1.0, advice.saves_s / of_s)
    change = {key: of * share for key, of in advice.of.items()}
    if advice.changes == "launching":
        return replays.launching(change)
    return replays.edit(change, launches=advice.changes == "work")


def _gains_s(left: Sequence[tuple[Finding, Edit]], replays: Replays, before: Edit) -> list[float]:
    """What each gives on top of those ``before``: no more than its bound, and no less than nothing."""
    gains_s = replays.gains_s([edit for _, edit in left], before)
    return [min(max(0.0, gain_s), finding.most_s) for gain_s, (finding, _) in zip(gains_s, left, strict=True)]
