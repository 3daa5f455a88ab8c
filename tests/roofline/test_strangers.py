"""Traces that are not as we record them: what is in the file is read right, and nothing is said beyond it."""

from __future__ import annotations

import gzip
import json
import pickle
import sqlite3
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor

import rooflines
from rooflines.device_specs.records import Ceiling, Ceilings, Source
from rooflines.errors import TraceError, UsageError
from rooflines.profiler.read.missing_device import OF_A_DEVICE
from rooflines.reports.page.roofline import roofline_of
from rooflines.reports.words.rows import table_rows
from rooflines.roofline.advise.matrix import is_fallback
from rooflines.roofline.count.kernel_names import matrix_precision, short_kernel
from rooflines.roofline.judge.bounds import judge
from tests.roofline.real import DATA, NOT_JUDGED, TRACES, analysis_of
from tests.roofline.rooms import analyzed, copied, divided, frame, printed, runtime
from tests.traces import allocation, kernel, launch, mm, op, span

STRANGERS = DATA / "strangers"


def recorded(tmp_path, work, **options):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], **options) as profiler:
        work()
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    return rooflines.analyze(tmp_path / "trace.json")


# --- a wrapped dispatch ------------------------------------------------------------------------------------------------------------


def test_the_inner_call_of_a_tensor_subclass_owns_the_work():
    """DTensor records the product of the whole operands around that of the part which this rank holds."""
    found = divided(
        mm(0, 100, 64, 32, 96), mm(10, 80, 64, 32, 48), launch(20, 5, 1), kernel("ampere_sgemm_128x64_tn", 40, 50, 1),
    )  # fmt: skip
    assert [(row.signature.shapes(), row.work.matrix_flops) for row in found.rows] == [("64x32, 32x48", 2 * 64 * 32 * 48)]


@pytest.mark.parametrize("inner", [mm(10, 80, 64, 32, 192), op("aten::mul", 10, 80, dims=[[4], [4]], types=["float", "float"])])
def test_a_larger_call_or_one_of_another_name_does_not(inner):
    found = divided(mm(0, 100, 64, 32, 96), inner, launch(20, 5, 1), kernel("ampere_sgemm_128x64_tn", 40, 50, 1))
    assert sum(row.work.matrix_flops for row in found.rows) == 2 * 64 * 32 * 96


def test_ranks_count_what_they_hold(tmp_path):
    """20 rows: layers 64 to 96 to 32, of which each of two ranks has half, and 64 to 48 to 16, which are gathered; no gradient of the
    input."""
    subprocess.run([sys.executable, "-m", "tests.roofline.two_ranks", str(tmp_path)], check=True, capture_output=True, timeout=300)
    half, whole = (48 * 64, 48 * 32), (48 * 64, 16 * 48)
    for name, (first, second) in (("parallel", half), ("sharded", whole)):
        for rank in range(2):
            found = rooflines.analyze(tmp_path / f"{name}{rank}.json")
            assert found.totals.matrix_flops == 2 * 20 * (2 * first + 3 * second), (name, rank)


class _Logged(torch.Tensor):
    """A tensor subclass that does in Python what it is asked for."""

    @staticmethod
    def __new__(cls, held):
        return torch.Tensor._make_wrapper_subclass(cls, held.shape, dtype=held.dtype)

    def __init__(self, held):
        self.held = held

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return cls(func(*(one.held if isinstance(one, cls) else one for one in args), **(kwargs or {})))


ROWS, WEIGHT = torch.ones(20, 64), torch.ones(64, 48)
PRODUCT = 2 * 20 * 64 * 48


@pytest.mark.parametrize(
    ("work", "flops"),
    [
        (lambda: torch.mm(_Logged(ROWS), WEIGHT), PRODUCT),
        (lambda: torch.mm(TwoTensor(ROWS, ROWS), WEIGHT), 2 * PRODUCT),
        (lambda: torch.vmap(lambda one: one @ WEIGHT)(ROWS.expand(7, 20, 64)), 7 * PRODUCT),
        (lambda: torch.func.grad(lambda weight: (ROWS @ weight).sum())(WEIGHT), 2 * PRODUCT),
        (lambda: nn.functional.linear(torch.nested.nested_tensor([ROWS, ROWS], layout=torch.jagged), WEIGHT.t()), 2 * PRODUCT),
    ],
)
def test_what_is_inside_of_wrapped_tensors_counts(tmp_path, work, flops):
    work()
    assert recorded(tmp_path, work, record_shapes=True).totals.matrix_flops == flops


def test_only_a_convolution_may_have_an_algorithm_with_fewer_flops():
    source = Source(kind="measured", detail="")
    slow = Ceiling(kind="compute", name="FMA", engine="vector", precision="fp32", value=1e9, unit="FLOP/s", source=source)
    ceilings = Ceilings(device="cpu", kind="cpu", ceilings=(slow,))
    concrete = ["", "", "", "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1"]
    convolution = {"dims": [[1, 64, 32, 32], [64, 64, 3, 3], *[[]] * 7], "types": ["float", "float", *[""] * 7], "concrete": concrete}
    for event, reason in ((mm(0, 10, 512, 512, 512), "lower precision"), (op("aten::convolution", 0, 10, **convolution), "Winograd")):
        assert reason in judge(divided(event).rows[0], ceilings, "fp32").flag


