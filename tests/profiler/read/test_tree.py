"""The call tree: nesting, modules forward and backward, phases, steps."""

import numpy as np
import pytest

from rooflines.profiler.read.records import OPERATOR
from rooflines.profiler.tree.tree import PHASES, module_annotation, tree
from tests.traces import add, mm, op, span, trace

NODE = "autograd::engine::evaluate_function: "


def named(found, calls):
    """Name of an operator -> (module path, phase)."""
    result = {}
    for i, code in enumerate(found.host.name):
        module = calls.modules[calls.module[i]].path if calls.module[i] >= 0 else None
        result[found.names[code]] = (module, PHASES[calls.phase[i]])
    return result


def test_where_an_event_belongs():
    # An event belongs to the shortest interval around it.
    found = trace(op("a", 0, 10), op("b", 1, 5), op("c", 2, 1), op("d", 7, 2), op("e", 20, 1))
    calls = tree(found)
    by_name = {found.names[code]: i for i, code in enumerate(found.host.name)}
    parent = {name: (found.names[found.host.name[calls.parent[i]]] if calls.parent[i] >= 0 else None) for name, i in by_name.items()}
    assert parent == {"a": None, "b": "a", "c": "b", "d": "a", "e": None}
    # Threads do not nest in each other.
    found = trace(op("a", 0, 10), op("b", 1, 5, tid=2))
    assert tree(found).parent.tolist() == [-1, -1]
    # A child that outlives its caller by rounding is clipped.
    calls = tree(trace(op("a", 0, 10), op("b", 9, 1.001)))
    assert calls.end_ns.tolist() == [10_000, 10_000]


def test_forward_operators_take_the_innermost_module_and_backward_ones_its_by_sequence_number():
    found = trace(
        span(module_annotation("", "ResNet"), 0, 100), span(module_annotation("layer1.0.conv2", "Conv2d"), 10, 20),
        op("aten::conv2d", 11, 15, seq=5), op("aten::convolution", 12, 13, seq=5),
        span(module_annotation("fc", "Linear"), 40, 20), op("aten::linear", 41, 15, seq=6), op("aten::addmm", 42, 13, seq=7),
        op(NODE + "AddmmBackward0", 200, 10, tid=2, seq=7, fwd=1), op("aten::mm", 201, 5, tid=2),
        op(NODE + "ConvolutionBackward0", 220, 10, tid=2, seq=5, fwd=1), op("aten::convolution_backward", 221, 8, tid=2),
        op(NODE + "torch::autograd::AccumulateGrad", 240, 10, tid=2, seq=-1), op("aten::add_", 241, 8, tid=2),
    )  # fmt: skip
    where = named(found, tree(found))
    assert where["aten::conv2d"] == ("layer1.0.conv2", "forward")
    assert where["aten::addmm"] == ("fc", "forward")
    assert where["aten::mm"] == ("fc", "backward")
    assert where["aten::convolution_backward"] == ("layer1.0.conv2", "backward")
    assert where["aten::add_"] == (None, "backward")


def test_phases_of_the_backward_and_the_optimizer():
    # The backward of a thread that comes first still finds its module.
    found = trace(
        op(NODE + "MmBackward0", 200, 10, tid=1, seq=3, fwd=1), op("aten::mm", 201, 5, tid=1),
        span(module_annotation("fc", "Linear"), 0, 20, tid=9), op("aten::linear", 1, 15, tid=9, seq=3),
    )  # fmt: skip
    assert named(found, tree(found))["aten::mm"] == ("fc", "backward")
    # What runs in the optimizer is its phase.
    found = trace(span("ProfilerStep#0", 0, 100), mm(1, 5, 2, 2, 2, seq=1), span("Optimizer.step#SGD.step", 50, 20), add(51, 5))
    calls = tree(found)
    assert named(found, calls)["aten::mm"][1] == "forward"
    assert named(found, calls)["aten::add"][1] == "optimizer"
    assert calls.steps.tolist() == [[0, 100_000]]


STEP = "Optimizer.step#SGD.step"


