"""The noise of single rows: what is the same is not called slower, and what became slower is."""

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from rooflines.profiler.records import Environment
from rooflines.profiler.tree.external_trace import run_of_trace
from rooflines.roofline.analysis import OtherPrograms, Steps, TracedStep
from rooflines.roofline.analyze import analyze
from rooflines.roofline.compare.compare import compare
from rooflines.roofline.compare.noise import FEWEST_ROWS, PairTimes, calibrate, is_known, judge
from tests.roofline.compare.steps import with_steps
from tests.roofline.compare.test_compare import made, operator
from tests.traces import add, kernel, launch, mm, span, trace


def run(seed, *, rows=40, steps=20, slower=None, by=1.2, drift=0.0):
    """A run of a network of ``rows`` layers with the noise that was measured: steps scatter by 5 %, rows from run to run by 2 %, and
    the whole machine by ``drift``."""
    random = np.random.default_rng(seed)
    whole = math.exp(drift * random.standard_normal())
    operators = []
    for number in range(rows):
        own = whole * math.exp(0.02 * random.standard_normal()) * (by if number == slower else 1.0)
        scatter = np.exp(0.05 * np.abs(random.standard_normal(steps)))
        times = tuple((0.001 * (1 + number % 5) * own * scatter).tolist())
        row = operator(time_s=statistics.mean(times), module=f"layer{number}", shapes="4x4")
        operators.append(replace(row, step_times_s=times))
    each = zip(*(row.step_times_s for row in operators), strict=True)
    traced = tuple(TracedStep(name=f"#{number}", duration_s=sum(times), breakdown={}) for number, times in enumerate(each))
    return made(*operators, traced_steps=traced)


def named(before, after):
    return [(row.direction, row.after.module) for row in compare(before, after).rows if row.direction not in ("same", "unknown")]


@pytest.mark.ci
@pytest.mark.parametrize("steps", [3, 10, 20])
@pytest.mark.parametrize("drift", [0.0, 0.05])
def test_two_runs_of_the_same_differ_in_at_most_5_of_100_tries(steps, drift):
    assert sum(bool(named(run(2 * n, steps=steps, drift=drift), run(2 * n + 1, steps=steps, drift=drift))) for n in range(100)) <= 5


@pytest.mark.ci
def test_a_layer_that_takes_20_percent_longer_is_named_and_no_other():
    tries = [named(run(2 * n, slower=4), run(2 * n + 1, slower=4, by=1.44, drift=0.02)) for n in range(100)]
    assert sum(found == [("slower", "layer4")] for found in tries) >= 75
    tries = [named(run(2 * n, slower=4, by=1.44), run(2 * n + 1, slower=4)) for n in range(100)]
    assert sum(found == [("faster", "layer4")] for found in tries) >= 75


def test_one_noisy_call_is_not_slower():
    before, after = run(1), run(2)
    times = list(after.operators[3].step_times_s)
    times[5] *= 22 * len(times)
    noisy = replace(after.operators[3], step_times_s=tuple(times), time_s=statistics.mean(times))
    compared = compare(before, replace(after, operators=(*after.operators[:3], noisy, *after.operators[4:])))
    row = compared.rows[0]
    assert row.ratio > 20
    assert row.direction == "same"
    assert named(before, after) == []


def test_what_all_rows_do_is_the_machine_unless_the_conditions_differ():
    before, after = run(1), run(2)
    slow = replace(
        after,
        operators=tuple(
            replace(row, time_s=1.5 * row.time_s, step_times_s=tuple(1.5 * one for one in row.step_times_s)) for row in after.operators
        ),
    )
    compared = compare(before, slow)
    assert compared.drift.by_machine
    assert compared.drift.factor == pytest.approx(1.5, rel=0.03)
    assert {row.direction for row in compared.rows if row.kind == "operator"} == {"same"}
    assert any("taken for drift of the machine" in note for note in compared.notes)
    other = replace(slow, environment=Environment(rooflines="0", device="cpu", device_name="a CPU", torch="3"))
    known = replace(before, environment=Environment(rooflines="0", device="cpu", device_name="a CPU", torch="2"))
    compared = compare(known, other)
    assert not compared.drift.by_machine
    assert {row.direction for row in compared.rows if row.kind == "operator" and row.noise.p_value is not None} == {"slower"}
    assert any("cannot be told apart" in note for note in compared.notes)


