"""Convolutions: arithmetic by hand, an independent count by loops, and laws between forward and backward."""

from __future__ import annotations

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch.nn import functional

from rooflines.profiler.trace.signature import MISSING, Signature, TensorArg
from rooflines.roofline.work import count
from rooflines.roofline.work.convolution import touched

pytestmark = pytest.mark.unit


def convolution(inputs, weight, stride=1, padding=0, dilation=1, transposed=False, output_padding=0, groups=1, bias=False):
    rank = len(weight) - 2
    many = tuple((value,) * rank for value in (stride, padding, dilation))
    out = weight[1] * groups if transposed else weight[0]
    arguments = (
        TensorArg(inputs), TensorArg(weight), TensorArg((out,)) if bias else None, *many, transposed, (output_padding,) * rank, groups,
    )  # fmt: skip
    return Signature("aten::convolution", arguments)


def backward(forward, grad_shape, mask=(True, True, True)):
    inputs, weight, _, *rest = forward.args
    return Signature("aten::convolution_backward", (TensorArg(grad_shape), inputs, weight, None, *rest, mask))


def test_a_resnet_convolution_by_hand():
    # [4, 64, 56, 56] * [64, 64, 3, 3], padded by 1: 4 * 64 * 56 * 56 outputs of 64 * 9 multiply-adds
    work = count(convolution((4, 64, 56, 56), (64, 64, 3, 3), padding=1)).work
    assert work.matrix_flops == 2 * (4 * 64 * 56 * 56) * (64 * 9)
    assert work.other_flops == 0
    assert work.bytes_read == 4 * (4 * 64 * 56 * 56 + 64 * 64 * 9)
    assert work.bytes_written == 4 * (4 * 64 * 56 * 56)
    assert work.precision == "fp32"


def test_the_bias_is_an_addition_an_output_outside_the_matrix_flops():
    plain, biased = count(convolution((1, 3, 8, 8), (5, 3, 3, 3))).work, count(convolution((1, 3, 8, 8), (5, 3, 3, 3), bias=True)).work
    assert biased.matrix_flops == plain.matrix_flops
    assert biased.other_flops == 5 * 6 * 6
    assert biased.bytes_read == plain.bytes_read + 4 * 5


def test_depthwise_does_a_channel_th_of_the_dense_work_and_its_backward_twice_the_forward():
    forward = convolution((2, 32, 14, 14), (32, 1, 3, 3), padding=1, groups=32)
    dense = convolution((2, 32, 14, 14), (32, 32, 3, 3), padding=1)
    assert 32 * count(forward).work.matrix_flops == count(dense).work.matrix_flops
    assert count(backward(forward, (2, 32, 14, 14))).work.matrix_flops == 2 * count(forward).work.matrix_flops


def test_a_1x1_window_at_stride_2_reads_a_quarter_of_the_input():
    # the shortcut of a ResNet: rows 0, 2 .. 54 and the same columns
    work = count(convolution((1, 256, 56, 56), (512, 256, 1, 1), stride=2)).work
    assert work.bytes_read == 4 * (256 * 28 * 28 + 512 * 256)


@pytest.mark.parametrize(
    ("mask", "products", "bias"),
    [((True, True, True), 2, 1), ((False, True, True), 1, 1), ((True, False, False), 1, 0), ((False, False, False), 0, 0)],
)
def test_backward_costs_a_product_for_each_gradient_asked_for(mask, products, bias):
    forward = convolution((2, 6, 9, 9), (4, 6, 3, 3))
    work = count(backward(forward, (2, 4, 7, 7), mask)).work
    assert work.matrix_flops == products * count(forward).work.matrix_flops
    assert work.other_flops == bias * 2 * 4 * 7 * 7
    assert work.bytes_written == 4 * (mask[0] * 2 * 6 * 81 + mask[1] * 4 * 6 * 9 + mask[2] * 4)


