"""CPU energy from a powercap tree made of files, as the kernel lays it out: wraps, sockets, memory, rights, and how fine it counts."""

import os
import random
import time
from pathlib import Path

import pytest

from rooflines.errors import DeviceError
from rooflines.profiler.samplers.rapl import RaplSampler
from rooflines.profiler.samplers.update_time import step, watch

RANGE_UJ = 262143328850  # 2**32 - 1 times 61 035 nJ


class Powercap:
    """A directory like /sys/class/powercap; ``set`` moves a zone's counter."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def add(self, zone: str, name: str, energy_uj: int = 0, range_uj: int = RANGE_UJ) -> None:
        (self.directory / zone).mkdir()
        (self.directory / zone / "name").write_text(f"{name}\n")
        (self.directory / zone / "max_energy_range_uj").write_text(f"{range_uj}\n")
        self.set(zone, energy_uj)

    def set(self, zone: str, energy_uj: int) -> None:
        (self.directory / zone / "energy_uj").write_text(f"{energy_uj}\n")


@pytest.fixture
def powercap(tmp_path):
    return Powercap(tmp_path)


@pytest.fixture
def server(powercap):
    """Two sockets with memory, as a dual Xeon shows them."""
    for socket in (0, 1):
        powercap.add(f"intel-rapl:{socket}", f"package-{socket}")
        powercap.add(f"intel-rapl:{socket}:0", "dram")
    return powercap


def energies(sampler):
    return {sample.device: sample.energy_j for sample in sampler.read()}


def test_packages_are_added_up_and_memory_is_a_device_of_its_own(server):
    sampler = RaplSampler(server.directory)
    assert [(sample.device, sample.energy_j, sample.power_w) for sample in sampler.read()] == [("host", 0.0, None), ("dram", 0.0, None)]
    for zone, spent_uj in {"intel-rapl:0": 3_000_000, "intel-rapl:1": 500_000, "intel-rapl:0:0": 250_000}.items():
        server.set(zone, spent_uj)
    host, memory = sampler.read()
    assert {sample.source for sample in (host, memory)} == {"rapl"}
    assert (host.device, host.energy_j, memory.device, memory.energy_j) == ("host", 3.5, "dram", 0.25)
    assert host.time_ns == memory.time_ns
    assert host.power_w > memory.power_w > 0
    assert [sample.power_w for sample in sampler.read()] == [0.0, 0.0]


@pytest.fixture
def clock(monkeypatch):
    """The sampler's clock, in seconds, which stands still unless a test moves it."""
    now = {"s": 0.0}
    monkeypatch.setattr(time, "monotonic", lambda: now["s"])
    return now


def readings(powercap, clock, energies_uj):
    """A sampler's readings of a package whose counter stands there, a second apart; the first counter value is that at its start."""
    powercap = Powercap(powercap.directory / f"{len(list(powercap.directory.iterdir()))}")
    powercap.directory.mkdir()
    powercap.add("intel-rapl:0", "package-0", energy_uj=energies_uj[0], range_uj=9_999_999)
    sampler = RaplSampler(powercap.directory)
    for energy_uj in energies_uj[1:]:
        powercap.set("intel-rapl:0", energy_uj)
        yield sampler.read()[0]
        clock["s"] += 1.0


def test_counters_that_start_again_or_are_set_back(powercap, clock):
    # A counter that starts again loses nothing.
    # It counts to 9 999 999, and goes over it twice.
    counted = [8_000_000, 8_500_000, 9_500_000, 500_000, 5_500_000, 9_999_999, 0]
    found = list(readings(powercap, clock, counted))
    assert [reading.energy_j for reading in found] == pytest.approx([0.5, 1.5, 2.5, 7.5, 11.999999, 12.0])
    assert [reading.power_w for reading in found[1:]] == pytest.approx([1.0, 1.0, 5.0, 4.499999, 1e-6])
    # A counter that is set back ends the series.
    found = readings(powercap, clock, [1_000_000, 1_050_000, 1_100_000, 1_150_000, 50_000])
    assert [next(found).energy_j for _ in range(3)] == pytest.approx([0.05, 0.1, 0.15])
    with pytest.raises(DeviceError, match=r"sampling of CPU power stopped: the energy counter intel-rapl:0 was reset\."):
        next(found)


def test_falls_that_are_believed(powercap, clock):
    # A fall is a wrap up to twenty times the highest power.
    # A range of ten joules, and 0.1 W so far: two joules in a second are believed, and no more.
    before = [8_900_000, 8_900_000, 9_000_000]
    assert list(readings(powercap, clock, [*before, 1_000_000]))[-1].power_w == pytest.approx(2.0)
    # A fall before any power is known is not believed.
    for counted in ([*before, 1_010_000], [9_000_000, 500_000]):
        with pytest.raises(DeviceError, match="was reset"):
            list(readings(powercap, clock, counted))


