"""Optimizer, gradients, memory, communication and input."""

import pytest

from rooflines.profiler.records import Environment, Workload
from rooflines.roofline.advise import communication, host, training
from rooflines.roofline.analysis import Basis, CollectiveRow, HostWork, Memory, PageFaults, Recomputation, StepDivision, Steps, Timeline
from tests.roofline.advise.cases import case, kernel, row, unmodeled


@pytest.mark.parametrize("name", ["aten::zero_", "aten::_foreach_zero_", "aten::fill_"])
def test_gradients_filled_with_zeros(name):
    found = training.zeroed_gradients(case(row(name, 0.004, phase="optimizer", calls=160), row(name, 0.01, phase="forward")))
    assert found.saves_s == 0.004
    assert "set_to_none=True" in found.suggestion
    assert training.zeroed_gradients(case(row("aten::zero_", 0.01, phase="backward"))) is None
    assert training.zeroed_gradients(case(row(name, 0.004, phase="optimizer", shapes="1"))) is None, "the flag of a gradient scaler"


def test_an_update_in_a_loop():
    idle = (HostWork(kind="optimizer", name="Optimizer.step#SGD.step", calls=1, idle_s=0.02),)
    rows = (row("aten::add_", 0.01, 0.002, phase="optimizer", calls=320), unmodeled("aten::mul_", 0.01, phase="optimizer", calls=160))
    found = training.loop(case(*rows, idle={"host_bound": 0.015}, host_work=idle))
    assert found.saves_s == pytest.approx(0.008 + 0.015)
    assert "480 small calls a step" in found.evidence
    assert "fused=True" in found.suggestion


@pytest.mark.parametrize(
    "one",
    [
        row("aten::add_", 0.01, 0.002, phase="optimizer", calls=20),
        row("aten::_foreach_add_", 0.01, 0.002, phase="optimizer", calls=320),
        row("aten::add_", 0.01, 0.002, phase="backward", calls=320),
        row("aten::add_", 0.01, 0.002, phase="optimizer", calls=320, kernels=(kernel("multi_tensor_apply_kernel", calls=4),)),
    ],
)
def test_an_update_of_all_parameters_at_once(one):
    assert training.loop(case(one)) is None


def test_memory_that_is_given_back_every_step():
    steps = Steps(count=50, median_s=0.1, p10_s=0.1, p90_s=0.1)
    found = training.page_faults(case(device="cpu", steps=steps, page_faults=PageFaults(timed=21_000, traced=12_000, page_s=2e-6)))
    assert "took 21,000 pages each from the system (the traced ones 12,000)" in found.evidence
    assert found.saves_s == pytest.approx(21_000 * 2e-6)
    assert "one took 2.00 µs between the passes" in found.evidence
    assert "MALLOC_TRIM_THRESHOLD_" in found.suggestion
    assert training.page_faults(case(device="cpu", steps=steps, page_faults=PageFaults(timed=300, page_s=2e-6))) is None
    steps = Steps(count=50, median_s=0.01, p10_s=0.01, p90_s=0.01)  # few pages are many in a short step
    assert training.page_faults(case(device="cpu", steps=steps, page_faults=PageFaults(timed=1000, page_s=2e-6))) is not None
    assert training.page_faults(case(device="cpu")) is None
    assert training.page_faults(case(device="cpu", steps=steps, page_faults=PageFaults(timed=21_000))) is None  # its time is unknown


def test_recomputation_costs_what_runs_twice():
    rows = (
        row("aten::linear", 0.01, module="block.0", shapes="8x64, 64x64"),
        row("aten::linear", 0.012, module="block.0", shapes="8x64, 64x64", phase="backward"),
        row("aten::mm", 0.02, shapes="64x8, 8x64", phase="backward"),
    )
    again = Recomputation(time_s=0.011, calls=12, operators=("aten::linear",))
    found = training.recomputed(case(*rows, recomputation=again, memory=Memory(peak_bytes=8 << 30)))
    assert (found.saves_s, found.of) == (0.011, {1: 0.012})
    assert "11.0 ms a step (11 % of the step); peak memory is 8.00 GiB" in found.evidence
    assert training.recomputed(case(*rows)) is None


