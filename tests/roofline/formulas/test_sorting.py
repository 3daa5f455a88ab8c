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


def test_selection_compares_once():
    assert work("topk", X, 5, -1, True, True) == Work(0, 600, 2400, 6 * 5 * 12, "fp32")
    assert work("kthvalue", X, 5, 0, False) == Work(0, 600, 2400, 100 * 12, "fp32")
    assert work("median", X) == Work(0, 600, 2400, 4, "fp32")
    assert work("median", X, 1, False) == Work(0, 600, 2400, 6 * 12, "fp32")
    assert work("nanmedian", X, 1, False).other_flops == 1200


def test_a_mode_sorts_and_counts():
    assert work("mode", X, -1, False) == Work(0, 600 * (7 + 1), 2400, 6 * 12, "fp32")


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


def test_few_test_elements_are_compared_directly_and_many_sorted():
    # 10 * 600 ** 0.145 is 25: below it every element meets every test element
    assert work("isin", X, tensor(10), False, False) == Work(0, 6000, 2400 + 40, 600, "fp32")
    assert work("isin", X, tensor(100), False, False).other_flops == 700 * (10 + 1)
    assert work("isin", X, 3.0, False, False).other_flops == 600


def test_histograms():
    assert work("histc", X, 10, 0, 1) == Work(0, 4 * 600, 2400, 40, "fp32")
    assert work("histc", X, 10, 0, 0).other_flops == 6 * 600  # the range is looked for
    assert work("histogram", X, 10, None, None, False) == Work(0, 4 * 600, 2400, 40 + 44, "fp32")
    # 9 edges: a search of four steps and a count
    assert work("histogram", X, tensor(9), X, False) == Work(0, 5 * 600, 4800 + 36, 32 + 36, "fp32")
    assert work("_histogramdd_from_bin_cts", tensor(50, 2), (3, 4), None, None, False).bytes_written == 48
    assert work("_histogramdd_bin_edges", tensor(50, 2), (3, 4), None, None, False) == Work(0, 200 + 18, 400, 36, "fp32")


def test_a_row_that_was_not_recorded_is_not_guessed():
    assert reason("sort", X, MISSING, MISSING) == "argument 'dim' not recorded"
    assert reason("median", X, MISSING, MISSING) == "argument 'dim' not recorded"
