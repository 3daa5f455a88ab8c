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
        ("sum", (X, None, tensor(dtype="float64")), 8),  # out=
        ("var_mean", (COMPLEX, (2,), 1, False), (4 + 8) * 20),
        ("max", (X, 1, False, tensor(4, 6), tensor(4, 6, dtype="int64")), (4 + 8) * 24),
        ("max", (X, tensor()), 4 * COUNT),  # of two, if the second is not the result
        ("norm", (X, 2, FLOAT64), 8),
        ("cumsum", (INTEGERS, 0, INT64), 8 * COUNT),
        ("cumsum_", (INTEGERS, 0, None), 4 * COUNT),
        ("_softmax", (tensor(3, 4, dtype="float16"), 1, True), 4 * 12),  # half to float
        ("_softmax_backward_data", (tensor(3, 4), tensor(3, 4), 1, 5), 2 * 12),  # the gradient of float16 data
    ],
)
def test_results(name, args, written):
    assert work(name, *args).bytes_written == written


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