def test_closures_of_optimizers():
    # What a closure runs in the optimizer is forward and backward.
    found = trace(
        span(STEP, 0, 100), mm(5, 5, 2, 2, 2, seq=1), op("MmBackward0", 20, 20, seq=1, fwd=1), op("aten::t", 22, 3),
        span("Optimizer.zero_grad#SGD.zero_grad", 2, 2), op("aten::zero_", 2.5, 1), add(50, 5),
    )  # fmt: skip
    calls = tree(found)
    assert {name: phase for name, (_, phase) in named(found, calls).items()} == {
        "aten::mm": "forward", "MmBackward0": "backward", "aten::t": "backward", "aten::zero_": "optimizer",
        "aten::add": "optimizer", STEP: "optimizer", "Optimizer.zero_grad#SGD.zero_grad": "optimizer",
    }  # fmt: skip
    assert calls.begin_ns[found.host.name == found.names.index(STEP)].tolist() == [40_000]
    # A closure's backward may run on the engine's thread.
    found = trace(
        mm(0, 1, 2, 2, 2, tid=3, seq=9), op("SinBackward0", 60, 9, tid=4, seq=9, fwd=3),  # of another thread's forward
        span(STEP, 10, 90), mm(15, 5, 2, 2, 2, seq=1), op("MmBackward0", 30, 15, tid=2, seq=1, fwd=1), add(50, 5),
    )  # fmt: skip
    assert tree(found).begin_ns[found.host.name == found.names.index(STEP)].tolist() == [45_000]
    # A closure that the recording stops in was in its forward.
    events = (span("ProfilerStep#0", 0, 99), op("aten::zero_", 12, 2), mm(15, 5, 2, 2, 2, seq=1), span(STEP, 10, 90))
    found = trace(*events)
    assert named(found, tree(found))["aten::mm"][1] == "forward"
    # What follows says that the range was whole: an optimizer that leaves gradients on.
    found = trace(*events, op("later", 120, 5))
    assert named(found, tree(found))["aten::mm"][1] == "optimizer"
    # And a whole one at the end has an update without gradients.
    found = trace(span(STEP, 10, 90), add(20, 10))
    assert named(found, tree(found))["aten::add"][1] == "optimizer"
    # An optimizer that a node calls runs no closure.
    found = trace(
        op(NODE + "torch::autograd::AccumulateGrad", 0, 50), span(STEP, 10, 30), add(12, 5), op(NODE + "SinBackward0", 15, 5, tid=2),
    )  # fmt: skip
    assert named(found, tree(found))["aten::add"][1] == "optimizer"


def test_a_step_that_begins_inside_of_a_range_cuts_nothing_off():
    # prof.step() in the closure, between its forward and its backward
    found = trace(
        span("ProfilerStep#0", 0, 30), span("ProfilerStep#1", 30, 170),
        span(STEP, 5, 145), mm(10, 10, 2, 2, 2, seq=1), op("MmBackward0", 40, 20, seq=1, fwd=1), add(100, 10),
    )  # fmt: skip
    calls = tree(found)
    where = named(found, calls)
    assert {name: where[name][1] for name in ("aten::mm", "MmBackward0", "aten::add")} == {
        "aten::mm": "forward", "MmBackward0": "backward", "aten::add": "optimizer",
    }  # fmt: skip
    assert calls.steps.tolist() == [[0, 30_000], [30_000, 200_000]]
    # The second mark begins in the optimizer's range and is not the optimizer's.
    assert where["ProfilerStep#1"] == (None, "forward")
    mark = found.host.name == found.names.index("ProfilerStep#1")
    assert (calls.parent[mark].tolist(), calls.end_ns[mark].tolist()) == ([-1], [200_000])


def test_a_step_that_begins_inside_of_an_operator_lasts_until_its_own_end():
    calls = tree(trace(op("a", 0, 80), span("ProfilerStep#0", 50, 100), op("b", 60, 10), op("c", 90, 30)))
    assert calls.steps.tolist() == [[50_000, 150_000]]
    assert calls.parent.tolist() == [-1, -1, 0, -1]
    assert calls.operator.tolist()[2:] == [2, 3]


