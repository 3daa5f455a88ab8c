"""A run becomes an analysis: trace + work + ceilings, one function a part of ``analysis.json``."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from rooflines.device_specs.marks import CONTRADICTS, DISTURBED, UNCONFIRMED, marked, marks_of
from rooflines.device_specs.records import Ceilings
from rooflines.profiler.compiled import CompiledCode, read_compiled
from rooflines.profiler.records import Run, RunFile, StepTimes, Workload
from rooflines.profiler.trace.breakdown import step_breakdown
from rooflines.profiler.trace.calls import PHASES, Calls, build_calls
from rooflines.profiler.trace.cut import whole_part
from rooflines.profiler.trace.intervals import Intervals
from rooflines.profiler.trace.launches import launches
from rooflines.profiler.trace.reader import read_trace
from rooflines.profiler.trace.records import Int64s, Trace
from rooflines.roofline.advice.usage import find_in_usage, ranked
from rooflines.roofline.analysis import (
    Analysis,
    Basis,
    Coverage,
    Input,
    Kernel,
    Launches,
    Memory,
    ModuleRow,
    OperatorRow,
    Steps,
    Totals,
    TracedStep,
    Unmodelled,
)
from rooflines.roofline.attribution.attribute import Attribution, attribute
from rooflines.roofline.attribution.rows import Gap, LaunchedKernel, Row
from rooflines.roofline.bounds.judging import judge, with_shortest_kernel
from rooflines.roofline.findings import find
from rooflines.roofline.resolvers.compiled import find_compiled_calls
from rooflines.roofline.step.collectives import collective_rows
from rooflines.roofline.step.host_work import host_work, is_compiled, recomputation, synchronisations
from rooflines.roofline.step.input_pipeline import delayed, feeding, limited_by
from rooflines.roofline.step.interference import other_programs, page_faults, shared_machine
from rooflines.roofline.step.partition import Label, Partition, partition, whole_trace
from rooflines.roofline.usage.device_usage import usage
from rooflines.roofline.verdict import verdict

BOOTSTRAP_RESAMPLES = 2000


def analyze(run: Run, ceilings: Ceilings | None = None, trace: Trace | None = None, *, partial: bool = False) -> Analysis:
    """Everything that ``run`` says, derived anew from its raw files; ``ceilings`` replace the ones stored with it, and ``trace`` is the
    run's where it has been read already. With ``partial``, a trace that is cut off is read up to the cut.

    A run without a trace (interrupted before the traced pass) still has its step times. Raises TraceError when the trace is corrupt.
    """
    facts = run.facts
    ceilings = ceilings or facts.ceilings
    base = Analysis(
        workload=facts.workload,
        environment=facts.environment,
        command=facts.settings.command,
        created=facts.created,
        status=facts.status,
        ceilings=ceilings.ceilings if ceilings else (),
        steps=_steps(facts.steps, facts.workload) if facts.steps else None,
        memory=_memory(facts),
        other_programs=other_programs(run),
        page_faults=page_faults(facts),
        compiled=facts.workload.compiled,
    )
    base = msgspec.structs.replace(base, notes=(*_notes(facts), *shared_machine(base), *_doubtful(ceilings)))
    if trace is None and run.trace_path is not None:
        trace = whole_part(read_trace(run.trace_path, _list_dtype(facts.workload), partial=partial))
        if trace.cut_ns is not None:
            base = msgspec.structs.replace(base, notes=(*base.notes, *trace.notes))
    if trace is not None:
        if facts.environment.device != "cpu" and not len(trace.device):
            # What is left are the times of dispatching on the host, which the device's roofs do not bound.
            ceilings = None
            base = msgspec.structs.replace(base, notes=(*base.notes, _no_device_events(facts, trace)))
        code = read_compiled(run.compiled_path) if run.compiled_path is not None else None
        base = _with_trace(base, trace, ceilings, facts, code)
        devices = len(np.unique(trace.device.device))
        if devices > 1:
            base = msgspec.structs.replace(base, notes=(*base.notes, _several_devices(devices)))
    if base.input is None:
        base = msgspec.structs.replace(base, input=feeding(facts, None))
    base = _with_usage(msgspec.structs.replace(base, limited_by=limited_by(base)), run, ceilings)
    analysis = msgspec.structs.replace(base, findings=ranked((*find(base), *find_in_usage(base))))
    return msgspec.structs.replace(analysis, verdict=verdict(analysis))


def _with_usage(base: Analysis, run: Run, ceilings: Ceilings | None) -> Analysis:
    """With what the samples say; the energy of a step is then among its totals."""
    totals, per_step = base.totals, base.basis.per == "step"
    used = usage(run, totals.flops if totals is not None and per_step else None, ceilings)
    if used is not None and totals is not None and per_step:
        totals = msgspec.structs.replace(totals, energy_j=used.energy_per_step_j)
    return msgspec.structs.replace(base, usage=used, totals=totals)


def _no_device_events(facts: RunFile, trace: Trace) -> str:
    if trace.cut_ns is not None:
        return "no device event was read: device time is unknown, and the host's times are not judged by the device's ceilings"
    return (
        f"the trace holds no work of {facts.environment.device}: the operators ran on the host, or this device cannot be traced; "
        "their times are the host's and are not judged by the device's ceilings"
    )


def _several_devices(count: int) -> str:
    return (
        f"the trace holds work of {count} devices: times are the union over them, FLOPs and bytes the sum, so efficiencies are too high"
    )


def _memory(facts: RunFile) -> Memory | None:
    """The measured peak, with what the tensors held at theirs. Where they held more than was ever measured, nothing is divided."""
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
    parts = msgspec.structs.replace(step.at_peak, overhead=peak - tensors)
    return msgspec.structs.replace(memory, at_peak=parts, operator=step.operator, module=step.module, phase=step.phase)


def _notes(facts: RunFile) -> tuple[str, ...]:
    state = {
        "running": "this run did not end: it was killed, or is still going",
        "interrupted": "this run was interrupted; what had been measured by then is shown",
        "failed": f"this run failed: {facts.error}",
    }
    return (*([state[facts.status]] if facts.status in state else []), *facts.notes)


def _doubtful(ceilings: Ceilings | None) -> list[str]:
    """A sentence for every reason to doubt ceilings that judge: other programs, a best round that stands alone, a broken law."""
    reasons = {
        DISTURBED: "ceilings measured while other programs used the same cores, so perhaps too low",
        UNCONFIRMED: "ceilings whose best round no other round reached within 5 %",
        CONTRADICTS: "ceilings that contradict other ceilings, so perhaps too low",
    }
    notes = []
    for word, why in reasons.items():
        doubtful = [one for one in ceilings.ceilings if word in marks_of(one) and not one.variant] if ceilings else []
        names = [f"{one.name} ({marked(one, word)})" if word == CONTRADICTS else one.name for one in doubtful]
        if names:
            notes.append(f"{why}: {', '.join(names)}; --remeasure on a quiet machine")
    return notes


def _list_dtype(workload: Workload) -> str:
    """The dtype of lists of tensors, which the trace does not record: that of the network's parameters."""
    return {"bf16": "bfloat16", "fp16": "float16"}.get(workload.precision, "float32")