SCHEMAS = {
    "aten::conv2d": ("b", "s", "p", "d", "g"),
    "aten::mkldnn_convolution": ("b", "p", "s", "d", "g"),
    "aten::cudnn_convolution": ("p", "s", "d", "g", True, False, True),
    "aten::cudnn_convolution_relu": ("b", "s", "p", "d", "g"),
    "aten::miopen_convolution": ("b", "p", "s", "d", "g", True, False),
    "aten::_convolution": ("b", "s", "p", "d", False, (0, 0), "g", True, False, True, True),
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_backend_has_the_same_product(name):
    values = {"b": None, "s": (2, 1), "p": (1, 0), "d": (1, 2), "g": 2}
    signature = Signature(
        name, (TensorArg((3, 4, 9, 8)), TensorArg((6, 2, 3, 2)), *(values.get(field, field) for field in SCHEMAS[name]))
    )
    out = functional.conv2d(torch.empty(3, 4, 9, 8), torch.empty(6, 2, 3, 2), None, (2, 1), (1, 0), (1, 2), 2)
    assert count(signature).work.matrix_flops == 2 * out.numel() * 2 * 6


def test_text_padding_is_left_to_the_convolution_inside():
    same = Signature("aten::conv2d", (TensorArg((1, 3, 8, 8)), TensorArg((5, 3, 3, 3)), None, (1, 1), None, (1, 1), 1))
    assert count(same).kind == "composite"


def test_a_stride_that_was_not_recorded_is_not_guessed():
    old = Signature("aten::conv2d", (TensorArg((1, 3, 8, 8)), TensorArg((5, 3, 3, 3)), *[MISSING] * 5))
    assert (count(old).kind, count(old).reason) == ("unknown", "argument 'padding' not recorded")


def test_an_image_without_a_batch():
    with_batch, without = convolution((1, 3, 8, 8), (5, 3, 3, 3)), convolution((3, 8, 8), (5, 3, 3, 3))
    assert count(with_batch).work == count(without).work


def positions(extent, kernel, stride, padding, dilation, outputs):
    """Input position of each (output, tap) pair of one dimension, those in the padding left out."""
    places = [[out * stride - padding + tap * dilation for tap in range(kernel)] for out in range(outputs)]
    return [[place for place in row if 0 <= place < extent] for row in places]


small = st.integers(1, 3)


@given(extent=st.integers(1, 30), kernel=st.integers(1, 6), stride=st.integers(1, 8), padding=st.integers(0, 4), dilation=small)
def test_touched_positions_are_those_that_the_windows_cover(extent, kernel, stride, padding, dilation):
    outputs = (extent + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
    assume(outputs > 0)
    covered = {place for row in positions(extent, kernel, stride, padding, dilation, outputs) for place in row}
    assert touched(extent, kernel, stride, padding, dilation, outputs) == len(covered)


@st.composite
def shapes(draw):
    rank = draw(small)
    groups = draw(small)
    kernel = tuple(draw(small) for _ in range(rank))
    stride, padding, dilation = draw(small), draw(st.integers(0, 2)), draw(st.integers(1, 2))
    spatial = tuple(draw(st.integers(1, 6)) + dilation * (extent - 1) for extent in kernel)
    return rank, draw(small), groups, draw(small), draw(small), kernel, spatial, stride, padding, dilation


# A convolution of ones with ones counts: each output is the number of products summed into it.


@settings(deadline=None)
@given(shapes())
def test_macs_are_what_a_convolution_of_ones_counts(drawn):
    rank, batch, groups, per_group_in, per_group_out, kernel, spatial, stride, padding, dilation = drawn
    inputs, weight = (batch, groups * per_group_in, *spatial), (groups * per_group_out, per_group_in, *kernel)
    run = (functional.conv1d, functional.conv2d, functional.conv3d)[rank - 1]
    padded = functional.pad(torch.ones(inputs), (padding, padding) * rank, value=1.0)
    counted = run(padded, torch.ones(weight), None, stride, 0, dilation, groups)
    work = count(convolution(inputs, weight, stride, padding, dilation, groups=groups)).work
    assert work.matrix_flops == 2 * int(counted.sum())
    assert work.bytes_written == 4 * counted.numel()


@settings(deadline=None)
@given(shapes(), st.integers(0, 2))
def test_transposed_macs_are_what_a_convolution_of_ones_counts(drawn, output_padding):
    rank, batch, groups, per_group_in, per_group_out, kernel, spatial, stride, padding, dilation = drawn
    assume(output_padding < max(stride, dilation))
    inputs, weight = (batch, groups * per_group_in, *spatial), (groups * per_group_in, per_group_out, *kernel)
    run = (functional.conv_transpose1d, functional.conv_transpose2d, functional.conv_transpose3d)[rank - 1]
    uncropped = run(torch.ones(inputs), torch.ones(weight), None, stride, 0, 0, groups, dilation)
    extents = [(n - 1) * stride - 2 * padding + dilation * (k - 1) + output_padding + 1 for n, k in zip(spatial, kernel, strict=True)]
    assume(min(extents) > 0)
    cropped = run(torch.ones(inputs), torch.ones(weight), None, stride, padding, output_padding, groups, dilation)
    work = count(convolution(inputs, weight, stride, padding, dilation, True, output_padding, groups)).work
    assert work.matrix_flops == 2 * int(uncropped.sum())
    assert work.bytes_written == 4 * cropped.numel()


@given(shapes())
def test_the_input_gradient_is_the_transposed_convolution(drawn):
    _, batch, groups, per_group_in, per_group_out, kernel, spatial, stride, padding, dilation = drawn
    inputs, weight = (batch, groups * per_group_in, *spatial), (groups * per_group_out, per_group_in, *kernel)
    forward = convolution(inputs, weight, stride, padding, dilation, groups=groups)
    out = tuple((n + 2 * padding - dilation * (k - 1) - 1) // stride + 1 for n, k in zip(spatial, kernel, strict=True))
    grad = (batch, groups * per_group_out, *out)
    by_backward = count(backward(forward, grad, (True, False, False))).work
    # the transposed weight is the same tensor: [in', out' / groups, k] with in' = the forward's out
    by_transpose = count(convolution(grad, weight, stride, padding, dilation, True, 0, groups)).work
    assert by_backward.matrix_flops == by_transpose.matrix_flops
