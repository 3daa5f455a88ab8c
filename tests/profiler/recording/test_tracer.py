"""Traces that would grow without end are ended, on the thread that may do so."""

import gc
import signal
import threading
import time

import pytest

from rooflines.profiler.recording import tracer
from rooflines.profiler.recording.tracer import TraceBound, heap_bytes


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


def test_what_is_stopped_before_is_not_stopped_again(monkeypatch):
    monkeypatch.setattr(tracer, "heap_bytes", lambda: 0)
    stopped = []
    bound = TraceBound(lambda: stopped.append(1))
    bound.start()
    bound.stop()
    bound.stop()
    assert (stopped, bound.reached) == ([], False)


def test_another_thread_cannot_be_interrupted():
    seen = []
    thread = threading.Thread(target=lambda: seen.append(TraceBound(lambda: None).possible))
    thread.start()
    thread.join()
    assert seen == [False]
