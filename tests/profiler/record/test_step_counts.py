"""When warm-up ends, on made-up step times."""

import ctypes
import gc
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from rooflines.profiler.machine import others
from rooflines.profiler.machine.others import OthersMeter, alike_steps, busy_elsewhere, is_quiet, is_shared, quiet_steps
from rooflines.profiler.record import tracer
from rooflines.profiler.record.process import HeapReserve, RunQueue, page_faults
from rooflines.profiler.record.step_counts import Budget, WarmUp
from rooflines.profiler.record.tracer import TraceBound, heap_bytes
from rooflines.profiler.samplers.fields import DeviceSample


def warm(durations_ns, asked=None):
    """After steps of these lengths: how many it took, whether they had settled, and what is said of it."""
    warmup = WarmUp(asked)
    for duration_ns in durations_ns:
        warmup.add(duration_ns)
        if warmup.is_over():
            break
    return len(warmup.times_ns), warmup.settled, warmup.rule, warmup.problem


def test_steps_asked_for_and_the_time_of_a_step():
    # As many steps as asked settled or not.
    assert warm([100, 900, 5], asked=2) == (2, None, "2 warm-up steps, as requested", "")
    assert WarmUp(0).rule == "no warm-up, as requested"
    # A step takes what the last three took.
    warmup = WarmUp(None)
    assert warmup.step_s is None
    for duration_ns in (9_000_000_000, 3_000_000_000, 1_000_000_000, 2_000_000_000):
        warmup.add(duration_ns)
    assert warmup.step_s == 2.0


def test_when_warm_up_ends():
    # Warm up ends when three steps are within five percent of the three before.
    assert warm([100] * 20)[:3] == (
        6, True, "settled after 6 warm-up steps: medians of the last 3 steps and the 3 before differ by 0.0 % (limit 5 %)",
    )  # fmt: skip
    # 900 300 120 | 100 100 100: 300 to 100; then 300 120 100 | ...: 120 to 100; then 120 100 100 | 100 100 100: the same
    assert warm([900, 300, 120, *[100] * 20])[:2] == (8, True)
    # Warm up that does not settle ends after fifty steps and says so.
    count, settled, rule, problem = warm([2**i for i in range(60)][:24] + [2 ** (24 - i) for i in range(24)] + [1, 9] * 20)
    assert (count, settled) == (50, False)
    assert rule.startswith("not settled after 50 warm-up steps")
    assert problem.startswith("step times had not settled when timing started: medians of the last 3 steps")
    # Warm up that does not settle ends after thirty seconds.
    assert warm([10**9 * 2**i for i in range(20)])[:2] == (5, False)  # 1 + 2 + 4 + 8 + 16 s


def test_a_budget_says_how_many_steps_are_left():
    budget = Budget(120.0)
    assert (budget.steps(12.0), budget.steps(12.0, 1 / 2), budget.steps(500.0)) == (9, 4, 0)
    assert Budget(0.0).steps(1.0) == 0
    warmup = WarmUp(None, most_s=20.0)
    warmup.first_step(12 * 10**9)
    warmup.add(12 * 10**9)
    assert not warmup.is_over()
    warmup.add(12 * 10**9)
    assert warmup.is_over()


def test_the_first_step_does_not_count_for_settling_and_counts_as_a_step():
    warmup = WarmUp(None, most=20)
    warmup.first_step(10**9)
    for _ in range(5):
        warmup.add(100)
    assert not warmup.is_over()
    warmup.add(100)
    assert warmup.is_over()
    assert len(warmup.times_ns) == 7
    asked = WarmUp(1)
    asked.first_step(10**9)
    assert asked.is_over()


def test_ranks_of_a_job_take_the_same_number_of_steps_whatever_they_see():
    for times in ([100] * 30, [2**i for i in range(30)]):
        warmup = WarmUp(None, alike=lambda: True)
        warmup.first_step(5)
        taken = 0
        while not warmup.is_over():
            warmup.add(times[taken])
            taken += 1
        assert (taken, warmup.rule, warmup.settled) == (8, "8 warm-up steps, the same on every rank", None)