# --- steps -------------------------------------------------------------------------------------------------------------------------


def _steps(times: StepTimes, workload: Workload) -> Steps | None:
    if not times.timed_ns:
        return None
    timed = np.array(times.timed_ns) / 1e9
    median = float(np.median(timed))
    return Steps(
        count=len(timed),
        median_s=median,
        p10_s=float(np.percentile(timed, 10)),
        p90_s=float(np.percentile(timed, 90)),
        ci95_s=_interval(timed),
        samples_per_s=workload.batch_size / median if workload.batch_size else None,
        profiler_dilation=float(np.median(times.traced_ns)) / 1e9 / median if times.traced_ns and times.traced != "program" else None,
        warmup_count=len(times.warmup_ns),
        settled=times.settled,
        rule=times.rule,
        clock=times.clock,
        durations_s=tuple(timed.tolist()),
    )


# The 97.5 % quantile of Student's t for one to four degrees of freedom.
_STUDENT = (12.706, 4.303, 3.182, 2.776)


def _interval(timed: npt.NDArray[np.float64]) -> tuple[float, float] | None:
    """The 95 % interval of the median; None for a single step, of which nobody knows how far others would lie.

    Few values resampled stay between the least and the most of them, which is too narrow, so a bootstrap begins at six.
    """
    if len(timed) < 2:
        return None
    if len(timed) <= len(_STUDENT) + 1:
        half = _STUDENT[len(timed) - 2] * float(np.std(timed, ddof=1)) / math.sqrt(len(timed))
        middle = float(np.median(timed))
        return max(0.0, middle - half), middle + half
    # Bootstrap percentile interval; the seed makes the same run give the same interval.
    resampled = np.random.default_rng(0).choice(timed, (BOOTSTRAP_RESAMPLES, len(timed)))
    low, high = np.percentile(np.median(resampled, axis=1), (2.5, 97.5))
    return float(low), float(high)


