"""Targets of the GPU check: which devices have them, and where they come from."""

from __future__ import annotations

import pytest

from rooflines.device_specs.catalog import Facts
from rooflines.device_specs.records import Ceiling, Source
from rooflines.gpu_check.targets import targets

H200 = Facts(kind="cuda", units=132, memory_bytes=150_000_000_000)
H100 = Facts(kind="cuda", units=132, memory_bytes=85_000_000_000)


def ceiling(name, value, **fields):
    return Ceiling(kind="compute", name=name, value=value, unit="FLOP/s", source=Source(kind="measured", detail=""), **fields)


def test_the_h200_has_goals_and_what_passes_below_them():
    found = {one.ceiling: (one.least, one.goal) for one in targets("NVIDIA H200", H200, ())}
    assert found == {
        "HBM copy": (4.1e12, 4.3e12), "FMA fp32": (60e12, 62e12), "GEMM bf16": (780e12, 800e12), "GEMM fp8": (1400e12, 1500e12),
    }  # fmt: skip


def test_the_h100_has_those_of_the_same_chip_in_proportion_to_its_sheet():
    """Arithmetic is that of the H200; its memory has 3.35 of 4.8 TB/s."""
    found = {one.ceiling: one for one in targets("NVIDIA H100 80GB HBM3", H100, ())}
    assert found["HBM copy"].goal == pytest.approx(4.3e12 * 3350 / 4800)
    assert found["HBM copy"].least == pytest.approx(4.1e12 * 3350 / 4800)
    assert "0.6979" in found["HBM copy"].basis
    for name, goal in (("FMA fp32", 62e12), ("GEMM bf16", 800e12), ("GEMM fp8", 1500e12)):
        assert found[name].goal == pytest.approx(goal)


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("NVIDIA H200 NVL", Facts(kind="cuda", units=132)),
        ("NVIDIA H100 PCIe", Facts(kind="cuda", units=114)),
        ("NVIDIA H200 MIG 1g.18gb", Facts(kind="cuda", units=16)),
        ("NVIDIA GeForce RTX 4090", Facts(kind="cuda", units=128)),
        ("a GPU without a sheet", Facts(kind="cuda", units=7)),
    ],
)
def test_no_other_device_has_targets(name, facts):
    assert targets(name, facts, ()) == ()


def test_main_ceilings_count_and_not_their_variants():
    measured = (ceiling("GEMM bf16", 791e12), ceiling("GEMM bf16", 700e12, variant="sustained"))
    found = {one.ceiling: one.measured for one in targets("NVIDIA H200", H200, measured)}
    assert found["GEMM bf16"] == 791e12
    assert found["GEMM fp8"] is None