# --- a device without events -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", NOT_JUDGED, ids=lambda path: path.name)
def test_launches_without_device_events_are_not_judged(path):
    found = analysis_of(path)
    assert "launch calls and no device events, so the work of the device was not recorded" in found.verdict
    assert found.timeline is found.bound_breakdown is found.category_breakdown is found.idle_breakdown is None
    assert found.findings == ()
    assert all(row.bound == "unknown" or not row.efficiency for row in found.operators)
    assert all(row.flop_per_s is None and row.byte_per_s is None for row in found.operators)
    assert not found.environment.device.startswith("cpu")


def test_an_operator_that_only_a_device_has_is_a_sign_and_a_check_of_cudnn_is_none(tmp_path):
    found = analyzed(tmp_path, op("aten::cudnn_convolution", 0, 10), op("aten::relu", 20, 5))
    assert "aten::cudnn_convolution, which only a device runs" in found.verdict
    (tmp_path / "cpu").mkdir()
    assert not analyzed(tmp_path / "cpu", op("aten::cudnn_is_acceptable", 0, 10), op("aten::relu", 20, 5)).unrecorded


def test_torch_has_no_operator_for_a_processor_that_is_a_sign_of_a_device():
    keys = ("CPU", "SparseCPU", "QuantizedCPU", "CompositeImplicitAutograd", "CompositeExplicitAutograd")
    every = (name for name in torch._C._dispatch_get_all_op_names() if not name.endswith("out"))  # variants generated for any device
    names = {name for name in every if OF_A_DEVICE.fullmatch(name.partition(".")[0])}
    assert len(names) > 50
    assert not {name for name in names if any(torch._C._dispatch_has_kernel_for_dispatch_key(name, key) for key in keys)}


def test_a_program_on_a_cpu_is_judged(tmp_path):
    found = recorded(tmp_path, lambda: torch.ones(64, 64) @ torch.ones(64, 64), record_shapes=True)
    assert not found.unrecorded
    assert found.environment.device == "cpu"


# --- without shapes ----------------------------------------------------------------------------------------------------------------


def test_names_tell_the_category_on_a_cpu(tmp_path):
    x, model = torch.randn(256, 512), nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512))
    found = recorded(tmp_path, lambda: model(x).sum().backward())
    assert found.category_breakdown["matmul"] > 0
    assert "operators whose shapes were not recorded" in found.verdict
    assert "work model" not in printed(found)


def test_a_saving_by_the_names_of_kernels_is_ranked_by_it(tmp_path):
    """fp32 on a T4, which multiplies eight times as fast in fp16: 65.0 to 8.1 TFLOP/s."""
    name = {"deviceProperties": [{"id": 0, "name": "Tesla T4"}]}
    events = [op("aten::mm", 0, 900), launch(5, 5, 1), kernel("volta_sgemm_128x64_nn", 20, 800, 1)]
    (tmp_path / "t4.json").write_text(json.dumps({"schemaVersion": 1, **name, "traceEvents": events}))
    found = rooflines.analyze(tmp_path / "t4.json")
    assert found.findings[0].title == "Run the matrix work in fp16"
    assert found.findings[0].saves_s == pytest.approx(800e-6 * (1 - 8.1 / 65), rel=0.01)
    assert "matrix kernels in fp32, by their names" in found.findings[0].evidence


# --- faster kernels and a host that is late ----------------------------------------------------------------------------------------


def replayed(after, durations, waits):
    """A host that launches kernels of one stream, each ``after`` the one before, and before some of them waits for the device."""
    host, end, events = 0.0, 0.0, []
    for number, (pause, duration, wait) in enumerate(zip(after, durations, waits, strict=True)):
        if wait:
            events.append(runtime("cudaStreamSynchronize", host, max(end - host, 0) + 0.5))
            host = max(host, end) + 0.5
        host += pause
        start = max(host + 2, end)
        end = start + duration
        events += [launch(host, 1, number), kernel("k", start, duration, number)]
    return events, end


@pytest.mark.parametrize("seed", range(20))
def test_faster_kernels_save_no_more_than_what_the_host_does_not_delay(tmp_path, seed):
    random = np.random.default_rng(seed)
    after, durations = random.integers(3, 60, 30).tolist(), random.integers(2, 80, 30).tolist()
    waits = (random.random(30) < 0.2).tolist()
    events, end = replayed(after, durations, waits)
    _, sooner = replayed(after, [duration / 10 for duration in durations], waits)
    timeline = analyzed(tmp_path, *events).timeline
    assert 0 <= end - sooner <= 1e6 * timeline.critical_s
    assert timeline.critical_s <= timeline.busy_s


