"""Two analyses side by side: which rows belong together, what the differences sum to, and whether the whole exceeds the noise."""

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from rooflines.errors import UsageError
from rooflines.profiler.records import Environment, Workload
from rooflines.profiler.tree.external_trace import run_of_trace
from rooflines.roofline.analysis import (
    Analysis,
    Basis,
    Coverage,
    ModuleRow,
    OperatorRow,
    OtherPrograms,
    Steps,
    Throttling,
    Timeline,
    TracedStep,
    Unmodeled,
)
from rooflines.roofline.analyze import analyze
from rooflines.roofline.compare.compare import FEWEST_STEPS, compare, differing_facts
from rooflines.roofline.compare.records import Comparison
from tests.samples import analysis as sample
from tests.traces import add, kernel, launch, mm, span, trace
from tests.usage_samples import machine_analysis


def operator(name="aten::mm", time_s=1.0, *, module="", phase="forward", shapes="", precision="fp32", calls=1, flops=100, size=10):
    return OperatorRow(
        name=name, module=module, phase=phase, shapes=shapes, precision=precision, category="matmul", calls=calls, time_s=time_s,
        flops=flops, matrix_flops=flops, bytes=size,
    )  # fmt: skip


def made(*operators, unmodeled=(), idle_s=0.0, overlap_s=0.0, **more):
    """An analysis in which the invariant holds: operators + unmodeled + idle - overlap = span."""
    span_s = sum(row.time_s for row in (*operators, *unmodeled)) + idle_s - overlap_s
    facts = {
        "workload": Workload(name="net", mode="inference"),
        "environment": Environment(rooflines="0", device="cpu", device_name="a CPU"),
        "timeline": Timeline(span_s=span_s, busy_s=span_s - idle_s, idle_s=idle_s, compute_s=span_s - idle_s, overlap_s=overlap_s),
        "coverage": Coverage(modeled_time_fraction=None, unmodeled=tuple(unmodeled)),
        "operators": operators,
    }
    return Analysis(**(facts | more))


def timed(*durations, **more):
    middle = sorted(durations)[len(durations) // 2]
    steps = Steps(count=len(durations), median_s=middle, p10_s=middle, p90_s=middle, ci95_s=(middle, middle), durations_s=durations)
    return made(operator(time_s=middle), steps=steps, **more)


def only(comparison, kind="operator"):
    (row,) = [row for row in comparison.rows if row.kind == kind]
    return row


def analyzed(*events):
    read = trace(*events)
    return analyze(run_of_trace("t.json", read), None, read).analysis


# --- which rows belong together --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "match", "cause"),
    [
        ({}, "same", ""),
        ({"time_s": 3.0}, "same", "3.00 × the time for the same work"),
        ({"time_s": 2.0, "calls": 2, "flops": 200, "size": 20}, "same", "2 calls instead of 1"),
        ({"precision": "bf16", "time_s": 0.5, "size": 5}, "precision", "fp32 → bf16, 0.500 × the time for as many FLOPs"),
        ({"precision": "bf16", "time_s": 0.5, "flops": 0, "size": 5}, "precision", "fp32 → bf16, 0.500 × the bytes a call"),
        ({"shapes": "8x3x5, 7x3x1", "time_s": 2.0, "flops": 200, "size": 20}, "batch", "2.00 × the FLOPs a call"),
        ({"shapes": "4x3x9, 7x3x1", "time_s": 4.0, "flops": 200}, "shapes", "2.00 × the FLOPs a call, 2.00 × the time per FLOP"),
        ({"shapes": "5x4x3, 7x3x1"}, "shapes", "other shapes"),
        ({"size": 20, "time_s": 2.0}, "same", "2.00 × the bytes a call, 2.00 × the time for as many FLOPs"),
        ({"module": "blocks.0", "time_s": 1.01}, "module", "was layer.0"),
        ({"module": "blocks.0", "phase": "backward"}, "module", "was layer.0"),
    ],
)  # fmt: skip
def test_an_operator_is_found_again_and_the_figures_say_why_it_changed(change, match, cause):
    facts = {"module": "layer.0", "shapes": "4x3x5, 7x3x1"}
    # beside it an operator with a module, so that both sides have modules
    other = operator("aten::add", module="layer.1")
    row = next(
        row for row in compare(made(operator(**facts), other), made(operator(**(facts | change)), other)).rows if "mm" in row.name
    )
    assert (row.match, row.cause, row.difference_s) == (match, cause, change.get("time_s", 1.0) - 1.0)
    assert row.ratio == change.get("time_s", 1.0)


