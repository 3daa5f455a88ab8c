"""Threads that run one kernel at the same time, each on its own data, and say how long all of them together
took.

Plain Python threads around kernels that release the GIL. An OpenMP or TBB pool of Numba's would share the
process with torch's own pool, and some of its threading layers end the process when two threads use them.

A thread that fills its own CPU count is bound to one CPU, so that it stays near the memory that it touched
first. Where there are fewer threads than CPUs, each is bound to a NUMA node and the scheduler chooses within
it: it knows which cores are idle and which share a core, and a bound thread could not evade another process.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import NamedTuple

from rooflines.kernels.micro.repeats import Timing, share

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
    """Bind the calling thread to the CPUs in ``place``, if any, where the system lets a thread choose
    (Linux); else nothing happens."""
    if place and hasattr(os, "sched_setaffinity"):
        with suppress(
            OSError
        ):  # a sandbox may forbid it, and CPUs may have been taken away since they were listed
            os.sched_setaffinity(0, place)  # 0 is the calling thread, not the process


Job = Callable[[], object]


class _Span(NamedTuple):
    """When a thread started and ended its job, and the processor time it had meanwhile, in nanoseconds."""

    start: int
    end: int
    processor: int


class Team(AbstractContextManager["Team"]):
    """``size`` threads that live as long as the ``with`` block.

    Thread i always gets job i, and is bound to ``places[i]`` (from ``places``; without them to nothing): what
    a job has written first is near the thread that works on it later. The threads are the team's own, so
    nothing needs to be put back.
    """

    def __init__(self, size: int, places: Sequence[frozenset[int]] = ()) -> None:
        self.size = size
        self._start = threading.Barrier(size)
        self._threads = [
            ThreadPoolExecutor(
                1, thread_name_prefix=f"rooflines-micro-{number}", initializer=bind, initargs=(place,)
            )
            for number, place in enumerate(places or [frozenset()] * size)
        ]

    def run(self, jobs: Sequence[Job]) -> Timing:
        """Run one job per thread; the time is from the first to start to the last to finish.

        The share of the cores is that of the thread that had least: it tells a thread that waited for a core
        from a slow kernel.
        """
        if len(jobs) != self.size:
            raise ValueError(f"{len(jobs)} jobs for {self.size} threads")
        futures = [thread.submit(self._timed, job) for thread, job in zip(self._threads, jobs, strict=True)]
        spans = [future.result() for future in futures]
        begin, end = min(span.start for span in spans), max(span.end for span in spans)
        return Timing(
            (end - begin) * 1e-9, min(share(span.processor, span.end - span.start) for span in spans)
        )

    def _timed(self, job: Job) -> _Span:
        self._start.wait()  # until every thread is ready
        start, before = time.perf_counter_ns(), time.thread_time_ns()
        job()
        after, end = time.thread_time_ns(), time.perf_counter_ns()
        return _Span(start, end, after - before)

    def __exit__(self, *_: object) -> None:
        for thread in self._threads:
            thread.shutdown()
