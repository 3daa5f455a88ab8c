"""Student's t distribution: what the mean of a few values can be off by."""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


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
