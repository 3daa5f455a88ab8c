"""Nesting on whole columns, against a walk with a stack, event by event."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rooflines.profiler.trace.nesting import innermost, nest, parents


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
        assert caller < 0 or clipped[i] <= clipped[caller]


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


def test_depth_costs_nothing():
    count = 100_000
    starts, ends = np.arange(count), 3 * count - np.arange(count)
    after, _ = nest(np.zeros(count, np.int64), starts, ends)
    assert parents(after).tolist() == list(range(-1, count - 1))


def test_a_chain_of_events_that_outlive_their_callers_is_clipped_to_the_first():
    count = 1000
    starts, ends = np.arange(count), 2 * count + np.arange(count)
    after, clipped = nest(np.zeros(count, np.int64), starts, ends)
    assert set(clipped.tolist()) == {2 * count}
    assert parents(after).tolist() == list(range(-1, count - 1))
