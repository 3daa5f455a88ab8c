"""The nesting of intervals within threads, worked out on whole columns: what each event encloses, and what
encloses it.

Events come in the order of ``HostEvents``: by thread, then start, longest first, so that a caller comes
before what it calls and everything that an event encloses follows it without a gap. ``after[i]`` is the first
event behind those: event ``i`` encloses ``i + 1`` to ``after[i] - 1``. Memory and time are linear in the
number of events but for the sorting, however deep they nest.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rooflines.profiler.read.distinct import distinct
from rooflines.profiler.read.records import HostEvents, Int64s, Mask

# Each round clips what its caller's end has become; real traces need one, rounding errors at most a few.
_ROUNDS = 64


def nest(thread: npt.NDArray[np.integer], start: Int64s, end: Int64s) -> tuple[Int64s, Int64s]:
    """``after`` of every event and its end, clipped to that of its caller.

    An event lies in those that have started and not ended at its start. One of no duration, at the very end
    of another that nothing longer follows at that time, lies in it: clocks of a microsecond put children
    there. An event that outlives its caller, which rounding to nanoseconds makes, ends with it.
    """
    after = _open_until(thread, start, end)
    above = parents(after)
    # Where events nest, `above` is right; where they do not, the first that outlives its caller is found, and
    # the rest is unsure.
    late = np.flatnonzero((above >= 0) & (after > after[above]))
    if len(late):
        after = _by_stack(after, late)
        above = parents(after)
    return after, _clipped(end, above)


def nest_events(host: HostEvents, is_step: Mask) -> tuple[Int64s, Int64s]:
    """``nest`` of all events except the marks of steps: ``prof.step()`` may be called at any depth."""
    nested = np.flatnonzero(~is_step)
    inner, inner_end = nest(host.thread[nested], host.start_ns[nested], host.end_ns[nested])
    # A mark encloses nothing, and what encloses others ends after the last of these, even if marks follow.
    after, end = np.arange(1, len(host) + 1), host.end_ns.copy()
    after[nested], end[nested] = nested[inner - 1] + 1, inner_end
    return after, end


def _clipped(end: Int64s, above: Int64s) -> Int64s:
    """Every event's end or, where that is earlier, the end of what encloses it."""
    inner = np.flatnonzero(above >= 0)
    around = above[inner]
    ends = end.copy()
    for _ in range(_ROUNDS):
        late = ends[inner] > ends[around]
        if not late.any():
            return ends
        ends[inner[late]] = ends[around[late]]
    listed = ends.tolist()
    for i, caller in zip(inner.tolist(), around.tolist(), strict=True):  # callers come first
        listed[i] = min(listed[i], listed[caller])
    return np.array(listed, np.int64)


def parents(after: Int64s) -> Int64s:
    """The event directly around each, -1 where there is none."""
    # How many events are open at the start of each, itself included: those that have begun less those that
    # have ended.
    depth = np.cumsum(1 - np.bincount(after, minlength=len(after) + 1)[: len(after)])
    found = np.full(len(after), -1, np.int64)
    # Numbers of 16 bits are sorted in linear time.
    order = np.argsort(
        depth.astype(np.int16 if depth.max(initial=0) < np.iinfo(np.int16).max else np.int64), kind="stable"
    )
    edges = np.cumsum(np.bincount(depth))[1:].tolist()
    for low, high, end in zip([0, *edges], edges, edges[1:], strict=False):
        outer, inner = order[low:high], order[high:end]
        found[inner] = outer[np.searchsorted(outer, inner) - 1]
    return found


