"""A run becomes an analysis: the identities that hold for every one, and the parts that a partial run still has."""

import json
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

import rooflines
from rooflines.device_specs.records import Ceilings
from rooflines.pipeline.reading import read_analysis
from rooflines.profiler.records import Environment, MemoryAtPeak, Run, RunFile, Settings, StepMemory, StepTimes, Workload
from rooflines.profiler.samplers.fields import DeviceSample
from rooflines.profiler.tree.tree import module_annotation
from rooflines.roofline.analysis import Analysis
from rooflines.roofline.analyze import analyze
from tests.samples import ceilings
from tests.traces import add, mm, op, span

DATA = Path(__file__).parents[1] / "data"
FACTS = RunFile(
    status="complete",
    workload=Workload(name="net", mode="training", batch_size=8),
    environment=Environment(host="h", os="o", python="3", rooflines="0", torch="2", device="cpu", device_name="cpu"),
    ceilings=Ceilings(device="cpu", kind="cpu", ceilings=ceilings()),
    steps=StepTimes(warmup_ns=(9, 9), timed_ns=(100_000, 110_000, 90_000), traced_ns=(120_000, 120_000), settled=True, rule="r"),
)


def run_of(directory, *events, facts=FACTS):
    if events:
        (directory / "t.pt.trace.json").write_text(json.dumps({"traceEvents": list(events)}))
        facts = replace(facts, trace="t.pt.trace.json")
    return Run(directory=directory, facts=facts)


def step(start):
    """One training step of 120 µs: two products in module ``a`` (40 µs), one of our own (10 µs), an optimizer's addition (20 µs)."""
    node = "autograd::engine::evaluate_function: MmBackward0"
    return (
        span(f"ProfilerStep#{start}", start, 120), span(module_annotation("", "Net"), start + 1, 40),
        span(module_annotation("a", "Linear"), start + 2, 38), mm(start + 3, 20, 64, 64, 64, seq=start),
        op(node, start + 50, 22, seq=start, fwd=1), mm(start + 51, 20, 64, 64, 64), op("mylib::mine", start + 80, 10),
        span("Optimizer.step#SGD.step", start + 95, 22), add(start + 96, 20, 1000),
    )  # fmt: skip


def test_figures_are_per_step_and_add_up(tmp_path):
    found = analyze(run_of(tmp_path, *step(0), *step(200))).analysis
    assert (found.basis.per, found.basis.steps) == ("step", 2)
    assert (found.totals.matrix_flops, found.totals.flops) == (2 * (2 * 64**3), 2 * (2 * 64**3) + 1000)
    assert found.totals.bytes == 2 * (3 * 64 * 64 * 4) + 12 * 1000
    timeline = found.timeline
    # A traced step of 120 µs, 48 of them idle, is fitted into a timed one of 100.
    assert (timeline.span_s, timeline.idle_s) == (pytest.approx(100e-6), pytest.approx(48e-6 * 100 / 120))
    operators = sum(row.time_s for row in found.operators)
    unmodeled = sum(item.time_s for item in found.coverage.unmodeled)
    assert operators + unmodeled + timeline.idle_s - timeline.overlap_s == pytest.approx(timeline.span_s, rel=1e-9)
    assert found.coverage.modeled_time_fraction == pytest.approx(62 / 72)
    assert [(u.name, u.calls, u.reason) for u in found.coverage.unmodeled] == [("mylib::mine", 1, "no formula")]
    assert sum(found.step_breakdown.values()) == pytest.approx(120e-6)
    assert sum(found.bound_breakdown.values()) == pytest.approx(timeline.span_s)


def test_marks_that_are_no_steps_are_noted_and_halve_nothing(tmp_path):
    found = analyze(run_of(tmp_path, *step(0), *step(200), span("ProfilerStep#9", 3, 120, tid=2))).analysis
    assert (found.basis.steps, found.totals.matrix_flops) == (2, 2 * (2 * 64**3))
    assert "Step marks not counted because an earlier step had not ended: 1." in found.notes


def test_an_operator_outside_of_the_steps_that_another_program_delayed_takes_no_step_away(tmp_path):
    steps = [event for at in (20_000, 20_100, 20_200) for event in (span("ProfilerStep#1", at, 90), add(at + 5, 30), add(at + 40, 30))]
    found = analyze(run_of(tmp_path, add(0, 10_000), *steps)).analysis
    assert (found.basis.per, found.basis.steps, found.totals.flops) == ("step", 3, 2000)


