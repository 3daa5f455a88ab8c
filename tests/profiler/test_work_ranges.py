"""Work that its author declares: what is accepted, how it reads back from a trace, what it owns there, and what it costs."""

import threading

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.profiler import ProfilerActivity, profile, record_function

import rooflines
from rooflines.errors import UsageError
from rooflines.profiler.read.reader import read
from rooflines.profiler.read.work_ranges import PRECISIONS, RANGE_PREFIX, DeclaredWork, active, from_range_name, listening, range_name
from rooflines.profiler.tree.tree import tree
from rooflines.roofline.count.count import count as count_calls
from rooflines.roofline.count.formulas import Work
from rooflines.roofline.own.own import own
from tests.traces import kernel, launch, mm, op, span, trace

NUMBERS = st.integers(0, 2**63 - 1)
DECLARED = st.builds(
    DeclaredWork, st.text(min_size=1), NUMBERS, NUMBERS, NUMBERS, NUMBERS, st.none() | st.sampled_from(PRECISIONS)
)  # fmt: skip


def declared(name="user kernel", **numbers):
    return rooflines.declare_work(name, **numbers).declared


def divide(*events):
    found = trace(*events)
    return own(count_calls(tree(found)))


def test_what_is_said_is_what_is_declared():
    assert declared(flops=10, bytes=4) == DeclaredWork("user kernel", other_flops=10, bytes_read=4)
    assert declared("mine", flops=10, matrix_flops=8, bytes_read=3, bytes_written=2, precision="bf16") == DeclaredWork(
        "mine", 8, 2, 3, 2, "bf16"
    )
    assert declared(matrix_flops=8) == DeclaredWork("user kernel", matrix_flops=8)
    assert declared() == DeclaredWork("user kernel")
    assert declared(flops=np.int64(7), bytes=torch.tensor(5)) == DeclaredWork("user kernel", other_flops=7, bytes_read=5)


@pytest.mark.parametrize(("arguments", "said"), [
    ({"flops": -1}, "flops of work 'user kernel' must be an integer from 0"),
    ({"flops": 2.5e9}, r"flops of work 'user kernel' must be an integer, got 2500000000\.0\. Round it with int"),
    ({"bytes": True}, "bytes of work"),
    ({"bytes_written": "12"}, "bytes_written of work"),
    ({"bytes": 2**63}, "2\\*\\*63 - 1, got 9223372036854775808"),
    ({"flops": 3, "matrix_flops": 4}, "matrix_flops=4 is more than flops=3"),
    ({"bytes": 3, "bytes_read": 1}, "bytes is the sum of bytes_read and bytes_written"),
    ({"precision": "float32"}, "unknown precision 'float32' for work 'user kernel'. Choose from fp64 fp32"),
    ({"name": ""}, "must be a non-empty string"),
    ({"name": 3}, "must be a non-empty string, got 3"),
])  # fmt: skip
def test_what_is_no_count_is_refused(arguments, said):
    with pytest.raises(UsageError, match=said):
        rooflines.declare_work(**arguments)


@given(DECLARED)
def test_any_declaration_reads_back_from_its_range(one):
    assert from_range_name(range_name(one)) == one
    # What Kineto leaves of a name: it drops quotes, backslashes and whatever is not ASCII.
    assert all(character.isascii() and character.isprintable() and character not in "\"'\\" for character in range_name(one))


@pytest.mark.parametrize("text", ["", "flops=3", "name=a&matrix_flops=many", "name=a&bytes_read=-1", "name=a&other_flops=1e3"])
def test_a_range_that_says_no_numbers_is_a_range_like_any_other(text):
    assert from_range_name(RANGE_PREFIX + text) is None
    (row,) = divide(span(RANGE_PREFIX + text, 0, 30), mm(10, 10, 8, 8, 8)).rows
    assert (row.signature.name, row.time_ns) == ("aten::mm", 10_000)


