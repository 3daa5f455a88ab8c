"""The noise of a comparison: which rows moved by more than their steps scatter and the machine drifted
(docs/compare.md).

A row is judged by the lower quartile of its traced steps, in logarithms: other programs only add time. What
is the same on both sides tells how far the machine drifted between the runs (the median of their changes) and
by how much more two runs differ than the steps of one run suggest.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rooflines.roofline.compare.records import Drift, Noise
from rooflines.roofline.uncertainty import quantile, two_sided

FEWEST_STEPS = 3
# Rows that are the same on both sides, to tell the drift by.
FEWEST_ROWS = 5
# Steps that scatter more were disturbed: their upper quartile by their lower one.
MOST_SCATTER = 1.5
# False discoveries among the rows that are called slower or faster.
LEVEL = 0.05
STEP_LEVEL = 0.01
# Idle time drifts by this much more or less than the operators do (standard deviation, measured by
# benchmarks/compare_noise.py).
_IDLE_DRIFT = 0.1
# The rows judged are the longest ones, which together take this much of the time.
_JUDGED_SHARE = 0.9
# A row is called slower or faster if that changes the step by this much.
_NOTABLE_SHARE = 0.005
_QUARTILE = 0.25
# The variance of all rows counts as much as that of this many steps of the row itself.
_PRIOR_STEPS = 4
# More steps are thinned out: they tell little more.
_MOST_STEPS = 100
# No timer resolves less than this share of a row.
_LEAST_VARIANCE = 1e-8
# The median and the 80 % quantile of the square of a normal variable.
_SQUARED_NORMAL = ((0.5, 0.4549), (0.8, 1.6424))

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


class PairTimes(NamedTuple):
    """The times of a row in the traced steps of both sides, in seconds; ``same`` if the row does the same
    work on both."""

    before: Sequence[float]
    after: Sequence[float]
    same: bool = True


class Calibration(NamedTuple):
    """What the rows of a comparison tell about the machine: see ``Drift``. ``prior`` is the median variance
    of a change.

    ``least_s`` is the shortest time that is judged on each side, ``step_s`` the mean time of a step of both.
    """

    drift: Drift | None
    prior: float
    least_s: tuple[float, float]
    step_s: float

    @property
    def common(self) -> float:
        """The logarithm of the drift that is taken out of every change."""
        return math.log(self.drift.factor) if self.drift is not None and self.drift.by_machine else 0.0

    @property
    def inflation(self) -> float:
        """The factor on the variances."""
        return self.drift.inflation if self.drift is not None else 1.0


def is_disturbed(steps_s: Sequence[float]) -> bool:
    """Whether the traced steps of one side scatter too much to compare anything with them."""
    low, high = np.quantile(steps_s, (_QUARTILE, 1 - _QUARTILE))
    return bool(high > MOST_SCATTER * low)


def is_known(series: PairTimes) -> bool:
    """Whether the noise of the row is known: enough steps on both sides, and it ran in all of them."""
    return (
        min(len(series.before), len(series.after)) >= FEWEST_STEPS and min(*series.before, *series.after) > 0
    )


def calibrate(rows: Sequence[PairTimes], *, alike: bool) -> Calibration | None:
    """What ``rows``, whose noise is known, tell about the machine; None without rows.

    ``alike`` says that both sides ran under the same conditions, so that what all rows have in common is the
    machine's.
    """
    if not rows:
        return None
    change, variance, times = _changes(rows)
    least = _least(times[0]), _least(times[1])
    long = (times[0] >= least[0]) | (times[1] >= least[1])
    prior = float(np.median(variance[long]))
    step_s = float(times.sum()) / 2
    told_by = long & np.array([row.same for row in rows])
    if told_by.sum() < FEWEST_ROWS:
        return Calibration(None, prior, least, step_s)
    common = float(np.median(change[told_by]))
    squared = (change[told_by] - common) ** 2 / _moderated(variance, prior, rows)[told_by]
    inflation = max(
        1.0,
        *(float(np.quantile(squared, share, method="lower")) / normal for share, normal in _SQUARED_NORMAL),
    )
    drift = Drift(
        factor=math.exp(common), inflation=inflation, operators=int(told_by.sum()), by_machine=alike
    )
    return Calibration(drift, prior, least, step_s)


def judge(
    rows: Sequence[PairTimes], calibration: Calibration, level: float = LEVEL, idle: float = 0.0
) -> list[Noise]:
    """The noise of each of ``rows``, which must be known; ``level`` is the share of false discoveries among
    the significant ones.

    ``idle`` is the share of idle time in the rows, which the drift of the operators does not tell.
    """
    if not rows:
        return []
    change, variance, times = _changes(rows)
    own = change - calibration.common
    error = np.sqrt(
        _moderated(variance, calibration.prior, rows) * calibration.inflation + (idle * _IDLE_DRIFT) ** 2
    )
    long = (times[0] >= calibration.least_s[0]) | (times[1] >= calibration.least_s[1])
    # Fewer steps show less of how the machine behaves.
    freedom = min(8, max(4, 2 * (min(min(len(row.before), len(row.after)) for row in rows) // 5)))
    beyond_drift = (np.abs(own) > abs(calibration.common)) & (np.sign(own) == np.sign(change))
    times = np.stack((times[0], times[1] * math.exp(-calibration.common)))
    return _noises(rows, own, error, times, long, calibration.step_s, freedom, level, beyond_drift)


def judge_rounds(rows: Sequence[PairTimes]) -> list[Noise]:
    """The noise of each of ``rows``, whose times are one for each round: that of their ratios in the rounds.

    Both sides of a round ran one after the other, so that what changes from run to run is in the ratios.
    """
    if not rows:
        return []
    times = np.array([(row.before, row.after) for row in rows])  # [rows, 2, rounds]
    ratios = np.log(times[:, 1] / times[:, 0])
    count = ratios.shape[1]
    error = np.sqrt(np.maximum(ratios.var(axis=1, ddof=1), _LEAST_VARIANCE) / count)
    means = times.mean(axis=2).T
    long = (means[0] >= _least(means[0])) | (means[1] >= _least(means[1]))
    return _noises(
        rows,
        ratios.mean(axis=1),
        error,
        means,
        long,
        float(means.sum()) / 2,
        count - 1,
        LEVEL,
        np.ones(len(rows), bool),
    )


def _noises(
    rows: Sequence[PairTimes],
    change: Floats,
    error: Floats,
    times: Floats,
    long: Mask,
    step_s: float,
    freedom: int,
    level: float,
    possible: Mask,
) -> list[Noise]:
    """The noise of ``rows`` with the logarithm of each ratio and its standard error; only ``possible`` ones
    can be significant."""
    chance = np.ones(len(rows))
    chance[long] = _adjusted(two_sided(change[long] / error[long], freedom))
    significant = (chance <= level) & (np.abs(times[1] - times[0]) > _NOTABLE_SHARE * step_s) & possible
    wide = quantile(freedom) * error
    return [
        Noise(
            ratio=math.exp(value),
            ci95=(math.exp(value - off), math.exp(value + off)),
            p_value=p if judged else None,
            significant=sure,
            before_steps=len(row.before),
            after_steps=len(row.after),
        )
        for row, value, off, p, judged, sure in zip(
            rows,
            change.tolist(),
            wide.tolist(),
            chance.tolist(),
            long.tolist(),
            significant.tolist(),
            strict=True,
        )
    ]


def _changes(rows: Sequence[PairTimes]) -> tuple[Floats, Floats, Floats]:
    """The logarithm of each row's ratio, its variance from the scatter of the steps, and the typical times of
    both sides [2, rows]."""
    before, after, _ = zip(*rows, strict=True)
    (ours, our_variance), (theirs, their_variance) = (
        np.array([*map(_typical, side)]).T for side in (before, after)
    )
    return theirs - ours, our_variance + their_variance, np.exp(np.stack((ours, theirs)))


def _typical(times_s: Sequence[float]) -> tuple[float, float]:
    """The logarithm of the lower quartile and its variance: mean and variance over all bootstrap samples of
    the steps."""
    chosen = times_s[:: math.ceil(len(times_s) / _MOST_STEPS)]
    ordered = np.log(np.sort(chosen))
    weights = _weights(len(chosen))
    middle = float(ordered @ weights)
    return middle, max(float((ordered - middle) ** 2 @ weights), _LEAST_VARIANCE)


@functools.cache
def _weights(count: int) -> Floats:
    """How often each of ``count`` ordered values is the lower quartile of a bootstrap sample (Efron 1979,
    section 3)."""
    rank = math.ceil(count * _QUARTILE)

    def within(number: int) -> float:
        """The probability that a sample has ``rank`` values among the first ``number``."""
        share = number / count
        return sum(
            math.comb(count, k) * share**k * (1 - share) ** (count - k) for k in range(rank, count + 1)
        )

    return np.diff([within(number) for number in range(count + 1)])


def _moderated(variance: Floats, prior: float, rows: Sequence[PairTimes]) -> Floats:
    """The variances, drawn toward that of all rows (Smyth 2004)."""
    freedom = np.array([len(row.before) + len(row.after) - 2 for row in rows])
    moderated: Floats = (_PRIOR_STEPS * prior + freedom * variance) / (_PRIOR_STEPS + freedom)
    return moderated


def _least(times_s: Floats) -> float:
    """The shortest of the longest times that together are ``_JUDGED_SHARE`` of all."""
    ordered = np.sort(times_s)[::-1]
    return float(ordered[np.searchsorted(np.cumsum(ordered), _JUDGED_SHARE * ordered.sum())])


def _adjusted(chance: Floats) -> Floats:
    """The probabilities adjusted for their number: the least level at which each is a discovery (Benjamini
    and Hochberg 1995)."""
    order = np.argsort(chance)
    scaled = chance[order] * len(chance) / np.arange(1, len(chance) + 1)
    found = np.empty_like(chance)
    found[order] = np.minimum(np.minimum.accumulate(scaled[::-1])[::-1], 1.0)
    return found
