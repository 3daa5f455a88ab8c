"""The axes of the chart: their limits, and the ticks written at them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from rooflines.units import significant

# Room around the outermost mark, and the least that an axis spans, in decades.
_MARGIN = 0.25
_LEAST_SPAN = 2.0


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The axes: FLOP/byte from ``x_low`` to ``x_high``, FLOP/s from ``y_low`` to ``y_high``, both logarithmic."""

    x_low: float
    x_high: float
    y_low: float
    y_high: float

    def fraction(self, x: float, y: float) -> tuple[float, float]:
        """Where a value lies between the ends of the axes, 0 to 1."""
        return _share(x, self.x_low, self.x_high), _share(y, self.y_low, self.y_high)

    def value(self, across: float, up: float) -> tuple[float, float]:
        """The inverse of ``fraction``."""
        return self.x_low * (self.x_high / self.x_low) ** across, self.y_low * (self.y_high / self.y_low) ** up

    def contains(self, x: float, y: float) -> bool:
        """Whether a value can be seen."""
        return self.x_low <= x <= self.x_high and self.y_low <= y <= self.y_high


class Tick(msgspec.Struct, frozen=True, kw_only=True):
    """A decade of an axis with the number written at it."""

    value: float
    text: str


def limits_around(marks: Sequence[tuple[float, float]], levels: Sequence[float]) -> Limits:
    """The smallest axes that hold every mark and level with a margin. They end where the data ends, so no empty decade is left."""
    x_low, x_high = _padded([x for x, _ in marks])
    y_low, y_high = _padded([y for _, y in marks] + list(levels))
    return Limits(x_low=x_low, x_high=x_high, y_low=y_low, y_high=y_high)


def _padded(values: Sequence[float]) -> tuple[float, float]:
    low, high = math.log10(min(values)) - _MARGIN, math.log10(max(values)) + _MARGIN
    missing = max(0.0, _LEAST_SPAN - (high - low)) / 2
    return 10 ** (low - missing), 10 ** (high + missing)


def ticks(low: float, high: float, factor: float) -> tuple[Tick, ...]:
    """A tick at every decade between ``low`` and ``high``, written in multiples of ``factor``."""
    first, last = math.ceil(math.log10(low / factor) - 1e-9), math.floor(math.log10(high / factor) + 1e-9)
    every = max(1, math.ceil((last - first + 1) / 10))
    return tuple(Tick(value=factor * 10.0**power, text=significant(10.0**power, 1)) for power in range(first, last + 1, every))


def _share(value: float, low: float, high: float) -> float:
    return math.log(value / low) / math.log(high / low)
