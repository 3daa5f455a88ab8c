"""Interval arithmetic against the plain definition: a set of whole nanoseconds."""

import numpy as np
import pytest
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


@pytest.mark.parametrize(("groups", "latest"), [(1, 10), (7, 1_000), (50, 1 << 50), (60, 1 << 57), (3, 1 << 61)])
def test_unions_of_many_groups_are_those_of_each(groups, latest):
    """Also where the numbers of all groups together do not fit into 62 bits."""
    random = np.random.default_rng(groups)
    group, starts = random.integers(0, groups, 300), random.integers(0, latest, 300)
    ends = starts + random.integers(0, max(2, latest // 20), 300)
    expected = [intervals.length(intervals.union(starts[group == one], ends[group == one])) for one in range(groups)]
    assert intervals.lengths_by_group(group, starts, ends, groups).tolist() == expected


def test_unions_of_very_many_groups_take_one_pass():
    """A trace of hours has millions of pairs of a row and a step; a pass for each would never end."""
    group = np.arange(200_000)
    starts = group << 40
    assert intervals.lengths_by_group(group, starts, starts + 3, len(group)).sum() == 3 * len(group)


GROUPS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 40), st.integers(0, 40)), max_size=12)


@given(GROUPS)
def test_time_alone_is_that_in_which_no_other_group_runs(events):
    table = np.array(events, np.int64).reshape(-1, 3)
    every = {group: naive([(low, high) for one, low, high in events if one == group]) for group in range(4)}
    expected = [len(own - set().union(*(other for at, other in every.items() if at != group))) for group, own in every.items()]
    assert intervals.alone_by_group(table[:, 0], table[:, 1], table[:, 2], 4).tolist() == expected
