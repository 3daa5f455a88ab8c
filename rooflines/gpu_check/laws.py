"""The laws of the GPU check: pure functions from recorded data to the result of a law.

A law that finds no data is left out, with the reason; it is never "ok".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from rooflines.device_specs.records import Ceiling
from rooflines.gpu_check.records import Check
from rooflines.gpu_check.targets import Target
from rooflines.roofline.analysis import Analysis, DeviceUsage, Energy, Unresolved
from rooflines.units import percent, si

# A ceiling further above its data sheet than any clock above the advertised one explains is an error of ours.
MOST_ABOVE_SHEET = 1.2
# How far a bound may be exceeded: rounds of a ceiling differ by a few percent, and so do the clocks of two runs.
MOST_EFFICIENCY = 1.05
BUSY_TOLERANCE = 0.02
# Relative error of sums: times within a step, FLOPs against a closed form.
SUM_TOLERANCE = 1e-3
WALL_TOLERANCE = 0.03
LEAST_CLOCK = 0.95
ENERGY_TOLERANCE = 0.03
# What the driver reports where the board's power limit holds the clock down.
_POWER_REASONS = {"software power cap", "hardware power brake slowdown"}
# What it reports of a clock that nothing holds down.
_NO_REASONS = {"gpu idle", "idle", "none"}
# Our CUDA network against eager torch with the data on the GPU; the samples a second that were once published for a Numba CUDA version
# of it whose convolutions were never trained; of two fp32 runs over 100 steps, whose sums are in different orders; launches of a step.
LEAST_OF_TORCH = 0.5
PUBLISHED_SAMPLES_PER_S = 71_758
MOST_LOSS_DIFFERENCE = 1e-2
LAUNCHES = 13
_PHASES = {"inference": {"forward"}, "training": {"forward", "backward", "optimizer"}}
_CEILINGS = "ceilings"
# A figure of our kernels that the measurement left out because of an error, or all of them.
_KERNEL_FAILED = re.compile(r"CUDA kernels: |(?:FMA|HBM|L2|shared memory)[^:]*: left out")
_ENERGY_LAW = f"integrated power = energy counter within {percent(ENERGY_TOLERANCE)}"


def judged(law: str, subject: str, holds: bool, found: str) -> Check:
    """The result of a law that had its data."""
    return Check(law=law, subject=subject, outcome="ok" if holds else "failed", found=found)


def left_out(law: str, subject: str, reason: str) -> Check:
    """The result of a law that had no data."""
    return Check(law=law, subject=subject, outcome="left out", found=reason)


# --- ceilings ----------------------------------------------------------------------------------------------------------------------


def our_kernels_ran(ceilings: Iterable[Ceiling], omitted: Sequence[str]) -> Check:
    """The FMA rate was measured by a kernel of ours, and no kernel of ours failed. Without NVVM the rate is derived from the clock.

    ``omitted`` are the measurement's messages about what it left out.
    """
    law = "the CUDA kernels of rooflines ran"
    failed = [line for line in omitted if _KERNEL_FAILED.match(line)]
    rate = next((one for one in ceilings if one.name == "FMA fp32" and not one.variant), None)
    if failed or rate is None or rate.source.kind != "measured":
        return judged(law, _CEILINGS, False, "; ".join(failed) or "FMA fp32 was not measured")
    return judged(law, _CEILINGS, True, rate.source.detail)


def above_no_sheet(fractions: Iterable[tuple[str, float]]) -> Check:
    """No ceiling is further above its data sheet than a clock explains; ``fractions`` are names with the fraction reached."""
    law = f"no ceiling above {MOST_ABOVE_SHEET} x its data-sheet rate"
    found = list(fractions)
    if not found:
        return left_out(law, _CEILINGS, "no measured ceiling has a data-sheet rate")
    name, most = max(found, key=lambda one: one[1])
    return judged(law, _CEILINGS, most <= MOST_ABOVE_SHEET, f"{most:.2f} by {name}")


def target_reached(target: Target) -> Check:
    """A ceiling reaches the least that passes; the goal is only reported."""
    law = f"{target.ceiling} >= {si(target.least, target.unit)}"
    goal = f"goal {si(target.goal, target.unit)}"
    if target.measured is None:
        return judged(law, _CEILINGS, False, f"not measured; {goal}")
    return judged(law, _CEILINGS, target.measured >= target.least, f"{si(target.measured, target.unit)}; {goal}")


def clock_at_maximum(ceilings: Iterable[Ceiling], max_clock_hz: float | None) -> Check:
    """The SM clock was at least 95 % of its maximum while each figure was taken: the device was not still cold, or held down.

    Exception: the power limit. Matrix products on large GPUs take more power at the maximum clock than the board may draw, so that the
    driver lowers the clock. Where the driver reports that as the only reason, the figure is what the device can do at its power limit,
    and the clock is only reported. Temperature and clocks set by a user are no exception. Links are left out: the multiprocessors have
    no part in a copy between memories.
    """
    figures = [one for one in ceilings if one.kind != "link" and one.source.kind == "measured" and one.conditions is not None]
    clocks = [
        (one.name + (f" ({one.variant})" if one.variant else ""), one.conditions.clock_hz, one.conditions.throttled)
        for one in figures
        if one.conditions is not None and one.conditions.clock_hz is not None
    ]
    return _clocks(_CEILINGS, clocks, max_clock_hz)


def _clocks(subject: str, clocks: Sequence[tuple[str, float, Iterable[str]]], max_clock_hz: float | None) -> Check:
    """``clocks`` are what was measured, the median clock and the driver's reasons for a lower one."""
    law = f"SM clock >= {percent(LEAST_CLOCK)} of its maximum, or held down by the power limit"
    if max_clock_hz is None:
        return left_out(law, subject, "neither the driver nor a data sheet tells the maximum clock")
    if not clocks:
        return left_out(law, subject, "no clock was sampled")
    low = [(name, clock, set(reasons) - _NO_REASONS) for name, clock, reasons in clocks if clock < LEAST_CLOCK * max_clock_hz]
    bad = [one for one in low if not one[2] or not one[2] <= _POWER_REASONS]
    if shown := bad or low:
        name, clock, reasons = min(shown, key=lambda one: one[1])
        why = ", ".join(sorted(reasons)) or "no reason reported"
        others = f", and {len(shown) - 1} more" if len(shown) > 1 else ""
        return judged(law, subject, not bad, f"{si(clock, 'Hz')} of {si(max_clock_hz, 'Hz')} in {name} ({why}){others}")
    return judged(law, subject, True, f"at least {si(min(clock for _, clock, _ in clocks), 'Hz')} of {si(max_clock_hz, 'Hz')}")


