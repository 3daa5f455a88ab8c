"""Several rounds of A and B in turn: drift between rounds cancels, and what the rounds do not decide is not called."""

import math

import pytest
from msgspec.structs import replace

from rooflines.roofline.compare.compare import compare
from rooflines.roofline.compare.rounds import combine
from rooflines.roofline.uncertainty import quantile
from rooflines.units import percent
from tests.samples import analysis as sample


def scaled(factor, flops=1):
    """The sample with all times multiplied, and the FLOPs of its operators."""
    whole = sample()
    times = tuple(factor * time_s for time_s in whole.steps.durations_s)
    unmodeled = tuple(replace(row, time_s=factor * row.time_s) for row in whole.coverage.unmodeled)
    names = ("span_s", "operators_s", "unmodeled_s", "idle_s", "overlap_s")
    timeline = {name: factor * getattr(whole.timeline, name) for name in names if getattr(whole.timeline, name, None) is not None}
    return replace(
        whole,
        steps=replace(whole.steps, median_s=factor * whole.steps.median_s, durations_s=times),
        coverage=replace(whole.coverage, unmodeled=unmodeled),
        timeline=replace(whole.timeline, **timeline),
        operators=tuple(replace(row, time_s=factor * row.time_s, flops=row.flops and flops * row.flops) for row in whole.operators),
    )


def rounds(*pairs, small=0.05, **changed):
    return combine([compare(scaled(a), scaled(b, **changed), judged=False) for a, b in pairs], small)


def test_drift_between_rounds_cancels():
    # From round to round the machine slows down more than the change does.
    found = rounds((1, 1.2), (2, 2.42), (4, 4.76))
    assert found.pace.exceeds_noise
    assert found.pace.ratio == pytest.approx((1.2 * 1.21 * 1.19) ** (1 / 3))
    assert found.verdict.startswith("B takes 20 % more time than A")
    assert found.slowdown == pytest.approx(found.pace.ratio - 1)
    assert {row.direction for row in found.rows if row.kind == "operator" and row.noise.p_value is not None} == {"slower"}


def test_rounds_that_scatter_more_than_they_differ_do_not_decide():
    found = rounds((1, 1.5), (1, 0.9), (1, 1.0))
    assert found.pace.exceeds_noise is None
    assert found.slowdown == 0
    assert found.verdict.startswith("Not decided: ")
    # As many rounds with this scatter exclude 1, and one less does not.
    logs = [math.log(ratio) for ratio in (1.5, 0.9, 1.0)]
    mean = sum(logs) / 3
    deviation = math.sqrt(sum((value - mean) ** 2 for value in logs) / 2)
    count = found.pace.rounds_needed
    assert quantile(count - 1) * deviation / math.sqrt(count) < mean <= quantile(count - 2) * deviation / math.sqrt(count - 1)
    assert f"About {count} rounds" in found.verdict
    assert not any(row.direction in ("slower", "faster") for row in found.rows)


def test_rounds_that_do_not_decide_exclude_a_larger_difference():
    found = rounds((1, 1.15), (1, 0.9), (1, 1.0))
    more = found.pace.ci95[1] - 1
    assert found.pace.exceeds_noise is None
    assert f"More than {percent(more)} more time is excluded." in found.verdict
    assert found.excludes(more)
    assert not found.excludes(0.99 * more)
    assert not compare(scaled(1), scaled(1.01), judged=False).excludes(1.0)  # one round tells nothing of the next


def test_a_narrow_interval_shows_that_there_is_no_difference():
    pairs = (1, 1.01), (1, 0.99), (1, 1.0)
    assert rounds(*pairs).pace.exceeds_noise is False
    assert rounds(*pairs).verdict.startswith("No difference beyond the noise")
    assert rounds(*pairs, small=0.01).pace.exceeds_noise is None


def test_the_differences_add_up_and_other_counts_are_told():
    found = rounds((1, 1.5), (2, 3.5), (1, 0.9), flops=2)
    assert sum(row.difference_s for row in found.rows) == pytest.approx(found.span_difference_s)
    assert found.flops[1] == 2 * found.flops[0]
    assert found.notes[0].startswith("FLOPs per step: ")
    assert any("2.00 × the FLOPs a call" in row.cause for row in found.rows)


def test_what_does_not_run_in_every_round_is_unknown():
    whole = sample()
    less = replace(whole, operators=whole.operators[1:])
    found = combine([compare(whole, side, judged=False) for side in (whole, whole, less)], 0.05)
    assert {row.direction for row in found.rows if row.name == whole.operators[0].name and row.after is None} == {"unknown"}
