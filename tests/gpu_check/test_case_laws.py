"""The laws of single cases, on records made by hand: each holds, fails and is left out for the reason that it gives."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from rooflines.device_specs.records import Ceiling, Source
from rooflines.gpu_check import case_laws
from rooflines.gpu_check.case_laws import Profiled
from rooflines.gpu_check.records import Device
from rooflines.profiler.monitor.monitored import Ending
from rooflines.profiler.records import Environment, Run, RunFile, StepTimes, Workload
from rooflines.roofline.analysis import Basis, Coverage, DeviceUsage, Gauge, OperatorRow, Timeline, Unmodelled, Usage
from rooflines.roofline.usage.device_usage import MonitorAnalysis
from tests import traces
from tests.samples import analysis

ENVIRONMENT = Environment(rooflines="0", device="cuda:0", device_name="NVIDIA H200", device_memory_bytes=10 << 30)
GPU = Device(environment=ENVIRONMENT)
CPU = Device(environment=msgspec.structs.replace(ENVIRONMENT, device="cpu"))
WORKLOAD = Workload(name="x", mode="training")
TF32 = Ceiling(kind="compute", name="GEMM tf32", value=4e14, unit="FLOP/s", precision="tf32", engine="matrix",
               source=Source(kind="measured", detail="x"))  # fmt: skip


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
    check = case_laws.matrix_precision("x", profiled(operators=rows), "bf16")
    assert (check.law, check.outcome) == ("99 % of the matrix FLOPs are bf16", outcome)
    assert check.found.startswith(f"bf16 {9900 / (99 + other):.1f} %")


def test_a_precision_is_left_out_without_products():
    assert case_laws.matrix_precision("x", profiled(operators=()), "bf16").outcome == "left out"


def test_tf32_products_have_the_roof_of_the_tensor_cores():
    def law(precision, engine, *ceilings, device=GPU):
        rows = (product(9, precision, engine), product(9, "tf32", "matrix"))
        return case_laws.judged_by_tensor_cores("x", profiled(device, operators=rows, ceilings=ceilings))

    assert law("tf32", "matrix", TF32).outcome == "ok"
    assert law("fp32", "vector", TF32).outcome == "failed"
    assert law("fp32", "vector", TF32).found == "fp32 vector, tf32 matrix"
    assert law("fp32", "vector").found == "this device has no TF32"  # a V100
    assert law("tf32", "matrix", TF32, device=CPU).outcome == "left out"


@pytest.mark.parametrize(("finite", "outcome"), [(True, "ok"), (False, "failed"), (None, "left out")])
def test_a_loss_is_a_number(finite, outcome):
    assert case_laws.loss_is_finite("x", profiled(facts={"loss_finite": finite})).outcome == outcome


def test_a_gradient_scaler_is_seen_by_its_operator():
    name = "aten::_amp_foreach_non_finite_check_and_unscale_"
    seen = Coverage(modelled_time_fraction=1.0, unmodelled=(Unmodelled(name=name, calls=1, time_s=1.0, reason="x"),))
    assert case_laws.scaler_at_work("x", profiled(operators=(product(0, None, name=name),))).outcome == "ok"
    assert case_laws.scaler_at_work("x", profiled(coverage=seen)).outcome == "ok"
    assert case_laws.scaler_at_work("x", profiled()).outcome == "failed"
    assert case_laws.scaler_at_work("x", profiled(CPU)).outcome == "left out"


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
    assert case_laws.idle_time_named("x", found).outcome == outcome


def test_compiled_code_ran_and_its_time_is_known():
    assert case_laws.compiled_by_inductor("x", profiled(compiled=True, facts={"compile_s": 20.0})).outcome == "ok"
    assert case_laws.compiled_by_inductor("x", profiled(compiled=False, facts={"compile_s": 20.0})).outcome == "failed"
    assert case_laws.compiled_by_inductor("x", profiled(compiled=True)).outcome == "failed"


@pytest.mark.parametrize(("launches", "outcome"), [(2, "ok"), (1, "failed"), (3, "failed"), (0, "failed")])
def test_a_captured_step_is_one_launch(launches, outcome):
    calls = [traces.launch(10 * i, 1, i) | {"name": "cudaGraphLaunch"} for i in range(launches)]
    kernels = [traces.kernel("gemm", 10 * i + 2, 3, i) for i in range(launches)]
    # a kernel launched by itself, and an operator of that name, are no launches of a graph
    trace = traces.trace(*calls, *kernels, traces.launch(90, 1, 99), traces.op("cudaGraphLaunch", 95, 1))
    check = case_laws.one_graph_launch("x", profiled(trace=trace, basis=Basis(steps=2)))
    assert (check.outcome, check.found) == (outcome, f"{launches} in 2 steps")
    assert case_laws.one_graph_launch("x", profiled()).outcome == "left out"


def test_kernels_of_both_streams_are_seen():
    two = traces.trace(traces.kernel("gemm", 0, 3, 1), traces.kernel("gemm", 1, 3, 2, stream=13))
    one = traces.trace(traces.kernel("gemm", 0, 3, 1), traces.kernel("gemm", 4, 3, 2))
    assert case_laws.in_several_streams("x", profiled(trace=two)).found == "streams 7, 13"
    assert case_laws.in_several_streams("x", profiled(trace=one)).outcome == "failed"
    assert case_laws.in_several_streams("x", profiled(CPU, trace=one)).outcome == "left out"


@pytest.mark.parametrize(("clock", "one", "several"), [("cuda events", "ok", "failed"), ("wall clock", "failed", "ok")])
def test_the_clock_of_the_steps_tells_whether_events_saw_all_work(clock, one, several):
    found = profiled(facts={"steps": StepTimes(timed_ns=(500, 500), clock=clock)})
    assert case_laws.events_see_all_work("x", found).outcome == one
    assert case_laws.other_stream_noticed("x", found).outcome == several
    for nothing in (profiled(), profiled(CPU, facts={"steps": StepTimes(timed_ns=(500,))})):
        assert case_laws.events_see_all_work("x", nothing).outcome == "left out"
        assert case_laws.other_stream_noticed("x", nothing).outcome == "left out"


def test_a_script_runs_on_the_gpu_that_it_chose():
    assert case_laws.ran_on("x", profiled(), "cuda:0").outcome == "ok"
    assert case_laws.ran_on("x", profiled(), "cuda:1").outcome == "failed"
    idle = Timeline(span_s=1.0, busy_s=0.0, idle_s=1.0, compute_s=0.0)
    assert case_laws.ran_on("x", profiled(timeline=idle), "cuda:0").outcome == "failed"


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
    check = case_laws.sampled_gpu_works("x", profiled(usage=usage(device)))
    assert check.outcome == outcome
    assert words in check.found


@pytest.mark.parametrize(("total", "outcome"), [(10 << 30, "ok"), (80 << 30, "failed"), (None, "left out")])
def test_readings_are_those_of_the_slice(total, outcome):
    device = used() if total is None else used(memory_total_bytes=total)
    assert case_laws.sampled_slice("x", profiled(usage=usage(device))).outcome == outcome


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
    assert tuple(check.outcome for check in case_laws.program_monitored("x", code, found, GPU)) == outcomes
    assert case_laws.program_monitored("x", code, found, CPU)[1].outcome == "left out"