def test_a_precision_saves_only_after_the_host_where_that_is_late(tmp_path):
    """Three fp32 products of 60 us, each 200 us after the one before: 1/15 of their time changes nothing."""
    name = {"deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}]}
    events = []
    for number in range(3):
        at = 200 * number
        events += [
            span(f"ProfilerStep#{number}", at, 200), mm(at, 20, 1024, 1024, 1024), launch(at + 5, 5, number),
            kernel("ampere_sgemm_128x64_nn", at + 12, 60, number),
        ]  # fmt: skip
    (tmp_path / "h100.json").write_text(json.dumps({"schemaVersion": 1, **name, "traceEvents": events}))
    found = rooflines.analyze(tmp_path / "h100.json")
    busy, precision = found.findings
    assert (busy.title, precision.title) == ("Keep the device busy", "Run the matrix work in bf16")
    assert precision.saves_s is None
    assert 0 < precision.later_s < 60e-6
    assert "µs once the host launches in time" in printed(found)


# --- idle time ---------------------------------------------------------------------------------------------------------------------


def test_a_call_of_a_kernel_that_was_launched_before_is_no_first_call():
    found = analysis_of(STRANGERS / "long_calls_of_kernels_seen_before.json.gz")
    assert not any("Warm up" in finding.title for finding in found.findings)
    assert not any(work.kind == "runtime" for work in found.host_work)


def test_a_long_call_of_a_new_kernel_is_one(tmp_path):
    found = analyzed(
        tmp_path, op("aten::a", 0, 20), launch(5, 5, 1), kernel("first", 20, 10, 1), op("aten::b", 50, 5000), launch(60, 4900, 2),
        kernel("second", 4970, 10, 2), op("aten::a", 6000, 5000), launch(6010, 4900, 3), kernel("first", 10920, 10, 3),
    )  # fmt: skip
    works = [work for work in found.host_work if work.kind == "runtime"]
    assert sum(work.idle_s for work in works) == pytest.approx(4900e-6, rel=0.05)


def test_all_idle_time_is_one_class_of_the_headline(tmp_path):
    """Idle for 60 of 100 us: 30 before a late launch, 30 before work whose launch is not in the trace."""
    found = analyzed(
        tmp_path, span("ProfilerStep#0", 0, 100), op("aten::a", 0, 4), launch(1, 2, 1), kernel("a", 0, 20, 1),
        op("aten::b", 48, 4), launch(49, 1, 2), kernel("b", 50, 10, 2), kernel("c", 90, 10, 99),
    )  # fmt: skip
    idle = found.timeline.idle_s / found.timeline.span_s
    assert idle == pytest.approx(0.6)
    assert "idle for 60 % of the step" in found.verdict, found.verdict


def test_a_gap_that_occurs_once_is_named_and_no_reason_to_compile(tmp_path):
    found = analyzed(tmp_path, op("aten::a", 0, 100), op("aten::b", 150, 100), op("aten::backward", 10_000, 100))
    assert (found.gap.before, found.gap.lasts_s) == ("aten::backward", pytest.approx(9750e-6))
    assert "occurs once in the trace" in found.verdict
    assert "Host-bound" not in found.verdict
    assert found.gap.host_s == pytest.approx(found.gap.lasts_s)
    assert "torch.compile" not in str(found.findings)


@pytest.mark.parametrize(("other", "is_one"), [(60, True), (100, False), (150, False)])
def test_a_gap_that_has_its_like_may_recur(tmp_path, other, is_one):
    found = analyzed(
        tmp_path, op("aten::a", 0, 10), op("aten::b", 160, 10), op("aten::a", 170 + other, 10), op("aten::c", 185 + other, 9)
    )
    assert (found.gap is not None) == is_one


def test_a_gap_of_a_single_step_may_recur_in_every_step(tmp_path):
    events = op("aten::a", 0, 100), op("aten::b", 150, 100), op("aten::backward", 10_000, 100)
    assert analyzed(tmp_path, span("ProfilerStep#0", 0, 10_200), *events).gap is None


def test_a_gap_on_a_device_is_named_too_and_counts_once(tmp_path):
    """10 ms before the second launch, which the host makes late, and 0.6 ms before the third."""
    found = analyzed(
        tmp_path, op("aten::a", 0, 20), launch(5, 5, 1), kernel("a", 20, 400, 1), op("aten::b", 10_415, 20), launch(10_418, 2, 2),
        kernel("b", 10_420, 400, 2), op("aten::c", 11_415, 20), launch(11_418, 2, 3), kernel("c", 11_420, 400, 3),
    )  # fmt: skip
    assert (found.gap.before, found.gap.lasts_s) == ("b", pytest.approx(10e-3))
    assert "Host-bound" not in found.verdict
    assert sum(finding.most_s for finding in found.findings) <= found.timeline.idle_s


def test_collectives_of_one_size_that_differ_wait():
    found = analysis_of(STRANGERS / "all_reduces_of_one_size_one_rank.json.gz")
    wait = next(finding for finding in found.findings if finding.title == "Find out what the collectives wait for")
    assert "takes 586 µs to 19.1 ms, although the size is the same" in wait.evidence
    row = max(found.collectives, key=lambda row: row.time_s)
    assert wait.saves_s == pytest.approx(row.exposed_s - row.calls * row.shortest_s, rel=0.01)
    assert not any("Hide the communication" in finding.title for finding in found.findings[: found.findings.index(wait)])


# --- files with nothing to analyze ---------------------------------------------------------------------------------------------------


def test_a_trace_of_runtime_calls_is_refused(tmp_path):
    with pytest.raises(TraceError, match="has no operators and no device events"):
        analyzed(tmp_path, runtime("cudaDeviceSynchronize", 0), runtime("cudaEventRecord", 5))


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


def test_a_share_of_what_was_not_recorded_is_absent():
    columns = analysis_of(DATA / "not_judged" / "launches_without_kernels_a100.json.gz").columns()
    assert set(columns["time_share"]) == {None}
    assert np.isfinite(columns["time_s"]).all()


def test_nothing_is_drawn_on_the_roofline_by_the_times_of_a_host():
    found = analysis_of(DATA / "not_judged" / "launches_without_kernels_a100.json.gz")
    chart = roofline_of(found)
    assert chart is None or not (chart.points or chart.rings)
    assert {one.row.flop_per_s for one in table_rows(found)} == {None}


# --- what a trace does not say -----------------------------------------------------------------------------------------------------


def test_paths_are_cut_to_the_file_and_its_folder_unless_they_are_asked_for(tmp_path):
    events = [
        op("aten::a", 0, 20), launch(5, 5, 1), kernel("a", 12, 10, 1), frame("/home/me/secret/train.py(41): load", 30, 900),
        frame("pack/age/layers/linear.py(7): forward", 940, 900), op("aten::a", 1900, 20), launch(1905, 5, 2), kernel("a", 1912, 10, 2),
    ]  # fmt: skip
    names = {work.name for work in analyzed(tmp_path, *events).host_work}
    assert names == {"train.py(41): load", "layers/linear.py(7): forward"}
    kept = {work.name for work in analyzed(tmp_path, *events, keep_paths=True).host_work}
    assert kept == {"/home/me/secret/train.py(41): load", "pack/age/layers/linear.py(7): forward"}


def test_a_pass_in_training_mode_is_told_and_no_inference(tmp_path):
    dropped = op("aten::native_dropout", 0, 20), launch(5, 5, 1), kernel("fused_dropout_kernel_vec", 12, 10, 1)
    found = analyzed(tmp_path, *dropped)
    assert any(finding.title.startswith("Call model.eval()") for finding in found.findings)
    assert "forward only" in printed(found)
    backward = op("autograd::engine::evaluate_function: MulBackward0", 30, 20), op("aten::mul", 32, 10)
    trained = analyzed(tmp_path, *dropped, *backward)
    assert not any("eval()" in finding.title for finding in trained.findings)
    assert "training" in printed(trained)


def test_the_host_before_the_device_and_several_devices_are_told(tmp_path):
    found = analyzed(tmp_path, op("aten::a", 0, 500), op("aten::b", 600, 20), launch(605, 5, 1), kernel("b", 620, 100, 1))
    assert found.basis.before_s == pytest.approx(620e-6)
    assert found.caveats[0] == "without 620 µs before the first work of the device"
    other = kernel("b", 620, 100, 2) | {"args": {"correlation": 2, "device": 1, "stream": 7}}
    two = analyzed(tmp_path, op("aten::b", 600, 20), launch(605, 2, 1), launch(608, 2, 2), kernel("b", 620, 100, 1), other)
    assert two.basis.devices == 2
    assert "union over all devices" in two.verdict


def test_work_that_begins_before_its_launch_is_a_matter_of_clocks(tmp_path):
    late = [event for number in range(3) for event in (launch(100 * number + 50, 5, number), kernel("a", 100 * number, 40, number))]
    assert any("clocks of host and device differ" in note for note in analyzed(tmp_path, *late).notes)
    right = [event for number in range(3) for event in (launch(100 * number, 5, number), kernel("a", 100 * number + 50, 40, number))]
    assert not any("clocks" in note for note in analyzed(tmp_path, *right).notes)


@pytest.mark.parametrize(("width", "size"), [("2u", 2), ("4u", 4), ("8", 8)])
def test_a_kernel_that_concatenates_names_the_size_of_an_element(tmp_path, width, size):
    name = f"void at::native::(anonymous namespace)::CatArrayBatchedCopy<at::native::(anonymous namespace)::OpaqueType<{width}>, int>"
    cat = op("aten::cat", 0, 20, dims=[[[16, 8], [16, 8]], []], types=["TensorList", "Scalar"], concrete=["", "0"])
    (row,) = analyzed(tmp_path, cat, launch(5, 5, 1), kernel(name, 12, 10, 1)).operators
    assert row.bytes == 2 * 2 * 16 * 8 * size


def test_a_copy_from_pageable_memory_that_lasts_until_it_is_done_is_a_wait(tmp_path):
    copy = [op("aten::copy_", 20, 300), runtime("cudaMemcpyAsync", 25, 200, 2), copied("Memcpy HtoD (Pageable -> Device)", 150, 60, 2)]
    events = [op("aten::a", 0, 15), launch(5, 5, 1), kernel("a", 12, 100, 1), *copy, op("aten::a", 400, 20), launch(405, 5, 3)]
    found = analyzed(tmp_path, *events, kernel("a", 412, 10, 3))
    assert [(wait.call, wait.operator) for wait in found.synchronizations] == [("cudaMemcpyAsync", "aten::copy_")]
    assert found.idle_breakdown["synchronization_s"] > 0


def test_a_long_allocation_begins_to_use_a_library_and_memory_that_takes_long_is_a_stall(tmp_path):
    events = [
        op("aten::a", 0, 20), launch(5, 5, 1), kernel("a", 12, 10, 1), op("aten::conv", 30, 200_000), runtime("cudaFree", 40, 190_000),
        launch(200_010, 5, 2), kernel("b", 200_020, 10, 2), op("aten::empty_strided", 200_100, 3000), op("aten::a", 203_200, 20),
        launch(203_205, 5, 3), kernel("a", 203_212, 10, 3),
    ]  # fmt: skip
    found = analyzed(tmp_path, *events)
    assert found.findings[0].title == "Warm up before the recorded steps"
    assert {work.kind for work in found.host_work if work.name in ("cudaFree", "aten::empty_strided")} == {"runtime"}


def test_a_row_that_copies_little_is_exposed_with_its_kernels(tmp_path):
    """As a sort does: 100 us of a kernel and 2 of a copy, while nothing else runs."""
    sort = op("aten::sort", 0, 300), launch(5, 5, 1), kernel("sort", 12, 100, 1), launch(120, 5, 2)
    (row,) = analyzed(tmp_path, *sort, copied("Memcpy DtoD (Device -> Device)", 130, 2, 2)).rows
    assert row.exposed_s == pytest.approx(102e-6)


def test_a_range_of_torch_1_8_is_no_operator(tmp_path):
    old = {"Trace name": "PyTorch Profiler"}
    add = op("aten::mul", 100, 50, dims=[[4], [4]], types=["float", "float"])
    events = [op("model_inference", 0, 1000) | {"cat": "Operator", "args": old}, add | {"args": add["args"] | old}]
    assert {row.name for row in analyzed(tmp_path, *events).rows} == {"aten::mul"}


@pytest.mark.parametrize(("hours", "named"), [(0.5, False), (2000, True)])
def test_traces_that_name_no_ranks_and_were_recorded_months_apart_are_not_of_one_job(tmp_path, hours, named):
    now = 1.7e15
    for number, name in enumerate(("before.json", "after.json")):
        at = now + number * hours * 3.6e9
        events = [op("aten::a", at, 20), launch(at + 5, 5, 1), kernel("a", at + 12, 10, 1)]
        (tmp_path / name).write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    paths = [str(tmp_path / name) for name in ("before.json", "after.json")]
    if named:
        with pytest.raises(UsageError, match="hours apart"):
            rooflines.analyze_ranks(paths)
    else:
        assert len(rooflines.analyze_ranks(paths).ranks) == 2


def test_integers_of_windows_are_integers(tmp_path):
    counter = op("aten::add_", 0, 20, dims=[[3], [], []], types=["__int64", "Scalar", "Scalar"], concrete=["", "1", "1"])
    (row,) = analyzed(tmp_path, counter).operators
    assert row.bytes == 2 * 8 * 3


# --- call sites --------------------------------------------------------------------------------------------------------------------


def test_a_call_whose_shapes_depend_on_the_data_is_one_row(tmp_path):
    """Six steps, each with as many rows as its data has: a product, its backward, and a square matrix of the same size in all."""
    weight, square, sizes = torch.randn(64, 32, requires_grad=True), torch.randn(48, 48), (10, 20, 30, 40, 50, 60)
    steps = torch.profiler.schedule(wait=0, warmup=1, active=6, repeat=1)
    path = str(tmp_path / "trace.json")
    with torch.profiler.profile(
        record_shapes=True, schedule=steps, on_trace_ready=lambda one: one.export_chrome_trace(path)
    ) as profiler:
        for size in (70, *sizes):
            (torch.randn(size, 64) @ weight).sum().backward()
            square @ square
            profiler.step()
    analysis = rooflines.analyze(path)
    assert analysis.basis.steps == 6
    rows = [*analysis.operators, *analysis.coverage.unmodeled]
    assert all(row.calls >= 1 for row in rows if row.phase == "forward")
    varying, same = sorted((row for row in rows if row.name == "aten::mm" and row.phase == "forward"), key=lambda row: row.shapes)
    assert (varying.shapes, same.shapes) == ("10–60x64, 64x32", "48x48, 48x48")
    assert (varying.calls, varying.flops) == (1, 2 * 64 * 32 * sum(sizes) // 6)
    assert len(varying.step_times_s) == 6
    assert varying.time_s == pytest.approx(sum(varying.step_times_s) / 6)
    (gradient,) = (row for row in rows if row.name == "aten::mm" and row.phase == "backward")
    assert (gradient.calls, gradient.flops) == (1, 2 * 64 * 32 * sum(sizes) // 6)
    # What ran when speaks of the same rows.
    placed = {at for at in analysis.activity.rows if at >= 0} | set(analysis.activity.unplaced)
    assert max(placed) < len(rows)
    assert {rows[at].name for at in placed} >= {"aten::mm"}


# --- a first step that only starts up ----------------------------------------------------------------------------------------------


def device_steps(*launches_and_lengths):
    """Steps one after another: how many kernels of 10 µs each launches in a row, and how long it lasts on the host."""
    at, number = 0.0, 0
    for step, (launches, length) in enumerate(launches_and_lengths):
        yield span(f"ProfilerStep#{step}", at, length - 1)
        for place in range(launches):
            number += 1
            began = at + 20 * place + 1
            yield from (op("aten::relu", began, 10), launch(began + 2, 5, number), kernel("relu", began + 8, 10, number))
        at += length


@pytest.mark.parametrize(
    ("first", "others", "left_out"),
    [
        ((10, 900), [(10, 300), (10, 400)], True),  # allocates
        ((2, 300), [(10, 300), (10, 300)], True),  # fills a pipeline
        ((10, 700), [(10, 300), (10, 400)], False),
        ((10, 900), [(10, 300)], False),  # which of two is the usual one?
        ((10, 300), [(10, 900), (10, 300)], False),
    ],
)
def test_a_first_step_that_only_starts_up_is_left_out(tmp_path, first, others, left_out):
    analysis = analyzed(tmp_path, *device_steps(first, *others))
    told = [note for note in analysis.notes if "first of" in note]
    assert (analysis.basis.steps, bool(told)) == (len(others) + (not left_out), left_out)
    if left_out:
        assert analysis.traced_steps[0].name == "ProfilerStep#1"
        calls = sum(row.calls for row in (*analysis.operators, *analysis.coverage.unmodeled))
        assert calls == 10
        assert analysis.timeline.span_s == pytest.approx(sum(length for _, length in others) / len(others) * 1e-6, rel=0.1)


# --- experts -----------------------------------------------------------------------------------------------------------------------


class Mixture(nn.Module):
    """Four experts of a token's scores; each computes all tokens, or those that chose it."""

    def __init__(self, dense, chooses=True):
        super().__init__()
        self.dense, self.chooses, self.gate = dense, chooses, nn.Linear(64, 4)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(64, 256), nn.Linear(256, 64)) for _ in range(4))

    def forward(self, x):
        scores = self.gate(x).softmax(-1)
        if not self.chooses:
            return (torch.stack([expert(x) for expert in self.experts], 1) * scores[..., None]).sum(1)
        scores, chosen = scores.topk(1)
        if self.dense:
            results = torch.stack([expert(x) for expert in self.experts], 1)
            return scores * results[torch.arange(len(x)), chosen[:, 0]]
        result = torch.zeros_like(x)
        for at, expert in enumerate(self.experts):
            own = torch.arange(at, len(x), 4)  # as even as a router can be
            result.index_add_(0, own, expert(x[own]))
        return scores * result


@pytest.mark.parametrize(("chooses", "dense"), [(True, True), (True, False), (False, False)])
def test_experts_that_all_compute_all_tokens_are_told(tmp_path, chooses, dense):
    """Not where the scores weigh the results of all experts, which all of them are needed for."""
    model, x = Mixture(dense, chooses), torch.randn(512, 64)
    with torch.no_grad():
        model(x)
        analysis = recorded(tmp_path, lambda: model(x), record_shapes=True, with_stack=True)
    found = [finding for finding in analysis.findings if "experts" in finding.title]
    assert len(found) == dense
    if dense:
        assert "each of 4 experts computes all 512 tokens" in found[0].evidence
        products = sum(row.time_s for row in analysis.operators if "Sequential" in row.module and row.category == "matmul")
        assert found[0].saves_s == pytest.approx(0.75 * products, rel=1e-6)


def test_the_dtype_of_scales_is_not_that_of_the_numbers():
    name = "cutlass13device_kernelINS_4gemm_MainloopSm120_12float_e2m1_tENS_13float_ue4m3_tEEE_SM120_16x8x64_TN_VSISJ_16bfloat16_t"
    assert matrix_precision(name) == "nvfp4"
    assert "16x8x64" not in short_kernel(name)  # of an instruction, and not of the tile


# --- work that was launched long ago -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("wait", "late"), [(400, True), (40, False)])
def test_work_that_begins_long_after_its_launch_waits_for_something_that_is_not_in_the_trace(tmp_path, wait, late):
    events = []
    for number in range(20):
        at = 500 * number
        events += [op("aten::relu", at, 10), launch(at + 2, 5, number + 1), kernel("relu", at + wait, 100, number + 1)]
    analysis = analyzed(tmp_path, *events)
    named = [finding.title for finding in analysis.findings]
    assert ("Find out what launched work waits for" in named) == late
    assert ("Keep the device busy" in named) == (not late)
    assert (analysis.idle_breakdown.get("outside_s", 0.0) > 0) == late
    assert ("although work had been launched" in analysis.verdict) == late


# --- of the fourth readers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "left_out"), [("Activity Buffer Request", True), ("Runtime Triggered Module Loading", False)])
def test_what_the_driver_loads_is_no_work_of_the_profiler(tmp_path, name, left_out):
    busy = [op("aten::relu", 0, 20), launch(5, 5, 1), kernel("relu", 12, 100, 1), op("aten::exp", 150, 5000)]
    overhead = {"ph": "X", "cat": "overhead", "name": name, "pid": -1, "tid": 0, "ts": 200, "dur": 4000, "args": {}}
    found = analyzed(tmp_path, *busy, launch(160, 4900, 2), kernel("exp", 5070, 50, 2), overhead)
    assert (found.basis.overhead_s is not None) == left_out
    (advice,) = (one for one in found.findings if one.title == "Warm up before the recorded steps")
    assert (advice.saves_s > 4e-3) != left_out


@pytest.mark.parametrize(("name", "half", "is_one"), [("cutlass_80_simt_sgemm_128x32_8x5_tn_align1", False, False),
                                                      ("cutlass_80_tensorop_s1688gemm_128x128_tn_align1", False, True),
                                                      ("cutlass_80_simt_hgemm_128x32_8x5_tn_align1", True, True)])  # fmt: skip
def test_kernels_without_tensor_cores_name_an_alignment_that_says_nothing(name, half, is_one):
    assert is_fallback(name, half=half, hopper=False) == is_one


@pytest.mark.parametrize("inside", [True, False])
def test_a_range_named_after_the_backward_begins_behind_what_it_differentiates(tmp_path, inside):
    """The loss and its backward are in one range; the engine has a thread of its own."""
    loss = [op("aten::mse_loss", 10, 20, seq=5), launch(15, 5, 1), kernel("loss", 40, 10, 1)]
    seed = [op("aten::ones_like", 60, 10), launch(62, 5, 2), kernel("ones", 70, 10, 2)]
    node = [op("autograd::engine::evaluate_function: MseLossBackward0", 100, 50, tid=2, seq=5, fwd=1),
            op("aten::mse_loss_backward", 110, 20, tid=2), launch(115, 5, 3, tid=2), kernel("gradient", 130, 20, 3)]  # fmt: skip
    found = analyzed(tmp_path, span("my_backward", 5 if inside else 55, 195), *loss, *seed, *node)
    phases = {row.name: row.phase for row in found.rows}
    assert (phases["aten::mse_loss"], phases["aten::ones_like"]) == ("forward", "backward")
    assert found.division.forward_s == pytest.approx(10e-6)


@pytest.mark.parametrize(("share", "remedy"), [(0.98, "larger batch"), (0.5, "larger graphs")])
def test_graphs_that_hold_all_cannot_be_larger(tmp_path, share, remedy):
    busy = [kernel(f"k{at}", 100 + 50 * at, 30 * share, 1) for at in range(20)]
    eager = [kernel("e", 1200 + 50 * at, 30 * (1 - share), 10 + at) for at in range(20)]
    calls = [runtime("cudaGraphLaunch", 50, 20, 1), *(launch(1190 + 50 * at, 5, 10 + at) for at in range(20))]
    found = analyzed(tmp_path, op("aten::relu", 0, 10), *calls, *busy, *eager)
    advice = next(one for one in found.findings if one.title == "Keep the device busy")
    assert remedy in advice.suggestion
    assert "TORCH_LOGS" not in advice.suggestion  # nothing was compiled


@pytest.mark.parametrize(("dtype", "compiles"), [("c10::complex<double>", False), ("float", True)])
def test_what_computes_on_complex_numbers_is_not_compiled(tmp_path, dtype, compiles):
    many = (op("aten::mul", 20 * at, 10, dims=[[8], [8]], types=[dtype, dtype]) for at in range(50))
    (advice,) = (one for one in analyzed(tmp_path, *many).findings if one.title == "Keep the device busy")
    assert ("torch.compile" in advice.suggestion) == compiles


def test_only_operators_without_shapes_are_said_to_lack_them(tmp_path):
    """Of what has no bound two thirds lack their shapes, and the rest is launched outside of any operator."""
    events = [op("aten::mm", 0, 20), launch(5, 5, 1), kernel("ampere_sgemm_128x64_nn", 30, 200, 1), launch(60, 5, 2)]
    found = analyzed(tmp_path, span("model", 0, 100), *events, kernel("mine", 230, 100, 2))
    assert found.verdict.count("67 %") == 2
    assert "67 % of the trace is in operators whose shapes were not recorded" in found.verdict


def test_fused_attention_in_fp32_is_bounded_by_three_products_in_tf32(tmp_path):
    concrete = ["", "", "", "", "False", "0.", "False", ""]
    dims = {"dims": [[2, 16, 1024, 64]] * 3 + [[]] * 5, "types": ["float"] * 3 + [""] + ["Scalar"] * 3 + [""], "concrete": concrete}
    name = "aten::_scaled_dot_product_efficient_attention"
    devices = {"deviceProperties": [{"id": 0, "name": "NVIDIA A100-SXM4-40GB"}]}
    bounds = {}
    for kind in ("fmha_cutlassF_f32_aligned_64x64_rf_sm80", "fmha_cutlassF_f32_aligned_64x64_rf_sm75"):
        events = [op(name, 0, 20, **dims), launch(5, 5, 1), kernel(kind, 30, 1000, 1)]
        (tmp_path / f"{kind}.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": events, **devices}))
        (row,) = rooflines.analyze(tmp_path / f"{kind}.json").operators
        bounds[kind[-4:]] = row.lower_bound_s
    assert bounds["sm80"] == pytest.approx(row.matrix_flops / (156e12 / 3))
    # Without tensor cores the softmax is on the same units.
    assert bounds["sm75"] == pytest.approx(row.flops / 19.5e12)


