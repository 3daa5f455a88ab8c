"""Waits for the device, work of the host in the step, launching, threads."""

import pytest

from rooflines.profiler.records import Environment, Workload
from rooflines.roofline.advise import host, small_kernels
from rooflines.roofline.advise.usage import ranked
from rooflines.roofline.analysis import Basis, Coverage, Finding, HostWork, Steps, Synchronization
from rooflines.roofline.served_steps import ServedSteps, Serving
from tests.roofline.advise.cases import case, kernel, row


def wait(operator="aten::item", idle_s=0.01, where="train.py(41): step", calls=4):
    return Synchronization(call="cudaStreamSynchronize", calls=calls, wait_s=0.05, idle_s=idle_s, operator=operator, where=where)


@pytest.mark.parametrize(
    ("operator", "advice"),
    [("aten::item", "read it only every hundred steps"), ("aten::nonzero", "torch.where"), ("aten::to", "non_blocking=True"),
     ("", "synchronize()")],
)  # fmt: skip
def test_a_wait_names_its_operator_and_its_line(operator, advice):
    idle = {"synchronization": 0.002, "host_bound": 0.02}
    found = host.synchronization(case(idle=idle, synchronizations=(wait(operator),)))
    assert found.saves_s == 0.01
    assert found.of == {"synchronization": 0.002, "host_bound": 0.008}
    assert f"{operator or 'cudaStreamSynchronize'} in train.py(41): step, 4 times" in found.evidence
    assert advice in found.suggestion


def test_waits_that_leave_no_idle_time_are_left_alone():
    assert host.synchronization(case(idle={"host_bound": 0.02}, synchronizations=(wait(idle_s=0.0),))) is None
    assert host.synchronization(case(idle={"host_bound": 0.02})) is None


def test_work_of_the_host_in_the_step_is_named():
    work = (
        HostWork(kind="python", name="data.py(7): preprocess", calls=1, idle_s=0.03),
        HostWork(kind="operator", name="aten::max", shapes="1x5184x1", calls=5, idle_s=0.01, where="boxes.py(3): nms"),
    )
    found = host.preprocessing(case(idle={"host_bound": 0.05}, host_work=work))
    assert found.saves_s == pytest.approx(0.04)
    assert "data.py(7): preprocess 30.0 ms, aten::max (1x5184x1) in boxes.py(3): nms 10.0 ms" in found.evidence
    assert host.preprocessing(case(idle={"host_bound": 0.02}, host_work=work)).saves_s == 0.02, "no more than the idle time"
    assert host.preprocessing(case(idle={"host_bound": 0.05})) is None


def test_time_without_an_operator_is_to_be_looked_into():
    stretches = (HostWork(kind="unrecorded", name="", calls=5, idle_s=0.03),)
    found = host.unrecorded(case(idle={"host_bound": 0.05}, host_work=stretches))
    assert found.saves_s == 0.03
    assert "with_stack=True" in found.suggestion
    recorded = host.unrecorded(case(idle={"host_bound": 0.05}, host_work=stretches, basis=Basis(stacks=True)))
    assert "with_stack" not in recorded.suggestion
    assert host.unrecorded(case(idle={"host_bound": 0.05})) is None


@pytest.mark.parametrize(
    ("kind", "name", "calls"), [("runtime", "cudaFree", 0.1), ("runtime", "cudaLaunchKernel", 1), ("runtime", "cudaModuleLoad", 9)]
)
def test_first_calls(kind, name, calls):
    began = (HostWork(kind=kind, name=name, calls=calls, idle_s=0.03),)
    assert "a few steps before" in host.beginning(case(idle={"host_bound": 0.05}, host_work=began)).suggestion
    assert host.allocating(case(idle={"host_bound": 0.05}, host_work=began)) is None
    assert host.beginning(case(idle={"host_bound": 0.05})) is None


def allocated(device="NVIDIA H100", steps=3, **calls):
    environment = Environment(rooflines="0", device="cuda:0", device_name=device)
    work = tuple(HostWork(kind="allocator", name=name, calls=number, idle_s=0.015) for name, number in calls.items())
    made = case(idle={"host_bound": 0.05}, host_work=work, basis=Basis(steps=steps), environment=environment)
    assert host.beginning(made) is None
    return host.allocating(made)


