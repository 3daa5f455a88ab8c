"""Two analyses become a comparison: row by row what got slower, what is new, what is gone, and whether the
whole exceeds the noise."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from msgspec.structs import replace

from rooflines.errors import UsageError
from rooflines.roofline.analysis import Analysis
from rooflines.roofline.compare.noise import (
    FEWEST_ROWS,
    MOST_SCATTER,
    STEP_LEVEL,
    Calibration,
    PairTimes,
    calibrate,
    is_disturbed,
    is_known,
    judge,
)
from rooflines.roofline.compare.noise import FEWEST_STEPS as FEWEST_TRACED
from rooflines.roofline.compare.records import (
    ChangedRow,
    Comparison,
    Direction,
    Drift,
    Fact,
    Figures,
    Kind,
    Match,
    Noise,
    StepPace,
    Subject,
)
from rooflines.roofline.compare.row_matching import Pair, match_modules, match_operators
from rooflines.roofline.judge.step.interference import is_delayed, is_slowed
from rooflines.roofline.predict.options import FACTS, OPTIONS
from rooflines.roofline.uncertainty import interval95, resampled_medians
from rooflines.units import percent, seconds, si, significant

# Of fewer steps not even the shortest and the longest enclose the median with a probability of 95 %: 1 - 2 *
# 0.5^6 = 97 %.
FEWEST_STEPS = 6
# Clocks that differ by less count as equal.
_SAME_CLOCK = 0.02
# A ratio that differs from 1 by less needs no word.
NOTABLE = 0.02
# A difference of the profiler's cost on the two sides, as a share of a step, from which on it is said.
NOTABLE_DILATION = 0.05
# Other work that makes a step a tenth longer or shorter is no noise, in logarithms.
_OTHER_WORK = 0.1


def compare(
    before: Analysis, after: Analysis, sources: tuple[str, str] = ("A", "B"), *, judged: bool = True
) -> Comparison:
    """Compare ``after`` (B) with the baseline ``before`` (A); ``sources`` say where they came from.

    Not ``judged``, it is one of several rounds, whose noise is known when all have run (``rounds.combine``).

    Unlike environments are compared, too: ``Comparison.unlike`` names the facts for which that means little.
    Raises UsageError where there is nothing to compare: one side per step and the other a whole trace, or
    nothing that both sides measured.
    """
    sides = {"A": before, "B": after}
    timelines = before.timeline is not None and after.timeline is not None
    if timelines and before.basis.per != after.basis.per:
        whole = sources[0] if before.basis.per == "trace" else sources[1]
        raise UsageError(
            f"{sources[0]!r} and {sources[1]!r} cannot be compared: {whole!r} has no step marks, "
            "so its number of steps is not known, "
            "while the other is per step.",
            hint="Record both with a schedule and prof.step(), or both without.",
        )
    pace = _pace(before, after)
    if pace is None:
        raise UsageError(
            f"{sources[0]!r} and {sources[1]!r} cannot be compared: both need timed steps, or "
            "both a trace with events.",
            hint=(
                "One of the runs may have been interrupted. Run 'rooflines analyze' to see what it contains."
            ),
        )
    # Where one trace has no modules at all, the operators of the other would all be new.
    by_module = not timelines or _has_modules(before) == _has_modules(after)
    differs = differing_facts(before, after)
    pairs = match_operators(before, after, by_module=by_module) if timelines else []
    rows = [(_change(pair), _step_times(pair)) for pair in pairs]
    by_work = _by_work([row for row, _ in rows])
    disturbed = [
        name
        for name, side in sides.items()
        if (len(side.traced_steps) >= FEWEST_TRACED and is_disturbed(_traced_s(side))) or is_slowed(side)
    ]
    calibration = (
        None
        if disturbed or not judged
        else calibrate([times for _, times in rows if times is not None], alike=not differs)
    )
    drift = calibration.drift if calibration is not None else None
    # What other programs slow down, and not alike on both sides, is no change of an operator.
    unsure = (
        judged
        and drift is None
        and (bool(disturbed) or any(side.other_programs is not None for side in sides.values()))
    )
    calibration = None if unsure else calibration
    spans: dict[str, Any] = {}
    if (a := before.timeline) is not None and (b := after.timeline) is not None:
        spans = {
            "span_before_s": a.span_s,
            "span_after_s": b.span_s,
            "span_difference_s": b.span_s - a.span_s,
        }
        # The host's own time does not drift as the operators do: of these rows the noise is not known.
        rows.append((_time("idle", a.idle_s, b.idle_s, _idle_cause(before, after)), None))
        if a.overlap_s or b.overlap_s:  # time that two rows have both; none on a CPU
            rows.append((_time("overlap", -a.overlap_s, -b.overlap_s), None))
    modules = [
        (_change(pair), _step_times(pair))
        for pair in (match_modules(before, after, pairs) if timelines and by_module else ())
    ]

    low, high = _explained(before, after)

    def noise_of(times: list[PairTimes]) -> Sequence[Noise | None]:
        if calibration is None:
            return [None] * len(times)
        found = judge(times, calibration)
        return [None if one.significant and low <= one.ratio <= high else one for one in found]

    pace = _apart(pace, before, after) if unsure else _with_noise(pace, before, after, calibration)
    found = [one for one in (pace, pace.noise) if one is not None]
    # A ratio is known as well as its interval says, and any in it may be the right one.
    intervals = [one.ci95 or (one.ratio, one.ratio) for one in found]
    explained = low < high and any(least <= high and most >= low for least, most in intervals)
    # Neither noise nor other programs add operators.
    other_work = abs(math.log(by_work)) > _OTHER_WORK and (by_work > 1) == (pace.ratio > 1)
    if judged and other_work and pace.exceeds_noise is False:
        pace = replace(pace, exceeds_noise=True)
    elif judged and not other_work:
        may_be = is_delayed(before) or is_delayed(after)
        if may_be or (pace.exceeds_noise and explained):
            pace = replace(pace, exceeds_noise=None)
    comparison = Comparison(
        a=_subject(before, sources[0]),
        b=_subject(after, sources[1]),
        basis=before.basis.per if timelines else "step",
        differs=differs,
        clocks=_clocks(sides),
        pace=pace,
        drift=drift,
        **spans,
        rows=with_noise(rows, noise_of),
        modules=with_noise(modules, noise_of),
        notes=tuple(_notes(sides, disturbed, drift, by_module=by_module, judged=judged)),
    )
    return replace(comparison, verdict=verdict_of(comparison))


def signed_seconds(value: float) -> str:
    """A difference in time with its sign: ``+1.20 ms``, ``−3.4 µs``."""
    return f"{'+' if value > 0 else '−' if value < 0 else ''}{seconds(abs(value))}"


def place_of(row: ChangedRow) -> str:
    """The operator with its module, as a sentence would name it: ``conv2d of layer1.0``."""
    side = row.after or row.before
    name = row.name.removeprefix("aten::")
    return f"{name} of {side.module}" if side is not None and side.module else name


def _subject(analysis: Analysis, source: str) -> Subject:
    return Subject(
        source=source,
        workload=analysis.workload,
        environment=analysis.environment,
        created=analysis.created,
        status=analysis.status,
        bound_breakdown=analysis.bound_breakdown,
        others_cores=analysis.other_programs.busy if analysis.other_programs is not None else None,
        generated=_generated(analysis),
    )


def _generated(analysis: Analysis) -> dict[str, float] | None:
    """How fast the steps generate text; None where their tokens have no times."""
    found = analysis.generation
    if found is None or found.latency is None:
        return None
    figures = {
        name: getattr(found.latency, name) for name in ("ttft_s", "itl_median_s", "itl_p90_s", "itl_p99_s")
    }
    figures["tokens_per_s"] = found.tokens_per_s
    return {name: value for name, value in figures.items() if value is not None}


def _has_modules(analysis: Analysis) -> bool:
    return any(row.module for row in analysis.operators)


def _traced_s(analysis: Analysis) -> list[float]:
    return [step.duration_s for step in analysis.traced_steps]


# --- the whole --------------------------------------------------------------------------------------------


def _pace(before: Analysis, after: Analysis) -> StepPace | None:
    """The best figure that both sides have: timed steps, else enough traced ones to know their noise, else
    the spans of the traces.

    None when the baseline took no time, and where the sides have no figure in common.
    """
    of: Literal["timed steps", "traced steps", "span"]
    times: list[Sequence[float]] = [_traced_s(before), _traced_s(after)]
    counts = len(times[0]), len(times[1])
    if before.steps is not None and after.steps is not None:
        of = "timed steps"
        times = [before.steps.quiet_s, after.steps.quiet_s]
        counts = (before.steps.count, after.steps.count)
        before_s, after_s = before.steps.median_s, after.steps.median_s
    elif min(counts) >= FEWEST_STEPS:
        of, (before_s, after_s) = "traced steps", map(float, map(np.median, times))
    elif before.timeline is not None and after.timeline is not None:
        of = "span"
        times = [(), ()]
        counts = (before.basis.steps, after.basis.steps)
        before_s, after_s = before.timeline.span_s, after.timeline.span_s
    else:
        return None
    if not before_s > 0:
        return None
    interval = None
    if min(map(len, times)) >= FEWEST_STEPS:
        generator = np.random.default_rng(
            0
        )  # one for both sides, so that equal sides are resampled differently
        a, b = (resampled_medians(side, generator) for side in times)
        interval = interval95(b / a) if a.min() > 0 else None
    return StepPace(
        of=of,
        before_s=before_s,
        after_s=after_s,
        ratio=after_s / before_s,
        ci95=interval,
        exceeds_noise=None if interval is None else not interval[0] <= 1 <= interval[1],
        before_count=counts[0],
        after_count=counts[1],
    )


def _apart(pace: StepPace, before: Analysis, after: Analysis) -> StepPace:
    """The pace on a disturbed machine: judged only if nearly all steps of one side are much longer than
    nearly all of the other."""
    ours, theirs = (
        side.steps.quiet_s if side.steps is not None else _traced_s(side) for side in (before, after)
    )
    if min(len(ours), len(theirs)) < FEWEST_STEPS:
        return pace
    (low, high), (their_low, their_high) = (np.quantile(times, (0.1, 0.9)) for times in (ours, theirs))
    apart = bool(their_low > MOST_SCATTER * high or low > MOST_SCATTER * their_high)
    return replace(pace, ci95=None, exceeds_noise=apart or None)


def _explained(before: Analysis, after: Analysis) -> tuple[float, float]:
    """The ratios that other programs may explain: those that take k of n processors may make the side beside
    them take about n / (n - k) times as long, and any time where they delayed nearly every step."""
    factors = [
        1.0
        if (found := side.other_programs) is None
        else found.threads / (found.threads - found.busy)
        if found.judged and found.busy < found.threads
        else math.inf
        for side in (before, after)
    ]
    return 1 / factors[0], factors[1]


def _with_noise(
    pace: StepPace, before: Analysis, after: Analysis, calibration: Calibration | None
) -> StepPace:
    """The pace judged by the traced steps, in which the drift of the machine is known."""
    steps = PairTimes(_traced_s(before), _traced_s(after))
    if calibration is None or calibration.drift is None or not is_known(steps):
        return pace
    timelines = [
        side.timeline for side in (before, after) if side.timeline is not None and side.timeline.span_s > 0
    ]
    idle = max((timeline.idle_s / timeline.span_s for timeline in timelines), default=0.0)
    (noise,) = judge([steps], calibration, STEP_LEVEL, idle)
    exceeds = noise.significant and (pace.ratio > 1) == (noise.ratio > 1)
    return replace(pace, noise=noise, exceeds_noise=exceeds)


# --- rows -------------------------------------------------------------------------------------------------


def _by_work(rows: Sequence[ChangedRow]) -> float:
    """How many times as long B takes because of work that one side alone has, if what both have takes
    equally long: by the shares of their time, which do not depend on how fast a side ran."""
    common = [row for row in rows if row.before and row.after and _work_of(row.before) == _work_of(row.after)]
    shares = [
        sum(getattr(row, side).time_s for row in common)
        / (sum(one.time_s for row in rows if (one := getattr(row, side))) or math.inf)
        for side in ("before", "after")
    ]
    return shares[0] / shares[1] if all(shares) else 1.0


def _work_of(one: Figures) -> tuple[object, ...]:
    return one.calls, one.flops, one.bytes


def _change(pair: Pair) -> ChangedRow:
    """A pair as a row, with a plain cause where its figures show one."""
    side = pair.before or pair.after
    assert side is not None
    before, after = (row.figures if row is not None else None for row in (pair.before, pair.after))
    # What has a count on one side is an operator.
    counted = any(row is not None and row.kind == "operator" for row in (pair.before, pair.after))
    cause = cause_of(before, after) if before is not None and after is not None else ""
    return row_of("operator" if counted else side.kind, side.name, pair.match, before, after, cause)


def _step_times(pair: Pair) -> PairTimes | None:
    """The pair's times in the traced steps; None where its noise is not known."""
    before, after = pair.before, pair.after
    if before is None or after is None or before.step_times_s is None or after.step_times_s is None:
        return None
    ours, theirs = before.figures, after.figures
    same = pair.match == "same" and (ours.calls, ours.flops, ours.bytes) == (
        theirs.calls,
        theirs.flops,
        theirs.bytes,
    )
    times = PairTimes(before.step_times_s, after.step_times_s, same)
    return times if is_known(times) else None


