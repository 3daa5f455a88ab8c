"""Update periods and resolutions found in readings, by arithmetic and by laws."""

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rooflines.profiler.samplers.update_time import pace

VALUES = st.lists(st.integers(-1000, 1000), min_size=0, max_size=40)


def counter(period_s, *, reading_s, length_s, step=1, phase_s=0.0):
    """The readings of a counter that grows by ``step`` every period."""
    times = [index * reading_s for index in range(int(length_s / reading_s))]
    return [(time_s, step * math.floor((time_s - phase_s) / period_s)) for time_s in times]


def read_at_once(values):
    return [(float(index), value) for index, value in enumerate(values)]


def test_counter_that_grows_evenly():
    found = pace(counter(0.1, reading_s=0.001, length_s=0.65, step=250, phase_s=0.0505))
    assert found.period_s == pytest.approx(0.1, rel=0.01)
    assert found.step == 250


def test_update_that_changed_nothing_counts():
    # Power as a multiple of 5 W, which happened to stay the same at the third update and at the sixth and seventh.
    shown = [100, 105, 110, 110, 115, 105, 105, 105, 120, 115]
    found = pace([(index * 0.01, shown[index // 10]) for index in range(100)])
    assert found.period_s == pytest.approx(0.1)
    assert found.step == 5


def test_reader_that_was_held_up_spoils_nothing():
    # Twice it was not there for a while: once for 45 ms around an update, once for so long that an update was missed.
    held_up = [(0.155, 0.2), (0.43, 0.57)]
    readings = counter(0.1, reading_s=0.001, length_s=0.75, phase_s=0.09)
    seen = [(time_s, value) for time_s, value in readings if not any(begin < time_s < end for begin, end in held_up)]
    assert pace(seen).period_s == pytest.approx(0.1, rel=0.01)


def test_slow_readings_are_what_limits_the_period():
    assert pace(counter(0.001, reading_s=0.005, length_s=0.1)).period_s == pytest.approx(0.005)


@pytest.mark.parametrize("values", [[], [7], [7, 7, 7]])
def test_without_a_change_nothing_is_known(values):
    assert pace(read_at_once(values)) == (None, None)


def test_one_change_tells_the_step_and_no_period():
    assert pace(read_at_once([7, 7, 4, 4])) == (None, 3)


def test_counter_that_falls_back_to_zero_has_its_period():
    values = [value % 400 for _, value in counter(0.1, reading_s=0.01, length_s=1.0, step=100)]
    assert pace([(index * 0.01, value) for index, value in enumerate(values)]).period_s == pytest.approx(0.1)


@given(period_s=st.floats(0.02, 0.2), reading_s=st.floats(0.001, 0.02), phase=st.floats(0, 1))
def test_period_is_as_good_as_the_readings(period_s, reading_s, phase):
    readings = counter(period_s, reading_s=reading_s, length_s=20 * period_s, phase_s=phase * period_s)
    found = pace(readings)
    assume(reading_s < period_s / 2)
    # Both ends of the time between the first change and the last are known to a reading.
    changes = len({value for _, value in readings}) - 1
    assert abs(found.period_s - period_s) <= reading_s / (changes - 1) + 1e-9


@given(VALUES)
def test_every_change_is_a_multiple_of_the_step(values):
    found = pace(read_at_once(values))
    assert all((value - values[0]) % (found.step or 1) == 0 for value in values)
    assert (found.step is None) == (len(set(values)) < 2)


@given(VALUES, st.integers(-100, 100), st.integers(1, 50))
def test_zero_and_unit_of_the_counter_make_no_difference(values, zero, unit):
    plain, other = pace(read_at_once(values)), pace(read_at_once([unit * value + zero for value in values]))
    assert other == plain._replace(step=plain.step and plain.step * unit)


@given(VALUES, st.integers(1, 8))
def test_time_runs_at_any_speed(values, speed):
    plain = pace(read_at_once(values))
    slow = pace([(speed * time_s, value) for time_s, value in read_at_once(values)])
    assert slow.period_s == (None if plain.period_s is None else pytest.approx(speed * plain.period_s))
    assert slow.step == plain.step
