"""The TF32 switches: what is set is read back, and what was set before is put back. They exist without a GPU."""

from __future__ import annotations

import pytest

from rooflines.profiler.workloads.tf32 import tf32, tf32_state


@pytest.mark.parametrize("allowed", [True, False])
def test_inside_both_are_as_asked_and_afterwards_as_before(allowed):
    before = tf32_state()
    with tf32(allowed):
        assert tf32_state() == {"matmul": allowed, "convolution": allowed}
        with tf32(not allowed):
            assert tf32_state() == {"matmul": not allowed, "convolution": not allowed}
        assert tf32_state() == {"matmul": allowed, "convolution": allowed}
    assert tf32_state() == before