def test_without_roofs_products_in_fp32_are_named_and_nothing_is_promised(tmp_path):
    events = [mm(0, 20, 512, 512, 512), launch(5, 5, 1), kernel("ampere_sgemm_128x64_nn", 30, 500, 1)]
    (advice,) = (one for one in analyzed(tmp_path, *events).findings if one.title == "Run the matrix work in bf16")
    assert advice.saves_s is None
    assert "roofs of this device are not known" in advice.evidence


# --- of the fifth readers ----------------------------------------------------------------------------------------------------------


def test_a_struct_of_windows_is_a_dtype(tmp_path):
    (row,) = analyzed(tmp_path, op("aten::mm", 0, 10, dims=[[4, 8], [8, 2]], types=["struct c10::BFloat16"] * 2)).operators
    assert (row.precision, row.matrix_flops) == ("bf16", 2 * 4 * 8 * 2)


@pytest.mark.parametrize("kind", [0, 1])
def test_memory_of_a_device_is_a_sign_of_one(tmp_path, kind):
    memory = [allocation(5, 1024), allocation(8, -1024)]
    for event in memory:
        event["args"]["Device Type"] = kind
    found = analyzed(tmp_path, op("aten::empty", 0, 10), op("aten::relu", 20, 10), *memory)
    assert bool(found.unrecorded) == bool(kind)
    assert ("the trace has 1 allocation of a device's memory" in found.verdict) == bool(kind)