def test_what_nothing_belongs_to_is_new_or_gone():
    rows = {row.name: row for row in compare(made(operator("a", 2.0)), made(operator("b", 3.0))).rows if row.kind == "operator"}
    assert (rows["a"].direction, rows["a"].difference_s, rows["a"].after, rows["a"].ratio) == ("gone", -2.0, None, None)
    assert (rows["b"].direction, rows["b"].difference_s, rows["b"].before, rows["b"].ratio) == ("new", 3.0, None, None)
    assert {row.match for row in rows.values()} == {"none"}


def test_the_rest_of_a_name_goes_together_by_its_work():
    before = made(operator(shapes="4x8", flops=10, time_s=1), operator(shapes="4x900", flops=1000, time_s=5))
    after = made(operator(shapes="6x7", flops=12, time_s=1), operator(shapes="6x800", flops=1200, time_s=6))
    pairs = {(row.before.shapes, row.after.shapes) for row in compare(before, after).rows if row.kind == "operator"}
    assert pairs == {("4x8", "6x7"), ("4x900", "6x800")}


def test_renamed_layers_keep_their_order_and_the_modules_around_them_are_found():
    def network(path, layers=12):
        rows = [operator(module=f"{path}.{number}.query", shapes="4x4", time_s=number + 1.0) for number in range(layers)]
        paths = ["", path, *(f"{path}.{n}" for n in range(layers)), *(f"{path}.{n}.query" for n in range(layers))]
        modules = [ModuleRow(path=name, type="M", calls=1, time_s=1, flops=1, matrix_flops=1, bytes=1) for name in paths]
        return made(*rows, modules=tuple(modules))

    compared = compare(network("encoder.layer"), network("blocks"))
    for row in compared.rows[:12]:
        assert row.before.module.replace("encoder.layer", "blocks") == row.after.module
        assert row.difference_s == 0
    assert {row.direction for row in compared.modules} == {"same"}
    found = {(row.before.module, row.after.module) for row in compared.modules}
    assert {("", ""), ("encoder.layer", "blocks"), ("encoder.layer.11", "blocks.11")} < found
    assert len(found) == 2 + 12 + 12


def test_rows_that_a_reader_could_not_tell_apart_are_one():
    """Ten calls of which two became strided are ten calls."""
    before = made(operator(calls=10, time_s=10.0, flops=1000, size=100))
    after = made(operator(calls=8, time_s=8.0, flops=800, size=80), operator(calls=2, time_s=2.5, flops=200, size=20))
    row = only(compare(before, after))
    assert (row.after.calls, row.difference_s, row.cause) == (10, 0.5, "1.05 × the time for the same work")


def test_a_trace_without_modules_is_compared_without_them():
    """And a layer that calls an operator twelve times does not make eleven of them disappear."""
    before = made(*(operator(module=f"layer.{number}", shapes="4x4") for number in range(12)))
    after = made(operator(shapes="4x4", calls=12, time_s=18.0, flops=1200, size=120))
    compared = compare(before, after)
    assert (only(compared).before.calls, only(compared).difference_s) == (12, 6.0)
    assert compared.modules == ()
    assert any("B has no modules" in note for note in compared.notes)


def test_what_has_no_count_is_compared_by_name_also_with_what_has_one():
    gap = Unmodeled(name="mine::op", calls=2, time_s=0.5, reason="no formula")
    slower = replace(gap, time_s=1.0)
    row = only(compare(made(unmodeled=[gap]), made(unmodeled=[slower])), "unmodeled")
    assert (row.match, row.difference_s, row.cause) == ("same", 0.5, "2.00 × the time a call")
    assert row.before.flops is None
    shapeless = made(unmodeled=[Unmodeled(name="aten::mm", calls=3, time_s=4.0, reason="no shapes in the trace")])
    with_shapes = made(operator(shapes="4x4"), operator(shapes="8x8", calls=2, time_s=2.0))
    row = only(compare(with_shapes, shapeless))
    assert (row.match, row.before.calls, row.after.calls, row.difference_s) == ("name", 3, 3, 1.0)
    assert row.cause.startswith("no count in B: no shapes in the trace")
    assert only(compare(shapeless, with_shapes)).cause.startswith("no count in A: no shapes in the trace")


