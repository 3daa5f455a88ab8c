"""Bootstrap intervals: how far a figure from a few durations can be off."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

RESAMPLES = 2000
Floats = npt.NDArray[np.float64]


def resampled_medians(values: Sequence[float] | Floats, generator: np.random.Generator | None = None) -> Floats:
    """The medians of ``RESAMPLES`` resamples of ``values``; without a generator the same values always give the same medians."""
    generator = generator or np.random.default_rng(0)
    medians: Floats = np.median(generator.choice(values, (RESAMPLES, len(values))), axis=1)
    return medians


def interval95(resampled: Floats) -> tuple[float, float]:
    """The percentile interval that holds 95 % of the resampled figures."""
    low, high = np.percentile(resampled, (2.5, 97.5)).tolist()
    return low, high