def with_noise(
    rows: Sequence[tuple[ChangedRow, PairTimes | None]],
    noise_of: Callable[[list[PairTimes]], Sequence[Noise | None]],
) -> tuple[ChangedRow, ...]:
    """The rows with their noise, where it is known, and with the direction that follows from it, the largest
    differences first."""
    noises = iter(noise_of([times for _, times in rows if times is not None]))
    changes = []
    for row, times in rows:
        noise = next(noises, None) if times is not None else None
        direction = row.direction
        if noise is not None and direction == "unknown":
            direction = "same" if not noise.significant else "slower" if noise.ratio > 1 else "faster"
        changes.append(replace(row, noise=noise, direction=direction))
    return tuple(sorted(changes, key=lambda row: (-abs(row.difference_s), row.kind, row.name, place_of(row))))


def _time(name: Literal["idle", "overlap"], before_s: float, after_s: float, cause: str = "") -> ChangedRow:
    return row_of(name, name, "same", Figures(time_s=before_s), Figures(time_s=after_s), cause)


def row_of(
    kind: Kind, name: str, match: Match, before: Figures | None, after: Figures | None, cause: str
) -> ChangedRow:
    """A row whose noise is not known yet."""
    before_s, after_s = (side.time_s if side is not None else 0.0 for side in (before, after))
    both = before is not None and after is not None
    unsure: Direction = "unknown" if after_s != before_s else "same"
    return ChangedRow(
        kind=kind,
        name=name,
        direction=unsure if both else "new" if before is None else "gone",
        match=match,
        difference_s=after_s - before_s,
        ratio=after_s / before_s if both and before_s > 0 else None,
        cause=cause,
        before=before,
        after=after,
    )


