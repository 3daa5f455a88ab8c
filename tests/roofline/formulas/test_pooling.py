"""Pooling: a window of k elements costs k, forward and backward; windows written out by hand."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rooflines.roofline.count.formulas import Work
from tests.roofline.formulas.by_hand import tensor, work

sizes = st.integers(1, 9)


def windows(extent, kernel, stride, padding, dilation, ceil):
    """Start positions of the windows, one by one, as the documentation of the layers has them."""
    starts = []
    start = -padding
    while True:
        last = start + dilation * (kernel - 1)
        inside = last <= extent - 1 + padding
        partial = ceil and start < extent and last - stride < extent - 1 + padding
        if not (inside or partial):
            return starts
        starts.append(start)
        start += stride


@given(sizes, st.integers(1, 3), st.integers(1, 3), st.integers(0, 1), st.integers(1, 2), st.booleans())
def test_max_pooling_takes_each_window_whole(extent, kernel, stride, padding, dilation, ceil):
    padding = min(padding, kernel // 2)
    found = windows(extent, kernel, stride, padding, dilation, ceil)
    looked_at = {start + dilation * tap for start in found for tap in range(kernel)} & set(range(extent))
    if not found:
        return
    pooled = work("max_pool2d_with_indices", tensor(2, 3, extent, 1), (kernel, 1), (stride, 1), (padding, 0), (dilation, 1), ceil)
    assert pooled == Work(0, 6 * len(found) * kernel, 4 * 6 * len(looked_at), 12 * 6 * len(found), "fp32")


@given(sizes, sizes)
def test_adaptive_windows(extent, out):
    taps = sum(-(-(index + 1) * extent // out) - index * extent // out for index in range(out))
    forward = work("_adaptive_avg_pool2d", tensor(2, 3, extent, 4), (out, 4))
    assert forward.other_flops == 6 * taps * 4
    grad = tensor(2, 3, out, 4)
    back = work("_adaptive_avg_pool2d_backward", grad, tensor(2, 3, extent, 4))
    assert back == Work(0, 6 * taps * 4, 4 * grad.numel, 4 * 24 * extent, "fp32")  # the input gives only its shape


def test_a_gradient_of_max_pooling_is_one_addition_a_window():
    grad, inputs, indices = tensor(2, 3, 4, 4), tensor(2, 3, 8, 8), tensor(2, 3, 4, 4, dtype="int64")
    kept = work("max_pool2d_with_indices_backward", grad, inputs, (2, 2), (2, 2), (0, 0), (1, 1), False, indices)
    assert kept == Work(0, 96, 12 * 96, 4 * 384, "fp32")
    # without indices the maximum is looked for again, in the windows and the results
    searched = work("mkldnn_max_pool2d_backward", grad, grad, inputs, (2, 2), (2, 2), (0, 0), (1, 1), False)
    assert searched == Work(0, 5 * 96, 8 * 96 + 4 * 384, 4 * 384, "fp32")


def test_a_gradient_of_average_pooling_goes_to_every_element_of_the_window():
    grad, inputs = tensor(2, 3, 4, 4), tensor(2, 3, 8, 8)
    assert work("avg_pool2d_backward", grad, inputs, (2, 2), (2, 2), (0, 0), False, True, None) == Work(0, 384, 384, 1536, "fp32")


def test_fractional_pooling_reads_at_most_its_windows():
    samples = tensor(1, 3, 2)
    # two windows of 3 at the borders of 9: six of nine positions, and no random number
    assert work("fractional_max_pool2d", tensor(1, 3, 9, 9), (3, 3), (2, 2), samples) == Work(0, 108, 432, 144, "fp32")
    assert work("fractional_max_pool2d", tensor(1, 3, 9, 9), (3, 3), (2, 3), samples).bytes_read == 4 * 3 * 6 * 9 + 24
