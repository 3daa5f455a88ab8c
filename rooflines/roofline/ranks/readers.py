"""Ranks read side by side: in processes of this machine, or on a Dask cluster. Only what is kept of each
comes back.

Reading a trace is Python code, so parallel reading needs separate processes. The processes are spawned, not
forked: the caller may have threads, and a GPU's driver survives no fork.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from rooflines.arguments import arg
from rooflines.errors import TraceError, UsageError
from rooflines.profiler.read.records import ReadOptions
from rooflines.profiler.read.sources import is_url
from rooflines.roofline.ranks.analyze import Judge, RankPart, read_rank

# A process takes about a second to start: below this many bytes a process the ranks are read sooner without
# it.
_WORTH_A_PROCESS_BYTES = 1 << 20


def read_ranks(
    sources: Sequence[str],
    *,
    jobs: int | None,
    dask: str | None,
    reading: ReadOptions,
    judge: Judge,
    done: Callable[[], None],
) -> list[RankPart]:
    """Return the summary of each of ``sources``, in their order; ``done`` is called after each.

    ``jobs`` is the number of processes, with None as many as there are processors and work for; with 1
    everything happens in this one. ``dask`` is the address of a Dask scheduler whose workers read instead;
    they must reach the files by the same names. The memory limit is that of one trace. Raises TraceError that
    names the file which cannot be read; the other processes are ended then, as they are by an interrupt.
    Raises UsageError when Dask is not installed or does not answer. ``judge`` gives the ceilings of each
    rank; a function of a module, which other processes import.
    """
    jobs = min(jobs or _worthwhile(sources), len(sources))
    if dask is None and jobs <= 1:
        parts = []
        for source in sources:
            parts.append(read_rank(source, reading, judge))
            done()
        return parts
    if dask is not None:  # a worker has another working directory
        sources = [source if is_url(source) else os.path.abspath(source) for source in sources]
    with _processes(jobs) if dask is None else _workers(dask) as executor:
        futures = [executor.submit(read_rank, source, reading, judge) for source in sources]
        for future in as_completed(futures):
            future.result()
            done()
        return [future.result() for future in futures]


def _worthwhile(sources: Sequence[str]) -> int:
    """As many processes as have work that is worth one."""
    sizes = [
        os.path.getsize(source) if not is_url(source) and os.path.isfile(source) else 0 for source in sources
    ]
    work = len(sources) if any(map(is_url, sources)) else max(1, sum(sizes) // _WORTH_A_PROCESS_BYTES)
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(processors, work)


@contextlib.contextmanager
def _processes(jobs: int) -> Iterator[Executor]:
    """Processes of this machine that always end with the context."""
    others = set(multiprocessing.active_children())
    # Ctrl-C reaches every process of a terminal; the one that started the others ends them.
    pool = ProcessPoolExecutor(
        jobs,
        multiprocessing.get_context("spawn"),
        initializer=signal.signal,
        initargs=(signal.SIGINT, signal.SIG_IGN),
    )
    try:
        yield pool
    except BaseException as error:
        # What they still read is of no use to anybody.
        for process in set(multiprocessing.active_children()) - others:
            process.terminate()
        pool.shutdown(wait=True, cancel_futures=True)
        if not isinstance(error, BrokenProcessPool):
            raise
        killed = "a process reading a trace was killed, possibly because memory ran out."
        raise TraceError(killed, hint=f"Use fewer {arg('jobs')}.") from None
    pool.shutdown(wait=True)


@contextlib.contextmanager
def _workers(address: str) -> Iterator[Executor]:
    """The workers of a Dask cluster; what they have not read at the end of the context is canceled."""
    try:
        import distributed
    except ImportError:
        raise UsageError(
            f"{arg('dask')} requires dask.distributed, which is not installed.",
            hint="pip install 'rooflines[dask]'",
        ) from None
    try:
        client: Any = distributed.Client(address, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        raise UsageError(
            f"no Dask scheduler found at {address!r}: {error or type(error).__name__}.",
            hint="Give the address as tcp://HOST:8786.",
        ) from None
    with client:
        yield client.get_executor(pure=False)  # a file may have changed under the name that was read before
