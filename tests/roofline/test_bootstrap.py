"""Bootstrap intervals of many values."""

from __future__ import annotations

import tracemalloc

import numpy as np

from rooflines.roofline.uncertainty import RESAMPLES, resampled_medians


def test_blocks_of_resamples_are_the_same_as_all_at_once():
    values = np.random.default_rng(1).normal(size=1501)
    whole = np.median(np.random.default_rng(7).choice(values, (RESAMPLES, len(values))), axis=1)
    assert np.array_equal(resampled_medians(values, np.random.default_rng(7)), whole)


def test_ten_thousand_steps_take_little_memory():
    values = np.random.default_rng(1).normal(size=10_000)
    tracemalloc.start()
    medians = resampled_medians(values)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(medians) == RESAMPLES
    assert peak_bytes < 64 << 20  # at once it would be 2,000 x 10,000 x 8 bytes, several times
