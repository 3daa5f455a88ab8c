"""Attention over packed sequences is counted with their lengths, which a server marks around each step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from rooflines.profiler.trace.records import OPERATOR, Int64s, Mask
from rooflines.profiler.trace.request_marks import KINDS, RequestMark
from rooflines.profiler.trace.tree import Calls
from rooflines.profiler.trace.windows import inside, step_number
from rooflines.roofline.formulas import CallCount, Work, count
from rooflines.roofline.formulas.lengths import Sequences
from rooflines.roofline.resolvers.counts import Counts, Group, Variant

# One token that attends to two: a batch that is in no call too large.
_ONE = Sequences(1, 1, 2, 1, 2)
MARKED = "lengths of the step's sequences from the server's mark"


def from_batches(counts: Counts) -> Iterator[Group]:
    """Count the calls in marked steps again with the lengths of the step's sequences, where the formula depends on them."""
    lengths = StepLengths(counts.calls)
    if not lengths.known:
        return
    host, steps = counts.trace.host, counts.calls.steps
    events = np.flatnonzero((host.kind == OPERATOR) & (counts.of_event >= 0) & inside(host.start_ns, steps))
    codes, step = counts.of_event[events], step_number(host.start_ns[events], steps)
    for code in np.unique(codes).tolist():
        of_code = codes == code
        for chosen, variant in lengths.recounted(counts.variants[code], step[of_code]):
            yield events[of_code][chosen], variant


class StepLengths:
    """The lengths of the sequences of each step, as far as a server marked them; ``known`` says whether there are any."""

    def __init__(self, calls: Calls) -> None:
        self._steps = [_lengths(one) for one in calls.batches]
        self._kinds = np.array([KINDS.index(one.kind) for one in calls.batches], np.int64)
        self.known = any(self._steps)

    def recounted(self, variant: Variant, step: Int64s) -> Iterator[tuple[Mask, Variant]]:
        """Which calls of ``variant`` have other work with the lengths of their ``step``, and that work: the mean over the steps of a
        kind, because each step has lengths of its own and a row of them for each would be as long as the trace."""
        plain = self._without(variant)
        if plain is None:
            return
        numbers, calls = np.unique(step, return_counts=True)
        found: dict[int, list[tuple[int, int, CallCount]]] = {}
        for number, called in zip(numbers.tolist(), calls.tolist(), strict=True):
            each = (count(variant.signature, sequences=one) for one in self._steps[number]) if number >= 0 else iter(())
            other = next((one for one in each if one != plain and one.work is not None), None)
            if other is not None:
                found.setdefault(int(self._kinds[number]), []).append((number, called, other))
        for counted in found.values():
            work = _mean([(called, one.work) for _, called, one in counted if one.work is not None])
            mean = replace(counted[0][2], work=work)
            yield np.isin(step, [number for number, *_ in counted]), Variant(variant.signature, mean, MARKED)

    def _without(self, variant: Variant) -> CallCount | None:
        """The count without lengths where a formula may depend on them: it is one of attention, or those of one sequence change it."""
        plain = count(variant.signature)
        return plain if plain.category == "attention" or count(variant.signature, sequences=_ONE) != plain else None


def _mean(works: list[tuple[int, Work]]) -> Work:
    """The mean work of calls, rounded to whole FLOPs and bytes; each work with its number of calls."""
    calls = sum(number for number, _ in works)

    def mean(values: Iterable[int]) -> int:
        return (2 * sum(number * value for (number, _), value in zip(works, values, strict=True)) + calls) // (2 * calls)

    each = [work for _, work in works]
    return Work(
        mean(work.matrix_flops for work in each),
        mean(work.other_flops for work in each),
        mean(work.bytes_read for work in each),
        mean(work.bytes_written for work in each),
        each[0].precision,
        "; ".join(dict.fromkeys(work.assumption for work in each if work.assumption)),
    )


def _lengths(batch: RequestMark) -> tuple[Sequences, ...]:
    """The lengths of the whole batch, then those of its parts, the one with more tokens first, or with more sequences: a call for one
    part is too small for the lengths of a larger one, and its formula does not take them."""
    sums = (batch.tokens, batch.keys, batch.tokens_squared, batch.tokens_times_keys)
    known = [one for one in sums if one is not None]
    if len(known) < len(sums):
        return ()
    parts = (Sequences(*part) for part in batch.parts or ())
    return (Sequences(batch.requests, *known), *sorted(parts, key=lambda part: (-part.queries, -part.count)))
