"""Energy and power of the CPU packages, from the RAPL counters that the Linux kernel shows."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from rooflines.errors import DeviceError
from rooflines.profiler.records import DeviceSample

POWERCAP = Path("/sys/class/powercap")


class RaplSampler:
    """One sample of all CPU packages together; memory and the rest of the board are not in it.

    ``energy_j`` counts from the sampler's start, ``power_w`` is the average since the previous reading, absent in the first one. Raises
    DeviceError when there are no counters, or when this user may not read them.
    """

    def __init__(self, powercap: Path = POWERCAP) -> None:
        counters = package_counters(powercap)
        if not counters:
            raise DeviceError("CPU power is not sampled: this kernel shows no RAPL energy counters.")
        self._energy_uj = 0
        self._read_at: float | None = None
        try:
            self._ranges = {counter: _number(counter.with_name("max_energy_range_uj")) for counter in counters}
            self._last = {counter: _number(counter) for counter in counters}
        except OSError as error:
            hint = "'rooflines doctor' has the command that changes it."
            raise DeviceError(f"CPU power is not sampled: {error}.", hint=hint) from None

    def read(self) -> Sequence[DeviceSample]:
        try:
            now = {counter: _number(counter) for counter in self._last}
        except OSError as error:
            raise DeviceError(f"CPU power ended its samples: {error}.") from None
        read_at, time_ns = time.monotonic(), time.time_ns()
        spent_uj = sum(wrapped_difference(self._last[counter], value, self._ranges[counter]) for counter, value in now.items())
        power_w = None
        if self._read_at is not None and read_at > self._read_at:
            power_w = spent_uj / 1e6 / (read_at - self._read_at)
        self._energy_uj += spent_uj
        self._last, self._read_at = now, read_at
        return (DeviceSample(time_ns=time_ns, source="rapl", energy_j=self._energy_uj / 1e6, power_w=power_w),)

    def close(self) -> None:
        return


def package_counters(powercap: Path = POWERCAP) -> tuple[Path, ...]:
    """The energy counters of the CPU packages: their parts (cores, memory) and the whole board have counters of their own."""
    zones = [zone for zone in powercap.glob("intel-rapl:*") if _name(zone).startswith("package")]
    return tuple(sorted(zone / "energy_uj" for zone in zones))


def wrapped_difference(before: int, after: int, largest: int) -> int:
    """How far a counter went that starts again at 0 after ``largest``."""
    return after - before if after >= before else after + largest + 1 - before


def _name(zone: Path) -> str:
    try:
        return (zone / "name").read_text().strip()
    except OSError:
        return ""


def _number(path: Path) -> int:
    return int(path.read_text())
