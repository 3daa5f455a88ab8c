"""Reductions and scans: FLOPs an element, results by dimension and dtype."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rooflines.profiler.read.signature import MISSING
from rooflines.roofline.count.formulas import Work
from tests.roofline.formulas.by_hand import reason, tensor, work

X = tensor(4, 5, 6)
COUNT = 120
COMPLEX = tensor(4, 5, 6, dtype="complex64")
INTEGERS = tensor(4, 5, 6, dtype="int32")
FLOAT64 = 7
INT64 = 4


@given(st.lists(st.integers(1, 6), min_size=1, max_size=4), st.data())
def test_a_sum_over_any_dimensions(shape, data):
    axes = data.draw(st.lists(st.integers(-len(shape), len(shape) - 1), unique_by=lambda axis: axis % len(shape), min_size=1))
    kept = math.prod(extent for axis, extent in enumerate(shape) if axis not in {axis % len(shape) for axis in axes})
    total = math.prod(shape)
    assert work("sum", tensor(*shape), tuple(axes), False, None) == Work(0, total, 4 * total, 4 * kept, "fp32")
    assert work("sum", tensor(*shape), None) == Work(0, total, 4 * total, 4, "fp32")


@pytest.mark.parametrize(
    ("name", "args", "written"),
    [
        ("sum", (INTEGERS, None), 8),  # integers are summed as int64
        ("sum", (X, (0,), False, FLOAT64), 8 * 30),
        ("sum", (X, None, tensor(dtype="float64")), 8),  # out=
        ("nansum", (X, (1,), False, FLOAT64), 8 * 24),
        ("var_mean", (COMPLEX, (2,), 1, False), (4 + 8) * 20),
        ("max", (X, 1, False, tensor(4, 6), tensor(4, 6, dtype="int64")), (4 + 8) * 24),
        ("linalg_vector_norm", (X, 2, (0,), False, FLOAT64), 8 * 30),
        ("norm", (X, 2, FLOAT64), 8),
        ("cumsum", (INTEGERS, 0, INT64), 8 * COUNT),
        ("cumsum_", (INTEGERS, 0, None), 4 * COUNT),
        ("_softmax", (tensor(3, 4, dtype="float16"), 1, True), 4 * 12),  # half to float
        ("_masked_softmax", (X, tensor(4, 5, 6, dtype="bool"), 1, 2), 4 * COUNT),
        ("_softmax_backward_data", (tensor(3, 4), tensor(3, 4), 1, 5), 2 * 12),  # the gradient of float16 data
    ],
)
def test_results(name, args, written):
    assert work(name, *args).bytes_written == written


@pytest.mark.parametrize(
    ("name", "args", "each"),
    [
        ("sum", (COMPLEX, None), 2),
        ("prod", (COMPLEX, None), 6),
        ("mean", (COMPLEX, None), 2),
        ("var", (COMPLEX, None, 1, False), 8),
        ("cumsum", (COMPLEX, 0, None), 2),
        ("cumprod", (COMPLEX, 0, None), 6),
        ("linalg_vector_norm", (X, 2, None, False, None), 2),
        ("linalg_vector_norm", (X, 1, None, False, None), 2),
        ("linalg_vector_norm", (X, math.inf, None, False, None), 2),
        ("linalg_vector_norm", (X, 3, None, False, None), 23),  # a power, an absolute value, a sum
        ("renorm", (X, 2, 0, 1.0), 3),
        ("allclose", (X, X, 1e-5, 1e-8, False), 6),
        ("cummin", (X, 1), 1),
        ("segment_reduce", (X, "sum", tensor(2, dtype="int64"), None, None, 0, False, None), 1),
    ],
)
def test_flops_an_element(name, args, each):
    assert work(name, *args).other_flops == each * COUNT


def test_a_maximum_of_two_is_element_wise_unless_the_second_is_the_result():
    assert work("max", X, X) == Work(0, COUNT, 8 * COUNT, 4 * COUNT, "fp32")
    assert work("max", X, tensor(), outputs=(tensor(),)) == Work(0, COUNT, 4 * COUNT, 4, "fp32")


def test_tensors_of_different_shapes_are_not_compared():
    assert work("equal", X, tensor(4, 5)) == Work()
    assert work("equal", X, X) == Work(0, COUNT, 8 * COUNT, 0, "fp32")


def test_only_extrema_of_segments_need_the_data_for_their_gradient():
    lengths = tensor(2, dtype="int64")
    grad = tensor(2, 5, 6)
    summed = work("_segment_reduce_backward", grad, grad, X, "sum", lengths, None, 0, None)
    largest = work("_segment_reduce_backward", grad, grad, X, "max", lengths, None, 0, None)
    assert (summed.bytes_read, largest.bytes_read) == (4 * 60 + 16, 4 * 60 + 16 + 4 * 60 + 4 * COUNT)
    assert reason("_segment_reduce_backward", grad, grad, X, MISSING, lengths, None, 0, None) == "argument 'reduce' not recorded"


def test_dimensions_that_were_not_recorded_are_not_guessed():
    assert reason("sum", X, MISSING, MISSING, MISSING) == "argument 'dim' not recorded"
    assert reason("linalg_vector_norm", X, 2, MISSING, MISSING, MISSING) == "argument 'dim' not recorded"
