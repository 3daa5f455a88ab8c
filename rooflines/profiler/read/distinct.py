"""Distinct numbers and rows of numbers in columns, sorted, without sorting the columns where their numbers
are few.

``numpy.unique`` sorts everything, and rows as text: ten to a hundred times as slow for codes of names,
threads and groups.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]

# Largest size of the table of all numbers between the minimum and the maximum, in entries for each number of
# the column.
_MOST_ENTRIES = 8


def distinct(column: npt.NDArray[Any]) -> tuple[Int64s, Int64s]:
    """The distinct integers in ``column``, sorted, and for each of its entries which of them it is."""
    values = np.asarray(column, np.int64).reshape(-1)
    if not len(values):
        return values, values
    low, high = int(values.min()), int(values.max())
    if high - low > _MOST_ENTRIES * len(values):
        numbers, which = np.unique(values, return_inverse=True)
        return numbers, which.reshape(-1).astype(np.int64)
    shifted = values - low
    present = np.zeros(high - low + 1, bool)
    present[shifted] = True
    return np.flatnonzero(present) + low, (np.cumsum(present) - 1)[shifted]


def distinct_rows(*columns: npt.NDArray[Any]) -> tuple[Int64s, Int64s]:
    """The distinct rows of ``columns`` of integers, sorted, and for each row which of them it is."""
    which = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        numbers, place = distinct(column)
        which = distinct(which * len(numbers) + place)[1]
    first = np.empty(int(which.max(initial=-1)) + 1, np.int64)
    first[which] = np.arange(len(which))  # any one row of each
    return np.stack([np.asarray(column, np.int64)[first] for column in columns], axis=1), which
