"""Calls of one shape that take two times in turn: layers with and without a sliding window."""

from __future__ import annotations

import numpy as np
import pytest

from rooflines.roofline.attribution.alternation import alternating


def times(*values):
    return np.array(values, np.int64)


def test_short_and_long_calls_in_turn():
    assert alternating(times(*[133_000, 293_000] * 4)) == (133_000, 293_000)
    assert alternating(times(*[293_000, 133_000] * 4)) == (133_000, 293_000), "whichever comes first"


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
