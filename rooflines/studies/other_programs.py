"""How many processors other programs kept busy while something was timed."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

import psutil

from rooflines.profiler.quiet import OTHERS_CORES
from rooflines.units import significant


class OtherProgramsMeter:
    """Measures from its creation on."""

    def __init__(self) -> None:
        self._begun, self._busy, self._own = time.monotonic(), _busy_s(), _own_s()

    def cores(self) -> float:
        """Mean number of processors that other programs kept busy; the clocks behind it have a resolution of 10 ms."""
        passed = time.monotonic() - self._begun
        others = (_busy_s() - self._busy) - (_own_s() - self._own)
        return max(0.0, others / passed) if passed > 0 else 0.0


def shared_machine(measured: Iterable[tuple[str, float | None]]) -> Iterator[str]:
    """A sentence if other programs computed during the timing: names with their ``cores()``."""
    seen = {name: cores for name, cores in measured if cores is not None and cores >= OTHERS_CORES}
    if seen:
        listed = ", ".join(f"{significant(cores, 2)} while {name} ran" for name, cores in seen.items())
        yield f"Shared machine: other programs used processors, {listed}."


def _busy_s() -> float:
    """Seconds that all processors together have worked. A hypervisor's other guests (steal) are not programs of this machine."""
    times = psutil.cpu_times()
    return float(times.user + times.system + getattr(times, "nice", 0.0))


def _own_s() -> float:
    times = psutil.Process().cpu_times()
    return float(times.user + times.system)
