"""The cost of memory that is new to the process: the system is entered, fills a page with zeros, and takes it
back."""

from __future__ import annotations

import mmap
import statistics
import time

import numpy as np

PAGE_BYTES = 4096
_BYTES, _REPEATS = 64 << 20, 5


def page_s(*, huge: bool = False) -> float | None:
    """Return the seconds that 4 KiB of new memory cost: the median of five times 64 MiB; ``huge`` asks for
    transparent huge pages.

    None where the system does not let a process choose the kind of pages.
    """
    advice = getattr(mmap, "MADV_HUGEPAGE" if huge else "MADV_NOHUGEPAGE", None)
    if advice is None:
        return None
    times = []
    for _ in range(_REPEATS):
        memory = mmap.mmap(-1, _BYTES)
        try:
            memory.madvise(advice)
        except OSError:
            memory.close()
            return None
        began = time.perf_counter()
        touched = np.frombuffer(memory, np.uint8)
        touched[::PAGE_BYTES] = 1
        del touched
        memory.close()
        times.append(time.perf_counter() - began)
    return statistics.median(times) / (_BYTES // PAGE_BYTES)
