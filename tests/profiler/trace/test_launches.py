"""Which call launched what: by the correlation id, and by time where several calls have it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rooflines.profiler.trace.collectives import read_collectives
from rooflines.profiler.trace.launches import launching
from rooflines.profiler.trace.tree import tree
from rooflines.roofline.attribution.own import own
from rooflines.roofline.resolvers.count import count as count_calls
from rooflines.roofline.step.launch_queue import _quantile
from tests.traces import add, kernel, launch, mm, op, trace


def launched(*events):
    """When the launch of each device event began, in the order of these, -1 for none; and the number of doubtful ids."""
    found = trace(*events)
    by, doubtful = launching(found)
    return [int(found.host.start_ns[one]) // 1000 if one >= 0 else -1 for one in by], doubtful


def query(ts, correlation, *, tid=1):
    """A runtime call that launches nothing."""
    return launch(ts, 1, correlation, tid=tid) | {"name": "cudaEventQuery"}


def test_the_call_with_the_correlation_id_launched_it():
    assert launched(launch(0, 1, 5), launch(2, 1, 6), kernel("b", 9, 1, 6), kernel("a", 8, 1, 5), kernel("c", 10, 1, 7)) == (
        [0, 2, -1],
        0,
    )
    assert launched(launch(0, 1, 5), kernel("a", 8, 1, 5), kernel("b", 9, 1, 5)) == ([0, 0], 0)  # a graph


def by_external_id(event, number):
    """The event with an external id in place of the correlation id."""
    rest = {key: value for key, value in event["args"].items() if key != "correlation"}
    return event | {"args": rest | {"External id": number}}


def test_external_ids_link_launches_only_where_no_event_has_a_correlation_id():
    old = [by_external_id(launch(0, 1, 5), 5), by_external_id(launch(2, 1, 6), 6), by_external_id(kernel("a", 8, 1, 6), 6)]
    assert launched(*old) == ([2], 0)
    # Since then the external id is that of the operator.
    assert launched(launch(0, 1, 6), by_external_id(kernel("a", 8, 1, 6), 6)) == ([-1], 0)
    assert launched(*old, kernel("b", 9, 1, 7)) == ([-1, -1], 0)


def test_a_call_that_launches_nothing_takes_nothing():
    assert launched(query(3, 2, tid=1), launch(2, 1, 2, tid=5), kernel("a", 8, 1, 2)) == ([2], 0)
    assert launched(query(3, 2), kernel("a", 8, 1, 2)) == ([3], 0)  # who else


def test_an_id_that_is_given_again_is_that_of_the_latest_launch_before():
    again = (launch(100, 1, 2), launch(0, 1, 2, tid=9), launch(200, 1, 2))
    assert launched(*again, kernel("a", 10, 5, 2), kernel("b", 20, 5, 2), kernel("c", 30, 5, 2), kernel("d", 150, 5, 2)) == (
        [0, 0, 0, 100],
        1,
    )
    assert launched(*again, kernel("early", -5, 1, 2)) == ([0], 1)


def test_two_processes_with_the_same_ids_have_each_their_own_kernel():
    events = [
        mm(0, 10, 8, 8, 8), launch(1, 2, 2), kernel("gemm", 50, 10, 2),
        add(3, 10, tid=2), launch(4, 2, 2, tid=2), kernel("add", 55, 30, 2) | {"pid": 1},
    ]  # fmt: skip
    found = trace(*events)
    result = own(count_calls(tree(found)))
    assert {row.signature.name: row.time_ns for row in result.rows} == {"aten::mm": 10_000, "aten::add": 30_000}
    assert [note.split()[-1] for note in result.notes] == ["1."]


def test_what_a_collective_is_told_by_is_its_own_launch():
    size = {"dims": [[100]], "types": ["float"]}
    found = trace(
        op("nccl:all_reduce", 0, 10, **size), launch(1, 2, 2), op("nccl:broadcast", 5, 10, tid=2, **size), query(6, 2, tid=2),
        kernel("ncclDevKernel_Generic(args)", 20, 5, 2),
    )  # fmt: skip
    collectives = read_collectives(found)
    assert [collectives.exchanges[what].kind for what in collectives.what] == ["allreduce"]


TIMES = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 3)), min_size=1, max_size=12, unique=True)


@given(TIMES, TIMES)
def test_any_kernel_is_the_latest_launch_s_or_that_of_its_turn(calls, kernels):
    found, _ = launched(*(launch(ts, 0.5, number) for ts, number in calls), *(kernel("k", ts, 1, number) for ts, number in kernels))
    for (ts, number), by in zip(sorted(kernels, key=lambda one: one[0]), found, strict=True):
        own = sorted(start for start, of in calls if of == number)
        turns = sorted(begin for begin, of in kernels if of == number)
        latest = max((start for start in own if start <= ts), default=own[0] if own else -1)
        turn = own[turns.index(ts)] if len(own) == len(turns) else latest
        assert by == (turn if turn <= ts else latest)


@pytest.mark.parametrize("length", [1, 2, 3, 10, 11, 100, 1001])
def test_the_quantile_is_that_of_numpy(length):
    values = np.random.default_rng(length).integers(0, 10 ** length.bit_length(), length)
    assert _quantile(values, 0.9) == float(np.quantile(values, 0.9))
