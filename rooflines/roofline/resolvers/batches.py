"""Attention over packed sequences is counted with their lengths, which a server marks around each step."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rooflines.profiler.trace.calls import Calls
from rooflines.profiler.trace.records import OPERATOR, Int64s
from rooflines.profiler.trace.request_marks import RequestMark
from rooflines.profiler.trace.windows import inside, step_number
from rooflines.roofline.formulas import CallCount, count
from rooflines.roofline.formulas.sequences import Sequences
from rooflines.roofline.resolvers.counts import Context, Counts, Variant

# One token that attends to two: a batch that is in no call too large.
_ONE = Sequences(1, 1, 2, 1, 2)
MARKED = "lengths of the step's sequences from the server's mark"


def from_batches(counts: Counts, context: Context) -> Counts:
    """Count the calls in marked steps again with the lengths of the step's sequences, where the formula depends on them."""
    lengths = StepLengths(context.calls)
    return counts.recounted(_groups(counts, context, lengths)) if lengths.known else counts


def _groups(counts: Counts, context: Context, lengths: StepLengths) -> Iterator[tuple[Int64s, Variant]]:
    host, steps = context.trace.host, context.calls.steps
    events = np.flatnonzero((host.kind == OPERATOR) & (counts.of_event >= 0) & inside(host.start_ns, steps))
    keys = np.stack((counts.of_event[events], step_number(host.start_ns[events], steps)))
    distinct, which = np.unique(keys, axis=1, return_inverse=True)
    order = np.argsort(which.reshape(-1), kind="stable")
    parts = np.split(events[order], np.cumsum(np.bincount(which.reshape(-1)))[:-1]) if len(events) else []
    for (code, step), part in zip(distinct.T.tolist(), parts, strict=True):
        found = lengths.recounted(counts.variants[code], step)
        if found is not None:
            yield part, found


class StepLengths:
    """The lengths of the sequences of each step, as far as a server marked them; ``known`` says whether there are any."""

    def __init__(self, calls: Calls) -> None:
        self._steps = [_lengths(one) for one in calls.batches]
        self.known = any(one is not None for one in self._steps)
        self._plain: dict[int, CallCount | None] = {}
        self._counts: dict[tuple[int, Sequences], Variant | None] = {}
        self._kept: list[Variant] = []

    def recounted(self, variant: Variant, step: int) -> Variant | None:
        """``variant`` with the lengths of the step; None where they make no difference."""
        lengths = self._steps[step] if 0 <= step < len(self._steps) else None
        plain = self._without(variant) if lengths is not None else None
        if lengths is None or plain is None:
            return None
        key = (id(variant), lengths)
        if key not in self._counts:
            found = count(variant.signature, sequences=lengths)
            self._counts[key] = None if found == plain else Variant(variant.signature, found, MARKED)
        return self._counts[key]

    def _without(self, variant: Variant) -> CallCount | None:
        """The count without lengths where a formula may depend on them: it is one of attention, or those of one sequence change it."""
        if id(variant) not in self._plain:
            self._kept.append(variant)  # so that no other has its id
            plain = count(variant.signature)
            depends = plain.category == "attention" or count(variant.signature, sequences=_ONE) != plain
            self._plain[id(variant)] = plain if depends else None
        return self._plain[id(variant)]


def _lengths(batch: RequestMark) -> Sequences | None:
    sums = (batch.tokens, batch.keys, batch.tokens_squared, batch.tokens_times_keys)
    known = [one for one in sums if one is not None]
    return Sequences(batch.requests, *known) if len(known) == len(sums) else None
