"""The sentence that every report opens with (how fast, what bounds it, where the time is, what to gain), and
what makes its figures less sure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from rooflines.device_specs.records import EMULATED
from rooflines.profiler.read.communication_kernels import communicates
from rooflines.roofline.analysis import Analysis, Finding, OperatorRow, OtherPrograms, Rate, Row, Steps
from rooflines.roofline.count.by_key import longest_first
from rooflines.roofline.count.kernel_names import short_kernel
from rooflines.roofline.judge.step.input_pipeline import input_fraction, leading
from rooflines.roofline.judge.step.interference import is_delayed, paging, undivided, unsteady
from rooflines.roofline.judge.step.partition import MOST_UNKNOWN
from rooflines.roofline.served_steps import ServedSteps
from rooflines.units import counted, percent, plus_minus, seconds, sentence, significant

# A rate that is known less well than this is said as the interval it lies in: one number would say more than
# was measured.
_LARGE_ERROR = 0.25
# Steps of which the longest takes this many times the shortest are not one step repeated.
_UNLIKE = 1.5
_MOST_LENGTHS = 6
# What grew by less than this share of the difference explains nothing.
_WORTH_GROWTH = 0.05
# What the host does while the device of a step runs nothing, by the kinds of the steps' breakdown.
_IDLE_KINDS = {
    "runtime_s": "idle time in runtime calls",
    "dataloader_s": "idle time in the data loader",
    "cpu_s": "idle time in operators",
    "other_s": "other idle time",
}
# What is said of a category holds for this share of its time: an efficiency, the name of its operators.
_JUDGED = 0.8
# Plural nouns for the categories, as one would say them.
_PLURAL = {
    "convolution": "convolutions",
    "matmul": "matrix products",
    "attention": "attention",
    "moe": "mixtures of experts",
    "normalization": "normalization",
    "element-wise": "element-wise operators",
    "reduction": "reductions and pooling",
    "copy": "copies",
    "embedding": "embedding tables",
    "communication": "communication",
    "optimizer": "the optimizer",
    "other": "other operators",
}

#: What helps where other programs delay the threads of an operator.
ONE_THREAD = "Use one thread: an operator on several waits for those that other programs delay"
# How a sentence begins that names what takes the largest share of the step; the share and "of the step"
# follow.
_OPENINGS = {
    "compute": "Compute-bound for {}",
    "memory": "Memory-bound for {}",
    "inefficient": "Inefficient for {}: operators that are too small, badly shaped or on a slow kernel",
    "delayed": "Inefficient or delayed for {}: other programs delayed the steps while its operators ran",
    "latency": "Launch-bound: operators too small for the device, and calls that only dispatch, take {}",
    "transfer": "Transfer-bound: copies between host and device take {}",
    "communication": "Communication-bound: communication that no computation hides takes {}",
    "unknown": "Bound unknown: {} is in operators without a work model",
    "shapes": "Bound unknown: {} is in operators whose shapes were not recorded",
    "threads": "Bound unknown: for {}, operators of several threads ran at the same time",
    "graphs": "Bound unknown: {} is in CUDA or HIP graphs without a capture trace (--capture)",
    "host": "Host-bound: for {}, the device waits for the host to launch work",
    "idle": "The device is idle for {}",
    "input": "The device waits for data for {}",
}
# What takes less than this share of the step does not bound it alone.
_MAIN_SHARE = 0.3
# The kernels that are named where much of the step is unknown.
_MOST_KERNELS = 3
# A category below this share is not worth its words; where most of the step has no work model, more is
# needed.
_LEAST_SHARE = 0.01
_LEAST_SHARE_BESIDE_UNKNOWN = 0.1
_CLASSES = {
    "compute": "compute-bound operators",
    "memory": "memory-bound operators",
    "inefficient": "inefficient operators",
    "latency": "launch-bound operators",
    "transfer": "copies between host and device",
    "communication": "communication",
    "unknown": "operators without a work model",
    "host": "idle time caused by the host",
    "idle": "idle time",
    "input": "waiting for data",
}
# Of the bounds of a processor's step, one or the other may lead beside other programs.
_EITHER = ("compute", "memory", "inefficient", "latency", "host")
# Why a device was idle.
_IDLE_CAUSES = {
    "outside_s": "although work had been launched: the trace does not show what it waits for",
    "graph_s": (
        "before work of CUDA or HIP graphs that had been launched: they wait, or kernels of them "
        "were not recorded"
    ),
    "kernel_wait_s": "between a launch and the start of its work",
    "unknown_s": "before work whose launch is not in the trace",
    "host_s": "because the host has not launched its next work",
    "data_loading_s": "while the host waits for data",
}
# A cause of more than this share of the idle time is its cause.
_NEARLY_ALL = 0.9
# All of a device's idle time is one class of the headline, and these are its parts.
_IDLE = ("host", "idle", "input")
# Less than this share of the time changes no figure that is read.
_WORTH_SAYING = 0.01
# As much of the host's time before a device's first work is more than a launch.
_LONG_BEFORE = 0.1
_MOST_ASSUMPTIONS = 2
_SEVERAL = (
    "Times are the union over all devices of this trace, FLOPs and bytes their sum: no figure is "
    "that of one device."
)


def verdict(analysis: Analysis) -> str:
    """A few sentences, each only as sure as what was measured."""
    steps = analysis.steps
    pace = _range if is_delayed(analysis) and steps is not None and steps.count > 1 else _speed
    sentences = [
        _not_recorded(analysis),
        _SEVERAL * (analysis.basis.devices > 1),
        _generated(analysis) or (pace(steps, analysis) if steps else ""),
        paging(analysis),
        _served(analysis),
    ]
    if analysis.basis.start_up and analysis.division is not None:
        sentences.append(
            f"The whole program is one traced step of {seconds(analysis.division.step_s)}, start-up included."
        )
    if analysis.unrecorded:
        sentences.append(f"What bounds {_whole(analysis)} is not judged: {analysis.unrecorded[0]}.")
    elif analysis.device_untraced and analysis.limited_by is None:
        sentences.append(
            f"What bounds {_whole(analysis)} is unknown: no work of {analysis.environment.device} was traced."
        )
    elif said := undivided(analysis) or differing(analysis):
        sentences.append(said)
    elif analysis.timeline is not None and analysis.timeline.busy_s > 0:
        sentences += [
            _bound(analysis),
            _in_one_gap(analysis),
            _dominating(analysis, sum((analysis.bound_breakdown or {}).values())),
        ]
    elif steps is None:
        sentences.append("The run ended before a step was timed.")
    else:
        sentences.append("No operators were traced, so nothing can be said about where the time goes.")
    best = max(analysis.findings, key=_first_s, default=None)
    waits = any(one.title == ONE_THREAD for one in analysis.findings)
    if waits:
        sentences.append("Try first: one thread, whose saving is not known before it is measured.")
    if (
        best is not None
        and _first_s(best) > 0
        and unknown_share(analysis) <= MOST_UNKNOWN
        and not steps_differ(analysis)
    ):
        whole = f"{seconds(analysis.step_s)} a step" if analysis.basis.per == "step" else "the trace"
        title = best.title[0].lower() + best.title[1:] if best.title[1:2].islower() else best.title
        gain, about = ("possible gain", "up to") if best.alone_s is None else ("gain", "about")
        gain += " of other changes" * waits
        # In the list it is the first of a chain, which leaves the others their part.
        first = next(one for one in analysis.findings if _first_s(one) > 0)
        gain_s = best.gain_s if best.alone_s is None and best is first else _first_s(best)
        saved = f"{about} {seconds(gain_s)} of {whole}"
        sentences.append(f"Largest {gain}: {title}, which saves {saved}.")
    sentences.append(unsteady(analysis))
    return " ".join(text for text in sentences if text)


def _first_s(finding: Finding) -> float:
    """What a finding gives where it is the first to be followed, as well as it is known."""
    return finding.most_s if finding.alone_s is None else finding.alone_s


def steps_differ(analysis: Analysis) -> bool:
    """Whether the traced steps are so unlike each other that a mean describes none; not asked where steps
    were timed, or are of several kinds, which are shown apart."""
    kinds = analysis.serving.kinds if analysis.serving is not None else ()
    lengths = [one.duration_s for one in analysis.traced_steps]
    return (
        len(lengths) > 1
        and not analysis.basis.timed
        and len(kinds) < 2
        and max(lengths) > _UNLIKE * min(lengths)
    )


def differing(analysis: Analysis) -> str:
    """The lengths of steps that differ, and what takes longer in the longest than in the shortest; empty if
    they do not."""
    if not steps_differ(analysis):
        return ""
    steps = analysis.traced_steps
    lengths = [one.duration_s for one in steps]
    long = lengths.index(max(lengths))
    short = lengths.index(min(lengths))
    kinds = _IDLE_KINDS if analysis.idle_breakdown is not None else {"other_s": "time outside of operators"}
    grown = [
        (
            row.name if isinstance(row, OperatorRow) or row.phase else short_kernel(row.name),
            each_s[long] - each_s[short],
        )
        for row in analysis.rows
        if (each_s := row.step_times_s) is not None
        and not analysis.basis.steady  # whose times are fitted to another clock
    ]
    grown += [
        (name, steps[long].breakdown.get(kind, 0.0) - steps[short].breakdown.get(kind, 0.0))
        for kind, name in kinds.items()
    ]
    least = _WORTH_GROWTH * (lengths[long] - lengths[short])
    most = [(name, more_s) for name, more_s in longest_first(grown).items() if more_s >= least][:3]
    listed = ", ".join(f"{name} by {seconds(more_s)}" for name, more_s in most)
    shown = [seconds(length_s) for length_s in lengths]
    times = f"{shown[short]} to {shown[long]}" if len(shown) > _MOST_LENGTHS else _and(shown)
    changed = f" From the shortest to the longest grow: {listed}." if listed else ""
    figures = (
        "those of undisturbed calls, fitted to the median step"
        if analysis.basis.steady
        else "the mean over them"
    )
    return f"The {len(steps)} steps differ: {times}.{changed} All other figures are {figures}."


def _served(analysis: Analysis) -> str:
    """What the steps of a server are, how long they take and how many tokens they compute; empty for other
    traces."""
    if analysis.serving is None:
        return ""
    kinds = analysis.serving.kinds
    several = " All other figures are the mean over these steps." * (len(kinds) != 1)
    return f"{sentence('; '.join(map(_kind, kinds)))}{several}"


def _generated(analysis: Analysis) -> str:
    """How fast the steps generate text; empty where their tokens have no times."""
    found = analysis.generation
    steps = analysis.steps
    if found is None or found.latency is None or found.tokens_per_s is None or steps is None:
        return ""
    first_s = found.latency.ttft_s
    next_s = found.latency.itl_median_s
    error = f", {plus_minus(steps.median_s, *steps.ci95_s, seconds)}" if steps.ci95_s is not None else ""
    then = f", then {seconds(next_s)} per token (median)" if next_s is not None else ""
    shared = analysis.other_programs is not None
    rate = f"{'at least ' * shared}{significant(found.tokens_per_s)} tokens/s"
    text = (
        f"First token after {seconds(first_s)}{then}: {rate} "
        f"({'at most ' * shared}{seconds(steps.median_s)} a generation{error})."
    )
    reads = decode.reads if (decode := found.of("decode")) is not None else None
    if reads is None or reads.efficiency is None or reads.assumption is not None:
        return text
    return f"{text} Decode reaches {percent(reads.efficiency)} of the bound of reading weights and KV cache."


def _kind(one: ServedSteps) -> str:
    """``decode steps (32 requests): 10.5 ms, 3,060 tokens/s``."""
    kind = f"{one.kind} step"
    steps = kind if one.steps == 1 else counted(one.steps, kind)
    requests = significant(one.requests) if one.requests % 1 else f"{one.requests:,.0f}"
    batch = f"{requests} request{'' if one.requests == 1 else 's'}"
    if one.kind != "decode" and one.tokens is not None:
        batch += f", {one.tokens:,.0f} tokens"
    if one.requests % 1:
        batch += " in the mean"
    if one.padded_to is not None:
        batch += f", padded to {one.padded_to:,} tokens"
    per = " a step" if one.steps > 1 else ""
    rate = ""
    if one.rate_doubt:
        between = f", {rate_text(one.tokens_per_s_range)} tokens/s" if one.tokens_per_s_range else ""
        rate = f", of which the device is busy for {seconds(one.busy_s)}{between} ({one.rate_doubt})"
    elif one.tokens_per_s:
        rate = f", {_rounded(one.tokens_per_s)} tokens/s"
    return f"{steps} ({batch}): {seconds(one.step_s)}{per}{rate}"


def rate_text(between: tuple[float, float]) -> str:
    """A range of rates: ``2,250 to 4,400``."""
    return f"{_rounded(between[0])} to {_rounded(between[1])}"


def _not_recorded(analysis: Analysis) -> str:
    """The data that the recording left out, and what remains; empty for a complete trace."""
    coverage = analysis.coverage
    if coverage is None or not (analysis.operators or coverage.unmodeled):
        return ""
    if coverage.shapes_recorded is None and not analysis.operators:
        if _unknown(analysis)[0] == "graphs":  # a replay has no operators of the host to record
            return ""
        return (
            "The trace has no operators of the host, so its kernels are listed: "
            "ProfilerActivity.CPU in the profiler's activities "
            "would show which operator and module launches each."
        )
    if coverage.shapes_recorded is False:
        if analysis.unrecorded:
            return ""  # more is missing than shapes
        complete = [
            "times",
            *["kernels"] * (not analysis.environment.device.startswith("cpu")),
            *["modules"] * bool(analysis.modules),
        ]
        return (
            "The trace was recorded without record_shapes=True, which would add FLOPs, bytes, "
            "bounds and possible savings of "
            f"operators that have a formula; {_and(complete)} do not need it."
        )
    return ""


def plural(category: str) -> str:
    """The category as a sentence would name it."""
    return _PLURAL.get(category, category)


def runs(category: str) -> str:
    """The verb that goes with ``plural(category)``."""
    return "runs" if category in ("attention", "normalization", "communication", "optimizer") else "run"


def category_efficiency(analysis: Analysis, category: str, time_s: float) -> float | None:
    """The efficiency of a category that takes ``time_s``; None where operators without a bound take more than
    a fifth of it."""
    rows = [row for row in analysis.operators if row.category == category and row.efficiency is not None]
    return efficiency_of(rows) if sum(row.time_s for row in rows) >= _JUDGED * time_s else None


def efficiency_of(operators: Iterable[Row]) -> float | None:
    """Lower bound over time of those that have a bound, none of them faster than it; None when none has."""
    bounded = [row for row in operators if row.efficiency is not None]
    time_s = sum(row.time_s for row in bounded)
    return sum(min(row.lower_bound_s or 0.0, row.time_s) for row in bounded) / time_s if time_s > 0 else None


def _speed(steps: Steps, analysis: Analysis) -> str:
    """The pace of the steps; a limit on a shared machine, where others slow down all steps."""
    shared = analysis.other_programs is not None
    if steps.ci95_s is None:
        error = "one step" if steps.count == 1 else f"{steps.count} steps timed together"
    else:
        error = plus_minus(steps.median_s, *steps.ci95_s, seconds)
    pace = f"{'at most ' * shared}{seconds(steps.median_s)} a step"
    if steps.samples_per_s is None or steps.count == 1:
        return sentence(f"{pace} ({error})")
    rate = f"{significant(steps.samples_per_s)} {analysis.workload.unit}/s"
    return sentence(f"{'at least ' * shared}{rate} ({pace}, {'median ' * shared}{error})")


def _range(steps: Steps, analysis: Analysis) -> str:
    """The pace of steps that were disturbed, of which no single figure is the step's."""
    rate = ""
    if steps.samples_per_s is not None:
        samples = steps.samples_per_s * steps.median_s
        rates = rate_text((samples / steps.p90_s, samples / steps.p10_s))
        rate = f"{rates} {analysis.workload.unit}/s, "
    return (
        f"{rate}{seconds(steps.p10_s)} to {seconds(steps.p90_s)} a step (10th to 90th percentile of "
        f"{counted(steps.count, 'step')}), median {seconds(steps.median_s)}."
    )


