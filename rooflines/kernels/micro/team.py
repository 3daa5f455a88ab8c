"""Threads that run one kernel at the same time, each on its own data, and say how long all of them together took.

Plain Python threads around kernels that release the GIL. An OpenMP or TBB pool of Numba's would share the process with torch's own
pool, and some of its threading layers end the process when two threads use them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType

Job = Callable[[], object]


class Team:
    """``size`` threads that live as long as the ``with`` block."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._start = threading.Barrier(size)
        self._pool = ThreadPoolExecutor(size, thread_name_prefix="rooflines-micro")

    def seconds(self, jobs: Sequence[Job]) -> float:
        """Run one job per thread; returns the time from the first to start to the last to finish."""
        if len(jobs) != self.size:
            raise ValueError(f"{len(jobs)} jobs for {self.size} threads")
        spans = list(self._pool.map(self._timed, jobs))
        return (max(end for _, end in spans) - min(start for start, _ in spans)) * 1e-9

    def _timed(self, job: Job) -> tuple[int, int]:
        # each thread waits here for the others, so that every thread of the pool gets exactly one job
        self._start.wait()
        start = time.perf_counter_ns()
        job()
        return start, time.perf_counter_ns()

    def __enter__(self) -> Team:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._pool.shutdown()
