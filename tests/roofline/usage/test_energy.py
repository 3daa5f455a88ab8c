"""Energy: exact where it can be, additive, inside its error bar whatever the phases, and refused where the readings cannot tell."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rooflines.profiler.samplers.fields import Counter
from rooflines.roofline.analysis import Energy, Unresolved
from rooflines.roofline.judge.usage.energy import LIMIT, WRAPS_J, EnergyReadings, better, by_counter, by_power, unwrapped

BEGAN_NS = 1_763_000_000_000_000_000


def ns(seconds):
    return BEGAN_NS + round(seconds * 1e9)


class Signal:
    """Power that is constant between ``edges``: watts before the first, between each two, and after the last."""

    def __init__(self, edges, watts):
        self.edges, self.watts = np.asarray(edges, float), np.asarray(watts, float)

    def energy(self, moments):
        """Joules since the time 0."""
        marks = np.concatenate(([-1e3], self.edges, [1e3]))
        total = np.concatenate(([0.0], np.cumsum(self.watts * np.diff(marks))))
        return np.interp(moments, marks, total) - np.interp(0.0, marks, total)

    def average(self, moments, window_s):
        return (self.energy(moments) - self.energy(moments - window_s)) / window_s

    def power(self, moments):
        return self.watts[np.searchsorted(self.edges, moments, side="right")]


def updates(moments, period_s, phase_s):
    """When the latest update before each of ``moments`` was."""
    return np.floor((moments - phase_s) / period_s) * period_s + phase_s


def counter_readings(signal, moments, period_s=0.1, phase_s=0.0, resolution=1e-3):
    """A counter that started long ago, read at ``moments``."""
    return np.floor((5000 + signal.energy(updates(moments, period_s, phase_s))) / resolution) * resolution


def counter_of(field="energy_j", **fields):
    return Counter(source="nvml", device="cuda:0", field=field, **fields)


def times_of(moments):
    return BEGAN_NS + np.round(np.asarray(moments) * 1e9).astype(np.int64)


def found(result) -> Energy:
    assert isinstance(result, Energy), result
    return result


def constant(watts):
    return Signal([], [watts])


# --- by counter ------------------------------------------------------------------------------------------------------------------


def test_constant_power_read_from_a_counter_without_a_period_is_exact():
    moments = np.arange(-1, 7, 0.1)
    energy = found(by_counter(times_of(moments), 70 * (moments + 10), ns(0), ns(5), counter_of(update_s=0.0)))
    assert (energy.energy_j, energy.method) == (pytest.approx(350, rel=1e-6), "counter")
    # Either end lies somewhere between two readings 0.1 s apart.
    assert energy.error_j <= 2 * 70 * 0.1 + 1e-3


def test_adjoining_windows_add_up():
    signal = Signal([1.0, 2.5, 4.2], [40, 300, 120, 260])
    moments = np.arange(-2, 12, 0.05)
    readings = times_of(moments), counter_readings(signal, moments)
    whole, first, second = (
        found(by_counter(*readings, ns(begin), ns(end), counter_of(update_s=0.1))) for begin, end in ((0, 9), (0, 4.37), (4.37, 9))
    )
    assert first.energy_j + second.energy_j == pytest.approx(whole.energy_j, rel=1e-9)


def test_energy_scales_with_the_counter():
    moments = np.arange(-2, 8, 0.05)
    values = counter_readings(Signal([2.0], [100, 250]), moments)
    once, thrice = (found(by_counter(times_of(moments), k * values, ns(0), ns(5), counter_of(update_s=0.1))) for k in (1, 3))
    assert (thrice.energy_j, thrice.error_j) == (pytest.approx(3 * once.energy_j), pytest.approx(3 * once.error_j))


@given(
    period_s=st.sampled_from((0.02, 0.1)),
    phase_s=st.floats(0, 0.1),
    gap_s=st.sampled_from((0.01, 0.05, 0.13)),
    start=st.floats(0, 0.2),
    begin=st.floats(0, 0.3),
    edges=st.lists(st.floats(-1, 7), min_size=0, max_size=6, unique=True),
    watts=st.lists(st.floats(20, 700), min_size=7, max_size=7),
    resolution=st.sampled_from((1e-3, 0.1)),
    known=st.booleans(),
)
def test_the_truth_lies_within_the_error_bar_of_a_counter(period_s, phase_s, gap_s, start, begin, edges, watts, resolution, known):
    signal = Signal(sorted(edges), watts[: len(edges) + 1])
    moments = np.arange(-1.5 + start, 7.5, gap_s)
    values = counter_readings(signal, moments, period_s, phase_s, resolution)
    counter = counter_of(update_s=period_s if known else None, resolution=resolution)
    energy = by_counter(times_of(moments), values, ns(begin), ns(begin + 6), counter)
    truth = float(signal.energy(begin + 6) - signal.energy(begin))
    if isinstance(energy, Energy):
        assert abs(energy.energy_j - truth) <= energy.error_j + 1e-6
        assert energy.error_j <= LIMIT * energy.energy_j
    else:
        assert energy.needs_s > 6
        # refused only where the power at the two ends could make that much of a difference
        assert 2.5 * (period_s + gap_s) * max(signal.watts) + 2 * resolution > LIMIT * truth


def test_a_burst_between_two_updates_is_refused_with_a_length_that_would_do():
    signal = Signal([0.0, 0.04], [60, 400, 60])
    moments = np.arange(-1, 2, 0.02)
    refused = by_counter(times_of(moments), counter_readings(signal, moments), ns(0), ns(0.04), counter_of(update_s=0.1))
    assert isinstance(refused, Unresolved)
    assert refused.reason == "the energy counter had no new value in 40.0 ms; it has one every 100 ms"
    moments = np.arange(-1, 2 + refused.needs_s, 0.02)
    values = counter_readings(constant(400), moments)
    assert isinstance(by_counter(times_of(moments), values, ns(0), ns(refused.needs_s), counter_of(update_s=0.1)), Energy)


def test_a_window_with_too_large_an_error_is_refused_with_a_length_that_would_do():
    moments = np.arange(-1, 60, 0.02)
    readings = times_of(moments), counter_readings(constant(200), moments)
    refused = by_counter(*readings, ns(0), ns(0.73), counter_of(update_s=0.1))
    assert isinstance(refused, Unresolved)
    assert "is known to ±" in refused.reason
    found(by_counter(*readings, ns(0), ns(refused.needs_s), counter_of(update_s=0.1)))


def test_a_counter_that_stands_still_is_refused():
    moments = np.arange(-1, 8, 0.1)
    frozen = by_counter(times_of(moments), np.full(len(moments), 812.5), ns(0), ns(5), counter_of())
    assert frozen == Unresolved(reason="the energy counter did not change: no new value in 5.00 s")
    stuck = np.minimum(100 * moments, 300)  # goes on until 3 s
    refused = by_counter(times_of(moments), stuck, ns(0), ns(5), counter_of(update_s=0.1))
    assert isinstance(refused, Unresolved)
    assert refused.reason.startswith("the energy counter did not change for 1.9")
    assert refused.needs_s is None


def test_a_pause_that_the_counter_makes_good_is_no_error_and_one_that_it_does_not_is():
    moments = np.arange(-1, 12, 0.1)
    true = 100 * moments
    caught_up = np.where((moments > 3) & (moments < 4.5), 300, true)
    energy = found(by_counter(times_of(moments), caught_up, ns(0), ns(10), counter_of(update_s=0.1)))
    assert energy.energy_j == pytest.approx(1000, rel=0.001)
    lost = np.where(moments < 3, true, np.where(moments < 4.5, 300, true - 150))
    refused = by_counter(times_of(moments), lost, ns(0), ns(10), counter_of(update_s=0.1))
    assert isinstance(refused, Unresolved)


@pytest.mark.parametrize("wrap", WRAPS_J)
def test_a_counter_that_wraps_goes_on(wrap):
    moments = np.arange(-1, 7, 0.1)
    values = (wrap - 250 + 100 * moments) % wrap
    energy = found(by_counter(times_of(moments), values, ns(0), ns(5), counter_of(update_s=0.05)))
    assert energy.energy_j == pytest.approx(500)


def test_a_reset_is_refused_and_one_outside_of_the_window_does_not_matter():
    moments = np.arange(-20, 7, 0.1)
    values = 100 * (moments + 50)
    reset = np.where(moments < 2, values, values - 5200)
    assert by_counter(times_of(moments), reset, ns(0), ns(5)) == Unresolved(reason="the energy counter was reset during the window")
    earlier = np.where(moments < -10, values, values - 4000)
    assert found(by_counter(times_of(moments), earlier, ns(0), ns(5))).energy_j == pytest.approx(500)


def test_a_fall_that_no_range_explains_is_no_wrap():
    assert unwrapped(np.array([10.0, 20.0, 5.0])) is None
    assert unwrapped(np.array([10.0, 20.0, 25.0])).tolist() == [10, 20, 25]


def test_samples_that_do_not_cover_the_window_are_refused():
    moments = np.arange(-1, 2.5, 0.1)
    for by in (by_counter, by_power):
        early, late = (by(times_of(moments + after), 50 * (moments + 9), ns(0), ns(5), counter_of(update_s=0.1)) for after in (0, 3))
        assert early == Unresolved(reason="the samples end 2.60 s before the window does")
        assert late == Unresolved(reason="the samples begin 2.00 s after the window does")


def test_one_reading_is_no_energy():
    once = times_of([0.5]), np.array([3.0])
    assert isinstance(by_counter(*once, ns(0), ns(1)), Unresolved)
    assert isinstance(by_power(*once, ns(0), ns(1)), Unresolved)


# --- by power --------------------------------------------------------------------------------------------------------------------


def test_the_trapezoid_is_exact_on_constant_power_and_on_a_ramp():
    moments = np.arange(-1, 7, 0.1)
    at_once = counter_of("power_w", update_s=0.0)
    constant_j = found(by_power(times_of(moments), np.full(len(moments), 70.0), ns(0), ns(5), at_once))
    assert (constant_j.energy_j, constant_j.error_j) == (pytest.approx(350), 0)
    ramp = found(by_power(times_of(moments), 100 + 20 * moments, ns(0), ns(5), at_once))
    assert ramp.energy_j == pytest.approx(100 * 5 + 20 * 5**2 / 2)


def test_the_lag_of_an_average_is_taken_out():
    # 20 W a second: the average over the last second is what the power was half a second ago.
    moments = np.arange(-2, 9, 0.1)
    power = counter_of("power_w", update_s=0.0, window_s=1.0)
    ramp = found(by_power(times_of(moments), 200 + 20 * (moments - 0.5), ns(0), ns(5), power))
    assert ramp.energy_j == pytest.approx(200 * 5 + 20 * 5**2 / 2)
    held = Signal([0.0, 5.0], [60, 400, 60])
    energy = found(by_power(times_of(moments), held.average(moments, 1.0), ns(0), ns(5), power))
    # The average turns each edge into a ramp: an eighth of a second of the step is missing at each, and the error bar says so.
    assert energy.energy_j == pytest.approx(2000 - 2 * 340 / 8, rel=0.002)
    assert abs(energy.energy_j - 2000) <= energy.error_j


def test_the_power_of_the_moment_puts_back_what_an_average_moved_across_the_ends():
    # Two periods of the wave fit into the average, which is constant: it knows nothing of where in a period the window ends.
    wave = Signal(np.arange(-8, 16, 0.25), [100 + 300 * (index % 2) for index in range(97)])
    moments = np.arange(-3, 9, 0.02)
    average, instant = counter_of("power_w", update_s=0.0, window_s=1.0), counter_of("power_instant_w", update_s=0.0)
    truth = float(wave.energy(4.1) - wave.energy(0))
    readings = times_of(moments), wave.average(moments, 1.0), ns(0), ns(4.1), average
    alone = found(by_power(*readings))
    assert abs(alone.energy_j - truth) > 8
    helped = found(by_power(*readings, EnergyReadings(times_of(moments), wave.power(moments), instant)))
    assert helped.energy_j == pytest.approx(truth, rel=0.002)
    assert abs(helped.energy_j - truth) <= helped.error_j
    # Not read around the end, they still tell how far power goes to and fro, and how unsure the average therefore is.
    early = moments < 4
    told = by_power(*readings, EnergyReadings(times_of(moments[early]), wave.power(moments[early]), instant))
    assert abs(found(told).energy_j - truth) <= told.error_j


def test_adjoining_windows_of_power_add_up_and_scale():
    moments = np.arange(-2, 12, 0.07)
    watts = 200 + 50 * np.sin(moments)
    whole, first, second = (found(by_power(times_of(moments), watts, ns(a), ns(b))) for a, b in ((0, 9), (0, 4.37), (4.37, 9)))
    # A piece between two readings that a boundary divides is two trapezoids on the same line.
    assert first.energy_j + second.energy_j == pytest.approx(whole.energy_j, rel=1e-12)
    double = found(by_power(times_of(moments), 2 * watts, ns(0), ns(9)))
    assert (double.energy_j, double.error_j) == (pytest.approx(2 * whole.energy_j), pytest.approx(2 * whole.error_j))


@given(
    phase_s=st.floats(0, 0.1),
    start=st.floats(0, 0.2),
    begin=st.floats(0, 0.5),
    low=st.floats(40, 300),
    step=st.floats(0, 400),
    window_s=st.sampled_from((0.0, 0.1, 1.0)),
)
def test_the_truth_lies_within_the_error_bar_of_power(phase_s, start, begin, low, step, window_s):
    """A load that starts at the window's begin and stops at its end, whenever that falls among the updates and the readings."""
    signal = Signal([begin, begin + 6], [low, low + step, low])
    moments = np.arange(-2.5 + start, 9, 0.05)
    updated = updates(moments, 0.1, phase_s)
    watts = signal.average(updated, window_s) if window_s else signal.power(updated)
    power = counter_of("power_w", update_s=0.1, window_s=window_s, resolution=1e-3)
    energy = found(by_power(times_of(moments), watts, ns(begin), ns(begin + 6), power))
    assert abs(energy.energy_j - 6 * (low + step)) <= energy.error_j + 1e-6