def _bound(analysis: Analysis) -> str:
    """The largest bound class of the step with its share, and the largest category of operators."""
    breakdown = analysis.bound_breakdown or {}
    parts = shares(breakdown)
    classes = _with_whole_idle(parts, analysis.idle_breakdown)
    others = analysis.other_programs
    first = leading(classes)
    bound: str = analysis.limited_by or max(classes, key=classes.__getitem__, default="")
    # Without ceilings nothing tells what bounds the operators, and their classes are one.
    whole = _whole(analysis)
    judged = bool(analysis.ceilings)
    unlimited = analysis.limited_by is None
    least = _LEAST_SHARE_BESIDE_UNKNOWN if bound == "unknown" and judged else _LEAST_SHARE
    where = _largest(
        analysis,
        sum(breakdown.values()),
        whole,
        least,
        without="communication" if bound == "communication" else "",
    )
    uncounted = sum(row.time_s for row in analysis.unmodeled) > breakdown.get("unknown", 0.0) / 2
    rival = _rival(bound, classes, others) if judged and len(first) < 3 else None
    if rival is not None:
        either = f"{_name(bound, others)} or {_name(rival, others).lower()}"
        # Both have a range, also one whose share of the step is nearly nothing.
        of = {name: max(classes.get(name, 0.0), _LEAST_SHARE) for name in (bound, rival)}
        both = _several(of, whole, 2, others)
        opening = both.replace("No single bound", either, 1).removesuffix(".")
    elif unlimited and len(first) == 2 and judged and set(first) == {"memory", "compute"}:
        one, other = (share_text(name, classes[name], others) for name in first)
        both = f"{one.removesuffix(' %')} and {other} of {whole}"
        opening = f"{first[0].capitalize()}- and {first[1]}-bound for {both}"
    elif unlimited and judged and 0 < classes.get(bound, 0.0) < _MAIN_SHARE:
        return _several(classes, whole, 3, others) or sentence(where)
    elif unlimited and len(first) > 1:
        return _several(classes, whole, len(first), others) or sentence(where)
    elif analysis.limited_by == "input":
        rates = rates_sentence(analysis)
        waiting = (
            f"Input-bound: {percent(input_fraction(analysis))} of the {analysis.basis.per} is waiting "
            "for data"
        )
        return " ".join(filter(None, (f"{waiting}{f'; {rates}' if rates else ''}.", sentence(where))))
    elif bound in _OPENINGS and (
        judged or uncounted or bound not in ("compute", "memory", "inefficient", "latency", "unknown")
    ):
        why, part = (
            _unknown(analysis) if bound == "unknown" else (bound, classes.get(bound, parts.get(bound, 0.0)))
        )
        share = f"{share_text(why, part, others)} of {whole}"
        precision = _emulated(analysis) if why == "inefficient" else None
        why = "delayed" if why == "inefficient" and not precision and is_delayed(analysis) else why
        opening = _OPENINGS[why].format(share)
        if precision is not None:
            opening = (
                f"{opening.partition(':')[0]}: mostly products in {precision}, which the device emulates"
            )
        elif why == "inefficient" and paging(analysis):  # and not because of what the operators are
            opening = opening.partition(":")[0]
        if bound in ("host", "idle") and analysis.idle_breakdown is not None:
            opening = _idle(parts, analysis.idle_breakdown, whole)
        elif bound == "host":
            opening = f"Host-bound: for {share} no operator runs"
        # Start-up, pauses between requests and what occurs once say nothing of a step.
        if analysis.basis.start_up or analysis.basis.served or analysis.gap is not None:
            opening = opening.removeprefix("Host-bound: ")
    else:
        return sentence(where)
    return sentence(f"{opening}; {where}" if where else opening)


