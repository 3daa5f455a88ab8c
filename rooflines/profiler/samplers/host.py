"""The machine's CPU and memory, and what the watched process takes of them."""

from __future__ import annotations

import time
from collections.abc import Sequence

import psutil

from rooflines.profiler.samplers.base import Sampler
from rooflines.profiler.samplers.clock import now_ns
from rooflines.profiler.samplers.cpu_times import CpuClock, busy_fraction
from rooflines.profiler.samplers.fields import Counter, DeviceSample
from rooflines.profiler.samplers.machine_memory import MachineMemory
from rooflines.profiler.samplers.processes import PAGE_BYTES, TICK_S, USS_EVERY_S, ProcessTree
from rooflines.profiler.samplers.rate_limit import RateLimited
from rooflines.profiler.samplers.temperature import CpuTemperature

# The system counts CPU time in ticks of 10 ms: over a shorter interval the quotient says more about ticks than about load.
SHORTEST_INTERVAL_S = 0.05

# Clocks and temperatures are read from every core and over slow buses, and they change slowly; a line for every core is read as often
# as it costs next to nothing, which is always but on machines with very many.
SLOW_EVERY_S, SLOW_SHARE = 1.0, 0.002
CORES_SHARE = 0.003


class HostSampler(Sampler):
    """One sample of the machine and of the process ``pid`` with all its descendants (``ProcessTree`` says which and when).

    Utilizations are averages since the previous reading that had them, so the first reading after a start may lack them. Resident set
    sizes are added up: a page that two processes share counts in each. Counters of processes count from the sampler's start. Clock and
    temperature are read once a second, the unique set size every five, and they are absent in between. ``period_s`` is how often it
    will be read: how well utilizations can be told depends on it. Raises DeviceError when there is no process ``pid``.
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
