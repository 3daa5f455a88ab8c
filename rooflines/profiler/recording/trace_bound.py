"""Ends a trace before it becomes too large if no end of a step is found.

torch's profiler keeps every operator in memory and cannot say how many there are. What it keeps are small blocks of the C heap, a few
kilobytes an operator, so the growth of that heap bounds their number; large tensors are not part of it.
"""

from __future__ import annotations

import _thread
import ctypes
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

# About 40,000 operators, at 2.5 kB each: a second or two to write, some 150 MB of JSON.
HEAP_LIMIT_BYTES = 100 << 20
# Where the heap cannot be asked, a trace ends after this time: tens of thousands of operators a second are usual.
BLIND_LIMIT_S = 5.0
_PERIOD_S = 0.1
# Ignored by default, so that a run without a handler is not disturbed.
_SIGNAL = getattr(signal, "SIGURG", None)


class TraceBound:
    """Calls ``stop`` on the main thread once the C heap has grown by ``HEAP_LIMIT_BYTES`` since ``start``; ``reached`` says whether.

    Only the thread that started a profiler may stop it. On another thread than the main one, or where Python cannot interrupt that,
    nothing is bounded and ``possible`` is False: do not trace there without knowing that the trace ends.
    """

    def __init__(self, stop: Callable[[], object]) -> None:
        self.reached = False
        self.possible = _SIGNAL is not None and threading.current_thread() is threading.main_thread()
        self._stop = stop
        self._over = threading.Event()
        self._before: Any = None

    def start(self) -> None:
        """Watch from here on."""
        assert _SIGNAL is not None
        self._before = signal.signal(_SIGNAL, self._on_signal)
        threading.Thread(target=self._watch, name="rooflines-trace-bound", daemon=True).start()

    def stop(self) -> None:
        """Stop watching."""
        if not self._over.is_set():
            self._over.set()
            if signal.getsignal(_SIGNAL) == self._on_signal:  # type: ignore[arg-type]
                signal.signal(_SIGNAL, self._before)  # type: ignore[arg-type]

    def _watch(self) -> None:
        heap, began = heap_bytes(), time.monotonic()
        while not self._over.wait(_PERIOD_S):
            now = heap_bytes()
            too_long = heap is None and time.monotonic() - began > BLIND_LIMIT_S
            if too_long or (heap is not None and now is not None and now - heap > HEAP_LIMIT_BYTES):
                _thread.interrupt_main(_SIGNAL)  # type: ignore[arg-type]
                return

    def _on_signal(self, *_: object) -> None:
        if not self._over.is_set():
            self.stop()
            self.reached = True
            self._stop()


class _Mallinfo(ctypes.Structure):
    """glibc's ``struct mallinfo2`` (malloc.h, glibc 2.33 and later)."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()  # noqa: SIM905 (as in malloc.h)
    )


def heap_bytes() -> int | None:
    """The bytes in use in the C heap, without blocks so large that they are mapped by themselves; None without glibc 2.33."""
    try:
        ask = ctypes.CDLL(None).mallinfo2
    except (AttributeError, OSError, TypeError):
        return None
    ask.restype = _Mallinfo
    used: int = ask().uordblks
    return used
