"""Sorting, selection, search, sets and histograms."""

from __future__ import annotations

from math import ceil, log2

from hypothesis import given
from hypothesis import strategies as st

from rooflines.profiler.read.signature import MISSING, Signature
from rooflines.roofline.count.formulas import Work, count
from tests.roofline.formulas.by_hand import reason, tensor, work

X = tensor(6, 100)


@given(st.integers(1, 9), st.integers(1, 300))
def test_a_sort_takes_n_log_n_compares_a_row(rows, length):
    found = work("sort", tensor(rows, length), -1, False)
    steps = next(step for step in range(10) if 2**step >= length)  # log2, rounded up
    assert found == Work(0, rows * length * steps, 4 * rows * length, 12 * rows * length, "fp32")
    assert work("sort", tensor(rows, length), None, 1, False) == found  # sort.stable
    assert work("sort", tensor(length, rows), 0, False).other_flops == found.other_flops


def test_sets_need_to_know_their_size():
    assert reason("_unique2", X, True, False, False) == "output size not recorded"
    distinct = (tensor(40), tensor(0, dtype="int64"), tensor(0, dtype="int64"))
    assert work("_unique2", X, True, False, False, outputs=distinct) == Work(0, 600 * (10 + 1), 2400, 160, "fp32")
    assert work("unique_consecutive", X, False, False, None, outputs=distinct).other_flops == 600
    rows = work("unique_dim", X, 0, True, False, False, outputs=(X,))
    assert rows.other_flops == 600 * (3 + 1)  # six rows, sorted
    assert count(Signature("aten::_unique2", (X, True, False, False)), output_bytes=160).work == work(
        "_unique2", X, True, False, False, outputs=distinct
    )


@given(st.integers(1, 400), st.integers(1, 5000))
def test_a_search_looks_at_as_many_elements_as_it_takes_steps(values, length):
    steps = ceil(log2(length + 1))
    found = work("searchsorted", tensor(length), tensor(values), False, False, None, None)
    assert (found.other_flops, found.bytes_read) == (values * steps, 4 * values + 4 * min(length, values * steps))
    assert found.bytes_written == 8 * values
    assert work("bucketize", tensor(values), tensor(length), True, False).bytes_written == 4 * values
    assert work("bucketize", 0.5, tensor(length), False, False).other_flops == steps


def test_a_row_that_was_not_recorded_is_not_guessed():
    assert reason("sort", X, MISSING, MISSING) == "argument 'dim' not recorded"
    assert reason("median", X, MISSING, MISSING) == "argument 'dim' not recorded"
