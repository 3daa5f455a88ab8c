"""The dependencies of a processor's work: each thread does its operators and its own work between them in the
recorded order.

A thread begins when the main one has done what it did before, and the main one goes on when the work that it
waits for has ended: that which ended on another thread as its own pause did.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rooflines.profiler.read import intervals
from rooflines.profiler.read.records import Int64s, Mask
from rooflines.roofline.count.counts import unset
from rooflines.roofline.judge.step.partition import main_thread
from rooflines.roofline.own.own import Attribution
from rooflines.roofline.replay.graph import NEAR_NS, StreamRun, WindowGraph
from rooflines.roofline.uncertainty import Floats


def clock(found: Attribution) -> Callable[[Int64s], Floats]:
    """What turns times of a trace into nanoseconds of its steps, without what lies between these."""
    lasting = found.windows[:, 1] - found.windows[:, 0]
    passed = np.stack((np.cumsum(lasting) - lasting, np.cumsum(lasting)), axis=1)
    return lambda times: np.interp(times, found.windows.ravel(), passed.ravel())


def threads_of(found: Attribution) -> WindowGraph:
    """The dependencies between the pieces of work of the threads, and the end of the steps."""
    of_steps = clock(found)
    pieces = found.pieces
    end_ns = float(intervals.length(found.windows))
    main = main_thread(found.calls)
    thread = np.append(found.trace.host.thread[pieces.event], main)
    start, end = (np.append(of_steps(times), end_ns) for times in (pieces.start_ns, pieces.end_ns))
    order = np.lexsort((end, start, thread))
    thread = thread[order]
    start = start[order]
    end = end[order]
    is_first = np.diff(thread, prepend=thread[0] - 1) != 0
    before = np.where(is_first, -1, np.arange(len(order)) - 1)
    begin = np.where(is_first, 0.0, end[before])
    after = _waited_for(thread == main, start, end, np.flatnonzero(start - begin > NEAR_NS))
    waits = after >= 0
    begin = np.where(waits, start, begin)
    opens = np.flatnonzero(is_first | waits)
    closes = np.append(opens[1:], len(order))
    # What a run waits for began before it.
    by_begin = np.lexsort((end[opens], start[opens]))
    runs = np.stack((opens, closes, before[opens]), axis=1)[by_begin].tolist()
    nothing = np.zeros(len(order))
    none = np.zeros(len(order), np.int64)
    return WindowGraph(
        event=np.append(np.arange(len(pieces.event)), -1)[order],
        lasting_ns=end - start,
        launch_ns=np.where(is_first & ~waits, start, 0.0),
        waits_before=none,
        arrival_ns=nothing,
        next_ns=nothing,
        kept_ns=nothing,
        after=after,
        after_ns=np.where(waits, start - end[after], 0.0),
        wait_ns=nothing[:0],
        call_ns=nothing[:0],
        target=none[:0],
        return_ns=nothing[:0],
        copies=np.zeros(0, bool),
        waits=np.zeros((0, 2)),
        order=tuple(StreamRun(*run) for run in runs),
        host_ns=0.0,
        host_waits=0,
        launched=np.ones(len(order), bool),
        end_ns=end_ns,
        begin_ns=0,
        own_ns=np.stack((begin, start)),
    )


def _waited_for(on_main: Mask, start: Floats, end: Floats, late: Int64s) -> Int64s:
    """The piece that each of those that begin ``late`` waits for, -1 for none."""
    found = unset(len(start))
    for mine in (True, False):
        others = np.flatnonzero(on_main != mine)
        others = others[np.argsort(end[others], kind="stable")]
        those = late[on_main[late] == mine]
        last = np.searchsorted(end[others], start[those], side="right") - 1
        at = np.append(others, -1)[last]
        near = (at >= 0) & ((not mine) | (end[at] >= start[those] - NEAR_NS))
        found[those[near]] = at[near]
    return found
