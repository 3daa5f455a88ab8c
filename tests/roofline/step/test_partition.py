"""The step as one partition, on small traces: the figures of each test follow from the microseconds in it."""

import json

import pytest
from msgspec.structs import replace

from rooflines.device_specs.records import Ceiling, Ceilings, Source
from rooflines.profiler.records import Environment, Run, RunFile, StepTimes, Workload
from rooflines.reports.words.rows import judged_total
from rooflines.roofline.analysis import PARTS
from rooflines.roofline.analyze import analyze
from rooflines.roofline.judge.step.partition import Label, partition, whole_trace
from rooflines.roofline.own.device import NO_LAUNCH
from tests.roofline.rooms import analyzed as foreign
from tests.roofline.rooms import attributed, copied, frame, printed, runtime
from tests.traces import add, kernel, launch, mm, op, span

SHEET = Source(kind="spec", detail="a data sheet")
HBM = Ceiling(kind="memory", name="HBM", value=1e12, unit="B/s", source=SHEET, level="HBM", access="triad")
VECTOR = Ceiling(kind="compute", name="fp32 vector", value=400e9, unit="FLOP/s", source=SHEET, precision="fp32", engine="vector")
DEVICE = Ceilings(device="d", kind="cuda", ceilings=(VECTOR, HBM))
FACTS = RunFile(
    status="complete",
    workload=Workload(name="net", mode="inference"),
    environment=Environment(host="h", os="o", python="3", rooflines="0", torch="2", device="cuda:0", device_name="d"),
    ceilings=DEVICE,
)


def divided(*events):
    """What ``events`` are divided into, their attribution, and the labels of its rows by their categories."""
    attribution = attributed(*events)
    return partition(attribution, [Label("unknown", row.count.category) for row in attribution.rows]), attribution


def microseconds(times):
    return {name: round(time_s * 1e6, 3) for name, time_s in times.items() if time_s}


def parts(found):
    return microseconds({part: getattr(found.division(), f"{part}_s") for part in PARTS})


def timeline(found):
    return microseconds({name: getattr(found.timeline, name) for name in found.timeline.__struct_fields__})


def analyzed(directory, *events, facts=FACTS):
    (directory / "t.pt.trace.json").write_text(json.dumps({"traceEvents": list(events)}))
    return analyze(Run(directory=directory, facts=replace(facts, trace="t.pt.trace.json"))).analysis


# Nothing launched a, b and c here; b runs into the first step, whose host waits for it. The step's own work begins at 30.
MIDDLE = (
    kernel("a", -40, 20, 3), kernel("b", -10, 40, 4), copied("Memcpy DtoD (Device -> Device)", -15, 5, 5),
    span("ProfilerStep#5", 0, 100), runtime("cudaDeviceSynchronize", 1, 29), add(2, 6), launch(4, 2, 20), kernel("d", 30, 50, 20),
    span("ProfilerStep#6", 100, 100), add(105, 10), launch(110, 2, 21), kernel("e", 120, 50, 21),
)  # fmt: skip


def test_work_launched_before_the_recording_is_in_no_step():
    found, attribution = divided(*MIDDLE)
    # From 30, where b ends, to 100, and from there to 200.
    assert (attribution.windows[:, 1] - attribution.windows[:, 0]).tolist() == [70_000, 100_000]
    assert found.step_s == pytest.approx(85e-6)
    # 50 of each step are kernels; of the first 80-100 are idle, of the second 100-120 and 170-200.
    assert timeline(found) == {"span_s": 85.0, "busy_s": 50.0, "compute_s": 50.0, "idle_s": 35.0}
    assert [gap for gap in attribution.gaps if gap.reason == NO_LAUNCH] == []
    # a 20, the copy 5, b 40.
    assert attribution.earlier_ns == 65_000
    assert any("65.0 µs of device time (3 events) was launched before the recording began" in note for note in attribution.notes)


