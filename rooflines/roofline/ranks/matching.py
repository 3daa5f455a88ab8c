"""Match kernels on different ranks that are the same collective, and find what each rank waited in them.

NCCL runs the collectives of a process group in the same order on every rank, so the k-th of a group and kind
on each is one. But traces need not begin and end together, and may not say the group. So what is matched by
order must also agree in size and, as far as clocks can tell, have run together: a collective that gives every
rank something of every other cannot end on one before the last has entered. Where order does not fit, those
of one kind and size that end together are one collective. The rest is left unmatched, with the reason.

Clocks of hosts differ. Starts and ends are first compared as they are; where that shows nothing, after taking
off the median difference of the ends, which are the same moment on all ranks.

A rank that enters a collective before the last one waits for two reasons: the last one's recording began
later, or the last one has worked longer since its own recording began. Both are durations on one rank's
clock, so no common clock is needed. Once two ranks have left a collective together, they only wait for what
the steps make.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from rooflines.profiler.read.distinct import distinct_rows
from rooflines.profiler.read.records import Int64s
from rooflines.profiler.tree.collectives import Collectives
from rooflines.roofline.count.counts import unset
from rooflines.roofline.ranks.records import By, Straggler, UnmatchedRow, Waiting

# In these no rank can leave before every rank has entered.
SYNCHRONIZING = ("allreduce", "allgather", "reducescatter", "alltoall", "barrier")
# Of these every rank moves as much as the others.
_EVEN = (*SYNCHRONIZING[:3], "broadcast", "reduce")
# Two clocks of one host, and two of which the median difference has been taken off: what they may still
# differ.
_SAME_HOST_NS = 50_000
_CORRECTED_NS = 1_000_000
# Ends that are as near as this share of the shorter kernel, or as old traces' resolution, are one moment.
_TOGETHER = 0.1
_RESOLUTION_NS = 2_000
# The share of a group matched by order that may fail the check by clocks.
_STRAYS = 0.01
_ALONE = "only one rank of its group was given"
_STREAM_ALONE = "no group is recorded, and no other rank has them on the same stream number"
_PAIRS = "messages between two ranks are not matched"

# Numbers of each rank, such as the places of its calls.
_OfRanks = dict[int, Int64s]
_Key: TypeAlias = "tuple[str, str | None, tuple[int, ...] | None, int | None, int | None]"
_Groups = dict[_Key, _OfRanks]


@dataclass(frozen=True, slots=True)
class MatchedCollectives:
    """Collectives of one group and kind: ``calls[k, i]`` is the k-th one's index in the collectives of rank
    ``ranks[i]``."""

    kind: str
    group: str | None
    ranks: tuple[int, ...]
    calls: Int64s
    by: By


def match_collectives(
    collectives: dict[int, Collectives],
) -> tuple[list[MatchedCollectives], list[UnmatchedRow]]:
    """The collectives of each rank matched across ranks, the groups in the order in which the lowest rank
    first uses them."""
    found: list[MatchedCollectives] = []
    left: list[UnmatchedRow] = []
    groups = _join_streams(_by_group(collectives))
    on_streams: dict[str, set[int]] = {}
    for key, calls in groups.items():
        if key[4] is not None:
            on_streams.setdefault(key[0], set()).update(calls)
    for key, calls in groups.items():
        kind, group, group_ranks, _, stream = key
        expected = [rank for rank in sorted(collectives) if rank in (group_ranks or calls)]
        calls = {rank: calls.get(rank, np.empty(0, np.int64)) for rank in dict.fromkeys((*expected, *calls))}
        unmatched = sum(map(len, calls.values()))
        if kind in ("send", "recv"):
            reason = _PAIRS
        elif len(calls) < 2:
            reason = _STREAM_ALONE if stream is not None and len(on_streams[kind]) > 1 else _ALONE
        else:
            together, by, reason = _together(kind, {rank: collectives[rank] for rank in calls}, calls)
            unmatched -= together.size
            if len(together):
                found.append(MatchedCollectives(kind, group, tuple(calls), together, by))
        if unmatched:
            left.append(UnmatchedRow(kind=kind, group=group, count=unmatched, reason=reason))
    return found, left


def _by_group(collectives: dict[int, Collectives]) -> _Groups:
    """For every group and kind (and stream, where the group is not noted) the calls of each rank, in
    order."""
    grouped: _Groups = {}
    for rank in sorted(collectives):
        own = collectives[rank]
        pairs, which = distinct_rows(own.what, own.stream)
        keys: list[_Key] = []
        for what, stream in pairs.tolist():
            one = own.exchanges[what]
            noted = one.group is not None or one.group_ranks is not None
            keys.append(
                (one.kind, one.group, one.group_ranks, one.group_size, None)
                if noted
                else (one.kind, None, None, None, stream)
            )
        for key in dict.fromkeys(keys):
            if key[3] != 1:  # alone in its group, it waits for no rank
                grouped.setdefault(key, {})[rank] = np.flatnonzero(
                    np.array([other == key for other in keys])[which]
                )
    return grouped


def _join_streams(grouped: _Groups) -> _Groups:
    """The same, with one entry for a kind that every rank runs on one stream, where a rank is alone with its
    stream's number.

    Ranks number their streams as they make them: those of one group often have the same number, and need not.
    """
    streams: dict[str, list[_OfRanks]] = {}
    for key, calls in grouped.items():
        if key[4] is not None:
            streams.setdefault(key[0], []).append(calls)
    joined: _Groups = {}
    for key, calls in grouped.items():
        several = streams[key[0]] if key[4] is not None else []
        ranks = [rank for own in several for rank in own]
        if len(ranks) == len(set(ranks)) > 1 and min(map(len, several)) == 1:
            key = key[0], None, None, None, None
            calls = dict(sorted((rank, own) for stream in several for rank, own in stream.items()))
        joined[key] = calls
    return joined


def _together(kind: str, of: dict[int, Collectives], calls: _OfRanks) -> tuple[Int64s, By, str]:
    """The calls that are one collective, how that was told, and why the rest is none."""
    nothing = np.empty((0, len(calls)), np.int64)
    counts = {rank: len(own) for rank, own in calls.items()}
    # What all ranks of a collective share, by number: the dtype and, if all move the same amount, the size.
    numbers: dict[tuple[str | None, int | None], int] = {}
    alike = {}
    for rank, own in calls.items():
        shared = [
            (exchange.dtype, exchange.bytes if exchange.kind in _EVEN else None)
            for exchange in of[rank].exchanges
        ]
        alike[rank] = np.array([numbers.setdefault(key, len(numbers)) for key in shared], np.int64)[
            of[rank].what[own]
        ]
    first, *others = alike.values()
    # The k-th call of every rank side by side; None if their numbers or kinds differ.
    ordered = (
        np.stack(tuple(calls.values()), axis=1)
        if all(np.array_equal(first, other) for other in others)
        else None
    )
    if kind not in SYNCHRONIZING:
        # A root may be done before the others begin: times say nothing.
        return (nothing, "order", _uneven(counts)) if ordered is None else (ordered, "order", "")
    if ordered is not None and _ran_together(of, calls, ordered, corrected=False):
        return ordered, "order", ""
    timed = _by_time(of, calls, alike)
    reason = _uneven(counts) or "sizes or times of the k-th call differ between ranks"
    few = 2 * len(timed) < max(1, min(counts.values()))
    if few and ordered is not None and _ran_together(of, calls, ordered, corrected=True):
        return ordered, "order", ""
    return timed, "time", reason


def _uneven(counts: dict[int, int]) -> str:
    low = min(counts, key=counts.__getitem__)
    high = max(counts, key=counts.__getitem__)
    return (
        ""
        if counts[low] == counts[high]
        else f"rank {low} has {counts[low]:,} of them and rank {high} {counts[high]:,}"
    )


def _ran_together(of: dict[int, Collectives], calls: _OfRanks, together: Int64s, *, corrected: bool) -> bool:
    """Whether there is a moment at which each collective ran on all of its ranks."""
    starts, ends = (side_by_side(of, calls, together, name) for name in ("start_ns", "end_ns"))
    if corrected:
        difference = np.median(ends - ends[:, :1], axis=0).astype(np.int64)
        starts = starts - difference
        ends = ends - difference
    apart = starts.max(axis=1) > ends.min(axis=1) + (_CORRECTED_NS if corrected else _SAME_HOST_NS)
    return bool(np.count_nonzero(apart) <= _STRAYS * len(apart))


def _by_time(of: dict[int, Collectives], calls: _OfRanks, alike: _OfRanks) -> Int64s:
    """Those alike that end together on all ranks."""
    fewest = min(calls, key=lambda rank: len(calls[rank]))
    ends = {rank: of[rank].end_ns[own] for rank, own in calls.items()}
    lasting = {rank: of[rank].duration_ns[own] for rank, own in calls.items()}
    positions = np.stack([_partners(fewest, rank, alike, ends, lasting) for rank in calls], axis=1)
    positions = positions[(positions >= 0).all(axis=1)]
    return np.stack([own[positions[:, i]] for i, own in enumerate(calls.values())], axis=1)


def _partners(one: int, other: int, alike: _OfRanks, ends: _OfRanks, lasting: _OfRanks) -> Int64s:
    """For each call of one rank the position of the other rank's call that ends with it, -1 for none; no call
    is the partner of two."""
    if one == other:
        return np.arange(len(ends[one]))
    found = unset(len(ends[one]))
    for like in np.intersect1d(alike[one], alike[other]).tolist():
        own = np.flatnonzero(alike[one] == like)
        candidates = np.flatnonzero(alike[other] == like)
        candidates = candidates[np.argsort(ends[other][candidates], kind="stable")]
        times = ends[other][candidates]
        wanted = ends[one][own]
        above = np.clip(np.searchsorted(times, wanted), 0, len(times) - 1)
        below = np.maximum(above - 1, 0)
        at = np.where(np.abs(times[below] - wanted) <= np.abs(times[above] - wanted), below, above)
        shorter = np.minimum(lasting[one][own], lasting[other][candidates[at]])
        near = np.abs(times[at] - wanted) <= np.maximum(shorter * _TOGETHER, _RESOLUTION_NS)
        found[own[near]] = candidates[at[near]]
    taken, times_taken = np.unique(found[found >= 0], return_counts=True)
    found[np.isin(found, taken[times_taken > 1])] = -1
    return found


# A rank stands out if it causes this share of the waiting, times 1 / (n + 1): two thirds between two ranks,
# 22 % among eight.
_STANDS_OUT = 2


def side_by_side(
    collectives: Mapping[int, Collectives], ranks: Iterable[int], calls: Int64s, column: str
) -> Int64s:
    """A column of the ``calls`` of all ``ranks`` by [collective, rank]."""
    return np.stack(
        [getattr(collectives[rank], column)[own] for rank, own in zip(ranks, calls.T, strict=True)], axis=1
    )


def waits_at_start(
    matched: Sequence[MatchedCollectives], collectives: Mapping[int, Collectives], began_ns: Mapping[int, int]
) -> list[Int64s]:
    """Return the nanoseconds waited because recordings began apart, at ``began_ns``: of each of ``matched``
    by [collective, rank]."""
    found = [np.zeros(one.calls.shape, np.int64) for one in matched]
    waiting = [at for at, one in enumerate(matched) if one.kind in SYNCHRONIZING]
    ends = [collectives[matched[at].ranks[0]].end_ns[matched[at].calls[:, 0]] for at in waiting]
    if not ends:
        return found
    owners = np.repeat(waiting, [len(own) for own in ends])
    together = {rank: {rank} for rank in collectives}
    places = np.concatenate([np.arange(len(own)) for own in ends])
    for place in np.argsort(np.concatenate(ends), kind="stable").tolist():
        at = int(owners[place])
        k = int(places[place])
        one = matched[at]
        if all(together[rank] is together[one.ranks[0]] for rank in one.ranks):
            continue
        calls = [(collectives[rank], int(one.calls[k, i])) for i, rank in enumerate(one.ranks)]
        lasting = [int(own.duration_ns[call]) for own, call in calls]
        worked = [
            int(own.start_ns[call]) - began_ns[rank]
            for rank, (own, call) in zip(one.ranks, calls, strict=True)
        ]
        last = lasting.index(min(lasting))
        for i, rank in enumerate(one.ranks):
            if together[rank] is not together[one.ranks[last]]:
                waited = lasting[i] - lasting[last]
                found[at][k, i] = waited - min(waited, max(0, worked[last] - worked[i]))
        joined = set().union(*(together[rank] for rank in one.ranks))
        together |= dict.fromkeys(joined, joined)
    return found


class Waits:
    """What each rank waited in matched collectives, and how often and how long it kept the others waiting."""

    def __init__(self, ranks: Sequence[int]) -> None:
        self._ranks = np.array(ranks)
        self.matched, self.waited_ns, self.at_start_ns, self.times_last = np.zeros((4, len(ranks)), np.int64)
        self.caused_ns = np.zeros(len(ranks))
        self.collectives = self._transfer_ns = 0

    def add(self, ranks: Sequence[int], lasting_ns: Int64s, at_start_ns: Int64s, waits: bool) -> int | None:
        """Take in collectives: the nanoseconds of each kernel, and those waited at the start, by [collective,
        rank].

        Returns the rank that made the others wait longest in the steps.
        """
        places = np.searchsorted(self._ranks, ranks)
        self.matched[places] += len(lasting_ns)
        if not waits:
            return None
        self.collectives += len(lasting_ns)
        shortest = lasting_ns.min(axis=1, keepdims=True)
        self._transfer_ns += int(shortest.sum()) * len(ranks)
        waited = lasting_ns - shortest
        made = waited - at_start_ns
        # Several ranks that entered last share the others' waiting time; if all entered together, none was
        # last.
        last = (waited == 0) & (made.sum(axis=1, keepdims=True) > 0)
        caused = (
            last * made.sum(axis=1, keepdims=True) / np.maximum(1, last.sum(axis=1, keepdims=True))
        ).sum(axis=0)
        self.waited_ns[places] += waited.sum(axis=0)
        self.at_start_ns[places] += at_start_ns.sum(axis=0)
        self.times_last[places] += last.sum(axis=0)
        self.caused_ns[places] += caused
        return ranks[int(caused.argmax())] if caused.any() else None

    def mean(self) -> Waiting | None:
        """The time of these collectives by what it is for, in the mean over the ranks; None where none was
        matched."""
        if not self.collectives:
            return None
        waited = int(self.waited_ns.sum())
        at_start = int(self.at_start_ns.sum())
        each = 1e9 * len(self._ranks)
        return Waiting(
            transfer_s=self._transfer_ns / each,
            at_start_s=at_start / each,
            in_steps_s=(waited - at_start) / each,
        )

    def straggler(self) -> Straggler | None:
        """The rank that the others waited for longest in the steps; None if no rank stands out."""
        total = float(sum(self.caused_ns))
        worst = int(self.caused_ns.argmax())
        caused_ns = float(self.caused_ns[worst])
        times_last = int(self.times_last[worst])
        if not total or caused_ns / total < _STANDS_OUT / (len(self._ranks) + 1):
            return None
        return Straggler(
            rank=int(self._ranks[worst]),
            times_last=times_last,
            of=self.collectives,
            waited_s=caused_ns / 1e9,
            share=caused_ns / total,
        )