def _emulated(analysis: Analysis) -> str | None:
    """The precision that the device emulates and in which the inefficient operators mostly compute."""
    slow = [row for row in analysis.operators if row.bound == "inefficient"]
    precisions = {roof.precision for roof in analysis.ceilings if roof.variant == EMULATED}
    of = [row for row in slow if row.matrix_flops and row.precision in precisions]
    mostly = 2 * sum(row.time_s for row in of) > sum(row.time_s for row in slow)
    return of[0].precision if of and mostly else None


def _in_one_gap(analysis: Analysis) -> str:
    """That most of the idle time occurs once; empty where it does not."""
    gap = analysis.gap
    if gap is None:
        return ""
    before = f", before {short_kernel(gap.before)}," if gap.before else ""
    where = f"One gap of {seconds(gap.lasts_s)} at {gap.at_s:.6f} s{before}"
    return f"{where} is {percent(gap.share)} of the idle time; it occurs once in the trace."


def bound_of_classes(breakdown: dict[str, float], idle: dict[str, float] | None, whole: str) -> str:
    """The largest classes of ``whole``, of which only the times are known, as of the mean over several
    ranks."""
    parts = shares(breakdown)
    classes = _with_whole_idle(parts, idle)
    first = leading(classes)
    if not first:
        return ""
    share = classes[first[0]]
    if share < _MAIN_SHARE or len(first) > 1:
        return _several(classes, whole, 3 if share < _MAIN_SHARE else len(first))
    if idle is not None and first[0] in ("host", "idle"):
        return sentence(_idle(parts, idle, whole))
    return sentence(_OPENINGS[first[0]].format(f"{percent(share)} of {whole}"))