def test_phases_and_modules(tmp_path):
    found = analyze(run_of(tmp_path, *step(0), *step(200))).analysis
    by_phase = {(row.name, row.phase): row.module for row in found.operators}
    assert by_phase["aten::mm", "forward"] == "a"
    assert by_phase["aten::mm", "backward"] == "a"
    assert by_phase["aten::add", "optimizer"] == ""
    root, linear = found.modules
    assert (root.path, root.type, root.calls) == ("", "Net", 1)
    assert linear.matrix_flops == root.matrix_flops == 2 * (2 * 64**3)
    assert linear.time_s == pytest.approx(42e-6 * 100 / 120)  # forward 20, backward 20, what autograd's node spent itself
    assert {row.category for row in found.operators if row.phase == "optimizer"} == {"optimizer"}


def test_steps_come_from_the_timed_pass_and_dilation_from_both(tmp_path):
    steps = analyze(run_of(tmp_path, *step(0))).analysis.steps
    assert (steps.count, steps.median_s, steps.samples_per_s) == (3, pytest.approx(100e-6), pytest.approx(8 / 100e-6))
    assert steps.profiler_dilation == pytest.approx(1.2)
    assert steps.ci95_s[0] <= steps.median_s <= steps.ci95_s[1]


def interval_of(tmp_path, *durations_ns):
    run = run_of(tmp_path, *step(0))
    times = replace(run.facts.steps, timed_ns=durations_ns)
    return analyze(replace(run, facts=replace(run.facts, steps=times))).analysis.steps.ci95_s


def test_the_error_of_few_steps_is_not_made_smaller_than_it_is(tmp_path):
    assert interval_of(tmp_path, 100) is None
    # Two steps: t(0.975, 1) = 12.706 times the standard error, here 10 / sqrt(2) / sqrt(2) = 5 ns around 105 ns.
    assert interval_of(tmp_path, 1100, 1110) == pytest.approx((1105e-9 - 12.706 * 5e-9, 1105e-9 + 12.706 * 5e-9))
    # Three: t(0.975, 2) = 4.3027, the standard deviation of 90, 100, 110 is 10.
    half = 4.30265 * 10e-9 / 3**0.5
    assert interval_of(tmp_path, 90, 100, 110) == pytest.approx((100e-9 - half, 100e-9 + half))
    assert interval_of(tmp_path, 1, 100)[0] == 0.0, "no step takes less than no time"
    low, high = interval_of(tmp_path, *range(95, 106))
    assert 95e-9 <= low < 100e-9 < high <= 105e-9


def test_a_program_traced_as_one_step_says_so_and_gives_no_advice_on_what_happens_once(tmp_path):
    run = run_of(tmp_path, *step(0))
    times = replace(run.facts.steps, timed_ns=(), warmup_ns=(), traced="program")
    found = analyze(replace(run, facts=replace(run.facts, steps=times))).analysis
    assert found.basis.start_up
    assert found.verdict.startswith("The whole program is one traced step of")
    assert found.steps is None
    assert [finding.title for finding in found.findings] == ["Record more steps"]
    assert "Record more steps" not in [finding.title for finding in analyze(run).analysis.findings]


def test_what_is_too_fast_is_flagged_and_not_clipped(tmp_path):
    # 2 * 4096^3 FLOP in 1 ms is 137 TFLOP/s on a 460 GFLOP/s machine.
    (row,) = analyze(run_of(tmp_path, mm(0, 1000, 4096, 4096, 4096))).analysis.operators
    assert row.efficiency == pytest.approx(2 * 4096**3 / 460e9 / 1e-3)
    assert "faster than the compute ceiling allows" in row.flag
    assert row.headroom_s == 0.0


def test_the_json_round_trips_and_holds_no_null(tmp_path):
    found = analyze(run_of(tmp_path, *step(0))).analysis
    plain = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert Analysis.from_dict(plain) == found
    assert "null" not in json.dumps(plain)
    assert plain["schema"] == "rooflines.analysis/2"
    assert plain["coverage"]["orphan_device_events"] == 0  # measured and zero, so present
    assert "energy_j" not in plain["totals"]  # not measured, so absent


def test_an_analysis_of_the_first_schema_is_read_with_the_names_of_today():
    """Which spelled some keys and one cause of idle time another way."""
    text = (DATA / "analysis_of_schema_1.json").read_text()
    now, stored = (
        rooflines.analyze(DATA / "traces/resnet50_h100_graph_joined.json.gz"),
        read_analysis(DATA / "analysis_of_schema_1.json"),
    )
    assert stored.synchronizations
    assert stored.coverage.unmodeled
    assert Analysis.from_dict(json.loads(text)) == stored
    assert stored.to_dict()["coverage"] == now.to_dict()["coverage"]
    assert (stored.synchronizations, stored.idle_breakdown, stored.schema) == (now.synchronizations, now.idle_breakdown, now.schema)


