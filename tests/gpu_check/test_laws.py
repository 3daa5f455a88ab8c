"""The laws of a profile, on an H100 trace and on records made by hand: each holds, fails and is left out for the reason it gives."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from rooflines.device_specs.catalog import look_up
from rooflines.device_specs.records import Ceiling, Source
from rooflines.gpu_check import laws
from rooflines.gpu_check.laws import Profiled, energy_verdict
from rooflines.gpu_check.records import Device
from rooflines.pipeline.reading import analyze_trace
from rooflines.profiler.monitor.monitored import Ending
from rooflines.profiler.records import Environment, Run, RunFile, StepTimes, Workload
from rooflines.roofline.analysis import (
    Basis,
    Coverage,
    DeviceUsage,
    Energy,
    Gauge,
    OperatorRow,
    Steps,
    Throttling,
    Timeline,
    Unmodelled,
    Unresolved,
    Usage,
)  # fmt: skip
from rooflines.roofline.usage.device_usage import MonitorAnalysis
from tests import traces
from tests.samples import analysis

TRACES = Path(__file__).parents[1] / "data" / "traces"
MAX_CLOCK = 1.98e9
ENVIRONMENT = Environment(rooflines="0", device="cuda:0", device_name="NVIDIA H200", device_memory_bytes=10 << 30)
GPU = Device(environment=ENVIRONMENT)
CPU = Device(environment=msgspec.structs.replace(ENVIRONMENT, device="cpu"))
WORKLOAD = Workload(name="x", mode="training")
TF32 = Ceiling(kind="compute", name="GEMM tf32", value=4e14, unit="FLOP/s", precision="tf32", engine="matrix",
               source=Source(kind="measured", detail="x"))  # fmt: skip


# --- every run: a recorded step -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def h100():
    """A BERT step on an H100, with the kernel launch that such a device has measured."""
    _, found = analyze_trace(TRACES / "bert-small_h100_inference.json.gz", ceilings=look_up("NVIDIA H100 80GB HBM3", kind="cuda"))
    launch = Ceiling(kind="latency", name="kernel launch", value=1.1e-6, unit="s", source=Source(kind="measured", detail="kernel"))
    return msgspec.structs.replace(found, ceilings=(*found.ceilings, launch), environment=ENVIRONMENT)


def judge(law, found, trace=None, device=GPU):
    return law.check(
        "bert", Profiled(device, Run(directory=Path(), facts=RunFile(workload=WORKLOAD, environment=ENVIRONMENT)), found, trace)
    )


def outcome(law, found, trace=None, device=GPU, **changed):
    return judge(law, msgspec.structs.replace(found, **changed), trace, device).outcome


def steps(median_s):
    return {"basis": Basis(per="step", steps=1), "steps": Steps(count=9, median_s=median_s, p10_s=median_s, p90_s=median_s)}


def test_times_of_a_recorded_step_add_up(h100):
    assert outcome(laws.times_add_up, h100) == "ok"
    longer = msgspec.structs.replace(h100.timeline, idle_s=h100.timeline.idle_s + 0.002 * h100.timeline.span_s)
    check = judge(laws.times_add_up, msgspec.structs.replace(h100, timeline=longer))
    assert (check.outcome, check.found) == ("failed", "off by 2.00e-03")
    assert outcome(laws.times_add_up, h100, timeline=None) == "left out"


def test_device_time_of_a_step_fits_into_its_timed_time(h100):
    busy_s = h100.timeline.busy_s
    assert outcome(laws.busy_within_step, h100, **steps(busy_s / 1.019)) == "ok"
    assert outcome(laws.busy_within_step, h100, **steps(busy_s / 1.021)) == "failed"
    assert outcome(laws.busy_within_step, h100, steps=None) == "left out"
    assert outcome(laws.busy_within_step, h100, device=CPU, **steps(busy_s / 2)) == "left out"


def test_flops_equal_a_closed_form(h100):
    flops = h100.totals.matrix_flops
    assert outcome(laws.flops_equal(flops), h100) == "ok"
    assert outcome(laws.flops_equal(round(flops * 1.0011)), h100) == "failed"
    assert outcome(laws.flops_equal(flops), h100, totals=None) == "left out"


def test_least_coverage(h100):
    fraction = h100.coverage.modelled_time_fraction
    assert outcome(laws.covered(fraction), h100) == "ok"
    assert outcome(laws.covered(fraction + 1e-6), h100) == "failed"
    assert outcome(laws.covered(fraction), h100, coverage=None) == "left out"


def test_nothing_is_faster_than_its_bound(h100):
    """On this trace the largest efficiency is below 1; a row made as fast as 1.06 times its bound fails, and names itself."""
    assert outcome(laws.nothing_beats_its_bound, h100) == "ok"
    row = msgspec.structs.replace(h100.operators[0], efficiency=1.06, module="encoder.layer.0")
    check = judge(laws.nothing_beats_its_bound, msgspec.structs.replace(h100, operators=(row, *h100.operators[1:])))
    assert check.outcome == "failed"
    assert check.found.startswith(f"1.060 by {row.name} encoder.layer.0")
    unjudged = tuple(msgspec.structs.replace(row, efficiency=None) for row in h100.operators)
    assert outcome(laws.nothing_beats_its_bound, h100, operators=unjudged) == "left out"


@pytest.mark.parametrize(("shortest_ns", "expected"), [(1100, "ok"), (1049, "ok"), (1037, "failed"), (None, "left out")])
def test_no_kernel_is_shorter_than_a_launch(h100, shortest_ns, expected):
    events = (
        [traces.op("aten::add", 0, 1)]
        if shortest_ns is None
        else [traces.kernel("a", 0, 3, 1), traces.kernel("b", 9, shortest_ns / 1000, 2)]
    )
    assert outcome(laws.no_kernel_below_launch, h100, traces.trace(*events)) == expected
    assert outcome(laws.no_kernel_below_launch, h100) == "left out"
    assert outcome(laws.no_kernel_below_launch, h100, traces.trace(*events), ceilings=()) == "left out"


def test_modules_and_phases(h100):
    named = (msgspec.structs.replace(h100.operators[0], module="layer1.0.conv2", phase="forward", time_s=1e-6),)
    assert outcome(laws.modules_named("layer1.0.conv2"), h100, operators=named) == "ok"
    assert outcome(laws.modules_named("layer1.0.conv3"), h100, operators=named) == "failed"
    assert outcome(laws.phases_separated("inference"), h100, operators=named) == "ok"
    check = judge(laws.phases_separated("training"), msgspec.structs.replace(h100, operators=named))
    assert (check.outcome, check.found) == ("failed", "forward")
    # the trace of someone else's script has neither
    assert outcome(laws.modules_named("layer1.0.conv2"), h100) == "failed"


def sampled(**fields):
    usage = Usage(window="timed pass", began_ns=0, window_s=5.0, devices=(DeviceUsage(device="cuda:0", readings=50, **fields),))
    return {"usage": usage}


def clock(median_hz):
    return {"sm_clock_hz": Gauge(start=median_hz, end=median_hz, mean=median_hz, median=median_hz, lowest=median_hz, highest=median_hz)}


def test_the_timed_steps_run_at_the_maximum_clock(h100):
    def at_clock(**changed):
        return outcome(laws.run_at_maximum_clock, h100, device=msgspec.structs.replace(GPU, max_clock_hz=MAX_CLOCK), **changed)

    assert at_clock(**sampled(gauges=clock(1.98e9))) == "ok"
    assert at_clock(**sampled(gauges=clock(1.0e9))) == "failed"
    capped = (Throttling(reason="software power cap", time_s=4.0, fraction=0.8),)
    assert at_clock(**sampled(gauges=clock(1.0e9), throttled=capped)) == "ok"
    assert at_clock(**sampled()) == "left out"
    assert at_clock() == "left out"


def energy(joules, method, error=1.0):
    return Energy(energy_j=joules, error_j=error, method=method, updates=200)


def test_energy_by_counter_and_by_power_agree():
    assert energy_verdict(energy(1000, "counter"), energy(1029, "power"))[0]
    verdict = energy_verdict(energy(1000, "counter"), energy(965, "power"))
    assert verdict == (False, "1000 J ±1 by counter, 965 J ±1 by power, -3.5 % apart")


def test_energy_that_was_not_measured_is_left_out():
    verdict = energy_verdict(Unresolved(reason="the counter did not change"), energy(150, "power"))
    assert verdict == "no energy by counter: the counter did not change"
    assert energy_verdict(energy(100, "counter"), None) == "no energy by power: it was not sampled"


def test_energy_of_a_run(h100):
    """Timed steps may be too few to resolve three percent."""
    both = sampled(energy=energy(1000, "counter"), energy_by_power=energy(900, "power"))
    assert outcome(laws.run_energies_agree, h100, **both) == "failed"
    short = sampled(energy=energy(100, "counter", 2.0), energy_by_power=energy(90, "power", 2.0))
    check = judge(laws.run_energies_agree, msgspec.structs.replace(h100, **short))
    assert (check.outcome, check.found) == ("left out", "in 100 J the two are known to 4 % together")
    assert outcome(laws.run_energies_agree, h100, **sampled(energy=energy(1000, "power"))) == "left out"
    assert outcome(laws.run_energies_agree, h100) == "left out"


# --- single workloads: records made by hand -----------------------------------------------------------------------------------------


def profiled(device=GPU, trace=None, facts=None, **fields):
    found = msgspec.structs.replace(analysis(), environment=device.environment, **fields)
    run = RunFile(workload=WORKLOAD, environment=device.environment, **(facts or {}))
    return Profiled(device, Run(directory=Path(), facts=run), found, trace)


def product(flops, precision, engine="matrix", name="aten::mm"):
    return OperatorRow(name=name, module="", phase="forward", shapes="", category="matmul", calls=1, time_s=1.0, flops=flops,
                       matrix_flops=flops, bytes=1, precision=precision, engine=engine)  # fmt: skip


def gauge(highest):
    return Gauge(start=0.0, end=highest, mean=highest, median=highest, lowest=0.0, highest=highest)


def used(device="cuda:0", **highest):
    return DeviceUsage(device=device, readings=9, gauges={name: gauge(value) for name, value in highest.items()})


def usage(*devices):
    return Usage(window="timed pass", began_ns=0, window_s=1.0, devices=devices)


@pytest.mark.parametrize(("other", "outcome"), [(0, "ok"), (1, "ok"), (2, "failed")])
def test_products_ran_in_the_precision_that_was_asked_for(other, outcome):
    rows = (product(99, "bf16"), product(other, "fp32"))
    check = laws.matrix_precision("bf16").check("x", profiled(operators=rows))
    assert (check.law, check.outcome) == ("99 % of the matrix FLOPs are bf16", outcome)
    assert check.found.startswith(f"bf16 {9900 / (99 + other):.1f} %")


def test_a_precision_is_left_out_without_products():
    assert laws.matrix_precision("bf16").check("x", profiled(operators=())).outcome == "left out"


def test_tf32_products_have_the_roof_of_the_tensor_cores():
    def law(precision, engine, *ceilings, device=GPU):
        rows = (product(9, precision, engine), product(9, "tf32", "matrix"))
        return laws.judged_by_tensor_cores.check("x", profiled(device, operators=rows, ceilings=ceilings))

    assert law("tf32", "matrix", TF32).outcome == "ok"
    assert law("fp32", "vector", TF32).outcome == "failed"
    assert law("fp32", "vector", TF32).found == "fp32 vector, tf32 matrix"
    assert law("fp32", "vector").found == "this device has no TF32"  # a V100
    assert law("tf32", "matrix", TF32, device=CPU).outcome == "left out"


@pytest.mark.parametrize(("finite", "outcome"), [(True, "ok"), (False, "failed"), (None, "left out")])
def test_a_loss_is_a_number(finite, outcome):
    assert laws.loss_is_finite.check("x", profiled(facts={"loss_finite": finite})).outcome == outcome


def test_a_gradient_scaler_is_seen_by_its_operator():
    name = "aten::_amp_foreach_non_finite_check_and_unscale_"
    seen = Coverage(modelled_time_fraction=1.0, unmodelled=(Unmodelled(name=name, calls=1, time_s=1.0, reason="x"),))
    assert laws.scaler_at_work.check("x", profiled(operators=(product(0, None, name=name),))).outcome == "ok"
    assert laws.scaler_at_work.check("x", profiled(coverage=seen)).outcome == "ok"
    assert laws.scaler_at_work.check("x", profiled()).outcome == "failed"
    assert laws.scaler_at_work.check("x", profiled(CPU)).outcome == "left out"


@pytest.mark.parametrize(
    ("idle_s", "causes", "limit", "outcome"),
    [
        (5.0, {"host_bound_s": 4.0, "data_loading_s": 1.0}, "host", "ok"),
        (5.0, {"host_bound_s": 4.0}, "host", "failed"),  # a fifth of it has no cause
        (5.0, {"host_bound_s": 5.0}, None, "failed"),
        (4.0, {"host_bound_s": 4.0}, None, "ok"),  # kernels take most of the step
        (1.0, {"host_bound_s": 1.0}, None, "left out"),
    ],
)
def test_idle_time_has_a_cause(idle_s, causes, limit, outcome):
    timeline = Timeline(span_s=10.0, busy_s=10.0 - idle_s, idle_s=idle_s, compute_s=10.0 - idle_s)
    found = profiled(timeline=timeline, idle_breakdown=causes, limited_by=limit)
    assert laws.idle_time_named.check("x", found).outcome == outcome


def test_compiled_code_ran_and_its_time_is_known():
    assert laws.compiled_by_inductor.check("x", profiled(compiled=True, facts={"compile_s": 20.0})).outcome == "ok"
    assert laws.compiled_by_inductor.check("x", profiled(compiled=False, facts={"compile_s": 20.0})).outcome == "failed"
    assert laws.compiled_by_inductor.check("x", profiled(compiled=True)).outcome == "failed"


@pytest.mark.parametrize(("launches", "outcome"), [(2, "ok"), (1, "failed"), (3, "failed"), (0, "failed")])
def test_a_captured_step_is_one_launch(launches, outcome):
    calls = [traces.launch(10 * i, 1, i) | {"name": "cudaGraphLaunch"} for i in range(launches)]
    kernels = [traces.kernel("gemm", 10 * i + 2, 3, i) for i in range(launches)]
    # a kernel launched by itself, and an operator of that name, are no launches of a graph
    trace = traces.trace(*calls, *kernels, traces.launch(90, 1, 99), traces.op("cudaGraphLaunch", 95, 1))
    check = laws.one_graph_launch.check("x", profiled(trace=trace, basis=Basis(steps=2)))
    assert (check.outcome, check.found) == (outcome, f"{launches} in 2 steps")
    assert laws.one_graph_launch.check("x", profiled()).outcome == "left out"


def test_kernels_of_both_streams_are_seen():
    two = traces.trace(traces.kernel("gemm", 0, 3, 1), traces.kernel("gemm", 1, 3, 2, stream=13))
    one = traces.trace(traces.kernel("gemm", 0, 3, 1), traces.kernel("gemm", 4, 3, 2))
    assert laws.in_several_streams.check("x", profiled(trace=two)).found == "streams 7, 13"
    assert laws.in_several_streams.check("x", profiled(trace=one)).outcome == "failed"
    assert laws.in_several_streams.check("x", profiled(CPU, trace=one)).outcome == "left out"


@pytest.mark.parametrize(("clock", "one", "several"), [("cuda events", "ok", "failed"), ("wall clock", "failed", "ok")])
def test_the_clock_of_the_steps_tells_whether_events_saw_all_work(clock, one, several):
    found = profiled(facts={"steps": StepTimes(timed_ns=(500, 500), clock=clock)})
    assert laws.events_see_all_work.check("x", found).outcome == one
    assert laws.other_stream_noticed.check("x", found).outcome == several
    for nothing in (profiled(), profiled(CPU, facts={"steps": StepTimes(timed_ns=(500,))})):
        assert laws.events_see_all_work.check("x", nothing).outcome == "left out"
        assert laws.other_stream_noticed.check("x", nothing).outcome == "left out"


def test_a_script_runs_on_the_gpu_that_it_chose():
    assert laws.ran_on("cuda:0").check("x", profiled()).outcome == "ok"
    assert laws.ran_on("cuda:1").check("x", profiled()).outcome == "failed"
    idle = Timeline(span_s=1.0, busy_s=0.0, idle_s=1.0, compute_s=0.0)
    assert laws.ran_on("cuda:0").check("x", profiled(timeline=idle)).outcome == "failed"


@pytest.mark.parametrize(
    ("device", "outcome", "words"),
    [
        (used(gpu_utilization=0.97), "ok", "97 %"),
        (used(gpu_utilization=0.0, process_memory_bytes=1 << 30), "failed", "0 %"),
        (used(process_memory_bytes=1 << 30), "ok", "1.00 GiB"),  # a slice has no utilization
        (used(process_memory_bytes=0), "failed", "0"),
        (used(), "left out", "neither"),
        (used("cuda:1", gpu_utilization=0.97), "failed", "not sampled"),
    ],
)
def test_the_gpu_that_was_sampled_did_the_work(device, outcome, words):
    check = laws.sampled_gpu_works.check("x", profiled(usage=usage(device)))
    assert check.outcome == outcome
    assert words in check.found


@pytest.mark.parametrize(("total", "outcome"), [(10 << 30, "ok"), (80 << 30, "failed"), (None, "left out")])
def test_readings_are_those_of_the_slice(total, outcome):
    device = used() if total is None else used(memory_total_bytes=total)
    assert laws.sampled_slice.check("x", profiled(usage=usage(device))).outcome == outcome


@pytest.mark.parametrize(
    ("code", "ending", "devices", "outcomes"),
    [
        (0, 0, (used(gpu_utilization=0.9), used("host", process_rss_bytes=1)), ("ok", "ok", "ok")),
        (1, 1, (used(gpu_utilization=0.9), used("host", process_rss_bytes=1)), ("failed", "ok", "ok")),
        (1, 0, (used(gpu_utilization=0.9), used("host", process_rss_bytes=1)), ("failed", "ok", "ok")),
        (0, None, (used(gpu_utilization=0.9), used("host", process_rss_bytes=1)), ("failed", "ok", "ok")),
        (0, 0, (used("host", process_rss_bytes=1),), ("ok", "failed", "ok")),
        # the busiest of two
        (0, 0, (used(gpu_utilization=0.0), used("cuda:1", gpu_utilization=0.9), used("host")), ("ok", "ok", "failed")),
    ],
)
def test_a_monitored_program(code, ending, devices, outcomes):
    ended = None if ending is None else Ending(exit_code=ending, wall_s=1.0, user_cpu_s=1.0, system_cpu_s=0.0)
    found = MonitorAnalysis(created="", program="x", period_s=0.1, environment=ENVIRONMENT, ending=ended, usage=usage(*devices))
    assert tuple(check.outcome for check in laws.program_monitored("x", code, found, GPU)) == outcomes
    assert laws.program_monitored("x", code, found, CPU)[1].outcome == "left out"
