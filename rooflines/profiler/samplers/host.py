"""The machine's CPU and memory, and what the watched process takes of them."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from rooflines.profiler.samplers.base import Sampler
from rooflines.profiler.samplers.clock import now_ns
from rooflines.profiler.samplers.fields import Counter, DeviceSample
from rooflines.profiler.samplers.processes import PAGE_BYTES, TICK_S, USS_EVERY_S, ProcessTree, line_of
from rooflines.profiler.samplers.update_time import RateLimited

# The system counts CPU time in ticks of 10 ms: over a shorter interval the quotient says more about ticks than about load.
SHORTEST_INTERVAL_S = 0.05

# Clocks and temperatures are read from every core and over slow buses, and they change slowly; a line for every core is read as often
# as it costs next to nothing, which is always but on machines with very many.
SLOW_EVERY_S, SLOW_SHARE = 1.0, 0.002
CORES_SHARE = 0.003

# The driver, the label of its sensor for a whole package, and the step it counts in, in degrees: the kernel's documentation of
# coretemp (Intel) and k10temp (AMD); zenpower is an alternative to the latter; the rest are of ARM boards, without labels.
# Tdie is the temperature; Tctl is what the fan follows, which on some processors lies above it.
_SENSORS: tuple[tuple[str, str, float | None], ...] = (
    ("coretemp", r"Package id \d+", 1.0),
    ("k10temp", r"Tdie", 0.125),
    ("k10temp", r"Tctl", 0.125),
    ("zenpower", r"Tdie", 0.125),
    ("cpu_thermal", r"", None),
)
HWMON = Path("/sys/class/hwmon")

Times = dict[str, float]


class HostSampler(Sampler):
    """One sample of the machine and of the process ``pid`` with all its descendants (``ProcessTree`` says which and when).

    Utilizations are averages since the previous reading that had them, so the first reading after a start may lack them. Resident set
    sizes are added up: a page that two processes share counts in each. Counters of processes count from the sampler's start. Clock and
    temperature are read once a second, the unique set size every five, and they are absent in between. ``period_s`` is how often it
    will be read: the resolution of utilizations depends on it. Raises DeviceError if process ``pid`` does not exist.
    """

    def __init__(self, pid: int, period_s: float = 0.1) -> None:
        self.tree = ProcessTree(pid)
        self.period_s = SHORTEST_INTERVAL_S
        self._interval_s = max(period_s, SHORTEST_INTERVAL_S)
        self._temperature = CpuTemperature()
        self._frequency_hz = RateLimited(cpu_frequency_hz, every_s=SLOW_EVERY_S, share=SLOW_SHARE)
        self._temperature_c = RateLimited(self._temperature.read, every_s=SLOW_EVERY_S, share=SLOW_SHARE)
        self._core_times = RateLimited(_core_times, share=CORES_SHARE)
        self._cores = self._core_times() or []
        self._machine = _cpu_times()
        self._cpu_s = 0.0
        self._measured_at = time.monotonic()

    def counters(self) -> Sequence[Counter]:
        # Here and not at the first reading, which is within what is measured.
        for question in (self._frequency_hz, self._temperature_c, self.tree.uss_bytes):
            question.prime()
        tick, page_bytes = TICK_S / self._interval_s, float(PAGE_BYTES)
        rows: list[tuple[str, float | None, float | None, float]] = [
            ("cpu_utilization", TICK_S, tick / max(1, len(self._cores)), self._interval_s),
            ("core_utilization", TICK_S, tick, self._interval_s),
            ("process_cpu_utilization", TICK_S, tick, self._interval_s),
            ("cpu_frequency_hz", SLOW_EVERY_S, None, 0.0),
            ("process_rss_bytes", None, page_bytes, 0.0),
            ("process_uss_bytes", USS_EVERY_S, page_bytes, 0.0),
        ]
        if self._temperature.exists:
            rows.append(("temperature_c", SLOW_EVERY_S, self._temperature.resolution_c, 0.0))
        return [
            Counter(source="psutil", device="host", field=field, update_s=update_s, resolution=resolution, window_s=window_s)
            for field, update_s, resolution, window_s in rows
        ]

    def read(self) -> Sequence[DeviceSample]:
        tree = self.tree.read()
        now = time.monotonic()
        cpu_utilization = process_cpu_utilization = core_utilization = None
        elapsed_s = now - self._measured_at
        if elapsed_s >= SHORTEST_INTERVAL_S:
            machine = _cpu_times()
            cpu_utilization = busy_fraction(self._machine, machine)
            self._machine, self._measured_at = machine, now
            core_utilization = self._core_utilization()
            if tree is not None:
                process_cpu_utilization = (tree.spent.cpu_s - self._cpu_s) / elapsed_s
                self._cpu_s = tree.spent.cpu_s
        memory = psutil.virtual_memory()
        values: dict[str, Any] = {}
        if tree is not None:
            values = {f"process_{field}": value for field, value in tree.spent._asdict().items() if field != "cpu_s"}
            values |= {"process_rss_bytes": tree.rss_bytes, "process_threads": tree.threads, "process_count": tree.processes}
        sample = DeviceSample(
            time_ns=now_ns(),
            source="psutil",
            cpu_utilization=cpu_utilization,
            core_utilization=core_utilization,
            cpu_frequency_hz=self._frequency_hz(),
            temperature_c=self._temperature_c(),
            memory_used_bytes=memory.total - memory.available,
            memory_total_bytes=memory.total,
            process_cpu_utilization=process_cpu_utilization,
            process_uss_bytes=self.tree.uss_bytes(),
            **values,
        )
        return (sample,)

    def _core_utilization(self) -> tuple[float, ...] | None:
        cores = self._core_times()
        if cores is None:
            return None
        before, self._cores = self._cores, cores
        if len(before) != len(cores):  # one went on or off: which is not said
            return None
        busy = [busy_fraction(*times) for times in zip(before, cores, strict=True)]
        # A tick is a tenth of a reading ten times a second: more digits would say nothing and fill the file.
        return None if None in busy else tuple(round(one, 3) for one in busy if one is not None)


def cpu_frequency_hz() -> float | None:
    """The cores' mean clock now, or None where the system does not tell."""
    try:
        frequency = psutil.cpu_freq()
    except (OSError, NotImplementedError, RuntimeError):
        return None
    return frequency.current * 1e6 if frequency and frequency.current else None