def test_the_trace_as_a_whole_still_has_what_was_launched_before_it():
    """From -40 to 170: 65 + 100 of work, the rest idle."""
    _, attribution = divided(*MIDDLE)
    whole = whole_trace(attribution.trace, attribution.earlier_ns)
    assert (whole.span_s, whole.busy_s, whole.earlier_s) == pytest.approx((210e-6, 165e-6, 65e-6))


def test_earlier_work_is_in_no_figure_of_the_analysis(tmp_path):
    analysis = analyzed(tmp_path, *MIDDLE)
    assert analysis.coverage.unmodeled == ()
    assert [row.calls for row in analysis.operators] == [1]
    assert "unknown" not in analysis.bound_breakdown
    assert "65.0 µs" in printed(analysis)


def test_on_its_own_stream_work_with_a_lower_number_is_earlier_even_while_others_run():
    """The copy runs at 20, after the first kernel that was launched here, but its stream still works off what was there before. The
    step begins when that has ended, at 30: 30 of d and 10 of e are left in it."""
    found, attribution = divided(
        span("ProfilerStep#5", 0, 100), launch(4, 2, 20), kernel("d", 10, 50, 20),
        copied("Memcpy HtoD (Pinned -> Device)", 20, 10, 7, stream=9), launch(30, 2, 21), kernel("e", 70, 10, 21, stream=9),
    )  # fmt: skip
    assert attribution.earlier_ns == 10_000
    assert attribution.windows.tolist() == [[30_000, 100_000]]
    assert parts(found) == {"other": 40.0, "idle": 10.0, "host": 20.0}


def test_a_kernel_without_a_launch_behind_launched_work_stays_in_its_step():
    works = op("MyFunction", 3, 4), launch(4, 2, 20), kernel("d", 10, 50, 20)
    found, attribution = divided(span("ProfilerStep#5", 0, 100), *works, kernel("graph", 60, 40, 30))
    assert attribution.earlier_ns == 0
    assert parts(found) == {"other": 40.0, "forward": 50.0, "host": 4.0, "idle": 6.0}


def test_a_last_mark_without_work_is_no_step(tmp_path):
    """The profiler is stopped right after a step: 49 µs in which nothing ran."""
    work = (span("ProfilerStep#1", 0, 100), add(10, 10), launch(12, 2, 1), kernel("a", 20, 80, 1))
    one = analyzed(tmp_path, *work)
    two = analyzed(tmp_path, *work, span("ProfilerStep#2", 100, 49))
    assert (one.basis.steps, two.basis.steps) == (1, 1)
    assert one.timeline == two.timeline
    assert two.totals.flops == 1000
    assert "Step marks not counted because no operator ran in them: 1." in two.notes


def test_what_the_host_does_before_the_first_kernel_is_part_of_the_step(tmp_path):
    """A step of 382 ms, of which the host prepares images for 218 ms while the device has nothing to do."""
    events = (
        span("ProfilerStep#6", 0, 382), span("preprocess", 0, 218), op("aten::upsample_bilinear2d", 20, 180),
        mm(219, 10, 64, 64, 64), launch(220, 2, 1), kernel("gemm", 222, 150, 1), runtime("cudaDeviceSynchronize", 230, 150),
    )  # fmt: skip
    found, _ = divided(*events)
    # Idle: 0-220 nothing was launched, 220-222 the launch was under way, 372-382 nothing is launched any more.
    assert timeline(found) == {"span_s": 382.0, "busy_s": 150.0, "compute_s": 150.0, "idle_s": 232.0}
    assert microseconds(found.idle) == {"host_bound": 222.0, "synchronization": 8.0, "kernel_wait": 2.0}
    assert parts(found) == {"forward": 150.0, "host": 230.0, "idle": 2.0}
    analysis = analyzed(tmp_path, *events)
    assert analysis.verdict.startswith("Host-bound: for 60 % of the step, the device waits for the host to launch work")


