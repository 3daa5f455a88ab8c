"""Attention over packed sequences is counted with their lengths, which a server marks around each step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from rooflines.profiler.read.records import OPERATOR, Int64s
from rooflines.profiler.read.request_marks import RequestMark
from rooflines.profiler.tree.tree import Calls
from rooflines.profiler.tree.windows import inside, step_number
from rooflines.roofline.count.counts import Counts, Group, Variant, places_of
from rooflines.roofline.count.formulas import CallCount, Work, count
from rooflines.roofline.count.formulas.lengths import Sequences

# One token that attends to two: a batch that is in no call too large.
_ONE = Sequences(1, 1, 2, 1, 2)
_AMOUNTS = ("matrix_flops", "other_flops", "bytes_read", "bytes_written")
MARKED = "lengths of the step's sequences from the server's mark"


def from_batches(counts: Counts) -> Iterator[Group]:
    """Count the calls in marked steps again with the lengths of the step's sequences, where the formula
    depends on them."""
    lengths = StepLengths(counts.calls)
    if not lengths.known:
        return
    host, steps = counts.trace.host, counts.calls.steps
    events = np.flatnonzero((host.kind == OPERATOR) & (counts.of_event >= 0) & inside(host.start_ns, steps))
    codes = counts.of_event[events]
    step = step_number(host.start_ns[events], steps)
    for code, places in places_of(codes):
        for chosen, variant in lengths.recounted(counts.variants[code], step[places]):
            yield events[places[chosen]], variant


class StepLengths:
    """The lengths of the sequences of each step, as far as a server marked them; ``known`` says whether there
    are any."""

    def __init__(self, calls: Calls) -> None:
        self._steps = [_lengths(one) for one in calls.batches]
        self._kinds = [batch.kind for batch in calls.batches]
        self.known = any(self._steps)

    def recounted(self, variant: Variant, step: Int64s) -> Iterator[tuple[Int64s, Variant]]:
        """Which calls of ``variant`` have other work with the lengths of their ``step``, and that work: the
        mean over the steps of a kind, because each step has lengths of its own and a row of them for each
        would be as long as the trace."""
        plain = count(variant.signature)
        # A formula may depend on the lengths: it is one of attention, or the lengths of one sequence change
        # it.
        if plain.category != "attention" and count(variant.signature, sequences=_ONE) == plain:
            return
        of_kind: dict[str, list[tuple[Int64s, CallCount, Work]]] = {}
        for number, calls in places_of(step):
            for lengths in self._steps[number] if number >= 0 else ():
                counted = count(variant.signature, sequences=lengths)
                if counted != plain and counted.work is not None:
                    of_kind.setdefault(self._kinds[number], []).append((calls, counted, counted.work))
                    break
        for found in of_kind.values():
            mean = replace(found[0][1], work=_mean([(len(calls), work) for calls, _, work in found]))
            yield np.concatenate([calls for calls, *_ in found]), Variant(variant.signature, mean, MARKED)


def _mean(works: list[tuple[int, Work]]) -> Work:
    """The mean work of calls, rounded to whole FLOPs and bytes; each work with its number of calls."""
    calls = sum(number for number, _ in works)
    amounts = {
        name: (2 * sum(number * getattr(work, name) for number, work in works) + calls) // (2 * calls)
        for name in _AMOUNTS
    }
    assumptions = dict.fromkeys(work.assumption for _, work in works if work.assumption)
    return Work(**amounts, precision=works[0][1].precision, assumption="; ".join(assumptions))


def _lengths(batch: RequestMark) -> tuple[Sequences, ...]:
    """The lengths of the whole batch, then those of its parts, the one with more tokens first, or with more
    sequences: a call for one part is too small for the lengths of a larger one, and its formula does not take
    them."""
    sums = (batch.tokens, batch.keys, batch.tokens_squared, batch.tokens_times_keys)
    known = [one for one in sums if one is not None]
    if len(known) < len(sums):
        return ()
    parts = (Sequences(*part) for part in batch.parts or ())
    return (Sequences(batch.requests, *known), *sorted(parts, key=lambda part: (-part.queries, -part.count)))