def shares(breakdown: dict[str, float] | None) -> dict[str, float]:
    """The share of each class of a step; empty where they are not known."""
    whole_s = sum((breakdown or {}).values())
    return {name: time_s / whole_s for name, time_s in breakdown.items()} if breakdown and whole_s else {}


def _with_whole_idle(parts: dict[str, float], device_idle: dict[str, float] | None) -> dict[str, float]:
    """The shares ``parts`` with all idle time of a device as one class, where it has several."""
    idle = [name for name in _IDLE if parts.get(name)]
    if device_idle is None or len(idle) < 2:
        return parts
    return {
        **{name: share for name, share in parts.items() if name not in idle},
        "idle": sum(parts[name] for name in idle),
    }


def _idle(parts: dict[str, float], idle: dict[str, float], whole: str) -> str:
    """How long the device is idle, and the largest cause with its part, where it is not nearly all."""
    all_idle = sum(parts.get(name, 0.0) for name in _IDLE)
    host = parts.get("host", 0.0)
    if host >= all_idle / 2:
        if all_idle - host < _WORTH_SAYING:
            return _OPENINGS["host"].format(f"{percent(host)} of {whole}")
        why = "because the host has not launched its next work"
        return f"Host-bound: the device is idle for {percent(all_idle)} of {whole}, for {percent(host)} {why}"
    others = {
        cause: time_s for cause, time_s in idle.items() if cause in _IDLE_CAUSES and cause != "data_loading_s"
    }
    scale = parts.get("idle", 0.0) / (sum(others.values()) or 1.0)
    causes = {cause: time_s * scale for cause, time_s in others.items()} | {
        "host_s": host,
        "data_loading_s": parts.get("input", 0.0),
    }
    cause = max(causes, key=causes.__getitem__)
    how_long = "mostly" if causes[cause] >= _NEARLY_ALL * all_idle else f"for {percent(causes[cause])}"
    return f"The device is idle for {percent(all_idle)} of {whole}, {how_long} {_IDLE_CAUSES[cause]}"


