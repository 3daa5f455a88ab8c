"""Sentences that reports share: subject line, headline, missing parts and their reasons, measurement quality,
and what to type."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence

from rooflines.arguments import arg, as_options
from rooflines.device_specs.records import Ceiling, Ceilings
from rooflines.profiler.read.communication_kernels import communicates
from rooflines.profiler.read.records import CUT_OFF
from rooflines.profiler.records import RunFile
from rooflines.profiler.training.records import Training
from rooflines.reports.words.ceilings import shares_of_roofs
from rooflines.reports.words.rows import (
    TableRow,
    bound_times,
    flagged,
    module_text,
    share_of_step,
    table_rows,
)
from rooflines.reports.words.text import INFERRED_MARK, given, is_kernel, operator_name
from rooflines.roofline.advise.findings import WORTH
from rooflines.roofline.analysis import Analysis, Finding, ReplayedStep
from rooflines.roofline.compare.records import Noise
from rooflines.roofline.count.by_key import longest_first
from rooflines.roofline.count.kernel_names import short_kernel
from rooflines.roofline.judge.bounds import way_of
from rooflines.roofline.judge.step.interference import is_delayed, is_slowed, noise_s, shared_machine
from rooflines.roofline.predict.options import LARGER_BATCH
from rooflines.units import counted, interval, percent, seconds, sentence, significant

# A launch queue that is empty for less of the time is that of a host which runs ahead.
_AHEAD = 0.2
# Hidden time below this share of the step is not worth a sentence.
_WORTH_SAYING = 0.01


def subject(analysis: Analysis | RunFile | Training) -> str:
    """The workload in one line: ``resnet50 · training · batch 4 · fp32 · SGD · 2-core AMD EPYC (Zen 5)``."""
    workload, environment = analysis.workload, analysis.environment
    device = environment.device_name + (" (inferred)" if environment.device_inferred else "")
    if environment.device.startswith("cpu") and environment.cpu_cores:
        device = f"{environment.cpu_cores}-core {device}"
    forward = (
        workload.mode == "inference"
        and workload.source == "trace"
        and not (isinstance(analysis, Analysis) and analysis.serving)
    )
    unknown = (
        isinstance(analysis, Analysis) and analysis.coverage and analysis.coverage.shapes_recorded is None
    )
    # A trace does not tell what the pass was for, and without operators not what it was.
    parts = [workload.name, "" if forward and unknown else "forward only" if forward else workload.mode]
    if workload.batch_size is not None:
        parts.append(f"batch {workload.batch_size}")
    compiled = (
        f"compiled ({workload.compile_mode})"
        if workload.compile_mode
        else "compiled"
        if workload.compiled or (isinstance(analysis, Analysis) and analysis.compiled)
        else ""
    )
    parts += [
        workload.precision,
        workload.quantized or "",
        compiled,
        "channels last" if workload.channels_last else "",
        device,
    ]
    return " · ".join(filter(None, parts))


def status_sentences(analysis: Analysis) -> str | None:
    """Warnings that the run did not end or its trace is cut, or that other programs disturbed it; None
    without any."""
    after = f" after {counted(analysis.steps.count, 'timed step')}" if analysis.steps else ""
    ended = {
        "interrupted": "This run was interrupted: the report covers the completed steps.",
        "failed": "This run failed: the report covers the steps before the error.",
        "running": f"This run has not ended or was killed{after}: the report covers the data so far.",
    }.get(analysis.status)
    cut = next((sentence(note) for note in analysis.notes if note.startswith(CUT_OFF)), None)
    others = analysis.other_programs
    return " ".join(filter(None, (ended, cut, shared_machine(others) if others else None))) or None


def per(analysis: Analysis) -> str:
    """The basis of a time, to put after it: ``a step`` or ``in the trace``."""
    return "a step" if analysis.basis.per == "step" else "in the trace"


def missing_operators(analysis: Analysis) -> str | None:
    """The reason why there is no operator table, or None."""
    if analysis.rows:
        return None
    if analysis.steps and analysis.steps.slowed_by:
        return (
            f"No operators: {analysis.steps.slowed_by} was on in all steps, and exported no trace of "
            "steps with shapes."
        )
    return "No operators: this run has no trace" + (
        ", because it ended before its traced pass."
        if analysis.status != "complete"
        else "; profile it again to record one."
    )


def missing_ceilings(analysis: Analysis) -> str | None:
    """The reason why nothing is compared with a roof, or None."""
    if analysis.ceilings:
        return None
    if analysis.unrecorded:
        return "The work of the device was not recorded, so no bound, efficiency or headroom is given."
    measured = (
        " On the machine that recorded the trace, --ceilings measured gives them."
        if analysis.workload.source == "trace"
        else ""
    )
    return f"No ceilings are known for this device, so no bound, efficiency or headroom is given.{measured}"


def missing_bound(analysis: Analysis) -> str | None:
    """The reason why the step has no lower bound although there are ceilings, or None."""
    if not analysis.totals or analysis.totals.lower_bound_s is not None or not analysis.timeline:
        return None
    share = bound_times(analysis).get("unknown", 0.0) / (analysis.timeline.busy_s or 1.0)
    return (
        f"No lower bound and no headroom are given: {percent(share)} of the busy time is unknown."
        if share
        else None
    )


def missing_findings(analysis: Analysis) -> str:
    """The reason why there is no advice: no finding is large enough, or there is nothing to judge by."""
    if analysis.unrecorded:
        return "No advice: part of the work was not recorded."
    coverage = analysis.coverage
    if coverage and coverage.modeled_time_fraction is not None and coverage.modeled_time_fraction < 0.5:
        return f"No advice: most of the time is in {coverage.uncounted}."
    if any(row.headroom_s is not None for row in analysis.operators):
        return "No single change is expected to save a noticeable part of the time."
    return "No advice: possible savings need operators and ceilings."


def certainty_sentence(analysis: Analysis) -> str:
    """That savings are less certain than the figures say, and what would decide; empty on a quiet machine."""
    noise = share_of_step(noise_s(analysis), analysis)
    if not any(one.most_s for one in analysis.findings) or not (noise > WORTH or is_delayed(analysis)):
        return ""
    why = (
        "other programs delayed the steps, so savings are upper limits"
        if is_delayed(analysis)
        else f"savings below {percent(noise)} of the step are within the error of its time"
    )
    return f"Not certain on this machine: {why}. Measure them: rooflines advise RUN --try."


def coverage_sentence(analysis: Analysis, *, named: bool = True) -> str | None:
    """The share of the step in operators without a work model, with the names of the longest if ``named``;
    None without a trace."""
    coverage = analysis.coverage
    if not coverage or coverage.modeled_time_fraction is None:
        return None
    if not coverage.unmodeled:
        return "Every operator has a work model."
    busy_s = analysis.timeline.busy_s if analysis.timeline else 0.0
    share = share_of_step((1 - coverage.modeled_time_fraction) * busy_s, analysis)
    took = f"take {percent(share)} of the {analysis.basis.per}" if busy_s else "ran"
    text = f"{coverage.uncounted.capitalize()} {took}"
    if not named:
        return f"{text}."
    times = longest_first(
        ((short_kernel(one.row.name) if is_kernel(one.row) else one.row.name, one.reason), one.row.time_s)
        for one in table_rows(analysis)
        if one.reason and not any(communicates(kernel.name) for kernel in one.row.kernels)
    )
    return (
        f"{text}: "
        f"{listed([f'{name} ({seconds(time_s)}, {reason})' for (name, reason), time_s in times.items()], 3)}."
    )


def flag_sentence(one: TableRow) -> str:
    """A row with flagged operators: their module, their efficiency, and why it is not plausible."""
    wrong = flagged(one)
    where = given(" in {}", module_text(one))
    some = f" ({len(wrong)} of {len(one.members)})" if len(wrong) < len(one.members) else ""
    most = max((row.efficiency for row in wrong if row.efficiency is not None), default=None)
    reached = (
        "" if most is None else f" reaches {'up to ' if len(wrong) > 1 else ''}{percent(most)} efficiency"
    )
    return f"{operator_name(one.row)}{where}{some}{reached}: {wrong[0].flag}"


def inferred_sentence(analysis: Analysis) -> str:
    """The meaning of the mark after a name; empty if no name has it."""
    marked = any(row.inferred or row.assumption for row in analysis.operators)
    return f"{INFERRED_MARK} work inferred or estimated: the trace does not record all arguments" * marked


def steps_sentences(analysis: Analysis) -> list[str]:
    """The step times, their uncertainty and the overhead of the profiler."""
    steps = analysis.steps
    if not steps:
        why = "contains profiled steps only" if analysis.basis.per == "step" else "marks no steps"
        return [f"Step times are not available: the trace {why}."]
    known = steps.samples_per_s if steps.count > 1 else None
    rate = f"{significant(known)} {analysis.workload.unit}/s" if known is not None else ""
    pace = f"{seconds(steps.median_s)} a step{given(' ({})', rate)}"
    profiler = (
        "the profiler off" if steps.slowed_by is None else f"{steps.slowed_by} on, whose cost is in them"
    )
    if steps.ci95_s:
        how = (
            f"median of {steps.count} with {profiler}, 95 % interval {seconds(steps.ci95_s[0])} "
            f"to {seconds(steps.ci95_s[1])}, "
            f"10th to 90th percentile {seconds(steps.p10_s)} to {seconds(steps.p90_s)}"
        )
    elif steps.count > 1:
        how = f"wall time of {steps.count} steps with {profiler}, divided by their number; no interval"
    else:
        how = f"a single step with {profiler}, error unknown"
    texts = [f"{pace}: {how}."]
    if steps.rule or steps.warmup_count:
        # A rule that tells the count itself is not told it again.
        counted = "Warm-up" if "warm-up" in steps.rule else f"{steps.warmup_count} warm-up steps"
        texts.append(f"{counted}: {steps.rule}." if steps.rule else f"{counted} before them.")
    if steps.first_s is not None:
        compiling = given(", {} of it compiling", steps.compile_s, seconds)
        texts.append(f"The first step took {seconds(steps.first_s)}{compiling}; it is in no other figure.")
    if analysis.output_error:
        what = "loss of the first step" if analysis.workload.mode == "training" else "output"
        same = analysis.output_error.same_class
        text = f"Relative difference of the {what} from fp32: {analysis.output_error.relative:.2g}"
        texts.append(
            text + (f"; the same class for {percent(same)} of the samples." if same is not None else ".")
        )
    if steps.profiler_dilation is not None:
        doubt = (
            ": something slowed the timed steps, such as other programs or memory returned to the system"
            if is_slowed(analysis)
            else ""
        )
        pace = significant(steps.profiler_dilation)
        ranges = given(
            " Ranges of modules took {} of each, which no figure contains.", analysis.basis.ranges_s, seconds
        )
        texts.append(f"Traced steps, which only divide the time, take {pace} × as long{doubt}.{ranges}")
    return texts


# Why a device runs nothing, by the class of that time: the words are those of the bar and of the table of
# parts.
RUNS_NOTHING = {
    "input": {"data_loading_s": "the host was loading data"},
    "host": {
        "host_bound_s": "the host had launched nothing",
        "synchronization_s": "the host was waiting for the device",
    },
    "other idle": {
        "kernel_wait_s": "launched work had not begun",
        "outside_s": (
            "launched work had not begun for longer than a launch takes, and the trace does not show why"
        ),
        "graph_s": "a graph had been launched; it waits, or kernels of it were not recorded",
        "unknown_s": "the launch of the next work is not in the trace",
    },
}


def device_sentences(analysis: Analysis) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The device in the trace: causes of idle time, hidden work, launch queue, range of the steps' durations.

    Each sentence comes with the JSON pointers of the figures that it rests on.
    """
    yield from idle_sentences(analysis)
    if timeline := analysis.timeline:
        for what, whole_s, exposed_s in (
            ("Communication takes", timeline.communication_s, timeline.exposed_communication_s),
            ("Copies take", timeline.memcpy_s, timeline.exposed_memcpy_s),
        ):
            if whole_s - exposed_s > _WORTH_SAYING * timeline.span_s:
                text = (
                    f"{what} {seconds(whole_s)} {per(analysis)}, of which other work hides "
                    f"{seconds(whole_s - exposed_s)}."
                )
                yield text, ("/timeline",)
    if queue := analysis.launches:
        ahead = (
            ": the host runs ahead of the device, as it should" if queue.queue_empty_fraction < _AHEAD else ""
        )
        text = (
            f"Launched work waits {seconds(queue.delay_median_s)} until it begins (median; 90 % "
            f"wait {seconds(queue.delay_p90_s)} or "
            f"less){ahead}. Launch queue: {significant(queue.queue_mean)} launches on average, "
            f"{queue.queue_max:,} at most, empty "
            f"{percent(queue.queue_empty_fraction)} of the device's time."
        )
        yield text, ("/launches/delay_median_s", "/launches/queue_mean")
    lasted = [step.duration_s for step in analysis.traced_steps]
    if len(lasted) > 1 and not analysis.steps:
        text = (
            f"Under the profiler the {len(lasted)} steps lasted {seconds(min(lasted))} to "
            f"{seconds(max(lasted))}."
        )
        yield text, ("/traced_steps",)


