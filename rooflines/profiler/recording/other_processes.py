"""The other programs of this machine that compute while a run is measured, by name."""

from __future__ import annotations

import time

import psutil

# A program below this share of a processor is not worth its name, and no more than a few are.
_LEAST_CORES, _MOST = 0.05, 3
# The parent of Linux's kernel threads; elsewhere no program has a parent with this number.
_KERNEL_THREADS = 2


class OtherProcesses:
    """Measures from its creation on."""

    def __init__(self) -> None:
        self._began, self._before = time.monotonic(), _spent_s()

    def over(self, period_s: float) -> dict[str, float]:
        """``cores`` over this many seconds, from now on."""
        time.sleep(period_s)
        return self.cores()

    def cores(self) -> dict[str, float]:
        """The mean number of processors that programs with a name kept busy, most first; not those that have ended meanwhile."""
        passed_s = time.monotonic() - self._began
        own = psutil.Process()
        ours = {own.pid, *(child.pid for child in own.children(recursive=True))}
        found: dict[str, float] = {}
        for (pid, name), spent_s in _spent_s().items():
            if pid not in ours:
                found[name] = found.get(name, 0.0) + spent_s - self._before.get((pid, name), 0.0)
        most = sorted(found, key=lambda name: -found[name])[:_MOST]
        return {name: found[name] / passed_s for name in most if found[name] > _LEAST_CORES * passed_s}


def _spent_s() -> dict[tuple[int, str], float]:
    """Processor time of every process that may be read, by number and name; the kernel's own threads work for all of them."""
    found = {}
    for process in psutil.process_iter(["name", "cpu_times", "ppid"]):
        times = process.info["cpu_times"]
        if times is not None and process.info["ppid"] != _KERNEL_THREADS:
            found[process.pid, process.info["name"] or str(process.pid)] = times.user + times.system
    return found
