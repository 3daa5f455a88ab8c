"""The laws of a profile: what must hold of every run, and of single workloads because of how they run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from rooflines.profiler.read.records import KERNEL, RUNTIME, Trace
from rooflines.profiler.records import Run
from rooflines.roofline.analysis import Analysis, DeviceUsage, Energy, Unresolved
from rooflines.roofline.judge.usage.device_usage import MonitorAnalysis, figure
from rooflines.units import binary_bytes, percent, si
from tests.gpu.parts import Device, Verdict

# How far a bound may be exceeded: rounds of a ceiling differ by a few percent, and so do the clocks of two runs.
MOST_EFFICIENCY = 1.05
_BUSY_TOLERANCE = 0.02
# Relative error of sums: times within a step, FLOPs against a closed form.
_SUM_TOLERANCE = 1e-3
_WALL_TOLERANCE = 0.03
_LEAST_CLOCK = 0.95
_ENERGY_TOLERANCE = 0.03
# What the driver reports where the board's power limit holds the clock down, and of a clock that nothing holds down.
_POWER_REASONS = {"software power cap", "hardware power brake slowdown"}
_NO_REASONS = {"gpu idle", "idle", "none"}
_PHASES = {"inference": {"forward"}, "training": {"forward", "backward", "optimizer"}}
# Of the matrix FLOPs of a network; the rest may be, for example, a loss outside of autocast.
_MOST_MATRIX_FLOPS = 0.99
# The operator by which torch's gradient scaler looks for overflows.
_SCALER = "aten::_amp_foreach_non_finite_check_and_unscale_"
# A device that is idle for less than this is not launch bound; one that is idle for most of the time is.
_LEAST_IDLE = 0.2
_MOSTLY_IDLE = 0.5
_IDLE_TOLERANCE = 0.01
_EVENTS = "cuda events"
# Of a network that fills the GPU, sampled while it runs.
_LEAST_BUSY = 0.5
# NVML's total of a GPU includes memory that the driver keeps, torch's does not.
_MEMORY_TOLERANCE = 0.1

CLOCK_LAW = f"SM clock >= {percent(_LEAST_CLOCK)} of its maximum, or held down by the power limit"
ENERGY_LAW = f"integrated power = energy counter within {percent(_ENERGY_TOLERANCE)}"
WORK_LAW = "the GPU that was sampled did the work"


class Profiled(NamedTuple):
    """What ``rooflines profile`` left of a case."""

    device: Device
    run: Run
    analysis: Analysis
    trace: Trace | None

    @property
    def usage(self) -> DeviceUsage | None:
        """The usage of the GPU that ran the steps."""
        return self.analysis.usage.of(self.analysis.environment.device) if self.analysis.usage else None


class Law(NamedTuple):
    """A law of a profile in words, and what judges it."""

    text: str
    verdict: Callable[[Profiled], Verdict]


def _law(text: str) -> Callable[[Callable[[Profiled], Verdict]], Law]:
    return lambda verdict: Law(text, verdict)


# --- laws of every run -------------------------------------------------------------------------------------------------------------


@_law(f"operators + unmodelled + idle = span within {percent(_SUM_TOLERANCE, 1)}")
def times_add_up(profiled: Profiled) -> Verdict:
    """Operators, device time without a model and idle time add up to the span, less what overlaps."""
    timeline, coverage = profiled.analysis.timeline, profiled.analysis.coverage
    if timeline is None or coverage is None or not timeline.span_s:
        return "the analysis has no timeline"
    parts = sum(row.time_s for row in profiled.analysis.operators) + sum(row.time_s for row in coverage.unmodeled)
    error = abs(parts + timeline.idle_s - timeline.overlap_s - timeline.span_s) / timeline.span_s
    return error < _SUM_TOLERANCE, f"off by {error:.2e}"


@_law(f"device busy <= timed step + {percent(_BUSY_TOLERANCE)}")
def busy_within_step(profiled: Profiled) -> Verdict:
    """The traced device time of a step fits into the time that a step takes without the profiler; on a CPU operators are slower."""
    steps, timeline = profiled.analysis.steps, profiled.analysis.timeline
    if steps is None or timeline is None or profiled.analysis.basis.per != "step":
        return "no steps were timed without the profiler"
    busy_s, step_s = timeline.busy_s, steps.median_s
    return busy_s <= step_s * (1 + _BUSY_TOLERANCE), f"{si(busy_s, 's')} of {si(step_s, 's')}, {percent(busy_s / step_s)}"


@_law(f"no efficiency above {MOST_EFFICIENCY}")
def nothing_beats_its_bound(profiled: Profiled) -> Verdict:
    rows = [(row.efficiency, row) for row in profiled.analysis.operators if row.efficiency is not None]
    if not rows:
        return "no operator has an efficiency"
    most, row = max(rows, key=lambda pair: pair[0])
    return most <= MOST_EFFICIENCY, f"{most:.3f} by {' '.join(filter(None, (row.name, row.module, row.shapes)))}"


@_law(f"shortest kernel >= kernel launch / {MOST_EFFICIENCY}")
def no_kernel_below_launch(profiled: Profiled) -> Verdict:
    """No traced kernel is shorter than the latency that bounds every kernel, by more than a ceiling is uncertain."""
    ceilings = profiled.analysis.ceilings
    launch_s = next((ceiling.value for ceiling in ceilings if ceiling.name == "kernel launch" and not ceiling.variant), None)
    if launch_s is None:
        return "the latency of a kernel launch was not measured"
    if profiled.trace is None or not (kernels := profiled.trace.device.kind == KERNEL).any():
        return "the trace has no kernels"
    shortest_s = float((profiled.trace.device.end_ns - profiled.trace.device.start_ns)[kernels].min()) / 1e9
    return shortest_s * MOST_EFFICIENCY >= launch_s, f"{si(shortest_s, 's')}, kernel launch {si(launch_s, 's')}"


OF_TRACES = (times_add_up, busy_within_step, nothing_beats_its_bound, no_kernel_below_launch)


@_law(f"sum of CUDA events = wall time within {percent(_WALL_TOLERANCE)}")
def events_see_all_work(profiled: Profiled) -> Verdict:
    """The CUDA events around the timed steps saw all of their work.

    The recording compares the sum of the events with the wall time between two synchronizations, and takes the wall clock where they
    differ: events see the stream that they are recorded in, on the device that is timed.
    """
    return _clock_of_steps(profiled, events=True)


@_law("steps with work in another stream are timed by the wall clock")
def other_stream_noticed(profiled: Profiled) -> Verdict:
    return _clock_of_steps(profiled, events=False)


def _clock_of_steps(profiled: Profiled, *, events: bool) -> Verdict:
    steps = profiled.run.facts.steps
    if steps is None or not steps.timed_ns:
        return "no steps were timed on a GPU"
    return (steps.clock == _EVENTS) is events, f"steps timed by {steps.clock}"


def flops_equal(closed_form: int) -> Law:
    @_law(f"matrix FLOPs equal the closed form within {percent(_SUM_TOLERANCE, 1)}")
    def verdict(profiled: Profiled) -> Verdict:
        if profiled.analysis.totals is None:
            return "the analysis has no totals"
        ratio = (profiled.analysis.totals.matrix_flops or 0) / closed_form
        return abs(ratio - 1) < _SUM_TOLERANCE, f"ratio {ratio:.6f}"

    return verdict


def covered(least: float) -> Law:
    """Operators with a work model take at least the share ``least`` of the device time."""

    @_law(f"coverage >= {percent(least)}")
    def verdict(profiled: Profiled) -> Verdict:
        coverage = profiled.analysis.coverage
        if coverage is None or coverage.modeled_time_fraction is None:
            return "the analysis has no coverage"
        return coverage.modeled_time_fraction >= least, percent(coverage.modeled_time_fraction, 1)

    return verdict


def modules_named(module: str) -> Law:
    @_law("rows have module names")
    def verdict(profiled: Profiled) -> Verdict:
        named = {row.module for row in profiled.analysis.operators if row.module}
        return module in named, f"{len(named)} modules, {'with' if module in named else 'without'} {module}"

    return verdict


def phases_separated(mode: str) -> Law:
    @_law("every phase has time")
    def verdict(profiled: Profiled) -> Verdict:
        phases = {row.phase for row in profiled.analysis.operators if row.time_s > 0}
        return _PHASES[mode] <= phases, ", ".join(sorted(phase or "none" for phase in phases)) or "no operator has time"

    return verdict


@_law(CLOCK_LAW)
def run_at_maximum_clock(profiled: Profiled) -> Verdict:
    usage = profiled.usage
    gauge = usage.gauges.get("sm_clock_hz") if usage else None
    clocks = [] if gauge is None or usage is None else [("the timed steps", gauge.median, [held.reason for held in usage.throttled])]
    return clock_verdict(clocks, profiled.device.max_clock_hz)


def clock_verdict(clocks: Sequence[tuple[str, float, Iterable[str]]], max_clock_hz: float | None) -> Verdict:
    """Judge whether the SM clock was near its maximum: ``clocks`` are what was measured, the median clock and the driver's reasons.

    Exception: the power limit. Matrix products on large GPUs take more power at the maximum clock than the board may draw, so that the
    driver lowers the clock. Where the driver reports that as the only reason, the figure is what the device can do at its power limit,
    and the clock is only reported. Temperature and clocks set by a user are no exception.
    """
    if max_clock_hz is None:
        return "neither the driver nor a data sheet tells the maximum clock"
    if not clocks:
        return "no clock was sampled"
    low = [(name, clock, set(reasons) - _NO_REASONS) for name, clock, reasons in clocks if clock < _LEAST_CLOCK * max_clock_hz]
    bad = [entry for entry in low if not entry[2] or not entry[2] <= _POWER_REASONS]
    if shown := bad or low:
        name, clock, reasons = min(shown, key=lambda entry: entry[1])
        why = ", ".join(sorted(reasons)) or "no reason reported"
        others = f", and {len(shown) - 1} more" if len(shown) > 1 else ""
        return not bad, f"{si(clock, 'Hz')} of {si(max_clock_hz, 'Hz')} in {name} ({why}){others}"
    return True, f"at least {si(min(clock for _, clock, _ in clocks), 'Hz')} of {si(max_clock_hz, 'Hz')}"


@_law(ENERGY_LAW)
def run_energies_agree(profiled: Profiled) -> Verdict:
    """The law of ``energy_verdict`` for the timed steps of a run, where these are long enough for both to resolve."""
    usage = profiled.usage
    if usage is None:
        return "the GPU was not sampled"
    if usage.energy is not None and usage.energy.method == "power":
        return "the energy counter was not read"
    if usage.energy is not None and usage.energy_by_power is not None:
        errors = (usage.energy.error_j + usage.energy_by_power.error_j) / usage.energy.energy_j
        if errors > _ENERGY_TOLERANCE:
            return f"in {si(usage.energy.energy_j, 'J')} the two are known to {percent(errors)} together"
    return energy_verdict(usage.energy or usage.no_energy, usage.energy_by_power)


def energy_verdict(counter: Energy | Unresolved | None, power: Energy | Unresolved | None) -> Verdict:
    """Judge whether the integral of power equals the difference of the energy counter."""
    for energy, method in ((counter, "counter"), (power, "power")):
        if not isinstance(energy, Energy):
            return f"no energy by {method}: {energy.reason if energy else 'it was not sampled'}"
    assert isinstance(counter, Energy)
    assert isinstance(power, Energy)
    texts = f"{counter.energy_j:.0f} J ±{counter.error_j:.0f} by counter, {power.energy_j:.0f} J ±{power.error_j:.0f} by power"
    apart = power.energy_j / counter.energy_j - 1
    return abs(apart) <= _ENERGY_TOLERANCE, f"{texts}, {apart * 100:+.1f} % apart"


# --- laws of single workloads ------------------------------------------------------------------------------------------------------


def matrix_precision(precision: str) -> Law:
    """Products and convolutions are judged by the roof of the ``precision`` in which they ran."""

    @_law(f"{percent(_MOST_MATRIX_FLOPS)} of the matrix FLOPs are {precision}")
    def verdict(profiled: Profiled) -> Verdict:
        total = sum(row.matrix_flops for row in profiled.analysis.operators)
        if not total:
            return "no operator has matrix FLOPs"
        shares: dict[str, float] = {}
        for row in profiled.analysis.operators:
            if row.matrix_flops:
                name = row.precision or "unknown"
                shares[name] = shares.get(name, 0.0) + row.matrix_flops / total
        parts = ", ".join(f"{name} {percent(share, 1)}" for name, share in sorted(shares.items(), key=lambda pair: -pair[1]))
        return shares.get(precision, 0.0) >= _MOST_MATRIX_FLOPS, parts

    return verdict


@_law("the roof of products is GEMM tf32")
def judged_by_tensor_cores(profiled: Profiled) -> Verdict:
    """With TF32, products have the TF32 roof of the matrix units, not the FP32 roof of the vector units."""
    if not any(ceiling.precision == "tf32" and ceiling.engine == "matrix" for ceiling in profiled.analysis.ceilings):
        return "this device has no TF32"
    roofs = {f"{row.precision} {row.engine}" for row in profiled.analysis.operators if row.matrix_flops}
    return roofs == {"tf32 matrix"}, ", ".join(sorted(roofs)) or "no products"


@_law("the loss is finite")
def loss_is_finite(profiled: Profiled) -> Verdict:
    """The loss of the first and of the last step is a number."""
    finite = profiled.run.facts.loss_finite
    return "the run did not record its losses" if finite is None else (finite, "finite" if finite else "not finite")


@_law("a gradient scaler is at work")
def scaler_at_work(profiled: Profiled) -> Verdict:
    """A gradient scaler looks for overflows in every step; a CPU trains in fp16 without one."""
    there = any(row.name == _SCALER for row in profiled.analysis.rows)
    return there, f"{_SCALER} is {'' if there else 'not '}in the trace"


@_law(f"idle time above {percent(_LEAST_IDLE)} has a cause, above {percent(_MOSTLY_IDLE)} the host limits the step")
def idle_time_named(profiled: Profiled) -> Verdict:
    """The causes of the device's idle time add up to it; where that is most of a step, the host limits the step."""
    timeline, causes, limit = profiled.analysis.timeline, profiled.analysis.idle_breakdown, profiled.analysis.limited_by
    if timeline is None or causes is None or not timeline.span_s:
        return "the analysis has no idle time"
    idle = timeline.idle_s / timeline.span_s
    if idle < _LEAST_IDLE:
        return f"the device is idle for {percent(idle)} only: this host is fast enough"
    named = sum(causes.values()) / timeline.idle_s
    holds = abs(named - 1) <= _IDLE_TOLERANCE and (idle < _MOSTLY_IDLE or limit == "host")
    return holds, f"idle for {percent(idle)}, {percent(named)} of it with a cause; limited by {limit or 'the device'}"


