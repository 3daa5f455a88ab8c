"""Interpolation, sampling on a grid, windows: taps counted by hand; ``test_oracle.py`` runs the operators for their bytes."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional
from torch.ops import aten

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


def test_antialiasing_widens_the_window():
    """Half as large: windows of 4 inner positions, 3 at both ends, in each dimension; 8 -> 4 is 3 + 4 + 4 + 3 taps."""
    tensor = torch.rand(1, 2, 8, 8)
    found = work_of(lambda: functional.interpolate(tensor, (4, 4), mode="bilinear", antialias=True), "_upsample_bilinear2d_aa")
    assert found == Work(0, 2 * 2 * 14 * 14, 4 * 128, 4 * 32, "fp32")
    # enlarged, each window has the two neighbors, where there are two
    larger = work_of(lambda: functional.interpolate(tensor, (16, 16), mode="bilinear", antialias=True), "_upsample_bilinear2d_aa")
    assert larger.other_flops == 2 * 2 * 30 * 30


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


# Sampling on a grid: mode -> taps of a result for a rank, FLOPs to place a point.
POINTS = {
    ("bilinear", 2): (4, 2 * (4 + 3) + 4), ("bilinear", 3): (8, 3 * (4 + 3) + 2 * 8), ("nearest", 2): (1, 2 * 5),
    ("nearest", 3): (1, 3 * 5), ("bicubic", 2): (16, 2 * (4 + 2 + 4 * 5)),
}  # fmt: skip


@pytest.mark.parametrize(("mode", "rank"), POINTS)
@given(channels=st.integers(1, 4), extent=st.integers(2, 6), points=st.integers(1, 5))
@settings(max_examples=10, deadline=None)
def test_grid_sample(mode, rank, channels, extent, points):
    taps, placing = POINTS[mode, rank]
    image = torch.rand(2, channels, *(extent,) * rank, requires_grad=True)
    grid = (torch.rand(2, *(points,) * rank, rank) * 2 - 1).requires_grad_()
    results, places = 2 * channels * points**rank, 2 * points**rank
    blend = 0 if mode == "nearest" else 2 * taps

    def step():
        result = functional.grid_sample(image, grid, mode=mode, align_corners=False)
        result.backward(torch.ones_like(result))

    calls = {call.signature.name: call for call in record(step, None).calls if "grid_sampler" in call.signature.name}
    forward, backward = (count(calls[name].signature) for name in sorted(calls))
    read = 4 * min(image.numel(), taps * results)
    grid_bytes = 4 * places * rank
    assert forward.work == Work(0, blend * results + placing * places, read + grid_bytes, 4 * results, "fp32")
    # the image's gradient: a multiply-add for each tap, an addition for the nearest; the grid's: value times gradient, then along each
    # coordinate a multiply-add; the nearest pixel stays the same however the point moves
    moving = 0 if mode == "nearest" else taps * (1 + 2 * rank)
    read = 4 * results + grid_bytes + (0 if mode == "nearest" else read)
    flops = results * ((blend or 1) + moving) + placing * places
    assert backward.work == Work(0, flops, read, 4 * image.numel() + grid_bytes, "fp32")


def test_only_the_gradients_asked_for():
    image, grid, grad = TensorArg((1, 3, 8, 8)), TensorArg((1, 5, 5, 2)), TensorArg((1, 3, 5, 5))
    found = count(Signature("aten::grid_sampler_2d_backward", (grad, image, grid, 0, 0, False, (True, False)))).work
    assert found == Work(0, 75 * 8 + 25 * 18, 4 * (75 + 50), 4 * 192, "fp32")
    found = count(Signature("aten::grid_sampler_2d_backward", (grad, image, grid, 0, 0, False, (False, True)))).work
    assert found == Work(0, 75 * 20 + 25 * 18, 4 * (75 + 50 + 192), 4 * 50, "fp32")
    both = count(Signature("aten::cudnn_grid_sampler_backward", (image, grid, grad))).work
    assert both.bytes_written == 4 * (192 + 50)


@pytest.mark.parametrize("extents", [(5, 4), (3, 5, 4)])
def test_affine_grid(extents):
    """Each point is a row [x, y, 1] times the matrix, transposed."""
    rank, points = len(extents), torch.Size(extents).numel()
    theta = torch.rand(2, rank, rank + 1)
    products = 2 * 2 * points * rank * (rank + 1)
    found = work_of(lambda: functional.affine_grid(theta, [2, 7, *extents], align_corners=False), "affine_grid_generator")
    assert found == Work(products, 0, 4 * theta.numel(), 4 * 2 * points * rank, "fp32")
    if rank == 2:
        back = count(Signature("aten::cudnn_affine_grid_generator_backward", (TensorArg((2, 5, 4, 2)), 2, 7, 5, 4))).work
        assert back == Work(products, 0, 4 * 2 * points * 2, 4 * theta.numel(), "fp32")


def test_columns_are_added_to_the_image_that_they_were_windows_of():
    columns = torch.rand(2, 3 * 9, 16)
    back = work_of(lambda: aten.col2im(columns, [6, 6], [3, 3], [1, 1], [0, 0], [1, 1]), "col2im")
    assert back == Work(0, columns.numel(), 4 * columns.numel(), 4 * 2 * 3 * 36, "fp32")
