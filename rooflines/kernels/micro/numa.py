"""Choose the CPUs of a measurement's threads, so that each stays near the memory that it touched first.

A thread that fills its own CPU count is bound to one CPU. Where there are fewer threads than CPUs, each is bound to a NUMA node and the
scheduler chooses within it: it knows which cores are idle and which share a core, and a bound thread could not evade another process.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

_NODES = Path("/sys/devices/system/node")


def cpu_list(text: str) -> tuple[int, ...]:
    """The numbers in a list as Linux prints it: "0-2,8" is 0, 1, 2, 8. Empty for anything else."""
    numbers: list[int] = []
    for part in filter(None, text.strip().split(",")):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        if match is None:
            return ()
        numbers += range(int(match[1]), int(match[2] or match[1]) + 1)
    return tuple(numbers)


def nodes(cpus: tuple[int, ...], root: Path = _NODES) -> tuple[tuple[int, ...], ...]:
    """``cpus`` grouped by NUMA node, from sysfs on Linux; one group where the system does not tell."""
    groups: list[tuple[int, ...]] = []
    for path in sorted(root.glob("node[0-9]*/cpulist"), key=lambda path: int(path.parent.name[4:])):
        try:
            listed = cpu_list(path.read_text())
        except OSError:
            continue
        mine = tuple(cpu for cpu in listed if cpu in cpus)
        if mine:  # a node may hold memory only, or no CPU that this process may use
            groups.append(mine)
    whole = sorted(cpu for group in groups for cpu in group) == sorted(cpus)
    return tuple(groups) if whole else (cpus,)


def places(threads: int, groups: tuple[tuple[int, ...], ...]) -> tuple[frozenset[int], ...]:
    """The CPUs that each of ``threads`` threads is bound to, by turns on the nodes that ``groups`` lists."""
    cpus = [cpu for group in groups for cpu in group]
    if threads >= len(cpus):
        return tuple(frozenset({cpus[number % len(cpus)]}) for number in range(threads))
    return tuple(frozenset(groups[number % len(groups)]) for number in range(threads))


def bind(place: frozenset[int]) -> None:
    """Bind the calling thread to the CPUs in ``place``, if any, where the system lets a thread choose (Linux); else nothing happens."""
    if place and hasattr(os, "sched_setaffinity"):
        try:
            os.sched_setaffinity(0, place)  # 0 is the calling thread, not the process
        except OSError:  # a sandbox may forbid it, and CPUs may have been taken away since they were listed
            return