@pytest.mark.parametrize(
    ("peak", "advice"), [(70, None), (20, "checkpoint only as many"), (None, "if the activations fit into memory")]
)
def test_recomputation_is_left_alone_where_memory_is_full(peak, advice):
    rows = [row("aten::linear", 0.012, module="block.0", shapes="8x64", phase=phase) for phase in ("forward", "backward")]
    known = Memory(peak_bytes=peak << 30) if peak else None
    environment = Environment(rooflines="0", device="cuda:0", device_name="NVIDIA H100 80GB HBM3", device_memory_bytes=80 << 30)
    again = Recomputation(time_s=0.011, calls=12, operators=("aten::linear",))
    found = training.recomputed(case(*rows, recomputation=again, memory=known, environment=environment))
    assert found is None if advice is None else found.suggestion.startswith(advice)


def collective(name="nccl:all_reduce", size=3_000_000, time_s=0.01, exposed_s=0.01, **more):
    return row(name, time_s, category="communication", bound="communication", bytes=2 * size, exposed_s=exposed_s, **more)


def exchange(size=6_000_000, time_s=0.0069, exposed_s=None, calls=1, kind="allreduce"):
    exposed_s = time_s if exposed_s is None else exposed_s
    return CollectiveRow(kind=kind, bytes=size, calls=calls, time_s=time_s, exposed_s=exposed_s)


def test_a_collective_far_below_any_link_waits_for_a_rank():
    found = communication.late_rank(case(collective(time_s=0.0069, exposed_s=0.0069), collectives=(exchange(),)))
    # Twice 6 MB at 50 GB/s, and the time to begin.
    assert found.saves_s == pytest.approx(0.0069 - 0.00024 - 0.0001)
    assert "an all-reduce of 5.72 MiB takes 6.90 ms (870 MB/s)" in found.evidence
    assert "bucket" not in found.suggestion
    assert "all ranks" in found.suggestion


def test_a_late_rank_costs_no_more_than_the_time_that_is_left():
    found = communication.late_rank(case(collective(time_s=0.0069, exposed_s=0.002), collectives=(exchange(),)))
    assert (found.saves_s, found.of) == (0.002, {0: 0.002})


@pytest.mark.parametrize(
    "one",
    [
        exchange(size=100_000_000, time_s=0.01),  # 10 GB/s
        exchange(size=3000, time_s=0.0001),  # as long as starting takes
        exchange(size=None, time_s=0.01),  # of a size that is not known
        exchange(size=3000, time_s=0.01, exposed_s=0.0),
    ],
)
def test_a_collective_that_its_size_explains_or_that_is_hidden(one):
    assert communication.late_rank(case(collective(), collectives=(one,))) is None


def test_waiting_and_hiding_are_about_different_times():
    one = case(collective(time_s=0.0069, exposed_s=0.006), collectives=(exchange(exposed_s=0.006),))
    late = communication.late_rank(one)
    one.take(late)
    assert late.saves_s + communication.exposed(one).saves_s == pytest.approx(0.006)


def test_one_reduction_for_each_parameter():
    found = communication.exposed(case(collective(), collectives=(exchange(size=None, calls=404, time_s=0.01),)))
    assert "in 404 all-reduces" in found.evidence
    assert "few buckets" in found.suggestion
    wrapped = row("aten::mm", 0.01, module="DistributedDataParallel_0")
    many = (exchange(size=None, calls=404, time_s=0.01),)
    server = Workload(name="step", mode="inference", source="trace")
    assert "gradients" not in communication.exposed(case(collective(), collectives=many, workload=server)).suggestion
    assert "bucket_cap_mb" in communication.exposed(case(collective(), wrapped, collectives=many)).suggestion


