"""Nodes of libraries take the arguments of their forward calls; and none where two answers fit."""

from __future__ import annotations

import pytest

from tests.roofline.count.test_related_calls import reasons, rows
from tests.roofline.rooms import attributed
from tests.traces import add, op

NODE = "torch::autograd::CppNode<SplitLookupFunction_rowwise_adagrad_Op>"
LOOKUP = "fbgemm::split_embedding_codegen_lookup_rowwise_adagrad_function"
FORWARD_NEEDED = "its forward call is not in the trace"


def lookup(ts, indices, bags, **more):
    """A lookup in two tables as traces of 2022 have it: shapes of tensors and nothing else."""
    dims = [[0], [1540], [0], [0, 0], [2], [2], [3], [], [], [3], [], [indices], [2 * bags + 1], [], [], [], [0]]
    number = {7, 8, 10, 13}
    types = ["Scalar" if place in number else "" if not shape else "float" for place, shape in enumerate(dims)]
    for place in (5, 11, 12):
        types[place] = "long"
    return op(LOOKUP, ts, 10, dims=dims, types=types, **more)


def node(ts, shape, seq, name=NODE):
    return op(name, ts, 10, dims=[shape], types=["float"], seq=seq, fwd=1, tid=2)


def numbered(ts, seq):
    """An operator whose number says how many nodes its thread has made."""
    return add(ts, 5, seq=seq)


def test_a_node_updates_what_its_forward_call_looked_up():
    found = rows(numbered(0, 5), lookup(10, 24, 7), numbered(30, 6), node(50, [7, 20], 5))
    assert found[NODE].count.work.bytes_written == 24 * 10 * 4 + 24 * 4
    assert found[NODE].inferred == "arguments from its forward call"
    assert found[LOOKUP].count.work.bytes_written == 7 * 20 * 4
    assert found[LOOKUP].inferred == "output from its backward call"


def test_several_calls_between_two_numbers_are_paired_in_order():
    calls = numbered(0, 5), lookup(10, 24, 7), lookup(30, 36, 7), numbered(50, 7)
    found = attributed(*calls, node(60, [7, 40], 6), node(80, [7, 20], 5)).rows
    assert {row.calls for row in found if row.signature.name == NODE} == {1}
    results = {row.count.work.bytes_read for row in found}
    first = 7 * 20 * 4 + 24 * 8 + 15 * 8 + 24 * 10 * 4 + 24 * 4
    second = 7 * 40 * 4 + 36 * 8 + 15 * 8 + 36 * 20 * 4 + 36 * 4
    assert {first, second} <= results


@pytest.mark.parametrize(
    "events",
    [
        (node(50, [7, 20], 5),),  # no forward call
        (lookup(10, 24, 7), lookup(20, 24, 7), numbered(40, 6), node(50, [7, 20], 5)),  # two, of which one made no node
        (numbered(0, 6), lookup(10, 24, 7), numbered(30, 7), node(50, [7, 20], 5)),  # made before the call
        (numbered(0, 5), lookup(10, 24, 7), numbered(30, 6), node(50, [9, 20], 5)),  # of another number of bags
        (numbered(0, 5), lookup(10, 24, 7), lookup(10, 24, 7, tid=3), numbered(30, 6), node(50, [7, 20], 5)),  # threads count apart
        (numbered(0, 5), lookup(10, 24, 7), numbered(30, 6), node(50, [7, 20], 5, NODE.replace("rowwise_", ""))),  # another optimizer
    ],
)
def test_what_does_not_fit_stays_unknown(events):
    assert FORWARD_NEEDED in reasons(*events).values()


def test_an_operator_inside_the_node_has_the_work():
    inside = op("fbgemm::FloatToHFP8Quantized", 52, 4, dims=[[7, 20]], types=["float"], tid=2)
    assert reasons(numbered(0, 5), lookup(10, 24, 7), numbered(30, 6), node(50, [7, 20], 5), inside)[NODE] == FORWARD_NEEDED


# --- Python's autograd functions ---------------------------------------------------------------------------------------------------

NORM = "LigerRMSNormFunction"


def norm(ts, seq, width=16, **more):
    return op(NORM, ts, 5, dims=[[15, width], [width], []], types=["float", "float", "Scalar"], seq=seq, **more)


def back(ts, seq, width=16):
    return op(NORM + "Backward", ts, 5, dims=[[15, width]], types=["float"], seq=seq, fwd=1, tid=2)


def test_a_function_and_its_node_have_the_same_number():
    found = rows(norm(0, 3), norm(10, 4, width=32), back(30, 4, width=32))[NORM + "Backward"]
    assert found.count.work.bytes_written == 4 * (15 * 32 + 32)


@pytest.mark.parametrize(
    "events", [(norm(0, 3), back(30, 4)), (norm(0, 3), norm(10, 3, tid=3), back(30, 3)), (norm(40, 3), back(30, 3))]
)
def test_another_number_or_thread_tells_nothing(events):
    assert reasons(*events)[NORM + "Backward"] == FORWARD_NEEDED