def cause_of(before: Figures, after: Figures) -> str:
    """What the figures show: another place, precision, number of calls, work a call; and the time, where
    these do not explain it."""
    parts = []
    if before.module != after.module:
        parts.append(f"was {before.module or 'outside all modules'}")
    if before.precision and after.precision and before.precision != after.precision:
        parts.append(f"{before.precision} → {after.precision}")
    for side, other, name in ((before, after, "A"), (after, before, "B")):
        if side.reason and other.flops is not None:
            parts.append(f"no count in {name}: {side.reason}")
    calls = after.calls / before.calls if before.calls and after.calls else 1.0
    if before.calls and after.calls and calls != 1:
        parts.append(f"{count_of_calls(after.calls)} instead of {_number(before.calls)}")
    flops = _per_call(before.flops, after.flops, calls)
    size = _per_call(before.bytes, after.bytes, calls)
    work = 1.0
    each = "time a call" if flops is None and size is None else "time for the same work"
    if flops is not None and abs(flops - 1) > NOTABLE:
        parts.append(f"{significant(flops)} × the FLOPs a call")
        work, each = flops, "time per FLOP"
    elif size is not None and abs(size - 1) > NOTABLE:
        # With other bytes for the same FLOPs neither explains the time alone; those of another precision need
        # no word.
        if flops is None or before.precision == after.precision:
            parts.append(f"{significant(size)} × the bytes a call")
        work, each = (size, "time per byte") if flops is None else (1.0, "time for as many FLOPs")
    elif before.shapes != after.shapes:
        parts.append("other shapes")
    rest = after.time_s / before.time_s / (calls * work) if before.time_s > 0 else 1.0
    if abs(rest - 1) > NOTABLE:
        parts.append(f"{significant(rest)} × the {each}")
    return ", ".join(parts)