def test_a_step_ends_with_the_last_work_that_it_launched_and_the_next_begins_there():
    found, attribution = divided(
        span("ProfilerStep#1", 0, 50), launch(5, 2, 1), kernel("a", 10, 70, 1),
        span("ProfilerStep#2", 50, 50), launch(55, 2, 2), kernel("b", 80, 40, 2),
    )  # fmt: skip
    assert attribution.windows.tolist() == [[0, 80_000], [80_000, 120_000]]
    assert found.step_s == pytest.approx(60e-6)
    assert timeline(found) == {"span_s": 60.0, "busy_s": 55.0, "compute_s": 55.0, "idle_s": 5.0}


def test_a_later_mark_begins_the_step_where_the_work_before_it_has_ended():
    """Between the steps, from 50 to 60, nobody makes a step."""
    _, attribution = divided(
        span("ProfilerStep#1", 0, 50), launch(5, 2, 1), kernel("a", 10, 20, 1),
        span("ProfilerStep#2", 60, 40), launch(65, 2, 2), kernel("b", 70, 20, 2),
    )  # fmt: skip
    assert attribution.windows.tolist() == [[0, 50_000], [60_000, 100_000]]


@pytest.mark.parametrize("marked", [True, False])
def test_times_without_marks_are_those_of_the_trace(tmp_path, marked):
    events = (add(0, 10), launch(5, 2, 1), kernel("a", 10, 20, 1), add(50, 10), launch(55, 2, 2), kernel("b", 90, 10, 2))
    analysis = analyzed(tmp_path, *events, *([span("ProfilerStep#1", 0, 100)] if marked else []))
    assert analysis.basis.per == ("step" if marked else "trace")
    # From the first to the last device event, or from the mark.
    assert analysis.timeline.span_s == pytest.approx(100e-6 if marked else 90e-6)
    assert ("of the trace" in analysis.verdict) is not marked
    assert (" a step" in printed(analysis)) is marked


# Kernels 0-60, copies 50-90, communication 40-100: 60 of computing, 30 of copies and 10 of communication that nothing else hides.
STREAMS = (
    span("ProfilerStep#1", 0, 100), add(0, 4), launch(0, 1, 1), kernel("compute", 0, 60, 1),
    launch(5, 1, 2), kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 40, 60, 2, stream=20),
    launch(7, 1, 3), copied("Memcpy HtoD (Pinned -> Device)", 50, 40, 3, stream=21),
)  # fmt: skip


def test_streams_that_overlap_are_one_step():
    found, _ = divided(*STREAMS)
    assert timeline(found) == {
        "span_s": 100.0, "busy_s": 100.0, "compute_s": 60.0, "memcpy_s": 40.0, "exposed_memcpy_s": 30.0,
        "communication_s": 60.0, "exposed_communication_s": 10.0, "overlap_s": 60.0,
    }  # fmt: skip
    assert microseconds(found.bounds()) == {"unknown": 60.0, "transfer": 30.0, "communication": 10.0}
    assert parts(found) == {"forward": 60.0, "host_to_device": 30.0, "communication": 10.0}
    assert sum(found.categories().values()) == pytest.approx(100e-6)


def test_what_is_hidden_is_said_beside_what_is_not(tmp_path):
    text = printed(analyzed(tmp_path, *STREAMS))
    assert "Communication takes 60.0 µs a step, of which other work hides 50.0 µs." in text
    assert "Copies take 40.0 µs a step, of which other work hides 10.0 µs." in text


def test_kernels_side_by_side_count_once_in_the_class_that_comes_first():
    """Two kernels of one operator's on two streams, 0-60 and 20-80: 80, not 120."""
    found, attribution = divided(
        span("ProfilerStep#1", 0, 80),
        add(0, 4),
        launch(0, 1, 1),
        launch(2, 1, 2),
        kernel("a", 0, 60, 1),
        kernel("b", 20, 60, 2, stream=8),
    )
    assert microseconds(found.bounds()) == {"unknown": 80.0}
    assert attribution.rows[0].time_ns == 80_000