def test_a_launch_that_takes_long_keeps_the_host_and_not_the_work(tmp_path):
    """The second call takes 600 µs, as one does that loads its kernel, and its work begins when it is over."""
    calls = [launch(5, 5, 1), launch(100, 600, 2)]
    found = analyzed(
        tmp_path, op("aten::relu", 0, 20), op("aten::exp", 90, 620), *calls, kernel("a", 12, 50, 1), kernel("b", 701, 50, 2)
    )
    assert found.idle_breakdown == {"host_bound_s": pytest.approx(638e-6), "kernel_wait_s": pytest.approx(1e-6)}


@pytest.mark.parametrize(
    ("name", "part"), [("gemv2T_kernel_val<int, int, float, float, float>", 0.5), ("ampere_sgemm_128x64_nn", 0.875)]
)
def test_a_product_with_a_vector_saves_half_at_most_in_half_precision(tmp_path, name, part):
    devices = {"deviceProperties": [{"id": 0, "name": "Tesla T4"}]}
    events = [op("aten::mm", 0, 20), launch(5, 5, 1), kernel(name, 30, 1000, 1)]
    (tmp_path / "t4.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": events, **devices}))
    (advice,) = rooflines.analyze(tmp_path / "t4.json").findings
    assert advice.most_s == pytest.approx(part * 1e-3, rel=0.01)