def count_of_calls(calls: float) -> str:
    """``1 call``, ``0.5 calls``."""
    return f"{_number(calls)} {'call' if calls == 1 else 'calls'}"


def _number(value: float) -> str:
    text = str(int(value)) if value == int(value) else significant(value)
    return text.rstrip("0").rstrip(".") if "." in text else text


def _per_call(before: float | None, after: float | None, calls: float) -> float | None:
    """The ratio of the work of one call; None where either side has none."""
    return after / before / calls if before and after else None


def _idle_cause(before: Analysis, after: Analysis) -> str:
    """The cause of idle time that changed most."""
    if before.idle_breakdown is None or after.idle_breakdown is None:
        return ""
    ours, theirs = before.idle_breakdown, after.idle_breakdown
    differences = {name: theirs.get(name, 0.0) - ours.get(name, 0.0) for name in sorted({*ours, *theirs})}
    name = max(differences, key=lambda name: abs(differences[name]), default="")
    return (
        f"{name.removesuffix('_s').replace('_', ' ')} {signed_seconds(differences[name])}"
        if differences.get(name)
        else ""
    )


# --- conditions -------------------------------------------------------------------------------------------


def differing_facts(before: Analysis, after: Analysis) -> tuple[Fact, ...]:
    """The facts that both sides know and that are not the same; what a trace does not hold is not
    different."""
    ours = _facts(before)
    theirs = _facts(after)
    if ours["device name"] and theirs["device name"]:
        # Different names for kinds of devices are not a difference between devices of the same name.
        ours["device"] = theirs["device"] = None
    return tuple(
        Fact(name=name, before=str(ours[name]), after=str(theirs[name]), unlike=name in _UNLIKE)
        for name in ours
        if ours[name] and theirs[name] and ours[name] != theirs[name]
    )


