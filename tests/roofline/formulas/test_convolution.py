"""Convolutions: arithmetic by hand, an independent count by loops, and laws between forward and backward."""

from __future__ import annotations

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch.nn import functional

import rooflines
from rooflines.profiler.calls.signatures import call_signature
from rooflines.profiler.read.signature import MISSING, Signature, TensorArg
from rooflines.roofline.count.formulas import count
from rooflines.roofline.count.formulas.convolution import BACKWARD, BACKWARD_TRANSPOSED, FORWARD, TRANSPOSED
from rooflines.roofline.count.formulas.costs import GELU


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


@pytest.mark.parametrize(
    ("mask", "products", "bias"),
    [((True, True, True), 2, 1), ((False, True, True), 1, 1), ((True, False, False), 1, 0), ((False, False, False), 0, 0)],
)
def test_backward_costs_a_product_for_each_gradient_asked_for(mask, products, bias):
    forward = convolution((2, 6, 9, 9), (4, 6, 3, 3))
    work = count(backward(forward, (2, 4, 7, 7), mask)).work
    assert (work.matrix_flops, work.other_flops) == (products * count(forward).work.matrix_flops, bias * 2 * 4 * 7 * 7)
    assert work.bytes_written == 4 * (mask[0] * 2 * 6 * 81 + mask[1] * 4 * 6 * 9 + mask[2] * 4)


# The same convolution in the words of every backend; [3, 4, 9, 8] * [6, 2, 3, 2], transposed [3, 4, 9, 8] * [4, 3, 3, 2], 2 groups.
VALUES = {
    "padding": (1, 0), "stride": (2, 1), "dilation": (1, 2), "groups": 2, "output_padding": (0, 0), "transposed": False,
    "kernel_size": (3, 2), "attr": "none", "bias_defined": False,
}  # fmt: skip
REFERENCE = functional.conv2d(torch.empty(3, 4, 9, 8), torch.empty(6, 2, 3, 2), None, (2, 1), (1, 0), (1, 2), 2)
TRANSPOSED_REFERENCE = functional.conv_transpose2d(torch.empty(3, 4, 9, 8), torch.empty(4, 3, 3, 2), None, (2, 1), (1, 0), 0, 2, (1, 2))


def in_words(name, schema, transposed, **given):
    """The signature of this convolution under one operator's schema."""
    weight = (4, 3, 3, 2) if transposed else (6, 2, 3, 2)
    grad = TRANSPOSED_REFERENCE.shape if transposed else REFERENCE.shape
    tensors = {"self": (3, 4, 9, 8), "weight": weight, "grad": tuple(grad)}
    values = VALUES | {key: TensorArg(shape) for key, shape in tensors.items()}
    values |= {"self_size": (3, 4, 9, 8), "weight_size": weight, "output_mask": (True, True, False)} | given
    return Signature(name, tuple(values.get(field.partition("=")[0]) for field in schema.split()))


def grouped(table):
    """The backends of a table that know groups and dilation."""
    return sorted(name for name, schema in table.items() if "groups" in schema and "dilation" in schema)


@pytest.mark.parametrize("name", grouped(FORWARD))
def test_every_backend_has_the_same_product(name):
    found = count(in_words(name, FORWARD[name], False)).work
    assert (found.matrix_flops, found.bytes_written) == (2 * REFERENCE.numel() * 2 * 6, 4 * REFERENCE.numel())


@pytest.mark.parametrize("name", grouped(TRANSPOSED))
def test_every_backend_has_the_same_transposed_product(name):
    found = count(in_words(name, TRANSPOSED[name], True)).work
    assert (found.matrix_flops, found.bytes_written) == (2 * (3 * 4 * 9 * 8) * 3 * 6, 4 * TRANSPOSED_REFERENCE.numel())


@pytest.mark.parametrize("name", grouped(BACKWARD))
def test_every_backward_has_a_product_for_each_gradient(name):
    found = count(in_words(name, BACKWARD[name], False)).work
    # an operator that makes one gradient is given the sizes of it instead of what it belongs to
    alone = {field.partition("_size")[0] for field in BACKWARD[name].split()} & ({"self", "weight"} - set(BACKWARD[name].split()))
    elements = {"self": 3 * 4 * 9 * 8, "weight": 6 * 2 * 3 * 2}
    assert found.matrix_flops == (len(alone) or 2) * 2 * REFERENCE.numel() * 2 * 6
    assert found.bytes_written == 4 * sum(elements[key] for key in alone or elements)


@pytest.mark.parametrize("name", grouped(BACKWARD_TRANSPOSED))
def test_every_transposed_backward_has_a_product_for_each_gradient(name):
    schema = BACKWARD_TRANSPOSED[name]
    mask = (True, True) if "mps" in name else (True, True, False)
    found = count(in_words(name, schema, True, output_mask=mask)).work
    assert found.matrix_flops == (1 if "weight_size" in schema else 2) * 2 * (3 * 4 * 9 * 8) * 3 * 6