@pytest.mark.parametrize(("mallocs", "frees", "off"), [(292, 272, True), (292, 30, False), (12, 12, False)])
def test_a_cache_that_is_off_gives_back_as_often_as_it_takes(mallocs, frees, off):
    found = allocated(hipMalloc=mallocs, hipFree=frees)
    assert found.saves_s == pytest.approx(0.03)
    assert f"while {mallocs} calls a step take memory from the driver and {frees} give it back" in found.evidence
    assert ("PYTORCH_NO_HIP_MEMORY_CACHING" in found.suggestion) == off
    assert ("expandable_segments" in found.suggestion) != off
    assert "empty_cache" in found.suggestion


@pytest.mark.parametrize(
    ("steps", "device", "begins"),
    [
        (3, "NVIDIA H100", "PYTORCH_CUDA_ALLOC_CONF"),
        (3, "AMD Instinct MI300X", "PYTORCH_HIP_ALLOC_CONF"),
        (1, "NVIDIA H100", "a few steps before the recording, which fill the cache; if the calls stay: PYTORCH_CUDA_ALLOC_CONF"),
    ],
)
def test_allocations_that_recur_come_from_a_cache_that_is_short(steps, device, begins):
    found = allocated(device, steps, cudaMalloc=2)
    assert found.suggestion.startswith(begins)
    assert "empty_cache" not in found.suggestion, "nothing is given back"


def launched(time_s, name="gemm", **more):
    kernels = (kernel(name, time_s, calls=1000),)
    return case(row("aten::mm", time_s, kernels=kernels), idle={"host_bound": 0.04, "kernel_wait": 0.01}, **more)


def test_short_kernels_are_launched_together():
    found = host.launching(launched(0.01))
    assert found.saves_s == pytest.approx(0.05)
    assert found.suggestion.startswith(small_kernels.GRAPH)
    assert "a kernel runs for 10.0 µs on average" in found.evidence
    assert host.launching(launched(0.01, "triton_poi_fused_add_0", compiled=True)).suggestion == small_kernels.COMPILED_GRAPH
    assert host.launching(launched(0.01, compiled=True)).suggestion == small_kernels.NOT_GENERATED, "no kernel was generated"
    assert host.launching(launched(0.01, basis=Basis(stacks=True))).suggestion.startswith("record again without with_stack=True")
    assert "remove the waits (aten::item)" in host.launching(launched(0.01, synchronizations=(wait(),))).suggestion


def test_graphs_are_suggested_to_devices_that_have_them():
    environment = Environment(rooflines="0", device="xpu:0", device_name="Intel Data Center GPU Max 1550")
    assert str(host.launching(launched(0.01, environment=environment)).suggestion) == "a larger batch"


@pytest.mark.parametrize(
    ("kind", "advice"), [("decode", ""), ("prefill", ", of parts of the network in a prefill; or more requests in a step")]
)
def test_a_server_replays_decode_steps_and_parts_of_prefills(kind, advice):
    step = ServedSteps(kind=kind, steps=1, requests=4, step_s=0.1, busy_s=0.06, category_breakdown={})
    serving = Serving(kinds=(step,))
    assert host.launching(launched(0.01, serving=serving)).suggestion.startswith(small_kernels.SERVER_GRAPHS + advice)
    graphs = Coverage(modeled_time_fraction=1.0, graph_launch_time_s=0.02)
    assert "CUDA graphs" not in host.launching(launched(0.01, serving=serving, coverage=graphs)).suggestion


def test_graphs_are_not_suggested_to_a_program_that_launches_graphs():
    graphs = Coverage(modeled_time_fraction=1.0, graph_launch_time_s=0.02)
    assert host.launching(launched(0.01, compiled=True, coverage=graphs)).suggestion == small_kernels.MORE_GRAPHS


