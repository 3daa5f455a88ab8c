"""Interval arithmetic against the plain definition: a set of whole nanoseconds."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rooflines.profiler.trace import intervals

PAIRS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=10)


def made(pairs):
    table = np.array(pairs, np.int64).reshape(-1, 2)
    return intervals.union(table[:, 0], table[:, 1])


def points(found):
    return {point for start, end in found.tolist() for point in range(start, end)}


def naive(pairs):
    return {point for start, end in pairs for point in range(start, end)}


@given(PAIRS)
def test_union_is_the_set_of_points_sorted_and_disjoint(pairs):
    found = made(pairs)
    assert points(found) == naive(pairs)
    assert intervals.length(found) == len(naive(pairs))
    assert all(end < start for (_, end), (start, _) in zip(found.tolist(), found.tolist()[1:], strict=False))


@given(PAIRS, PAIRS)
def test_intersect_subtract_and_merge_are_set_operations(left, right):
    a, b = made(left), made(right)
    assert points(intervals.intersect(a, b)) == naive(left) & naive(right)
    assert points(intervals.subtract(a, b)) == naive(left) - naive(right)
    assert points(intervals.merge(a, b)) == naive(left) | naive(right)
