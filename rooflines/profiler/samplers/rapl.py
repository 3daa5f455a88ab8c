"""Energy and power of the CPU packages, from the RAPL counters that the Linux kernel shows."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from rooflines.errors import DeviceError
from rooflines.profiler.samplers.base import Sampler
from rooflines.profiler.samplers.clock import now_ns
from rooflines.profiler.samplers.fields import Counter, DeviceSample
from rooflines.profiler.samplers.host import line_of
from rooflines.profiler.samplers.update_time import step, watch

POWERCAP = Path("/sys/class/powercap")

# The units in which processors count, in nanojoules as the kernel has them
# (drivers/powercap/intel_rapl_common.c) before it cuts to whole microjoules: a power of two of a joule
# (Intel, AMD) or of a microjoule (Atom), and that of server memory.
_UNITS_NJ = (*(10**9 >> power for power in range(20)), *(1000 << power for power in range(20)), 15300)
# A counter that falls went over its range if that is at most as many times the highest power it has shown;
# else it was set back.
WRAP_HASTE = 20


class RaplSampler(Sampler):
    """The energy of all CPU packages together as device ``host``, and that of memory and of the whole board
    where they are counted.

    Memory (``dram``) is in no package's counter on servers; the board (``psys``) is packages, memory and all
    else together: three devices, whose energies must not be added up. ``energy_j`` counts from the sampler's
    start, ``power_w`` is the average since the previous reading, absent in the first one. ``period_s`` is how
    often it will be read. Raises DeviceError when there are no counters, or when this user may not read them,
    and from ``read`` when a counter was set back.
    """

    def __init__(self, powercap: Path = POWERCAP, period_s: float = 0.1) -> None:
        packages = package_counters(powercap)
        if not packages:
            raise DeviceError("CPU power is not sampled: the kernel provides no RAPL energy counters.")
        self._asked_period_s = period_s
        try:
            self._zones = {"host": _Zone(packages)} | {
                name: _Zone(counters) for name, counters in other_counters(powercap).items()
            }
        except OSError as error:
            hint = "Run 'rooflines doctor' for the command that enables it."
            raise DeviceError(f"CPU power is not sampled: {error}.", hint=hint) from None

    def counters(self) -> Sequence[Counter]:
        try:
            watched = {device: zone.watch() for device, zone in self._zones.items()}
        except OSError as error:
            raise DeviceError(f"sampling of CPU power stopped: {error}.") from None
        self.period_s = (
            min((update_s for update_s, _ in watched.values() if update_s is not None), default=0.0) / 2
        )
        counters: list[Counter] = []
        for device, (update_s, resolution_j) in watched.items():
            counter = partial(Counter, source="rapl", device=device, update_s=update_s)
            counters += [
                counter(field="energy_j", resolution=resolution_j),
                counter(field="power_w", window_s=self._asked_period_s),
            ]
        return counters

    def read(self) -> Sequence[DeviceSample]:
        try:
            spent = {device: zone.read() for device, zone in self._zones.items()}
        except OSError as error:
            raise DeviceError(f"sampling of CPU power stopped: {error}.") from None
        time_ns = now_ns()
        return tuple(
            DeviceSample(
                time_ns=time_ns, source="rapl", device=device, energy_j=energy_uj / 1e6, power_w=power_w
            )
            for device, (energy_uj, power_w) in spent.items()
        )


class _Zone:
    """Counters that are added up. Raises OSError when one cannot be read, and DeviceError when one was set
    back."""

    def __init__(self, counters: Sequence[Path]) -> None:
        self._ranges = {counter: _number(counter.with_name("max_energy_range_uj")) for counter in counters}
        self._last = {counter: _number(counter) for counter in counters}
        self._highest_w = dict.fromkeys(self._last, 0.0)
        self._energy_uj = 0
        self._read_at: float | None = None

    def watch(self) -> tuple[float | None, float | None]:
        """The seconds between two values of a counter, and the joules that it counts in: of the slowest and
        the coarsest."""
        watched = [
            watch(lambda counter=counter: _number(counter))  # type: ignore[misc]
            for counter in self._last
        ]
        updates = [update_s for update_s, _ in watched if update_s is not None]
        steps_nj = [
            size for _, values in watched if (size := step(values, _UNITS_NJ, scale=1000)) is not None
        ]
        return max(updates, default=None), max(steps_nj) / 1e9 if steps_nj else None

    def read(self) -> tuple[int, float | None]:
        """Microjoules since the start, and watts since the previous reading."""
        now = {counter: _number(counter) for counter in self._last}
        read_at = time.monotonic()
        elapsed_s = 0.0 if self._read_at is None else read_at - self._read_at
        spent_uj = sum(self._spent_uj(counter, value, elapsed_s) for counter, value in now.items())
        power_w = spent_uj / 1e6 / elapsed_s if elapsed_s > 0 else None
        self._energy_uj += spent_uj
        self._last, self._read_at = now, read_at
        return self._energy_uj, power_w

    def _spent_uj(self, counter: Path, value: int, elapsed_s: float) -> int:
        before = self._last[counter]
        if value >= before:
            if elapsed_s > 0:
                self._highest_w[counter] = max(self._highest_w[counter], (value - before) / 1e6 / elapsed_s)
            return value - before
        # A reset looks like a counter that went on at 0 behind its range, only that this would have taken far
        # more power.
        spent_uj = value + self._ranges[counter] + 1 - before
        if spent_uj / 1e6 > WRAP_HASTE * self._highest_w[counter] * elapsed_s:
            raise DeviceError(
                f"sampling of CPU power stopped: the energy counter {counter.parent.name} was reset."
            )
        return spent_uj


def package_counters(powercap: Path = POWERCAP) -> tuple[Path, ...]:
    """The energy counters of the CPU packages, or of their dies: their parts (cores, graphics) have counters
    of their own."""
    return tuple(_counters(powercap, "package"))


def other_counters(powercap: Path) -> dict[str, tuple[Path, ...]]:
    """Counters other than the packages: all memory together as ``dram``, the board as ``psys`` (several as
    ``psys0``, ``psys1``)."""
    memory, boards = (_counters(powercap, prefix) for prefix in ("dram", "psys"))
    named = {"psys" if len(boards) == 1 else f"psys{number}": (board,) for number, board in enumerate(boards)}
    return ({"dram": tuple(memory)} if memory else {}) | named


def _counters(powercap: Path, prefix: str) -> list[Path]:
    """The energy counters of the zones whose name begins so, Intel's and AMD's alike."""
    # "intel-rapl-mmio:0" is the first package once more, through another door.
    return [
        zone / "energy_uj"
        for zone in sorted(powercap.glob("intel-rapl:*"))
        if line_of(zone / "name").startswith(prefix)
    ]


def _number(path: Path) -> int:
    return int(path.read_text())
