"""The full set of a CPU's ceilings, and how a level's working set is chosen; no test asserts how fast this machine is."""

from __future__ import annotations

import math
import os

import pytest
import torch

from rooflines.device_specs import detect, measure_cpu
from rooflines.device_specs.detect import Cache
from rooflines.device_specs.meter import Meter
from rooflines.device_specs.records import Ceilings
from rooflines.kernels.micro import ladder
from rooflines.kernels.micro.repeats import Repeats, Timing
from rooflines.kernels.micro.team import Team

pytestmark = pytest.mark.alone

MIB = 1 << 20
REPEATS = Repeats(1e9, 0.01, 5)
LEVELS = [cache.level for cache in detect.cpu().caches] + ["DRAM"]


@pytest.fixture
def meter():
    return Meter(0.05, [], lambda _: None)


@pytest.mark.slow
def test_the_full_set_has_every_further_roof(meter):
    threads_before = torch.get_num_threads()
    affinity_before = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    with torch.no_grad():
        measure_cpu.measure_cpu(meter, 2, full=True)
    found = Ceilings(device="", kind="cpu", ceilings=tuple(meter.found))
    keys = {(one.name, one.variant) for one in found.ceilings}
    assert len(keys) == len({one.key for one in found.ceilings}) == len(found.ceilings)
    for precision in ("fp32", "fp64"):
        assert {(f"FMA {precision}", variant) for variant in ("", "scalar", "no FMA", "1 thread")} <= keys
    for level in LEVELS:
        for access in ("read", "write", "update", "copy", "triad"):
            assert {(f"{level} {access}", ""), (f"{level} {access}", "1 thread")} <= keys
    for access in ("write", "copy", "triad"):
        (other,) = {"ordinary stores", "non-temporal stores"} & {one.variant for one in found.ceilings if one.name == f"DRAM {access}"}
        (main,) = (one for one in found.main("memory") if one.name == f"DRAM {access}")
        assert other not in main.source.detail
    assert {("operator dispatch", variant) for variant in ("", "NumPy", "Numba")} <= keys
    for one in found.ceilings:
        assert one.value > 0
        assert one.spread is not None
        assert one.unit == ("OP/s" if one.precision == "int8" else {"compute": "FLOP/s", "memory": "B/s", "latency": "s"}[one.kind])
        if one.kind == "memory":
            assert one.threads == (1 if one.variant == "1 thread" else 2)
    assert found.latency().name == "operator dispatch"
    assert found.latency().variant == ""
    # SIMD is what a scalar kernel lacks: one lane instead of four or more
    assert found.compute("fp32", "vector").value > next(
        one.value for one in found.ceilings if (one.name, one.variant) == ("FMA fp32", "scalar")
    )
    assert torch.get_num_threads() == threads_before
    if affinity_before is not None:
        assert os.sched_getaffinity(0) == affinity_before


@pytest.fixture
def machine(monkeypatch):
    """Pretend that this machine has caches of these sizes, and a read bandwidth for each working set."""

    def pretend(sizes, rates):
        caches = tuple(Cache(level=f"L{number}", size_bytes=size, instances=1) for number, size in enumerate(sizes, start=1))
        monkeypatch.setattr(detect, "cpu", lambda: detect.Cpu(name="", machine="x86_64", caches=caches))

        def kernel(team, arrays, access, past_caches=False):
            size = arrays[0][0].nbytes

            def run(passes):
                seconds = passes * size / next(rate for end, rate in rates if size <= end)
                return Timing(seconds)

            return run, size

        monkeypatch.setattr(measure_cpu, "_kernel", kernel)

    return pretend


@pytest.mark.unit
@pytest.mark.parametrize(
    ("sizes", "ends_at", "working_set"),
    [
        ((1 * MIB, 32 * MIB), 32 * MIB, 16 * MIB),  # all ours: half of it
        ((1 * MIB, 32 * MIB), 8 * MIB, 3 * MIB),  # a part of it: three times L1, which fits
        ((1 * MIB, 4 * MIB), 1 * MIB, 2 * MIB),  # too small to leave room for a choice
        ((4 * MIB,), 1 * MIB, 2 * MIB),
    ],
    ids=["private", "shared with strangers", "small", "only one"],
)
def test_working_set_of_the_last_cache(machine, meter, sizes, ends_at, working_set):
    machine(sizes, ((ends_at, 40e9), (math.inf, 10e9)))
    with Team(1) as team:
        level = measure_cpu._level(meter, team, len(sizes) - 1)
    assert level.working_set_bytes == working_set
    assert level.capacity_bytes == sizes[-1]
    assert ("reads are slower" in level.detail) == (ends_at == 8 * MIB)


@pytest.mark.unit
def test_a_cache_that_ends_elsewhere_is_said_to(machine, meter, monkeypatch):
    machine((32 << 10, 64 * MIB), ())
    said = []
    meter.progress = said.append
    sizes = [round((8 << 10) * 2 ** (number / 2)) for number in range(30)]
    points = [ladder.Point(size, 400e9 if size <= 32 << 10 else 40e9 if size <= 8 * MIB else 10e9) for size in sizes]
    monkeypatch.setattr(ladder, "curve", lambda team, largest: points)
    for level in ("L1", "L2", "DRAM"):
        meter.add(REPEATS, "read kernel", kind="memory", name=f"{level} read", unit="B/s", level=level)
    said.clear()
    with Team(1) as team:
        measure_cpu._check_caches(meter, team)
    noted = {one.level: one.source.detail for one in meter.found if "slow down beyond" in one.source.detail}
    assert list(noted) == ["L2"]
    assert noted["L2"].endswith("but reads slow down beyond 8.00 MiB, not 64.0 MiB as stated")
    assert said == ["L2, but reads slow down beyond 8.00 MiB, not 64.0 MiB as stated"]