def innermost(chosen: Mask, after: Int64s) -> Int64s:
    """The innermost chosen event that is, or encloses, each event; -1 where there is none."""
    begins, before = np.flatnonzero(chosen), np.concatenate(([0], np.cumsum(chosen)))
    ends = after[begins]
    above = parents(before[ends])  # among the chosen ones
    # What is around from an event on: a chosen one from its start, what is around it from its end. Of ends at
    # one place the outermost, written last, counts, and a start counts before an end.
    around = np.full(len(after) + 1, -1, np.int64)
    is_edge = np.zeros(len(after) + 1, bool)
    around[ends[::-1]] = np.where(above >= 0, begins[above], -1)[::-1]
    around[begins] = begins
    is_edge[ends] = is_edge[begins] = is_edge[0] = True
    edges = np.flatnonzero(is_edge[:-1])
    return np.repeat(around[edges], np.diff(edges, append=len(after)))


def covered(chosen: Mask, after: Int64s) -> Mask:
    """The events that a chosen one encloses."""
    reach = np.maximum.accumulate(np.where(chosen, after, 0))
    covered = np.zeros(len(after), bool)
    covered[1:] = reach[:-1] > np.arange(1, len(after))
    return covered


def enclosed(chosen: Mask, after: Int64s) -> Int64s:
    """The number of chosen events that each event encloses."""
    total = np.concatenate(([0], np.cumsum(chosen)))
    return total[after] - total[1:]


def exclusive(thread: npt.NDArray[np.integer], start: Int64s, end: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """The time of nested events in pieces that belong to one event each, the innermost: the event, start and
    end of every piece.

    Events are in the order of ``HostEvents``. Pieces of one thread do not overlap.
    """
    lasting = np.flatnonzero(end > start)
    after, ends = nest(thread[lasting], start[lasting], end[lasting])
    number = np.arange(len(lasting))
    # What runs from each edge on: an event from its start, what is around it from its end. Of edges at one
    # time inner ends come first, inner starts last, and the last one counts.
    threads = np.concatenate((thread[lasting], thread[lasting]))
    times = np.concatenate((start[lasting], ends))
    runs = np.concatenate((number, parents(after)))
    order = np.lexsort((np.concatenate((number, -number)), np.repeat((1, 0), len(lasting)), times, threads))
    threads, times, runs = threads[order], times[order], runs[order]
    kept = np.flatnonzero((threads[1:] == threads[:-1]) & (times[1:] > times[:-1]) & (runs[:-1] >= 0))
    return lasting[runs[kept]], times[kept], times[kept + 1]


def _open_until(thread: npt.NDArray[np.integer], start: Int64s, end: Int64s) -> Int64s:
    """For each event the first event of its thread that begins after it ends, at any depth."""
    count = len(start)
    after = np.empty(count, np.int64)
    edges = np.flatnonzero(np.diff(thread)) + 1
    for low, high in zip([0, *edges.tolist()], [*edges.tolist(), count], strict=True):
        begins, ends = start[low:high], end[low:high]
        own = np.arange(1, high - low + 1)
        first = np.maximum(np.searchsorted(begins, ends, side="left"), own)
        # Of those that start together the longest comes first: if that one has no duration, none has.
        at = np.minimum(first, high - low - 1)
        instant = (first < high - low) & (begins[at] == ends) & (ends[at] == ends)
        first[instant] = np.searchsorted(begins, ends[instant], side="right")
        after[low:high] = low + first
    return after


def _by_stack(after: Int64s, late: Int64s) -> Int64s:
    """``after`` clipped event by event, in the groups of overlapping events that ``late`` ones are in."""
    clipped = after.copy()
    reach = np.maximum.accumulate(after)
    first = np.flatnonzero(np.concatenate(([True], reach[:-1] <= np.arange(1, len(after)))))
    groups, _ = distinct(np.searchsorted(first, late, side="right") - 1)
    for low, high in zip(
        first[groups].tolist(), reach[np.append(first[1:], len(after))[groups] - 1].tolist(), strict=True
    ):
        ends = after[low:high].tolist()
        stack: list[int] = []
        for i, until in enumerate(ends, start=low):
            while stack and stack[-1] <= i:
                stack.pop()
            if stack and until > stack[-1]:
                ends[i - low] = until = stack[-1]
            stack.append(until)
        clipped[low:high] = ends
    return clipped
