"""The machine's CPU and memory, and what the watched process takes of them."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import psutil

from rooflines.profiler.samplers.base import Sampler
from rooflines.profiler.samplers.clock import now_ns
from rooflines.profiler.samplers.fields import Counter, DeviceSample
from rooflines.profiler.samplers.processes import LINUX, PAGE_BYTES, TICK_S, USS_EVERY_S, HeldFile, ProcessTree, line_of
from rooflines.profiler.samplers.update_time import RateLimited

# The system counts CPU time in ticks of 10 ms: over a shorter interval the quotient says more about ticks than about load.
SHORTEST_INTERVAL_S = 0.05

# Clocks and temperatures are read from every core and over slow buses, and they change slowly; a line for every core is read as often
# as it costs next to nothing, which is always but on machines with very many.
SLOW_EVERY_S, SLOW_SHARE = 1.0, 0.002
CORES_SHARE = 0.003

# The first fields of a line of /proc/stat (proc(5)); guest time, which follows, is in user time.
_STATES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
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
MEMINFO = "/proc/meminfo"
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
        self._memory = MachineMemory()
        self._clock = CpuClock()
        self._times = self._clock.read()
        self._core_times = RateLimited(lambda: self._times.cores(), share=CORES_SHARE)
        self._cores = self._core_times() or []
        self._machine = self._times.machine()
        self._cpu_s = 0.0
        self._measured_at = time.monotonic()

    def counters(self) -> Sequence[Counter]:
        def counter(
            field: str, update_s: float | None = None, resolution: float | None = None, window_s: float = self._interval_s
        ) -> Counter:
            return Counter(source="psutil", device="host", field=field, update_s=update_s, resolution=resolution, window_s=window_s)

        # Here and not at the first reading, which is within what is measured.
        for question in (self._frequency_hz, self._temperature_c, self.tree.uss_bytes):
            question.prime()
        tick = TICK_S / self._interval_s
        return (
            counter("cpu_utilization", TICK_S, tick / max(1, len(self._cores))),
            counter("core_utilization", TICK_S, tick),
            counter("process_cpu_utilization", TICK_S, tick),
            counter("cpu_frequency_hz", SLOW_EVERY_S, window_s=0.0),
            counter("process_rss_bytes", resolution=float(PAGE_BYTES), window_s=0.0),
            counter("process_uss_bytes", USS_EVERY_S, float(PAGE_BYTES), window_s=0.0),
            *([counter("temperature_c", SLOW_EVERY_S, self._temperature.resolution_c, 0.0)] if self._temperature.exists else []),
        )

    def read(self) -> Sequence[DeviceSample]:
        tree = self.tree.read()
        now = time.monotonic()
        cpu_utilization = process_cpu_utilization = core_utilization = None
        elapsed_s = now - self._measured_at
        if elapsed_s >= SHORTEST_INTERVAL_S:
            self._times = self._clock.read()
            machine = self._times.machine()
            cpu_utilization = busy_fraction(self._machine, machine)
            self._machine, self._measured_at = machine, now
            core_utilization = self._core_utilization()
            if tree is not None:
                process_cpu_utilization = (tree.spent.cpu_s - self._cpu_s) / elapsed_s
                self._cpu_s = tree.spent.cpu_s
        memory = self._memory.read()
        return (
            DeviceSample(
                time_ns=now_ns(),
                source="psutil",
                cpu_utilization=cpu_utilization,
                core_utilization=core_utilization,
                cpu_frequency_hz=self._frequency_hz(),
                temperature_c=self._temperature_c(),
                memory_used_bytes=memory.used_bytes,
                memory_total_bytes=memory.total_bytes,
                process_cpu_utilization=process_cpu_utilization,
                process_rss_bytes=tree and tree.rss_bytes,
                process_uss_bytes=self.tree.uss_bytes(),
                process_threads=tree and tree.threads,
                process_count=tree and tree.processes,
                process_read_bytes=tree and tree.spent.read_bytes,
                process_written_bytes=tree and tree.spent.written_bytes,
                process_minor_faults=tree and tree.spent.minor_faults,
                process_major_faults=tree and tree.spent.major_faults,
            ),
        )

    def close(self) -> None:
        self._clock.close()
        self._memory.close()

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


class CpuClock:
    """Reads the times of the cores."""

    def __init__(self) -> None:
        self._file = HeldFile("/proc/stat") if LINUX else None

    def read(self) -> CpuTimes:
        # What follows the cores is thousands of interrupt counts.
        return CpuTimes(self._file.start().partition(b"intr ")[0].splitlines() if self._file is not None else [])

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class CpuTimes:
    """Seconds by state at the moment it was read: on Linux one read for the machine and all cores."""

    def __init__(self, lines: list[bytes]) -> None:
        self._lines = lines

    def machine(self) -> Times:
        """All cores together."""
        return _cpu_times(self._lines[0]) if self._lines else _without_guests(psutil.cpu_times()._asdict())

    def cores(self) -> list[Times]:
        """Each core that is on."""
        if self._lines:
            return [_cpu_times(line) for line in self._lines[1:]]
        return [_without_guests(core._asdict()) for core in psutil.cpu_times(percpu=True)]


def busy_fraction(before: Times, after: Times) -> float | None:
    """The share of the cores' time between two readings that was neither idle nor waiting for a disk; None when no time passed."""
    # Linux lets idle and iowait step back a little when cores go offline or times are corrected.
    spent = {state: max(0.0, seconds - before.get(state, seconds)) for state, seconds in after.items()}
    total = sum(spent.values())
    if not total:
        return None
    return 1 - (spent.get("idle", 0.0) + spent.get("iowait", 0.0)) / total


