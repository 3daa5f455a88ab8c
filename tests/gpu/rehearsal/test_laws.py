"""The laws of a profile, on an H100 trace and on records made by hand: each holds, fails and is left out for the reason it gives."""

from pathlib import Path

import msgspec
import pytest

from rooflines.device_specs.catalog import look_up
from rooflines.device_specs.records import Ceiling, Source
from rooflines.pipeline.reading import analyze_source
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
    Unmodeled,
    Unresolved,
    Usage,
)  # fmt: skip
from rooflines.roofline.judge.usage.device_usage import MonitorAnalysis
from tests import traces
from tests.gpu import laws
from tests.gpu.laws import Profiled, energy_verdict
from tests.gpu.parts import Device
from tests.gpu.rehearsal import outcome
from tests.samples import analysis

TRACES = Path(__file__).parents[2] / "data" / "traces"
MAX_CLOCK = 1.98e9
ENVIRONMENT = Environment(rooflines="0", device="cuda:0", device_name="NVIDIA H200", device_memory_bytes=10 << 30)
GPU = Device(environment=ENVIRONMENT)
WORKLOAD = Workload(name="x", mode="training")
TF32 = Ceiling(kind="compute", name="GEMM tf32", value=4e14, unit="FLOP/s", precision="tf32", engine="matrix",
               source=Source(kind="measured", detail="x"))  # fmt: skip


# --- every run: a recorded step -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def h100():
    """A BERT step on an H100, with the kernel launch that such a device has measured."""
    _, found, _ = analyze_source(TRACES / "bert-small_h100_inference.json.gz", ceilings=look_up("NVIDIA H100 80GB HBM3", kind="cuda"))
    launch = Ceiling(kind="latency", name="kernel launch", value=1.1e-6, unit="s", source=Source(kind="measured", detail="kernel"))
    return msgspec.structs.replace(found, ceilings=(*found.ceilings, launch), environment=ENVIRONMENT)


replaced = msgspec.structs.replace


def judge(law, found, trace=None, device=GPU):
    run = Run(directory=Path(), facts=RunFile(workload=WORKLOAD, environment=ENVIRONMENT))
    return outcome_of(law.verdict(Profiled(device, run, found, trace)))


def outcome_of(verdict):
    """The outcome of a verdict, and the figures compared or the reason."""
    return outcome(verdict), verdict if isinstance(verdict, str) else verdict[1]


def steps(median_s):
    return {"basis": Basis(per="step", steps=1), "steps": Steps(count=9, median_s=median_s, p10_s=median_s, p90_s=median_s)}


def idle_longer(found):
    return {"timeline": replaced(found.timeline, idle_s=found.timeline.idle_s + 0.002 * found.timeline.span_s)}


def first_row(found, **fields):
    return {"operators": (replaced(found.operators[0], **fields), *found.operators[1:])}


def named(found):
    return {"operators": (replaced(found.operators[0], module="layer1.0.conv2", phase="forward", time_s=1e-6),)}


def unjudged(found):
    return {"operators": tuple(replaced(row, efficiency=None) for row in found.operators)}


def gauge(value, lowest=0.0):
    return Gauge(start=lowest, end=value, mean=value, median=value, lowest=lowest, highest=value)


def sampled(**fields):
    usage = Usage(window="timed pass", began_ns=0, window_s=5.0, devices=(DeviceUsage(device="cuda:0", readings=50, **fields),))
    return {"usage": usage}


def at_clock(median_hz, **fields):
    return sampled(gauges={"sm_clock_hz": gauge(median_hz, median_hz)}, **fields)


def energies(by_counter, by_power, error):
    return sampled(energy=energy(by_counter, "counter", error), energy_by_power=energy(by_power, "power", error))


def energy(joules, method, error=1.0):
    return Energy(energy_j=joules, error_j=error, method=method, updates=200)


