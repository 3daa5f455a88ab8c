"""The findings as a plan: each with what it gives on top of those before it, by replay of the trace."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from rooflines.roofline.advise.case import Advice
from rooflines.roofline.analysis import Finding
from rooflines.roofline.replay.replay import Edit
from rooflines.roofline.replay.replays import MOST_WRONG, Replays

_HOST_IN_TIME = Edit(rates=np.zeros(1))


def planned(found: Sequence[tuple[Finding, Advice]], replays: Replays, least_s: float) -> list[Finding]:
    """The findings in an order in which each next one gives most, and those of which nothing can be replayed.

    What gives less than ``least_s`` behind all others comes last if it gives more once the host is never
    late (``later_s``; its ``about_s`` is on top of the plan and part of no sum); else the replay refutes it,
    and it is left out. It keeps its bound where much of the window is waiting that the trace does not
    explain: that may be what it shortens.
    """
    edits = [(finding, _edit(advice, replays)) for finding, advice in found]
    left = [(finding, edit) for finding, edit in edits if edit is not None]
    alone_s = dict(zip((finding.title for finding, _ in left), _gains_s(left, replays, None), strict=True))
    plan: list[Finding] = []
    before: Edit | None = None
    while gains_s := _gains_s(left, replays, before):
        at = max(range(len(left)), key=gains_s.__getitem__)
        if gains_s[at] < least_s:
            break
        finding, edit = left.pop(at)
        plan.append(replace(finding, about_s=gains_s[at], alone_s=alone_s[finding.title]))
        before = edit if before is None else before.joined(edit)
    in_time = _HOST_IN_TIME if before is None else before.joined(_HOST_IN_TIME)
    later = _gains_s(left, replays, in_time)
    for (finding, _), about_s, later_s in zip(left, gains_s, later, strict=True):
        if later_s >= least_s:
            alone = alone_s[finding.title]
            plan.append(replace(finding, about_s=about_s, alone_s=alone, later_s=later_s))
        elif replays.stated.kept_fraction > MOST_WRONG:
            plan.append(finding)
    return [*plan, *(finding for finding, edit in edits if edit is None)]


def in_order(findings: Sequence[Finding]) -> list[Finding]:
    """Findings with the largest gain first, those of a plan in its order."""
    keys, largest = [0.0] * len(findings), 0.0
    for at in range(len(findings) - 1, -1, -1):
        replayed = findings[at].about_s
        largest = largest if replayed is None else max(largest, replayed)
        keys[at] = findings[at].most_s if replayed is None else largest
    return [findings[at] for at in sorted(range(len(findings)), key=lambda at: -keys[at])]


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


def _gains_s(left: Sequence[tuple[Finding, Edit]], replays: Replays, before: Edit | None) -> list[float]:
    """What each gives on top of those ``before``: no more than its bound, and no less than nothing."""
    gains_s = replays.gains_s([edit for _, edit in left], before)
    return [min(max(0.0, gain_s), finding.most_s) for gain_s, (finding, _) in zip(gains_s, left, strict=True)]
