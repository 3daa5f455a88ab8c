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
from typing import NamedTuple

from rooflines.kernels.micro import numa
from rooflines.kernels.micro.repeats import Timing, share

Job = Callable[[], object]


class _Span(NamedTuple):
    """When a thread started and ended its job, and the processor time it had meanwhile, in nanoseconds."""

    start: int
    end: int
    processor: int


class Team:
    """``size`` threads that live as long as the ``with`` block.

    Thread i always gets job i, and is bound to ``places[i]`` (from ``numa.places``; without them to nothing): what a job has written
    first is near the thread that works on it later. The threads are the team's own, so nothing needs to be put back.
    """

    def __init__(self, size: int, places: Sequence[frozenset[int]] = ()) -> None:
        self.size = size
        self._start = threading.Barrier(size)
        self._threads = [
            ThreadPoolExecutor(1, thread_name_prefix=f"rooflines-micro-{number}", initializer=numa.bind, initargs=(place,))
            for number, place in enumerate(places or [frozenset()] * size)
        ]

    def run(self, jobs: Sequence[Job]) -> Timing:
        """Run one job per thread; the time is from the first to start to the last to finish.

        The share of the cores is that of the thread that had least: it tells a thread that waited for a core from a slow kernel.
        """
        if len(jobs) != self.size:
            raise ValueError(f"{len(jobs)} jobs for {self.size} threads")
        futures = [thread.submit(self._timed, job) for thread, job in zip(self._threads, jobs, strict=True)]
        spans = [future.result() for future in futures]
        begin, end = min(span.start for span in spans), max(span.end for span in spans)
        return Timing((end - begin) * 1e-9, min(share(span.processor, span.end - span.start) for span in spans))

    def _timed(self, job: Job) -> _Span:
        self._start.wait()  # until every thread is ready
        start, before = time.perf_counter_ns(), time.thread_time_ns()
        job()
        after, end = time.thread_time_ns(), time.perf_counter_ns()
        return _Span(start, end, after - before)

    def __enter__(self) -> Team:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for thread in self._threads:
            thread.shutdown()
