"""The energy of a stretch of time, from a device's energy counter or from its power readings, with how far
off it can be.

Everything here is arithmetic on arrays; docs/sampling.md derives it. A figure that could be off by more than
``LIMIT`` of itself is not given: in its place stands why, and how long a run would be long enough.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rooflines.profiler.read.records import Int64s
from rooflines.profiler.samplers.fields import Counter
from rooflines.roofline.analysis import Energy, Unresolved
from rooflines.roofline.uncertainty import Floats
from rooflines.units import known_to, seconds

# The largest share of a figure that may be unknown.
LIMIT = 0.10
# Fewer new values than this within the window say nothing about its ends.
FEWEST_UPDATES = 3
# A counter without a new value for as many of its periods stands still.
STANDSTILL = 5.0
# Where counters start again at zero: 32 bits of millijoules, and 32 bits of microjoules.
WRAPS_J = (2**32 / 1e3, 2**32 / 1e6)
# After a wrap a counter may have gone on at most as many times as fast as at its fastest elsewhere.
_WRAP_HASTE = 20.0
# The longest period, in usual periods.
_LONGEST_PERIOD = 1.25
# Power that alternates between a few values looks quantized; the quantum is accepted from this many different
# steps on.
FEWEST_STEPS = 5
# Two standard deviations: what the sampling error stays under in 95 of 100 runs.
_COVERAGE = 2.0


class EnergyReadings(NamedTuple):
    """One field of one device: when it was read, what it was, and how well it can be read."""

    times_ns: Int64s
    values: Floats
    counter: Counter | None

    @property
    def window_s(self) -> float:
        """The seconds before a reading that it is the average of."""
        return self.counter.window_s if self.counter is not None else 0.0


class _Bounded(NamedTuple):
    """What a counter stood at at one moment: the estimate, and what it cannot have been below and above."""

    value: float
    low: float
    high: float


def by_counter(
    times_ns: Int64s, joules: Floats, begin_ns: int, end_ns: int, counter: Counter | None = None
) -> Energy | Unresolved:
    """The joules between two moments (epoch ns) from the readings of a counter that only grows; ``times_ns``
    ascend.

    A reading holds the counter's value at its latest update, so the true energy at a moment is at least the
    last reading before it and at most the first value whose update is known to have come after it, whatever
    the power did: that is the error bar, and the counter's resolution comes on top. Between them the energy
    is interpolated over the middles of the intervals in which the updates fell. Adjoining windows add up to
    the whole. A counter that wraps is unwrapped; one that is reset, or stands still, is refused.
    """
    window_s = (end_ns - begin_ns) / 1e9
    times = (times_ns - begin_ns) / 1e9
    gap_s = _gap(times)
    update_s = _update(times, joules, counter)
    spacing_s = max(gap_s, update_s)
    around_s = STANDSTILL * spacing_s
    if (ended := _ended(times, window_s, around_s)) is not None:
        return ended
    first = max(0, int(np.searchsorted(times, -around_s)) - 2)
    last = int(np.searchsorted(times, window_s + around_s, side="right"))
    times = times[first:last]
    values = unwrapped(joules[first:last])
    if values is None:
        return Unresolved(reason="the energy counter was reset during the window")
    if len(values) < 2:
        return Unresolved(reason="the energy counter was read fewer than two times")
    changes = np.flatnonzero(np.diff(values) > 0) + 1
    updates = int(np.count_nonzero((times[changes] > 0) & (times[changes] <= window_s)))
    # An end can lie anywhere between two new values, and there are two ends.
    enough_s = max(2 * spacing_s / LIMIT, (FEWEST_UPDATES + 1) * spacing_s)
    if updates < FEWEST_UPDATES:
        if window_s > around_s:
            return Unresolved(
                reason=f"the energy counter did not change: {_counted(updates)} in {seconds(window_s)}"
            )
        return Unresolved(
            reason=(
                f"the energy counter had {_counted(updates)} in {seconds(window_s)}; it has one every "
                f"{seconds(spacing_s)}"
            ),
            needs_s=enough_s,
        )
    course = _Course(times, values, changes, update_s)
    start = course.at(0.0)
    stop = course.at(window_s)
    found = stop.value - start.value
    resolution = _resolution(values, counter)
    unsure = max(stop.high - start.low - found, found - (stop.low - start.high)) + resolution
    unsure += course.missed(0.0, window_s, around_s)
    if unsure > LIMIT * found:
        seen = course.x[course.x < window_s]
        longest_s = float(np.max(np.diff(np.concatenate((seen, [window_s]))), initial=0.0))
        if longest_s > around_s:
            return Unresolved(
                reason=f"the energy counter did not change for {seconds(longest_s)} of {seconds(window_s)}"
            )
        return Unresolved(
            reason=f"the energy of {seconds(window_s)} is {known_to(unsure / found)}: its counter is "
            "updated every "
            f"{seconds(spacing_s)}",
            needs_s=max(enough_s, window_s * unsure / (LIMIT * found)),
        )
    return Energy(energy_j=found, error_j=unsure, method="counter", updates=updates)


def by_power(
    times_ns: Int64s,
    watts: Floats,
    begin_ns: int,
    end_ns: int,
    counter: Counter | None = None,
    moments: EnergyReadings | None = None,
) -> Energy | Unresolved:
    """The joules between two moments (epoch ns) from power readings, by the trapezoid rule; ``times_ns``
    ascend.

    A reading that is the average over the ``window_s`` seconds before its update lags by half of that and
    half an update period, so the window is moved by as much. What remains is in the error:

    - The average blurs each end. Where power stays within a range of R watts around an end, by at most
      R·window_s/8 joules: half of the area between a step and a ramp as long as the window. ``moments``, the
      power of the moment, tell what was moved across the ends, and it is put back.
    - The lag is known to half an update period: R·update_s/2 at each end, and as much for the difference
      between the ends.
    - Between two readings t seconds apart that differ by D watts a change may have come at any time: D·t/√12
      joules (the standard deviation of a uniform distribution), which add up as squares; twice the root.
    - Every reading can be off by half of its resolution.

    The error bar holds what reading the sensor costs, not how well the sensor is calibrated, nor what it does
    not look at: on A100 and H100 it sees 25 of every 100 ms (arXiv 2312.02741), and a load that repeats in
    step with it is misread by more.
    """
    window_s = (end_ns - begin_ns) / 1e9
    times = (times_ns - begin_ns) / 1e9
    if len(times) < 2:
        return Unresolved(reason="power was read fewer than two times")
    average_s = counter.window_s if counter is not None else 0.0
    gap_s = _gap(times)
    update_s = _update(times, watts, counter)
    spacing_s = max(gap_s, update_s)
    least_s = max(FEWEST_UPDATES * spacing_s, 2 * average_s)
    readings = int(np.count_nonzero((times > 0) & (times <= window_s)))
    if (ended := _ended(times, window_s, STANDSTILL * spacing_s)) is not None:
        return ended
    if window_s < least_s or readings < FEWEST_UPDATES:
        every = (
            f"an average over {seconds(average_s)}"
            if average_s > spacing_s
            else f"new every {seconds(spacing_s)}"
        )
        return Unresolved(
            reason=f"power is {every}, too slow for {seconds(window_s)}", needs_s=least_s / (1 - LIMIT)
        )
    lag_s = (average_s + update_s) / 2
    begin = lag_s
    end = window_s + lag_s
    inside = (times > begin) & (times < end)
    x = np.concatenate(([begin], times[inside], [end]))
    y = np.interp(x, times, watts)
    found = _area(x, y)

    moved, blur = _blur(times, watts, average_s, lag_s, window_s, moments, begin_ns)
    found += moved
    if found <= 0:
        # A reading of 0 is below the sensor's resolution: its error is not 0.
        return Unresolved(reason="the power readings are zero")
    ranges = _range(times, watts, 0.0, 2 * lag_s) + _range(times, watts, window_s, window_s + 2 * lag_s)
    edges = update_s / 2 * ranges + blur
    # A sampler in step with the updates sees them all equally late: the whole window is moved by up to half a
    # period.
    edges += update_s / 2 * abs(float(y[-1] - y[0]))
    # Where sampling began late or ended early, the nearest reading is used.
    for missing_s, at in ((times[0] - begin, times[0]), (end - times[-1], times[-1])):
        if missing_s > 0:
            reach_s = max(missing_s, average_s, spacing_s)
            edges += missing_s * _range(times, watts, at - reach_s, at + reach_s)
    edges += max(0.0, window_s - float(times[-1])) * float(watts[-1])
    edges += max(0.0, float(times[0])) * float(watts[0])
    resolution = _resolution(y, counter, FEWEST_STEPS)
    sampling = _scatter(x, y, update_s)
    unsure = edges + sampling + resolution / 2 * window_s
    if unsure > LIMIT * found:
        # Over x windows the sampling error grows with the root of x, the edges stay, and the energy is x
        # times as much.
        root = (sampling + np.sqrt(sampling**2 + 4 * LIMIT * found * edges)) / (2 * LIMIT * found)
        return Unresolved(
            reason=f"the energy of {seconds(window_s)} is {known_to(unsure / found)}: power was read every "
            f"{seconds(spacing_s)}{f', as averages over {seconds(average_s)}' if average_s else ''}",
            needs_s=max(least_s, window_s * float(root) ** 2) / (1 - LIMIT),
        )
    return Energy(energy_j=found, error_j=float(unsure), method="power", updates=readings)


def better(candidates: Iterable[Energy | Unresolved]) -> Energy | Unresolved | None:
    """The first by counter, else the one by power that is surer; where none was resolved, the one that needs
    the shortest run."""

    def rank(one: Energy | Unresolved) -> tuple[bool, bool, float]:
        if isinstance(one, Energy):
            return False, one.method != "counter", one.error_j / one.energy_j
        return True, one.needs_s is None, one.needs_s or 0.0

    return min(candidates, key=rank, default=None)


def unwrapped(values: Floats) -> Floats | None:
    """``values`` of a counter made to grow where it started again at zero; None where it fell for another
    reason, which is a reset.

    A fall is a wrap where one of the known ranges explains it with a step no longer than counters make
    between two readings.
    """
    steps = np.diff(values)
    falls = np.flatnonzero(steps < 0)
    if not len(falls):
        return values
    usual = float(np.max(steps[steps > 0], initial=0.0))
    whole = values.astype(np.float64)
    for fall in falls:
        wraps = [
            wrap for wrap in WRAPS_J if values[fall] < wrap and 0 < steps[fall] + wrap <= _WRAP_HASTE * usual
        ]
        if not wraps:
            return None
        whole[fall + 1 :] += min(wraps)
    return whole


class _Course:
    """A counter's readings as a course of energy. ``changes`` are the readings that were the first to show a
    new value."""

    def __init__(self, times: Floats, values: Floats, changes: npt.NDArray[np.intp], update_s: float) -> None:
        self._times, self._values = times, values
        # The update that a reading was the first to show fell after the reading before it, and no longer ago
        # than a period.
        self._after = np.maximum(times[changes - 1], times[changes] - _LONGEST_PERIOD * update_s)
        self._shown = values[changes]
        middles = (self._after + times[changes]) / 2
        self.x = np.concatenate(([min(times[0] - update_s / 2, middles[0])], middles))
        self._y = np.concatenate((values[:1], self._shown))
        self._watts = (
            float(self._y[-1] - self._y[1]) / float(self.x[-1] - self.x[1]) if len(changes) > 1 else 0.0
        )

    def at(self, moment: float) -> _Bounded:
        """The counter at ``moment``. Where it was not read, the mean power is used, and all of it counts as
        error."""
        if moment < self._times[0]:
            lead = self._watts * (float(self._times[0]) - moment)
            first = float(self._values[0])
            return _Bounded(first - lead, first - 2 * lead, first)
        low = float(self._values[np.searchsorted(self._times, moment, side="right") - 1])
        later = int(np.searchsorted(self._after, moment, side="left"))
        if later == len(self._after):
            value = max(low, float(self._y[-1]) + self._watts * max(0.0, moment - float(self.x[-1])))
            return _Bounded(value, low, low + 2 * (value - low))
        high = float(self._shown[later])
        return _Bounded(min(max(float(np.interp(moment, self.x, self._y)), low), high), low, high)

    def missed(self, begin: float, end: float, longest_s: float) -> float:
        """The joules that pauses longer than ``longest_s`` may have swallowed: what the usual power would
        have been, less what came."""
        pauses = np.diff(self.x)
        steps = np.diff(self._y)
        usual = float(np.median(steps[1:] / pauses[1:])) if len(steps) > 1 else 0.0
        stood = (pauses > longest_s) & (self.x[1:] > begin) & (self.x[:-1] < end)
        return float(np.sum(np.maximum(0.0, usual * pauses[stood] - steps[stood])))


def _blur(
    times: Floats,
    watts: Floats,
    average_s: float,
    lag_s: float,
    window_s: float,
    moments: EnergyReadings | None,
    begin_ns: int,
) -> tuple[float, float]:
    """The joules that a moving average over ``average_s`` seconds took across both ends of the window, and
    how far off that can be.

    Centered, the average gives each moment t the weight of a ramp that rises from 0 to 1 over ``average_s``
    around the begin, where it should be a step: the difference, weighed with the power of the moment, is what
    it moved. Without such readings around an end, the bound holds for any power within the range of all
    readings.
    """
    if not average_s:
        return 0.0, 0.0
    half = average_s / 2
    moved = unsure = 0.0
    for end, sign in ((0.0, 1.0), (window_s, -1.0)):
        widest = _range(times, watts, end, end + 2 * lag_s)
        if moments is not None and len(moments.times_ns) > 1:
            update_s = _update(moments.times_ns / 1e9, moments.values, moments.counter)
            at = (moments.times_ns - begin_ns) / 1e9 - update_s / 2
            widest = max(widest, _range(at, moments.values, end - half, end + half))
            if at[0] <= end - half and at[-1] >= end + half:
                before = at[(at > end - half) & (at < end)]
                after = at[(at > end) & (at < end + half)]
                x = np.concatenate(([end - half], before, [end, end], after, [end + half]))
                weight = (np.arange(len(x)) > len(before) + 1) - (x - end + half) / average_s
                power = np.interp(x, at, moments.values)
                moved += sign * _area(x, weight * power)
                heaviest = np.maximum(np.abs(weight[1:]), np.abs(weight[:-1]))
                unsure += _scatter(x, power, update_s, heaviest) + update_s / 2 * widest
                continue
        unsure += widest * average_s / 8
    return moved, unsure


def _area(x: Floats, y: Floats) -> float:
    """The integral of ``y`` over ``x`` by the trapezoid rule."""
    return float(np.sum((y[1:] + y[:-1]) / 2 * np.diff(x)))


def _scatter(x: Floats, watts: Floats, update_s: float, weight: Floats | float = 1.0) -> float:
    """The joules by which changes between two readings may be off, which are no nearer than their updates."""
    return _COVERAGE * float(
        np.sqrt(np.sum((np.diff(watts) * np.maximum(np.diff(x), update_s) * weight) ** 2) / 12)
    )


def _gap(times: Floats) -> float:
    """The usual time between two readings."""
    return float(np.median(np.diff(times))) if len(times) > 1 else 0.0


def _update(times: Floats, values: Floats, counter: Counter | None) -> float:
    """The counter's period as it was measured; without that, the usual time between two new values."""
    if counter is not None and counter.update_s is not None:
        return counter.update_s
    return _gap(times[1:][np.diff(values) != 0])


