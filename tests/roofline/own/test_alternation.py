"""Calls of one shape that take two times in turn: layers with and without a sliding window."""

from types import SimpleNamespace

import numpy as np
import pytest

from rooflines.roofline.own.device import alternating, alternating_attention


def times(*values):
    return np.array(values, np.int64)


@pytest.mark.parametrize(
    "each",
    [
        [133, 293] * 3,  # too few
        [200, 210] * 8,  # of one length
        [133, 133, 293, 293] * 4,  # in pairs
        [100, 200, 150, 500, 80, 900, 120, 300] * 2,  # of all lengths
        [0, 293] * 8,
    ],
)
def test_no_pattern(each):
    assert alternating(times(*each)) is None


def test_calls_of_attention_are_told_apart_by_the_time_of_their_kernels():
    """Eight calls of two kernels that begin together, every other call 100 longer; the same times of a product say nothing."""
    attention, product = (SimpleNamespace(count=SimpleNamespace(category=category)) for category in ("attention", "matmul"))
    call = np.repeat(np.arange(8), 2)
    start = call * 1000 + np.tile([0, 10], 8)
    end = start + 100 + 100 * (call % 2)
    assert alternating_attention([product, attention], np.ones(16, np.int64), call, start, end) == {1: (110, 210)}
    assert alternating_attention([product, attention], np.zeros(16, np.int64), call, start, end) == {}