def test_of_few_steps_or_rows_the_noise_is_not_known():
    compared = compare(run(1, steps=2), run(2))
    assert {row.direction for row in compared.rows if row.kind == "operator"} == {"unknown"}
    assert {row.noise for row in compared.rows} == {None}
    compared = compare(run(1, rows=FEWEST_ROWS - 1), run(2, rows=FEWEST_ROWS - 1))
    assert compared.drift is None
    assert any("the drift between the runs is not known" in note for note in compared.notes)
    assert not is_known(PairTimes((1.0, 0.0, 1.0), (1.0, 1.0, 1.0))), "a row that does not run in every step"
    assert calibrate([], alike=True) is None


def test_of_a_disturbed_run_nothing_is_said():
    before, after = run(1), run(2)
    steps = [replace(one, duration_s=one.duration_s * (1 + number % 2)) for number, one in enumerate(after.traced_steps)]
    compared = compare(before, replace(after, traced_steps=tuple(steps)))
    assert {row.noise for row in compared.rows} == {None}
    assert any("the steps of B differ too much" in note for note in compared.notes)


def test_timed_steps_that_something_slowed_decide_nothing():
    """The traced steps ran in two thirds of their time: what drifted, and between which passes, is not known."""
    before, after = run(1), run(2, drift=0.3)
    known = Steps(count=6, median_s=0.0109, p10_s=0.0105, p90_s=0.0112, durations_s=(0.0105, 0.0108, 0.0109, 0.0109, 0.011, 0.0112))
    slowed = replace(before, steps=replace(known, profiler_dilation=0.66))
    longer = replace(known, median_s=0.0136, durations_s=(0.0110, 0.0130, 0.0136, 0.0136, 0.0140, 0.0150), profiler_dilation=1.38)
    compared = compare(slowed, replace(after, steps=longer))
    assert compared.drift is None
    assert compared.pace.exceeds_noise is None
    assert "Not decided" in compared.verdict
    assert any("the steps of A differ too much" in note for note in compared.notes)
    four = replace(longer, median_s=0.05, durations_s=(0.049, 0.049, 0.05, 0.05, 0.051, 0.052))
    assert compare(slowed, replace(after, steps=four)).pace.exceeds_noise, "which no drift explains"


def test_the_step_is_judged_without_the_drift():
    def steps(seed, factor):
        found = with_steps(run(seed), seed)
        traced = tuple(replace(step, duration_s=factor * step.duration_s) for step in found.traced_steps)
        rows = tuple(replace(row, step_times_s=tuple(factor * one for one in row.step_times_s)) for row in found.operators)
        return replace(found, traced_steps=traced, operators=rows)

    drifted = compare(steps(1, 1.0), steps(2, 1.25))
    assert drifted.pace.ratio > 1.2
    assert drifted.pace.noise.ratio == pytest.approx(1, abs=0.05)
    assert drifted.pace.exceeds_noise is False
    assert drifted.verdict.startswith("No difference beyond the noise")
    assert not drifted.slower_than(0.0)


@pytest.mark.parametrize(("busy", "decided"), [(0.2, True), (0.9, False), (2.0, False)])
def test_what_other_programs_may_explain_is_not_decided(busy, decided):
    """A layer takes 12 times as long, and the step 1.28 times: programs that take 0.2 of 2 processors explain a ratio of 1.11."""
    before, after = run(1, slower=2, by=1.0), run(2, slower=2, by=12.0)
    shared = OtherPrograms(busy=busy, threads=2)
    assert compare(before, after).pace.exceeds_noise
    compared = compare(before, replace(after, other_programs=shared))
    assert compared.drift is not None
    assert (compared.pace.exceeds_noise, compared.slower_than(0.05)) == (decided or None, decided)
    slower = {row.after.module for row in compared.rows if row.direction == "slower"}
    assert slower == ({"layer2"} if busy < 1.9 else set()), "12 times is more than 0.9 of 2 processors explain"
    assert compare(replace(before, other_programs=shared), after).pace.exceeds_noise, "the others delayed what was faster"