def _ended(times: Floats, window_s: float, around_s: float) -> Unresolved | None:
    """The reason for missing energy if the readings begin or end inside the window; None if they cover it."""
    late_s = float(times[0]) if len(times) else window_s
    early_s = window_s - float(times[-1]) if len(times) else 0.0
    if early_s > around_s:
        return Unresolved(reason=f"the samples end {seconds(early_s)} before the window does")
    return (
        Unresolved(reason=f"the samples begin {seconds(late_s)} after the window does")
        if late_s > around_s
        else None
    )


def _resolution(values: Floats, counter: Counter | None, fewest: int = 1) -> float:
    """The steps that the values come in: those measured beforehand, or the smallest seen where that is
    smaller.

    Measured is the largest step that divides all changes that were watched, so it can be too large, never too
    small.
    """
    steps = np.unique(np.abs(np.diff(values)))
    steps = steps[steps > 0]
    if counter is None or counter.resolution is None or len(steps) < fewest:
        return 0.0
    return min(counter.resolution, float(steps[0]))


def _range(times: Floats, values: Floats, begin: float, end: float) -> float:
    """How far the readings from the last before ``begin`` to the first after ``end`` lie apart."""
    first = max(0, int(np.searchsorted(times, begin, side="right")) - 1)
    last = int(np.searchsorted(times, end, side="left")) + 1
    part = values[first:last]
    return float(np.ptp(part)) if len(part) else 0.0


def _counted(updates: int) -> str:
    return f"{updates or 'no'} new value{'s' if updates > 1 else ''}"