def test_declarations_own_what_is_below():
    # A declaration owns what is below it.
    name = range_name(DeclaredWork("mine", 0, 100, 40, 8, "fp32"))
    result = divide(
        span("ProfilerStep#0", 0, 100), span(name, 10, 50), mm(20, 10, 8, 8, 8), op("mylib::other", 40, 5), mm(70, 20, 8, 8, 8)
    )
    rows = {row.signature.name: row for row in result.rows}
    assert {key: row.time_ns for key, row in rows.items()} == {"mine": 50_000, "aten::mm": 20_000}
    assert rows["mine"].count.work == Work(0, 100, 40, 8, "fp32")
    assert (result.gaps, result.idle_ns) == ((), 30_000)
    # Of declarations in each other and in counted operators the outermost counts.
    inner, outer = range_name(DeclaredWork("inner", other_flops=1)), range_name(DeclaredWork("outer", other_flops=10))
    result = divide(span(outer, 0, 50), span(inner, 10, 20), mm(60, 20, 8, 8, 8), span(inner, 65, 5))
    assert [(row.signature.name, row.time_ns) for row in result.rows] == [("outer", 50_000), ("aten::mm", 20_000)]


def test_calls_and_kernels_of_a_declaration():
    # Calls with the same numbers are one row.
    small, large = range_name(DeclaredWork("mine", other_flops=1)), range_name(DeclaredWork("mine", other_flops=2))
    result = divide(span(small, 0, 5), span(large, 10, 6), span(small, 20, 7))
    assert sorted((row.count.work.flops, row.calls, row.time_ns) for row in result.rows) == [(1, 2, 12_000), (2, 1, 6_000)]
    # On a device the kernels launched inside are its time.
    name = range_name(DeclaredWork("mine", other_flops=10))
    result = divide(span(name, 0, 20), launch(2, 2, 1), launch(6, 2, 2), kernel("a", 100, 30, 1), kernel("b", 120, 30, 2, stream=8))
    assert [(row.signature.name, row.time_ns, row.calls) for row in result.rows] == [("mine", 50_000, 1)]
    assert (result.gaps, result.orphans) == ((), 0)


@pytest.mark.parametrize("name", ["user kernel", 'a "quoted" \\ name\n= 50% & süß', "x" * 3000])
def test_the_profiler_s_trace_gives_the_declaration_back(tmp_path, name):
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recorded:
        for _ in range(2):
            with rooflines.declare_work(name, flops=12, matrix_flops=5, bytes=7, precision="fp16"):
                torch.rand(10).sort()
        with record_function(range_name(DeclaredWork(name, 1, 1, 1, 1))):  # as an older torch would write it
            pass
    recorded.export_chrome_trace(str(tmp_path / "trace.json"))
    found = read(tmp_path / "trace.json")
    rows = own(count_calls(tree(found))).rows
    assert sorted((row.signature.name, row.calls, row.count.work) for row in rows) == [
        (name, 1, Work(1, 1, 1, 1)), (name, 2, Work(5, 7, 7, 0, "fp16")),
    ]  # fmt: skip


def test_a_thread_knows_what_it_is_in():
    mine = rooflines.declare_work("mine", flops=1)
    other, seen = [], []
    assert active() is None
    with mine as found:
        assert active() == found == mine.declared
        with rooflines.declare_work("inner", flops=2), mine:
            assert active() == mine.declared
        thread = threading.Thread(target=lambda: other.append(active()))
        thread.start()
        thread.join()
    assert (active(), other) == (None, [None])
    with pytest.raises(ZeroDivisionError), mine:
        seen.append(1 / 0)
    assert active() is None


def test_who_listens_hears_of_the_outermost_declarations_of_its_thread():
    heard: list[DeclaredWork] = []
    mine = rooflines.declare_work("mine", flops=1)
    with listening(heard.append):
        with mine, rooflines.declare_work("inner", flops=2):
            pass
        with mine:
            pass
        thread = threading.Thread(target=mine.__enter__)
        thread.start()
        thread.join()
    with mine:
        pass
    assert heard == [mine.declared] * 2
