"""What a recording notes of other programs, and that a profiler's records take no memory from the steps."""

import ctypes
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rooflines.profiler.others import OthersMeter
from rooflines.profiler.recording.process import HeapReserve, RunQueue, page_faults

COUNTED = Path("/proc/self/schedstat").exists()


@pytest.fixture
def burners():
    """A program on every processor that this one may use, none of them a descendant of this process."""
    command = shlex.join([sys.executable, "-c", "while True: pass"])
    running = []
    for _ in range(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2):
        shell = subprocess.run(["sh", "-c", f"{command} >/dev/null 2>&1 & echo $!"], check=True, capture_output=True, text=True)
        running.append(int(shell.stdout))
    yield running
    for one in running:
        os.kill(one, signal.SIGKILL)


def spin(seconds):
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


@pytest.mark.skipif(not COUNTED, reason="this system does not count how long threads wait for a processor")
def test_a_thread_that_could_run_and_did_not_has_waited(burners):
    queue = RunQueue()
    queue.watch()
    queue.mark()
    for _ in range(200):  # until the scheduler has taken the processor away once
        spin(0.05)
        waited = queue.since_ns()
        if waited:
            break
    assert waited > 0
    queue.mark()
    assert queue.since_ns() < waited + 1_000_000_000
    queue.close()
    assert queue.since_ns() is None


def test_programs_that_compute_are_named(burners):
    meter = OthersMeter()
    for _ in range(100):  # until they have had their turn
        time.sleep(0.1)
        found = meter.by_name()
        if found:
            break
    assert any(name.startswith("python") for name in found)
    assert meter.cores() > 0


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "gnu_get_libc_version"), reason="the heap is not that of glibc")
def test_memory_out_of_the_reserve_takes_no_new_pages():
    heap = ctypes.CDLL(None)
    heap.malloc.restype, heap.malloc.argtypes, heap.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]

    def taken(blocks=256, size=100_000):
        before = page_faults()
        found = [heap.malloc(size) for _ in range(blocks)]
        for block in found:
            ctypes.memset(block, 1, size)
        faults = page_faults() - before
        for block in found:
            heap.free(block)
        return faults

    pages = 256 * 100_000 // 4096
    reserve = HeapReserve()
    assert taken() < pages / 10
    reserve.release()
    reserve.release()  # once is enough, twice does no harm
