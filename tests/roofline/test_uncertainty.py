"""How far figures from a few values can be off: Student's t (closed forms, tables, the interval of a mean), and the bootstrap."""

import math
import tracemalloc

import numpy as np
import pytest

from rooflines.roofline.uncertainty import RESAMPLES, half_width, quantile, resampled_medians, two_sided


def test_one_and_two_degrees_of_freedom_have_closed_forms():
    t = np.array([0.0, 0.5, 1.0, 5.0, 50.0])
    np.testing.assert_allclose(two_sided(t, 1), 1 - 2 / math.pi * np.arctan(t), atol=1e-12)
    np.testing.assert_allclose(two_sided(t, 2), 1 - t / np.sqrt(2 + t**2), atol=1e-12)


@pytest.mark.parametrize(("freedom", "t"), [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (9, 2.262), (10, 2.228), (99, 1.984)])
def test_the_quantiles_of_the_table(freedom, t):
    assert quantile(freedom) == pytest.approx(t, abs=6e-4)
    assert two_sided(np.array([quantile(freedom)]), freedom)[0] == pytest.approx(0.05, abs=1e-6)


def test_the_interval_of_a_mean():
    # The standard deviation of 1, 2, 3 is 1.
    assert half_width([1, 2, 3]) == pytest.approx(4.3027 / math.sqrt(3), rel=1e-4)


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