def idle_sentences(analysis: Analysis) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The idle time of the device by class of the bar, with its causes, and the pointers of these; nothing
    without any."""
    causes = analysis.idle_breakdown or {}
    whole = sum(causes.values())
    if not whole:
        return
    parts = []
    for name, reasons in RUNS_NOTHING.items():
        found = {text: causes[cause] for cause, text in reasons.items() if causes.get(cause)}
        longest = sorted(found, key=lambda text: -found[text])
        why = longest if len(found) == 1 else [f"{seconds(found[text])} {text}" for text in longest]
        parts += [f"{name} {seconds(sum(found.values()))} ({', '.join(why)})"] if found else []
    share = percent(share_of_step(whole, analysis))
    text = f"The device runs nothing for {seconds(whole)} {per(analysis)} ({share}): {'; '.join(parts)}."
    yield text, tuple(f"/idle_breakdown/{name}" for name in causes)


def headline(analysis: Analysis) -> str:
    """The verdict, or the step times if there is none."""
    if analysis.verdict:
        return analysis.verdict
    return steps_sentences(analysis)[0] if analysis.steps else "No verdict: this run has no step times."


def confidence(analysis: Analysis) -> list[str]:
    """The line below the verdict on what the figures assume and how sure they are; none for a recording
    without doubt."""
    return [f"Assumptions and confidence: {' · '.join(analysis.caveats)}."] if analysis.caveats else []


def replay_sentence(analysis: Analysis) -> str:
    """What savings are taken from, and how well it is known; empty where no trace is replayed."""
    of = "step" if analysis.basis.per == "step" else "trace"
    return replay_words(analysis.replay, of) if analysis.replay is not None else ""


def replay_words(found: ReplayedStep, of: str) -> str:
    """How well the replay of a step, or ``of`` the trace, is known."""
    if found.reason:
        return f"Savings are upper bounds: no replay of the {of} is trusted, because {found.reason}."
    if found.by_construction:
        return (
            "Savings are those of the threads that decide how long the step lasts; which of them wait for "
            "each other is inferred from when they begin."
        )
    pace = f"; the host's times count {percent(found.host_pace)}, which fits it to the timed steps"
    late = f"; {percent(found.kept_fraction)} of it is waiting that the trace does not explain: it stays"
    return (
        "Savings are differences between replays of the trace by its dependencies; unchanged, the replay "
        f"reproduces the {of} within {max(100 * found.error, 0.01):.2g} %"
        f"{pace if found.host_pace != 1.0 else ''}"
        f"{late if found.kept_fraction > _KEPT else ''}."
    )


def chain_sentence(analysis: Analysis) -> str:
    """A step as it is and after each replayed change, the first few by number: ``A step takes 12.1 ms; with
    changes 1 and 2, one after another, about 7.3 ms, 5.9 ms; with all 4 4.0 ms``."""
    chain_s = analysis.replay.chain_s if analysis.replay is not None else ()
    if not chain_s:
        return ""
    whole = "A step takes" if analysis.basis.per == "step" else "The trace takes"
    taken = [
        number
        for number, one in enumerate(analysis.findings, 1)
        if one.about_s is not None and one.later_s is None
    ]
    *first, last = map(str, [number for number in taken if number <= _NAMED] or taken[:1])
    many = f"changes {', '.join(first)} and {last}, one after another," if first else f"change {last}"
    after = ", ".join(map(seconds, chain_s[1 : len(first) + 2]))
    if len(taken) > len(first) + 1:
        after += f"; with all {len(taken)} {seconds(chain_s[-1])}"
    known = "at best" if analysis.replay is not None and analysis.replay.by_construction else "about"
    return f"{whole} {seconds(chain_s[0])}; with {many} {known} {after}. {_limit(analysis)}".rstrip()


def _limit(analysis: Analysis) -> str:
    """What limits the step after the last change; empty where much of the step is not explained."""
    found = analysis.replay
    if found is None or found.kept_fraction > _UNEXPLAINED:
        return ""
    largest_s = max(found.limits_s.values(), default=0.0)
    if largest_s < _SHARED * found.chain_s[-1]:
        return "Then no part alone is the limit."
    words = {"host": "the host", "communication": "communication", "operators": "the operators' work"}
    named = [words[name] for name, gain_s in found.limits_s.items() if gain_s >= largest_s / 2]
    return f"Then {' and '.join(named)} {'are the limits' if named[1:] else 'is the limit'}."


def settled_sentence(analysis: Analysis) -> str:
    """``Do not work on aten::mm, aten::relu: 61 % of the step, 0.30 ms to gain.``"""
    found = analysis.replay.settled if analysis.replay is not None else None
    if found is None:
        return ""
    share = f"{percent(found.time_s / analysis.whole_s)} of the {analysis.basis.per}"
    gain = f"{seconds(found.gain_s)} to gain at their bounds"
    return f"Do not work on {listed(found.operators, 3)}: {share}, {gain}."


# A chain names as many changes as a first screen shows.
_NAMED = 3
# Late work that is a smaller part of the window is not worth a word.
_KEPT = 0.01
# Of what is not explained for a larger part, no limit is named; and none that gives a smaller part of a step.
_UNEXPLAINED = 0.05
_SHARED = 0.25
# What a change gives alone is nothing where it is less than this part of what it gives after others.
_NOTHING = 0.01
# And the same from this part on.
_SAME = 0.8


def saving(finding: Finding, whole_s: float, per: str) -> str:
    """The saving of a finding: ``saves about 18.5 ms a step (23 %), at most 21.0 ms`` where it was replayed,
    else the bound alone; the share is that of ``whole_s`` where this is known."""
    if not finding.most_s:
        return "saving not quantified"
    gain_s, alone_s = finding.gain_s, finding.alone_s
    if per == "a step" and (finding.option == "batch_size" or finding.suggestion == LARGER_BATCH):
        per = "for the samples of a step"  # of which there are more then
    if finding.later_s:
        now = f"about {seconds(gain_s)}" if gain_s > _NOTHING * finding.later_s else "nothing"
        later = f"about {seconds(finding.later_s)} {per}"
        if alone_s is not None and alone_s > _NOTHING * finding.later_s:
            after = f"after the changes before it (alone {seconds(alone_s)})"
            return f"saves {now} {after}, {later} once the host launches in time"
        return f"saves {now} before the host launches in time, then {later}"
    part = f" ({percent(gain_s / whole_s)})" if whole_s > 0 else ""
    if finding.about_s is None or alone_s is None:
        return f"saves up to {seconds(gain_s)} {per}{part}"
    alone = seconds(alone_s) if alone_s > _NOTHING * gain_s else "nothing"
    after = "" if alone_s >= _SAME * gain_s else f" after the changes before it, alone {alone}"
    return f"saves about {seconds(gain_s)} {per}{part}{after}, at most {seconds(finding.most_s)}"


def roofs_of_run(analysis: Analysis) -> list[Ceiling]:
    """The roofs that judge this run: those of its precisions, on the engine that did the work, every level of
    memory, the latency, and the link to the host of each direction in which it copied.

    A precision that a hundredth of the time is spent in is worth a roof here; a counter in fp64 is not.
    """
    device = Ceilings(
        device=analysis.environment.device_name, kind=analysis.environment.device, ceilings=analysis.ceilings
    )
    shares = shares_of_roofs(device, (row for row in analysis.operators if row.flops))
    compute = [roof for roof, share in shares.items() if share >= 0.01]
    latency = device.latency()
    ways = {
        way_of(kernel.name) for row in analysis.operators if row.bound == "transfer" for kernel in row.kernels
    }
    links = [roof for roof in device.main("link") if roof.name in ways]
    return [*compute, *device.memory_levels(), *([latency] if latency else []), *links]


def ratio_text(noise: Noise) -> str:
    """How many times as long, with its error: ``ratio 1.20, 95 % interval 1.15 to 1.26``."""
    return f"ratio {significant(noise.ratio)}, 95 % interval {interval(*noise.ci95)}"


def listed(names: Sequence[str], most: int = 6) -> str:
    """Names in a sentence, the first ``most`` of them: ``L1 read, L1 write and 3 more``."""
    rest = len(names) - most
    return ", ".join(names) if rest <= 0 else f"{', '.join(names[:most])} and {rest} more"


# What a repeated run should not take over: its directory, its formats, its silence.
_DROPPED = {"--output": 1, "-o": 1, "--format": 1, "--formats": 1, "--quiet": 0, "-q": 0, "--remeasure": 0}


def suggested(finding: Finding, command: str) -> str:
    """What to try: ``command``, which made the run, with the option of ``finding`` added or replaced, or its
    own suggestion.

    The option stays as in Python where ``command`` is not one of ``rooflines profile``.
    """
    words = shlex.split(command) if finding.option is not None else []
    if finding.option is None or words[:2] != ["rooflines", "profile"]:
        return finding.suggestion
    flag, *values = as_options(arg(finding.option, finding.value)).split()
    return repeated(words, {flag: values})


def repeated(words: Sequence[str], given: Mapping[str, Sequence[str]]) -> str:
    """The command of these ``words`` with options and their values added or replaced, without what a repeated
    run should not take over."""
    own = len(words) if "--" not in words else words.index("--")  # what follows -- is the script's
    values = {**_DROPPED, **{flag: len(each) for flag, each in given.items()}}
    kept: list[str] = []
    skip = 0
    for word in words[:own]:
        name = word.partition("=")[0]
        if skip:
            skip -= 1
        elif name in values:
            skip = values[name] if "=" not in word else 0
        else:
            kept.append(word)
    added = [part for flag, each in given.items() for part in (flag, *each)]
    return shlex.join([*kept, *added, *words[own:]])


def command_of(kind: str, options: Mapping[str, bool | int | float | str]) -> str:
    """Return the shell command of ``rooflines profile`` or ``train`` (``kind``) with ``options``; one that is
    off is left out."""
    words = [as_options(arg(name, value)) for name, value in options.items() if value is not False]
    return " ".join(["rooflines", kind, *words])