@pytest.mark.parametrize(("region_s", "is_launching"), [(0.03, True), (0.01, False)])
def test_launching_is_the_reason_where_most_of_the_waiting_is_in_compiled_regions(region_s, is_launching):
    region = (HostWork(kind="compiled", name="Torch-Compiled Region: 0/0", calls=1, idle_s=region_s),)
    found = host.launching(launched(0.1, "triton_poi_fused_add_0", compiled=True, host_work=region))
    assert (found.suggestion == small_kernels.COMPILED_GRAPH) == is_launching
    assert f"for 40.0 ms, {round(region_s * 1e3)}.0 ms of it in compiled regions" in found.evidence


def test_a_trace_without_steps_says_that_its_beginning_is_part_of_it():
    assert "includes what is done only once" in host.launching(launched(0.01, basis=Basis(per="trace"))).evidence
    assert "only once" not in host.launching(launched(0.01)).evidence


def test_idle_time_that_is_explained_is_not_claimed_again():
    made = launched(0.01)
    made.take(host.Advice("", 0.03, "", "", {"host_bound": 0.03}))
    found = host.launching(made)
    assert found.saves_s == pytest.approx(0.02)
    assert "(50.0 ms), and for 20.0 ms of it this is why: the host has not launched" in found.evidence


def test_a_busy_device_and_waiting_for_others_get_no_advice():
    assert host.launching(case(idle={"host_bound": 0.004})) is None
    assert host.launching(case(idle={"outside": 0.09})) is None


def test_a_graph_that_had_been_launched_is_recorded_again_without_a_figure():
    found = host.in_graphs(case(idle={"graph": 0.09}))
    assert (found.saves_s, found.of) == (None, {"graph": 0.09})
    assert host.in_graphs(case(idle={"graph": 0.01})) is None
    other = Finding(title="another", saves_s=1.0, evidence="", suggestion="")
    doubt = Finding(title=host.GRAPHS_UNRECORDED, saves_s=0.0, evidence="", suggestion="")
    assert ranked((other, doubt))[0] is not other, "a doubt about the results comes first"


def test_python_between_the_operators_of_a_cpu():
    found = host.between_operators(case(idle={"host_bound": 0.04}, device="cpu"))
    assert found.saves_s == pytest.approx(0.04)
    assert host.between_operators(case(idle={"host_bound": 0.04})) is None
    assert "compile" in str(found.suggestion), "nothing tells what it gives"
    alone = (
        row("aten::linear", 0.05, shapes="16x128, 128x128", bytes=10**5),
        row("aten::relu", 0.01, shapes="16x128", category="element-wise", bytes=10**5),
    )
    timed = Steps(count=9, median_s=0.1, p10_s=0.09, p90_s=0.11)
    other = host.between_operators(case(*alone, idle={"host_bound": 0.04}, device="cpu", steps=timed))
    assert "compile" not in str(other.suggestion), "no two calls can be fused, so that the host's time would stay"
    assert other.saves_s == pytest.approx(0.04)
    compiled = Workload(name="vit", mode="inference", compiled=True)
    assert (
        "compile"
        not in host.between_operators(case(idle={"host_bound": 0.04}, device="cpu", workload=compiled, compiled=True)).suggestion
    )


@pytest.mark.parametrize(
    ("cache", "first"), [("dynamic", "--kv-cache static --compile on: "), ("static", "compile='on'"), (None, "compile='on'")]
)
def test_compiling_a_generation_needs_a_cache_of_one_size(cache, first):
    """The command refuses to compile decode steps whose cache grows."""
    workload = Workload(name="hf:gpt2", mode="generate", batch_size=1, kv_cache=cache)
    found = host.between_operators(case(idle={"host_bound": 0.04}, device="cpu", workload=workload))
    assert str(found.suggestion).startswith(first)


@pytest.mark.parametrize(("device", "threads", "cores", "said"), [("cpu", 8, 4, True), ("cpu", 4, 4, False), ("cuda:0", 8, 4, False),
                                                                  ("cpu", 8, None, False)])  # fmt: skip
def test_more_threads_than_cores(device, threads, cores, said):
    environment = Environment(rooflines="0", device=device, device_name="", threads=threads, cpu_cores=cores, cpu_threads=8)
    found = host.oversubscribed(case(device=device, environment=environment))
    assert (found is not None) == said
    if said:
        assert "OMP_NUM_THREADS=4" in found.suggestion
        assert found.saves_s is None
