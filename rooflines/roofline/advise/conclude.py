"""What follows from an analysis: what limits it, what to change first, and the verdict, which names the
largest finding."""

from __future__ import annotations

import itertools
import math

import msgspec

from rooflines.roofline.advise.findings import find
from rooflines.roofline.advise.usage import find_in_usage, ranked
from rooflines.roofline.advise.verdict import caveats, verdict
from rooflines.roofline.analysis import Analysis, Finding, ReplayedStep
from rooflines.roofline.judge.step.input_pipeline import limited_by
from rooflines.roofline.replay.replays import Replays

# What is said of the step as a whole, and is not where operators may be missing.
_OF_THE_WHOLE = ("timeline", "bound_breakdown", "category_breakdown", "division", "idle_breakdown")


def conclude(judged: Analysis, replays: Replays | ReplayedStep | None = None) -> Analysis:
    """The judged analysis with its findings and its verdict: the seventh room (docs/design.md)."""
    if judged.unrecorded:
        judged, replays = msgspec.structs.replace(judged, **dict.fromkeys(_OF_THE_WHOLE), activity=None), None
    step_s = judged.division.step_s if judged.division is not None else math.inf
    trusted = replays if isinstance(replays, Replays) else None
    findings = ranked((*find(judged, trusted), *find_in_usage(judged)), step_s)
    stated = replays.stated if isinstance(replays, Replays) else replays
    if stated is not None:
        stated = msgspec.structs.replace(stated, chain_s=_chain(findings, step_s))
    found = msgspec.structs.replace(judged, limited_by=limited_by(judged), findings=findings, replay=stated)
    return msgspec.structs.replace(found, verdict=verdict(found), caveats=caveats(found))


def _chain(findings: tuple[Finding, ...], step_s: float) -> tuple[float, ...]:
    """A step as it is, and after each of the findings that are replayed; empty without any."""
    gains_s = [one.about_s for one in findings if one.about_s is not None and one.later_s is None]
    return tuple(itertools.accumulate((-gain_s for gain_s in gains_s), initial=step_s)) if gains_s else ()