def _unknown(analysis: Analysis) -> tuple[str, float]:
    """Why most of the time without a bound has none, and which share of the step that is."""
    coverage = analysis.coverage
    parts = analysis.bound_breakdown or {}
    unknown_s = parts.get("unknown", 0.0)
    whole_s = sum(parts.values()) or math.inf
    if coverage is not None and unknown_s:
        because = {
            "graphs": coverage.graph_launch_time_s - coverage.graph_matched_time_s,
            "threads": analysis.basis.shared_s or 0.0,
            "shapes": sum(row.time_s for row in coverage.unmodeled if "not recorded" in row.reason)
            if coverage.shapes_recorded is False
            else 0.0,
        }
        for why, time_s in because.items():
            if time_s > unknown_s / 2:
                return why, min(time_s, unknown_s) / whole_s
    return "unknown", unknown_s / whole_s


def unknown_share(analysis: Analysis) -> float:
    """The share of the step, or of the trace, whose bound is not known."""
    return shares(analysis.bound_breakdown).get("unknown", 0.0)


def _dominating(analysis: Analysis, total_s: float) -> str:
    """The kernels that take the most of a step of which too much is unknown, else nothing."""
    if unknown_share(analysis) <= MOST_UNKNOWN:
        return ""
    longest = longest_first(
        (short_kernel(kernel.name), kernel.time_s)
        for row in analysis.rows
        for kernel in row.kernels
        # a collective may wait for other ranks
        if not communicates(kernel.name) and not kernel.name.startswith("Mem")
    )
    worth = [(name, time_s) for name, time_s in longest.items() if time_s >= _LEAST_SHARE * total_s]
    named = [f"{name} ({seconds(time_s)})" for name, time_s in worth[:_MOST_KERNELS]]
    return f"Computing kernels that take the most time of {_whole(analysis)}: {_and(named)}." if named else ""