# --- the trace ---------------------------------------------------------------------------------------------------------------------


def _with_trace(base: Analysis, trace: Trace, ceilings: Ceilings | None, facts: RunFile, code: CompiledCode | None) -> Analysis:
    calls = build_calls(trace)
    compiled = find_compiled_calls(trace, calls, code) if code else None
    if code and compiled:
        calls = compiled.calls
        base = msgspec.structs.replace(base, notes=(*base.notes, *code.problems))
    if ceilings is not None and len(trace.device):
        ceilings = with_shortest_kernel(ceilings, trace)
        base = msgspec.structs.replace(base, ceilings=ceilings.ceilings)
    attribution = attribute(trace, calls, facts.parameter_elements, _list_dtype(facts.workload), facts.noted_calls, compiled)
    count = attribution.steps or 1
    judged = [_operator(row, calls, ceilings, count, facts) for row in attribution.rows]
    operators = tuple(sorted(judged, key=lambda row: (-row.time_s, row.name, row.module)))
    unmodelled = tuple(_unmodelled(gap, calls, count) for gap in sorted(attribution.gaps, key=lambda gap: -gap.time_ns))
    start_up = facts.steps is not None and facts.steps.traced == "program"
    labels = [Label(row.bound, row.category) for row in judged]
    traced = partition(trace, calls, attribution, labels)
    divided, fed = _divided(traced, base, facts, start_up)
    breakdown = step_breakdown(attribution.trace, calls, attribution.windows)
    missing_s = divided.categories().get("unmodelled", 0.0)
    on_device = len(trace.device) > 0
    return msgspec.structs.replace(
        base,
        notes=(*base.notes, *attribution.notes),
        basis=Basis(per="step" if attribution.steps else "trace", steps=count, start_up=start_up),
        totals=_totals(operators, facts),
        timeline=divided.timeline,
        trace_timeline=whole_trace(attribution.trace, attribution.earlier_ns),
        step_breakdown={kind: int(in_steps.sum()) / 1e9 / count for kind, in_steps in breakdown.items()},
        traced_steps=_traced_steps(calls, attribution.windows, breakdown) if attribution.steps else (),
        idle_breakdown={f"{cause}_s": time_s for cause, time_s in divided.idle.items()} if on_device else None,
        launches=_launches(trace, attribution),
        **_on_host(attribution, calls, traced, divided),
        recomputation=recomputation(attribution.trace, calls, attribution),
        collectives=collective_rows(calls, attribution),
        compiled=base.compiled or is_compiled(trace),
        bound_breakdown=divided.bounds(),
        category_breakdown=divided.categories(),
        division=divided.division(),
        input=fed,
        coverage=Coverage(
            modelled_time_fraction=1 - missing_s / divided.timeline.busy_s if divided.timeline.busy_s > 0 else None,
            shapes_recorded=trace.shapes_recorded,
            unmodelled=unmodelled,
            orphan_device_events=attribution.orphans,
            graph_launch_time_s=attribution.graphs_ns / 1e9 / count,
        ),
        operators=operators,
        modules=_modules(attribution, judged, calls, count, ceilings is not None),
    )


def _divided(traced: Partition, base: Analysis, facts: RunFile, start_up: bool) -> tuple[Partition, Input | None]:
    """The step's parts, as long as the timed step where there is one, and how it was fed."""
    fed = feeding(facts, traced.division())
    if base.steps is None or start_up:
        return traced, fed
    divided = traced.timed(base.steps.median_s, fed.delay_fraction if fed is not None else None)
    return divided, delayed(fed, divided.division()) if fed is not None else None


def _on_host(attribution: Attribution, calls: Calls, traced: Partition, divided: Partition) -> dict[str, Any]:
    """What the host did while the device was idle, of the idle time that the step has."""
    if traced.of != "device" or traced.causes is None or not traced.timeline.idle_s:
        return {}
    left = min(1.0, divided.timeline.idle_s / traced.timeline.idle_s)
    waits = synchronisations(attribution.trace, calls, attribution, traced.causes)
    works = host_work(attribution.trace, calls, attribution, traced.causes["host_bound"])
    return {
        "synchronisations": tuple(msgspec.structs.replace(one, idle_s=one.idle_s * left) for one in waits),
        "host_work": tuple(msgspec.structs.replace(one, idle_s=one.idle_s * left) for one in works),
    }


