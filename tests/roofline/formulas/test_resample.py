"""Interpolation, sampling on a grid, windows: taps counted by hand; ``test_oracle.py`` runs the operators for their bytes."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from rooflines.profiler.calls.recorder import record
from rooflines.profiler.read.signature import Signature, TensorArg
from rooflines.roofline.count.formulas import Work, count

sides = st.integers(1, 9)


def work_of(step, name):
    """The work of the one call of this operator, the same with and without its recorded results."""
    (call,) = [call for call in record(step, None).calls if call.signature.name.startswith(f"aten::{name}")]
    outcome = count(call.signature, outputs=call.outputs)
    assert outcome.kind == "counted", outcome
    assert count(call.signature) == outcome
    return outcome.work


# mode -> (dimensions, taps of a result in one of them)
MODES = {"nearest": (2, 0), "nearest-exact": (2, 0), "linear": (1, 2), "bilinear": (2, 2), "trilinear": (3, 2), "bicubic": (2, 4)}


@pytest.mark.parametrize("mode", MODES)
@given(extents=st.tuples(sides, sides, sides), out=st.tuples(sides, sides, sides), corners=st.booleans())
@settings(max_examples=15, deadline=None)
def test_to_a_size(mode, extents, out, corners):
    rank, taps = MODES[mode]
    aligned = corners if taps else None
    tensor = torch.rand(2, 3, *extents[:rank])

    results = 6 * torch.Size(out[:rank]).numel()
    found = work_of(
        lambda: functional.interpolate(tensor, out[:rank], mode=mode, align_corners=aligned),
        "upsample" if mode != "nearest-exact" else "_upsample",
    )
    assert (found.other_flops, found.bytes_written) == (2 * taps**rank * results, 4 * results)
    assert found.precision == ("fp32" if taps else None)


def test_factors_of_a_trace_are_those_of_the_older_overload():
    """``upsample_bilinear2d.vec``: no size but factors, in one list."""
    image = TensorArg((1, 3, 10, 10))
    listed = count(Signature("aten::upsample_bilinear2d", (image, None, False, (2.0, 0.5))))
    given_each = count(Signature("aten::upsample_bilinear2d", (image, (20, 5), False, 2.0, 0.5)))
    assert listed.work == given_each.work
    assert listed.work.other_flops == 2 * 4 * 3 * 20 * 5
    assert count(Signature("aten::upsample_nearest2d", (image, None, (3.0, 1.0)))).work.bytes_written == 4 * 3 * 30 * 10
    assert count(Signature("aten::upsample_nearest2d", (image, None, None))).kind == "unknown"


@pytest.mark.parametrize("mode", MODES)
def test_the_gradient_goes_back_to_the_taps(mode):
    rank, taps = MODES[mode]
    tensor = torch.rand(2, 3, *(5,) * rank, requires_grad=True)

    def step():
        result = functional.interpolate(tensor, (7,) * rank, mode=mode)
        result.backward(torch.ones_like(result))

    results = 6 * 7**rank
    (call,) = [call for call in record(step, None).calls if call.signature.name.endswith(f"{rank}d_backward")]
    found = count(call.signature).work
    assert found == Work(0, 2 * taps**rank * results or results, 4 * results, 4 * 6 * 5**rank, "fp32")


def test_an_affine_grid():
    """Each point is a row [x, y, 1] times the matrix, transposed."""
    products, theta, grid = 2 * 2 * 20 * 2 * 3, TensorArg((2, 2, 3)), TensorArg((2, 5, 4, 2))
    found = count(Signature("aten::affine_grid_generator", (theta, (2, 7, 5, 4), False))).work
    assert found == Work(products, 0, theta.nbytes, grid.nbytes, "fp32")
    back = count(Signature("aten::cudnn_affine_grid_generator_backward", (grid, 2, 7, 5, 4))).work
    assert back == Work(products, 0, grid.nbytes, theta.nbytes, "fp32")


def test_the_gradients_of_a_sampled_image_that_are_asked_for():
    image, grid, grad = TensorArg((1, 3, 8, 8)), TensorArg((1, 5, 5, 2)), TensorArg((1, 3, 5, 5))
    both = count(Signature("aten::cudnn_grid_sampler_backward", (image, grid, grad))).work
    assert both.bytes_written == 4 * (192 + 50)
    of_image = count(Signature("aten::grid_sampler_2d_backward", (grad, image, grid, 0, 0, False, (True, False)))).work
    assert of_image == Work(0, 75 * 8 + 25 * 18, 4 * (75 + 50), 4 * 192, "fp32")
    of_grid = count(Signature("aten::grid_sampler_2d_backward", (grad, image, grid, 0, 0, False, (False, True)))).work
    assert of_grid == Work(0, 75 * 20 + 25 * 18, 4 * (75 + 50 + 192), 4 * 50, "fp32")


def test_a_point_of_bicubic_sampling_has_sixteen_taps():
    """Each of two coordinates: position 4, floor, fraction, four weights of 5."""
    found = count(Signature("aten::grid_sampler_2d", (TensorArg((1, 3, 8, 8)), TensorArg((1, 5, 5, 2)), 2, 0, False))).work
    assert found == Work(0, 75 * 2 * 16 + 25 * 2 * (4 + 2 + 4 * 5), 4 * (192 + 50), 4 * 75, "fp32")