# The same package through another door is "intel-rapl-mmio".
LAPTOP = {"0": "package-0", "0:0": "core", "0:1": "uncore", "0:2": "dram", "1": "psys"}


@pytest.mark.parametrize(("zones", "expected"), [
    (LAPTOP, {"host": 1.0, "dram": 1.0, "psys": 1.0}),
    ({"0": "package-0", "0:0": "core"}, {"host": 1.0}),  # AMD
    ({"0": "package-0-die-0", "1": "package-0-die-1", "2": "psys", "3": "psys"}, {"host": 2.0, "psys0": 1.0, "psys1": 1.0}),
])  # fmt: skip
def test_packages_parts_and_boards(powercap, zones, expected):
    powercap.add("intel-rapl-mmio:0", "package-0")
    for zone, name in zones.items():
        powercap.add(f"intel-rapl:{zone}", name)
    sampler = RaplSampler(powercap.directory)
    for path in powercap.directory.iterdir():
        powercap.set(path.name, 1_000_000)
    assert energies(sampler) == expected


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may read everything")
def test_a_counter_for_root_alone_is_named_with_the_reason(server):
    (server.directory / "intel-rapl:0" / "energy_uj").chmod(0)
    with pytest.raises(DeviceError, match=r"Permission denied.*energy_uj"):
        RaplSampler(server.directory)


def test_counters_that_are_not_there_are_named_and_those_that_vanish_end_the_series(server, tmp_path):
    (tmp_path / "none").mkdir()
    with pytest.raises(DeviceError, match="no RAPL energy counters"):
        RaplSampler(tmp_path / "none")
    sampler = RaplSampler(server.directory)
    (server.directory / "intel-rapl:1" / "max_energy_range_uj").unlink()
    with pytest.raises(DeviceError, match="max_energy_range_uj"):
        RaplSampler(server.directory)
    (server.directory / "intel-rapl:0" / "energy_uj").unlink()
    with pytest.raises(DeviceError, match="sampling of CPU power stopped"):
        sampler.counters()
    with pytest.raises(DeviceError, match="sampling of CPU power stopped"):
        sampler.read()


def test_update_periods(monkeypatch):
    # The update period is the time between changes.
    clock = {"s": 0.0, "reads": 0}

    def read():
        clock["s"] += 40e-6  # what reading the register costs
        clock["reads"] += 1
        return int(clock["s"] / 1e-3) * 61

    monkeypatch.setattr(time, "perf_counter", lambda: clock["s"])
    update_s, values = watch(read, watch_s=1.0, changes=12)
    assert update_s == pytest.approx(1e-3, rel=0.05)
    assert len(values) == 14
    assert clock["reads"] < 14 * 1e-3 / 40e-6 + 10
    # A counter that stands still has no update period and is given up in time.
    began_s = clock["s"]
    assert watch(lambda: 0 * read() + 5, watch_s=0.05) == (None, (5,))
    assert clock["s"] <= began_s + 0.06


@pytest.mark.parametrize("unit_nj", [10**9 >> 14, 10**9 >> 16, 10**9 >> 10, 1000 << 5, 15300])
def test_the_unit_is_found_in_what_the_kernel_makes_of_it(unit_nj):
    counts = random.Random(unit_nj).sample(range(2**32), 12)
    units_nj = [*(10**9 >> power for power in range(20)), *(1000 << power for power in range(20)), 15300]
    assert step([count * unit_nj // 1000 for count in counts], units_nj, scale=1000) == unit_nj
    assert step([0, 0, 0, 61, 61], [61, 1]) is None, "too few values"


def test_counters_are_those_of_the_slowest_and_coarsest_package(server, monkeypatch):
    update_s = {"intel-rapl:0": 1e-3, "intel-rapl:1": 2e-3, "intel-rapl:0:0": 4e-3, "intel-rapl:1:0": 4e-3}
    clock = {"s": 0.0}
    sampler = RaplSampler(server.directory, period_s=0.1)

    def read(path: Path) -> int:
        clock["s"] += 20e-6
        return int(clock["s"] / update_s[path.parent.name]) * 61035 * 7 // 1000

    monkeypatch.setattr("rooflines.profiler.samplers.rapl._number", read)
    monkeypatch.setattr(time, "perf_counter", lambda: clock["s"])
    counters = {(counter.device, counter.field): counter for counter in sampler.counters()}
    energy, power = counters["host", "energy_j"], counters["host", "power_w"]
    assert energy.update_s == power.update_s == pytest.approx(2e-3, rel=0.05)
    assert (energy.window_s, power.window_s) == (0.0, 0.1)
    assert counters["dram", "energy_j"].update_s == pytest.approx(4e-3, rel=0.05)
    assert sampler.period_s == pytest.approx(1e-3, rel=0.05)