def _unmodelled(gap: Gap, calls: Calls, steps: int) -> Unmodelled:
    return Unmodelled(
        name=gap.name,
        calls=per(gap.calls, steps),
        time_s=gap.time_ns / 1e9 / steps,
        reason=gap.reason,
        module=calls.modules[gap.module].path if gap.module >= 0 else "",
        phase=PHASES[gap.phase] if gap.signature is not None else "",  # type: ignore[arg-type]
        shapes=gap.signature.shapes() if gap.signature is not None else "",
        exposed_s=None if gap.exposed_ns is None else gap.exposed_ns / 1e9 / steps,
        kernels=_kernels(gap.kernels, steps),
    )


def _kernels(ran: tuple[LaunchedKernel, ...], steps: int) -> tuple[Kernel, ...]:
    return tuple(
        Kernel(
            name=one.name,
            calls=per(one.calls, steps),
            time_s=one.time_ns / 1e9 / steps,
            streams=one.streams,
            grid=one.shape[0] if one.shape else None,
            block=one.shape[1] if one.shape else None,
        )
        for one in ran
    )


def _traced_steps(calls: Calls, windows: Intervals, breakdown: dict[str, Int64s]) -> tuple[TracedStep, ...]:
    lengths = (windows[:, 1] - windows[:, 0]).tolist()
    return tuple(
        TracedStep(name=name, duration_s=length / 1e9, breakdown={kind: int(in_steps[i]) / 1e9 for kind, in_steps in breakdown.items()})
        for i, (name, length) in enumerate(zip(calls.step_names, lengths, strict=True))
    )


def _launches(trace: Trace, attribution: Attribution) -> Launches | None:
    found = launches(trace, attribution.launch, attribution.busy)
    if found is None:
        return None
    return Launches(
        count=found.count,
        delay_median_s=found.delay_median_ns / 1e9,
        delay_p90_s=found.delay_p90_ns / 1e9,
        queue_mean=found.queue_mean,
        queue_max=found.queue_max,
        queue_empty_fraction=found.queue_empty_fraction,
    )


def per(total: int, steps: int) -> int | float:
    """``total`` a step: an integer when it divides, which it does when all steps do the same."""
    whole, rest = divmod(total, steps)
    return whole if rest == 0 else total / steps


def _operator(row: Row, calls: Calls, ceilings: Ceilings | None, steps: int, facts: RunFile) -> OperatorRow:
    work = row.count.work
    flops, matrix, size = (work.flops, work.matrix_flops, work.bytes) if work else (0, 0, 0)
    time_s = row.time_ns / 1e9
    precision = _judged_precision(row, facts, ceilings)
    judged = judge(row, ceilings, precision)
    phase = PHASES[row.phase]
    return OperatorRow(
        name=row.signature.name,
        module=calls.modules[row.module].path if row.module >= 0 else "",
        phase=phase,  # type: ignore[arg-type]
        shapes=row.signature.shapes(),
        precision=precision,
        category="optimizer" if phase == "optimizer" else row.count.category,
        calls=per(row.calls, steps),
        time_s=time_s / steps,
        flops=per(flops * row.calls, steps),
        matrix_flops=per(matrix * row.calls, steps),
        bytes=per(size * row.calls, steps),
        intensity_flop_per_byte=flops / size if flops and size else None,
        flop_per_s=flops * row.calls / time_s if flops and time_s > 0 else None,
        byte_per_s=size * row.calls / time_s if size and time_s > 0 else None,
        attainable_flop_per_s=judged.attainable_flop_per_s,
        lower_bound_s=None if judged.lower_bound_s is None else judged.lower_bound_s / steps,
        efficiency=judged.efficiency,
        headroom_s=None if judged.headroom_s is None else judged.headroom_s / steps,
        bound=judged.bound,
        nearest_roof=judged.nearest_roof,
        memory_level=judged.memory_level,
        engine=judged.engine,
        flag=judged.flag,
        inferred=row.inferred,
        exposed_s=None if row.exposed_ns is None else row.exposed_ns / 1e9 / steps,
        kernels=_kernels(row.kernels, steps),
    )


