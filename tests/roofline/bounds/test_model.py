"""The equations of the roofline: each test is the arithmetic."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rooflines.device_specs.records import Ceiling, Ceilings, Source
from rooflines.roofline.bounds import memory_seconds, place
from rooflines.roofline.formulas import Work

SOURCE = Source(kind="measured", detail="test")


def compute(value, precision, engine):
    return Ceiling(
        kind="compute", name=f"{engine} {precision}", value=value, unit="FLOP/s", source=SOURCE, precision=precision, engine=engine
    )


def memory(value, level, capacity):
    return Ceiling(kind="memory", name=level, value=value, unit="B/s", source=SOURCE, level=level, capacity_bytes=capacity)


LATENCY = Ceiling(kind="latency", name="dispatch", value=1e-6, unit="s", source=SOURCE)
CPU = Ceilings(device="cpu", kind="cpu", ceilings=(
    compute(400e9, "fp32", "vector"), compute(200e9, "fp32", "matrix"), compute(900e9, "bf16", "matrix"),
    memory(400e9, "L2", 2_000_000), memory(200e9, "L3", 30_000_000), memory(40e9, "DRAM", None), LATENCY,
))  # fmt: skip
GPU = Ceilings(device="gpu", kind="cuda", ceilings=(
    compute(60e12, "fp32", "vector"), compute(800e12, "bf16", "matrix"), memory(4e12, "HBM", None), LATENCY,
))  # fmt: skip


def test_matrix_work_that_runs_on_the_vector_units_is_judged_by_their_peak():
    # A GEMM is not the peak: 200 GFLOP/s measured for it, 400 for the units it runs on.
    placed = place(Work(matrix_flops=400_000_000_000, bytes_read=1000, precision="fp32"), CPU)
    assert placed.lower_bound_s == pytest.approx(1.0)
    assert (placed.bound, placed.engine) == ("compute", "vector")


def test_on_shared_units_the_parts_add_up_and_beside_each_other_the_longer_counts():
    work = Work(matrix_flops=400_000_000_000, other_flops=200_000_000_000, bytes_read=1000, precision="fp32")
    assert place(work, CPU).lower_bound_s == pytest.approx(1.0 + 0.5)
    work = Work(matrix_flops=800_000_000_000_000, other_flops=30_000_000_000_000, bytes_read=1000, precision="bf16")
    # bf16 vector arithmetic is done in fp32 registers: 30e12 / 60e12 = 0.5 s beside 1 s of matrix work.
    assert place(work, GPU).lower_bound_s == pytest.approx(1.0)


def test_memory_bound_and_attainable():
    placed = place(
        Work(other_flops=1_000_000_000, bytes_read=2_000_000_000_000, bytes_written=2_000_000_000_000, precision="fp32"), GPU
    )
    assert placed.lower_bound_s == pytest.approx(1.0)
    assert (placed.bound, placed.memory_level) == ("memory", "HBM")
    assert placed.attainable_flop_per_s == pytest.approx(1e9)  # intensity 1/4000 FLOP/byte x 4 TB/s


def test_a_tiny_operator_is_latency_bound():
    assert place(Work(other_flops=10, bytes_read=80, precision="fp32"), CPU).bound == "latency"


def test_bytes_move_at_the_rate_of_the_levels_that_can_hold_them():
    assert memory_seconds(1_000_000, 1_000_000, CPU) == (pytest.approx(1e6 / 400e9), "L2")
    # 12 MB: 2 MB can lie in L2, 10 MB in L3.
    assert memory_seconds(12_000_000, 12_000_000, CPU) == (pytest.approx(2e6 / 400e9 + 10e6 / 200e9), "L3")
    # 132 MB: 100 MB must come from DRAM.
    assert memory_seconds(132_000_000, 132_000_000, CPU) == (pytest.approx(2e6 / 400e9 + 30e6 / 200e9 + 100e6 / 40e9), "DRAM")


def test_an_operator_in_place_moves_more_bytes_than_it_lies_in():
    # add_ on 1 MB: reads a and b, writes a: 3 MB of traffic in 2 MB.
    assert memory_seconds(3_000_000, 2_000_000, CPU) == (pytest.approx(3e6 / 400e9), "L2")


@given(st.integers(1, 10**12), st.integers(1, 10**12))
def test_more_bytes_never_take_less_time(a, b):
    low, high = sorted((a, b))
    assert memory_seconds(low, low, CPU)[0] <= memory_seconds(high, high, CPU)[0] * (1 + 1e-12)


@given(st.integers(0, 10**15), st.integers(0, 10**12), st.integers(0, 10**12))
def test_the_lower_bound_is_never_below_any_of_its_parts(flops, read, written):
    work = Work(matrix_flops=flops, bytes_read=read, bytes_written=written, precision="fp32")
    placed = place(work, CPU)
    assert placed.lower_bound_s >= max(flops / 400e9, LATENCY.value) * (1 - 1e-12)
    assert placed.lower_bound_s >= (read + written) / 400e9 * (1 - 1e-12)


def test_without_ceilings_there_is_no_bound():
    empty = Ceilings(device="", kind="cpu", ceilings=())
    assert place(Work(matrix_flops=10, bytes_read=10, precision="fp32"), empty) is None
    # No int8 roof is known: the bytes still bound it, the arithmetic does not.
    assert place(Work(matrix_flops=10**12, bytes_read=200 * 10**9, precision="int8"), GPU).bound == "memory"