@pytest.mark.parametrize(("marks", "steps", "left_out"), [
    ([(0, 100, 1), (10, 80, 1)], [[0, 100]], 1),  # nested
    ([(0, 100, 1), (100, 100, 1), (3, 100, 2), (103, 100, 2)], [[0, 100], [100, 200]], 2),  # two threads
    ([(0, 100, 1), (0, 100, 2)], [[0, 100]], 0),  # the same mark twice
    ([(0, 100.5, 1), (100, 100, 1)], [[0, 100.5], [100.5, 200]], 0),  # rounded
    ([(0, 100, 1), (120, 50, 1)], [[0, 100], [120, 170]], 0),
])  # fmt: skip
def test_steps_do_not_overlap(marks, steps, left_out):
    calls = tree(trace(*(span(f"ProfilerStep#{i}", ts, dur, tid=tid) for i, (ts, dur, tid) in enumerate(marks))))
    assert (calls.steps / 1e3).tolist() == steps
    assert len(calls.step_names) == len(steps)
    assert [note.split()[-1] for note in calls.notes] == ([f"{left_out}."] if left_out else [])


def test_module_calls_are_counted_and_types_kept():
    found = trace(*(span(module_annotation("act", "ReLU"), ts, 1) for ts in (0, 5, 9)))
    calls = tree(found)
    assert [(m.path, m.type) for m in calls.modules] == [("act", "ReLU")]
    assert calls.module_calls.tolist() == [3]


def instance(name, ts, dur, *, tid=1):
    """A module as the profiler's Python stack marks it."""
    return {**span(f"nn.Module: {name}", ts, dur, tid=tid), "cat": "python_function"}


def test_module_instances_get_the_path_of_their_nesting():
    found = trace(
        instance("Bert_0", 0, 100), instance("Encoder_0", 5, 90), instance("Layer_0", 10, 20), op("aten::mm", 11, 5, seq=1),
        instance("Layer_1", 40, 20), instance("Linear_0", 41, 8), op("aten::mm", 42, 5, seq=2), op("aten::add", 55, 2),
        op("autograd::engine::evaluate_function: MmBackward0", 200, 9, tid=2, seq=2, fwd=1), op("aten::mm", 201, 5, tid=2),
    )  # fmt: skip
    calls = tree(found)
    layer = "Bert_0.Encoder_0.Layer"
    assert [(module.path, module.type) for module in calls.modules] == [
        ("Bert_0", "Bert"), ("Bert_0.Encoder_0", "Encoder"), (f"{layer}_0", "Layer"), (f"{layer}_1", "Layer"),
        (f"{layer}_1.Linear_0", "Linear"),
    ]  # fmt: skip
    assert calls.module_calls.tolist() == [1] * 5
    operators = np.flatnonzero(found.host.kind == OPERATOR)
    paths = [calls.modules[at].path for at in calls.module[operators].tolist()]
    assert paths == [f"{layer}_0", f"{layer}_1.Linear_0", f"{layer}_1", f"{layer}_1.Linear_0", f"{layer}_1.Linear_0"]


def test_instances_and_paths():
    # An instance with nothing around it is where it is called otherwise.
    # A recomputed block runs on the thread of the backward; a module that two others call has two places.
    found = trace(
        instance("Layer_0", 500, 20, tid=0), instance("Linear_0", 501, 8, tid=0),
        instance("Net_0", 0, 100), instance("Layer_0", 10, 20), instance("Linear_0", 11, 8), instance("Head_0", 50, 20),
        instance("Linear_0", 51, 8),
    )  # fmt: skip
    calls = tree(found)
    numbers = {module.path: number for module, number in zip(calls.modules, calls.module_calls.tolist(), strict=True)}
    assert numbers == {"Net_0": 1, "Net_0.Layer_0": 2, "Net_0.Layer_0.Linear_0": 2, "Net_0.Head_0": 1, "Net_0.Head_0.Linear_0": 1}
    # Paths of modules.
    # Marks with paths name the instances below them.
    calls = tree(trace(span(module_annotation("fc", "Linear"), 0, 20), instance("Linear_0", 1, 18), op("aten::mm", 2, 10)))
    assert [calls.modules[at].path for at in set(calls.module.tolist())] == ["fc"]
    # A deep nesting keeps paths short.
    calls = tree(trace(*(instance(f"Module_{depth}", depth, 10_000 - 2 * depth) for depth in range(3000))))
    assert max(len(module.path) for module in calls.modules) <= 1024
    assert len(calls.modules) == 3000
