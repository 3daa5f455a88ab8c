"""How often to read: the update period and the step size of a counter, found by reading it, and a limit for
costly readings."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Generic, NamedTuple, TypeVar

# How long a counter is watched at most, and how many changes are enough.
WATCH_S, ENOUGH_CHANGES = 0.05, 12
# Steps are inferred from this many different values: fewer may fit a wrong step by chance.
FEWEST_VALUES = 5
# A change is sharp that is known to this share of the period.
SHARP = 0.1


class UpdatePace(NamedTuple):
    """Properties of a counter, found from its readings.

    ``period_s`` is the time between two new values, None when fewer than two were seen: one alone says
    nothing about the next. It is at least the time between two readings. ``step`` is the largest number that
    divides every change, None without a change; the counter's resolution is that or a part of it.
    """

    period_s: float | None
    step: int | None


def pace(readings: Sequence[tuple[float, int]]) -> UpdatePace:
    """Return the properties shown by ``readings``: times in seconds, ascending, and values in whole units of
    the counter.

    The period is the median time between two changes, made more precise. Where the reader was delayed, it is
    unknown when in that time the value changed: such changes are left out where there are others. Where a
    value was missed, or happened to be the same after an update, the interval counts as the number of medians
    that fit into it, and the mean over all periods is taken.
    """
    pairs = list(pairwise(readings))
    divisor = math.gcd(*(other - value for (_, value), (_, other) in pairs)) or None
    # The middle of the time in which each change came, and how long that time was.
    changes = [
        ((before + after) / 2, after - before) for (before, value), (after, other) in pairs if other != value
    ]
    if not pairs:
        return UpdatePace(None, divisor)
    reading_s = _median([after - before for (before, _), (after, _) in pairs])
    moments = [moment for moment, _ in changes]
    median = _median(_intervals(moments)) if len(moments) > 1 else 0.0
    if not median:
        return UpdatePace(None, divisor)
    sharp = [moment for moment, doubt in changes if doubt <= max(SHARP * median, 2 * reading_s)]
    intervals = _intervals(sharp if len(sharp) > 1 else moments)
    # Both ends of an interval are known to a reading, and so is the median.
    longest = median + 2 * reading_s
    periods = sum(round(interval / median) if interval > longest else 1 for interval in intervals)
    return UpdatePace(sum(intervals) / periods, divisor)


def watch(
    read: Callable[[], int], *, watch_s: float = WATCH_S, changes: int = ENOUGH_CHANGES
) -> tuple[float | None, tuple[int, ...]]:
    """Read a counter as fast as possible, until it has changed often enough or for ``watch_s`` seconds.

    Returns the seconds between changes, None when there were fewer than two, and the different values.
    """
    values = [read()]
    began = time.perf_counter()
    readings = [(began, values[0])]
    while len(values) <= changes + 1 and (now := time.perf_counter()) - began < watch_s:
        value = read()
        readings.append((now, value))
        if value != values[-1]:
            values.append(value)
    return pace(readings).period_s, tuple(values)


def step(values: Sequence[int], candidates: Sequence[int], scale: int = 1) -> int | None:
    """The largest of ``candidates`` of which every one of ``values`` is a multiple; None when too few are
    given or none fits.

    A candidate is in units of which ``scale`` make one of the values, and a multiple of it was cut to a whole
    value.
    """
    if len(set(values)) < FEWEST_VALUES:
        return None
    for size in sorted(candidates, reverse=True):
        if all(-(-value * scale // size) * size // scale == value for value in values):
            return size
    return None


def _intervals(moments: Sequence[float]) -> list[float]:
    return [after - before for before, after in pairwise(moments)]


def _median(numbers: Sequence[float]) -> float:
    # The standard library's comes with fractions and decimals: megabytes, in a process that should be small.
    ordered = sorted(numbers)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


T = TypeVar("T")


class RateLimited(Generic[T]):
    """Asks ``question`` when called, but not before ``every_s`` seconds have passed since it did, nor so
    often that asking takes more than ``share`` of a core. None in between. What a question costs depends on
    the machine (hundreds of cores) and on what is watched (hundreds of processes, terabytes of pages), so it
    is measured, every time.
    """

    def __init__(self, question: Callable[[], T], *, every_s: float = 0.0, share: float) -> None:
        self._question = question
        self._every_s = every_s
        self._share = share
        self._due = -float("inf")
        self._primed: T | None = None

    def prime(self) -> None:
        """Ask now and keep the answer for the next call."""
        self._primed = self()

    def __call__(self) -> T | None:
        if self._primed is not None:
            answer, self._primed = self._primed, None
            return answer
        now = time.monotonic()
        if now < self._due:
            return None
        before_s = time.thread_time()
        answer = self._question()
        # A tenth of a period early is in time: a second's question asked ten times a second is asked every
        # tenth time.
        self._due = now + max(0.9 * self._every_s, (time.thread_time() - before_s) / self._share)
        return answer
