"""Sets of time intervals as sorted integer arrays: unions and differences, so that no nanosecond is counted
twice.

An interval set is an int64 array [n, 2] of half-open ``[start, end)`` nanoseconds, sorted and disjoint (what
``union`` returns).
"""

from __future__ import annotations

import numpy as np

from rooflines.profiler.read.distinct import Int64s, distinct

Intervals = Int64s
NONE: Intervals = np.empty((0, 2), np.int64)
_EARLIEST, _LATEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


def union(starts: Int64s, ends: Int64s) -> Intervals:
    """The union of ``[starts[i], ends[i])`` in any order; empty and negative intervals vanish."""
    keep = ends > starts
    if not keep.all():
        starts, ends = starts[keep], ends[keep]
    if starts.size == 0:
        return NONE
    if (
        starts[1:] < starts[:-1]
    ).any():  # most columns are in order, and copies of them would take most of the time
        order = np.argsort(starts, kind="stable")
        starts, ends = starts[order], ends[order]
    ends = np.maximum.accumulate(ends)
    between = np.flatnonzero(starts[1:] > ends[:-1])
    return np.stack((starts[np.append(0, between + 1)], ends[np.append(between, len(ends) - 1)]), axis=1)


def length(intervals: Intervals) -> int:
    """Total nanoseconds covered."""
    return int((intervals[:, 1] - intervals[:, 0]).sum())


def lengths_by_group(group: Int64s, starts: Int64s, ends: Int64s, groups: int) -> Int64s:
    """Total nanoseconds covered by the union of the intervals of each group, numbered 0 to ``groups`` - 1."""
    times, which, low, high = _union_by_group(group, starts, ends)
    total = np.zeros(groups, np.int64)
    np.add.at(total, which, times[high] - times[low])
    return total


def alone_by_group(group: Int64s, starts: Int64s, ends: Int64s, groups: int) -> Int64s:
    """Nanoseconds in which only the intervals of one group run, for each group, numbered 0 to ``groups`` -
    1."""
    times, which, low, high = _union_by_group(group, starts, ends)
    count = len(times)
    running = np.bincount(low, minlength=count) - np.bincount(high, minlength=count)
    number = np.bincount(low, which, count) - np.bincount(high, which, count)
    is_alone = np.cumsum(running)[:-1] == 1
    total = np.bincount(np.cumsum(number)[:-1][is_alone].astype(np.int64), np.diff(times)[is_alone], groups)
    return total.astype(np.int64)


def _union_by_group(group: Int64s, starts: Int64s, ends: Int64s) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    """The distinct times, and of each interval in the unions of the groups the group and the indices of its
    start and end among the times."""
    times, rank = distinct(np.concatenate((starts, ends)))
    # Ranks instead of times, so that the groups fit next to each other on one line.
    count = max(1, len(times))
    begin = np.asarray(group, np.int64) * count
    own = union(begin + rank[: len(starts)], begin + rank[len(starts) :])
    which = own[:, 0] // count
    return times, which, own[:, 0] - which * count, own[:, 1] - which * count


def covered(intervals: Intervals, windows: Intervals) -> Int64s:
    """Nanoseconds of ``intervals`` inside each of ``windows``, which may touch or overlap."""
    total = np.concatenate(([0], np.cumsum(intervals[:, 1] - intervals[:, 0])))
    ends = np.append(intervals[:, 1], _EARLIEST)  # the last one is that of none

    def before(times: Int64s) -> Int64s:
        number = np.searchsorted(intervals[:, 0], times, side="right")
        passed: Int64s = total[number] - (np.maximum(ends[number - 1], times) - times)
        return passed

    lengths_ns: Int64s = before(windows[:, 1]) - before(windows[:, 0])
    return lengths_ns


def split(starts: Int64s, ends: Int64s, windows: Intervals) -> tuple[Int64s, Int64s, Int64s]:
    """The parts of ``[starts[i], ends[i])`` that lie in the disjoint ``windows``: the ``i`` of each part, its
    start and its end."""
    begin = np.searchsorted(windows[:, 1], starts, side="right")
    stop = np.searchsorted(windows[:, 0], ends, side="left")
    counts = np.maximum(stop - begin, 0) * (ends > starts)
    index = np.repeat(np.arange(len(starts)), counts)
    at = begin[index] + np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return index, np.maximum(starts[index], windows[at, 0]), np.minimum(ends[index], windows[at, 1])


def clip(intervals: Intervals, start: int, end: int) -> Intervals:
    """The part of ``intervals`` inside ``[start, end)``."""
    return union(np.maximum(intervals[:, 0], start), np.minimum(intervals[:, 1], end))


def merge(*sets: Intervals) -> Intervals:
    """The union of several sets."""
    every = np.concatenate((NONE, *sets))
    return union(every[:, 0], every[:, 1])


def subtract(intervals: Intervals, removed: Intervals) -> Intervals:
    """The part of ``intervals`` that is not in ``removed``."""
    if removed.size == 0:
        return intervals
    # The complement of `removed`, as intervals, intersected with `intervals` by a sweep over both.
    starts, ends = np.append(_EARLIEST, removed[:, 1]), np.append(removed[:, 0], _LATEST)
    return intersect(intervals, np.stack((starts, ends), axis=1))


def intersect(left: Intervals, right: Intervals) -> Intervals:
    """The part that is in both sets."""
    _, starts, ends = split(left[:, 0], left[:, 1], right)
    return union(starts, ends)
