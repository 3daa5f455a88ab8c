"""Launch shapes of kernels, and the places in source files of the Python stack."""

from __future__ import annotations

import pytest

from tests.traces import add, kernel, launch, trace


def shaped(event, grid, block):
    event["args"] |= {"grid": grid, "block": block}
    return event


def test_a_kernel_has_its_grid_and_block_and_each_distinct_pair_is_kept_once():
    found = trace(
        shaped(kernel("a", 0, 1, 1), [16, 15, 1], [256, 1, 1]),
        shaped(kernel("a", 2, 1, 2), [16, 15, 1], [256, 1, 1]),
        shaped(kernel("b", 4, 1, 3), [4, 1, 1], [128, 1, 1]),
        kernel("c", 6, 1, 4),
    )
    assert found.launch_shapes == [((16, 15, 1), (256, 1, 1)), ((4, 1, 1), (128, 1, 1))]
    assert found.device.shape.tolist() == [0, 0, 1, -1]


@pytest.mark.parametrize("grid", [None, "16", [16, 15], [16, "x", 1], [0, 1, 1], [-1, 1, 1], [1e300, 1, 1], {"x": 1}])
def test_a_grid_that_is_none_is_not_recorded(grid):
    found = trace(shaped(kernel("a", 0, 1, 1), grid, [256, 1, 1]))
    assert found.device.shape.tolist() == [-1]


def frame(name, ts, dur, tid=1):
    return {"ph": "X", "cat": "python_function", "name": name, "pid": 7, "tid": tid, "ts": ts, "dur": dur, "args": {"Python id": 1}}


def test_functions_of_the_users_code_are_kept_and_those_of_torch_and_python_are_not():
    found = trace(
        add(50, 1),
        launch(60, 1, 1),
        frame("torch/nn/modules/module.py(1501): _call_impl", 0, 90),
        frame("/opt/python3.12/site-packages/torch/optim/optimizer.py(12): step", 0, 80),
        frame("<built-in method item of Tensor object at 0x7f>", 0, 70),
        frame("contextlib.py(81): inner", 0, 60),
        frame("/home/me/train.py(41): step", 0, 50),
        frame("torchvision/transforms/functional.py(7): resize", 5, 10),
        frame("nn.Module: Linear_0", 0, 40),
    )
    names = [found.frame_names[code] for code in found.frames.name.tolist()]
    assert names == ["/home/me/train.py(41): step", "torchvision/transforms/functional.py(7): resize"]
    assert found.frames.end_ns.tolist() == [50_000, 15_000]
    assert (found.frames.thread == found.host.thread[0]).all()
    assert "contextlib.py(81): inner" not in found.names