CAPPED = (Throttling(reason="software power cap", time_s=4.0, fraction=0.8),)
# A law (of the step, or a function of it), what is changed of the H100's step, and what the law finds.
STEP = [
    (laws.times_add_up, lambda _: {}, "ok", ""),
    (laws.times_add_up, idle_longer, "failed", "off by 2.00e-03"),
    (laws.times_add_up, lambda _: {"timeline": None}, "left out", ""),
    (laws.busy_within_step, lambda h100: steps(h100.timeline.busy_s / 1.019), "ok", ""),
    (laws.busy_within_step, lambda h100: steps(h100.timeline.busy_s / 1.021), "failed", ""),
    (laws.busy_within_step, lambda _: {"steps": None}, "left out", ""),
    (lambda h100: laws.flops_equal(h100.totals.matrix_flops), lambda _: {}, "ok", ""),
    (lambda h100: laws.flops_equal(round(h100.totals.matrix_flops * 1.0011)), lambda _: {}, "failed", ""),
    (laws.flops_equal(1), lambda _: {"totals": None}, "left out", ""),
    (lambda h100: laws.covered(h100.coverage.modeled_time_fraction), lambda _: {}, "ok", ""),
    (lambda h100: laws.covered(h100.coverage.modeled_time_fraction + 1e-6), lambda _: {}, "failed", ""),
    (laws.covered(0.5), lambda _: {"coverage": None}, "left out", ""),
    (laws.nothing_beats_its_bound, lambda _: {}, "ok", ""),
    (laws.nothing_beats_its_bound, lambda h100: first_row(h100, efficiency=1.06, module="encoder.0"), "failed", " encoder.0"),
    (laws.nothing_beats_its_bound, unjudged, "left out", ""),
    (laws.modules_named("layer1.0.conv2"), named, "ok", ""),
    (laws.modules_named("layer1.0.conv3"), named, "failed", ""),
    (laws.modules_named("layer1.0.conv2"), lambda _: {}, "failed", ""),  # the trace of someone else's script names no modules
    (laws.phases_separated("inference"), named, "ok", ""),
    (laws.phases_separated("training"), named, "failed", "forward"),
    (laws.run_at_maximum_clock, lambda _: at_clock(1.98e9), "ok", ""),
    (laws.run_at_maximum_clock, lambda _: at_clock(1.0e9), "failed", ""),
    (laws.run_at_maximum_clock, lambda _: at_clock(1.0e9, throttled=CAPPED), "ok", ""),
    (laws.run_at_maximum_clock, lambda _: sampled(), "left out", ""),
    (laws.run_at_maximum_clock, lambda _: {}, "left out", ""),
    (laws.run_energies_agree, lambda _: energies(1000, 900, 1.0), "failed", ""),
    # Timed steps may be too few to resolve three percent.
    (laws.run_energies_agree, lambda _: energies(100, 90, 2.0), "left out", "in 100 J the two are known to 4 % together"),
    (laws.run_energies_agree, lambda _: sampled(energy=energy(1000, "power")), "left out", ""),
    (laws.run_energies_agree, lambda _: {}, "left out", ""),
]


@pytest.mark.parametrize(("law", "changes", "expected", "words"), STEP)
def test_laws_of_every_run(h100, law, changes, expected, words):
    law = law if isinstance(law, laws.Law) else law(h100)
    got, found = judge(law, replaced(h100, **changes(h100)), device=replaced(GPU, max_clock_hz=MAX_CLOCK))
    assert got == expected
    assert words in found


@pytest.mark.parametrize(("shortest_ns", "expected"), [(1100, "ok"), (1049, "ok"), (1037, "failed"), (None, "left out")])
def test_no_kernel_is_shorter_than_a_launch(h100, shortest_ns, expected):
    kernels = [] if shortest_ns is None else [traces.kernel("a", 0, 3, 1), traces.kernel("b", 9, shortest_ns / 1000, 2)]
    trace = traces.trace(traces.op("aten::add", 0, 1), *kernels)
    assert judge(laws.no_kernel_below_launch, h100, trace)[0] == expected
    for nothing in ((h100, None), (replaced(h100, ceilings=()), trace)):
        assert judge(laws.no_kernel_below_launch, *nothing)[0] == "left out"


@pytest.mark.parametrize(("by_counter", "by_power", "verdict"), [
    (energy(1000, "counter"), energy(1029, "power"), (True, "1000 J ±1 by counter, 1029 J ±1 by power, +2.9 % apart")),
    (energy(1000, "counter"), energy(965, "power"), (False, "1000 J ±1 by counter, 965 J ±1 by power, -3.5 % apart")),
    (Unresolved(reason="it did not change"), energy(150, "power"), "no energy by counter: it did not change"),
    (energy(100, "counter"), None, "no energy by power: it was not sampled"),
])  # fmt: skip
def test_energy_by_counter_and_by_power(by_counter, by_power, verdict):
    assert energy_verdict(by_counter, by_power) == verdict


# --- single workloads: records made by hand -----------------------------------------------------------------------------------------


def profiled(trace=None, facts=None, **fields):
    found = replaced(analysis(), environment=ENVIRONMENT, **fields)
    run = RunFile(workload=WORKLOAD, environment=ENVIRONMENT, **(facts or {}))
    return Profiled(GPU, Run(directory=Path(), facts=run), found, trace)