def test_idle_time_names_the_cause_that_changed_most():
    before = made(operator(), idle_s=1.0, idle_breakdown={"host_bound_s": 0.25, "data_loading_s": 0.75})
    after = made(operator(), idle_s=3.0, idle_breakdown={"host_bound_s": 2.5, "data_loading_s": 0.5})
    row = only(compare(before, after), "idle")
    assert (row.difference_s, row.cause) == (2.0, "host bound +2.25 s")


# --- laws ------------------------------------------------------------------------------------------------------------------------

# Multiples of a power of two: their sums are exact, so that the laws hold to the bit.
seconds = st.integers(0, 1 << 20).map(lambda number: number / 1024)
rows = st.builds(
    operator,
    name=st.sampled_from(["aten::mm", "aten::add", "mine::op"]),
    time_s=seconds,
    module=st.sampled_from(["", "a", "a.0", "a.1", "b.0", "b.10"]),
    phase=st.sampled_from(["forward", "backward", ""]),
    shapes=st.sampled_from(["", "4x4", "8x4", "8x8, 3"]),
    precision=st.sampled_from(["fp32", "bf16", None]),
    calls=st.integers(1, 4),
    flops=st.integers(0, 3),
    size=st.integers(0, 3),
)
gaps = st.builds(
    Unmodeled, name=st.sampled_from(["mine::op", "x"]), calls=st.integers(1, 3), time_s=seconds, reason=st.sampled_from("no")
)
analyses = st.builds(
    lambda operators, gaps, idle_s, overlap_s: made(*operators, unmodeled=gaps, idle_s=idle_s + overlap_s + 1, overlap_s=overlap_s),
    st.lists(rows, max_size=12), st.lists(gaps, max_size=4), seconds, seconds,
)  # fmt: skip


@pytest.mark.ci
@given(analyses, analyses)
def test_the_differences_sum_to_that_of_the_spans_and_every_second_is_in_one_row(before, after):
    compared = compare(before, after)
    assert sum(row.difference_s for row in compared.rows) == compared.span_difference_s
    for side, one in (("before", before), ("after", after)):
        times = [getattr(row, side).time_s for row in compared.rows if getattr(row, side) is not None]
        assert sum(times) == one.timeline.span_s


@pytest.mark.ci
@given(analyses)
def test_nothing_differs_from_itself(one):
    compared = compare(one, one)
    assert {row.direction for row in compared.rows} == {"same"}
    assert {row.match for row in compared.rows} == {"same"}
    assert all(row.difference_s == 0 and not row.cause for row in compared.rows)
    assert compared.differs == ()
    assert compared.verdict.startswith("B takes as long as A")


@pytest.mark.ci
@given(analyses, analyses)
def test_exchanging_the_sides_negates(before, after):
    opposite = {"slower": "faster", "faster": "slower", "new": "gone", "gone": "new"}
    there, back = compare(before, after), compare(after, before)

    def seen(row, swapped):
        sides, sign = ((row.after, row.before), -1) if swapped else ((row.before, row.after), 1)
        direction = opposite.get(row.direction, row.direction) if swapped else row.direction
        return row.kind, row.name, row.match, direction, sign * row.difference_s, *sides

    assert Counter(seen(row, False) for row in there.rows) == Counter(seen(row, True) for row in back.rows)
    assert there.span_difference_s == -back.span_difference_s


# --- the whole, with its noise ---------------------------------------------------------------------------------------------------


def test_a_difference_larger_than_the_noise_is_one():
    quiet = [1.0, 1.01, 0.99, 1.0, 1.02, 0.98, 1.0, 1.01]
    pace = compare(timed(*quiet), timed(*(1.5 * value for value in quiet))).pace
    assert (pace.of, pace.before_s, pace.after_s, pace.ratio) == ("timed steps", 1.0, 1.5, 1.5)
    low, high = pace.ci95
    assert 1.5 * 0.98 / 1.02 <= low < 1.5 < high <= 1.5 * 1.02 / 0.98
    assert pace.exceeds_noise is True


def test_a_difference_within_the_noise_is_none():
    before, after = [1.0, 1.4, 0.8, 1.2, 0.9, 1.1, 1.0], [1.05, 1.4, 0.8, 1.3, 0.9, 1.1, 1.05]
    compared = compare(timed(*before), timed(*after))
    assert compared.pace.exceeds_noise is False
    assert compared.verdict.startswith("No difference beyond the noise: 1.05 s a step instead of 1.00 s")
    assert not compared.slower_than(0.0)