# --- profiles ----------------------------------------------------------------------------------------------------------------------


def command_succeeded(label: str, code: int, stderr: str) -> Check:
    """``rooflines profile`` ended well; else the last line that it printed."""
    last = next((line.strip() for line in reversed(stderr.splitlines()) if line.strip()), "")
    return judged("rooflines profile succeeds", label, code == 0, f"exit code {code}" + (f": {last}" if code and last else ""))


def times_add_up(label: str, analysis: Analysis) -> Check:
    """Operators, device time without a model and idle time add up to the span, less what overlaps."""
    law = f"operators + unmodelled + idle = span within {percent(SUM_TOLERANCE, 1)}"
    timeline, coverage = analysis.timeline, analysis.coverage
    if timeline is None or coverage is None or not timeline.span_s:
        return left_out(law, label, "the analysis has no timeline")
    parts = sum(row.time_s for row in analysis.operators) + sum(one.time_s for one in coverage.unmodelled)
    error = abs(parts + timeline.idle_s - timeline.overlap_s - timeline.span_s) / timeline.span_s
    return judged(law, label, error < SUM_TOLERANCE, f"off by {error:.2e}")


def busy_within_step(label: str, analysis: Analysis) -> Check:
    """The traced device time of a step fits into the time that a step takes without the profiler."""
    law = f"device busy <= timed step + {percent(BUSY_TOLERANCE)}"
    if not analysis.environment.device.startswith("cuda"):
        return left_out(law, label, "operators of a processor are slower under the profiler")
    if analysis.steps is None or analysis.timeline is None or analysis.basis.per != "step":
        return left_out(law, label, "no steps were timed without the profiler")
    busy_s, step_s = analysis.timeline.busy_s, analysis.steps.median_s
    found = f"{si(busy_s, 's')} of {si(step_s, 's')}, {percent(busy_s / step_s)}"
    return judged(law, label, busy_s <= step_s * (1 + BUSY_TOLERANCE), found)


