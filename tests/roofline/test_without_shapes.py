"""Traces that lack shapes, or operators: the verdict says so first, and times, kernels and modules are complete."""

from __future__ import annotations

import re

import pytest

from rooflines.profiler.read.records import Trace
from rooflines.profiler.tree.external_trace import run_of_trace
from rooflines.reports.page import run as view
from rooflines.reports.render.html import render
from rooflines.reports.words.rows import table_rows, table_time, table_title
from rooflines.roofline.analysis import Analysis
from rooflines.roofline.analyze import analyze
from tests.roofline.rooms import printed
from tests.traces import add, allocation, kernel, launch, op, span, trace

FILL = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, at::detail::Array<char*, 1> >(int)"


def analyzed(*events) -> Analysis:
    found: Trace = trace(*events)
    return analyze(run_of_trace("made.json", found), trace=found).analysis


def test_shapes_are_seen_in_the_arguments():
    assert trace(op("aten::mm", 0, 5)).shapes_recorded is False
    assert trace(op("aten::mm", 0, 5), add(10, 5)).shapes_recorded is True
    assert trace(op("mylib::mine", 0, 5)).shapes_recorded is True
    assert trace(kernel("k", 0, 5, 1)).shapes_recorded is None
    # What a process group notes of its collectives is there without record_shapes.
    noted = {"Collective name": "allreduce", "In msg nelems": 8, "Out msg nelems": 8, "dtype": "Float"}
    events = op("record_param_comms", 0, 5), op("aten::mm", 10, 5)
    events[0]["args"].update(noted)
    assert trace(*events).shapes_recorded is False


def test_without_shapes_the_verdict_says_so_first_and_nothing_is_guessed():
    # A list's allocation would make the one concatenation the only operator with a bound.
    found = analyzed(
        span("ProfilerStep#0", 0, 1000), op("aten::mm", 1, 300), launch(5, 2, 1), op("aten::cat", 400, 300), allocation(410, 4096),
        launch(420, 2, 2), kernel("ampere_sgemm_128x64_nn", 10, 300, 1), kernel("cat", 500, 300, 2),
    )  # fmt: skip
    assert found.coverage.shapes_recorded is False
    assert found.verdict.startswith("The trace was recorded without record_shapes=True, which would add FLOPs, bytes, bounds and")
    assert found.verdict.index("times and kernels do not need it") < found.verdict.index("Bound unknown")
    assert not any("cat" in finding.title.lower() + finding.evidence.lower() for finding in found.findings)
    rows = table_rows(found)
    assert sorted((one.row.name, round(one.row.time_s * 1e6), one.bound) for one in rows) == [
        ("aten::cat", 300, "unknown"), ("aten::mm", 300, "unknown"),
    ]  # fmt: skip
    assert all(one.row.kernels for one in rows)
    assert "GEMM fp32 128x64 (cuBLAS)" in render(view.page(found))


def test_an_operator_says_what_its_kernels_do_where_their_names_say_something_else():
    """A convolution by cuDNN runs a GEMM's kernel; without shapes it has no count, but a category."""
    found = analyzed(
        span("ProfilerStep#0", 0, 1000), op("aten::cudnn_convolution", 1, 300), launch(5, 2, 1), launch(420, 2, 2),
        kernel("volta_sgemm_128x64_nn", 10, 300, 1), kernel("volta_sgemm_128x64_nn", 500, 200, 2),
    )  # fmt: skip
    assert {name: round(time_s * 1e6) for name, time_s in found.category_breakdown.items()} == {"convolution": 300, "matmul": 200}


def test_the_caller_of_a_row_is_the_nearest_operator_that_is_not_of_aten():
    found = analyzed(
        span("ProfilerStep#0", 0, 1000), op("torch.distributed.ddp.reducer::copy_bucket_to_grad", 0, 40), add(10, 20), launch(15, 2, 1),
        add(100, 20), launch(105, 2, 2), kernel("k", 20, 30, 1), kernel("k", 110, 50, 2), op("aten::linear", 200, 40), add(210, 20),
        launch(215, 2, 3), kernel("k", 220, 30, 3), op("mylib::mine", 300, 40), op("aten::add", 310, 20, dims=[[2], [2]],
        types=["float", "float"]), launch(315, 2, 4), kernel("k", 320, 30, 4),
    )  # fmt: skip
    assert {row.shapes: row.caller for row in found.operators} == {found.operators[0].shapes: None, "2, 2": "mylib::mine"}


def test_a_trace_of_the_device_alone_is_reported_by_kernel():
    found = analyzed(*(kernel("ampere_sgemm_128x64_nn", 10 * i, 7, i) for i in range(5)), kernel(FILL, 100, 3, 9))
    assert found.verdict.startswith("The trace has no operators of the host, so its kernels are listed")
    rows = table_rows(found)
    assert table_title(rows) == "Kernels"
    assert [(one.row.name, one.row.calls, one.row.phase) for one in rows] == [("ampere_sgemm_128x64_nn", 5, ""), (FILL, 1, "")]
    text = printed(found)
    assert "GEMM fp32 128x64 (cuBLAS)" in text
    assert "element-wise fill (vectorized x4)" in text
    assert "this run has no trace" not in text
    assert "this run has no trace" not in render(view.page(found))


def test_a_trace_with_shapes_says_nothing_of_them():
    assert "record_shapes" not in analyzed(add(0, 10)).verdict


def test_shares_of_overlapping_work_are_at_most_the_whole():
    # Two engines of an MTIA device, each busy for 70 of 90 microseconds in a step: 156 % if they were added.
    def engine(name: str, ts: float, dur: float, correlation: int, tid: int) -> dict:
        return {**kernel(name, ts, dur, correlation, stream=tid), "cat": "mtia_ccp_events"}

    events = []
    for i, t in enumerate(range(0, 400, 100)):
        events += [
            span(f"ProfilerStep#{i}", t, 90), op("aten::linear", t + 1, 20), op("mylib::copy", t + 30, 20),
            {**launch(t + 3, 2, 2 * i + 1), "cat": "mtia_runtime"}, {**launch(t + 33, 2, 2 * i + 2), "cat": "mtia_runtime"},
            engine("fba_linear", t + 10, 70, 2 * i + 1, 1), engine("fba_dma", t + 34, 70, 2 * i + 2, 2),
        ]  # fmt: skip
    found = analyzed(*events)
    whole = found.division.step_s
    assert sum(row.row.time_s for row in table_rows(found)) > whole
    assert table_time(found, table_rows(found)) == pytest.approx(found.timeline.busy_s)
    assert found.bound_breakdown["unknown"] <= whole
    assert sum(found.bound_breakdown.values()) == pytest.approx(whole)
    assert max(float(share) for share in re.findall(r"(\d+(?:\.\d+)?) %", printed(found))) <= 100