def test_time_of_computation_that_another_kernel_hides_is_not_exposed():
    """0-60 an addition twice on two streams (40-60 again), 50-90 an all-reduce, 80-100 a product: 50, 20, 10 alone. A copy (0-65) hides
    the all-reduce for 5 and no computation."""
    _, attribution = divided(
        span("ProfilerStep#1", 0, 100), add(0, 4), launch(0, 1, 1), launch(2, 1, 2), kernel("a", 0, 60, 1),
        kernel("a", 40, 20, 2, stream=8), launch(5, 1, 3), kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 50, 40, 3, stream=20),
        mm(10, 4, 64, 64, 64), launch(11, 1, 4), kernel("gemm", 80, 20, 4),
        launch(15, 1, 5), copied("Memcpy HtoD (Pinned -> Device)", 0, 65, 5, stream=21),
    )  # fmt: skip
    rows = {row.signature.name: row.exposed_ns for row in attribution.rows}
    gaps = {gap.name[:6]: gap.exposed_ns for gap in attribution.gaps}
    assert rows == {"aten::add": 50_000, "aten::mm": 10_000}
    assert gaps == {"Memcpy": 5_000, "ncclDe": 15_000}


def test_an_operator_without_a_count_is_behind_one_with_a_count():
    """0-50 an addition, 30-70 an operator that nobody knows: 50 and 20."""
    found, _ = divided(
        span("ProfilerStep#1", 0, 70), add(0, 4), launch(0, 1, 1), op("mylib::mine", 5, 4), launch(6, 1, 2), kernel("a", 0, 50, 1),
        kernel("b", 30, 40, 2, stream=8),
    )  # fmt: skip
    assert microseconds(found.bounds()) == {"unknown": 70.0}
    assert microseconds(found.categories()) == {"element-wise": 50.0, "unknown": 20.0}


@pytest.mark.parametrize(("around", "name"), [
    (span("nccl:all_to_all", 10, 8), "void all_to_all_v2<float>(float*)"),
    (op("symm_mem::multimem_all_reduce_", 10, 8), "void multimem_all_reduce_kernel<c10::BFloat16, 16>"),
    (op("c10d::allreduce_", 10, 8), "sm90_custom_kernel"),
    (op("_c10d_functional::all_gather_into_tensor", 10, 8), "custom_gather"),
    (op("record_param_comms", 10, 8), "another_kernel"),
])  # fmt: skip
def test_what_a_collective_launches_is_communication_whatever_its_name(around, name):
    found, _ = divided(
        span("ProfilerStep#1", 0, 100),
        add(0, 4),
        launch(1, 1, 1),
        kernel("a", 5, 15, 1),
        around,
        launch(12, 2, 2),
        kernel(name, 20, 80, 2),
    )
    assert microseconds(found.bounds()) == {"communication": 80.0, "unknown": 15.0, "host": 1.0, "idle": 4.0}
    assert parts(found)["communication"] == 80.0
    assert timeline(found)["exposed_communication_s"] == 80.0


def test_a_collective_without_a_launch_is_communication():
    found, _ = divided(
        span("ProfilerStep#1", 0, 100),
        launch(1, 1, 1),
        kernel("a", 5, 15, 1),
        kernel("ncclKernel_AllReduce_RING_LL_Sum_float", 20, 80, 9),
    )
    assert parts(found) == {"other": 15.0, "communication": 80.0, "host": 1.0, "idle": 4.0}


def slowed():
    """Busy for 5.0 ms, traced for 9.9 ms: the profiler makes the host launch late. A product of 2e9 FLOP takes 5 ms at 400 GFLOP/s."""
    return (
        span("ProfilerStep#1", 0, 9900), mm(2000, 50, 1000, 1000, 1000), launch(2010, 10, 1), kernel("gemm", 2020, 5000, 1),
    )  # fmt: skip