@pytest.mark.parametrize("backend", ["cudnn", "miopen"])
def test_the_input_gradient_of_a_transposed_convolution_needs_no_input(backend):
    grad, weight = TensorArg(tuple(TRANSPOSED_REFERENCE.shape)), TensorArg((4, 3, 3, 2))
    name = f"aten::{backend}_convolution_transpose_backward_input"
    found = count(Signature(name, (grad, weight, (1, 0), (2, 1), (1, 2), 2, True, False, True))).work
    assert (found.matrix_flops, found.bytes_written) == (2 * (3 * 4 * 9 * 8) * 3 * 6, 4 * 3 * 4 * 9 * 8)


def packet(name):
    """torch's own operator of this name, None where it has none."""
    namespace, _, plain = name.partition("::")
    found = getattr(getattr(torch.ops, namespace), plain, None)
    return found if isinstance(found, torch._ops.OpOverloadPacket) else None


SCHEMAS = {**FORWARD, **TRANSPOSED, **BACKWARD, **BACKWARD_TRANSPOSED}
RENAMED = {"input": "self", "X": "self", "W": "weight", "B": "bias", "z": "added", "grad_output": "grad"}


@pytest.mark.parametrize("name", sorted(name for name in SCHEMAS if packet(name)))
def test_schemas_begin_as_those_of_torch(name):
    ours = [field.partition("=")[0] for field in SCHEMAS[name].split()]
    schemas = [getattr(packet(name), overload)._schema for overload in packet(name).overloads()]
    theirs = [[RENAMED.get(argument.name, argument.name) for argument in schema.arguments] for schema in schemas]
    assert ours in [names[: len(ours)] for names in theirs], schemas


def test_fused_convolutions_of_compiled_code():
    inputs, weight, bias = torch.rand(2, 4, 9, 8), torch.rand(6, 4, 3, 2), torch.rand(6)
    other = functional.conv2d(inputs, weight, bias, 2, 1)
    window = ([1, 1], [2, 2], [1, 1], 1)
    ops = torch.ops.mkldnn
    unary = count(call_signature(ops._convolution_pointwise.default, (inputs, weight, bias, *window, "gelu", [], "none"), {})).work
    tail = ("add", None, "relu", [], None)
    binary = count(call_signature(ops._convolution_pointwise.binary, (inputs, other, weight, bias, *window, *tail), {})).work
    in_place = count(call_signature(ops._convolution_pointwise_.binary, (other, inputs, weight, bias, *window, *tail), {})).work
    products, results = 2 * other.numel() * 4 * 6, other.numel()
    assert (unary.matrix_flops, unary.other_flops) == (products, results * (1 + GELU))
    assert (binary.matrix_flops, binary.other_flops) == (products, results * (1 + 1 + 1))
    assert binary == in_place
    assert binary.bytes_read == unary.bytes_read + 4 * results
    args = (inputs, torch.rand(4, 6, 3, 2), bias, [1, 1], [0, 0], [2, 2], [1, 1], 1, "relu", [], "none")
    transposed = count(call_signature(ops._convolution_transpose_pointwise.default, args, {})).work
    assert transposed.matrix_flops == 2 * inputs.numel() * 6 * 6


def test_complex_convolutions_are_decomposed_into_real_ones():
    inputs, weight = torch.rand(1, 3, 8, 8, dtype=torch.complex64), torch.rand(5, 3, 3, 3, dtype=torch.complex64)
    found = rooflines.count(functional.conv2d, inputs, weight)
    assert found.matrix_flops == 3 * 2 * (5 * 6 * 6) * 27  # Gauss: three products of real numbers for one of complex ones
    assert "complex" in count(call_signature(torch.ops.aten.convolution.default,
                                             (inputs, weight, None, [1], [0], [1], False, [0], 1), {})).reason  # fmt: skip


def test_gradients_that_are_given_the_tensors_to_write_to_are_all_asked_for():
    inputs, grad, weight, bias = TensorArg((1, 3, 8, 8)), TensorArg((1, 5, 6, 6)), TensorArg((5, 3, 3, 3)), TensorArg((5,))
    call = (grad, inputs, weight, (3, 3), (1, 1), (0, 0))
    name = "aten::_slow_conv2d_backward"
    assert count(Signature(name, (*call, inputs, weight, bias))) == count(Signature(name, (*call, (True, True, True))))


def test_text_padding_is_left_to_the_convolution_inside():
    same = Signature("aten::conv2d", (TensorArg((1, 3, 8, 8)), TensorArg((5, 3, 3, 3)), None, (1, 1), None, (1, 1), 1))
    assert count(same).kind == "composite"