def products(*rows, **fields):
    """A profile of matrix products: FLOPs, precision and engine of each."""
    found = [
        OperatorRow(name="aten::mm", module="", phase="forward", shapes="", category="matmul", calls=1, time_s=1.0, flops=flops,
                    matrix_flops=flops, bytes=1, precision=precision, engine=engine) for flops, precision, engine in rows
    ]  # fmt: skip
    return profiled(operators=tuple(found), **fields)


def with_scaler(counted=True):
    name = "aten::_amp_foreach_non_finite_check_and_unscale_"
    (row,) = products((0, None, None)).analysis.operators
    without_formula = (Unmodeled(name=name, calls=1, time_s=1.0, reason="x"),)
    if counted:
        return profiled(operators=(replaced(row, name=name),))
    return profiled(coverage=Coverage(modeled_time_fraction=1.0, unmodeled=without_formula))


def idle(idle_s, limit=None, **causes):
    timeline = Timeline(span_s=10.0, busy_s=10.0 - idle_s, idle_s=idle_s, compute_s=10.0 - idle_s)
    return profiled(timeline=timeline, idle_breakdown=causes, limited_by=limit)


def graphs(launches):
    calls = [traces.launch(10 * i, 1, i) | {"name": "cudaGraphLaunch"} for i in range(launches)]
    kernels = [traces.kernel("gemm", 10 * i + 2, 3, i) for i in range(launches)]
    # a kernel launched by itself, and an operator of that name, are no launches of a graph
    trace = traces.trace(*calls, *kernels, traces.launch(90, 1, 99), traces.op("cudaGraphLaunch", 95, 1))
    return profiled(trace=trace, basis=Basis(steps=2))


def streams(second):
    kernels = traces.kernel("gemm", 0, 3, 1), traces.kernel("gemm", 4, 3, 2, stream=second)
    return profiled(trace=traces.trace(*kernels))


def timed(clock):
    return profiled(facts={"steps": StepTimes(timed_ns=(500, 500), clock=clock)})


def used(device="cuda:0", **highest):
    return DeviceUsage(device=device, readings=9, gauges={name: gauge(value) for name, value in highest.items()})


def usage(*devices):
    return Usage(window="timed pass", began_ns=0, window_s=1.0, devices=devices)


def sampled_gpu(*arguments, **highest):
    return profiled(usage=usage(used(*arguments, **highest)))