@pytest.mark.skipif(heap_bytes() is None, reason="the C library does not say how large its heap is")
def test_small_blocks_are_in_the_heap_and_large_ones_are_not():
    import torch

    gc.collect()  # what earlier tests left would be freed in between
    before = heap_bytes()
    small = [torch.empty(1000) for _ in range(2000)]
    assert heap_bytes() - before >= 2000 * 4000
    before = heap_bytes()
    large = torch.empty(2 << 30, dtype=torch.uint8)  # more than what earlier tests may have left free in the heap; never touched
    assert heap_bytes() - before < 1 << 20
    assert len(small) + len(large) > 0


@pytest.mark.parametrize("blind", [False, True])
def test_what_grows_is_stopped_on_the_main_thread(monkeypatch, blind):
    heap = iter(range(0, 1 << 40, 60 << 20))
    monkeypatch.setattr(tracer, "heap_bytes", lambda: None if blind else next(heap))
    monkeypatch.setattr(tracer, "BLIND_LIMIT_S", 0.2)
    threads = []
    bound = TraceBound(lambda: threads.append(threading.current_thread()))
    assert bound.possible
    before = signal.getsignal(signal.SIGURG)
    bound.start()
    deadline = time.monotonic() + 30
    while not bound.reached and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threads == [threading.main_thread()]
    assert signal.getsignal(signal.SIGURG) == before


def test_what_is_stopped_before_and_another_thread_are_not_interrupted(monkeypatch):
    # What is stopped before is not stopped again.
    monkeypatch.setattr(tracer, "heap_bytes", lambda: 0)
    stopped = []
    bound = TraceBound(lambda: stopped.append(1))
    bound.start()
    bound.stop()
    bound.stop()
    assert (stopped, bound.reached) == ([], False)
    # Another thread cannot be interrupted.
    seen = []
    thread = threading.Thread(target=lambda: seen.append(TraceBound(lambda: None).possible))
    thread.start()
    thread.join()
    assert seen == [False]


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


BUSY = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True)\ninput()"


def test_children_are_no_other_programs(monkeypatch):
    """With a machine whose clocks stand still, all that changes is what this program and its child have spent."""
    whole = psutil.cpu_times()
    monkeypatch.setattr(psutil, "cpu_times", lambda: whole)
    before = others._others_s()
    with subprocess.Popen([sys.executable, "-c", BUSY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        child.stdout.readline()
        while_it_lives = others._others_s()
        child.communicate("\n")
    after = others._others_s()
    assert before - while_it_lives >= 0.25, "the child has spent 0.3 s, in ticks of 10 ms"
    assert after <= while_it_lives


STEPS, WAITS = (100, 100, 100), (0, 5, 6)


def sample(time_ns, machine, own):
    return DeviceSample(time_ns=time_ns, source="psutil", cpu_utilization=machine, process_cpu_utilization=own)


def test_which_steps_other_programs_disturbed():
    # A step is quiet up to a twentieth of waiting.
    assert [is_quiet(*step) for step in zip(STEPS, WAITS, strict=True)] == [True, True, False]
    # Others take what the machine does beyond the program.
    samples = [sample(1, 0.5, 1.5), sample(2, 1.0, 1.0), DeviceSample(time_ns=3, source="nvml")]
    assert busy_elsewhere(samples, 4) == [0.5, 3.0]
    assert busy_elsewhere(samples, 4, from_ns=2) == [3.0]
    # Steps are left out only beside other programs.
    assert quiet_steps(STEPS, WAITS, [0.0, 1.0]).tolist() == [True, True, False]
    assert quiet_steps(STEPS, WAITS, [0.0, 0.1]).tolist() == [True] * 3  # the program's own threads wait for each other
    assert quiet_steps(STEPS, (), [1.0]).tolist() == [True] * 3  # the system does not count it
    assert not is_shared([])
    # Of the traced steps the half counts that takes pages as the timed ones do.
    every = np.ones(5, bool)
    assert alike_steps([0, 1000, 2000, 5000, 7000], 1500.0, every).tolist() == [True, True, True, False, False]
    assert alike_steps([3, 0, 90, 12, 40], 20.0, every).tolist() == [True] * 5  # they hardly differ
    assert alike_steps((), 20.0, every).tolist() == [True] * 5  # the system does not count them
    disturbed = np.array([False, True, True, True, True])
    assert alike_steps([1500, 1000, 2000, 5000, 7000], 1500.0, disturbed).tolist() == [False, True, True, False, False]
