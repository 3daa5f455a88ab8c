"""Curves with fewer points that keep their extremes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def extremes(values: npt.NDArray[Any], most: int = 120) -> npt.NDArray[np.int64]:
    """The indices of at most ``most`` values: the lowest and the highest of equally many neighbors, so that
    no peak is lost."""
    if len(values) <= most:
        return np.arange(len(values))
    # Not numpy.unique, which imports numpy's masked arrays.
    parts = np.array_split(np.arange(len(values)), most // 2)
    return np.array(
        sorted({int(part[at]) for part in parts for at in (np.argmin(values[part]), np.argmax(values[part]))})
    )
