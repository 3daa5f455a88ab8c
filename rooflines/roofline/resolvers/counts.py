"""The count of every operator event of a trace, and what resolvers improve it with."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from rooflines.profiler.compiled.inductor_cache import CachedKernel
from rooflines.profiler.trace.calls import Calls
from rooflines.profiler.trace.distinct import distinct
from rooflines.profiler.trace.nesting import Mask
from rooflines.profiler.trace.records import Int64s, Trace
from rooflines.profiler.trace.signature import Signature
from rooflines.profiler.trace.stored_call import StoredCall
from rooflines.roofline.formulas import CallCount, count

DISPATCHES = CallCount("composite", None, "other")


@dataclass(frozen=True, slots=True)
class Variant:
    """A call as it was counted. ``inferred`` says which of its arguments come from other calls in the trace, None for none."""

    signature: Signature
    count: CallCount
    inferred: str | None = None


@dataclass(frozen=True, slots=True)
class Counts:
    """The count of every host event: ``of_event`` indexes ``variants``, -1 for an event that is not an operator."""

    variants: tuple[Variant, ...]
    of_event: Int64s

    def where(self, test: Callable[[Variant], bool]) -> Mask:
        """The events whose variant passes ``test``."""
        found: Mask = np.array([*map(test, self.variants), False])[self.of_event]
        return found

    def recounted(self, groups: Iterable[tuple[Int64s, Variant]]) -> Counts:
        """The counts, with each group of events counted as its variant."""
        variants, of_event = list(self.variants), self.of_event.copy()
        for events, variant in groups:
            of_event[events] = len(variants)
            variants.append(variant)
        return replace(self, variants=tuple(variants), of_event=of_event)

    def dispatching(self, events: Int64s) -> Counts:
        """The counts where ``events`` only dispatch: their work is that of operators below them."""
        codes, group = distinct(self.of_event[events])
        signatures = [self.variants[code].signature for code in codes.tolist()]
        return self.recounted((events[group == place], Variant(signature, DISPATCHES)) for place, signature in enumerate(signatures))


@dataclass(frozen=True, slots=True)
class CompiledCalls:
    """The calls with the modules of compiled code. ``of_event`` indexes ``variants``; -1 for an event outside of compiled code."""

    calls: Calls
    variants: list[Variant]
    of_event: Int64s


@dataclass(frozen=True, slots=True)
class Context:
    """The trace as resolvers see it.

    ``parameter_elements`` is how many elements of parameters the optimizers of one step update together, None where that is not known,
    and ``parameter_dtype`` the dtype of lists of tensors. ``stored_calls`` are the calls of one step that were stored with the
    arguments that the trace leaves out, in order. ``compiled`` knows the kernels of compiled code, ``inductor_cache`` those of
    a cache of inductor by name, None where none was given.
    """

    trace: Trace
    calls: Calls
    parameter_elements: int | None = None
    parameter_dtype: str = "float32"
    stored_calls: tuple[StoredCall, ...] = ()
    compiled: CompiledCalls | None = None
    inductor_cache: dict[str, tuple[CachedKernel, ...]] | None = None


Resolver: TypeAlias = Callable[[Counts, Context], Counts]


def count_signatures(trace: Trace) -> Counts:
    """The counts from the recorded signatures alone, each distinct one counted once."""
    return Counts(tuple(Variant(signature, count(signature)) for signature in trace.signatures), trace.host.signature.astype(np.int64))