def flops_equal(label: str, analysis: Analysis, closed_form: int | None) -> Check:
    """Matrix FLOPs of a step equal the ``closed_form``."""
    law = f"matrix FLOPs equal the closed form within {percent(SUM_TOLERANCE, 1)}"
    if closed_form is None:
        return left_out(law, label, "there is no closed form for this workload")
    if analysis.totals is None:
        return left_out(law, label, "the analysis has no totals")
    ratio = analysis.totals.matrix_flops / closed_form
    return judged(law, label, abs(ratio - 1) < SUM_TOLERANCE, f"ratio {ratio:.6f}")


def covered(label: str, analysis: Analysis, least: float | None) -> Check:
    """The operators with a work model take at least the share ``least`` of the device time."""
    fraction = None if analysis.coverage is None else analysis.coverage.modelled_time_fraction
    if least is None:
        return left_out("coverage", label, "no least coverage is set for this workload")
    law = f"coverage >= {percent(least)}"
    if fraction is None:
        return left_out(law, label, "the analysis has no coverage")
    return judged(law, label, fraction >= least, percent(fraction, 1))


def nothing_beats_its_bound(label: str, analysis: Analysis) -> Check:
    """No operator is faster than its bound by more than the ceilings are uncertain."""
    law = f"no efficiency above {MOST_EFFICIENCY}"
    rows = [(row.efficiency, row) for row in analysis.operators if row.efficiency is not None]
    if not rows:
        return left_out(law, label, "no operator has an efficiency")
    most, row = max(rows, key=lambda one: one[0])
    where = " ".join(filter(None, (row.name, row.module, row.shapes)))
    return judged(law, label, most <= MOST_EFFICIENCY, f"{most:.3f} by {where}")


def no_kernel_below_launch(label: str, analysis: Analysis, shortest_kernel_s: float | None) -> Check:
    """No traced kernel is shorter than the latency that bounds every kernel, by more than a ceiling is uncertain."""
    law = f"shortest kernel >= kernel launch / {MOST_EFFICIENCY}"
    launch = next((one.value for one in analysis.ceilings if one.name == "kernel launch" and not one.variant), None)
    if launch is None:
        return left_out(law, label, "the latency of a kernel launch was not measured")
    if shortest_kernel_s is None:
        return left_out(law, label, "the trace has no kernels")
    return judged(
        law, label, shortest_kernel_s * MOST_EFFICIENCY >= launch, f"{si(shortest_kernel_s, 's')}, kernel launch {si(launch, 's')}"
    )


def modules_named(label: str, analysis: Analysis, module: str) -> Check:
    """A row carries the name of ``module``."""
    law = "rows have module names"
    if not module:
        return left_out(law, label, "no module is set for this workload")
    named = {row.module for row in analysis.operators if row.module}
    return judged(law, label, module in named, f"{len(named)} modules, {'with' if module in named else 'without'} {module}")


def phases_told_apart(label: str, analysis: Analysis, mode: str) -> Check:
    """Every phase of a step in ``mode`` has time."""
    phases = {row.phase for row in analysis.operators if row.time_s > 0}
    found = ", ".join(sorted(phase or "none" for phase in phases)) or "no operator has time"
    return judged("every phase has time", label, _PHASES[mode] <= phases, found)


def run_at_maximum_clock(label: str, analysis: Analysis, max_clock_hz: float | None) -> Check:
    """The law of ``clock_at_maximum`` for the timed steps of a run."""
    usage = _usage(analysis)
    gauge = usage.gauges.get("sm_clock_hz") if usage else None
    clocks = [] if gauge is None or usage is None else [("the timed steps", gauge.median, [one.reason for one in usage.throttled])]
    return _clocks(label, clocks, max_clock_hz)