def _judged_precision(row: Row, facts: RunFile, ceilings: Ceilings | None) -> str | None:
    """The roof's precision: fp32 products and convolutions ran as TF32 where they were asked to, or allowed to on a device that can.

    Torch allows TF32 in convolutions by default, on every device: one that has no such roof ran them in fp32.
    """
    work = row.count.work
    if work is None or work.precision is None:
        return None
    if work.precision == "fp32" and work.matrix_flops:
        switch = "convolution" if row.count.category == "convolution" else "matmul"
        able = ceilings is None or ceilings.compute("tf32", "matrix") is not None
        if facts.workload.precision == "tf32" or (able and (facts.tf32 or {}).get(switch)):
            return "tf32"
    return work.precision


def _bounded(row: OperatorRow) -> tuple[float, float]:
    """The row's bound and what could be saved of it: what is faster than its bound counts with its time.

    They add up to the row's time, but for copies that computation hides.
    """
    return min(row.lower_bound_s or 0.0, row.time_s), row.headroom_s or 0.0


def _totals(operators: tuple[OperatorRow, ...], facts: RunFile) -> Totals:
    bounded = [_bounded(row) for row in operators if row.lower_bound_s is not None]
    time_s, lower_s, headroom_s = sum(row.time_s for row in operators), sum(one for one, _ in bounded), sum(one for _, one in bounded)
    unjudged_s = sum(row.time_s - sum(_bounded(row)) for row in operators if row.lower_bound_s is None or row.bound == "transfer")
    return Totals(
        flops=sum(row.flops for row in operators),
        matrix_flops=sum(row.matrix_flops for row in operators),
        bytes=sum(row.bytes for row in operators),
        time_s=time_s,
        lower_bound_s=lower_s,
        headroom_s=headroom_s,
        unjudged_s=unjudged_s,
        efficiency=lower_s / (lower_s + headroom_s) if lower_s > 0 else None,
        peak_memory_bytes=facts.peak_memory_bytes,
    )


# --- modules -----------------------------------------------------------------------------------------------------------------------


def _modules(
    attribution: Attribution, judged: list[OperatorRow], calls: Calls, steps: int, has_ceilings: bool
) -> tuple[ModuleRow, ...]:
    """Every module with all that runs below it, forward and backward, in the order of first call; ``judged`` goes with the rows."""
    index = {module.path: i for i, module in reversed(list(enumerate(calls.modules)))}
    sums = np.zeros((len(calls.modules), 3))  # time, lower bound, lower bound and headroom
    exact = [[0, 0, 0] for _ in calls.modules]
    for gap in attribution.gaps:
        for path in _with_ancestors(calls.modules[gap.module].path) if gap.module >= 0 else ():
            if path in index:
                sums[index[path], 0] += gap.time_ns / 1e9 / steps
    for row, operator in zip(attribution.rows, judged, strict=True):
        if row.module < 0:
            continue
        work = row.count.work
        for path in _with_ancestors(calls.modules[row.module].path):
            at = index.get(path)
            if at is None:
                continue
            if work is not None:
                for k, value in enumerate((work.flops, work.matrix_flops, work.bytes)):
                    exact[at][k] += value * row.calls
            lower_s, headroom_s = _bounded(operator)
            sums[at] += (operator.time_s, lower_s, lower_s + headroom_s)
    result = []
    for at, module in enumerate(calls.modules):
        if index[module.path] != at:
            continue
        time_s, lower_s, bounded_s = sums[at].tolist()
        known = has_ceilings and bounded_s > 0
        result.append(
            ModuleRow(
                path=module.path,
                type=module.type,
                calls=per(int(calls.module_calls[at]), steps),
                time_s=time_s,
                flops=per(exact[at][0], steps),
                matrix_flops=per(exact[at][1], steps),
                bytes=per(exact[at][2], steps),
                lower_bound_s=lower_s if known else None,
                efficiency=lower_s / bounded_s if known else None,
                headroom_s=max(0.0, bounded_s - lower_s) if known else None,
                depth=module.path.count(".") + 1 if module.path else 0,
            )
        )
    return tuple(result)


def _with_ancestors(path: str) -> list[str]:
    parts = path.split(".") if path else []
    return ["", *(".".join(parts[: i + 1]) for i in range(len(parts)))]