@pytest.mark.parametrize("more", [0.02, 0.8])
def test_other_programs_add_no_operators(more):
    """The step takes 1.8 times as long, which programs on 0.9 of 2 processors explain: unless new operators are what takes longer."""
    before, after = run(1), run(2)
    own_s = sum(row.time_s for row in after.operators)
    new = replace(after.operators[0], name="aten::conv2d", module="new", time_s=more * own_s, step_times_s=None)
    traced = tuple(replace(step, duration_s=1.8 * step.duration_s) for step in after.traced_steps)
    shared = OtherPrograms(busy=0.9, threads=2)
    compared = compare(before, replace(after, operators=(*after.operators, new), traced_steps=traced, other_programs=shared))
    assert compared.pace.ratio == pytest.approx(1.8, rel=0.1)
    assert compared.pace.exceeds_noise is (True if more > 0.1 else None)


series = st.lists(st.floats(1e-6, 1.0), min_size=3, max_size=12)


@pytest.mark.ci
@given(st.lists(st.tuples(series, series, st.booleans()), min_size=1, max_size=12))
def test_exchanging_the_sides_exchanges_slower_and_faster(rows):
    there, back = [PairTimes(*row) for row in rows], [PairTimes(after, before, same) for before, after, same in rows]
    ours, theirs = judge(there, calibrate(there, alike=True)), judge(back, calibrate(back, alike=True))
    for one, other in zip(ours, theirs, strict=True):
        assert (one.ratio, one.p_value) == (pytest.approx(1 / other.ratio), pytest.approx(other.p_value))
        assert one.ci95[0] <= one.ratio <= one.ci95[1]


def test_the_calls_of_a_row_count_with_their_lower_quartile_in_a_step_of_median_length():
    events = [
        event
        for number, lasting in enumerate((200, 260, 230))
        for event in (span(f"ProfilerStep#{number}", 1000 * number, 1000), mm(1000 * number + 100, lasting, 4, 5, 6))
    ]
    read = trace(*events, add(2900, 50))
    analysis = analyze(run_of_trace("t.json", read), None, read).analysis
    found = {row.name: row for row in analysis.operators}
    # The quartile of the products is 215 µs; that of the time outside of operators lies between 720 (where the addition is) and 740.
    steady_s = {"aten::mm": 215e-6, "aten::add": 50e-6 / 3, "idle": 730e-6}
    factor = 1000e-6 / sum(steady_s.values())
    assert found["aten::mm"].step_times_s == pytest.approx((200e-6 * factor, 260e-6 * factor, 230e-6 * factor))
    assert found["aten::mm"].time_s == pytest.approx(215e-6 * factor)
    assert found["aten::add"].time_s == pytest.approx(50e-6 / 3 * factor)
    assert analysis.timeline.span_s == pytest.approx(1000e-6)


def test_a_trace_without_steps_has_no_times_of_steps():
    read = trace(mm(100, 200, 4, 5, 6), mm(500, 200, 4, 5, 6))
    assert [row.step_times_s for row in analyze(run_of_trace("t.json", read), None, read).analysis.operators] == [None]


def test_work_of_a_device_belongs_to_the_step_that_launched_it():
    read = trace(
        span("ProfilerStep#0", 0, 1000),
        mm(100, 50, 4, 5, 6),
        launch(110, 5, 1),
        kernel("gemm", 900, 300, 1),
        span("ProfilerStep#1", 1000, 1000),
        mm(1100, 50, 4, 5, 6),
        launch(1110, 5, 2),
        kernel("gemm", 1300, 200, 2),
        launch(1500, 5, 3),
        kernel("own", 1600, 40, 3),
    )
    found = analyze(run_of_trace("t.json", read), None, read).analysis
    (row,) = found.operators
    assert row.step_times_s == (300e-6, 200e-6)
    (own,) = found.coverage.unmodeled
    assert own.step_times_s == (0.0, 40e-6)