@pytest.mark.parametrize(
    ("name", "advice"),
    [("nccl:all_reduce", "start the all-reduce earlier"), ("c10d::alltoall_base_", "overlap the all-to-all"),
     ("c10d::_allgather_base_", "FSDP"), ("nccl:broadcast", "run layers that do not need it")],
)  # fmt: skip
def test_exposed_communication_is_advised_by_its_kind_and_the_wrapper_of_the_model(name, advice):
    wrapped = row("aten::mm", 0.01, module="DistributedDataParallel_0.FullyShardedDataParallel_0")
    one = collective(name, size=100_000_000, time_s=0.02, exposed_s=0.015)
    found = communication.exposed(case(one, wrapped))
    assert found.saves_s == 0.015
    assert advice in found.suggestion
    assert "sizes are not recorded" not in found.evidence
    alone = communication.exposed(case(one)).suggestion
    assert "FSDP" not in alone
    assert "DistributedDataParallel" not in alone


def test_collectives_that_run_at_once_share_the_time_that_nothing_hides():
    timeline = Timeline(span_s=0.1, busy_s=0.1, idle_s=0, compute_s=0.08, communication_s=0.025, exposed_communication_s=0.02)
    two = [collective(name, time_s=0.02, exposed_s=0.02) for name in ("nccl:all_reduce", "nccl:broadcast")]
    found = communication.exposed(case(*two, timeline=timeline))
    assert found.saves_s == pytest.approx(0.02)
    assert "communication takes 25.0 ms" in found.evidence


def test_orphan_kernels_of_collectives_count_and_hidden_ones_cost_nothing():
    orphan = unmodeled("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 0.02, exposed_s=0.01)
    found = communication.exposed(case(orphan))
    assert found.saves_s == 0.01
    assert "sizes are not recorded" in found.evidence
    assert communication.exposed(case(collective(exposed_s=0.0))) is None


@pytest.mark.parametrize(("ready_s", "compute_s", "saves_s"), [(0.003, 0.08, 0.003), (0.006, 0.004, 0.004), (0.006, 0.08, 0.006)])
def test_communication_is_hidden_behind_launched_computation_that_hides_nothing_yet(ready_s, compute_s, saves_s):
    timeline = Timeline(
        span_s=0.1, busy_s=0.1, idle_s=0, compute_s=compute_s, communication_s=0.006, exposed_communication_s=0.006,
        ready_communication_s=ready_s,
    )  # fmt: skip
    found = communication.exposed(case(collective(time_s=0.006, exposed_s=0.006), timeline=timeline))
    assert found.saves_s == pytest.approx(saves_s)
    assert ("could run meanwhile" in found.evidence) == (saves_s < 0.006)


@pytest.mark.parametrize(("phase", "saves_s"), [("backward", 0.001), ("forward", 0.006)])
def test_gradients_are_hidden_behind_the_backward_pass_alone(phase, saves_s):
    """Of 10 ms of computation 5 are in the backward pass, of which 4 hide communication already."""
    timeline = Timeline(
        span_s=0.1,
        busy_s=0.1,
        idle_s=0,
        compute_s=0.01,
        communication_s=0.01,
        exposed_communication_s=0.006,
        ready_communication_s=0.006,
    )
    division = StepDivision(of="device", step_s=0.1, forward_s=0.005, backward_s=0.005)
    one = collective(time_s=0.01, exposed_s=0.006, phase=phase)
    assert communication.exposed(case(one, timeline=timeline, division=division)).saves_s == pytest.approx(saves_s)


@pytest.mark.parametrize(
    ("workers", "said"), [(None, "check that"), (False, "has no workers"), (True, "a larger num_workers")]
)  # fmt: skip
def test_a_trace_tells_whether_its_loader_has_workers(workers, said):
    found = host.load_faster(case(idle={"data_loading": 0.03}, basis=Basis(loader_workers=workers)))
    assert said in found.suggestion


def test_a_loader_that_the_step_waits_for():
    found = host.load_faster(case(idle={"data_loading": 0.03}))
    assert found.saves_s == 0.03
    assert "30 % of the step" in found.evidence
    assert host.load_faster(case(idle={"data_loading": 0.003})) is None
