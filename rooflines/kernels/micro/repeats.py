"""When a repeated measurement may be believed: repeats until the last few agree, then their median and their spread."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

REPEATS = 5
AGREEMENT = 0.02  # coefficient of variation at which the clock counts as settled
UNSTABLE = 0.05  # and above which the figure is marked


class Repeats(NamedTuple):
    """The median of the last ``REPEATS`` samples, their coefficient of variation, and how many samples were taken in all."""

    median: float
    spread: float
    count: int

    @property
    def unstable(self) -> bool:
        """True where even a second try left a spread above ``UNSTABLE``."""
        return self.spread > UNSTABLE


def settle(sample: Callable[[], float], budget_s: float, clock: Callable[[], float] = time.perf_counter) -> Repeats:
    """Take samples until the last ``REPEATS`` agree or ``budget_s`` seconds have passed, whichever is first.

    Where they still differ by more than ``UNSTABLE``, the same once more; the steadier of both tries is returned.
    """
    first = _window(sample, budget_s, clock)
    if not first.unstable:
        return first
    second = _window(sample, budget_s, clock)
    steadier = min(first, second, key=lambda repeats: repeats.spread)
    return steadier._replace(count=first.count + second.count)


def calls_for(duration_s: float, run: Callable[[int], float]) -> int:
    """How many calls last about ``duration_s`` seconds; ``run(calls)`` makes them and returns the seconds all of them took."""
    calls = 1
    while True:
        took = run(calls)
        if took >= duration_s / 4:
            return max(1, round(calls * duration_s / took))
        # at most eight times more at once: the first calls are slow (page faults, caches, code to load)
        calls = max(calls + 1, min(calls * 8, int(calls * duration_s / max(took, 1e-9))))


def _window(sample: Callable[[], float], budget_s: float, clock: Callable[[], float]) -> Repeats:
    deadline = clock() + budget_s
    samples: list[float] = []
    while True:
        samples.append(sample())
        last = samples[-REPEATS:]
        if len(last) < REPEATS:
            continue
        spread = statistics.stdev(last) / statistics.mean(last)
        if spread <= AGREEMENT or clock() >= deadline:
            return Repeats(statistics.median(last), spread, len(samples))
