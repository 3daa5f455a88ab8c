"""The laws of the GPU check on recorded data: an H100 and an MI300X trace, samples, ceilings as a GPU would give them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from rooflines.device_specs.catalog import look_up
from rooflines.device_specs.records import Ceiling, Conditions, Source
from rooflines.gpu_check import laws
from rooflines.gpu_check.targets import Target
from rooflines.pipeline.reading import analyze_trace
from rooflines.roofline.analysis import Basis, DeviceUsage, Energy, Gauge, Steps, Throttling, Unresolved, Usage

TRACES = Path(__file__).parents[1] / "data" / "traces"
MAX_CLOCK = 1.98e9


@pytest.fixture(scope="module")
def h100():
    """A BERT step on an H100, with the kernel launch that such a device has measured."""
    _, analysis = analyze_trace(TRACES / "bert-small_h100_inference.json.gz", ceilings=look_up("NVIDIA H100 80GB HBM3", kind="cuda"))
    return msgspec.structs.replace(analysis, ceilings=(*analysis.ceilings, measured("kernel launch", 1.1e-6, kind="latency", unit="s")))


def measured(name, value, *, kind="compute", unit="FLOP/s", clock=None, throttled=(), source="measured", **fields):
    conditions = None if clock is None else Conditions(clock_hz=clock, throttled=throttled)
    return Ceiling(
        kind=kind, name=name, value=value, unit=unit, source=Source(kind=source, detail="kernel"), conditions=conditions, **fields
    )


def timed(analysis, median_s):
    return msgspec.structs.replace(
        analysis, basis=Basis(per="step", steps=1), steps=Steps(count=9, median_s=median_s, p10_s=median_s, p90_s=median_s)
    )


def outcome(check):
    return check.outcome


# --- profiles ----------------------------------------------------------------------------------------------------------------------


def test_times_of_a_recorded_step_add_up(h100):
    assert outcome(laws.times_add_up("bert", h100)) == "ok"
    longer = msgspec.structs.replace(h100.timeline, idle_s=h100.timeline.idle_s + 0.002 * h100.timeline.span_s)
    check = laws.times_add_up("bert", msgspec.structs.replace(h100, timeline=longer))
    assert (check.outcome, check.found) == ("failed", "off by 2.00e-03")
    assert outcome(laws.times_add_up("bert", msgspec.structs.replace(h100, timeline=None))) == "left out"


def test_device_time_of_a_step_fits_into_its_timed_time(h100):
    busy_s = h100.timeline.busy_s
    assert outcome(laws.busy_within_step("bert", timed(h100, busy_s / 1.019))) == "ok"
    assert outcome(laws.busy_within_step("bert", timed(h100, busy_s / 1.021))) == "failed"
    assert outcome(laws.busy_within_step("bert", msgspec.structs.replace(h100, steps=None))) == "left out"
    cpu = msgspec.structs.replace(h100, environment=msgspec.structs.replace(h100.environment, device="cpu"))
    assert outcome(laws.busy_within_step("bert", timed(cpu, busy_s / 2))) == "left out"


def test_flops_equal_a_closed_form(h100):
    flops = h100.totals.matrix_flops
    assert outcome(laws.flops_equal("bert", h100, flops)) == "ok"
    assert outcome(laws.flops_equal("bert", h100, round(flops * 1.0011))) == "failed"
    assert outcome(laws.flops_equal("bert", h100, None)) == "left out"


def test_least_coverage(h100):
    fraction = h100.coverage.modelled_time_fraction
    assert outcome(laws.covered("bert", h100, fraction)) == "ok"
    assert outcome(laws.covered("bert", h100, fraction + 1e-6)) == "failed"
    assert outcome(laws.covered("bert", h100, None)) == "left out"


def test_nothing_is_faster_than_its_bound(h100):
    """On this trace the largest efficiency is below 1; a row made as fast as 1.06 times its bound fails, and names itself."""
    assert outcome(laws.nothing_beats_its_bound("bert", h100)) == "ok"
    row = msgspec.structs.replace(h100.operators[0], efficiency=1.06, module="encoder.layer.0")
    check = laws.nothing_beats_its_bound("bert", msgspec.structs.replace(h100, operators=(row, *h100.operators[1:])))
    assert check.outcome == "failed"
    assert check.found.startswith(f"1.060 by {row.name} encoder.layer.0")
    unjudged = tuple(msgspec.structs.replace(row, efficiency=None) for row in h100.operators)
    assert outcome(laws.nothing_beats_its_bound("bert", msgspec.structs.replace(h100, operators=unjudged))) == "left out"


def test_no_kernel_is_shorter_than_a_launch(h100):
    assert outcome(laws.no_kernel_below_launch("bert", h100, 1.1e-6)) == "ok"
    assert outcome(laws.no_kernel_below_launch("bert", h100, 1.1e-6 / 1.05 * 1.001)) == "ok"
    assert outcome(laws.no_kernel_below_launch("bert", h100, 1.1e-6 / 1.06)) == "failed"
    assert outcome(laws.no_kernel_below_launch("bert", h100, None)) == "left out"
    assert outcome(laws.no_kernel_below_launch("bert", msgspec.structs.replace(h100, ceilings=()), 1e-6)) == "left out"


def test_modules_and_phases(h100):
    named = msgspec.structs.replace(h100.operators[0], module="layer1.0.conv2", phase="forward", time_s=1e-6)
    analysis = msgspec.structs.replace(h100, operators=(named,))
    assert outcome(laws.modules_named("run", analysis, "layer1.0.conv2")) == "ok"
    assert outcome(laws.modules_named("run", analysis, "layer1.0.conv3")) == "failed"
    assert outcome(laws.modules_named("run", analysis, "")) == "left out"
    assert outcome(laws.phases_told_apart("run", analysis, "inference")) == "ok"
    check = laws.phases_told_apart("run", analysis, "training")
    assert (check.outcome, check.found) == ("failed", "forward")
    # the trace of someone else's script has neither
    assert outcome(laws.modules_named("bert", h100, "layer1.0.conv2")) == "failed"


def test_a_command_that_fails_says_its_last_words():
    assert outcome(laws.command_succeeded("run", 0, "a warning\n")) == "ok"
    check = laws.command_succeeded("run", 2, "rooflines: no such model\n\n")
    assert (check.outcome, check.found) == ("failed", "exit code 2: rooflines: no such model")


# --- clocks ------------------------------------------------------------------------------------------------------------------------


def test_figures_are_taken_at_the_maximum_clock():
    warm = measured("FMA fp32", 60e12, clock=1.97e9)
    assert outcome(laws.clock_at_maximum([warm], MAX_CLOCK)) == "ok"
    cold = measured("HBM copy", 4e12, kind="memory", unit="B/s", clock=1.2e9)
    check = laws.clock_at_maximum([warm, cold], MAX_CLOCK)
    assert check.outcome == "failed"
    assert "1.20 GHz of 1.98 GHz in HBM copy (no reason reported)" in check.found


@pytest.mark.parametrize(
    ("throttled", "expected"),
    [
        (("software power cap",), "ok"),
        (("hardware power brake slowdown", "software power cap"), "ok"),
        (("software thermal slowdown",), "failed"),
        (("software power cap", "hardware thermal slowdown"), "failed"),
        (("applications clocks setting",), "failed"),
        ((), "failed"),
    ],
)
def test_only_the_power_limit_excuses_a_low_clock(throttled, expected):
    """A large product at 700 W runs at 1.4 of 1.98 GHz: that is what the board can do. Heat and clocks set by a user are not."""
    product = measured("GEMM bf16", 790e12, clock=1.4e9, throttled=throttled)
    check = laws.clock_at_maximum([product], MAX_CLOCK)
    assert check.outcome == expected
    assert "1.40 GHz of 1.98 GHz in GEMM bf16" in check.found
    assert all(reason in check.found for reason in throttled)


def test_clocks_that_nobody_read_are_left_out():
    assert outcome(laws.clock_at_maximum([measured("GEMM bf16", 790e12)], MAX_CLOCK)) == "left out"
    assert outcome(laws.clock_at_maximum([measured("GEMM bf16", 790e12, clock=1.2e9)], None)) == "left out"
    # copies between host and device need no clock of the multiprocessors
    assert outcome(laws.clock_at_maximum([measured("H2D", 50e9, kind="link", unit="B/s", clock=0.3e9)], MAX_CLOCK)) == "left out"


def with_usage(analysis, **fields):
    usage = Usage(window="timed pass", began_ns=0, window_s=5.0, devices=(DeviceUsage(device="cuda:0", readings=50, **fields),))
    environment = msgspec.structs.replace(analysis.environment, device="cuda:0")
    return msgspec.structs.replace(analysis, usage=usage, environment=environment)


def clock(median_hz):
    return {"sm_clock_hz": Gauge(start=median_hz, end=median_hz, mean=median_hz, median=median_hz, lowest=median_hz, highest=median_hz)}


def test_the_timed_steps_run_at_the_maximum_clock(h100):
    assert outcome(laws.run_at_maximum_clock("run", with_usage(h100, gauges=clock(1.98e9)), MAX_CLOCK)) == "ok"
    assert outcome(laws.run_at_maximum_clock("run", with_usage(h100, gauges=clock(1.0e9)), MAX_CLOCK)) == "failed"
    capped = (Throttling(reason="software power cap", time_s=4.0, fraction=0.8),)
    assert outcome(laws.run_at_maximum_clock("run", with_usage(h100, gauges=clock(1.0e9), throttled=capped), MAX_CLOCK)) == "ok"
    assert outcome(laws.run_at_maximum_clock("run", with_usage(h100), MAX_CLOCK)) == "left out"
    assert outcome(laws.run_at_maximum_clock("run", h100, MAX_CLOCK)) == "left out"


# --- energy ------------------------------------------------------------------------------------------------------------------------


def energy(joules, method, error=1.0):
    return Energy(energy_j=joules, error_j=error, method=method, updates=200)


def test_energy_by_counter_and_by_power_agree():
    assert outcome(laws.energies_agree("held", energy(1000, "counter"), energy(1029, "power"))) == "ok"
    check = laws.energies_agree("held", energy(1000, "counter"), energy(965, "power"))
    assert (check.outcome, check.found) == ("failed", "1000 J ±1 by counter, 965 J ±1 by power, -3.5 % apart")


def test_energy_that_was_not_measured_is_left_out():
    check = laws.energies_agree("held", Unresolved(reason="the counter did not change"), energy(150, "power"))
    assert (check.outcome, check.found) == ("left out", "no energy by counter: the counter did not change")
    assert outcome(laws.energies_agree("held", energy(100, "counter"), None)) == "left out"


def test_energy_of_a_run(h100):
    """Timed steps may be too few to resolve three percent."""
    both = with_usage(h100, energy=energy(1000, "counter"), energy_by_power=energy(900, "power"))
    assert outcome(laws.run_energies_agree("run", both)) == "failed"
    short = with_usage(h100, energy=energy(100, "counter", 2.0), energy_by_power=energy(90, "power", 2.0))
    check = laws.run_energies_agree("run", short)
    assert (check.outcome, check.found) == ("left out", "in 100 J the two are known to 4 % together")
    assert outcome(laws.run_energies_agree("run", with_usage(h100, energy=energy(1000, "power")))) == "left out"
    assert outcome(laws.run_energies_agree("run", h100)) == "left out"


# --- ceilings ----------------------------------------------------------------------------------------------------------------------


def test_our_kernels_ran_or_the_check_fails():
    ran = measured("FMA fp32", 60e12)
    assert outcome(laws.our_kernels_ran([ran], [])) == "ok"
    derived = measured("FMA fp32", 67e12, source="derived")
    check = laws.our_kernels_ran([derived], ["CUDA kernels: skipped (NVVM not found); memory is measured with torch"])
    assert (check.outcome, check.found) == ("failed", "CUDA kernels: skipped (NVVM not found); memory is measured with torch")
    assert outcome(laws.our_kernels_ran([], [])) == "failed"
    check = laws.our_kernels_ran([ran], ["HBM copy: left out (CUDA_ERROR_INVALID_PTX)", "GEMM fp8: not available (no such operator)"])
    assert (check.outcome, check.found) == ("failed", "HBM copy: left out (CUDA_ERROR_INVALID_PTX)")
    assert outcome(laws.our_kernels_ran([ran], ["GEMM fp8: left out (CUBLAS_STATUS_NOT_SUPPORTED)"])) == "ok"
    assert outcome(laws.our_kernels_ran([ran], ["L2 read: skipped, 3.00 TB/s is not above HBM"])) == "ok"


def test_ceilings_above_the_sheet():
    assert outcome(laws.above_no_sheet([("GEMM bf16", 0.8), ("FMA fp32", 1.19)])) == "ok"
    check = laws.above_no_sheet([("GEMM bf16", 0.8), ("HBM copy", 2.0)])
    assert (check.outcome, check.found) == ("failed", "2.00 by HBM copy")
    assert outcome(laws.above_no_sheet([])) == "left out"


def test_the_least_decides_and_the_goal_is_reported():
    target = Target(ceiling="HBM copy", unit="B/s", least=4.1e12, goal=4.3e12, basis="set", measured=4.2e12)
    check = laws.target_reached(target)
    assert (check.law, check.outcome, check.found) == ("HBM copy >= 4.10 TB/s", "ok", "4.20 TB/s; goal 4.30 TB/s")
    assert outcome(laws.target_reached(msgspec.structs.replace(target, measured=4.0e12))) == "failed"
    check = laws.target_reached(msgspec.structs.replace(target, measured=None))
    assert (check.outcome, check.found) == ("failed", "not measured; goal 4.30 TB/s")


# --- networks and counters ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ratio", "rate", "difference", "kernels", "expected"),
    [
        (0.5, 71_759, 0.01, {"launches": 13}, {}),
        (0.49, 900_000, 0.0, {"launches": 13}, {"speed >= 0.5 x torch, data resident": "failed"}),
        (1.5, 71_758, 0.0, {"launches": 13}, {"more than 71,758 samples/s": "failed"}),
        (1.5, 900_000, 0.02, {"launches": 14}, {"losses within 0.01 of torch's": "failed", "13 kernels per step": "failed"}),
        (1.5, 900_000, 0.0, {"left_out": "the profiler saw no kernels"}, {"13 kernels per step": "left out"}),
    ],
)
def test_targets_of_the_networks(ratio, rate, difference, kernels, expected):
    training = {
        "ratio": ratio, "ratio_least": ratio, "ratio_most": ratio, "samples_per_s": {"numba-cuda": rate, "torch-cuda": 1.0},
        "curves": {"largest_difference": difference}, "kernels": {"numba-cuda": kernels},
    }  # fmt: skip
    checks = laws.networks_reach(training)
    assert len(checks) == 4
    assert {check.law: check.outcome for check in checks if check.outcome != "ok"} == expected


@pytest.mark.parametrize(("ratio", "expected"), [(1.09, "ok"), (0.89, "failed"), (1.11, "failed"), (None, "left out")])
def test_hardware_counters_agree_with_ours(ratio, expected):
    assert outcome(laws.counted_alike("add fp32", "bytes", ratio, 0.1)) == expected