# Facts of the machine, and options, with which times are not comparable.
_UNLIKE = (
    "device",
    "device name",
    "times",
    "multiprocessors",
    "mode",
    *(option.name for option in OPTIONS if not option.comparable),
)


def _facts(analysis: Analysis) -> dict[str, str | int | None]:
    """What the times depend on; None for what is not known."""
    workload, environment = analysis.workload, analysis.environment
    traced = workload.source == "trace"
    kind = environment.device.partition(":")[0]
    # A trace's mode is concluded from its operators, and a trace without any says nothing.
    mode_known = not traced or bool(analysis.operators)
    return {
        "device": kind,
        "device name": environment.device_name or None,
        # A trace without device events, perhaps because it is cut off, has the host's times only.
        "times": None
        if kind == "cpu" or analysis.timeline is None
        else "host"
        if analysis.idle_breakdown is None
        else "device",
        "multiprocessors": environment.device_units,
        "threads": environment.threads,
        "mode": workload.mode if mode_known else None,
        # A trace is called what its file is.
        "workload": None if traced else workload.name,
        "batch size": workload.batch_size,
        "image size": workload.image_size,
        "precision": workload.precision or None,
        **{fact.name: None if traced and fact.flag else fact.value(workload) for fact in FACTS},
        "torch": environment.torch,
        "driver": environment.driver,
        "cuda": environment.cuda,
        "cudnn": environment.cudnn,
        "python": environment.python,
        "cpu": None if kind == "cpu" else environment.cpu,
    }


def _noise_notes(
    sides: Mapping[str, Analysis], disturbed: Sequence[str], drift: Drift | None
) -> Iterator[str]:
    """What is known of the noise of the rows."""
    if any(side.timeline is None for side in sides.values()):
        return
    if min(len(side.traced_steps) for side in sides.values()) < FEWEST_TRACED:
        yield (
            f"fewer than {FEWEST_TRACED} traced steps on one side: the noise of single operators is not known"
        )
    elif disturbed:
        yield (
            f"the steps of {' and '.join(disturbed)} differ too much to judge operators: repeat the run "
            "on an idle machine"
        )
    elif drift is None:
        yield (
            f"fewer than {FEWEST_ROWS} long operators do the same work on both sides: the drift "
            "between the runs is not known"
        )
    elif abs(drift.factor - 1) > NOTABLE:
        moved = f"the same operators typically take {_more_or_less(drift.factor)} in A"
        what = "drift of the machine and the differences above cannot be told apart"
        if drift.by_machine:
            what = "this is taken for drift of the machine and not for a change of any operator"
        yield f"{moved}: {what}"


