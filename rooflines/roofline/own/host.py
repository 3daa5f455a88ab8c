"""The time of a CPU: an owner's time is its duration, or that of the wrapper around it, steady over the
steps.

Where operators of several threads run at once, each thread gets an equal part of that time, so that rows,
gaps and idle time are the span.

Another program that takes a processor for a scheduler's slice makes a call of 40 µs last milliseconds, and
the mean over twenty steps shows that call. Disturbances only add time, and hit another call in every step, so
a call site (the k-th call in a step of a signature in one module and phase) counts with the lower quartile of
its calls: its steady time.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rooflines.profiler.read import intervals
from rooflines.profiler.read.distinct import distinct, distinct_rows
from rooflines.profiler.read.intervals import Intervals
from rooflines.profiler.read.nesting import exclusive
from rooflines.profiler.read.records import OPERATOR, Int64s, Mask
from rooflines.profiler.tree.tree import Calls
from rooflines.profiler.tree.windows import step_number
from rooflines.roofline.count.counts import Counts
from rooflines.roofline.own.ownership import Ownership
from rooflines.roofline.own.rows import DividedTime, Pieces, TimeRow, by_step, longest_by_group
from rooflines.roofline.uncertainty import Floats

# With fewer steps a quartile says no more than the mean.
FEWEST_STEPS = 3
_QUARTILE = 0.25


def attribute_host(
    calls: Calls,
    window: Intervals,
    counts: Counts,
    ownership: Ownership,
    inside: Mask,
    step: Int64s,
    quiet: Mask,
) -> DividedTime:
    """Divide the time of the operators that begin ``inside`` the window; ``step`` is the number of each host
    event's step.

    ``quiet`` has an entry for each step: whether its times count where others were disturbed.
    """
    host = calls.trace.host
    owner = ownership.owner
    # The end of the part of the window that contains or precedes each event.
    until = window[np.maximum(step_number(host.start_ns, window), 0), 1] if len(window) else host.start_ns
    duration = np.minimum(calls.end_ns, until) - host.start_ns
    operators = np.flatnonzero((host.kind == OPERATOR) & inside)
    # What an operator without an owner spends itself: its duration less that of the operators directly below
    # it.
    own = duration.copy()
    parent_operator = calls.above
    nested = operators[parent_operator[operators] >= 0]
    # One that outlasts its part of the window ends there: what it calls later is none of its time.
    nested = nested[until[nested] == until[parent_operator[nested]]]
    np.subtract.at(own, parent_operator[nested], duration[nested])
    owned = ownership.outermost[inside[ownership.outermost]]
    around = ownership.outermost[np.searchsorted(ownership.outermost, ownership.saved, side="right") - 1]
    saved = ownership.saved[
        inside[ownership.saved] & inside[around] & (until[ownership.saved] == until[around])
    ]
    passed_through = operators[owner[operators] < 0]
    events = np.concatenate((owner[owned], saved, passed_through))
    time = np.concatenate((duration[owned], duration[saved], own[passed_through]))
    np.subtract.at(time, np.searchsorted(owned, saved, side="right") - 1, duration[saved])
    # A wrapper's time is that of the operator in it.
    timed = np.concatenate((owned, saved, passed_through))
    order = np.argsort(timed, kind="stable")
    lasting = timed[order]
    which, starts, ends = exclusive(
        host.thread[lasting], host.start_ns[lasting], host.start_ns[lasting] + duration[lasting]
    )
    part, shared = _parts(order[which], starts, ends, len(events))
    time = np.rint(time * part).astype(np.int64)
    keys, group = distinct_rows(counts.of_event[events], calls.module[events], calls.phase[events])
    steady = time.astype(np.float64)
    began = step[events]
    if len(quiet) >= FEWEST_STEPS and not calls.batches:
        site = call_sites(group, began, host.start_ns[events])
        steady = steady_times(site, time, quiet[np.maximum(began, 0)])
    rows: list[TimeRow] = []
    gaps: list[TimeRow] = []
    row_of_key = np.empty(len(keys), np.int64)
    groups = len(keys)
    shares = np.bincount(group, shared * time, groups) / np.maximum(np.bincount(group, time, groups), 1)
    columns = zip(
        keys.tolist(),
        by_step(group, groups, began, len(quiet), lambda of, number: np.bincount(of, time, number)),
        np.bincount(group, steady, groups).tolist(),
        np.bincount(group, minlength=groups).tolist(),
        by_step(group, groups, began, len(quiet)),
        longest_by_group(group, groups, host.start_ns[events], duration[events], began),
        shares.tolist(),
        strict=True,
    )
    for place, ((variant, module, phase), step_ns, total, number, step_calls, most, share) in enumerate(
        columns
    ):
        call = counts.variants[variant]
        found, row_of_key[place] = (
            (gaps, -2 - len(gaps)) if call.count.kind == "unknown" else (rows, len(rows))
        )
        found.append(
            TimeRow(
                call.signature,
                call.count,
                module,
                phase,
                number,
                total,
                call.inferred,
                step_ns,
                step_calls=step_calls,
                longest=most,
                shared=share,
            )
        )
    row = row_of_key[group]
    weight = np.divide(steady, time, out=np.zeros_like(steady), where=time > 0)
    counted = np.concatenate((owned, passed_through))
    busy = intervals.union(host.start_ns[counted], host.start_ns[counted] + duration[counted])
    events = events[order]
    row = row[order]
    weight = weight[order]
    call = np.where(row >= 0, events, -1)
    return DividedTime(
        tuple(rows),
        tuple(gaps),
        Pieces(events[which], starts, ends, row[which], call[which], weight[which]),
        busy,
    )


def _parts(event: Int64s, start: Int64s, end: Int64s, events: int) -> tuple[Floats, Floats]:
    """The part of its own time that each of ``events`` gets where pieces of several threads overlap, and the
    share of it that does."""
    edges, place = distinct(np.concatenate((start, end)))
    running = np.cumsum(np.bincount(place, np.repeat((1, -1), len(start)), len(edges)))[:-1]
    lasting = np.diff(edges).astype(np.float64)
    sums = np.zeros((2, len(edges)))
    np.cumsum(np.divide(lasting, running, out=np.zeros_like(lasting), where=running > 0), out=sums[0, 1:])
    np.cumsum(lasting * (running > 1), out=sums[1, 1:])
    first = place[: len(start)]
    last = place[len(start) :]
    whole = np.maximum(np.bincount(event, end - start, events), 1)
    part, overlapped = (np.bincount(event, each[last] - each[first], events) / whole for each in sums)
    return np.where(overlapped > 0, part, 1.0), overlapped


def call_sites(group: Int64s, step: Int64s, start_ns: Int64s) -> Int64s:
    """Return the number of the call site of each call: calls of one ``group`` at the same place in the order
    of their step."""
    return distinct_rows(group, places_in_step(group, step, start_ns))[1]


def places_in_step(group: Int64s, step: Int64s, start_ns: Int64s) -> Int64s:
    """How many calls of its ``group`` begin before each call in its step."""
    order = np.lexsort((start_ns, step, group))
    first = (np.diff(group[order], prepend=-1) != 0) | (np.diff(step[order], prepend=-1) != 0)
    position = np.arange(len(order))
    place = np.empty(len(order), np.int64)
    place[order] = position - np.maximum.accumulate(np.where(first, position, 0))
    return place


def steady_times(site: Int64s, time_ns: npt.NDArray[np.generic], quiet: Mask) -> Floats:
    """Return for each call the lower quartile of the times of its site, in the unit of ``time_ns``.

    Of a site with at least ``FEWEST_STEPS`` calls in ``quiet`` steps only those count.
    """
    sites = int(site.max(initial=-1)) + 1
    counted = quiet | (np.bincount(site, weights=quiet, minlength=sites) < FEWEST_STEPS)[site]
    of = site[counted]
    times = time_ns[counted].astype(np.float64)
    times = times[np.lexsort((times, of))]
    number = np.bincount(of, minlength=sites)
    place = _QUARTILE * (number - 1)
    low = np.cumsum(number) - number + place.astype(np.int64)
    high = np.minimum(low + 1, np.cumsum(number) - 1)
    quartile: Floats = times[low] + (place % 1) * (times[high] - times[low])
    return quartile[site]
