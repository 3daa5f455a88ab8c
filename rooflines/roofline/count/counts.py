"""The count of every operator event of a trace, and what resolvers improve it with: the record of the third
room."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from rooflines.profiler.compiled.inductor_cache import CachedKernel
from rooflines.profiler.compiled.records import CompiledCode
from rooflines.profiler.read.distinct import distinct
from rooflines.profiler.read.records import CaptureTrace, Int32s, Int64s, Mask, Trace
from rooflines.profiler.read.signature import Signature, StoredCall
from rooflines.profiler.records import ProgramLine
from rooflines.profiler.tree.tree import Calls
from rooflines.roofline.count.formulas import CallCount, Work, count

DISPATCHES = CallCount("composite", None, "other")


@dataclass(frozen=True, slots=True)
class Variant:
    """A call as it was counted. ``inferred`` says which of its arguments come from other calls in the trace,
    None for none."""

    signature: Signature
    count: CallCount
    inferred: str | None = None


# Events (their numbers), and how each of them is counted.
Group = tuple[Int64s | list[int], Variant]


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a trace besides the trace itself, for the rooms after the tree.

    ``parameter_elements`` is how many elements of parameters the optimizers of one step update together, None
    where that is not known, and ``parameter_dtype`` the dtype of lists of tensors. ``stored_calls`` are the
    calls of one step that were stored with the arguments that the trace leaves out, in order. ``code`` is
    what ``torch.compile`` generated for the run, ``inductor_cache`` the kernels of a cache of inductor by
    name, None where none was given. ``captures`` are traces of the capture of its graphs. ``quiet`` says
    which steps on a CPU count where others were disturbed, ``range_ns`` what the range of a module took the
    host. ``marked`` are the calls of the step whose ``lines`` of the program are marked.
    """

    parameter_elements: int | None = None
    parameter_dtype: str = "float32"
    stored_calls: tuple[StoredCall, ...] = ()
    code: CompiledCode | None = None
    inductor_cache: dict[str, tuple[CachedKernel, ...]] | None = None
    captures: tuple[CaptureTrace, ...] = ()
    quiet: Mask | None = None
    range_ns: float = 0.0
    marked: Calls | None = None
    lines: tuple[ProgramLine, ...] = ()


NOTHING = Known()


@dataclass(frozen=True, slots=True)
class Counts:
    """The count of every host event of ``calls``: ``of_event`` indexes ``variants``, -1 for an event that is
    not an operator.

    ``of_code`` says which events were counted by the code of the run, None without such code, and
    ``code_lines`` which lines of the program they were compiled from.
    """

    calls: Calls
    known: Known
    variants: tuple[Variant, ...]
    of_event: Int64s
    of_code: Mask | None = None
    code_lines: Mapping[int, tuple[ProgramLine, ...]] = field(default_factory=dict)

    @property
    def trace(self) -> Trace:
        """The trace of the calls."""
        return self.calls.trace

    def where(self, test: Callable[[Variant], bool]) -> Mask:
        """The events whose variant passes ``test``."""
        found: Mask = np.array([*map(test, self.variants), False])[self.of_event]
        return found

    def of_kind(self, kind: str) -> Mask:
        """The events whose count is of this kind."""
        return self.where(lambda variant: variant.count.kind == kind)

    @property
    def working(self) -> Mask:
        """The counted events that have any work."""
        return self.where(lambda variant: variant.count.kind == "counted" and variant.count.work != Work())

    @property
    def decomposing(self) -> Mask:
        """The counted events that PyTorch decomposes."""
        return self.where(lambda variant: variant.count.kind == "counted" and variant.count.decomposes)

    @property
    def multiplying(self) -> Mask:
        """The events that are counted as matrix work."""
        return self.where(
            lambda variant: variant.count.work is not None and variant.count.work.matrix_flops > 0
        )

    def recounted(self, groups: Iterable[Group]) -> Counts:
        """The counts, with each group of events counted as its variant."""
        variants = list(self.variants)
        of_event = self.of_event.copy()
        for events, variant in groups:
            of_event[events] = len(variants)
            variants.append(variant)
        return replace(self, variants=tuple(variants), of_event=of_event)

    def resolved(self, resolve: Resolver) -> Counts:
        """The counts as ``resolve`` improves them."""
        found = resolve(self)
        return found if isinstance(found, Counts) else self.recounted(found)

    def dispatching(self, events: Int64s) -> Iterator[Group]:
        """Groups of ``events`` that only dispatch: their work is that of operators below them."""
        for code, places in places_of(self.of_event[events]):
            yield events[places], Variant(self.variants[code].signature, DISPATCHES)


def places_of(codes: npt.NDArray[Any]) -> Iterator[tuple[int, Int64s]]:
    """Each distinct number in ``codes`` with the places where it stands, both in ascending order."""
    numbers, which = distinct(codes)
    ends = np.cumsum(np.bincount(which, minlength=len(numbers)))
    return zip(numbers.tolist(), np.split(np.argsort(which, kind="stable"), ends[:-1]), strict=False)


def unset(number: int) -> Int64s:
    """A column of places of which none is known yet (-1)."""
    return np.full(number, -1, np.int64)


def same_in_group(values: Int64s | Int32s, group: Int64s, groups: int) -> Int64s:
    """The value of each group in which all ``values`` are the same, else -1."""
    least = np.full(groups, np.iinfo(np.int64).max)
    most = unset(groups)
    np.minimum.at(least, group, values)
    np.maximum.at(most, group, values)
    return np.where(least == most, most, -1)


# Finds events that can be counted better, or returns the counts with another call tree.
Resolver = Callable[[Counts], Iterable[Group] | Counts]


@dataclass(frozen=True, slots=True)
class OfCounts:
    """A record made of counted calls."""

    counts: Counts

    @property
    def calls(self) -> Calls:
        """The call tree; that of divided time has the modules of captured graphs."""
        return self.counts.calls

    @property
    def trace(self) -> Trace:
        """The trace of the calls."""
        return self.counts.trace

    def path(self, module: int) -> str:
        """The path of a module of the calls; empty for none (-1)."""
        return self.calls.modules[module].path if module >= 0 else ""


def count_signatures(calls: Calls, known: Known) -> Counts:
    """The counts from the recorded signatures alone, each distinct one counted once."""
    trace = calls.trace
    variants = tuple(Variant(signature, count(signature)) for signature in trace.signatures)
    return Counts(calls, known, variants, trace.host.signature.astype(np.int64))