@given(
    phase_s=st.floats(0, 0.1),
    start=st.floats(0, 0.2),
    slope=st.floats(-40, 60),
    window_s=st.sampled_from((0.0, 0.1, 1.0)),
    known=st.booleans(),
)
def test_a_ramp_lies_within_the_error_bar_also_where_readings_and_updates_are_in_step(phase_s, start, slope, window_s, known):
    moments = np.arange(-2.5 + start, 9, 0.1)
    updated = updates(moments, 0.1, phase_s)
    watts = 400 + slope * (updated - window_s / 2)
    power = counter_of("power_w", update_s=0.1 if known else None, window_s=window_s)
    energy = found(by_power(times_of(moments), watts, ns(0), ns(6), power))
    assert abs(energy.energy_j - (400 * 6 + slope * 18)) <= energy.error_j + 1e-6


@pytest.mark.parametrize("window_s", [0.0, 0.025])
def test_the_error_bar_of_a_sensor_that_looks_a_quarter_of_the_time_holds_in_95_of_100_runs(window_s):
    """A square wave of 0.34 s under a sensor that sees 25 of every 100 ms or a moment of them, from 400 random phases."""
    random = np.random.default_rng(1)
    held, runs = 0, 400
    for _ in range(runs):
        edges = np.sort(np.concatenate([random.uniform(0, 0.34) + np.arange(-6, 15, 0.34), random.uniform(-6, 15, 4)]))
        signal = Signal(edges, [100 + 300 * (index % 2) for index in range(len(edges) + 1)])
        moments = np.arange(-2 + random.uniform(0, 0.1), 12.5, 0.1)
        updated = updates(moments, 0.1, random.uniform(0, 0.1))
        watts = signal.average(updated, window_s) if window_s else signal.power(updated)
        energy = by_power(times_of(moments), watts, ns(0), ns(10), counter_of("power_w", update_s=0.1, window_s=window_s))
        truth = float(signal.energy(10) - signal.energy(0))
        held += abs(found(energy).energy_j - truth) <= found(energy).error_j
    assert held >= 0.95 * runs


