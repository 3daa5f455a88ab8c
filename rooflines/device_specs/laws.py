"""Laws between the figures of one device, which show a figure that is too low though its rounds agree.

A disturbance makes a rate lower, never higher. So where two figures contradict each other, the suspect is the
one that would have to be higher. Each law is a pure function from ceilings to what breaks it; a figure that
is missing breaks nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from rooflines.device_specs.records import DISTURBED, Ceiling, marks_of
from rooflines.units import percent, si

Key = tuple[str, str, str, int | None]

_ONE = "1 thread"
# Two figures are rarely taken at the same clock: a core alone runs faster than all together, and turbo comes
# and goes.
_CLOCKS = 0.07
_ROUNDS = 0.05  # as far as two rounds of one figure may be apart
# All-core clocks go down to two thirds of a single core's (wide vectors on servers); two threads on one core
# reach a half.
_TOGETHER = 0.6
# Reads and writes of a memory overlap more or less well, and a bus that turns around between them loses time.
_OVERLAP = 0.15
# How much longer stores alone may take than an update: their lines are fetched without a load that announces
# them.
_FETCH = 0.5


class Broken(NamedTuple):
    """A law that does not hold: the key of the figure that must be higher, and the law in words (without a
    comma)."""

    suspect: Key
    law: str


def broken(ceilings: Sequence[Ceiling], cores: int | None = None) -> tuple[Broken, ...]:
    """Every law that ``ceilings`` of one device break.

    ``cores`` is how many physical cores the threads of a CPU run on, at most one a thread; without it one for
    every thread.
    """
    # A disturbed figure is marked anyway, and per processor time it may be too high: it does not contradict
    # another.
    measured = [one for one in ceilings if one.source.kind == "measured" and DISTURBED not in marks_of(one)]
    laws = (_threads(measured, cores), *(law(measured) for law in (_vectors, _levels, _updates, _variants)))
    return tuple(found for law in laws for found in law)


def _at_least(
    one: Ceiling | None, factor: float, other: Ceiling | None, tolerance: float, times: str = ""
) -> Iterator[Broken]:
    """``one`` must not be lower than ``factor`` times ``other``, less ``tolerance``; ``times`` says the
    factor in words."""
    if one is not None and other is not None and one.value < (1 - tolerance) * factor * other.value:
        name = f"{other.name} ({other.variant})" if other.variant else other.name
        yield Broken(
            one.key,
            f"{percent(one.value / (factor * other.value))} of {times}{name} ({si(other.value, other.unit)})",
        )


def _pick(ceilings: Iterable[Ceiling], name: str, variant: str = "") -> Ceiling | None:
    return next((one for one in ceilings if (one.name, one.variant) == (name, variant)), None)


def _threads(ceilings: Sequence[Ceiling], cores: int | None) -> Iterator[Broken]:
    """N threads are at most N times as fast as one; on cores or caches of their own not much slower than
    that, on shared memory not slower than one thread.

    Two hardware threads of one core do not add up, so cores count, not threads. A cache is the threads' own
    where they have N times the capacity of one.
    """
    for one in ceilings:
        if one.variant != _ONE:
            continue
        together = _pick(ceilings, one.name)
        if together is None or not together.threads or together.threads < 2:
            continue
        threads = together.threads
        yield from _at_least(one, 1 / threads, together, _CLOCKS, f"1/{threads} of ")
        if one.kind == "compute" or (
            one.capacity_bytes is not None and together.capacity_bytes == threads * one.capacity_bytes
        ):
            count = min(threads, cores or threads)
            yield from _at_least(together, count, one, 1 - _TOGETHER if count > 1 else _CLOCKS, f"{count} x ")
        else:
            yield from _at_least(together, 1, one, _ROUNDS)


def _vectors(ceilings: Sequence[Ceiling]) -> Iterator[Broken]:
    """The vector units of a CPU, whose figures say how many threads they took.

    A register holds twice as many fp32 as fp64 numbers, and as many instructions on either start in a cycle:
    so on x86 since SSE2 and on 64-bit Arm (Zen, Xeon, Core, Neoverse, Apple); few old Atoms multiply fp64 at
    half pace and keep the mark. GPUs have fewer units for fp64. Vectors with FMA are not slower than vectors
    without, and these not slower than one lane at a time; the narrowest case: two fp64 lanes without FMA do
    as many FLOP an instruction as one lane with FMA (NEON). Products of fp32 and fp64 run on these units, so
    they are not faster: AMX of x86 has no fp32 or fp64. Apple's Accelerate multiplies on another unit, GPUs
    on tensor cores: there nothing follows.
    """
    for variant in ("", _ONE, "no FMA"):
        single = _pick(ceilings, "FMA fp32", variant)
        double = _pick(ceilings, "FMA fp64", variant)
        if single is not None and single.threads:
            yield from _at_least(single, 2, double, _CLOCKS, "2 x ")
            yield from _at_least(double, 0.5, single, _CLOCKS, "half of ")
    variants = ("", "no FMA", "scalar")
    kinds = {
        kind: [_pick(ceilings, f"FMA {kind}", variant) for variant in variants] for kind in ("fp32", "fp64")
    }
    for fused, unfused, scalar in kinds.values():
        yield from _at_least(fused, 1, unfused, _CLOCKS)
        yield from _at_least(unfused, 1, scalar, _CLOCKS)
    for precision, (vector, *_) in kinds.items():
        matrix = _pick(ceilings, f"GEMM {precision}")
        if (
            vector is not None
            and vector.threads
            and matrix is not None
            and "Accelerate" not in matrix.source.detail
        ):
            yield from _at_least(vector, 1, matrix, _ROUNDS)


def _levels(ceilings: Sequence[Ceiling]) -> Iterator[Broken]:
    """A memory level is not slower than the next one outwards, for the same access by as many threads.

    Non-temporal stores to DRAM fetch nothing, unlike ordinary stores to a cache, so they are compared with
    nothing.
    """
    groups: dict[tuple[str | None, str, int | None], list[Ceiling]] = {}
    for one in ceilings:
        if (
            one.kind == "memory"
            and one.access
            and one.level != "shared"
            and "non-temporal" not in one.source.detail
        ):
            variant = one.variant if one.variant in ("", _ONE) else ""  # a kind of stores
            groups.setdefault((one.access, variant, one.threads), []).append(one)
    for levels in groups.values():
        levels.sort(key=lambda one: (one.capacity_bytes is None, one.capacity_bytes or 0))
        for inner, outer in itertools.pairwise(levels):
            yield from _at_least(inner, 1, outer, _ROUNDS)


def _updates(ceilings: Sequence[Ceiling]) -> Iterator[Broken]:
    """To update an element takes as long as to read it at least, and as to read and to write it in turn at
    most.

    Writing alone may take longer: stores fetch their lines too, and without loads before them later than an
    update does (by a fifth from L2, by a third from DRAM on a recent Xeon). Non-temporal stores spare the
    fetch that an update needs, so they say nothing.
    """
    for update in ceilings:
        if update.kind != "memory" or update.access != "update":
            continue
        read, write = (
            _pick(ceilings, f"{update.level} {access}", update.variant) for access in ("read", "write")
        )
        # seconds an element of 8 bytes: 8 / read, 8 / write, 16 / update
        if read is not None and 8 / read.value > (1 + _OVERLAP) * 16 / update.value:
            yield Broken(read.key, f"{percent(2 * read.value / update.value)} of what {update.name} implies")
        if read is None or write is None or "non-temporal" in write.source.detail:
            continue
        turns = 8 / read.value + 8 / write.value
        if 16 / update.value > (1 + _OVERLAP) * turns:
            yield Broken(
                update.key, f"{percent(turns * update.value / 16)} of what {read.name} and {write.name} imply"
            )
        if 8 / write.value > (1 + _FETCH) * 16 / update.value:
            yield Broken(
                write.key, f"{percent(2 * write.value / update.value)} of what {update.name} implies"
            )


def _variants(ceilings: Sequence[Ceiling]) -> Iterator[Broken]:
    """A burst is not slower than what a device sustains, and pinned memory, which a GPU reads by itself, not
    than pageable memory, which the driver copies once more."""
    for slow in ceilings:
        if slow.variant in ("sustained", "pageable"):
            yield from _at_least(_pick(ceilings, slow.name), 1, slow, _CLOCKS)