def test_on_a_shared_machine_whose_drift_is_not_known_only_steps_far_apart_differ():
    shared = OtherPrograms(busy=0.4, threads=2)

    def runs(factor):
        return (replace(timed(*[value * 1.0] * FEWEST_STEPS), other_programs=shared) for value in (1.0, factor))

    compared = compare(*runs(1.2))
    assert (compared.pace.ci95, compared.pace.exceeds_noise) == (None, None)
    assert compared.verdict.startswith("Not decided: B takes 20 % more time than A: 1.20 s a step instead of 1.00 s")
    assert "noise unknown, because the machine was not quiet: repeat both on an idle one" in compared.verdict
    assert not compared.slower_than(0.0)
    longer = compare(*runs(1.6))
    assert longer.slower_than(0.1)
    assert "nearly all steps of one side are over 1.5 times as long" in longer.verdict


def test_of_few_steps_the_noise_is_not_known():
    few = [1.0] * (FEWEST_STEPS - 1)
    compared = compare(timed(*few), timed(*[1.2] * FEWEST_STEPS))
    assert (compared.pace.ci95, compared.pace.exceeds_noise) == (None, None)
    assert compared.verdict.startswith("Not decided: B takes 20 % more time than A")
    assert f"noise unknown, needs at least {FEWEST_STEPS} timed steps on both sides" in compared.verdict
    assert "Largest part" not in compared.verdict  # the rows are not judged either
    assert not compared.slower_than(0.0)


def test_a_baseline_that_takes_very_many_times_as_long_is_doubted():
    slow, fast = timed(*[1.0] * FEWEST_STEPS), timed(*[0.01] * FEWEST_STEPS)
    compared = compare(slow, fast)
    assert compared.verdict.startswith(
        "A may not describe this workload or machine: under the same conditions it takes 100 times as long"
    )
    assert "1.00 s a step and 10.0 ms" in compared.verdict
    assert not compare(slow, timed(*[0.5] * FEWEST_STEPS)).implausible
    assert compare(fast, slow).slower_than(98)  # slower by 9,900 %: the build fails
    # Where something else than the code differs, that may be the reason.
    other = replace(fast, environment=replace(fast.environment, torch="2"))
    slow = replace(slow, environment=replace(slow.environment, torch="1"))
    assert compare(slow, other).verdict.startswith("B takes 99 % less time than A")


def test_traced_steps_tell_the_noise_where_there_are_enough_of_them():
    def traced(factor, count):
        steps = [TracedStep(name=f"#{n}", duration_s=factor * (1 + n / 1000), breakdown={}) for n in range(count)]
        return made(operator(time_s=factor), traced_steps=tuple(steps), basis=Basis(steps=count))

    pace = compare(traced(1.0, 8), traced(2.0, 8)).pace
    assert (pace.of, pace.ratio, pace.exceeds_noise) == ("traced steps", 2.0, True)
    pace = compare(traced(1.0, 3), traced(2.0, 8)).pace
    assert (pace.of, pace.ratio, pace.exceeds_noise) == ("span", 2.0, None)


def test_the_sentence_says_what_moved_most_and_what_is_new():
    before = made(operator("aten::mm", 1.0, module="fc"), operator("old", 0.25, module="fc"))
    after = made(operator("aten::mm", 1.5, module="fc"), operator("aten::copy_", 1.0, module="fc"))
    assert compare(before, after).verdict == (
        "Not decided: B takes 2.00 times as long as A: 2.50 s a step instead of 1.25 s "
        "(spans of the traces; noise unknown, needs at least 6 traced steps on both sides). "
        "Largest part: copy_ of fc, +1.00 s (new). 1 operator is new (+1.00 s). 1 operator is gone (−250 ms)."
    )
    # What was timed and what was traced may differ, and then both are said.
    untimed = replace(timed(*[2.0] * 6), operators=(operator(time_s=0.5),))
    untimed = replace(untimed, timeline=replace(untimed.timeline, span_s=0.5))
    assert compare(timed(*[1.0] * 6), untimed).verdict.endswith("The traced steps, used for the rows, show the opposite: −500 ms.")
    assert "B takes 10 % less time than A" in compare(made(operator(time_s=1.0)), made(operator(time_s=0.9))).verdict
    assert "B takes 0.4 % more time than A" in compare(made(operator(time_s=1.0)), made(operator(time_s=1.004))).verdict


