"""Calls on a CPU count with the lower quartile of their site: disturbances only add time, and hit another call in every step."""

import numpy as np
import pytest

from rooflines.roofline.own.host import call_sites, steady_times

EVERY = np.ones(20, bool)


def test_a_site_is_a_place_in_the_order_of_a_step():
    # Two groups; the first is called twice a step, in another order of the columns than of time.
    group, step = np.array([0, 0, 0, 0, 1, 1]), np.array([0, 0, 1, 1, 0, 1])
    start = np.array([20, 10, 110, 120, 15, 115])
    site = call_sites(group, step, start)
    assert site[1] == site[2]  # the first call of each step
    assert site[0] == site[3]  # the second
    assert site[4] == site[5]
    assert len({site[0], site[1], site[4]}) == 3


def test_the_quartile_of_five_equal_calls_and_a_long_one_is_theirs():
    times = np.array([40, 40, 40, 40, 40, 4000])
    assert steady_times(np.zeros(6, np.int64), times, EVERY[:6]).tolist() == [40.0] * 6


def test_the_quartile_is_interpolated():
    # Of 10, 20, 30, 40 the lower quartile lies at 0.75 of the way from the first to the second.
    assert steady_times(np.zeros(4, np.int64), np.array([40, 10, 30, 20]), EVERY[:4]).tolist() == [17.5] * 4


def test_sites_are_told_apart():
    site, times = np.array([0, 1, 0, 1, 0, 1]), np.array([1, 100, 1, 100, 1, 100])
    assert steady_times(site, times, EVERY[:6]).tolist() == [1.0, 100.0] * 3


def test_only_quiet_steps_count_where_there_are_three():
    times = np.array([10, 10, 10, 3, 3])
    quiet = np.array([True, True, True, False, False])
    assert steady_times(np.zeros(5, np.int64), times, quiet).tolist() == [10.0] * 5
    quiet[0] = False
    assert steady_times(np.zeros(5, np.int64), times, quiet).tolist() == [3.0] * 5  # of all five


def test_a_site_of_one_call_keeps_its_time():
    assert steady_times(np.array([0, 1, 1]), np.array([7, 2, 4]), EVERY[:3]).tolist() == [7.0, 2.5, 2.5]
    assert steady_times(np.empty(0, np.int64), np.empty(0, np.int64), EVERY[:0]).tolist() == []


@pytest.mark.parametrize("share", [0.3, 0.7])
def test_disturbances_of_most_steps_move_nothing(share):
    """Twenty steps of fifty sites; in each disturbed step one site in five takes a scheduler's slice."""
    random = np.random.default_rng(0)
    steps, sites = 20, 50
    true = random.uniform(20, 2000, sites)
    times = np.tile(true, (steps, 1)) * random.uniform(1.0, 1.02, (steps, sites))
    hit = (random.random((steps, 1)) < share) & (random.random((steps, sites)) < 0.2)
    times += hit * 4000
    site = np.tile(np.arange(sites), steps)
    found = steady_times(site, times.ravel(), np.ones(steps * sites, bool))[:sites]
    assert found == pytest.approx(true, rel=0.02)
    assert times.mean(axis=0).sum() > 1.1 * true.sum()  # the mean shows the disturbances
