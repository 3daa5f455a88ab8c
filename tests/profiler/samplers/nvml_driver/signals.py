"""What a scripted GPU does over time, with the exact integral: the truth that a measurement of it is held against.

Times are seconds since the script's zero, values in the script's units (docs in README.md). The formulas are those of ``nvml.c``.
"""

import math
from typing import NamedTuple


class Constant(NamedTuple):
    """Always ``value``."""

    value: float

    def at(self, time_s: float) -> float:
        return self.value

    def integral(self, time_s: float) -> float:
        return self.value * time_s


class Square(NamedTuple):
    """``high`` for the first ``duty`` of every period, ``low`` for the rest; a period begins at ``phase_s``."""

    low: float
    high: float
    period_s: float
    duty: float = 0.5
    phase_s: float = 0.0

    def at(self, time_s: float) -> float:
        position = (time_s - self.phase_s) / self.period_s
        return self.high if position - math.floor(position) < self.duty else self.low

    def integral(self, time_s: float) -> float:
        position = (time_s - self.phase_s) / self.period_s
        whole = math.floor(position)
        high = whole * self.duty + min(position - whole, self.duty)
        return self.period_s * (self.low * position + (self.high - self.low) * high)


class Ramp(NamedTuple):
    """``before`` until ``start_s``, then evenly to ``after`` over ``seconds``, and so it stays."""

    before: float
    after: float
    start_s: float
    seconds: float

    def at(self, time_s: float) -> float:
        share = 1.0 if self.seconds == 0 else min(max((time_s - self.start_s) / self.seconds, 0.0), 1.0)
        return self.before if time_s < self.start_s else self.before + (self.after - self.before) * share

    def integral(self, time_s: float) -> float:
        since = time_s - self.start_s
        if since <= 0:
            return self.before * since
        ramped = min(since, self.seconds)
        half = (self.after - self.before) * ramped**2 / (2 * self.seconds) if self.seconds else 0.0
        return self.before * ramped + half + self.after * (since - ramped)


class Burst(NamedTuple):
    """``height`` for ``seconds`` from ``start_s`` on, again every ``every_s`` where given, 0 otherwise: to be added to something."""

    height: float
    start_s: float
    seconds: float
    every_s: float = 0.0

    def at(self, time_s: float) -> float:
        since = time_s - self.start_s
        if since < 0:
            return 0.0
        return self.height if (since % self.every_s if self.every_s else since) < self.seconds else 0.0

    def integral(self, time_s: float) -> float:
        since = time_s - self.start_s
        if since < 0:
            return 0.0
        whole = math.floor(since / self.every_s) if self.every_s else 0
        return self.height * (whole * self.seconds + min(since - whole * self.every_s, self.seconds))


Term = Constant | Square | Ramp | Burst


def lines(signal: str, *terms: Term) -> str:
    """The lines of a script by which ``signal`` (``power``, ``utilization``, ...) is the sum of ``terms``."""
    return "".join(f"{signal} {type(term).__name__.lower()} {' '.join(repr(float(number)) for number in term)}\n" for term in terms)


def integral(terms: tuple[Term, ...] | list[Term], start_s: float, end_s: float) -> float:
    """The exact integral of the sum of ``terms``: of power, the joules spent between two times."""
    return sum(term.integral(end_s) - term.integral(start_s) for term in terms)