# --- what may be compared --------------------------------------------------------------------------------------------------------


def known(**facts):
    workload = {"name": "net", "mode": "training", "precision": "fp32", "batch_size": 4}
    environment = {"rooflines": "0", "device": "cuda:0", "device_name": "NVIDIA H200", "threads": 8, "torch": "2.14.1", "driver": "570"}
    for name, value in facts.items():
        (workload if name in Workload.__struct_fields__ else environment)[name] = value
    return made(operator(), workload=Workload(**workload), environment=Environment(**environment))


@pytest.mark.parametrize(
    ("facts", "name", "unlike"),
    [
        ({"device_name": "NVIDIA H100"}, "device name", True),
        ({"device": "cpu", "device_name": ""}, "device", True),
        ({"threads": 4}, "threads", True),
        ({"mode": "inference"}, "mode", True),
        ({"torch": "2.13.0"}, "torch", False),
        ({"driver": "580"}, "driver", False),
        ({"batch_size": 8}, "batch size", False),
        ({"precision": "bf16"}, "precision", False),
        ({"compiled": True}, "compiled", False),
    ],
)
def test_facts_that_differ(facts, name, unlike):
    (fact,) = differing_facts(known(), known(**facts))
    assert (fact.name, fact.unlike) == (name, unlike)


def test_what_is_not_known_does_not_differ():
    silent = {"device_name": "", "threads": None, "torch": None, "driver": None, "batch_size": None, "precision": "", "source": "trace"}
    assert differing_facts(known(), known(**silent, name="t.json")) == ()
    assert differing_facts(known(), known(device="cuda:3")) == (), "another of the same GPUs"
    assert differing_facts(known(), known(device="hip:0")) == (), "the name of the device says more than that of its kind"
    kernels_only = replace(known(**silent, mode="inference"), operators=())
    assert differing_facts(known(), kernels_only) == (), "a trace without operators does not tell the mode"


def test_a_step_is_not_compared_with_a_whole_trace():
    whole = made(operator(), basis=Basis(per="trace", steps=1))
    with pytest.raises(UsageError, match=r"'b\.json' has no step marks"):
        compare(made(operator()), whole, ("a.json", "b.json"))
    compared = compare(whole, whole)
    assert compared.basis == "trace"
    assert any("whole traces are compared" in note for note in compared.notes)


def test_runs_without_a_trace_have_their_step_times():
    untraced = replace(timed(*[1.0] * 6), timeline=None, operators=(), coverage=None, status="interrupted")
    compared = compare(replace(timed(*[2.0] * 6), operators=(operator(module="fc"),)), untraced)
    assert (compared.pace.ratio, compared.rows, compared.span_difference_s) == (0.5, (), None)
    assert "no trace in B: only step times are compared" in compared.notes
    assert "B is incomplete: its run is interrupted" in compared.notes
    assert not any("modules" in note for note in compared.notes)
    with pytest.raises(UsageError, match="cannot be compared: both need timed steps"):
        compare(made(operator()), untraced)


def test_the_profilers_cost_and_the_batch_are_said():
    before, after = timed(*[1.0] * 6), timed(*[1.0] * 6, workload=Workload(name="net", mode="inference", batch_size=8))
    before = replace(
        before, workload=Workload(name="net", mode="inference", batch_size=4), steps=replace(before.steps, profiler_dilation=1.5)
    )
    after = replace(after, steps=replace(after.steps, profiler_dilation=1.25))
    notes = compare(before, after).notes
    assert "the traced steps took 1.50 (A) and 1.25 (B) times as long as the timed ones; rows have traced times" in notes
    scaled = [replace(side, basis=Basis(timed=True)) for side in (before, after)]
    assert any(note.endswith("; rows are scaled to the timed steps") for note in compare(*scaled).notes)
    assert "time per sample: 250 ms in A, 125 ms in B" in notes


# --- traces ----------------------------------------------------------------------------------------------------------------------


