"""What each rank waited in matched collectives: because the recordings began apart, and what the steps made.

A rank that enters a collective before the last one waits for two reasons: the last one's recording began later, or the last one has
worked longer since its own recording began. Both are durations on one rank's clock, so no common clock is needed. Once two ranks have
left a collective together, they only wait for what the steps make.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rooflines.profiler.trace.collectives import Collectives
from rooflines.profiler.trace.records import Int64s
from rooflines.roofline.ranks.collective_matching import SYNCHRONISING, MatchedCollectives
from rooflines.roofline.ranks.records import Straggler, Waiting

# A rank stands out if it causes this share of the waiting, times 1 / (n + 1): two thirds between two ranks, 22 % among eight.
_STANDS_OUT = 2


def lasting_ns(one: MatchedCollectives, collectives: Mapping[int, Collectives]) -> Int64s:
    """The time of each kernel by [collective, rank]."""
    return np.stack([collectives[rank].duration_ns[one.calls[:, i]] for i, rank in enumerate(one.ranks)], axis=1)


def waits_at_start(
    matched: Sequence[MatchedCollectives], collectives: Mapping[int, Collectives], began_ns: Mapping[int, int]
) -> list[Int64s]:
    """Return the nanoseconds waited because recordings began apart, at ``began_ns``: of each of ``matched`` by [collective, rank]."""
    found = [np.zeros(one.calls.shape, np.int64) for one in matched]
    waiting = [at for at, one in enumerate(matched) if one.kind in SYNCHRONISING]
    ends = [collectives[matched[at].ranks[0]].end_ns[matched[at].calls[:, 0]] for at in waiting]
    if not ends:
        return found
    owners = np.repeat(waiting, [len(own) for own in ends])
    together = {rank: {rank} for rank in collectives}
    places = np.concatenate([np.arange(len(own)) for own in ends])
    for place in np.argsort(np.concatenate(ends), kind="stable").tolist():
        at, k = int(owners[place]), int(places[place])
        one = matched[at]
        if all(together[rank] is together[one.ranks[0]] for rank in one.ranks):
            continue
        calls = [(collectives[rank], int(one.calls[k, i])) for i, rank in enumerate(one.ranks)]
        lasting = [int(own.duration_ns[call]) for own, call in calls]
        worked = [int(own.start_ns[call]) - began_ns[rank] for rank, (own, call) in zip(one.ranks, calls, strict=True)]
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
        self.matched = dict.fromkeys(ranks, 0)
        self.waited_ns = dict.fromkeys(ranks, 0)
        self.at_start_ns = dict.fromkeys(ranks, 0)
        self.times_last = dict.fromkeys(ranks, 0)
        self.caused_ns = dict.fromkeys(ranks, 0.0)
        self.collectives = 0
        self._transfer_ns = 0

    def add(self, ranks: Sequence[int], lasting_ns: Int64s, at_start_ns: Int64s, waits: bool) -> int | None:
        """Take in collectives: the nanoseconds of each kernel, and those waited at the start, by [collective, rank].

        Returns the rank that made the others wait longest in the steps.
        """
        for rank in ranks:
            self.matched[rank] += len(lasting_ns)
        if not waits:
            return None
        self.collectives += len(lasting_ns)
        shortest = lasting_ns.min(axis=1, keepdims=True)
        self._transfer_ns += int(shortest.sum()) * len(ranks)
        waited = lasting_ns - shortest
        made = waited - at_start_ns
        # Several ranks that entered last share the others' waiting time; if all entered together, none was last.
        last = (waited == 0) & (made.sum(axis=1, keepdims=True) > 0)
        caused = (last * made.sum(axis=1, keepdims=True) / np.maximum(1, last.sum(axis=1, keepdims=True))).sum(axis=0)
        for i, rank in enumerate(ranks):
            self.waited_ns[rank] += int(waited[:, i].sum())
            self.at_start_ns[rank] += int(at_start_ns[:, i].sum())
            self.times_last[rank] += int(last[:, i].sum())
            self.caused_ns[rank] += float(caused[i])
        return ranks[int(caused.argmax())] if caused.any() else None

    def mean(self) -> Waiting | None:
        """The time of these collectives by what it is for, in the mean over the ranks; None where none was matched."""
        if not self.collectives:
            return None
        waited, at_start = sum(self.waited_ns.values()), sum(self.at_start_ns.values())
        each = 1e9 * len(self.matched)
        return Waiting(transfer_s=self._transfer_ns / each, at_start_s=at_start / each, in_steps_s=(waited - at_start) / each)

    def straggler(self) -> Straggler | None:
        """The rank that the others waited for longest in the steps; None if no rank stands out."""
        total = sum(self.caused_ns.values())
        if not total:
            return None
        rank = max(self.caused_ns, key=lambda rank: self.caused_ns[rank])
        share = self.caused_ns[rank] / total
        if share < _STANDS_OUT / (len(self.caused_ns) + 1):
            return None
        return Straggler(
            rank=rank, times_last=self.times_last[rank], of=self.collectives, waited_s=self.caused_ns[rank] / 1e9, share=share
        )  # fmt: skip
