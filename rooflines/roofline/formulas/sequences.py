"""Lengths of the sequences in a batch, as sums: all that the work of attention over packed sequences depends on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sequences:
    """Sums over the sequences of a batch; adds.

    ``queries`` is the number of tokens that are processed, ``keys`` the number of tokens that they may attend to, those already in the
    KV cache included. ``queries_squared`` is the sum of queries², ``queries_times_keys`` the sum of queries × keys.
    """

    count: int
    queries: int
    keys: int
    queries_squared: int
    queries_times_keys: int

    @property
    def causal_pairs(self) -> int:
        """(query, key) pairs of one head: of a sequence with q queries and k keys, query i attends to the first k - q + 1 + i keys.

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