def test_a_stride_that_was_not_recorded_is_not_guessed():
    old = Signature("aten::conv2d", (TensorArg((1, 3, 8, 8)), TensorArg((5, 3, 3, 3)), *[MISSING] * 5))
    assert (count(old).kind, count(old).reason) == ("unknown", "argument 'padding' not recorded")


def test_an_image_without_a_batch():
    with_batch, without = convolution((1, 3, 8, 8), (5, 3, 3, 3)), convolution((3, 8, 8), (5, 3, 3, 3))
    assert count(with_batch).work == count(without).work


small = st.integers(1, 3)


@st.composite
def shapes(draw):
    rank = draw(small)
    groups = draw(small)
    kernel = tuple(draw(small) for _ in range(rank))
    stride, padding, dilation = draw(small), draw(st.integers(0, 2)), draw(st.integers(1, 2))
    spatial = tuple(draw(st.integers(1, 6)) + dilation * (extent - 1) for extent in kernel)
    return rank, draw(small), groups, draw(small), draw(small), kernel, spatial, stride, padding, dilation


# A convolution of ones with ones counts: each output is the number of products summed into it.


@settings(deadline=None, max_examples=30)
@given(shapes())
def test_macs_are_what_a_convolution_of_ones_counts(drawn):
    rank, batch, groups, per_group_in, per_group_out, kernel, spatial, stride, padding, dilation = drawn
    inputs, weight = (batch, groups * per_group_in, *spatial), (groups * per_group_out, per_group_in, *kernel)
    run = (functional.conv1d, functional.conv2d, functional.conv3d)[rank - 1]
    padded = functional.pad(torch.ones(inputs), (padding, padding) * rank, value=1.0)
    counted = run(padded, torch.ones(weight), None, stride, 0, dilation, groups)
    work = count(convolution(inputs, weight, stride, padding, dilation, groups=groups, bias=True)).work
    assert (work.matrix_flops, work.other_flops) == (2 * int(counted.sum()), counted.numel())
    assert work.bytes_written == 4 * counted.numel()


@settings(deadline=None, max_examples=30)
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
    assert (work.matrix_flops, work.bytes_written) == (2 * int(uncropped.sum()), 4 * cropped.numel())


@settings(deadline=None, max_examples=30)
@given(shapes())
def test_gradients_of_a_convolution_of_ones_count_the_same(drawn):
    """Each element of a gradient of ones is the number of products summed into it, padding included as taps of their own."""
    rank, batch, groups, per_group_in, per_group_out, kernel, spatial, stride, padding, dilation = drawn
    inputs, weight = (batch, groups * per_group_in, *spatial), (groups * per_group_out, per_group_in, *kernel)
    run = (functional.conv1d, functional.conv2d, functional.conv3d)[rank - 1]
    padded = functional.pad(torch.ones(inputs), (padding, padding) * rank, value=1.0).requires_grad_()
    filters = torch.ones(weight, requires_grad=True)
    out = run(padded, filters, None, stride, 0, dilation, groups)
    out.sum().backward()
    forward = convolution(inputs, weight, stride, padding, dilation, groups=groups)
    for asked, counted in (((True, False, False), padded.grad), ((False, True, False), filters.grad)):
        assert count(backward(forward, tuple(out.shape), asked)).work.matrix_flops == 2 * int(counted.sum())
    whole = count(backward(forward, tuple(out.shape), (True, True, True))).work
    assert whole.matrix_flops == 2 * int(padded.grad.sum() + filters.grad.sum())
    assert whole.other_flops == out.numel()  # the gradient summed for the bias


@settings(deadline=None, max_examples=30)
@given(shapes(), st.integers(0, 1))
def test_gradients_of_a_transposed_convolution_of_ones_count_the_same(drawn, output_padding):
    rank, batch, groups, per_group_in, per_group_out, kernel, spatial, stride, _, dilation = drawn
    assume(output_padding < max(stride, dilation))
    inputs, weight = (batch, groups * per_group_in, *spatial), (groups * per_group_in, per_group_out, *kernel)
    run = (functional.conv_transpose1d, functional.conv_transpose2d, functional.conv_transpose3d)[rank - 1]
    given, filters = torch.ones(inputs, requires_grad=True), torch.ones(weight, requires_grad=True)
    out = run(given, filters, None, stride, 0, output_padding, groups, dilation)
    out.sum().backward()
    forward = convolution(inputs, weight, stride, 0, dilation, True, output_padding, groups)
    for asked, counted in (((True, False, False), given.grad), ((False, True, False), filters.grad)):
        assert count(backward(forward, tuple(out.shape), asked)).work.matrix_flops == 2 * int(counted.sum())
