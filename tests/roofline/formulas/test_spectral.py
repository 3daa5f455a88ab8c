"""Fourier transforms: 5 n log2(n), and half of a spectrum where the numbers are real."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from rooflines.roofline.count.formulas import Work
from tests.roofline.formulas.by_hand import tensor, work

NONE, BY_ROOT, BY_N = 0, 1, 2


@given(st.integers(1, 5), st.integers(0, 10))
def test_a_power_of_two(batch, exponent):
    points = 2**exponent
    inputs = tensor(batch, points, dtype="complex64")
    assert work("_fft_c2c", inputs, (1,), NONE, True) == Work(
        0, batch * 5 * points * exponent, 8 * batch * points, 8 * batch * points, "fp32" if exponent else None
    )
    scaled = work("_fft_c2c", inputs, (1,), BY_N, False)
    assert scaled.other_flops == batch * (5 * points * exponent + 2 * points)
    half = points // 2 + 1
    real = work("_fft_r2c", tensor(batch, points, dtype="float64"), (1,), NONE, True)
    assert real == Work(0, batch * (5 * points * exponent // 2), 8 * batch * points, 16 * batch * half, "fp64" if exponent else None)
    back = work("_fft_c2r", tensor(batch, half, dtype="complex64"), (1,), NONE, points)
    assert back == Work(0, batch * (5 * points * exponent // 2), 8 * batch * half, 4 * batch * points, "fp32" if exponent else None)


@given(st.integers(1, 30), st.integers(1, 30))
def test_two_dimensions_are_one_after_the_other(rows, columns):
    inputs = tensor(3, rows, columns, dtype="complex64")
    both = work("_fft_c2c", inputs, (1, 2), NONE, True).other_flops
    each = sum(work("_fft_c2c", inputs, (axis,), NONE, True).other_flops for axis in (1, 2))
    assert abs(both - each) <= 1  # rounded once instead of twice
    assert both == round(5 * 3 * rows * columns * math.log2(rows * columns))


def test_a_whole_spectrum_of_real_numbers_and_a_short_inverse():
    assert work("_fft_r2c", tensor(8), (0,), NONE, False).bytes_written == 8 * 8
    # of a spectrum of 9 points only 4 // 2 + 1 make up four numbers
    assert work("_fft_c2r", tensor(9, dtype="complex64"), (0,), BY_ROOT, 4) == Work(0, 20 + 4, 24, 16, "fp32")


def test_frequencies():
    assert work("fft_fftfreq", 10, 0.5, None, None, None, None) == Work(0, 10, 0, 40, "fp32")
    assert work("fft_rfftfreq", 10, 0.5, 7, None, None, None) == Work(0, 6, 0, 48, "fp64")
