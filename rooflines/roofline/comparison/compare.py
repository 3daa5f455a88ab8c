"""Two analyses become a comparison: row by row what got slower, what is new, what is gone, and whether the whole exceeds the noise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec
import numpy as np

from rooflines.errors import UsageError
from rooflines.roofline.analysis import Analysis
from rooflines.roofline.bootstrap import interval95, resampled_medians
from rooflines.roofline.comparison.records import Change, Comparison, Direction, Fact, Figures, Kind, Match, Pace, Subject
from rooflines.roofline.comparison.row_matching import Pair, match_modules, match_operators
from rooflines.units import percent, seconds, significant

# Of fewer steps not even the shortest and the longest enclose the median with a probability of 95 %: 1 - 2 * 0.5^6 = 97 %.
FEWEST_STEPS = 6
# A time that differs by less is called the same; an operator's own noise is not known.
NOTABLE = 0.02
# A difference of the profiler's cost on the two sides, as a share of a step, from which on it is said.
NOTABLE_DILATION = 0.05


def compare(before: Analysis, after: Analysis, sources: tuple[str, str] = ("A", "B")) -> Comparison:
    """Compare ``after`` (B) with the baseline ``before`` (A); ``sources`` say where they came from.

    Unlike environments are compared, too: ``Comparison.unlike`` names the facts for which that means little. Raises UsageError where
    there is nothing to compare: one side per step and the other a whole trace, or nothing that both sides measured.
    """
    timelines = before.timeline is not None and after.timeline is not None
    if timelines and before.basis.per != after.basis.per:
        whole = sources[0] if before.basis.per == "trace" else sources[1]
        raise UsageError(
            f"{sources[0]!r} and {sources[1]!r} cannot be compared: {whole!r} has no step marks, so its number of steps is not known, "
            "while the other is per step.",
            hint="Record both with a schedule and prof.step(), or both without.",
        )
    pace = _pace(before, after)
    if pace is None:
        raise UsageError(
            f"{sources[0]!r} and {sources[1]!r} cannot be compared: both need timed steps, or both a trace with events.",
            hint="One of the runs may have been interrupted. Run 'rooflines analyze' to see what it contains.",
        )
    # Where one trace has no modules at all, the operators of the other would all be new.
    by_module = not timelines or _has_modules(before) == _has_modules(after)
    pairs = match_operators(before, after, by_module=by_module) if timelines else []
    rows = [_change(pair) for pair in pairs]
    if before.timeline is not None and after.timeline is not None:
        spans = before.timeline.span_s, after.timeline.span_s
        rows += [_idle(before, after), *_overlap(before.timeline.overlap_s, after.timeline.overlap_s)]
    else:
        spans = None
    modules = [_change(pair) for pair in match_modules(before, after, pairs)] if timelines and by_module else []
    comparison = Comparison(
        a=_subject(before, sources[0]),
        b=_subject(after, sources[1]),
        basis=before.basis.per if timelines else "step",
        differs=differing_facts(before, after),
        pace=pace,
        span_before_s=spans[0] if spans else None,
        span_after_s=spans[1] if spans else None,
        span_difference_s=spans[1] - spans[0] if spans else None,
        rows=_sorted(rows),
        modules=_sorted(modules),
        notes=_notes(before, after, by_module=by_module),
    )
    return msgspec.structs.replace(comparison, verdict=_verdict(comparison))


def signed_seconds(value: float) -> str:
    """A difference in time with its sign: ``+1.20 ms``, ``−3.4 µs``."""
    return f"{'+' if value > 0 else '−' if value < 0 else ''}{seconds(abs(value))}"


def place_of(row: Change) -> str:
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
    )


def _has_modules(analysis: Analysis) -> bool:
    return any(row.module for row in analysis.operators)


def _sorted(rows: Sequence[Change]) -> tuple[Change, ...]:
    return tuple(sorted(rows, key=lambda row: (-abs(row.difference_s), row.kind, row.name, place_of(row))))


# --- the whole ---------------------------------------------------------------------------------------------------------------------


def _pace(before: Analysis, after: Analysis) -> Pace | None:
    """The best figure that both sides have: timed steps, else enough traced ones to know their noise, else the spans of the traces."""
    if before.steps is not None and after.steps is not None:
        a, b = before.steps, after.steps
        return _ratio_of_medians("timed steps", a.durations_s, b.durations_s, a.median_s, b.median_s, (a.count, b.count))
    ours, theirs = ([step.duration_s for step in side.traced_steps] for side in (before, after))
    if min(len(ours), len(theirs)) >= FEWEST_STEPS:
        medians = float(np.median(ours)), float(np.median(theirs))
        return _ratio_of_medians("traced steps", ours, theirs, *medians, (len(ours), len(theirs)))
    if before.timeline is None or after.timeline is None:
        return None
    counts = before.basis.steps, after.basis.steps
    return _ratio_of_medians("span", (), (), before.timeline.span_s, after.timeline.span_s, counts)


def _ratio_of_medians(
    of: Literal["timed steps", "traced steps", "span"],
    ours: Sequence[float],
    theirs: Sequence[float],
    before_s: float,
    after_s: float,
    counts: tuple[int, int],
) -> Pace | None:
    """The ratio with its interval, where both sides have enough single durations; None when the baseline took no time."""
    if not before_s > 0:
        return None
    interval = None
    if min(len(ours), len(theirs)) >= FEWEST_STEPS:
        generator = np.random.default_rng(0)  # one for both sides, so that equal sides are resampled differently
        a, b = (resampled_medians(side, generator) for side in (ours, theirs))
        if a.min() > 0:
            interval = interval95(b / a)
    return Pace(
        of=of,
        before_s=before_s,
        after_s=after_s,
        ratio=after_s / before_s,
        ci95=interval,
        exceeds_noise=None if interval is None else not interval[0] <= 1 <= interval[1],
        before_count=counts[0],
        after_count=counts[1],
    )


# --- rows --------------------------------------------------------------------------------------------------------------------------


def _change(pair: Pair) -> Change:
    """A pair as a row, with a plain cause where its figures show one."""
    one = pair.before or pair.after
    assert one is not None
    before = pair.before.figures if pair.before is not None else None
    after = pair.after.figures if pair.after is not None else None
    # What has a count on one side is an operator.
    counted = any(row is not None and row.kind == "operator" for row in (pair.before, pair.after))
    cause = _cause(before, after) if before is not None and after is not None else ""
    return _row("operator" if counted else one.kind, one.name, pair.match, before, after, cause)


def _row(kind: Kind, name: str, match: Match, before: Figures | None, after: Figures | None, cause: str) -> Change:
    difference_s = (after.time_s if after is not None else 0.0) - (before.time_s if before is not None else 0.0)
    direction: Direction = "slower" if difference_s > 0 else "faster" if difference_s < 0 else "same"
    if before is None or after is None:
        direction = "new" if before is None else "gone"
    return Change(
        kind=kind,
        name=name,
        direction=direction,
        match=match,
        difference_s=difference_s,
        ratio=after.time_s / before.time_s if before is not None and after is not None and before.time_s > 0 else None,
        cause=cause,
        before=before,
        after=after,
    )


def _cause(before: Figures, after: Figures) -> str:
    """What the figures show: another place, precision, number of calls, work a call; and the time, where these do not explain it."""
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
    flops, size = _per_call(before.flops, after.flops, calls), _per_call(before.bytes, after.bytes, calls)
    work, each = 1.0, "time a call" if flops is None and size is None else "time for the same work"
    if flops is not None and abs(flops - 1) > NOTABLE:
        parts.append(f"{significant(flops)} × the FLOPs a call")
        work, each = flops, "time per FLOP"
    elif size is not None and abs(size - 1) > NOTABLE:
        # With other bytes for the same FLOPs neither explains the time alone; those of another precision need no word.
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


def _idle(before: Analysis, after: Analysis) -> Change:
    """The idle time of the device, with the cause that changed most."""
    assert before.timeline is not None
    assert after.timeline is not None
    cause = ""
    if before.idle_breakdown is not None and after.idle_breakdown is not None:
        ours, theirs = before.idle_breakdown, after.idle_breakdown
        differences = {name: theirs.get(name, 0.0) - ours.get(name, 0.0) for name in sorted({*ours, *theirs})}
        name, value = max(differences.items(), key=lambda item: abs(item[1]), default=("", 0.0))
        if value:
            cause = f"{name.removesuffix('_s').replace('_', ' ')} {signed_seconds(value)}"
    return _row("idle", "idle", "same", Figures(time_s=before.timeline.idle_s), Figures(time_s=after.timeline.idle_s), cause)


def _overlap(before_s: float, after_s: float) -> list[Change]:
    """Time that two rows have both; none on a CPU."""
    if not before_s and not after_s:
        return []
    return [_row("overlap", "overlap", "same", Figures(time_s=-before_s), Figures(time_s=-after_s), "")]


# --- conditions --------------------------------------------------------------------------------------------------------------------


def differing_facts(before: Analysis, after: Analysis) -> tuple[Fact, ...]:
    """The facts that both sides know and that are not the same; what a trace does not hold is not different."""
    ours, theirs = _facts(before), _facts(after)
    if ours["device name"] and theirs["device name"]:
        # One machine's names for the kinds of devices are no difference between two that are called the same.
        ours["device"] = theirs["device"] = None
    return tuple(
        Fact(name=name, before=value, after=other, unlike=name in _UNLIKE)
        for name, value in ours.items()
        for other in [theirs[name]]
        if value and other and value != other
    )


_UNLIKE = ("device", "device name", "times", "multiprocessors", "threads", "mode")


def _facts(analysis: Analysis) -> dict[str, str | None]:
    """What the times depend on, as text; None for what is not known."""
    workload, environment = analysis.workload, analysis.environment
    traced = workload.source == "trace"
    kind = environment.device.partition(":")[0]
    # A trace's mode is concluded from its operators, and a trace without any says nothing.
    mode_known = not traced or bool(analysis.operators)
    return {
        "device": kind,
        "device name": environment.device_name or None,
        # A trace without device events, perhaps because it is cut off, has the host's times only.
        "times": None if kind == "cpu" or analysis.timeline is None else "host" if analysis.idle_breakdown is None else "device",
        "multiprocessors": _text(environment.device_units),
        "threads": _text(environment.threads),
        "mode": workload.mode if mode_known else None,
        # A trace is called what its file is.
        "workload": None if traced else workload.name,
        "batch size": _text(workload.batch_size),
        "image size": _text(workload.image_size),
        "precision": workload.precision or None,
        "compiled": None if traced else _yes(workload.compiled),
        "channels last": None if traced else _yes(workload.channels_last),
        "optimizer": workload.optimizer,
        "torch": environment.torch,
        "driver": environment.driver,
        "cuda": environment.cuda,
        "cudnn": environment.cudnn,
        "python": environment.python,
        "cpu": None if kind == "cpu" else environment.cpu,
    }


def _text(value: int | None) -> str | None:
    return None if value is None else str(value)


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _notes(before: Analysis, after: Analysis, *, by_module: bool) -> tuple[str, ...]:
    """What limits the comparison."""
    notes = []
    sides = {"A": before, "B": after}
    untimed = [name for name, side in sides.items() if side.steps is None]
    if untimed:
        who = "neither side has" if len(untimed) == 2 else f"{untimed[0]} does not have"
        notes.append(f"{who} a pass timed without the profiler: what is compared was traced, and the profiler's own time is in it")
    untraced = [name for name, side in sides.items() if side.timeline is None]
    if untraced:
        notes.append(f"no trace in {' and '.join(untraced)}: only the step times are compared")
    elif before.basis.per == "trace":
        notes.append("neither trace has step marks: both are compared whole, which says something if both hold as many steps")
    if not by_module:
        without = "B" if _has_modules(before) else "A"
        notes.append(f"the trace of {without} holds no modules: operators are compared without them")
    dilations = [side.steps.profiler_dilation for side in sides.values() if side.steps is not None and side.steps.profiler_dilation]
    if len(dilations) == 2 and abs(dilations[0] - dilations[1]) > NOTABLE_DILATION:
        longer = [f"{significant(dilation)} ({name})" for name, dilation in zip(sides, dilations, strict=True)]
        notes.append(f"the traced steps took {' and '.join(longer)} times as long as the timed ones, and the rows are traced")
    # The shortest kernel is each trace's own, and says little about the device where it differs.
    ours, theirs = (
        {(one.name, one.variant, one.value) for one in side.ceilings if one.source.kind != "trace"} for side in (before, after)
    )
    if ours and theirs and ours != theirs:
        notes.append(
            "the two were judged by different ceilings: compare times rather than efficiencies, or use the same ceilings for both"
        )
    for name, side in sides.items():
        if side.status != "complete":
            notes.append(f"{name} is not complete: its run is {side.status}")
    sizes = before.workload.batch_size, after.workload.batch_size
    if sizes[0] and sizes[1] and sizes[0] != sizes[1] and before.steps is not None and after.steps is not None:
        each = before.steps.median_s / sizes[0], after.steps.median_s / sizes[1]
        notes.append(f"for each sample: {seconds(each[0])} in A, {seconds(each[1])} in B")
    return tuple(notes)


# --- the sentence ------------------------------------------------------------------------------------------------------------------


def _verdict(comparison: Comparison) -> str:
    pace = comparison.pace
    assert pace is not None
    unit = "in all" if pace.of == "span" and comparison.basis == "trace" else "a step"
    times = f"{seconds(pace.after_s)} {unit} instead of {seconds(pace.before_s)}"
    if pace.ratio == 1:
        return f"B takes as long as A: {seconds(pace.after_s)} {unit}."
    if pace.exceeds_noise is False:
        return f"No difference beyond the noise: {times} ({_interval(pace)})."
    sure = _interval(pace) if pace.ci95 else f"{_what(pace)}; their noise is not known"
    sentences = [f"B takes {_more_or_less(pace.ratio)} A: {times} ({sure})."]
    moved = comparison.span_difference_s or 0.0
    if moved and (moved > 0) == (pace.ratio > 1):
        most = max(comparison.rows, key=lambda row: row.difference_s if moved > 0 else -row.difference_s, default=None)
        if most is not None and most.difference_s * moved > 0:
            why = {"new": "new", "gone": "gone"}.get(most.direction, most.cause)
            sentences.append(f"The largest part: {place_of(most)}, {signed_seconds(most.difference_s)}{f' ({why})' if why else ''}.")
    elif moved:
        sentences.append(f"The traced steps, which the rows are of, say otherwise: {signed_seconds(moved)}.")
    for direction, words in (("new", ("is new", "are new")), ("gone", ("is gone", "are gone"))):
        rows = [row for row in comparison.rows if row.direction == direction]
        if rows:
            total = signed_seconds(sum(row.difference_s for row in rows))
            sentences.append(f"{len(rows)} {'operator' if len(rows) == 1 else 'operators'} {words[len(rows) > 1]} ({total}).")
    return " ".join(sentences)


def _what(pace: Pace) -> str:
    return "spans of the traces" if pace.of == "span" else f"medians of {pace.before_count} and {pace.after_count} {pace.of}"


def _interval(pace: Pace) -> str:
    assert pace.ci95 is not None
    low, high = (significant(value) for value in pace.ci95)
    return f"{_what(pace)}; ratio {significant(pace.ratio)}, 95 % interval {low} to {high}"


def _more_or_less(ratio: float) -> str:
    if ratio >= 2:
        return f"{significant(ratio)} times as long as"
    share = abs(ratio - 1)
    return f"{percent(share, 0 if share >= 0.0995 else 1)} {'more' if ratio > 1 else 'less'} time than"