def test_a_run_without_trace_still_has_its_steps(tmp_path):
    facts = replace(FACTS, status="interrupted")
    found = analyze(run_of(tmp_path, facts=facts)).analysis
    assert found.operators == ()
    assert found.totals is None
    assert found.steps.count == 3
    assert "interrupted" in found.notes[0]
    assert "No operators were traced" in found.verdict


def test_a_run_without_anything_says_so(tmp_path):
    facts = replace(FACTS, status="running", steps=None, ceilings=None)
    found = analyze(run_of(tmp_path, facts=facts)).analysis
    assert "ended before a step was timed" in found.verdict
    assert "has not ended" in found.notes[0]


def test_tf32_runs_are_judged_by_tf32_roofs(tmp_path):
    facts = replace(FACTS, workload=replace(FACTS.workload, precision="tf32"))
    found = analyze(run_of(tmp_path, *step(0), facts=facts)).analysis
    assert {row.precision for row in found.operators if row.matrix_flops} == {"tf32"}


@pytest.mark.parametrize(("mine", "said"), [(1.9, False), (1.0, True)])
def test_a_run_says_when_it_was_not_alone(tmp_path, mine, said):
    facts = replace(FACTS, environment=replace(FACTS.environment, cpu_threads=2))
    samples = tuple(DeviceSample(time_ns=i, source="psutil", cpu_utilization=1.0, process_cpu_utilization=mine) for i in range(4))
    found = analyze(Run(directory=tmp_path, facts=facts, samples=samples)).analysis
    assert ("Shared machine: other programs took 1.0 of 2 processors" in found.verdict) == said


@pytest.mark.parametrize(("device", "threads", "said"), [("cpu", 64, True), ("cuda:0", 64, False), ("cuda:0", 2, True)])
def test_other_programs_disturb_a_gpu_s_steps_only_where_they_leave_its_host_no_processor(tmp_path, device, threads, said):
    environment = replace(FACTS.environment, device=device, cpu_threads=threads)
    # This program keeps one processor busy, others half of the rest on 64 processors, and all of it on two.
    busy = 32 if threads == 64 else 2
    samples = tuple(
        DeviceSample(time_ns=i, source="psutil", cpu_utilization=busy / threads, process_cpu_utilization=1.0) for i in range(4)
    )
    found = analyze(Run(directory=tmp_path, facts=replace(FACTS, environment=environment), samples=samples)).analysis
    assert (found.other_programs is not None, "Shared machine" in found.verdict) == (said, said)


@pytest.mark.parametrize(
    ("mark", "said"),
    [
        ("disturbed: other processes", "other programs used the same cores"),
        ("unconfirmed", "no other round reached"),
        ("contradicts: 50 % of 2 x FMA fp64 (230 GFLOP/s)", "(50 % of 2 x FMA fp64 (230 GFLOP/s))"),
    ],
)
def test_doubtful_ceilings_are_named_with_the_reason(tmp_path, mark, said):
    first, *rest = ceilings()
    doubtful = first.noted(f", {mark}")
    notes = analyze(run_of(tmp_path), Ceilings(device="cpu", kind="cpu", ceilings=(doubtful, *rest))).analysis.notes
    assert any(first.name in note and said in note and "measure them again" in note for note in notes)
    assert not any("measure them again" in note for note in analyze(run_of(tmp_path)).analysis.notes)


@pytest.mark.parametrize(("faults", "timed"), [(3 * 21_000, 21_000), (3 * 100, 100), (None, None)])
def test_the_pages_that_a_step_takes_from_the_system_are_recorded(tmp_path, faults, timed):
    steps = replace(FACTS.steps, timed_page_faults=faults, traced_page_faults=2 * 12_000)
    found = analyze(run_of(tmp_path, facts=replace(FACTS, steps=steps))).analysis.page_faults
    assert (found.timed if found else None, found.traced if found else 12_000) == (timed, 12_000)


def test_dispatch_on_the_host_is_not_judged_by_an_accelerator(tmp_path):
    facts = replace(FACTS, environment=replace(FACTS.environment, device="cuda:0"))
    found = analyze(run_of(tmp_path, *step(0), facts=facts)).analysis
    assert all(row.efficiency is None for row in found.operators)
    assert any("the trace has no work of cuda:0" in note for note in found.notes)


@pytest.mark.parametrize(("tf32", "judged"), [
    ({"matmul": True, "convolution": False}, "tf32"), ({"matmul": False, "convolution": True}, "fp32"), (None, "fp32"),
])  # fmt: skip
def test_products_are_judged_by_tf32_where_it_was_allowed(tmp_path, tf32, judged):
    roof = replace(ceilings()[2], name="GEMM tf32", precision="tf32")
    facts = replace(FACTS, tf32=tf32, ceilings=Ceilings(device="gpu", kind="cuda", ceilings=(*ceilings(), roof)))
    found = analyze(run_of(tmp_path, *step(0), facts=facts)).analysis
    assert {row.precision for row in found.operators if row.matrix_flops} == {judged}