def run_energies_agree(label: str, analysis: Analysis) -> Check:
    """The law of ``energies_agree`` for the timed steps of a run, where these are long enough for both to resolve."""
    usage = _usage(analysis)
    if usage is None:
        return left_out(_ENERGY_LAW, label, "the GPU was not sampled")
    if usage.energy is not None and usage.energy.method == "power":
        return left_out(_ENERGY_LAW, label, "the energy counter was not read")
    if usage.energy is not None and usage.energy_by_power is not None:
        errors = (usage.energy.error_j + usage.energy_by_power.error_j) / usage.energy.energy_j
        if errors > ENERGY_TOLERANCE:
            return left_out(_ENERGY_LAW, label, f"in {si(usage.energy.energy_j, 'J')} the two are known to {percent(errors)} together")
    return energies_agree(label, usage.energy or usage.no_energy, usage.energy_by_power)


def _usage(analysis: Analysis) -> DeviceUsage | None:
    """The usage of the GPU that ran the steps."""
    return None if analysis.usage is None else analysis.usage.of(analysis.environment.device)


# --- energy ------------------------------------------------------------------------------------------------------------------------


def energies_agree(label: str, counter: Energy | Unresolved | None, power: Energy | Unresolved | None) -> Check:
    """The integral of power equals the difference of the energy counter."""
    for one, method in ((counter, "counter"), (power, "power")):
        if not isinstance(one, Energy):
            return left_out(_ENERGY_LAW, label, f"no energy by {method}: {one.reason if one else 'it was not sampled'}")
    assert isinstance(counter, Energy)
    assert isinstance(power, Energy)
    texts = f"{counter.energy_j:.0f} J ±{counter.error_j:.0f} by counter, {power.energy_j:.0f} J ±{power.error_j:.0f} by power"
    apart = power.energy_j / counter.energy_j - 1
    return judged(_ENERGY_LAW, label, abs(apart) <= ENERGY_TOLERANCE, f"{texts}, {apart * 100:+.1f} % apart")


# --- networks ----------------------------------------------------------------------------------------------------------------------


def networks_reach(training: dict[str, Any]) -> tuple[Check, ...]:
    """Our CUDA network is about as fast as eager torch, faster than a published one, computes the same and takes few launches."""
    label = "numba-cuda beside torch-cuda"
    rate, ratio = training["samples_per_s"]["numba-cuda"], training["ratio"]
    spread = f"{ratio:.2f} ({training['ratio_least']:.2f} to {training['ratio_most']:.2f})"
    difference = training["curves"]["largest_difference"]
    kernels = training["kernels"]["numba-cuda"]
    law = f"{LAUNCHES} kernels per step"
    return (
        judged(f"speed >= {LEAST_OF_TORCH} x torch, data resident", label, ratio >= LEAST_OF_TORCH, spread),
        judged(f"more than {PUBLISHED_SAMPLES_PER_S:,} samples/s", label, rate > PUBLISHED_SAMPLES_PER_S, f"{rate:,.0f} samples/s"),
        judged(f"losses within {MOST_LOSS_DIFFERENCE} of torch's", label, difference <= MOST_LOSS_DIFFERENCE, f"{difference:.2g}"),
        judged(law, label, kernels["launches"] == LAUNCHES, f"{kernels['launches']:g}")
        if "launches" in kernels
        else left_out(law, label, kernels["left_out"]),
    )


# --- hardware counters -------------------------------------------------------------------------------------------------------------


def counted_alike(label: str, kind: str, ratio: float | None, within: float) -> Check:
    """The hardware's count of ``kind`` (bytes, FLOPs) is ``ratio`` times ours."""
    law = f"{kind} by hardware counters within {percent(within)} of ours"
    if ratio is None:
        return left_out(law, label, "the hardware has no such counter")
    return judged(law, label, abs(ratio - 1) <= within, f"{ratio:.4f}")
