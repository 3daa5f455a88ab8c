"""One timed repeat of a kernel: how long it took, the share of its cores it had, and how many calls make it
long enough."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NamedTuple


class Timing(NamedTuple):
    """``seconds`` that something took, and the share of its cores it had meanwhile (1 where that cannot be
    known).

    ``peak_s`` is what it would have taken at the pace of its fastest part; None where parts were not timed.
    """

    seconds: float
    busy: float = 1.0
    peak_s: float | None = None


Run = Callable[[int], Timing]  # makes this number of calls and returns how long they took together


def share(processor_ns: int, elapsed_ns: int) -> float:
    """The share of a core that ``processor_ns`` of processor time are of the ``elapsed_ns`` that passed,
    above 0 and at most 1.

    Windows counts processor time in ticks of 16 ms, too coarse for one sample: there it is not known, which
    is 1.
    """
    if sys.platform == "win32":
        return 1.0
    return min(1.0, max(1, processor_ns) / max(1, elapsed_ns))


def calls_for(duration_s: float, run: Run) -> int:
    """Return how many calls of ``run`` last about ``duration_s`` seconds."""
    calls = 1
    while True:
        took = run(calls).seconds
        if took >= duration_s / 4:
            return max(1, round(calls * duration_s / took))
        # at most eight times more at once: the first calls are slow (page faults, caches, code to load)
        calls = max(calls + 1, min(calls * 8, int(calls * duration_s / max(took, 1e-9))))
