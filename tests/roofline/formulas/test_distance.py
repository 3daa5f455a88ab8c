"""Distances between rows."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rooflines.roofline.count.formulas import Work
from tests.roofline.formulas.by_hand import tensor, work

sizes = st.integers(1, 8)


@given(sizes, sizes, sizes, sizes)
def test_every_row_against_every_other(batch, rows, others, width):
    left, right = tensor(batch, rows, width), tensor(1, others, width)
    pairs = batch * rows * others
    read = 4 * (left.numel + right.numel)
    assert work("_cdist_forward", left, right, 2.0, 2) == Work(0, 3 * pairs * width, read, 4 * pairs, "fp32")
    assert work("_cdist_forward", left, right, 3.0, 2).other_flops == (1 + 23) * pairs * width
    product = work("_euclidean_dist", left, right)
    assert (product.matrix_flops, product.bytes_read, product.bytes_written) == (2 * pairs * (width + 2), read, 4 * pairs)
    distances = tensor(batch, rows, others)
    back = work("_cdist_backward", distances, left, right, 2.0, distances)
    assert back == Work(0, 4 * pairs * width, read + 8 * pairs, 4 * left.numel, "fp32")
    assert work("_cdist_backward", distances, left, right, 1.0, distances).bytes_read == read + 4 * pairs


@given(st.integers(2, 9), sizes)
def test_every_pair_of_rows_once(rows, width):
    pairs = rows * (rows - 1) // 2
    assert work("_pdist_forward", tensor(rows, width), 2.0) == Work(0, 3 * pairs * width, 4 * rows * width, 4 * pairs, "fp32")
    back = work("_pdist_backward", tensor(pairs), tensor(rows, width), 2.0, tensor(pairs))
    assert back == Work(0, 5 * pairs * width, 8 * pairs + 4 * rows * width, 4 * rows * width, "fp32")


def test_one_distance():
    assert work("dist", tensor(3, 4), tensor(4), 2) == Work(0, 36, 64, 4, "fp32")