@pytest.mark.parametrize("training", [True, False])
def test_batch_normalization_in_training_mode_is_told_on_a_processor(tmp_path, training):
    """A sum in floating point, as of a loss, is no count of batches."""
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).train(training)
    total = torch.zeros(())

    def work():
        total.add_(network(torch.randn(2, 3, 8, 8)).sum())

    with torch.no_grad():
        found = recorded(tmp_path, work, record_shapes=True)
    assert ("Call model.eval(), if this is inference" in [one.title for one in found.findings]) == training


def test_compiling_inside_of_a_trace_is_a_first_call(tmp_path):
    """The backward that torch.compile traces in it is none of the program."""
    compiling = [span("_compile.compile_inner (dynamo_timed)", 100, 5000), op("MmBackward0", 2000, 20, seq=3)]
    found = analyzed(
        tmp_path, op("aten::relu", 0, 20), launch(5, 5, 1), kernel("a", 12, 50, 1), *compiling, op("aten::exp", 5200, 20),
        launch(5205, 5, 2), kernel("b", 5212, 50, 2),
    )  # fmt: skip
    warm, *_ = found.findings
    assert warm.title == "Warm up before the recorded steps"
    assert "_compile.compile_inner (dynamo_timed) 5.00 ms" in warm.evidence
    assert found.workload.mode == "inference"


