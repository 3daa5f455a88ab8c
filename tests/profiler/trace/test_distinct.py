"""Distinct numbers and rows are those of ``numpy.unique``, whichever way they are found."""

import numpy as np
import pytest

from rooflines.profiler.trace.distinct import distinct, distinct_rows

RANGES = pytest.mark.parametrize("most", [1, 3, 100, 1 << 40, (1 << 63) - 1], ids=str)
LENGTHS = pytest.mark.parametrize("length", [0, 1, 2, 257])


def column(length, most, seed=0):
    return np.random.default_rng(seed).integers(-most, most, length)


@RANGES
@LENGTHS
def test_numbers(length, most):
    values = column(length, most)
    found, which = distinct(values)
    assert found.tolist() == sorted(set(values.tolist()))
    assert found[which].tolist() == values.tolist()


@RANGES
@LENGTHS
def test_rows(length, most):
    columns = (column(length, most), column(length, 2, seed=1).astype(np.int32), column(length, 5, seed=2).astype(np.int8))
    rows, which = distinct_rows(*columns)
    expected = list(zip(*(one.tolist() for one in columns), strict=True))
    assert [tuple(row) for row in rows.tolist()] == sorted(set(expected))
    assert [tuple(row) for row in rows[which].tolist()] == expected
    assert rows.shape[1] == 3


def test_truth_values():
    assert distinct(np.array([True, False, True]))[0].tolist() == [0, 1]