def _whole(analysis: Analysis) -> str:
    return "the step" if analysis.basis.per == "step" else "the trace"


def share_text(name: str, share: float, others: OtherPrograms | None) -> str:
    """The share of a class; beside ``others`` its range from step to step, of delayed steps its least."""
    low, high = (others.shares if others is not None else {}).get(name, (share, share))
    if others is not None and not others.judged and name in ("compute", "memory"):
        return f"at least {percent(low)}"
    least = percent(low).removesuffix(" %")
    return percent(high) if percent(low) == percent(high) else f"{least} to {percent(high)}"


def _rival(bound: str, classes: dict[str, float], others: OtherPrograms | None) -> str | None:
    """The largest other class that may take as much of a step as ``bound`` does, beside ``others``."""
    ends = others.shares if others is not None else {}
    if bound not in ends or bound not in _EITHER:
        return None
    reaching = [
        name for name in _EITHER if name != bound and name in ends and ends[name][1] >= ends[bound][0]
    ]
    return max(reaching, key=lambda name: classes.get(name, 0.0), default=None)


def _name(bound: str, others: OtherPrograms | None) -> str:
    """What a step is called that ``bound`` limits, beside ``others``."""
    delayed = bound == "inefficient" and others is not None and not others.judged
    return _OPENINGS["delayed" if delayed else bound].partition(" for ")[0].partition(":")[0]


