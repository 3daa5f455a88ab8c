"""What follows from an analysis: what limits it, what to change first, and the verdict, which names the
largest finding."""

from __future__ import annotations

import math

from msgspec.structs import replace

from rooflines.roofline.advise.findings import find_plan
from rooflines.roofline.advise.plan import with_plan
from rooflines.roofline.advise.usage import find_in_usage, ranked
from rooflines.roofline.advise.verdict import caveats, verdict
from rooflines.roofline.analysis import Analysis, ReplayedStep
from rooflines.roofline.judge.step.input_pipeline import limited_by
from rooflines.roofline.replay.replays import Replays

# What is said of the step as a whole, and is not where operators may be missing.
_OF_THE_WHOLE = ("timeline", "bound_breakdown", "category_breakdown", "division", "idle_breakdown")


def conclude(judged: Analysis, replays: Replays | ReplayedStep | None = None) -> Analysis:
    """The judged analysis with its findings and its verdict: the seventh room (docs/design.md)."""
    if judged.unrecorded:
        judged = replace(judged, **dict.fromkeys(_OF_THE_WHOLE), activity=None)
        replays = None
    step_s = judged.division.step_s if judged.division is not None else math.inf
    plan = find_plan(judged, replays if isinstance(replays, Replays) else None)
    findings = ranked((*plan.findings, *find_in_usage(judged)), step_s)
    if isinstance(replays, Replays):
        replays = with_plan(plan._replace(findings=findings), replays, judged)
    found = replace(judged, limited_by=limited_by(judged), findings=findings, replay=replays)
    return replace(found, verdict=verdict(found), caveats=caveats(found))