@_law("compiled code ran")
def compiled_by_inductor(profiled: Profiled) -> Verdict:
    """Code of ``torch.compile`` ran, and the time that compiling took is known."""
    seconds = profiled.run.facts.compile_s
    return profiled.analysis.compiled and seconds is not None, "none" if seconds is None else f"compiled in {si(seconds, 's')}"


@_law("one launch of a CUDA graph per step")
def one_graph_launch(profiled: Profiled) -> Verdict:
    if profiled.trace is None:
        return "there is no trace"
    launches, host = [name.startswith("cudaGraphLaunch") for name in profiled.trace.names], profiled.trace.host
    count = int((np.array(launches, bool)[host.name] & (host.kind == RUNTIME)).sum())
    steps = profiled.analysis.basis.steps
    return count == steps, f"{count} in {steps} steps"


@_law("kernels run in at least two streams")
def in_several_streams(profiled: Profiled) -> Verdict:
    if profiled.trace is None:
        return "there is no trace"
    streams = np.unique(profiled.trace.device.stream)
    return len(streams) >= 2, f"streams {', '.join(map(str, streams.tolist()))}"


def ran_on(device: str) -> Law:
    """The run is of the GPU that the script chose, and its operators took time there."""

    @_law(f"the run is of {device}")
    def verdict(profiled: Profiled) -> Verdict:
        recorded = profiled.run.facts.environment.device
        busy_s = profiled.analysis.timeline.busy_s if profiled.analysis.timeline else 0.0
        return recorded == device and busy_s > 0, f"{recorded}, busy for {si(busy_s, 's')} per step"

    return verdict


