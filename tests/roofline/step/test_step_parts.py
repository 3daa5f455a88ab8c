"""The parts of a step by what they are for: arithmetic on traces written by hand, laws on real ones."""

import pytest

from rooflines.profiler.tree.breakdown import step_breakdown
from rooflines.profiler.tree.tree import tree
from rooflines.roofline.analysis import PARTS
from rooflines.roofline.judge.step.partition import Label, partition
from tests.roofline.rooms import analyzed, attributed, copied
from tests.traces import add, kernel, launch, op, span, trace

LOADS = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def divided(*events):
    attribution = attributed(*events)
    return partition(attribution, [Label("unknown", row.count.category) for row in attribution.rows])


def parts(*events):
    """Microseconds a step of each part that there is."""
    record = divided(*events).division()
    found = {part: getattr(record, f"{part}_s") for part in PARTS}
    assert sum(value or 0.0 for value in found.values()) == pytest.approx(record.step_s)
    return record.of, {part: round(value * 1e6, 3) for part, value in found.items() if value is not None}


def test_a_processors_step_is_its_loader_its_operators_and_the_rest():
    found = parts(
        span("ProfilerStep#0", 0, 200),
        span(LOADS, 10, 40), add(20, 10),  # collating is loading
        add(60, 20, seq=1),
        op("autograd::engine::evaluate_function: AddBackward0", 90, 30), add(95, 10),
        span("Optimizer.step#SGD.step", 130, 40), add(140, 10),
    )  # fmt: skip
    assert found == ("host", {"data_loading": 40.0, "forward": 20.0, "backward": 30.0, "optimizer": 10.0, "host": 100.0})


CLOSURE = (span("ProfilerStep#0", 0, 1000), span("Optimizer.step#SGD.step", 5, 990), add(50, 100, seq=1))


def test_the_forward_and_backward_of_a_closure_are_not_the_optimizers():
    events = (*CLOSURE, op("AddBackward0", 200, 400, seq=1, fwd=1), op("aten::_foreach_add_", 700, 100))
    # the optimizer begins at 600, where the backward has ended
    assert parts(*events) == ("host", {"forward": 100.0, "backward": 400.0, "optimizer": 100.0, "host": 400.0})
    found = trace(*events)
    calls = tree(found)
    assert step_breakdown(calls, calls.steps)["cpu_s"].tolist() == [895_000]


def test_a_kernel_that_a_closure_launches_is_the_forwards():
    found = parts(
        *CLOSURE, launch(60, 5, 1), op("AddBackward0", 200, 100, tid=2, seq=1, fwd=1), launch(210, 5, 2, tid=2),
        op("aten::_foreach_add_", 700, 100), launch(710, 5, 3),
        kernel("f", 100, 300, 1), kernel("b", 400, 200, 2), kernel("u", 800, 50, 3),
    )  # fmt: skip
    assert found[1] == {"forward": 300.0, "backward": 200.0, "optimizer": 50.0, "host": 110.0 + 60.0 + 150.0, "idle": 90.0 + 40.0}


def test_a_thread_that_loads_ahead_keeps_nobody_waiting():
    found = parts(span("ProfilerStep#0", 0, 100), add(0, 60), span(LOADS, 10, 80, tid=2), add(20, 30, tid=2))
    assert found == ("host", {"forward": 60.0, "host": 40.0})


def test_what_is_exchanged_meanwhile_counts_where_nothing_else_runs():
    found = parts(span("ProfilerStep#0", 0, 100), add(0, 40), span("gloo:all_reduce", 20, 50, tid=3), op("c10d::barrier", 80, 10))
    assert found == ("host", {"forward": 40.0, "communication": 40.0, "host": 20.0})


def test_two_steps_are_their_mean():
    found = parts(span("ProfilerStep#0", 0, 100), add(0, 40), span("ProfilerStep#1", 100, 100), span(LOADS, 110, 50), add(160, 20))
    assert found == ("host", {"data_loading": 25.0, "forward": 30.0, "host": 45.0})


