"""What follows from an analysis: what limits it, what to change first, and the verdict, which names the
largest finding."""

from __future__ import annotations

import math

import msgspec

from rooflines.roofline.advise.findings import find
from rooflines.roofline.advise.usage import find_in_usage, ranked
from rooflines.roofline.advise.verdict import caveats, verdict
from rooflines.roofline.analysis import Analysis
from rooflines.roofline.judge.step.input_pipeline import limited_by

# What is said of the step as a whole, and is not where operators may be missing.
_OF_THE_WHOLE = ("timeline", "bound_breakdown", "category_breakdown", "division", "idle_breakdown")


def conclude(judged: Analysis) -> Analysis:
    """The judged analysis with its findings and its verdict: the sixth room (docs/design.md)."""
    if judged.unrecorded:
        judged = msgspec.structs.replace(judged, **dict.fromkeys(_OF_THE_WHOLE), activity=None)
    step_s = judged.division.step_s if judged.division is not None else math.inf
    findings = ranked((*find(judged), *find_in_usage(judged)), step_s)
    found = msgspec.structs.replace(judged, limited_by=limited_by(judged), findings=findings)
    return msgspec.structs.replace(found, verdict=verdict(found), caveats=caveats(found))