@_law(WORK_LAW)
def sampled_gpu_works(profiled: Profiled) -> Verdict:
    """The sampled GPU is the one that ran the steps; NVML and torch may number it differently."""
    return _worked(profiled.usage)


def _worked(usage: DeviceUsage | None) -> Verdict:
    """Judge whether the sampled GPU was busy, or a slice (MIG), which reports no utilization, has memory of this process."""
    if usage is None:
        return False, "the GPU was not sampled"
    if busy := usage.gauges.get("gpu_utilization"):
        return busy.highest >= _LEAST_BUSY, f"{usage.device} was busy for up to {percent(busy.highest)}"
    if memory := usage.gauges.get("process_memory_bytes"):
        return memory.highest > 0, f"the process holds up to {binary_bytes(memory.highest)} on {usage.device}"
    return "the driver reports neither utilization nor the memory of processes"


@_law("the readings are those of the MIG slice")
def sampled_slice(profiled: Profiled) -> Verdict:
    """The memory that NVML reports is that of the slice, not of the whole GPU."""
    device_bytes, usage = profiled.run.facts.environment.device_memory_bytes, profiled.usage
    total = usage.gauges.get("memory_total_bytes") if usage else None
    if total is None or not device_bytes:
        return "the size of the memory was not sampled"
    found = f"{binary_bytes(total.end)} of {binary_bytes(device_bytes)}"
    return abs(total.end / device_bytes - 1) <= _MEMORY_TOLERANCE, found


# --- rooflines monitor


def monitor_returns_exit_code(analysis: MonitorAnalysis, code: int | None) -> Verdict:
    """``rooflines monitor`` returns the exit code 0 of its program as ``code``; None in records that do not have it."""
    if (ending := analysis.ending) is None:
        return False, "the program's end was not seen"
    compared = f"exit code {code}, the program's {ending.exit_code}"
    return "the exit code was not recorded" if code is None else (code == ending.exit_code == 0, compared)


def monitored_gpu_worked(analysis: MonitorAnalysis, code: int | None) -> Verdict:
    """The busiest of the sampled GPUs did the work."""
    gpus = [sampled for sampled in (analysis.usage.devices if analysis.usage else ()) if sampled.device != "host"]
    return _worked(max(gpus, key=lambda gpu: figure(gpu, "gpu_utilization", "highest") or 0.0, default=None))


def program_memory_sampled(analysis: MonitorAnalysis, code: int | None) -> Verdict:
    host = analysis.usage.of("host") if analysis.usage else None
    memory = (figure(host, "process_rss_bytes", "highest") if host else None) or 0.0
    return memory > 0, f"up to {binary_bytes(memory)}"