def _several(classes: dict[str, float], whole: str, number: int, others: OtherPrograms | None = None) -> str:
    """The largest classes, at most three of ``number``, of a step that no single one bounds; ``others`` may
    have delayed its operators."""
    number = min(number, 3)
    delayed = others is not None and not others.judged
    words = {**_CLASSES, "inefficient": "inefficient or delayed operators"} if delayed else _CLASSES
    known = [name for name in classes if name in words and classes[name] >= _LEAST_SHARE]
    named = sorted(known, key=lambda name: -classes[name])[:number]
    if len(named) < number:
        return ""
    first = words[named[0]]
    take = "takes" if first.startswith(("communication", "idle", "other", "waiting")) else "take"
    rest = " and ".join(f"{words[name]} {share_text(name, classes[name], others)}" for name in named[1:])
    return (
        f"No single bound: {first} {take} {share_text(named[0], classes[named[0]], others)} of "
        f"{whole}{',' if len(named) > 2 else ' and'} {rest}."
    )


def _largest(analysis: Analysis, total_s: float, whole: str, least: float, without: str) -> str:
    times = {
        name: time_s
        for name, time_s in (analysis.category_breakdown or {}).items()
        if name in _PLURAL and name != without
    }
    category = max(
        times, key=lambda name: times[name] / (1 + (name == "other")), default=""
    )  # of which the name says nothing
    if not category or not total_s or times[category] < least * total_s:
        return ""
    time_s = times[category]
    efficiency = category_efficiency(analysis, category, times[category])
    reach = ""
    if efficiency is not None and analysis.other_programs is not None:
        reach = f", at {significant(100 * efficiency, 2)} % efficiency or more"
    elif efficiency is not None:
        reach = f", at {percent(efficiency)} efficiency"
    softmax_s = sum(
        row.time_s for row in analysis.operators if row.category == category and "softmax" in row.name
    )
    named = "softmax" if softmax_s >= _JUDGED * time_s else plural(category)
    take = "takes" if named == "softmax" or runs(category) == "runs" else "take"
    return f"{named} {take} {percent(time_s / total_s)} of {whole}{reach}"


