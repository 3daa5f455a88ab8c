"""The other programs of this machine: how many processors they take while something is measured, and which they are."""

from __future__ import annotations

import contextlib
import time

import psutil

# A program below this share of a processor is not worth its name, and no more than a few are.
_LEAST_CORES, _MOST = 0.05, 3
# The parent of Linux's kernel threads, by name: in a container its number may be that of any program.
_KERNEL_THREADS = "kthreadd"


class OthersMeter:
    """Measures from its creation on; the clocks behind it have a resolution of 10 ms."""

    def __init__(self) -> None:
        self._began, self._busy_s, self._spent_s = time.monotonic(), _others_s(), _spent_s()

    def cores(self) -> float:
        """The mean number of processors that other programs kept busy."""
        passed_s = time.monotonic() - self._began
        return max(0.0, (_others_s() - self._busy_s) / passed_s) if passed_s > 0 else 0.0

    def by_name(self) -> dict[str, float]:
        """The mean number of processors that programs with a name kept busy, most first; not those that have ended meanwhile."""
        passed_s, own = time.monotonic() - self._began, psutil.Process()
        ours = {own.pid, *(child.pid for child in own.children(recursive=True))}
        found: dict[str, float] = {}
        for (pid, name), spent_s in _spent_s().items():
            if pid not in ours:
                found[name] = found.get(name, 0.0) + spent_s - self._spent_s.get((pid, name), 0.0)
        most = sorted(found, key=lambda name: -found[name])[:_MOST]
        return {name: found[name] / passed_s for name in most if found[name] > _LEAST_CORES * passed_s}


def _others_s() -> float:
    """Processor time of all programs but this one and its children, such as the workers of a data loader. A hypervisor's other guests
    (steal) are not programs of this machine."""
    whole, own, ours = psutil.cpu_times(), psutil.Process(), 0.0
    for process in (own, *own.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):  # its time is then in its parent's
            times = process.cpu_times()
            ours += times.user + times.system + getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0)
    return float(whole.user + whole.system + getattr(whole, "nice", 0.0) - ours)


def _spent_s() -> dict[tuple[int, str], float]:
    """Processor time of every process that may be read, by number and name; the kernel's own threads work for all of them."""
    every = [process.info for process in psutil.process_iter(["pid", "name", "cpu_times", "ppid"])]
    kernel = {one["pid"] for one in every if one["name"] == _KERNEL_THREADS}
    return {
        (one["pid"], one["name"] or str(one["pid"])): one["cpu_times"].user + one["cpu_times"].system
        for one in every
        if one["cpu_times"] is not None and one["ppid"] not in kernel
    }
