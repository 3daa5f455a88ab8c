"""When a repeated measurement may be believed: repeats until the last few agree, then their median and their spread.

Agreement is not enough on a shared machine: another process that keeps one of two cores busy halves every sample alike. So a sample
also carries the share of its cores that it really had, and samples that had to wait for one do not count while quiet ones can be had.
"""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

REPEATS = 5
AGREEMENT = 0.02  # coefficient of variation at which the clock counts as settled
UNSTABLE = 0.05  # and above which the figure is marked
BUSY = 0.95  # share of processor time below which a sample was disturbed


class Timing(NamedTuple):
    """``seconds`` that something took, and the share of its cores it had meanwhile (1 where that cannot be known)."""

    seconds: float
    busy: float = 1.0


def share(processor_ns: int, elapsed_ns: int) -> float:
    """The share of a core that ``processor_ns`` of processor time are of the ``elapsed_ns`` that passed, above 0 and at most 1.

    Windows counts processor time in ticks of 16 ms, too coarse for one sample: there it is not known, which is 1.
    """
    if sys.platform == "win32":
        return 1.0
    return min(1.0, max(1, processor_ns) / max(1, elapsed_ns))


class Sample(NamedTuple):
    """One value (a rate or a time) and the share of its cores it was measured with."""

    value: float
    busy: float = 1.0


class Repeats(NamedTuple):
    """The median of the last ``REPEATS`` samples that count, their coefficient of variation, and the samples taken in all.

    ``disturbed`` where there were too few quiet samples, so that disturbed ones had to count.
    """

    median: float
    spread: float
    taken: int
    disturbed: bool = False

    @property
    def unstable(self) -> bool:
        """True where even a second try left a spread above ``UNSTABLE``."""
        return self.spread > UNSTABLE


def settle(
    sample: Callable[[], Sample], budget_s: float, clock: Callable[[], float] = time.perf_counter, *, again: bool = True
) -> Repeats:
    """Take samples until the last ``REPEATS`` agree or ``budget_s`` seconds have passed, whichever is first.

    Where they were disturbed or still differ by more than ``UNSTABLE``, the same once more (unless not ``again``); the better of both
    tries is returned.
    """
    first = _window(sample, budget_s, clock)
    if not (again and (first.unstable or first.disturbed)):
        return first
    second = _window(sample, budget_s, clock)
    better = min(first, second, key=lambda repeats: (repeats.disturbed, repeats.spread))
    return better._replace(taken=first.taken + second.taken)


def calls_for(duration_s: float, run: Callable[[int], Timing]) -> int:
    """How many calls last about ``duration_s`` seconds; ``run(calls)`` makes them and says how long all of them took."""
    calls = 1
    while True:
        took = run(calls).seconds
        if took >= duration_s / 4:
            return max(1, round(calls * duration_s / took))
        # at most eight times more at once: the first calls are slow (page faults, caches, code to load)
        calls = max(calls + 1, min(calls * 8, int(calls * duration_s / max(took, 1e-9))))


def _window(sample: Callable[[], Sample], budget_s: float, clock: Callable[[], float]) -> Repeats:
    deadline = clock() + budget_s
    samples: list[Sample] = []
    while True:
        samples.append(sample())
        over = clock() >= deadline
        quiet = [one for one in samples if one.busy >= BUSY]
        disturbed = len(quiet) < REPEATS
        if len(samples) < REPEATS or (disturbed and not over):
            continue
        last = [one.value for one in (samples if disturbed else quiet)[-REPEATS:]]
        mean = statistics.mean(last)
        spread = statistics.stdev(last) / mean if mean > 0 else math.inf
        if spread <= AGREEMENT or over:
            return Repeats(statistics.median(last), spread, len(samples), disturbed)
