"""Numbers as recorders write them, in some versions as text: a trace is anybody's, and nothing is promised of
its types."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np

from rooflines.profiler.read.document import FLOATS_ROUND_FROM_US
from rooflines.profiler.read.records import Int32s, Int64s, Mask

# Times further from zero than this are none (the year 2096, in microseconds since 1970), so that no
# difference of two overflows.
_FARTHEST_US = 4e15
_MOST_DEVICES = 1 << 20


def nanoseconds(values: list[Any]) -> tuple[Int64s, Mask]:
    """Microseconds, as Kineto writes them (numbers, in some versions text), in whole nanoseconds, and which
    of them are any.

    Text is read to its last digit where a float would round it."""
    try:
        microseconds = np.array(values, np.float64)
    except (TypeError, ValueError, OverflowError):
        microseconds = np.empty(())
    if microseconds.shape != (len(values),):  # not all of them are numbers, or there is a list among them
        microseconds = np.array([decimal(value) for value in values], np.float64)
    known = np.abs(microseconds) < _FARTHEST_US  # false for NaN
    microseconds = np.where(known, microseconds, 0.0)
    whole = np.floor(microseconds)
    nanoseconds = whole.astype(np.int64) * 1000 + np.rint((microseconds - whole) * 1000).astype(np.int64)
    for i in np.flatnonzero(np.abs(microseconds) >= FLOATS_ROUND_FROM_US).tolist():
        if isinstance(values[i], str):
            nanoseconds[i] = round(Decimal(values[i]) * 1000)
    return nanoseconds, known


def decimal(value: Any) -> float:
    """A number, or text of one; NaN for anything else."""
    if isinstance(value, (int, float, str)) and not isinstance(value, bool):
        try:
            return float(value)
        except (ValueError, OverflowError):
            pass
    return float("nan")


def integers(values: list[Any], default: int) -> Int64s:
    """Whole numbers, or text of digits; ``default`` for everything else."""
    types = set(map(type, values))
    if types <= {type(None)}:
        return np.full(len(values), default, np.int64)
    if types <= {type(None), int}:
        filled = [default if value is None else value for value in values] if len(types) > 1 else values
        try:
            return np.fromiter(filled, np.int64, len(values))
        except OverflowError:
            pass
    numbers = (integer(value) for value in values)
    return np.array([default if number is None else number for number in numbers], np.int64)


def ordinals(values: list[Any]) -> Int32s:
    """Numbers of devices; 0 for what is none."""
    numbers = integers(values, 0)
    return np.where((numbers >= 0) & (numbers < _MOST_DEVICES), numbers, 0).astype(np.int32)


def integer(value: Any) -> int | None:
    """A whole number, or text of digits; None for anything else and beyond 62 bits."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value if -(1 << 62) < value < 1 << 62 else None
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 19:
        return int(value)
    return None
