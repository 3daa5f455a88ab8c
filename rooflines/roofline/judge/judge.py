"""The divided time of a trace becomes an analysis, one function for each part of ``analysis.json``."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import replace

from rooflines.device_specs.records import CONTRADICTS, DISTURBED, UNCONFIRMED, Ceilings, marked, marks_of
from rooflines.profiler.read.distinct import distinct
from rooflines.profiler.read.intervals import Intervals
from rooflines.profiler.read.records import Int64s, Trace
from rooflines.profiler.records import Run, RunFile, Workload
from rooflines.profiler.tree.breakdown import step_breakdown
from rooflines.profiler.tree.external_trace import run_of_trace
from rooflines.profiler.tree.lines import ProgramLines
from rooflines.profiler.tree.tree import Calls
from rooflines.roofline.analysis import (
    Analysis,
    Basis,
    Coverage,
    HostWork,
    Input,
    Memory,
    OperatorRow,
    Steps,
    Synchronization,
    TracedStep,
    Unmodeled,
)
from rooflines.roofline.count.kernel_names import traced_precision
from rooflines.roofline.judge.bounds import with_shortest_kernel
from rooflines.roofline.judge.call_sites import by_call_site, summed, unmodeled
from rooflines.roofline.judge.lines import lines_of, with_lines
from rooflines.roofline.judge.operator_rows import module_rows, operator_row, total, unmodeled_row
from rooflines.roofline.judge.step.activity import activity
from rooflines.roofline.judge.step.generation import generation, phase_factors, timed_tokens
from rooflines.roofline.judge.step.host_work import host_work, is_compiled, recomputation, synchronizations
from rooflines.roofline.judge.step.input_pipeline import delayed, feeding
from rooflines.roofline.judge.step.interference import (
    QuietSteps,
    page_faults,
    quiet_steps,
    undivided,
    with_pages,
)
from rooflines.roofline.judge.step.partition import (
    Partition,
    clock_factor,
    loading_share,
    partition,
    whole_trace,
)
from rooflines.roofline.judge.step.serving import serving
from rooflines.roofline.judge.step.share_ranges import share_ranges
from rooflines.roofline.judge.step.times import summarize_steps
from rooflines.roofline.judge.step.traced_work import (
    about_lost,
    allocated,
    collective_rows,
    launch_queue,
    lost_work,
    one_gap,
)
from rooflines.roofline.judge.usage.device_usage import usage
from rooflines.roofline.own.own import Attribution
from rooflines.roofline.uncertainty import Floats
from rooflines.units import counted, percent, seconds

# If more of the work than this begins before its launch, the clocks differ.
_FEW = 0.05


class Judged(NamedTuple):
    """An analysis and what it is made of, by which a trace is annotated."""

    analysis: Analysis
    #: the divided time as recorded; None for a run without a trace
    attribution: Attribution | None = None
    #: the judged operator of each row of ``attribution``, in their order
    rows: tuple[OperatorRow, ...] = ()
    #: the place in ``analysis.rows`` of each row and of each gap of ``attribution``
    place: Int64s = np.zeros(0, np.int64)
    #: when the device was idle in the windows, by cause
    causes: dict[str, Intervals] = {}  # noqa: RUF012


def judge_times(run: Run, ceilings: Ceilings | None) -> Judged:
    """What is known of a run without a trace."""
    given = _given(run, ceilings)
    return Judged(replace(given.untraced, usage=usage(run, None, given.roofs)))


class _Given(NamedTuple):
    """What is known before the trace."""

    run: Run
    facts: RunFile
    quiet: QuietSteps
    #: those given, else those of the run
    roofs: Ceilings | None
    #: what the run's files tell without its trace
    untraced: Analysis


def _given(run: Run, ceilings: Ceilings | None) -> _Given:
    facts = run.facts
    quiet = quiet_steps(run)
    roofs = ceilings or run.facts.ceilings
    steps = (
        summarize_steps(facts.steps, facts.workload, facts.compile_s, quiet.timed, quiet.traced)
        if facts.steps
        else None
    )
    states = {
        "running": "this run has not ended: it was killed or is still running",
        "interrupted": "this run was interrupted; the report contains the results so far",
        "failed": f"this run failed: {facts.error}",
    }
    untraced = Analysis(
        workload=facts.workload,
        environment=facts.environment,
        command=facts.settings.command,
        created=facts.created,
        status=facts.status,
        ceilings=roofs.ceilings if roofs else (),
        compiled=facts.workload.compiled,
        steps=steps,
        generation=generation(facts, None, (), timed_tokens(facts, quiet.timed), None, steps, None),
        input=feeding(facts, None, quiet.timed),
        memory=_memory(facts),
        other_programs=quiet.others,
        page_faults=page_faults(facts),
        output_error=facts.output_error,
        unrecorded=facts.unrecorded,
        notes=(*([states[facts.status]] if facts.status in states else []), *facts.notes, *_doubtful(roofs)),
    )
    return _Given(run, facts, quiet, roofs, untraced)


class _Clocked(NamedTuple):
    """The divided time on the clock of the timed step."""

    attribution: Attribution
    #: the length of the step; None where the traced times divide themselves
    step_s: float | None
    #: the share of the step that waits for data, where it is known
    waits: float | None
    #: when each token of a generation was ready
    ready_s: list[Floats]


def _clocked(attribution: Attribution, given: _Given, *, start_up: bool) -> _Clocked:
    steps, fed = given.untraced.steps, given.untraced.input
    step_s = _clock(attribution, steps) if attribution.steps and not start_up else None
    waits = fed.delay_fraction if fed is not None else None
    if waits is None and steps is None and attribution.is_steady:
        waits = loading_share(attribution)
    ready_s = timed_tokens(given.facts, given.quiet.timed)
    if step_s is not None:
        factor = clock_factor(attribution, step_s, waits)
        attribution = attribution.scaled(factor, phase_factors(attribution, ready_s))
    return _Clocked(attribution, step_s, waits, ready_s)


def _judging_roofs(given: _Given, trace: Trace) -> Ceilings | None:
    """The ceilings that judge operators: none where they would judge something else."""
    if _is_of_the_host(given.facts, trace):
        return None  # what is left are the times of dispatching, which the device's roofs do not bound
    return (
        with_shortest_kernel(given.roofs, trace)
        if given.roofs is not None and len(trace.device)
        else given.roofs
    )


def _is_of_the_host(facts: RunFile, trace: Trace) -> bool:
    """Whether a trace of a device has no event of it."""
    return facts.environment.device != "cpu" and not len(trace.device)


def judge(attribution: Attribution, run: Run | None = None, ceilings: Ceilings | None = None) -> Judged:
    """Judge the divided time by ``ceilings``, by default those stored with ``run``: the fifth room
    (docs/design.md).

    ``run`` has the facts recorded with the trace; without one they are those that the trace itself tells.
    What follows from the analysis, its findings and its verdict, is ``conclude``'s.
    """
    trace = attribution.trace
    given = _given(run or run_of_trace("", trace), ceilings)
    facts, untraced = given.facts, given.untraced
    start_up = facts.steps is not None and facts.steps.traced == "program"
    roofs = _judging_roofs(given, trace)
    clocked = _clocked(attribution, given, start_up=start_up)
    timed = clocked.attribution
    rows = tuple(operator_row(row, timed, roofs, facts) for row in timed.rows)
    traced = partition(timed, rows)
    divided, fed = _divided(traced, clocked.step_s, clocked.waits, facts, given.quiet)
    breakdown = step_breakdown(timed.calls, timed.windows, timed.overhead)
    lines = lines_of(timed)
    waits_for, works = _on_host(timed, traced, divided, lines)
    lost = lost_work(timed, rows)
    served = bool(timed.calls.batches)
    operators, place = by_call_site(rows, summed, apart=served)
    uncounted = [unmodeled_row(gap, timed) for gap in timed.gaps]
    gaps, place_of_gaps = by_call_site(uncounted, unmodeled, apart=served)
    places = np.concatenate((place, len(operators) + place_of_gaps))
    operators, gaps, of_program = with_lines(
        timed, lines, places, operators, gaps, bounded=divided.is_bounded
    )
    coverage = replace(_coverage(timed, divided, gaps), lost=lost)
    others, steps = untraced.other_programs, untraced.steps
    if others is not None and steps is not None and clocked.step_s is not None and timed.is_steady:
        others = replace(
            others,
            shares=dict.fromkeys(divided.bounds(), (0.0, 1.0))
            if undivided(untraced)
            else share_ranges(timed, rows, divided, traced, steps, given.quiet.undisturbed),
        )
    of_the_host = _is_of_the_host(facts, trace)
    used = usage(
        given.run,
        sum(row.flops for row in rows) if timed.steps else None,
        None if of_the_host else given.roofs,
    )
    totals = total(operators, facts, bounded=divided.is_bounded)
    if used is not None and timed.steps:
        totals = replace(totals, energy_j=used.energy_per_step_j)
    analysis = replace(
        untraced,
        workload=_workload(facts.workload, operators, coverage),
        memory=_with_allocated(untraced.memory, timed),
        basis=_basis(
            timed,
            start_up=start_up,
            timed=clocked.step_s is not None and untraced.steps is not None,
            served=bool(facts.steps and facts.steps.served),
        ),
        ceilings=roofs.ceilings if roofs else untraced.ceilings,
        totals=totals,
        timeline=divided.timeline,
        trace_timeline=whole_trace(trace, timed.earlier_ns),
        step_breakdown={kind: int(in_steps.sum()) / 1e9 / timed.per for kind, in_steps in breakdown.items()},
        bound_breakdown=divided.bounds(),
        category_breakdown=divided.categories(),
        division=divided.division(),
        input=fed or untraced.input,
        traced_steps=_traced_steps(timed.calls, breakdown) if timed.steps else (),
        activity=activity(timed, traced.causes, places),
        serving=serving(timed, rows, roofs),
        generation=generation(facts, timed, rows, clocked.ready_s, roofs, steps, totals.energy_j),
        idle_breakdown={f"{cause}_s": time_s for cause, time_s in divided.idle.items()}
        if len(trace.device)
        else None,
        launches=launch_queue(timed),
        synchronizations=waits_for,
        host_work=works,
        # the timed steps say nothing of it
        gap=one_gap(timed, traced.causes["host_bound"]) if steps is None and traced.causes else None,
        other_programs=others,
        recomputation=recomputation(timed),
        collectives=collective_rows(timed),
        compiled=facts.workload.compiled or is_compiled(trace),
        coverage=coverage,
        operators=operators,
        lines=of_program,
        modules=module_rows(timed, rows, roofs is not None and divided.is_bounded),
        usage=used,
        notes=(
            *untraced.notes,
            *_trace_notes(given, timed),
            *(about_lost(lost, timed) if lost is not None else ()),
        ),
    )
    return Judged(with_pages(analysis), attribution, rows, places, traced.causes or {})


def _trace_notes(given: _Given, attribution: Attribution) -> Iterator[str]:
    """What to know of a trace and of its steps."""
    facts, trace, code = given.facts, attribution.trace, attribution.counts.known.code
    if trace.cut_ns is not None and facts.workload.source != "trace":
        yield from trace.notes
    if _is_of_the_host(facts, trace):
        yield _no_device_events(facts, trace)
    yield from code.problems if code is not None else ()
    yield from (*attribution.notes, *_kinds(attribution), *_clocks(attribution))


def _basis(attribution: Attribution, *, start_up: bool, timed: bool, served: bool) -> Basis:
    trace, steps = attribution.trace, attribution.per
    rows = (*attribution.rows, *attribution.gaps)
    loaders = [name for name in trace.names if name.startswith("enumerate(DataLoader)#_")]
    before_s = None
    if len(trace.device) and len(trace.host) and not attribution.steps:
        before_s = max(0, int(attribution.window[0, 0]) - int(trace.host.start_ns.min())) / 1e9 or None
    return Basis(
        per="step" if attribution.steps else "trace",
        steps=steps,
        start_up=start_up,
        timed=timed,
        served=served,
        steady=attribution.is_steady,
        ranges_s=attribution.ranges_ns / 1e9 / steps or None,
        stacks=trace.has_stacks,
        overhead_s=attribution.overhead_ns / 1e9 / steps or None,
        shared_s=sum(row.shared * row.traced_ns for row in rows) / 1e9 / steps or None,
        devices=max(1, len(distinct(trace.device.device)[0])),
        is_complex=2 * sum(row.traced_ns for row in rows if row.is_complex)
        > sum(row.traced_ns for row in rows),
        before_s=before_s,
        loader_workers="_MultiProcessing" in loaders[0] if loaders else None,
    )


def _workload(recorded: Workload, operators: tuple[OperatorRow, ...], coverage: Coverage) -> Workload:
    """The workload, for another program in the precision of its matrix work, unless it was given."""
    if recorded.source == "model" or (recorded.source != "trace" and recorded.precision != "fp32"):
        return recorded
    return replace(recorded, precision=traced_precision(operators, coverage.unmodeled) or recorded.precision)


def _coverage(attribution: Attribution, divided: Partition, gaps: tuple[Unmodeled, ...]) -> Coverage:
    """The share of the busy time with a work model, and the time without one: ``gaps``."""
    count, busy_s = attribution.per, divided.timeline.busy_s
    return Coverage(
        modeled_time_fraction=max(0.0, 1 - divided.uncounted_s / busy_s) if busy_s > 0 else None,
        shapes_recorded=attribution.trace.shapes_recorded,
        unmodeled=gaps,
        orphan_device_events=attribution.orphans,
        graph_launch_time_s=attribution.graphs_ns / 1e9 / count,
        graph_matched_time_s=attribution.matched_ns / 1e9 / count,
    )


def _clock(attribution: Attribution, steps: Steps | None) -> float | None:
    """The length of the step that the traced times are fitted into: of a timed step, else of a traced one of
    a processor, whose steady calls do not add up to it. None where the traced times divide themselves: on a
    device, and where there are few steps."""
    if steps is not None:
        return steps.median_s
    if not attribution.is_steady:
        return None
    lengths = attribution.windows[:, 1] - attribution.windows[:, 0]
    return float(np.median(lengths[attribution.quiet] if attribution.quiet.any() else lengths)) / 1e9


def _clocks(attribution: Attribution) -> Iterator[str]:
    """A note on work that begins before it is launched, because the clocks of host and device differ."""
    trace, launch = attribution.trace, attribution.calls.launch
    early_ns = trace.host.start_ns[launch[launch >= 0]] - trace.device.start_ns[launch >= 0]
    if early_ns.size and (share := float(np.mean(early_ns > 0))) > _FEW:
        apart = seconds(int(early_ns.max()) / 1e9)
        yield (
            f"the clocks of host and device differ: {percent(share)} of the device's work begins "
            f"up to {apart} before it is launched; "
            "waits and causes of idle time are as uncertain"
        )


def _kinds(attribution: Attribution) -> tuple[str, ...]:
    """A note on steps that do not all make the same calls: another batch, an optimizer that steps only now
    and then."""
    if attribution.steps < 2 or attribution.calls.batches:
        return ()
    # By name and tensors: a number among the arguments, such as an index or the step size of Adam, may differ
    # in every step.
    calls: dict[tuple[Any, ...], Int64s] = defaultdict(lambda: np.zeros(attribution.steps, np.int64))
    for row in attribution.rows:
        if row.step_calls:
            calls[row.signature.name, row.signature.tensors, row.module, row.phase] += np.array(
                row.step_calls
            )
    kinds = Counter(map(tuple, np.array(list(calls.values())).T.tolist())).most_common()
    if len(kinds) < 2:
        return ()
    steps = counted(attribution.steps, "traced step")
    return (
        f"{kinds[0][1]} of {steps} make the same calls of the same sizes; figures are the mean "
        "over all of them.",
    )


def _divided(
    traced: Partition, step_s: float | None, waits: float | None, facts: RunFile, quiet: QuietSteps
) -> tuple[Partition, Input | None]:
    """The step's parts, ``step_s`` long and waiting for its data for the share ``waits`` where that is known,
    and how it was fed."""
    fed = feeding(facts, traced.division(), quiet.timed)
    if step_s is None:
        return traced, fed
    divided = traced.timed(step_s, waits if fed is None or fed.delay_fraction is None else fed.delay_fraction)
    if fed is None:
        return divided, None
    fed = delayed(fed, divided.division())
    return divided._replace(loader_s=fed.wait_s), fed


def _on_host(
    attribution: Attribution, traced: Partition, divided: Partition, lines: ProgramLines
) -> tuple[tuple[Synchronization, ...], tuple[HostWork, ...]]:
    """The host's waits and work during the device's idle time in the step."""
    if traced.of != "device" or traced.causes is None or not traced.timeline.idle_s:
        return (), ()
    left = min(1.0, divided.timeline.idle_s / traced.timeline.idle_s)
    waits = synchronizations(attribution, traced.causes, lines)
    works = host_work(attribution, traced.causes["host_bound"], lines)
    return (
        tuple(replace(wait, idle_s=wait.idle_s * left) for wait in waits),
        tuple(replace(work, idle_s=work.idle_s * left) for work in works),
    )


def _traced_steps(calls: Calls, breakdown: dict[str, Int64s]) -> tuple[TracedStep, ...]:
    lengths = np.sum(list(breakdown.values()), axis=0).tolist()
    return tuple(
        TracedStep(
            name=name,
            duration_s=length / 1e9,
            breakdown={kind: int(in_steps[i]) / 1e9 for kind, in_steps in breakdown.items()},
        )
        for i, (name, length) in enumerate(zip(calls.step_names, lengths, strict=True))
    )


def _no_device_events(facts: RunFile, trace: Trace) -> str:
    if trace.cut_ns is not None:
        return (
            "no device event was read: device time is unknown, and host times are not compared with "
            "the device's ceilings"
        )
    if facts.unrecorded:
        return (
            "all times are the host's: the profiler had no activities of the device, no right to "
            "trace it (CUPTI in a container or "
            "WSL), another profiler held it, or it is one of Apple's, which Kineto does not "
            "trace; record with "
            "activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA] and read what Kineto warns of"
        )
    return (
        f"the trace has no work of {facts.environment.device}: the operators ran on the host, or "
        "this device cannot be traced "
        "(rooflines doctor says whether torch can); their times are the host's and are not "
        "compared with the device's ceilings"
    )


def _memory(facts: RunFile) -> Memory | None:
    """The measured peak, divided by the tensors' own peak. If the tensors' peak is larger, it is not
    divided."""
    peak, step = facts.peak_memory_bytes, facts.step_memory
    if not peak:
        return None
    memory = Memory(peak_bytes=peak, kind=facts.peak_memory_kind)
    device = facts.environment.device.partition(":")[0]
    if step is None or step.device.partition(":")[0] != device:
        return memory
    tensors = step.peak_bytes - step.at_peak.overhead
    if tensors > peak:
        return memory
    parts = replace(step.at_peak, overhead=peak - tensors)
    return replace(
        memory,
        at_peak=parts,
        operator=step.operator,
        module=step.module,
        phase=step.phase,
        curve=step.curve,
        largest=step.largest,
    )


def _with_allocated(memory: Memory | None, attribution: Attribution) -> Memory | None:
    """``memory`` with what the trace says of it, where the tensors of a step were not followed."""
    traced = None if memory is not None and memory.curve is not None else allocated(attribution)
    return memory if traced is None else replace(memory or Memory(), allocated=traced)


def _doubtful(ceilings: Ceilings | None) -> list[str]:
    """A sentence for every reason to doubt the ceilings: other programs, a single best round, a broken
    law."""
    reasons = {
        DISTURBED: "ceilings measured while other programs used the same cores, so they may be too low",
        UNCONFIRMED: "ceilings with a best round that no other round reached within 5 %",
        CONTRADICTS: "ceilings that contradict other ceilings, so they may be too low",
    }
    notes = []
    for word, why in reasons.items():
        names = [
            f"{one.name} ({marked(one, word)})" if word == CONTRADICTS else one.name
            for one in (ceilings.ceilings if ceilings else ())
            if word in marks_of(one) and not one.variant
        ]
        if names:
            notes.append(f"{why}: {', '.join(names)}; measure them again on an idle machine")
    return notes
