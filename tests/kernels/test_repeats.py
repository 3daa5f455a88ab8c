"""When a measurement is believed: exact, with a clock and samples made by hand."""

from __future__ import annotations

import statistics

import pytest

from rooflines.kernels.micro.repeats import Sample, Timing, calls_for, settle

pytestmark = pytest.mark.unit


class FakeClock:
    """A clock that a sample of one second advances."""

    def __init__(self, samples):
        self.now = 0.0
        self._samples = iter(samples)

    def __call__(self):
        return self.now

    def sample(self):
        self.now += 1.0
        value = next(self._samples)
        return value if isinstance(value, Sample) else Sample(value)


def run(samples, budget_s=100.0, again=True):
    clock = FakeClock(samples)
    return settle(clock.sample, budget_s, clock, again=again)


def test_stops_when_the_last_five_agree():
    found = run([1.0, 5.0, 10.0, 10.0, 10.1, 10.0, 10.0, 99.0])
    assert found.median == 10.0
    assert found.taken == 7
    assert found.spread == pytest.approx(statistics.stdev([10.0, 10.0, 10.1, 10.0, 10.0]) / 10.02)
    assert not found.unstable
    assert not found.disturbed


def test_stops_at_the_budget_when_the_spread_is_acceptable():
    found = run([10.0, 10.4, 10.0, 10.4, 10.0, 10.4, 10.0], budget_s=6.0)
    assert found.taken == 6
    assert found.median == 10.4
    assert not found.unstable


def test_unstable_is_tried_once_more_and_the_steadier_kept():
    wild, calmer = [1.0, 9.0, 1.0, 9.0, 1.0], [8.0, 9.0, 8.0, 9.0, 8.0]
    found = run(wild + calmer, budget_s=5.0)
    assert found.taken == 10
    assert found.median == 8.0
    assert found.unstable  # still above 5 %


def test_in_a_hurry_there_is_one_try():
    found = run([1.0, 9.0, 1.0, 9.0, 1.0], budget_s=0.0, again=False)
    assert found.taken == 5
    assert found.unstable


def test_samples_that_waited_for_a_core_do_not_count():
    halved = Sample(5.0, busy=0.5)
    found = run([halved] * 5 + [10.0, halved, 10.0, 10.0, halved, 10.0, 10.0])
    assert found.median == 10.0
    assert found.taken == 12
    assert not found.disturbed


def test_nothing_but_disturbed_samples_is_said():
    found = run([Sample(5.0, busy=0.5)] * 20, budget_s=8.0)
    assert found.median == 5.0
    assert found.taken == 16  # both tries
    assert found.disturbed


def test_a_time_of_zero_is_unstable_not_an_error():
    assert run([0.0] * 20, budget_s=5.0).unstable


def test_calls_for_scales_to_the_duration():
    # each call takes 1 ms: 20 of them fill 20 ms
    assert calls_for(0.020, lambda calls: Timing(0.001 * calls)) == 20
    # one call is longer than the sample: one is made
    assert calls_for(0.020, lambda calls: Timing(3.0 * calls)) == 1
