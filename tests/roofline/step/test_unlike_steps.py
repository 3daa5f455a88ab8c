"""Steps without marks of the profiler, steps that are not alike, and the profiler's own work in them."""

import pytest

from rooflines.profiler.tree.tree import tree
from tests.roofline.rooms import analyzed
from tests.traces import add, kernel, launch, op, span, trace

NODE = "autograd::engine::evaluate_function: AddBackward0"
US = 1e-6


def overhead(ts, dur, name="Activity Buffer Request"):
    return {"ph": "X", "cat": "overhead", "name": name, "pid": -1, "tid": 0, "ts": ts, "dur": dur}


def updating(at, number, name="Optimizer.step#SGD.step"):
    """A forward operator, a node of the backward pass and an update, 100 us in all."""
    return (
        add(at, 20), launch(at + 1, 2, number), kernel("forward", at + 10, 30, number), op(NODE, at + 30, 20),
        span(name, at + 60, 40), add(at + 65, 20), launch(at + 66, 2, number + 1), kernel("update", at + 70, 20, number + 1),
    )  # fmt: skip


def test_without_marks_each_step_of_an_optimizer_ends_a_step(tmp_path):
    analysis = analyzed(tmp_path, *updating(0, 1), *updating(100, 3), *updating(200, 5))
    assert (analysis.basis.per, analysis.basis.steps) == ("step", 3)
    assert [one.duration_s for one in analysis.traced_steps] == pytest.approx([100 * US] * 3)


def test_two_optimizers_after_one_backward_pass_are_one_step_and_a_wrapped_one_is_none():
    wrapped, second = span("Optimizer.step#EMA.step", 59, 42), span("Optimizer.step#Adam.step", 105, 20)
    calls = tree(trace(wrapped, *updating(0, 1), second, *updating(200, 3)))
    assert calls.steps.tolist() == [[0, 125_000], [125_000, 300_000]]


def test_an_optimizer_inside_of_the_backward_pass_ends_no_step():
    inside = span("Optimizer.step#SGD.step", 35, 5)
    assert tree(trace(*updating(0, 1), inside, *updating(100, 3))).steps.tolist() == [[0, 100_000], [100_000, 200_000]]


def test_a_single_step_of_an_optimizer_with_work_behind_it_is_none():
    assert not len(tree(trace(*updating(0, 1), add(150, 20))).steps)


def test_marks_of_the_profiler_come_first():
    calls = tree(trace(span("ProfilerStep#3", 0, 250), *updating(0, 1), *updating(100, 3)))
    assert calls.step_names == ("ProfilerStep#3",)


def marked(at, number, lasts):
    """A step whose one kernel lasts that long, with 20 us before it."""
    mark = span(f"ProfilerStep#{number}", at, lasts + 20)
    return mark, add(at, 10), launch(at + 5, 2, number), kernel("k", at + 20, lasts, number)


def test_steps_that_differ_are_told_apart_with_what_grew(tmp_path):
    analysis = analyzed(tmp_path, *marked(0, 1, 80), *marked(100, 2, 980), *marked(1100, 3, 880))
    assert analysis.verdict == (
        "The 3 steps differ: 100 µs, 1.00 ms and 900 µs. From the shortest to the longest grow: aten::add by 900 µs. All other figures "
        "are the mean over them."
    )


def test_steps_that_are_alike_have_a_mean(tmp_path):
    assert "differ" not in analyzed(tmp_path, *marked(0, 1, 80), *marked(100, 2, 120), *marked(240, 3, 100)).verdict


def test_overhead_of_the_profiler_is_in_no_step(tmp_path):
    """Of 40 us of overhead 10 lie between the steps, and in 20 the kernel runs."""
    steps = *marked(0, 1, 80), *marked(200, 2, 80)
    plain = analyzed(tmp_path, *steps)
    analysis = analyzed(tmp_path, *steps, overhead(190, 20), overhead(230, 20, "Lazy Function Loading"))
    assert plain.basis.overhead_s is None
    assert analysis.basis.overhead_s == pytest.approx(10 / 2 * US)
    assert analysis.timeline.busy_s == pytest.approx(plain.timeline.busy_s)
    assert analysis.timeline.idle_s == pytest.approx(plain.timeline.idle_s - 5 * US)
    assert sum(analysis.idle_breakdown.values()) == pytest.approx(analysis.timeline.idle_s)
    assert [one.duration_s for one in analysis.traced_steps] == pytest.approx([100 * US, 90 * US])
    for one in analysis.traced_steps:
        assert sum(one.breakdown.values()) == pytest.approx(one.duration_s)


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
