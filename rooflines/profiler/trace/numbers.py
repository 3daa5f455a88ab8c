"""Numbers in the fields of events: times, ids, ordinals. What is not a number of the expected kind has a default."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt

from rooflines.profiler.trace.document import FLOATS_ROUND_FROM_US, Args
from rooflines.profiler.trace.records import Int32s, Int64s

# Times further from zero than this are none (the year 2096, in microseconds since 1970), so that no difference of two overflows.
_FARTHEST_US = 4e15
_MOST_DEVICES = 1 << 20


def nanoseconds(values: list[Any]) -> tuple[Int64s, npt.NDArray[np.bool_]]:
    """Microseconds, as Kineto writes them (numbers, in some versions text), in whole nanoseconds, and which of them are any.

    Text is read to its last digit where a float would round it."""
    try:
        found = np.array(values, np.float64)
    except (TypeError, ValueError, OverflowError):
        found = np.array([_microseconds(value) for value in values], np.float64)
    if found.shape != (len(values),):  # a list among them
        found = np.array([_microseconds(value) for value in values], np.float64)
    known = np.abs(found) < _FARTHEST_US  # false for NaN
    found = np.where(known, found, 0.0)
    whole = np.floor(found)
    nanoseconds = whole.astype(np.int64) * 1000 + np.rint((found - whole) * 1000).astype(np.int64)
    for i in np.flatnonzero(np.abs(found) >= FLOATS_ROUND_FROM_US).tolist():
        if isinstance(values[i], str):
            nanoseconds[i] = round(Decimal(values[i]) * 1000)
    return nanoseconds, known


def _microseconds(value: Any) -> float:
    if isinstance(value, (int, float, str)) and not isinstance(value, bool):
        try:
            return float(value)
        except (ValueError, OverflowError):
            pass
    return float("nan")


def integers(values: list[Any], default: int) -> Int64s:
    """Whole numbers, or text of digits; ``default`` for everything else."""
    filled = [default if value is None else value for value in values] if None in values else values
    if set(map(type, filled)) == {int}:
        try:
            return np.fromiter(filled, np.int64, len(filled))
        except OverflowError:
            pass
    found = (integer(value) for value in values)
    return np.array([default if value is None else value for value in found], np.int64)


def correlations(args: list[Args], launching: npt.NDArray[np.bool_]) -> Int64s:
    """The correlation ids of events; -1 for none, and -2 - n for a launch or a device event (``launching``) with only the external id
    n."""
    found = integers([one.correlation if one.correlation is not None else one.old_correlation for one in args], -1)
    lacking = np.flatnonzero((found < 0) & launching)
    external = integers([args[i].external for i in lacking.tolist()], -1)
    found[lacking] = np.where(external >= 0, -2 - external, -1)
    return found


def linked(calls: Int64s, is_runtime: npt.NDArray[np.bool_], device: Int64s) -> tuple[Int64s, Int64s]:
    """The correlation ids of host and device events. Some traces of ROCm have no others than external ids; elsewhere the external id is
    that of the operator."""
    named = bool((calls[is_runtime] >= 0).any() or (device >= 0).any())
    both = (np.where(is_runtime, calls, -1), device)
    calls, device = (np.where(column >= -1, column, -1 if named else -2 - column) for column in both)
    return calls, device


def ordinals(values: list[Any]) -> Int32s:
    """Numbers of devices; 0 for what is none."""
    found = integers(values, 0)
    return np.where((found >= 0) & (found < _MOST_DEVICES), found, 0).astype(np.int32)


def integer(value: Any) -> int | None:
    """A whole number, or text of digits; None for anything else and beyond 62 bits."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value if -(1 << 62) < value < 1 << 62 else None
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 19:
        return int(value)
    return None