def test_a_burst_shorter_than_the_average_is_refused_with_a_length_that_would_do():
    signal = Signal([0.0, 0.3], [60, 400, 60])
    moments = np.arange(-2, 3, 0.05)
    power = counter_of("power_w", update_s=0.1, window_s=1.0)
    refused = by_power(times_of(moments), signal.average(moments, 1.0), ns(0), ns(0.3), power)
    assert isinstance(refused, Unresolved)
    assert refused.reason == "power is an average over 1.00 s, too slow for 300 ms"
    moments = np.arange(-2, refused.needs_s + 3, 0.05)
    long = Signal([0.0, refused.needs_s], [250, 400, 250])
    found(by_power(times_of(moments), long.average(moments, 1.0), ns(0), ns(refused.needs_s), power))


def test_power_that_jumps_more_than_the_readings_can_follow_is_refused_until_the_run_is_long_enough():
    random = np.random.default_rng(3)
    moments = np.arange(-1, 4000, 0.5)
    watts = random.choice([50.0, 450.0], len(moments))
    refused = by_power(times_of(moments), watts, ns(0), ns(5), counter_of("power_instant_w", update_s=0.1))
    assert isinstance(refused, Unresolved)
    assert 5 < refused.needs_s < 500
    found(by_power(times_of(moments), watts, ns(0), ns(1.2 * refused.needs_s), counter_of("power_instant_w", update_s=0.1)))


def test_power_that_reads_zero_is_no_energy_however_sure_it_looks():
    moments = np.arange(-1, 8, 0.1)
    refused = Unresolved(reason="the power readings are zero")
    for counter in (None, counter_of("power_w", update_s=0.1, window_s=1.0), counter_of("power_w", update_s=0.0)):
        assert by_power(times_of(moments), np.zeros(len(moments)), ns(0), ns(5), counter) == refused
    started = np.where(moments < 6, 0.0, 90.0)
    assert by_power(times_of(moments), started, ns(0), ns(5), counter_of("power_w", update_s=0.0)) == refused


# --- which ---------------------------------------------------------------------------------------------------------------------


def test_a_counter_comes_before_power_and_the_surer_power_before_the_other():
    counter, sure, unsure = (
        Energy(energy_j=100, error_j=error_j, method=method, updates=9)
        for method, error_j in (("counter", 5), ("power", 1), ("power", 3))
    )
    assert better([unsure, sure, counter]) is counter
    assert better([unsure, Unresolved(reason="x"), sure]) is sure
    soon, late, never = Unresolved(reason="a", needs_s=2), Unresolved(reason="b", needs_s=9), Unresolved(reason="c")
    assert better([never, late, soon]) is soon
    assert better([]) is None
