"""The machine's CPU and memory, and what the watched process takes of them, as psutil sees them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import psutil

from rooflines.errors import DeviceError
from rooflines.profiler.records import DeviceSample

# The kernel counts CPU time in ticks of 10 ms: over a shorter interval the quotient says more about ticks than about load.
SHORTEST_INTERVAL_S = 0.05

# Listing the children walks every process of the machine, and reading the clock of every core can take milliseconds on a large one;
# neither changes as fast as we sample.
SLOW_FACTS_EVERY_S = 1.0

T = TypeVar("T")


class HostSampler:
    """One sample of the machine and of the process ``pid`` with all its descendants.

    Both utilizations are averages since the previous reading, so the first reading after a start may lack them. A descendant counts
    from the first time it is seen. Resident set sizes are added up: a page that two processes share counts in each. The CPU frequency
    is read once a second and absent in between. Raises DeviceError when there is no process ``pid``.
    """

    def __init__(self, pid: int) -> None:
        try:
            self._root = psutil.Process(pid)
        except psutil.Error as error:
            raise DeviceError(f"process {pid} cannot be watched: {error}.") from None
        self._tree: list[psutil.Process] = []
        self._slow_facts_at = -float("inf")
        self._list_tree()
        self._machine_times = _machine_times()
        self._process_times = self._cpu_seconds()
        self._measured_at = time.monotonic()

    def read(self) -> Sequence[DeviceSample]:
        now = time.monotonic()
        frequency_hz = None
        if now - self._slow_facts_at >= SLOW_FACTS_EVERY_S:
            self._slow_facts_at = now
            self._list_tree()
            frequency_hz = cpu_frequency_hz()

        cpu_utilization = process_cpu_utilization = None
        elapsed_s = time.monotonic() - self._measured_at
        if elapsed_s >= SHORTEST_INTERVAL_S:
            machine_times, process_times = _machine_times(), self._cpu_seconds()
            self._measured_at += elapsed_s
            cpu_utilization = busy_fraction(self._machine_times, machine_times)
            # A process seen for the first time has no earlier figure to subtract.
            spent = [seconds - self._process_times[key] for key, seconds in process_times.items() if key in self._process_times]
            if spent:
                process_cpu_utilization = sum(spent) / elapsed_s
            self._machine_times, self._process_times = machine_times, process_times

        memory = psutil.virtual_memory()
        return (
            DeviceSample(
                time_ns=time.time_ns(),
                source="psutil",
                cpu_utilization=cpu_utilization,
                cpu_frequency_hz=frequency_hz,
                memory_used_bytes=memory.total - memory.available,
                process_cpu_utilization=process_cpu_utilization,
                process_rss_bytes=_total(_alive(process, _rss_bytes) for process in self._tree),
                process_threads=_total(_alive(process, psutil.Process.num_threads) for process in self._tree),
            ),
        )

    def close(self) -> None:
        self._tree = []

    def _list_tree(self) -> None:
        descendants = _alive(self._root, lambda root: root.children(recursive=True)) or []
        # The sampler process is a child of the run it watches, and no part of it.
        self._tree = [self._root, *(process for process in descendants if process.pid != os.getpid())]

    def _cpu_seconds(self) -> dict[int, float]:
        """CPU seconds so far of every living process of the tree, by process id."""
        seconds = ((process.pid, _alive(process, _own_cpu_seconds)) for process in self._tree)
        return {pid: spent for pid, spent in seconds if spent is not None}


def cpu_frequency_hz() -> float | None:
    """The cores' mean clock now, or None where the system does not tell."""
    try:
        frequency = psutil.cpu_freq()
    except (OSError, NotImplementedError, RuntimeError):
        return None
    return frequency.current * 1e6 if frequency and frequency.current else None


def busy_fraction(before: dict[str, float], after: dict[str, float]) -> float | None:
    """The share of all cores' time between two readings that was neither idle nor waiting for a disk; None when no time passed."""
    # Linux lets idle and iowait step back a little when cores go offline or times are corrected.
    spent = {state: max(0.0, seconds - before.get(state, seconds)) for state, seconds in after.items()}
    total = sum(spent.values())
    if not total:
        return None
    return 1 - (spent.get("idle", 0.0) + spent.get("iowait", 0.0)) / total


def _machine_times() -> dict[str, float]:
    """Seconds that all cores together spent in each state; guest time is left out because user time contains it."""
    return {state: seconds for state, seconds in psutil.cpu_times()._asdict().items() if not state.startswith("guest")}


def _own_cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def _rss_bytes(process: psutil.Process) -> int:
    return process.memory_info().rss


def _alive(process: psutil.Process, fact: Callable[[psutil.Process], T]) -> T | None:
    """``fact(process)``, or None when the process has ended or is not ours to look at."""
    try:
        return fact(process)
    except (psutil.Error, OSError):
        return None


def _total(values: Iterable[int | None]) -> int | None:
    """The sum of what is there, None when nothing is."""
    present = [value for value in values if value is not None]
    return sum(present) if present else None
