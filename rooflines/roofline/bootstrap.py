"""Bootstrap intervals: how far a figure from a few durations can be off."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

RESAMPLES = 2000
_BLOCK = 1_000_000  # values drawn at a time
Floats = npt.NDArray[np.float64]


def resampled_medians(values: Sequence[float] | Floats, generator: np.random.Generator | None = None) -> Floats:
    """The medians of ``RESAMPLES`` resamples of ``values``; without a generator the same values always give the same medians."""
    generator = generator or np.random.default_rng(0)
    values = np.asarray(values)
    # In blocks, because 2,000 resamples of 10,000 values would take half a gigabyte.
    block = max(1, _BLOCK // len(values))
    counts = [min(block, RESAMPLES - done) for done in range(0, RESAMPLES, block)]
    medians: Floats = np.concatenate([np.median(generator.choice(values, (count, len(values))), axis=1) for count in counts])
    return medians


def interval95(resampled: Floats) -> tuple[float, float]:
    """The percentile interval that holds 95 % of the resampled figures."""
    low, high = np.percentile(resampled, (2.5, 97.5)).tolist()
    return low, high
