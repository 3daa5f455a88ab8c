"""What a step would take with given changes, by replay of its trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Literal

import msgspec

from rooflines.arguments import arg
from rooflines.errors import TraceError, UsageError
from rooflines.profiler.options import OptionValue
from rooflines.profiler.records import Environment, Workload
from rooflines.roofline.analysis import Analysis, OperatorRow, ReplayedStep, Row
from rooflines.roofline.judge.judge import Judged
from rooflines.roofline.predict.change import Change, PredictedStep
from rooflines.roofline.predict.options import gain_of
from rooflines.roofline.replay.replay import HOST_IN_TIME, NO_WAITS, UNCHANGED, Edit
from rooflines.roofline.replay.replays import Replays, replays_of

WHAT_IF_SCHEMA = "rooflines.whatif/1"
_NAMED = 5


# The parts of a change of which a curve shows what they give.
PARTS = tuple(part / 10 for part in range(11))
# This part of what a change gives is as good as all of it.
_ENOUGH = 0.95


class Alteration(msgspec.Struct, frozen=True, kw_only=True):
    """One change of the step."""

    #: what is changed
    change: str
    #: seconds of a step that it gives alone
    alone_s: float
    #: a step with it and those before it, in seconds
    step_s: float
    #: the same with none, a tenth, two tenths ... of it
    curve_s: tuple[float, ...] = ()

    @property
    def enough(self) -> float | None:
        """The part of it after which something else limits the step; None where it gives nothing."""
        gains_s = [self.curve_s[0] - left_s for left_s in self.curve_s]
        if not gains_s or gains_s[-1] <= 0:
            return None
        parts = zip(PARTS, gains_s, strict=False)
        return next(part for part, gain_s in parts if gain_s >= _ENOUGH * gains_s[-1])


class WhatIf(msgspec.Struct, frozen=True, kw_only=True):
    """A step with changes, one after another."""

    schema: str = WHAT_IF_SCHEMA
    workload: Workload
    environment: Environment
    #: whose time it is
    per: Literal["step", "trace"]
    #: the step as it is, in seconds
    step_s: float
    changes: tuple[Alteration, ...]
    replay: ReplayedStep


def what_if(
    judged: Judged,
    *,
    at_bound: Sequence[str] = (),
    scale: Mapping[str, float] | None = None,
    without: Sequence[str] = (),
    gaps: bool = True,
    waits: bool = True,
    options: Mapping[str, OptionValue] | None = None,
) -> WhatIf:
    """The replayed step with these changes, one after another: see ``pipeline.what_if``."""
    replays = replays_of(judged)
    if not isinstance(replays, Replays):
        why = replays.reason if replays is not None else "it has no work whose launches or times are known"
        raise TraceError(f"the trace cannot be replayed with changes: {why}.")
    analysis = judged.analysis
    step_s = analysis.step_s
    step = PredictedStep(analysis, whole_s=step_s)
    named = [
        *([] if gaps else [("the host never late", HOST_IN_TIME)]),
        *([] if waits else [("no waits of the host", NO_WAITS)]),
        *(
            (name_of(option, value), _with(replays, step, option, value))
            for option, value in (options or {}).items()
        ),
        *((f"without {text}", replays.of_rows(_times(analysis, text), launches=True)) for text in without),
        *((f"{text} at its bound", _at_bound(replays, analysis, text)) for text in at_bound),
        *(
            (f"{text} takes {factor:g} of its time", _scaled(replays, analysis, text, factor))
            for text, factor in (scale or {}).items()
        ),
    ]
    alone_s = replays.gains_s([edit for _, edit in named])
    changes = list[Alteration]()
    before = UNCHANGED
    left_s = step_s
    for (text, edit), alone in zip(named, alone_s, strict=True):
        gains_s = replays.gains_s([edit.part(part) for part in PARTS], before)
        curve_s = tuple(left_s - gain_s for gain_s in gains_s)
        before = before.joined(edit)
        left_s = curve_s[-1]
        changes.append(Alteration(change=text, alone_s=alone, step_s=left_s, curve_s=curve_s))
    return WhatIf(
        workload=analysis.workload,
        environment=analysis.environment,
        per=analysis.basis.per,
        step_s=step_s,
        changes=tuple(changes),
        replay=replays.stated,
    )


def name_of(option: str, value: OptionValue) -> str:
    """``precision bf16``, ``compile``."""
    return " ".join((option.replace("_", " "), *(() if value in (True, "on") else (str(value),))))


def _with(replays: Replays, step: PredictedStep, option: str, value: OptionValue) -> Edit:
    """What an option of ``profile`` is predicted to change. Raises UsageError where nothing tells."""
    gain = gain_of(Change(kind=option, label="", options={option: value}), step)
    edit = replays.edit(gain.of, launches=False) if gain is not None else None
    if edit is None:
        raise UsageError(
            f"the effect of {name_of(option, value)} cannot be predicted from this run.",
            hint=f"Give the operators a factor with {arg('scale')}.",
        )
    return edit


def _at_bound(replays: Replays, analysis: Analysis, text: str) -> Edit:
    """The rows that ``text`` names at their bounds. Raises UsageError where none has one."""
    bounded = {
        place: row.headroom_s for place, row in _chosen(analysis, text).items() if row.headroom_s is not None
    }
    if not bounded:
        raise UsageError(
            f"nothing that {text!r} names has a bound.", hint=f"Give a factor with {arg('scale')}."
        )
    return replays.of_rows(bounded)


def _scaled(replays: Replays, analysis: Analysis, text: str, factor: float) -> Edit:
    """The rows that ``text`` names in ``factor`` of their time. Raises UsageError for a negative one."""
    if factor < 0:
        raise UsageError(f"the factor {factor:g} of {text!r} is negative.", hint="Half of the time is 0.5.")
    return replays.of_rows(_times(analysis, text, 1 - factor))


def _times(analysis: Analysis, text: str, part: float = 1.0) -> dict[int, float]:
    """This part of the time of each row that ``text`` names."""
    return {place: part * row.time_s for place, row in _chosen(analysis, text).items()}


def _chosen(analysis: Analysis, text: str) -> dict[int, Row]:
    """The rows of the operators or the category that ``text`` names, with ``@`` those of a pattern of
    modules. Raises UsageError where there are none."""
    name, _, module = text.partition("@")
    found = {
        place: row
        for place, row in enumerate(analysis.rows)
        if (fnmatchcase(row.name, name) or (isinstance(row, OperatorRow) and row.category == name))
        and fnmatchcase(row.module, module or "*")
    }
    if not found:
        longest = dict.fromkeys(row.name for row in sorted(analysis.rows, key=lambda row: -row.time_s))
        hint = f"Those with the most time: {', '.join([*longest][:_NAMED])}; or a category, such as matmul."
        raise UsageError(f"no operator or category matches {text!r}.", hint=hint)
    return found
