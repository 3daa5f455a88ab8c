"""Deformable convolutions and attention, and torchaudio: closed forms by hand at odd shapes."""

from __future__ import annotations

import pytest

from tests.roofline.formulas.libraries.calls import bf16, counted, figures, fp32, int64, reason

IMAGE, WEIGHT, BIAS = fp32(2, 6, 9, 11), fp32(5, 3, 3, 3), fp32(5)
# Two groups of offsets; the result is 5 by 6.
OFFSET, MASK = fp32(2, 36, 5, 6), fp32(2, 18, 5, 6)
PLACES, POINT = 2 * 30, 2 * (1 + 3) + 4
SAMPLES, POINTS = PLACES * 6 * 9, PLACES * 18
GEOMETRY = ((), (), (), 2, 2)


@pytest.mark.parametrize("name", ["_DeformConv", "DeformConv2dFunction"])
def test_a_deformable_convolution(name):
    call = (IMAGE, OFFSET, WEIGHT, *GEOMETRY, 32)
    read = 4 * (1188 + 135 + 2160)
    assert figures(name, *call) == (2 * PLACES * 135, SAMPLES * 8 + POINTS * POINT, read, 4 * PLACES * 5, "fp32")
    back = figures(f"{name}Backward", (fp32(2, 5, 5, 6),), *call)
    flops = SAMPLES * (8 + 8 + 20) + POINTS * POINT + PLACES * 5
    assert back == (2 * 2 * PLACES * 135, flops, read + 4 * PLACES * 5, read, "fp32")


@pytest.mark.parametrize("name", ["_ModulatedDeformConv", "ModulatedDeformConv2dFunction"])
def test_with_a_mask(name):
    call = (IMAGE, OFFSET, MASK, WEIGHT, BIAS, *GEOMETRY)
    read = 4 * (1188 + 135 + 2160 + 1080)
    assert figures(name, *call) == (2 * PLACES * 135, SAMPLES * 9 + POINTS * POINT + PLACES * 5, read + 20, 4 * PLACES * 5, "fp32")
    assert counted(f"{name}Backward", (fp32(2, 5, 5, 6),), *call).work.bytes_written == read + 20
    assert "version" in reason(name, IMAGE, OFFSET, WEIGHT, BIAS, None, *GEOMETRY)


@pytest.mark.parametrize("name", ["MSDeformAttnFunction", "MultiScaleDeformableAttnFunction", "MultiScaleDeformableAttentionFunction"])
def test_deformable_attention(name):
    """2 images of 99 places, 3 heads of depth 8, 7 queries, 2 levels of 4 points."""
    values, points, weights = bf16(2, 99, 3, 8), bf16(2, 7, 3, 2, 4, 2), bf16(2, 7, 3, 2, 4)
    call = (values, int64(2, 2), int64(2), points, weights, 64)
    taken = 2 * 7 * 3 * 2 * 4
    small = 32 + 16 + 2 * (2 * taken + taken)
    point = 2 * (4 + 3) + 4
    found = figures(name, *call)
    assert found == (0, taken * 8 * 10 + taken * point, values.numel * 2 + small, 2 * 7 * 24 * 2, "bf16")
    back = figures(f"{name}Backward", (bf16(2, 7, 24),), *call)
    flops = taken * 8 * (10 + 9 + 20) + taken * point
    assert back == (0, flops, values.numel * 2 + small + 2 * 7 * 24 * 2, 2 * (values.numel + 3 * taken), "bf16")
