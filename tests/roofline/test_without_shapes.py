"""Traces that lack shapes, or operators: the verdict says so first, and times, kernels and modules are complete."""

import gzip
import json
import pickle
import re
import sqlite3

import pytest
import torch
from torch import nn

import rooflines
from rooflines.errors import TraceError
from rooflines.profiler.read.missing_device import OF_A_DEVICE
from rooflines.profiler.read.records import Trace
from rooflines.profiler.tree.external_trace import run_of_trace
from rooflines.reports.page import run as view
from rooflines.reports.page.roofline import roofline_of
from rooflines.reports.render.html import render
from rooflines.reports.words.rows import table_rows, table_time, table_title
from rooflines.roofline.analysis import Analysis
from rooflines.roofline.analyze import analyze
from tests.roofline.real import DATA, TRACES, analysis_of
from tests.roofline.rooms import analyzed as analyzed_file
from tests.roofline.rooms import printed, recorded, runtime
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


@pytest.mark.ci
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


def test_names_tell_the_category_on_a_cpu(tmp_path):
    x, model = torch.randn(256, 512), nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512))
    found = recorded(tmp_path, lambda: model(x).sum().backward())
    assert found.category_breakdown["matmul"] > 0
    assert "operators whose shapes were not recorded" in found.verdict
    assert "work model" not in printed(found)


def test_only_operators_without_shapes_are_said_to_lack_them(tmp_path):
    """Of what has no bound two thirds lack their shapes, and the rest is launched outside of any operator."""
    events = [op("aten::mm", 0, 20), launch(5, 5, 1), kernel("ampere_sgemm_128x64_nn", 30, 200, 1), launch(60, 5, 2)]
    found = analyzed_file(tmp_path, span("model", 0, 100), *events, kernel("mine", 230, 100, 2))
    assert found.verdict.count("67 %") == 2
    assert "67 % of the trace is in operators whose shapes were not recorded" in found.verdict


def test_an_operator_that_only_a_device_has_is_a_sign_and_a_check_of_cudnn_is_none(tmp_path):
    found = analyzed_file(tmp_path, op("aten::cudnn_convolution", 0, 10), op("aten::relu", 20, 5))
    assert "aten::cudnn_convolution, which only a device runs" in found.verdict
    (tmp_path / "cpu").mkdir()
    assert not analyzed_file(tmp_path / "cpu", op("aten::cudnn_is_acceptable", 0, 10), op("aten::relu", 20, 5)).unrecorded


def test_torch_has_no_operator_for_a_processor_that_is_a_sign_of_a_device():
    keys = ("CPU", "SparseCPU", "QuantizedCPU", "CompositeImplicitAutograd", "CompositeExplicitAutograd")
    every = (name for name in torch._C._dispatch_get_all_op_names() if not name.endswith("out"))  # variants generated for any device
    names = {name for name in every if OF_A_DEVICE.fullmatch(name.partition(".")[0])}
    assert len(names) > 50
    assert not {name for name in names if any(torch._C._dispatch_has_kernel_for_dispatch_key(name, key) for key in keys)}


@pytest.mark.parametrize("kind", [0, 1])
def test_memory_of_a_device_is_a_sign_of_one(tmp_path, kind):
    memory = [allocation(5, 1024), allocation(8, -1024)]
    for event in memory:
        event["args"]["Device Type"] = kind
    found = analyzed_file(tmp_path, op("aten::empty", 0, 10), op("aten::relu", 20, 10), *memory)
    assert bool(found.unrecorded) == bool(kind)
    assert ("the trace has 1 allocation of a device's memory" in found.verdict) == bool(kind)


def test_nothing_is_drawn_on_the_roofline_by_the_times_of_a_host():
    found = analysis_of(DATA / "not_judged" / "launches_without_kernels_a100.json.gz")
    chart = roofline_of(found)
    assert chart is None or not (chart.points or chart.rings)
    assert {one.row.flop_per_s for one in table_rows(found)} == {None}


def test_a_trace_of_runtime_calls_is_refused(tmp_path):
    with pytest.raises(TraceError, match="has no operators and no device events"):
        analyzed_file(tmp_path, runtime("cudaDeviceSynchronize", 0), runtime("cudaEventRecord", 5))


def neighbors(folder):
    with sqlite3.connect(folder / "nsys.sqlite") as base:
        base.execute("create table kernels(a)")
    yield folder / "nsys.sqlite", "an SQLite database"
    for name, content, what in (
        ("snapshot.pickle", pickle.dumps({"segments": []}), "a pickle"),
        ("profile.ncu-rep", b"NVR\0" + bytes(100), "a report of Nsight Compute"),
        ("profile.nsys-rep", b"\1\2" + bytes(100), "a report of Nsight Systems"),
        ("host.xplane.pb", b"\n\x9a\x01\x12\x09/host:CPU" + bytes(60), "a profile of XLA"),
        ("kernels.csv", b'"Kind","Agent_Id","Queue_Id"\n', "a table of rocprof"),
    ):
        (folder / name).write_bytes(content)
        yield folder / name, what


def test_files_of_other_tools_are_named(tmp_path):
    for path, what in neighbors(tmp_path):
        with pytest.raises(TraceError, match=f"is {what}.*, not a PyTorch trace") as raised:
            rooflines.analyze(path)
        assert "torch.profiler" in raised.value.hint or "XProf" in raised.value.hint


KINDS = {
    "operators": {"cpu_op", "Operator"}, "calls": {"cuda_runtime", "cuda_driver", "Runtime"}, "annotations": {"user_annotation"},
    "device": {"kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset"},
}  # fmt: skip


SMALL = [path for path in TRACES if path.stat().st_size < 60_000]


@pytest.mark.ci
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("path", SMALL, ids=lambda path: path.name)
def test_what_lacks_a_kind_of_events_is_analyzed_or_refused(tmp_path, path, kind):
    whole = json.loads(gzip.decompress(path.read_bytes()))
    events = [event for event in whole["traceEvents"] if event.get("cat") not in KINDS[kind]]
    (tmp_path / "trace.json").write_text(json.dumps({**whole, "traceEvents": events}))
    try:
        analysis = rooflines.analyze(tmp_path / "trace.json")
    except TraceError:
        assert not any(event.get("cat") in KINDS["operators"] | KINDS["device"] for event in events)
    else:
        assert analysis.verdict