def _cpu_times(line: bytes) -> Times:
    return {state: int(ticks) * TICK_S for state, ticks in zip(_STATES, line.split()[1:], strict=False)}


def _without_guests(times: Times) -> Times:
    return {state: seconds for state, seconds in times.items() if not state.startswith("guest")}


class Memory(NamedTuple):
    """Bytes that the machine has, and those that programs could not have without making others swap."""

    total_bytes: int
    used_bytes: int


class MachineMemory:
    """Reads the memory of the machine: on Linux two lines of one file, elsewhere by psutil."""

    def __init__(self, meminfo: str = MEMINFO) -> None:
        self._file: HeldFile | None = None
        if LINUX:
            file = HeldFile(meminfo)
            # Kernels before 3.14 do not say what is available; psutil has an estimate for them.
            if _meminfo(file.start()) is None:
                file.close()
            else:
                self._file = file

    def read(self) -> Memory:
        memory = _meminfo(self._file.start()) if self._file is not None else None
        if memory is not None:
            return memory
        asked = psutil.virtual_memory()
        return Memory(asked.total, asked.total - asked.available)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _meminfo(text: bytes) -> Memory | None:
    """``MemTotal`` and ``MemAvailable``, in KiB (proc(5)): the first and the third line."""
    words = text.split(None, 8)
    if len(words) < 9 or words[0] != b"MemTotal:" or words[6] != b"MemAvailable:":
        return None
    total, available = int(words[1]) << 10, int(words[7]) << 10
    # In some containers the file shows the machine's available memory next to the container's total; psutil handles this too.
    return Memory(total, total - available) if available <= total else None


class CpuTemperature:
    """The temperature sensors of the CPU packages, looked for once (Linux).

    ``resolution_c`` is the step they count in, None where that is not known.
    """

    def __init__(self, hwmon: Path = HWMON) -> None:
        self.resolution_c: float | None = None
        self._inputs: list[Path] = []
        drivers = [(directory, line_of(directory / "name")) for directory in sorted(hwmon.glob("hwmon*"))]
        for driver, label, resolution_c in _SENSORS:
            for directory, name in drivers:
                if name == driver:
                    self._inputs += [path for path in sorted(directory.glob("temp*_input")) if re.fullmatch(label, _label(path))]
            if self._inputs:
                self.resolution_c = resolution_c
                return

    @property
    def exists(self) -> bool:
        """Whether there is a sensor at all."""
        return bool(self._inputs)

    def read(self) -> float | None:
        """The hottest package in degrees Celsius, None where nothing can be read."""
        readings = [int(text) for path in self._inputs if (text := line_of(path)).lstrip("-").isdigit()]
        return max(readings) / 1e3 if readings else None


def _label(path: Path) -> str:
    return line_of(path.with_name(path.name.replace("_input", "_label")))