def test_idle_time_is_what_the_timed_step_leaves(tmp_path):
    times = StepTimes(timed_ns=(5_200_000,) * 3, traced_ns=(9_900_000,), settled=True, rule="r")
    analysis = analyzed(tmp_path, *slowed(), facts=replace(FACTS, steps=times))
    assert (analysis.timeline.span_s, analysis.timeline.busy_s, analysis.timeline.idle_s) == pytest.approx((5.2e-3, 5.0e-3, 0.2e-3))
    assert analysis.division.step_s == pytest.approx(5.2e-3)
    assert analysis.bound_breakdown["compute"] / sum(analysis.bound_breakdown.values()) == pytest.approx(5.0 / 5.2)
    assert "Compute-bound for 96 % of the step" in analysis.verdict
    assert sum(finding.saves_s for finding in analysis.findings) <= 0.2e-3
    # The causes keep their proportions: of 4.9 ms traced 4.89 host, 0.01 on the way.
    assert analysis.idle_breakdown == pytest.approx({"host_bound_s": 0.2e-3 * 4.89 / 4.9, "kernel_wait_s": 0.2e-3 * 0.01 / 4.9})
    # The traced step stays on record.
    assert analysis.traced_steps[0].duration_s == pytest.approx(9.9e-3)


def test_kernels_that_took_longer_than_the_timed_step_are_fitted_into_it(tmp_path):
    times = StepTimes(timed_ns=(4_500_000,) * 3, traced_ns=(9_900_000,), settled=True, rule="r")
    analysis = analyzed(tmp_path, *slowed(), facts=replace(FACTS, steps=times))
    assert (analysis.timeline.busy_s, analysis.timeline.idle_s, analysis.division.step_s) == pytest.approx((4.5e-3, 0.0, 4.5e-3))
    assert sum(row.time_s for row in analysis.operators) == pytest.approx(4.5e-3)
    assert analysis.findings == ()


def test_without_timed_steps_the_traced_one_is_divided(tmp_path):
    analysis = analyzed(tmp_path, *slowed())
    assert (analysis.timeline.span_s, analysis.timeline.idle_s) == pytest.approx((9.9e-3, 4.9e-3))


def test_a_trace_with_python_stacks_says_that_host_times_are_inflated(tmp_path):
    """Three frames among six events."""
    events = (add(0, 10), launch(5, 2, 1), kernel("a", 10, 20, 1))
    note = "Host times are inflated: the profiler recorded Python stacks (3 of 6 events)"
    assert note in printed(foreign(tmp_path, *events, *(frame("train.py(7): step", n, 40 - 2 * n) for n in range(3))))
    assert "Host times are inflated" not in printed(foreign(tmp_path, *events))


def test_a_long_wait_of_launched_work_is_for_something_outside_of_the_trace(tmp_path):
    """A blocking copy at 30 waits 493 ms for work that was launched before the trace; then 400 µs of work follow."""
    events = (
        add(0, 5), launch(1, 2, 1), kernel("a", 5, 20, 1),
        runtime("hipMemcpyWithStream", 30, 493_010, 2), copied("CopyDeviceToHost", 493_030, 5, 2),
        add(493_045, 5), launch(493_046, 2, 3), kernel("b", 493_050, 400, 3),
    )  # fmt: skip
    found, _ = divided(*events)
    # Idle: 25-30 nothing was launched, 30-493,030 the copy waited, 493,035-493,046 the host waited or ran, then it was
    # under way.
    assert microseconds(found.idle) == {"host_bound": 5.0 + 6.0, "outside": 493_000.0, "synchronization": 5.0, "kernel_wait": 4.0}
    assert parts(found)["idle"] == 493_004.0
    analysis = analyzed(tmp_path, *events)
    assert analysis.findings == ()
    assert "493 ms launched work had not begun for longer than a launch takes" in printed(analysis)


def test_a_launch_that_waits_behind_running_work_is_a_host_that_runs_ahead(tmp_path):
    """Ten kernels of 1 ms, all launched in the first 100 µs: the last one waits 9 ms, and the device is never idle."""
    events = [add(0, 100)]
    for number in range(10):
        events += [launch(2 + 9 * number, 5, number + 1), kernel("k", 10 + 1000 * number, 1000, number + 1)]
    analysis = analyzed(tmp_path, *events)
    assert analysis.timeline.idle_s == 0
    assert [finding for finding in analysis.findings if "launch" in finding.title.lower() or "idle" in finding.evidence] == []
    assert "the host runs ahead of the device" in printed(analysis)


