"""The lines of a program: which time is whose, on traces written by hand, of real programs and of compiled ones."""

import pytest

from rooflines.profiler.records import ProgramLine
from rooflines.profiler.tree.tree import tree
from tests.roofline.rooms import analyzed, attributed, frame, runtime
from tests.traces import add, kernel, launch, mm, op, span, trace

FIRST, SECOND = (ProgramLine(path=f"/home/me/{name}", line=number, text=name) for name, number in (("net.py", 7), ("sub/loss.py", 9)))


def mark(number, ts, *, tid=1):
    return op(f"rooflines.line: {number}", ts, 0, tid=tid)


def lines_of_rows(*events, **known):
    """The lines of each operator, with their shares, as the judge gives them."""
    from rooflines.roofline.judge.judge import judge

    found = judge(attributed(*events, **known)).analysis
    return {row.name: {line.place: line.share for line in row.lines} for row in (*found.operators, *found.unmodeled)}, found.lines


def test_the_kth_call_of_a_step_has_the_line_of_the_kth_call_in_the_marked_step():
    step = (span("ProfilerStep#0", 0, 100), mark(0, 1), add(2, 5), mark(1, 9), add(10, 5), mm(20, 5, 4, 4, 4))
    traced = []
    for at in (0, 200):
        traced += [span(f"ProfilerStep#{at}", at, 150), add(at + 2, 30), add(at + 40, 10), mm(at + 60, 5, 4, 4, 4)]
    rows, lines = lines_of_rows(*traced, marked=tree(trace(*step)), lines=(FIRST, SECOND))
    assert rows["aten::add"] == pytest.approx({"net.py:7": 0.75, "sub/loss.py:9": 0.25})
    assert rows["aten::mm"] == {"sub/loss.py:9": 1.0}
    assert [(row.place, row.time_s) for row in lines] == [("net.py:7", pytest.approx(30e-6)), ("sub/loss.py:9", pytest.approx(15e-6))]


def test_where_a_step_makes_another_number_of_calls_only_a_common_line_is_known():
    step = (span("ProfilerStep#0", 0, 100), mark(0, 1), add(2, 5), mm(8, 1, 4, 4, 4), mark(1, 9), add(10, 5))
    traced = (span("ProfilerStep#0", 0, 150), add(2, 30), mm(40, 2, 4, 4, 4), mm(45, 2, 4, 4, 4))
    rows, _ = lines_of_rows(*traced, marked=tree(trace(*step)), lines=(FIRST, SECOND))
    assert rows == {"aten::add": {}, "aten::mm": {"net.py:7": 1.0}}


def test_a_step_with_fewer_calls_is_not_matched_by_their_order():
    step = (span("ProfilerStep#0", 0, 100), mark(0, 1), add(2, 5), mark(1, 9), add(10, 5))
    traced = (span("ProfilerStep#0", 0, 100), add(2, 30), add(40, 10), span("ProfilerStep#1", 200, 100), add(202, 60))
    rows, _ = lines_of_rows(*traced, marked=tree(trace(*step)), lines=(FIRST, SECOND))
    assert rows["aten::add"] == pytest.approx({"net.py:7": 0.3, "sub/loss.py:9": 0.1}), "of 100 us, 60 are of a step with one call"


def test_the_backward_has_the_line_of_its_forward_on_whichever_thread_it_runs():
    node = op("autograd::engine::evaluate_function: MulBackward0", 50, 20, tid=2, seq=5, fwd=1)
    step = (
        span("ProfilerStep#0", 0, 100), mark(0, 1), op("aten::mul", 2, 5, seq=5), mark(1, 9),
        node, op("aten::neg", 52, 10, tid=2), op("aten::ones_like", 45, 2, tid=2),
    )  # fmt: skip
    rows, _ = lines_of_rows(*step, marked=tree(trace(*step)), lines=(FIRST, SECOND))
    assert rows["aten::neg"] == {"net.py:7": 1.0}
    assert rows["aten::ones_like"] == {"sub/loss.py:9": 1.0}, "the line that waits for the other thread"


def test_marks_are_no_modules_and_no_time():
    rows, _ = lines_of_rows(span("ProfilerStep#0", 0, 100), mark(0, 1), add(2, 5))
    assert rows == {"aten::add": {}}


def test_a_stack_tells_the_innermost_function_of_the_program(tmp_path):
    found = analyzed(
        tmp_path,
        frame("/home/me/train.py(3): main", 0, 100),
        frame("torch/nn/modules/module.py(1501): _call_impl", 1, 40),
        frame("models/net.py(12): forward", 2, 30),
        frame("transformers/models/bert.py(9): forward", 3, 20),
        mm(5, 10, 4, 4, 4),
        add(60, 20),
    )
    by_name = {row.name: {line.place: line.share for line in row.lines} for row in found.operators}
    assert by_name == {"aten::mm": {"models/net.py:12": 1.0}, "aten::add": {"train.py:3": 1.0}}
    assert [(row.function, row.is_function, row.path) for row in found.lines] == [
        ("main", True, "train.py"),
        ("forward", True, "models/net.py"),
    ]


def test_a_kernel_has_the_line_of_its_launch(tmp_path):
    found = analyzed(
        tmp_path, frame("train.py(3): main", 0, 100), add(5, 10), launch(6, 2, 1), kernel("k", 30, 50, 1),
        runtime("cudaDeviceSynchronize", 40, 45, 2),
    )  # fmt: skip
    assert [(row.place, row.time_s) for row in found.lines] == [("train.py:3", pytest.approx(50e-6))]


def test_the_class_of_a_line_is_that_of_most_of_its_time_and_headroom_needs_a_bounded_step(tmp_path):
    found = analyzed(tmp_path, frame("train.py(3): main", 0, 100), add(5, 5), op("mylib::mystery", 20, 60))
    (line,) = found.lines
    assert (line.bound, line.headroom_s, found.totals.headroom_s) == ("unknown", None, None)
    assert line.flops == 1000
