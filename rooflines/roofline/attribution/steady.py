"""The steady time of calls on a CPU: what a call site takes in steps that nothing disturbs.

Another program that takes a processor for a scheduler's slice makes a call of 40 µs last milliseconds, and the mean over twenty steps
shows that call. Disturbances only add time, and hit another call in every step, so a call site (the k-th call in a step of a signature
in one module and phase) counts with the lower quartile of its calls.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rooflines.profiler.trace.distinct import distinct_rows
from rooflines.profiler.trace.records import Int64s, Mask

# With fewer steps a quartile says no more than the mean.
FEWEST_STEPS = 3
_QUARTILE = 0.25

Floats = npt.NDArray[np.float64]


def call_sites(group: Int64s, step: Int64s, start_ns: Int64s) -> Int64s:
    """Return the number of the call site of each call: calls of one ``group`` at the same place in the order of their step."""
    order = np.lexsort((start_ns, step, group))
    first = np.ones(len(order), bool)
    first[1:] = (np.diff(group[order]) != 0) | (np.diff(step[order]) != 0)
    position = np.arange(len(order))
    place = np.empty(len(order), np.int64)
    place[order] = position - np.maximum.accumulate(np.where(first, position, 0))
    return distinct_rows(group, place)[1]


def steady_times(site: Int64s, time_ns: npt.NDArray[np.generic], quiet: Mask) -> Floats:
    """Return for each call the lower quartile of the times of its site, in the unit of ``time_ns``.

    Of a site with at least ``FEWEST_STEPS`` calls in ``quiet`` steps only those count.
    """
    sites = int(site.max(initial=-1)) + 1
    counted = quiet | (np.bincount(site, weights=quiet, minlength=sites) < FEWEST_STEPS)[site]
    of, times = site[counted], time_ns[counted].astype(np.float64)
    times = times[np.lexsort((times, of))]
    number = np.bincount(of, minlength=sites)
    place = _QUARTILE * (number - 1)
    low = np.cumsum(number) - number + place.astype(np.int64)
    high = np.minimum(low + 1, np.cumsum(number) - 1)
    quartile: Floats = times[low] + (place % 1) * (times[high] - times[low])
    return quartile[site]
