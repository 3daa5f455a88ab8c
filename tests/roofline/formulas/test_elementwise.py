"""Element-wise operators: FLOPs a result by hand, results by broadcasting, complex numbers, and numbers that are no tensors."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rooflines.profiler.read.signature import Signature
from rooflines.roofline.count.formulas import Work, count
from tests.roofline.formulas.by_hand import tensor, work

X = tensor(3, 5)
COUNT = 15
COMPLEX = tensor(3, 5, dtype="complex64")


@pytest.mark.ci
@given(st.lists(st.integers(1, 6), min_size=1, max_size=4), st.data())
def test_two_operands_are_stretched_to_one_result(shape, data):
    flat = [data.draw(st.sampled_from((1, extent))) for extent in shape]
    skipped = data.draw(st.integers(0, len(shape) - 1))
    found = work("mul", tensor(*shape), tensor(*flat[skipped:]))
    results = math.prod(shape)
    assert found.other_flops == results
    assert (found.bytes_read, found.bytes_written) == (4 * results + 4 * math.prod(flat[skipped:]), 4 * results)


@pytest.mark.parametrize(
    ("name", "args", "each"),
    [
        ("hypot", (X, X), 4),  # two products, a sum, a root
        ("atan2", (X, X), 14),
        ("xlogy", (X, X), 11),
        ("logaddexp", (X, X), 24),
        ("lgamma", (X,), 40),
        ("special_bessel_j0", (X,), 40),
        ("special_chebyshev_polynomial_t", (X, 3), 21),
        ("special_log_ndtr", (X,), 33),
        ("special_zeta", (X, X), 9 * 22 + 36),
        ("igamma", (X, X), 100),
        ("polygamma", (0, X), 40),
        ("polygamma", (2, X), 234 + 40 + 2),
        ("mvlgamma", (X, 3), 3 * 42),
        ("ldexp", (X, X), 11),
        ("nextafter", (X, X), 1),
        ("frexp", (X,), 2),
        ("isclose", (X, X, 1e-5, 1e-8, False), 6),
        ("_add_relu", (X, X, 1), 2),
        ("_add_relu", (X, X, 2), 3),
        ("log_sigmoid_forward", (X,), 22),
        ("log_sigmoid_backward", (X, X, X), 14),
        ("_prelu_kernel", (X, tensor(5)), 2),
        ("_prelu_kernel_backward", (X, X, tensor(5)), 3),
        ("polar", (X, X), 22),
        ("complex", (X, X), 0),
        ("div", (X, X, "floor"), 2),
        ("where", (tensor(3, 5, dtype="bool"), X, X), 1),
        ("threshold_backward", (X, X, 0), 1),
        ("sigmoid_backward", (X, X), 3),
    ],
)
def test_flops_a_result(name, args, each):
    assert work(name, *args).other_flops == each * COUNT


def test_both_forms_of_gelu_cost_the_same_because_traces_do_not_tell_them_apart():
    assert work("gelu", X, "tanh") == work("gelu", X, None) == work("gelu", X, "none")


@pytest.mark.parametrize(("exponent", "each"), [(2, 1), (2.0, 1), (3, 2), (0.5, 1), (-0.5, 1), (-1, 1), (-2, 2), (1.7, 21), (X, 21)])
def test_easy_powers_need_no_logarithm(exponent, each):
    assert work("pow", X, exponent).other_flops == each * COUNT


@pytest.mark.parametrize(
    ("name", "others", "each"),
    [
        ("add", (COMPLEX, 1), 2),
        ("sub", (COMPLEX, 2), 2 + 6),
        ("mul", (COMPLEX,), 6),
        ("div", (COMPLEX,), 11),
        ("neg", (), 2),
        ("abs", (), 4),
        ("reciprocal", (), 6),
        ("sqrt", (), 10),
        ("exp", (), 32),
        ("sigmoid", (), 32 + 3 * 6),  # 1 / (1 + exp(-x))
        ("pow", (COMPLEX,), 2 * 32 + 6),
        ("addcmul", (COMPLEX, COMPLEX, 1), 6 + 6 + 2),
        ("eq", (COMPLEX,), 3),
        ("angle", (), 14),
    ],
)
def test_complex_numbers(name, others, each):
    found = work(name, COMPLEX, *others)
    assert (found.other_flops, found.precision) == (each * COUNT, "fp32")


@pytest.mark.parametrize(("number", "dtype"), [(2.0, "float64"), (2, "int64"), (2j, "complex128"), (True, "bool")])
def test_a_number_costs_no_bytes_whether_it_is_one_or_looks_like_a_tensor(number, dtype):
    seen_by_a_trace, seen_by_a_recording = work("mul", X, tensor(dtype=dtype)), work("mul", X, number)
    assert seen_by_a_trace == seen_by_a_recording
    assert seen_by_a_trace.bytes_read == 4 * COUNT


def test_numbers_alone_are_what_a_trace_shows_of_them():
    division = Work(other_flops=2, bytes_read=8, bytes_written=8)  # one number is read where nothing has dimensions
    assert work("div", 7, 2, "trunc") == work("div", tensor(dtype="int64"), tensor(dtype="int64"), None) == division


def test_where_without_values_is_what_it_calls():
    assert count(Signature("aten::where", (tensor(3, dtype="bool"),))).kind == "composite"


def test_a_tensor_without_dimensions_is_one_where_no_number_can_be():
    assert work("mul", X, tensor()).bytes_read == 4 * COUNT + 4  # a number would be float64
    assert work("mul", tensor(dtype="int64"), tensor(dtype="int64")).bytes_read == 8  # the first of them is a tensor
    assert work("where", tensor(dtype="bool"), X, X).bytes_read == 8 * COUNT + 1  # a condition is never a number


def test_a_cpu_keeps_a_buffer_of_log_sigmoid_and_a_gpu_none():
    cpu, gpu = work("log_sigmoid_forward", X, outputs=(X, X)), work("log_sigmoid_forward", X, outputs=(X, tensor(0)))
    assert (cpu.bytes_written, gpu.bytes_written) == (8 * COUNT, 4 * COUNT)
    allocated = count(Signature("aten::log_sigmoid_forward", (X,)), output_bytes=4 * COUNT)
    assert allocated.work == gpu


def test_rrelu_draws_slopes_in_training_only():
    trained, evaluated = work("rrelu_with_noise", X, X, 0.1, 0.3, True, None), work("rrelu_with_noise", X, X, 0.1, 0.3, False, None)
    assert trained == Work(0, 4 * COUNT, 4 * COUNT, 8 * COUNT, "fp32")  # noise is written, not read
    assert evaluated == Work(0, 2 * COUNT, 4 * COUNT, 4 * COUNT, "fp32")
    assert work("rrelu_with_noise_backward", X, X, X, 0.1, 0.3, True, False).other_flops == COUNT


def test_conjugating_in_place_leaves_real_numbers_alone():
    assert work("conj_physical_", X) == Work()
    assert work("conj_physical_", COMPLEX).other_flops == COUNT


IMAGES, CHANNEL = tensor(2, 8, 6, 6), tensor(8)


@pytest.mark.parametrize(
    ("name", "args", "cost"),
    [
        ("add", (IMAGES, IMAGES, 1), 1),
        ("add", (IMAGES, IMAGES, 0.1), 2),  # alpha multiplies
        ("relu_", (IMAGES,), 1),
        ("div", (IMAGES, IMAGES), 1),
        ("sqrt", (IMAGES,), 1),
        ("pow", (IMAGES, 2), 1),
        ("pow", (IMAGES, 0.3), 21),
        ("exp", (IMAGES,), 10),
        ("sigmoid", (IMAGES,), 13),
        ("silu", (IMAGES,), 14),
        ("gelu", (IMAGES, None), 24),
        ("hardswish", (IMAGES,), 5),
        ("clamp", (IMAGES, 0, 6), 2),
        ("addcdiv_", (IMAGES, IMAGES, IMAGES, -0.1), 3),
        ("_softmax", (IMAGES, 1, False), 14),
        ("sum", (IMAGES, None), 1),
        ("var", (IMAGES, (1,), 1, False), 4),
        ("batch_norm", (IMAGES, CHANNEL, CHANNEL, CHANNEL, CHANNEL, True, 0.1, 1e-5, True), 6),
        ("batch_norm", (IMAGES, CHANNEL, CHANNEL, CHANNEL, CHANNEL, False, 0.1, 1e-5, True), 2),
        ("layer_norm", (IMAGES, (6,), tensor(6), tensor(6), 1e-5, True), 8),
        ("layer_norm", (IMAGES, (6,), None, None, 1e-5, True), 6),
        ("rms_norm", (IMAGES, (6,), tensor(6), None), 4),
        ("adaptive_avg_pool2d", (IMAGES, (1, 1)), 1),
        ("dropout", (IMAGES, 0.5, True), 2),
    ],
)
def test_cost_an_element_of_an_image(name, args, cost):
    found = work(name, *args)
    assert (found.matrix_flops, found.other_flops, found.precision) == (0, cost * IMAGES.numel, "fp32")