def busy_fraction(before: Times, after: Times) -> float | None:
    """The share of the cores' time between two readings that was neither idle nor waiting for a disk; None when no time passed."""
    # Linux lets idle and iowait step back a little when cores go offline or times are corrected.
    spent = {state: max(0.0, seconds - before.get(state, seconds)) for state, seconds in after.items()}
    total = sum(spent.values())
    if not total:
        return None
    return 1 - (spent.get("idle", 0.0) + spent.get("iowait", 0.0)) / total


def _cpu_times() -> Times:
    """Seconds of all cores together by state."""
    return _without_guests(psutil.cpu_times())


def _core_times() -> list[Times]:
    """Seconds by state of each core that is on."""
    return [_without_guests(core) for core in psutil.cpu_times(percpu=True)]


def _without_guests(times: Any) -> Times:
    return {state: seconds for state, seconds in times._asdict().items() if not state.startswith("guest")}  # they are in user as well


class CpuTemperature:
    """The temperature sensors of the CPU packages, looked for once (Linux).

    ``resolution_c`` is the step they count in, None where that is not known.
    """

    def __init__(self, hwmon: Path = HWMON) -> None:
        self.resolution_c: float | None = None
        self._inputs: list[Path] = []
        sensors = [(line_of(path.with_name("name")), path) for path in sorted(hwmon.glob("hwmon*/temp*_input"))]
        for driver, label, resolution_c in _SENSORS:
            if not self._inputs:
                self.resolution_c = resolution_c
                self._inputs = [
                    path
                    for name, path in sensors
                    if name == driver and re.fullmatch(label, line_of(path.with_name(path.name.replace("_input", "_label"))))
                ]

    @property
    def exists(self) -> bool:
        """Whether there is a sensor."""
        return bool(self._inputs)

    def read(self) -> float | None:
        """The hottest package in degrees Celsius, None where nothing can be read."""
        readings = [int(text) for path in self._inputs if (text := line_of(path)).lstrip("-").isdigit()]
        return max(readings) / 1e3 if readings else None
