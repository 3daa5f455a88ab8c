"""How far a figure from a few values can be off: bootstrap intervals of a median, Student's t for a mean."""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

RESAMPLES = 2000
_BLOCK = 1_000_000  # values drawn at a time
Floats = npt.NDArray[np.float64]


def resampled_medians(
    values: Sequence[float] | Floats, generator: np.random.Generator | None = None
) -> Floats:
    """The medians of ``RESAMPLES`` resamples of ``values``; without a generator the same values always give
    the same medians."""
    generator = generator or np.random.default_rng(0)
    values = np.asarray(values)
    # In blocks, because 2,000 resamples of 10,000 values would take half a gigabyte.
    block = max(1, _BLOCK // len(values))
    counts = [min(block, RESAMPLES - done) for done in range(0, RESAMPLES, block)]
    medians: Floats = np.concatenate(
        [np.median(generator.choice(values, (count, len(values))), axis=1) for count in counts]
    )
    return medians


def interval95(resampled: Floats) -> tuple[float, float]:
    """The percentile interval that holds 95 % of the resampled figures."""
    low, high = np.percentile(resampled, (2.5, 97.5)).tolist()
    return low, high


def two_sided(t: Floats, freedom: int) -> Floats:
    """The probability that Student's t is as far from zero (Abramowitz and Stegun 26.7.3 and 26.7.4)."""
    angle = np.arctan(np.abs(t) / math.sqrt(freedom))
    odd = freedom % 2
    term = np.cos(angle) if odd else np.ones_like(angle)
    total = term.copy() if freedom > 1 else np.zeros_like(angle)
    for k in range(2 + odd, freedom, 2):
        term = term * np.cos(angle) ** 2 * (k - 1) / k
        total = total + term
    within = np.sin(angle) * total
    chance: Floats = np.maximum(1 - (2 / math.pi * (angle + within) if odd else within), 0.0)
    return chance


@functools.cache
def quantile(freedom: int, outside: float = 0.05) -> float:
    """The t that is exceeded on either side with a probability of ``outside``, which is 5 to 10 %."""
    low, high = 1.6, 13.0  # the limits for many degrees of freedom are 1.64 and 1.96, that of one is 12.7
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (middle, high) if two_sided(np.array([middle]), freedom)[0] > outside else (low, middle)
    return low


def half_width(values: Sequence[float]) -> float:
    """Return half the 95 % interval of the mean of two or more ``values``."""
    return quantile(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