@pytest.mark.parametrize("twice", [True, False])
def test_kernels_that_are_launched_once_do_not_show_what_recurs(tmp_path, twice):
    events = []
    for at in range(6):
        events += [launch(1000 * at, 5, at), kernel("a" if twice else f"a{at}", 1000 * at + 8, 10, at)]
    (advice,) = (one for one in analyzed(tmp_path, *events).findings if one.title == "Keep the device busy")
    assert ("graph" in advice.suggestion) == twice
    assert ("no kernel is launched twice" in advice.evidence) != twice


def test_what_is_fitted_to_the_median_step_waits_for_its_data_as_steps_do(tmp_path):
    """Four steps of 1 ms, 0.3 ms of each in the loader; in two of them the operators take twice as long."""
    events = []
    for number in range(4):
        at, slow = 2000 * number, number % 2
        events += [span(f"ProfilerStep#{number}", at, 1000 + 600 * slow), span("enumerate(DataLoader)#_Single.__next__", at + 10, 300)]
        events.append(op("aten::mm", at + 320, 600 * (1 + slow), dims=[[8, 8], [8, 8]], types=["float"] * 2))
    found = analyzed(tmp_path, *events)
    assert found.basis.steady
    assert found.division.data_loading_s <= 0.32e-3 * 1.3
    assert found.division.data_loading_s / found.division.step_s == pytest.approx((300 / 1000 + 300 / 1600) / 2, rel=1e-6)


# --- a trace that lacks any kind of events -----------------------------------------------------------------------------------------

KINDS = {
    "operators": {"cpu_op", "Operator"}, "calls": {"cuda_runtime", "cuda_driver", "Runtime"}, "annotations": {"user_annotation"},
    "device": {"kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset"},
}  # fmt: skip
SMALL = [path for path in TRACES if path.stat().st_size < 60_000]


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
