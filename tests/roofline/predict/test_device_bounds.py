"""Bounds of counted operators on a device: no library is faster."""

import pytest
import torch
from torch import nn

import rooflines

SHEET = "Tesla P100-SXM2-16GB"


def bound_of(layer, *, size=32, precision="fp32", device=SHEET, mode="inference"):
    """Seconds of the first convolution or product of ``layer`` on images that are large enough to be bound by arithmetic."""
    forecast = rooflines.predict(layer.eval(), torch.rand(64, layer.in_channels, size, size), devices=[device], mode=mode)
    (one,) = [one for one in forecast.operators if one.category == "convolution" and ("backward" in one.name) == (mode == "training")]
    assert one.bounds[0].bound == "compute"
    rate = next(roof.value for roof in forecast.devices[0].device.ceilings if roof.name == f"{precision} vector")
    return one.bounds[0].lower_bound_s / (one.matrix_flops / rate)


@pytest.mark.parametrize(
    ("window", "step", "share"),
    [(3, 1, (6 / 4 / 3) ** 2), (5, 1, (8 / 4 / 5) ** 2), (1, 1, 1.0), (3, 2, 1.0), ((1, 7), 1, 10 / 4 / 7), (7, 4, 1.0)],
)
def test_on_vector_units_a_convolution_makes_the_products_of_winograd(window, step, share):
    """Lavin and Gray: (m + k - 1) products for m outputs of a window of k in each dimension, here m = 4."""
    layer = nn.Conv2d(256, 256, window, stride=step, padding="same" if step == 1 else 1, bias=False)
    assert bound_of(layer) == pytest.approx(share, rel=1e-6)
    if step == 1 and window == 3:
        assert bound_of(layer, mode="training") == pytest.approx(share, rel=1e-6)


def test_products_in_fp16_may_be_added_up_in_fp16():
    """On a GeForce that is twice as fast; a card for data centers has one rate."""
    times = {}
    for dtype in (torch.float16, torch.bfloat16):
        layer, rows = nn.Linear(4096, 4096, bias=False, dtype=dtype), torch.zeros(8192, 4096, dtype=dtype)
        (one,) = rooflines.predict(layer, rows, devices=["RTX 4090", "A100-SXM4-80GB"]).operators
        times[dtype] = [bound.lower_bound_s for bound in one.bounds]
    ratios = [narrow / half for half, narrow in zip(*times.values(), strict=True)]
    assert ratios == pytest.approx([2, 1], rel=1e-3)


def test_products_in_a_precision_without_units_have_the_rate_of_the_next_wider_one():
    """fp8 on NVIDIA GPUs before Ada, fp4 before Blackwell; a sheet that only does not print the rate (fp8 of the MI308X, fp4 of the
    RTX 5080) gives no bound."""
    roofs = {
        name: {
            roof.name: roof.value
            for roof in rooflines.predict(nn.Linear(8, 8), torch.rand(8, 8), devices=[name]).devices[0].device.ceilings
        }
        for name in ("A100-SXM4-80GB", "Tesla T4", "H100 SXM5", "MI308X", "NVIDIA B200", "RTX 5080")
    }
    assert roofs["A100-SXM4-80GB"]["fp8 in fp16"] == roofs["A100-SXM4-80GB"]["fp16 matrix"]
    assert "fp8 in fp16" in roofs["Tesla T4"]
    assert [name for name in roofs["H100 SXM5"] if "fp8" in name] == ["fp8 matrix", "fp4 in fp8"]
    assert roofs["H100 SXM5"]["fp4 in fp8"] == roofs["H100 SXM5"]["fp8 matrix"]
    assert [name for name in roofs["NVIDIA B200"] if "fp4" in name] == ["fp4 matrix"]
    assert not [name for name in roofs["RTX 5080"] if "fp4" in name]
    assert not [name for name in roofs["MI308X"] if "fp8" in name]


def test_what_fits_into_the_last_cache_is_not_bounded_by_memory():
    """Published products of 8 MiB take less than their traffic at the rate of the memory of an H100, whose L2 has 50 MiB."""
    bounds = []
    for size in (2048, 16384):
        layer, rows = nn.Linear(size, size, bias=False, dtype=torch.bfloat16), torch.rand(1, size, dtype=torch.bfloat16)
        forecast = rooflines.predict(layer, rows, devices=["NVIDIA H100 80GB HBM3"])
        step = forecast.devices[0].steps[0]
        bounds.append((step.lower_bound_s, step.by_roof_s, " ".join(forecast.notes)))
    (small_s, small_by, small_notes), (large_s, large_by, large_notes) = bounds
    assert small_s == pytest.approx(2 * 2048**2 / 989.4e12, rel=1e-3)
    assert ([*small_by], [*large_by]) == (["compute"], ["memory"])
    assert large_s == pytest.approx(2 * 16384 * (16384 + 2) / 3.35e12, rel=1e-3)
    assert "memory sets no bound" in small_notes
    assert "memory sets no bound" not in large_notes
