"""Which (query, key) pairs meet in attention, and the lengths of sequences that are packed into one
tensor."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

EQUAL = "sequences equally long except for the longest"
WINDOW = "a window over sequences of equal length"

# --- pairs ------------------------------------------------------------------------------------------------


def pairs(
    queries: int, keys: int, left: int | None = None, right: int | None = None, lower_right: bool = False
) -> int:
    """(query, key) pairs of one head: query i sees the existing keys from i - left to i + right; None means
    unbounded.

    ``right=0`` is causal. ``lower_right`` counts i from the end: the last query is at the place of the last
    key.
    """
    offset = keys - queries if lower_right else 0
    upto = queries * keys if right is None else _below(offset + right + 1, queries, keys)
    return max(upto - (0 if left is None else _below(offset - left, queries, keys)), 0)


def _below(first: int, queries: int, keys: int) -> int:
    """Pairs with key < first + i, summed over the queries i: the integers from ``first`` on, each held
    between 0 and ``keys``."""
    return _ramp(first + queries, keys) - _ramp(first, keys)


def _ramp(end: int, cap: int) -> int:
    """The sum of min(v, cap) over 0 <= v < end."""
    inside = min(max(end, 0), cap)
    return inside * (inside - 1) // 2 + max(end - cap, 0) * cap


# --- lengths of the sequences of a batch ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sequences:
    """Sums over the sequences of a batch; adds.

    ``queries`` is the number of tokens that are processed, ``keys`` the number of tokens that they may attend
    to, those already in the KV cache included. ``queries_squared`` is the sum of queries²,
    ``queries_times_keys`` the sum of queries × keys.
    """

    count: int
    queries: int
    keys: int
    queries_squared: int
    queries_times_keys: int

    @property
    def causal_pairs(self) -> int:
        """(query, key) pairs of one head: of a sequence with q queries and k keys, query i attends to the
        first k - q + 1 + i keys.

        The sum over i is q * k - q * (q - 1) / 2.
        """
        return self.queries_times_keys - (self.queries_squared - self.queries) // 2

    def __add__(self, other: Sequences) -> Sequences:
        """The sums over the sequences of both."""
        if not isinstance(other, Sequences):
            return NotImplemented
        return Sequences(
            self.count + other.count,
            self.queries + other.queries,
            self.keys + other.keys,
            self.queries_squared + other.queries_squared,
            self.queries_times_keys + other.queries_times_keys,
        )


@dataclass(frozen=True, slots=True)
class Lengths:
    """The lengths of a batch: ``groups`` are (number of sequences, queries of each, keys of each).

    ``sums`` are the same lengths as a server recorded them, of which ``groups`` has the means.
    """

    groups: tuple[tuple[int, int, int], ...]
    assumption: str = ""
    sums: Sequences | None = None

    @property
    def queries(self) -> int:
        """Queries of all sequences."""
        return sum(count * queries for count, queries, _ in self.groups)

    def pairs(self, left: int | None, right: int | None, lower_right: bool) -> int:
        """(query, key) pairs of one head."""
        if self.sums is not None and left is None and right is None:
            return self.sums.queries_times_keys
        if self.sums is not None and left is None and right == 0 and lower_right:
            return self.sums.causal_pairs
        return sum(
            count * pairs(queries, keys, left, right, lower_right) for count, queries, keys in self.groups
        )

    def keys(self, left: int | None) -> int:
        """Keys that a query sees, where the last query is at the place of the last key."""
        return sum(
            count * (keys if left is None else min(keys, queries + left))
            for count, queries, keys in self.groups
        )


def equal_lengths(count: int, queries: int, keys: int) -> tuple[tuple[int, int, int], ...]:
    """``count`` sequences with these numbers of queries and keys in all, as equal as whole numbers can be."""
    each_query, longer_queries = divmod(queries, count)
    each_key, longer_keys = divmod(keys, count)
    bounds = sorted({0, longer_queries, longer_keys, count})
    return tuple(
        (stop - start, each_query + (start < longer_queries), each_key + (start < longer_keys))
        for start, stop in pairwise(bounds)
    )


def packed_lengths(
    count: int, queries: int, keys: int, longest_query: int | None, longest_key: int | None, masked: bool
) -> Lengths:
    """The lengths of ``count`` sequences with these numbers of queries and keys in all, as far as arguments
    determine them.

    They do where all are equally long; without a mask it is enough that the queries are, or the keys. Else
    one sequence has the longest lengths, and the others are equal: the fewest causal pairs of a sequence with
    itself for these totals.
    """
    equal_queries = count * (longest_query or 0) == queries
    equal_keys = count * (longest_key or 0) == keys
    exact = equal_queries and equal_keys if masked else equal_queries or equal_keys
    longest = (longest_query or -(-queries // count), longest_key or -(-keys // count))
    rest = (queries - longest[0], keys - longest[1])
    apart = count > 1 and min(rest) >= 0
    groups = (
        ((1, *longest), *equal_lengths(count - 1, *rest)) if apart else equal_lengths(count, queries, keys)
    )
    return Lengths(groups, "" if exact else EQUAL)


def recorded_lengths(
    known: Sequences | None,
    count: int,
    queries: int,
    keys: int | None,
    left: int | None,
    longest_query: int | None = None,
    longest_key: int | None = None,
) -> Lengths | None:
    """The lengths that a server recorded, where they can be of a call with these numbers of sequences,
    queries and keys, and no sequence longer than the longest: a call may be for a part of the step, or see a
    part of the keys."""
    if known is None or not (
        0 < known.queries <= queries and 0 < known.count <= count and (keys is None or known.keys <= keys)
    ):
        return None
    for total, longest in ((known.queries, longest_query), (known.keys, longest_key)):
        if longest is not None and total > known.count * longest:
            return None
    found = Lengths(equal_lengths(known.count, known.queries, known.keys), sums=known)
    return found if left is None or known.count == 1 else Lengths(found.groups, WINDOW, known)