def test_traces_from_events_to_the_difference():
    def steps(product_us, *more):
        return analyzed(
            span("ProfilerStep#1", 0, 1000), mm(100, product_us, 4, 5, 6), add(900, 50), *more
        )  # fmt: skip

    compared = compare(steps(200), steps(260, add(800, 20, size=77)))
    found = {row.name: row for row in compared.rows}
    assert found["aten::mm"].difference_s == pytest.approx(60e-6)
    assert found["aten::mm"].cause == "1.30 × the time for the same work"
    assert found["aten::mm"].before.flops == found["aten::mm"].after.flops == 2 * 4 * 5 * 6
    added = [row for row in compared.rows if row.name == "aten::add"]
    assert [(row.direction, round(row.difference_s * 1e6)) for row in added] == [("new", 20), ("same", 0)]
    assert found["idle"].difference_s == pytest.approx(-80e-6)
    assert sum(row.difference_s for row in compared.rows) == pytest.approx(compared.span_difference_s, abs=1e-12)


def test_traces_of_kernels_alone():
    def kernels(*durations):
        events = [(launch(10 * n, 2, n), kernel(f"k{n}", 100 + 100 * n, long, n)) for n, long in enumerate(durations, start=1)]
        return analyzed(*(event for pair in events for event in pair))

    compared = compare(kernels(10, 20), kernels(10, 50, 5))
    assert compared.basis == "trace"
    rows = {row.name: row for row in compared.rows}
    assert {name: (rows[name].direction, round(rows[name].difference_s * 1e6)) for name in ("k2", "k3")} == {
        "k2": ("unknown", 30), "k3": ("new", 5),
    }  # fmt: skip
    assert sum(row.difference_s for row in compared.rows) == pytest.approx(compared.span_difference_s, abs=1e-12)


# --- the record ------------------------------------------------------------------------------------------------------------------


def test_to_dict_reads_back_and_leaves_out_what_is_not_known():
    compared = compare(sample(), replace(sample(), steps=None))
    plain = json.loads(json.dumps(compared.to_dict(), allow_nan=False))
    assert plain["schema"] == "rooflines.comparison/2"
    assert "ci95" not in plain["pace"]
    assert Comparison.from_dict(plain) == compared


@pytest.mark.parametrize("disturbed", ["A", "B"])
def test_a_side_that_others_delayed_in_nearly_every_step_decides_nothing(disturbed):
    """Its five quietest steps have no interval, and their times are upper limits."""
    quiet = timed(*(1.0 + 0.001 * (n % 3) for n in range(20)))
    others = OtherPrograms(busy=1.5, threads=2, timed_left_out=15, judged=False)
    delayed = replace(timed(12.0, 13.0, 12.5, 14.0, 12.2), other_programs=others)
    sides = (delayed, quiet) if disturbed == "A" else (quiet, delayed)
    compared = compare(*sides)
    assert compared.pace.exceeds_noise is None
    assert compared.slowdown == 0
    assert compared.verdict.startswith(
        "Not decided: B takes 12.5 times as long as A" if disturbed == "B" else ("Not decided", "A may not")
    )
    if disturbed == "B":
        assert "because the machine was not quiet" in compared.verdict


def test_clocks_that_differ_stand_beside_the_verdict():
    quick = machine_analysis()
    devices = [one for one in quick.usage.devices if one.device == "cuda:0"]
    (device,) = (replace(one, throttled=(), throttled_fraction=None) for one in devices)
    slower = replace(device, gauges={**device.gauges, "sm_clock_hz": replace(device.gauges["sm_clock_hz"], mean=1.2e9)})
    held = replace(slower, throttled_fraction=0.3, throttled=(Throttling(reason="software power cap", time_s=1.5, fraction=0.3),))
    sides = [replace(quick, usage=replace(quick.usage, devices=(one,), own=("cuda:0",))) for one in (slower, held)]
    assert compare(sides[0], sides[0], ("a", "b")).clocks == ""
    told = compare(*sides, ("a", "b")).clocks
    assert told == "The device's clock was 1.20 GHz in A and 1.20 GHz in B, throttled for 30 % of the time (software power cap)."
    quicker = replace(slower, gauges={**device.gauges, "sm_clock_hz": replace(device.gauges["sm_clock_hz"], mean=1.5e9)})
    sides[1] = replace(quick, usage=replace(quick.usage, devices=(quicker,), own=("cuda:0",)))
    assert compare(*sides, ("a", "b")).clocks == "The device's clock was 1.20 GHz in A and 1.50 GHz in B."