def test_a_devices_step_is_its_work_by_what_launched_it_and_its_idle_time_by_what_the_host_did():
    found = parts(
        span("ProfilerStep#0", 0, 200),
        span(LOADS, 0, 30),
        launch(40, 2, 1), copied("Memcpy HtoD (Pageable -> Device)", 45, 15, 1),
        add(50, 8, seq=1), launch(52, 2, 2), kernel("forward", 60, 40, 2),
        op("autograd::engine::evaluate_function: AddBackward0", 70, 10, tid=2), launch(72, 2, 3, tid=2), kernel("backward", 100, 50, 3),
        span("Optimizer.step#SGD.step", 160, 20), launch(165, 2, 4), kernel("optimizer", 170, 20, 4),
    )  # fmt: skip
    # Idle: 0-45 (30 of it in the loader, launched at 40), 150-170 (launched at 165), and after 190 nothing is launched any more.
    assert found == (
        "device",
        {
            "data_loading": 30.0, "host_to_device": 15.0, "forward": 40.0, "backward": 50.0, "optimizer": 20.0,
            "host": 10.0 + 15.0 + 10.0, "idle": 5.0 + 5.0,
        },
    )  # fmt: skip


def test_loading_and_copies_behind_work_cost_nothing():
    found = parts(
        span("ProfilerStep#0", 0, 100), launch(0, 2, 1), kernel("a", 0, 100, 1), span(LOADS, 10, 60),
        launch(75, 2, 2), copied("Memcpy HtoD (Pinned -> Device)", 80, 10, 2),
    )  # fmt: skip
    assert found == ("device", {"other": 100.0})
    assert divided(span("ProfilerStep#0", 0, 100), launch(0, 2, 1), kernel("a", 0, 100, 1), span(LOADS, 10, 60)).loader_s


@pytest.mark.parametrize("name", [
    "Memcpy HtoD (Pinned -> Device)", "CopyHostToDevice", "Memcpy M2D (MEMORY(Unknown) -> DEVICE)", "Memcpy H2D (HOST -> DEVICE)",
])  # fmt: skip
def test_copies_from_the_host_are_told_by_the_names_of_each_vendor(name):
    assert parts(launch(0, 2, 1), copied(name, 5, 10, 1)) == ("device", {"host_to_device": 10.0})
    assert parts(launch(0, 2, 1), copied("Memcpy D2M (DEVICE -> MEMORY(Unknown))", 5, 10, 1)) == ("device", {"other": 10.0})


def test_work_without_a_launch_has_no_phase():
    found = parts(op("aten::item", 0, 1), launch(0, 2, 1), kernel("a", 5, 10, 1), kernel("b", 15, 10, 99))
    assert found == ("device", {"forward": 10.0, "other": 10.0})


@pytest.mark.parametrize("inside", [True, False])
def test_a_range_named_after_the_backward_begins_behind_what_it_differentiates(tmp_path, inside):
    """The loss and its backward are in one range; the engine has a thread of its own."""
    loss = [op("aten::mse_loss", 10, 20, seq=5), launch(15, 5, 1), kernel("loss", 40, 10, 1)]
    seed = [op("aten::ones_like", 60, 10), launch(62, 5, 2), kernel("ones", 70, 10, 2)]
    node = [op("autograd::engine::evaluate_function: MseLossBackward0", 100, 50, tid=2, seq=5, fwd=1),
            op("aten::mse_loss_backward", 110, 20, tid=2), launch(115, 5, 3, tid=2), kernel("gradient", 130, 20, 3)]  # fmt: skip
    found = analyzed(tmp_path, span("my_backward", 5 if inside else 55, 195), *loss, *seed, *node)
    phases = {row.name: row.phase for row in found.rows}
    assert (phases["aten::mse_loss"], phases["aten::ones_like"]) == ("forward", "backward")
    assert found.division.forward_s == pytest.approx(10e-6)