def _and(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def rates_sentence(analysis: Analysis) -> str:
    """The rates of the loader and the step alone, without a full stop; empty if not measured."""
    found = analysis.input
    if found is None or found.loader_rate is None or found.step_rate is None:
        return ""
    unit = f"{found.unit}/s"
    return (
        f"the loader alone delivers {_rate(found.loader_rate, unit)}, the step alone could take "
        f"{_rate(found.step_rate, unit, found.step_rate.how)}"
    )


def _rate(rate: Rate, unit: str, how: str = "") -> str:
    """A rate with remarks: ``7,010 images/s (±3 %, measured)``, ``40 to 190 images/s (measured)``."""
    number = _rounded(rate.per_s)
    spread = ""
    if rate.ci95_per_s is not None:
        low, high = rate.ci95_per_s
        error = max(high - rate.per_s, rate.per_s - low) / rate.per_s
        if error > _LARGE_ERROR:
            number = f"{_rounded(low)} to {_rounded(high)}"
        else:
            spread = f"±{percent(error)}"
    remarks = ", ".join(text for text in (spread, how) if text)
    return f"{number} {unit}{f' ({remarks})' if remarks else ''}"


def _rounded(per_s: float) -> str:
    return f"{float(significant(per_s)):,.0f}" if per_s >= 100 else significant(per_s)


def caveats(analysis: Analysis) -> tuple[str, ...]:
    """The recording first, then what was inferred, then assumptions, those of the most time first."""
    basis = analysis.basis
    whole_s = analysis.timeline.span_s if analysis.timeline is not None else 0.0
    found = []
    if basis.per == "step" and basis.steps == 1 and analysis.traced_steps and analysis.steps is None:
        found.append("one traced step")
    if basis.stacks:
        found.append("stacks recorded: host times inflated")
    if basis.before_s is not None and basis.before_s > _LONG_BEFORE * whole_s:
        found.append(f"without {seconds(basis.before_s)} before the first work of the device")
    if basis.overhead_s is not None and basis.overhead_s > _WORTH_SAYING * whole_s:
        found.append(f"{seconds(basis.overhead_s)} of profiler overhead left out")
    found += _lost(analysis)
    operators_s = sum(row.time_s for row in analysis.operators)
    inferred_s = sum(row.time_s for row in analysis.operators if row.inferred)
    if inferred_s > _WORTH_SAYING * operators_s:
        found.append(f"shapes inferred for {percent(inferred_s / operators_s)} of the time with a count")
    times = longest_first(
        ((row.category, row.assumption), row.time_s) for row in analysis.operators if row.assumption
    )
    worth = [(key, time_s) for key, time_s in times.items() if time_s > _WORTH_SAYING * operators_s]
    found += [
        (
            f"assumed for {plural(category)} ({percent(time_s / operators_s)} of the time with a "
            f"count): {assumption}"
        )
        for (category, assumption), time_s in worth[:_MOST_ASSUMPTIONS]
    ]
    if (more := len(worth) - _MOST_ASSUMPTIONS) > 0:
        found.append(f"{counted(more, 'more assumption')} in the table of operators")
    return tuple(found)


def _lost(analysis: Analysis) -> Iterator[str]:
    """What the trace lacks of launched work; the notes say where."""
    lost = analysis.coverage.lost if analysis.coverage is not None else None
    if lost is not None and lost.without_kernel:
        effect = (
            f"; rows with {percent(lost.flops_fraction)} of the FLOPs are not judged"
            if lost.flops_fraction
            else ""
        )
        yield (
            f"no kernel in the trace for {percent(lost.without_kernel / lost.launches)} of the kernel "
            f"launches{effect}"
        )
    if lost is not None and lost.without_launch:
        share = percent(lost.without_launch / lost.events)
        yield (
            f"no launch in the trace for {share} of the device events "
            f"({seconds(lost.without_launch_s)} without an operator)"
        )