@pytest.mark.parametrize(("tf32", "judged"), [
    ({"matmul": False, "convolution": False, "rnn": True}, "tf32"), ({"matmul": True, "convolution": True, "rnn": False}, "fp32"),
    ({"matmul": True, "convolution": False}, "tf32"), ({"matmul": False, "convolution": True}, "fp32"),
])  # fmt: skip
@pytest.mark.parametrize("backward", [False, True])
def test_a_recurrent_network_of_cudnn_is_judged_by_its_own_switch_and_in_old_runs_by_that_of_products(tmp_path, tf32, judged, backward):
    # An LSTM of one layer: 5 x 3 inputs of 8, 16 hidden units.
    inputs, state, output = [5, 3, 8], [1, 3, 16], [5, 3, 16]
    sizes = ["2", "16", "0", "1", "0", "0.", "True", "False", "[]"]
    dims = [inputs, [], [], [1600], state, state]
    dims += [output, output, state, state] if backward else []
    concrete = ["", "", "4", *[""] * (len(dims) - 3), *sizes, *([""] * 2 + ["[True, True, True, True]"] if backward else [""])]
    dims += [[]] * (len(concrete) - len(dims))
    types = ["float" if one else "Scalar" for one in dims]
    types[1] = "TensorList"
    name = "aten::_cudnn_rnn_backward" if backward else "aten::_cudnn_rnn"
    roof = replace(ceilings()[2], name="GEMM tf32", precision="tf32")
    facts = replace(FACTS, tf32=tf32, ceilings=Ceilings(device="gpu", kind="cuda", ceilings=(*ceilings(), roof)))
    (row,) = analyze(run_of(tmp_path, op(name, 0, 1000, dims=dims, types=types, concrete=concrete), facts=facts)).analysis.operators
    # [15, 8] @ [8, 64] and [15, 16] @ [16, 64]; twice as much backward
    assert (row.matrix_flops, row.precision) == (2 * 15 * 64 * (8 + 16) * (2 if backward else 1), judged)


def test_a_device_without_tf32_ran_in_fp32_whatever_was_allowed(tmp_path):
    facts = replace(FACTS, tf32={"matmul": True, "convolution": True})
    found = analyze(run_of(tmp_path, *step(0), facts=facts)).analysis
    assert {row.precision for row in found.operators if row.matrix_flops} == {"fp32"}


def test_for_a_script_the_advice_is_about_its_code(tmp_path):
    facts = replace(FACTS, workload=replace(FACTS.workload, source="script"), settings=Settings(command="rooflines profile train.py"))
    findings = analyze(run_of(tmp_path, *step(0), facts=facts)).analysis.findings
    assert findings
    assert all(finding.option is None for finding in findings)


def test_for_a_model_the_advice_is_an_option_and_its_value(tmp_path):
    findings = analyze(run_of(tmp_path, *step(0))).analysis.findings
    assert any(finding.option for finding in findings)
    assert all(finding.suggestion == f"{finding.option}={finding.value!r}" for finding in findings if finding.option)


def test_the_measured_peak_is_divided_among_the_tensors_and_the_rest(tmp_path):
    parts = MemoryAtPeak(parameters=400, gradients=400, activations=1000, inputs=100, overhead=100)
    followed = StepMemory(device="cuda:0", peak_bytes=2000, at_peak=parts, operator="aten::mm", module="fc", phase="backward")
    environment = replace(FACTS.environment, device="cuda")
    facts = replace(FACTS, environment=environment, peak_memory_bytes=5000, peak_memory_kind="allocator", step_memory=followed)
    found = analyze(run_of(tmp_path, facts=facts)).analysis.memory
    assert found.at_peak == replace(parts, overhead=5000 - 1900)
    assert (found.operator, found.module, found.phase) == ("aten::mm", "fc", "backward")
    assert sum(msgspec.structs.astuple(found.at_peak)) == found.peak_bytes == 5000

    def parts_of(**changes):
        return analyze(run_of(tmp_path, facts=replace(facts, **changes))).analysis.memory.at_peak

    assert parts_of(peak_memory_bytes=1900).overhead == 0
    assert parts_of(peak_memory_bytes=1899) is None  # a set that is not resident as a whole
    assert parts_of(environment=FACTS.environment) is None  # of another device
    assert parts_of(step_memory=None) is None