def _clocks(sides: Mapping[str, Analysis]) -> str:
    """The mean clock of each side's devices in the timed pass, and the share of the time in which they were
    throttled; empty where neither differs."""
    seen, told = [], []
    for name, side in sides.items():
        devices = [one for one in side.usage.devices if one.device in side.usage.own] if side.usage else []
        clocks = [one.gauges["sm_clock_hz"].mean for one in devices if "sm_clock_hz" in one.gauges]
        if not any(clocks):
            return ""
        clock, held = statistics.mean(clocks), max(one.throttled_fraction or 0.0 for one in devices)
        reasons = dict.fromkeys(one.reason for device in devices for one in device.throttled)
        down = f", throttled for {percent(held)} of the time ({', '.join(reasons)})" if held else ""
        seen.append((clock, held))
        told.append(f"{si(clock, 'Hz')} in {name}{down}")
    (first, before), (second, after) = seen
    differ = abs(second / first - 1) > _SAME_CLOCK or abs(after - before) > _SAME_CLOCK
    return f"The device's clock was {' and '.join(told)}." if differ else ""


def _notes(
    sides: Mapping[str, Analysis],
    disturbed: Sequence[str],
    drift: Drift | None,
    *,
    by_module: bool,
    judged: bool,
) -> Iterator[str]:
    """What limits the comparison."""
    before, after = sides.values()
    untimed = [name for name, side in sides.items() if side.steps is None]
    if untimed:
        who = "neither side has" if len(untimed) == 2 else f"{untimed[0]} does not have"
        yield (
            f"{who} a pass timed without the profiler: the compared times are traced and include the profiler"
        )
    untraced = [name for name, side in sides.items() if side.timeline is None]
    if untraced:
        yield f"no trace in {' and '.join(untraced)}: only step times are compared"
    elif before.basis.per == "trace":
        yield "neither trace has step marks: the whole traces are compared, assuming the same number of steps"
    if not by_module:
        without = "B" if _has_modules(before) else "A"
        yield f"the trace of {without} has no modules: operators are compared without them"
    dilations = [
        side.steps.profiler_dilation
        for side in sides.values()
        if side.steps is not None and side.steps.profiler_dilation
    ]
    if judged and len(dilations) == 2 and abs(dilations[0] - dilations[1]) > NOTABLE_DILATION:
        longer = [
            f"{significant(dilation)} ({name})" for name, dilation in zip(sides, dilations, strict=True)
        ]
        scaled = all(side.basis.timed for side in sides.values())
        rows = "rows are scaled to the timed steps" if scaled else "rows have traced times"
        yield f"the traced steps took {' and '.join(longer)} times as long as the timed ones; {rows}"
    if judged:
        yield from _noise_notes(sides, disturbed, drift)
    # The shortest kernel differs between traces and says little about the device.
    ours, theirs = (
        {(roof.name, roof.variant, roof.value) for roof in side.ceilings if roof.source.kind != "trace"}
        for side in sides.values()
    )
    if ours and theirs and ours != theirs:
        yield (
            "A and B have different ceilings: compare times, not efficiencies, or use the same "
            "ceilings for both"
        )
    yield from (
        f"{name} is incomplete: its run is {side.status}"
        for name, side in sides.items()
        if side.status != "complete"
    )
    sizes = before.workload.batch_size, after.workload.batch_size
    if (
        sizes[0]
        and sizes[1]
        and sizes[0] != sizes[1]
        and before.steps is not None
        and after.steps is not None
    ):
        each = before.steps.median_s / sizes[0], after.steps.median_s / sizes[1]
        yield f"time per sample: {seconds(each[0])} in A, {seconds(each[1])} in B"


# --- the sentence -----------------------------------------------------------------------------------------


