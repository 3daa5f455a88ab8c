"""Calls whose strides, dimensions and sizes nobody recorded, counted from their tensors: the same as with them."""

from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st

from rooflines.profiler.read.signature import MISSING, Signature
from rooflines.roofline.count.formulas import Work, count
from rooflines.roofline.count.formulas.convolution import output_size, transposed_output_size
from tests.roofline.formulas.by_hand import reason, tensor, work

UNKNOWN = (MISSING,) * 6  # stride, padding, dilation, transposed, output_padding, groups
SIZES = st.integers(1, 6)


@given(SIZES, SIZES, SIZES, st.integers(1, 3), st.integers(6, 12), st.integers(1, 4), st.integers(1, 3), st.booleans())
def test_a_convolution_from_the_shape_of_its_output(batch, inputs, outputs, groups, extent, kernel, stride, is_transposed):
    """Where its windows leave nothing out; padding is at most half of a window."""
    padding = (kernel - 1) // 2
    shape = transposed_output_size if is_transposed else output_size
    out = shape(extent, kernel, stride, padding, 1, *((0,) if is_transposed else ()))
    last = (out - 1) * stride + kernel - padding
    assume(out > 0 and (is_transposed or (kernel >= stride and last >= extent)))
    channels, made = inputs * groups, outputs * groups
    weight = tensor(channels, outputs, kernel, kernel) if is_transposed else tensor(made, inputs, kernel, kernel)
    images, maps = tensor(batch, channels, extent, extent), tensor(batch, made, out, out)
    rest = ((stride,) * 2, (padding,) * 2, (1, 1), is_transposed, (0, 0), groups)
    expected = work("convolution", images, weight, None, *rest)
    told = (*UNKNOWN[:3], is_transposed, *UNKNOWN[4:])
    assert work("convolution", images, weight, None, *told, outputs=(maps,)) == expected
    neither = count(Signature("aten::convolution", (images, weight, None, *UNKNOWN)), outputs=(maps,)).work
    assert neither is None or neither.matrix_flops == expected.matrix_flops
    gradients = work("convolution_backward", maps, images, weight, None, *rest, (True, True, False))
    assert work("convolution_backward", maps, images, weight, None, *told, (True, True, False)) == gradients


def test_windows_of_one_element_read_as_many_positions():
    found = work("cudnn_convolution", tensor(2, 8, 56, 56), tensor(16, 8, 1, 1), *UNKNOWN[:4], outputs=(tensor(2, 16, 28, 28),))
    assert found == Work(2 * 2 * 16 * 28 * 28 * 8, 0, 4 * (2 * 8 * 28 * 28 + 128), 4 * 2 * 16 * 28 * 28, "fp32")


def test_a_convolution_that_may_be_either_way_round_is_not_counted():
    images, weight = tensor(2, 8, 14, 14), tensor(8, 8, 3, 3)
    signature = Signature("aten::convolution", (images, weight, None, *UNKNOWN))
    assert count(signature, outputs=(tensor(2, 8, 28, 28),)).reason == "argument 'transposed' not recorded"
    assert count(signature, outputs=(tensor(2, 8, 14, 14),)).kind == "counted"


def test_an_output_that_does_not_fit_is_not_counted():
    signature = Signature("aten::cudnn_convolution", (tensor(2, 8, 14, 14), tensor(16, 8, 3, 3), *UNKNOWN[:4]))
    for shape in ((3, 16, 14, 14), (2, 15, 14, 14), (16, 14, 14)):
        assert count(signature, outputs=(tensor(*shape),)).reason.startswith("the shape of the output does not fit")


def test_results_tell_what_a_reduction_or_an_adaptive_pooling_writes():
    images = tensor(2, 8, 14, 14)
    assert work("mean", images, MISSING, MISSING, None, outputs=(tensor(2, 8, 1, 1),)) == work("mean", images, (2, 3), True, None)
    assert work("linalg_vector_norm", images, 2, MISSING, MISSING, None, outputs=(tensor(2),)) == work(
        "linalg_vector_norm", images, 2, (1, 2, 3), False, None
    )
    pooled = work("_adaptive_avg_pool2d", images, (3, 3))
    assert work("_adaptive_avg_pool2d", images, MISSING, outputs=(tensor(2, 8, 3, 3),)) == pooled
    assert reason("mean", images, MISSING, MISSING, None) == "argument 'dim' not recorded"


def test_a_joined_list_that_nobody_recorded_is_as_large_as_its_result():
    assert work("cat", (), MISSING, outputs=(tensor(10, 8),)) == Work(bytes_read=320, bytes_written=320)


def test_parameters_have_the_shape_that_a_layer_norm_normalizes():
    rows, parameter, statistics = tensor(32, 64), tensor(64), tensor(32, 1)
    assert work("native_layer_norm", rows, MISSING, parameter, parameter, 1e-5) == work(
        "native_layer_norm", rows, (64,), parameter, parameter, 1e-5
    )
    given_all = (rows, rows, (64,), statistics, statistics, parameter, parameter, (True, True, True))
    assert work("native_layer_norm_backward", *given_all[:2], MISSING, *given_all[3:]) == work("native_layer_norm_backward", *given_all)


def test_a_softmax_backward_of_torch_1_9_is_given_the_input_for_its_dtype():
    rows = tensor(32, 10)
    assert work("_log_softmax_backward_data", rows, rows, 1, rows) == work("_log_softmax_backward_data", rows, rows, 1, 6)