TENSOR = (9, "tf32", "matrix")
COMPILED = {"compile_s": 20.0}
WORKLOADS = [
    (laws.matrix_precision("bf16"), products((99, "bf16", "matrix"), (0, "fp32", "matrix")), "ok", "bf16 100.0 %"),
    (laws.matrix_precision("bf16"), products((99, "bf16", "matrix"), (1, "fp32", "matrix")), "ok", "bf16 99.0 %"),
    (laws.matrix_precision("bf16"), products((99, "bf16", "matrix"), (2, "fp32", "matrix")), "failed", "bf16 98.0 %"),
    (laws.matrix_precision("bf16"), products(), "left out", ""),
    (laws.judged_by_tensor_cores, products(TENSOR, TENSOR, ceilings=(TF32,)), "ok", ""),
    (laws.judged_by_tensor_cores, products((9, "fp32", "vector"), TENSOR, ceilings=(TF32,)), "failed", "fp32 vector, tf32 matrix"),
    (laws.judged_by_tensor_cores, products((9, "fp32", "vector"), TENSOR, ceilings=()), "left out", "has no TF32"),  # a V100
    (laws.loss_is_finite, profiled(facts={"loss_finite": True}), "ok", ""),
    (laws.loss_is_finite, profiled(facts={"loss_finite": False}), "failed", ""),
    (laws.loss_is_finite, profiled(facts={"loss_finite": None}), "left out", ""),
    (laws.scaler_at_work, with_scaler(), "ok", ""),
    (laws.scaler_at_work, with_scaler(counted=False), "ok", ""),
    (laws.scaler_at_work, profiled(), "failed", ""),
    (laws.idle_time_named, idle(5.0, "host", host_bound_s=4.0, data_loading_s=1.0), "ok", ""),
    (laws.idle_time_named, idle(5.0, "host", host_bound_s=4.0), "failed", ""),  # a fifth of it has no cause
    (laws.idle_time_named, idle(5.0, host_bound_s=5.0), "failed", ""),
    (laws.idle_time_named, idle(4.0, host_bound_s=4.0), "ok", ""),  # kernels take most of the step
    (laws.idle_time_named, idle(1.0, host_bound_s=1.0), "left out", ""),
    (laws.compiled_by_inductor, profiled(compiled=True, facts=COMPILED), "ok", ""),
    (laws.compiled_by_inductor, profiled(compiled=False, facts=COMPILED), "failed", ""),
    (laws.compiled_by_inductor, profiled(compiled=True), "failed", ""),
    (laws.one_graph_launch, graphs(2), "ok", "2 in 2 steps"),
    (laws.one_graph_launch, graphs(1), "failed", "1 in 2 steps"),
    (laws.one_graph_launch, graphs(3), "failed", "3 in 2 steps"),
    (laws.one_graph_launch, graphs(0), "failed", "0 in 2 steps"),
    (laws.one_graph_launch, profiled(), "left out", ""),
    (laws.in_several_streams, streams(13), "ok", "streams 7, 13"),
    (laws.in_several_streams, streams(7), "failed", ""),
    (laws.events_see_all_work, timed("cuda events"), "ok", ""),
    (laws.events_see_all_work, timed("wall clock"), "failed", ""),
    (laws.events_see_all_work, profiled(), "left out", ""),
    (laws.other_stream_noticed, timed("cuda events"), "failed", ""),
    (laws.other_stream_noticed, timed("wall clock"), "ok", ""),
    (laws.other_stream_noticed, profiled(), "left out", ""),
    (laws.ran_on("cuda:0"), profiled(), "ok", ""),
    (laws.ran_on("cuda:1"), profiled(), "failed", ""),
    (laws.ran_on("cuda:0"), profiled(timeline=Timeline(span_s=1.0, busy_s=0.0, idle_s=1.0, compute_s=0.0)), "failed", ""),
    (laws.sampled_gpu_works, sampled_gpu(gpu_utilization=0.97), "ok", "97 %"),
    (laws.sampled_gpu_works, sampled_gpu(gpu_utilization=0.0, process_memory_bytes=1 << 30), "failed", "0 %"),
    (laws.sampled_gpu_works, sampled_gpu(process_memory_bytes=1 << 30), "ok", "1.00 GiB"),  # a slice has no utilization
    (laws.sampled_gpu_works, sampled_gpu(process_memory_bytes=0), "failed", "0"),
    (laws.sampled_gpu_works, sampled_gpu(), "left out", "neither"),
    (laws.sampled_gpu_works, sampled_gpu("cuda:1", gpu_utilization=0.97), "failed", "not sampled"),
    (laws.sampled_slice, sampled_gpu(memory_total_bytes=10 << 30), "ok", ""),
    (laws.sampled_slice, sampled_gpu(memory_total_bytes=80 << 30), "failed", ""),
    (laws.sampled_slice, sampled_gpu(), "left out", ""),
]


@pytest.mark.parametrize(("law", "found", "expected", "words"), WORKLOADS, ids=[f"{row[0].text}-{row[2]}" for row in WORKLOADS])
def test_laws_of_single_workloads(law, found, expected, words):
    got, compared = outcome_of(law.verdict(found))
    assert got == expected
    assert words in compared


WORKS, HOST = used(gpu_utilization=0.9), used("host", process_rss_bytes=1)


@pytest.mark.parametrize(("code", "ending", "devices", "outcomes"), [
    (0, 0, (WORKS, HOST), ("ok", "ok", "ok")),
    (1, 1, (WORKS, HOST), ("failed", "ok", "ok")),
    (1, 0, (WORKS, HOST), ("failed", "ok", "ok")),
    (0, None, (WORKS, HOST), ("failed", "ok", "ok")),
    (None, 0, (WORKS, HOST), ("left out", "ok", "ok")),
    (0, 0, (HOST,), ("ok", "failed", "ok")),
    # the busiest of two
    (0, 0, (used(gpu_utilization=0.0), used("cuda:1", gpu_utilization=0.9), used("host")), ("ok", "ok", "failed")),
])  # fmt: skip
def test_a_monitored_program(code, ending, devices, outcomes):
    ended = None if ending is None else Ending(exit_code=ending, wall_s=1.0, user_cpu_s=1.0, system_cpu_s=0.0)
    found = MonitorAnalysis(created="", program="x", period_s=0.1, environment=ENVIRONMENT, ending=ended, usage=usage(*devices))
    judged = laws.monitor_returns_exit_code, laws.monitored_gpu_worked, laws.program_memory_sampled
    assert tuple(outcome_of(law(found, code))[0] for law in judged) == outcomes