def verdict_of(comparison: Comparison) -> str:
    """The sentences that a comparison opens with."""
    pace = comparison.pace
    assert pace is not None
    unit = "in all" if pace.of == "span" and comparison.basis == "trace" else "a step"
    times = f"{seconds(pace.after_s)} {unit} instead of {seconds(pace.before_s)}"
    if pace.ratio == 1:
        return f"B takes as long as A: {seconds(pace.after_s)} {unit}."
    changed = [
        row for row in comparison.rows if row.direction not in ("same", "unknown") and row.kind != "overlap"
    ]
    undecided = bool(pace.rounds) and pace.exceeds_noise is None
    if pace.exceeds_noise is False or undecided:
        lead = "Not decided" if undecided else "No difference beyond the noise"
        sentences = [f"{lead}: {times} ({_interval(pace)})."]
        if undecided:
            needed = f"About {pace.rounds_needed}" if pace.rounds_needed else "More than 100"
            if pace.ci95 is not None and pace.ci95[1] > 1:
                sentences.append(f"More than {percent(pace.ci95[1] - 1)} more time is excluded.")
            sentences.append(f"{needed} rounds would be needed to decide a difference of this size.")
        if sure := [row for row in changed if row.direction in ("slower", "faster")]:
            others = f", and {len(sure) - 1} more" if len(sure) > 1 else ""
            sentences.append(f"Single operators differ beyond the noise: {_part(sure[0])}{others}.")
        return " ".join(sentences)
    sure_of_it = _interval(pace)
    lead = ""
    if pace.exceeds_noise is None:
        needs = (
            f"needs at least {FEWEST_STEPS} {'traced' if pace.of == 'span' else 'timed'} steps on both sides"
        )
        shared = comparison.a.others_cores is not None or comparison.b.others_cores is not None
        if shared or min(pace.before_count, pace.after_count) >= FEWEST_STEPS:
            needs = "because the machine was not quiet: repeat both on an idle one"
        known = pace.ci95 or pace.noise
        sure_of_it = (
            f"{_interval(pace)}; other programs may explain it: repeat both on an idle machine"
            if known and shared
            else f"{_what(pace)}; noise unknown, {needs}"
        )
        lead = "Not decided: "
    if comparison.implausible:
        longer = f"under the same conditions it takes {significant(1 / pace.ratio)} times as long as B"
        times = f"{seconds(pace.before_s)} {unit} and {seconds(pace.after_s)} ({sure_of_it})"
        return f"{lead}A may not describe this workload or machine: {longer}, {times}. Repeat A."
    sentences = [f"{lead}B takes {_more_or_less(pace.ratio)} A: {times} ({sure_of_it})."]
    moved = comparison.span_difference_s or 0.0
    if moved and (moved > 0) == (pace.ratio > 1):
        rows = changed if lead else changed or comparison.rows
        parts = [row for row in rows if row.direction != "same" and row.difference_s * moved > 0]
        if parts:
            sentences.append(f"Largest part: {_part(parts[0])}.")
        elif pace.noise is not None:
            sentences.append("No single operator differs beyond the noise.")
    elif moved:
        sentences.append(f"The traced steps, used for the rows, show the opposite: {signed_seconds(moved)}.")
    for direction, words in (("new", ("is new", "are new")), ("gone", ("is gone", "are gone"))):
        rows = [row for row in comparison.rows if row.direction == direction]
        if rows:
            total = signed_seconds(sum(row.difference_s for row in rows))
            sentences.append(
                f"{len(rows)} {'operator' if len(rows) == 1 else 'operators'} "
                f"{words[len(rows) > 1]} ({total})."
            )
    return " ".join(sentences)


def _part(row: ChangedRow) -> str:
    why = {"new": "new", "gone": "gone"}.get(row.direction, row.cause)
    return f"{place_of(row)}, {signed_seconds(row.difference_s)}{f' ({why})' if why else ''}"


def _what(pace: StepPace) -> str:
    if pace.rounds:
        return f"{len(pace.rounds)} rounds in turn"
    return (
        "spans of the traces"
        if pace.of == "span"
        else f"medians of {pace.before_count} and {pace.after_count} {pace.of}"
    )


def _interval(pace: StepPace) -> str:
    found, without = pace.ci95, ""
    if pace.noise is not None:
        found = pace.noise.ci95
        without = f"; without the drift of the machine {significant(pace.noise.ratio)}"
    if found is None:
        apart = (
            f"nearly all steps of one side are over {MOST_SCATTER:g} times as long as nearly all of the other"
        )
        return f"{_what(pace)}; ratio {significant(pace.ratio)}; {apart}"
    low, high = (significant(value) for value in found)
    return f"{_what(pace)}; ratio {significant(pace.ratio)}{without}, 95 % interval {low} to {high}"


def _more_or_less(ratio: float) -> str:
    if ratio >= 2:
        return f"{significant(ratio)} times as long as"
    share = abs(ratio - 1)
    return f"{percent(share, 0 if share >= 0.0995 else 1)} {'more' if ratio > 1 else 'less'} time than"
