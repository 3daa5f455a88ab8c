"""The time that the cores of the machine have spent in each state."""

from __future__ import annotations

import psutil

from rooflines.profiler.samplers.processes import TICK_S
from rooflines.profiler.samplers.procfs import LINUX, HeldFile

Times = dict[str, float]

# The first fields of a line of /proc/stat (proc(5)); guest time, which follows, is in user time.
_STATES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")


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
        return _parsed(self._lines[0]) if self._lines else _without_guests(psutil.cpu_times()._asdict())

    def cores(self) -> list[Times]:
        """Each core that is on."""
        if self._lines:
            return [_parsed(line) for line in self._lines[1:]]
        return [_without_guests(core._asdict()) for core in psutil.cpu_times(percpu=True)]


def busy_fraction(before: Times, after: Times) -> float | None:
    """The share of the cores' time between two readings that was neither idle nor waiting for a disk; None when no time passed."""
    # Linux lets idle and iowait step back a little when cores go offline or times are corrected.
    spent = {state: max(0.0, seconds - before.get(state, seconds)) for state, seconds in after.items()}
    total = sum(spent.values())
    if not total:
        return None
    return 1 - (spent.get("idle", 0.0) + spent.get("iowait", 0.0)) / total


def _parsed(line: bytes) -> Times:
    return {state: int(ticks) * TICK_S for state, ticks in zip(_STATES, line.split()[1:], strict=False)}


def _without_guests(times: Times) -> Times:
    return {state: seconds for state, seconds in times.items() if not state.startswith("guest")}
