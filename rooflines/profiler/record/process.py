"""What the system says of this process: peak memory, pages taken, a reserve for the profiler, time spent
waiting for a processor."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import sys
from pathlib import Path
from typing import Any

import psutil

from rooflines.profiler.samplers.host import own_peak_rss_bytes

# The heap reserve, and the most that it takes of the machine's free memory.
RESERVE_BYTES, _LEAST_LEFT = 256 << 20, 16
# Below the smallest threshold from which glibc maps a block by itself (128 KiB).
_BLOCK_BYTES = 64 << 10
# A line for every thread: nanoseconds on a processor, nanoseconds waiting for one, number of turns (Linux,
# sched-stats.rst).
_TASKS = Path("/proc/self/task")


class PeakMemory:
    """The peak since ``start()``. ``kind`` says what is counted; ``bytes()`` is None where it cannot be
    known."""

    def __init__(self, device: Any) -> None:
        self._device = device
        self.kind = "allocator" if device.type == "cuda" else "resident set"
        self._resettable = False

    def start(self) -> None:
        """Begin a new stretch."""
        if self._device.type == "cuda":
            import torch

            torch.cuda.reset_peak_memory_stats(self._device)
            return
        with contextlib.suppress(OSError):
            # Linux: writing 5 resets the high-water mark VmHWM of this process (proc(5)).
            Path("/proc/self/clear_refs").write_text("5")
            self._resettable = True

    def bytes(self) -> int | None:
        """The peak in bytes since ``start()``, or None where the system cannot tell."""
        if self._device.type == "cuda":
            import torch

            return int(torch.cuda.max_memory_allocated(self._device))
        return own_peak_rss_bytes() if self._resettable else None


@functools.cache
def is_listening() -> bool:
    """Whether this process waits for connections at a socket, as a server and its workers do; as it was at
    the first call."""
    with contextlib.suppress(psutil.Error):
        return any(socket.status == psutil.CONN_LISTEN for socket in psutil.Process().net_connections())
    return False


def page_faults() -> int | None:
    """Pages that this process has taken from the system so far without reading a disk; None where the system
    does not say (Windows)."""
    try:
        import resource
    except ImportError:
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def since(before: int | None) -> int | None:
    """Page faults after a reading of ``page_faults``; None where there is none."""
    now = page_faults()
    return None if before is None or now is None else now - before


class HeapReserve:
    """Free memory in the C heap that the system has mapped already, for what the profiler stores while steps
    are traced.

    The profiler's records are small blocks between those of the step. They split the memory that the step
    before has freed, so the step takes new pages from the system, thousands in each: a batch norm of 0.1 ms
    took 1.8 ms. The timed steps do not pay for that. The reserve lasts until ``release``. Where the heap is
    not glibc's it does nothing.
    """

    def __init__(self) -> None:
        self._pin: int | None = None
        self._free = None
        if sys.platform != "linux" or not hasattr(heap := ctypes.CDLL(None), "gnu_get_libc_version"):
            return
        heap.malloc.restype, heap.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
        heap.free.argtypes = [ctypes.c_void_p]
        size = min(RESERVE_BYTES, psutil.virtual_memory().available // _LEAST_LEFT)
        blocks = [heap.malloc(_BLOCK_BYTES) for _ in range(size // _BLOCK_BYTES)]
        # The heap ends behind this block, so what lies before it is not given back to the system.
        self._free, self._pin = heap.free, heap.malloc(_BLOCK_BYTES)
        for block in filter(None, blocks):
            ctypes.memset(block, 0, _BLOCK_BYTES)
            heap.free(block)

    def release(self) -> None:
        """Let the C library give the reserve back."""
        if self._free is not None and self._pin is not None:
            self._free(self._pin)
        self._pin = None


class RunQueue:
    """Adds up what the threads wait between ``mark`` and ``since_ns``; a reading takes a microsecond for each
    thread.

    Threads are listed by ``watch``: those that start later are not seen. Systems that do not count it give
    None.
    """

    def __init__(self) -> None:
        self._files: list[int] = []
        self._marked: int | None = None

    def watch(self) -> None:
        """List the threads that run now."""
        self.close()
        try:
            for task in _TASKS.iterdir():
                self._files.append(os.open(task / "schedstat", os.O_RDONLY))
        except (
            OSError
        ):  # not Linux, not counted, or a thread has just ended: without it the sum would be too low
            self.close()

    def close(self) -> None:
        """Release the files."""
        for file in self._files:
            os.close(file)
        self._files, self._marked = [], None

    def mark(self) -> None:
        """Begin to count."""
        self._marked = self._waited_ns()

    def since_ns(self) -> int | None:
        """The nanoseconds waited since ``mark``, of all threads together."""
        now = self._waited_ns()
        return None if now is None or self._marked is None else max(0, now - self._marked)

    def _waited_ns(self) -> int | None:
        waited = 0
        try:
            for file in self._files:
                waited += int(os.pread(file, 64, 0).split()[1])
        except (OSError, ValueError, IndexError):  # a thread has ended
            self.watch()
            return None
        return waited if self._files else None