def test_what_is_faster_than_its_bound_counts_with_its_time_everywhere(tmp_path):
    """Products of 5 ms by the roof: one takes 4 ms (flagged), one 8 ms; an operator without a bound takes 3 ms. 4 + 5 of bound, 3 of
    headroom, 3 unjudged: 15."""
    analysis = analyzed(
        tmp_path, span("ProfilerStep#1", 0, 15_000),
        span("a", 0, 50), mm(0, 10, 1000, 1000, 1000), launch(1, 1, 1), kernel("g", 2, 4000, 1),
        mm(20, 10, 1000, 2000, 500), launch(21, 1, 2), kernel("g", 4002, 8000, 2),
        op("aten::bitwise_not", 40, 10, dims=[[1000]], types=["unsigned char"]), op("mylib::mine", 60, 5), launch(61, 1, 3),
        kernel("m", 12_002, 2998, 3),
    )  # fmt: skip
    totals = analysis.totals
    assert (totals.time_s, totals.lower_bound_s, totals.headroom_s) == pytest.approx((12e-3, 9e-3, 3e-3))
    assert totals.lower_bound_s + totals.headroom_s + totals.unjudged_s == pytest.approx(totals.time_s)
    assert totals.efficiency == pytest.approx(9 / 12)
    fast = next(row for row in analysis.operators if row.time_s < 5e-3 and row.flops)
    assert fast.efficiency == pytest.approx(1.25)
    assert judged_total(analysis) == (pytest.approx(3e-3), pytest.approx(0.75)), "as on the page"
    assert "at 75 % efficiency" in analysis.verdict


@pytest.mark.parametrize("name", ["cudaLaunchKernel", "cudaGraphLaunch"])
def test_communication_can_be_hidden_behind_computation_that_waits_for_longer_than_a_launch_takes(tmp_path, name):
    """Only communication runs from 100 to 3,100; the computation behind it was launched at 20, as a graph or not."""
    events = [
        launch(1, 2, 1), kernel("gemm", 50, 50, 1), launch(4, 2, 2),
        kernel("ncclDevKernel_AllReduce_Sum_f32", 100, 3000, 2, stream=20),
        launch(20, 2, 3) | {"name": name}, kernel("gemm", 3100, 50, 3),
    ]  # fmt: skip
    assert foreign(tmp_path, *events).timeline.ready_communication_s == pytest.approx(3000e-6)


@pytest.mark.parametrize(("launched", "ready"), [(20, 100), (150, 50), (195, 5)])
def test_communication_can_be_hidden_only_behind_what_has_been_launched(tmp_path, launched, ready):
    """Only communication runs from 100 to 200; the computation that begins at 200 was launched at ``launched``."""
    events = [
        launch(1, 2, 1), kernel("gemm", 50, 50, 1),
        launch(4, 2, 2), kernel("ncclDevKernel_AllReduce_Sum_f32", 100, 100, 2, stream=20),
        launch(launched, 2, 3), kernel("gemm", 200, 50, 3),
    ]  # fmt: skip
    timeline = foreign(tmp_path, *events).timeline
    assert timeline.exposed_communication_s == pytest.approx(100e-6)
    assert timeline.ready_communication_s == pytest.approx(ready * 1e-6)


def test_a_row_that_copies_little_is_exposed_with_its_kernels(tmp_path):
    """As a sort does: 100 us of a kernel and 2 of a copy, while nothing else runs."""
    sort = op("aten::sort", 0, 300), launch(5, 5, 1), kernel("sort", 12, 100, 1), launch(120, 5, 2)
    (row,) = foreign(tmp_path, *sort, copied("Memcpy DtoD (Device -> Device)", 130, 2, 2)).rows
    assert row.exposed_s == pytest.approx(102e-6)
