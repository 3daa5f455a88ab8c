"""Marks of the lines that run: which line each operator of a small program comes from."""

import json
import os
import sys
import threading
from pathlib import Path

import pytest
import torch

from rooflines.profiler.hooks import line_marks
from rooflines.profiler.hooks.line_marks import LineMarks, is_of_program
from rooflines.profiler.read.records import LINE_PREFIX

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 marks nothing")
PROGRAM = """\
import torch
import torch.nn.functional as F

def inner(x):
    return x.exp()

def step(x):
    y = inner(x) + F.relu(
        x,
    )
    y.square_()
    return [
        inner(row)
        for row in y
    ]
"""


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    names = {}
    exec(compile(PROGRAM, str(path), "exec"), names)
    return names


def marked(tmp_path, work, marks):
    """Each operator that ``work`` calls, with the line in the program."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        marks.start()
        work()
        marks.stop()
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    events = [event for event in json.loads((tmp_path / "trace.json").read_text())["traceEvents"] if event.get("ph") == "X"]
    found, line = [], None
    for event in sorted(events, key=lambda event: event["ts"]):
        if event["name"].startswith(LINE_PREFIX):
            line = marks.places[int(event["name"].removeprefix(LINE_PREFIX))]
        elif event["name"].startswith("aten::"):
            in_program = line is not None and line.path.endswith("program.py")
            found.append((event["name"].removeprefix("aten::"), line.line if in_program else None))
    return found


def test_each_operator_has_the_line_that_calls_it(tmp_path, program):
    x = torch.ones(2, 3)
    found = marked(tmp_path, lambda: program["step"](x), LineMarks([]))
    lines = [(name, line) for name, line in found if name in ("exp", "relu", "add", "square_")]
    assert lines == [("exp", 5), ("relu", 8), ("add", 8), ("square_", 11), ("exp", 5), ("exp", 5)]


def test_a_line_has_its_function_and_its_text(tmp_path, program):
    marks = LineMarks([])
    marked(tmp_path, lambda: program["inner"](torch.ones(2)), marks)
    assert ("inner", 5, "return x.exp()") in {(place.function, place.line, place.text) for place in marks.places}


def test_a_program_that_is_traced_already_is_left_alone(tmp_path, program):
    def tracer(*_):
        return None

    before, marks = sys.gettrace(), LineMarks([])
    sys.settrace(tracer)
    try:
        marks.start()
        program["inner"](torch.ones(2))
        marks.stop()
        assert sys.gettrace() is tracer
    finally:
        sys.settrace(before)
    assert marks.places == ()


def test_marks_that_another_thread_closes_end_at_the_next_call(program):
    marks = LineMarks([])
    marks.start()
    thread = threading.Thread(target=marks.stop)
    thread.start()
    thread.join()
    before = marks.count
    program["inner"](torch.ones(2))
    program["inner"](torch.ones(2))
    assert sys.gettrace() is None
    assert (marks.count, marks.places) == (before, ()), "what follows the last mark has no line"


def test_a_trace_function_that_the_program_sets_meanwhile_stays(program):
    def tracer(*_):
        return None

    before, marks = sys.gettrace(), LineMarks([])
    marks.start()
    try:
        sys.settrace(tracer)
        marks.stop()
        assert sys.gettrace() is tracer
        assert marks.places == (), "the marks are not whole"
    finally:
        sys.settrace(before)


def test_a_step_of_too_many_lines_has_none_and_says_so(program, monkeypatch):
    monkeypatch.setattr(line_marks, "_MOST_MARKS", 3)
    notes = []
    marks = LineMarks(notes)
    marks.start()
    program["step"](torch.ones(2, 3))
    assert sys.gettrace() is None
    marks.stop()
    assert (marks.count, marks.places) == (3, ())
    assert "more than 3" in notes[0]


def test_a_loop_in_one_line_is_not_traced_for_ever(monkeypatch):
    monkeypatch.setattr(line_marks, "_MOST_EVENTS", 100)
    marks = LineMarks([])
    marks.start()
    for _ in range(1000): pass  # fmt: skip # noqa: E701
    assert sys.gettrace() is None
    marks.stop()
    assert marks.places == ()


def test_an_error_of_ours_does_not_reach_the_program(program, monkeypatch):
    notes = []
    marks = LineMarks(notes)

    def broken(_):
        raise OSError("no ranges")

    monkeypatch.setattr(line_marks, "profiler_range", broken)
    marks.start()
    assert program["inner"](torch.zeros(1)).item() == 1
    marks.stop()
    assert len(notes) == 1
    assert "no ranges" in notes[0]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_is_not_traced(program):
    marks = LineMarks([])
    marks.start()
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        program["inner"](torch.ones(2))
        os.write(writing, b"traced" if sys.gettrace() else b"alone")
        os._exit(0)
    os.waitpid(child, 0)
    assert sys.gettrace() is not None
    marks.stop()
    assert os.read(reading, 10) == b"alone"
    os.close(reading)
    os.close(writing)


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        (torch.__file__, False),
        (json.__file__, False),
        ("<string>", False),
        ("<frozen importlib._bootstrap>", False),
        ("/usr/lib/python3/dist-packages/timm/layers.py", False),
        ("/tmp/torchinductor_me/ab/cabcd.py", False),
        (str(Path(sys.executable).with_name("torchrun")), False),
        ("/home/me/.local/bin/rooflines", False),
        ("/home/me/site-packages-of-mine/net.py", True),
        (__file__, True),
    ],
)
def test_packages_and_python_are_not_the_program(file, expected):
    assert is_of_program(file) is expected
