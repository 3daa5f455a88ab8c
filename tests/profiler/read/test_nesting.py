"""Nesting on whole columns, against a walk with a stack, event by event."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rooflines.profiler.read import intervals
from rooflines.profiler.read.nesting import innermost, nest, parents


def walk(threads, starts, ends):
    """Parent and clipped end of every event, by a stack."""
    above, clipped, stack, thread = [], list(ends), [], None
    for i, start in enumerate(starts):
        if threads[i] != thread:
            thread, stack = threads[i], []
        while stack and clipped[stack[-1]] <= start and not (clipped[stack[-1]] == start == clipped[i]):
            stack.pop()
        above.append(stack[-1] if stack else -1)
        if stack:
            clipped[i] = min(clipped[i], clipped[stack[-1]])
        stack.append(i)
    return above, clipped


events = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(0, 12)), max_size=40)


@given(events)
def test_nesting_is_that_of_a_walk(drawn):
    table = sorted(((thread, start, -(start + length)) for thread, start, length in drawn))
    threads, starts, ends = (np.array(column, np.int64) for column in (zip(*table, strict=True) if table else ([], [], [])))
    after, clipped = nest(threads, starts, -ends)
    above, expected = walk(threads.tolist(), starts.tolist(), (-ends).tolist())
    # An event that begins where its caller, clipped, has just ended is inside or beside it: no time is lost or counted twice by either.
    instant = {i for i in range(len(table)) if starts[i] == -ends[i]}
    if not instant:
        assert parents(after).tolist() == above
        assert clipped.tolist() == expected
    assert (clipped >= starts).all() or instant
    for i, caller in enumerate(parents(after).tolist()):
        assert caller < i
        assert caller < 0 or after[i] <= after[caller]
        assert clipped[i] == min(-ends[i], clipped[caller] if caller >= 0 else -ends[i])


@pytest.mark.ci
@given(events, st.lists(st.booleans(), min_size=40, max_size=40))
def test_the_innermost_chosen_event_is_the_first_on_the_way_up(drawn, choice):
    table = sorted(((thread, start, -(start + length)) for thread, start, length in drawn))
    threads, starts, ends = (np.array(column, np.int64) for column in (zip(*table, strict=True) if table else ([], [], [])))
    after, _ = nest(threads, starts, -ends)
    chosen = np.array(choice[: len(table)], bool)
    above = parents(after).tolist()
    expected = []
    for i in range(len(table)):
        at = i
        while at >= 0 and not chosen[at]:
            at = above[at]
        expected.append(at)
    assert innermost(chosen, after).tolist() == expected


@pytest.mark.ci
def test_depth_costs_nothing_and_a_chain_is_clipped_to_its_first():
    # Depth costs nothing.
    count = 100_000
    starts, ends = np.arange(count), 3 * count - np.arange(count)
    after, _ = nest(np.zeros(count, np.int64), starts, ends)
    assert parents(after).tolist() == list(range(-1, count - 1))
    # A chain of events that outlive their callers is clipped to the first.
    count = 1000
    starts, ends = np.arange(count), 2 * count + np.arange(count)
    after, clipped = nest(np.zeros(count, np.int64), starts, ends)
    assert set(clipped.tolist()) == {2 * count}
    assert parents(after).tolist() == list(range(-1, count - 1))


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
