"""Ceilings of a device, each with the source of its number.

Every rate is dense (never 2:4 sparse), in SI base units, and says what it was measured or read with. The flat
``Ceiling`` is what is stored and shown; ``Ceilings`` answers the two questions that the analysis asks: how
fast could this arithmetic run, and how fast could these bytes move.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec.structs import replace

Precision = Literal["fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "fp4", "int8"]
Engine = Literal["vector", "matrix"]
RateUnit = Literal["FLOP/s", "OP/s"]
SourceKind = Literal["measured", "spec", "derived", "user", "trace"]

# The words in a ceiling's source that say why the figure should be read with care, and what each of them
# means.
DISTURBED = "disturbed"
UNCONFIRMED = "unconfirmed"
CONTRADICTS = "contradicts"
THROTTLED = "throttled"
MARKS = {
    UNCONFIRMED: "no second round came within 5 % of the best",
    DISTURBED: "other processes used the same cores, so it may be too low",
    CONTRADICTS: "it contradicts another figure, so it may be too low",
    THROTTLED: "the device ran below the requested clock",
}


# The variant of a rate in a precision for which the device has no units: products are slower than in fp32.
EMULATED = "emulated"
# Torch does arithmetic in these in fp32 registers where a device has no units for them.
_NARROW = ("bf16", "fp16", "fp8", "int8")


def rate_unit(precision: str | None) -> RateUnit:
    """The unit of a rate of arithmetic: operations on integers are no FLOPs."""
    return "OP/s" if precision == "int8" else "FLOP/s"


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """The source of a figure: the kind, the method or document, and the ISO date. ``trace`` is the trace that
    it judges."""

    kind: SourceKind
    detail: str
    date: str = ""


class Conditions(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a device while a figure was measured: medians over the measurement; None for what the
    device does not report."""

    clock_hz: float | None = None
    memory_clock_hz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    #: The driver's reasons for running below the requested clock.
    throttled: tuple[str, ...] = ()


class Ceiling(msgspec.Struct, frozen=True, kw_only=True):
    """One roof of a device, with the source of its number."""

    #: A ``link`` leaves the device: one from or to the host (``H2D``, ``D2H``) bounds copies, one to another
    #: device no operator.
    kind: Literal["compute", "memory", "latency", "link"]
    name: str
    #: The best of ``rounds`` rounds.
    value: float
    #: FLOP/s (OP/s for int8) for compute, B/s for memory and links, s for latency.
    unit: Literal["FLOP/s", "OP/s", "B/s", "s"]
    source: Source
    precision: Precision | None = None
    #: The units that compute: vector or matrix.
    engine: Engine | None = None
    #: The precision in which products are added up.
    accumulate: str | None = None
    #: The memory, cache or link.
    level: str | None = None
    access: Literal["read", "write", "update", "copy", "triad"] | None = None
    #: The size of a cache; None for a memory outside of all caches.
    capacity_bytes: int | None = None
    #: The coefficient of variation between the rounds; None for a figure that was not measured.
    spread: float | None = None
    rounds: int | None = None
    #: The number of rounds within 5 % of the best.
    agreeing: int | None = None
    #: A further roof below the main one of its kind ("scalar", "1 thread", "sustained", "pageable"); empty
    #: for the main one.
    variant: str = ""
    #: The number of threads of a CPU that it takes.
    threads: int | None = None
    conditions: Conditions | None = None

    @property
    def key(self) -> tuple[str, str, str, int | None]:
        """The key that identifies a figure in two measurements."""
        return self.kind, self.name, self.variant, self.threads

    def noted(self, note: str) -> Ceiling:
        """The same with ``note`` at the end of its source's detail."""
        return replace(self, source=replace(self.source, detail=self.source.detail + note))


class Ceilings(msgspec.Struct, frozen=True, kw_only=True):
    """All roofs of one device. Its questions are answered by main roofs alone: a variant lies below the main
    roof of its kind."""

    #: The name as the driver prints it.
    device: str
    #: The torch device type: cpu, cuda, mps.
    kind: str
    ceilings: tuple[Ceiling, ...]
    #: Device, driver and package versions, for the cache.
    fingerprint: str = ""
    #: ISO time of the latest measurement.
    measured_at: str = ""
    #: The number of measurements that the figures are the best of.
    measurements: int = 1
    #: ISO time of the first measurement.
    since: str = ""
    #: Whether every figure was measured and not only those that judge a run.
    full: bool = False
    #: Seconds for which the sustained figures were held.
    sustained_s: float | None = None
    #: The version of the kernels and of their timing.
    method: int | None = None
    #: The versions of the packages that took part.
    packages: dict[str, str] = msgspec.field(default_factory=dict)
    driver: str | None = None
    #: The number of threads of a CPU.
    threads: int | None = None
    #: The clock that the cores of a CPU sustained on integers.
    clock_hz: float | None = None

    def main(self, kind: str) -> tuple[Ceiling, ...]:
        """The main roofs of one kind, in the order given."""
        return tuple(c for c in self.ceilings if c.kind == kind and not c.variant)

    def compute(self, precision: str, engine: Engine) -> Ceiling | None:
        """The highest roof for arithmetic of ``precision`` on ``engine``, or None when none is known.

        Matrix work may run on the vector units as well (on most CPUs it does), so for ``matrix`` the higher
        of the two counts. Vector arithmetic on the half precisions is done in fp32 registers where the device
        lists no separate rate, and so is an emulated precision. Products that accumulate in fp16 are not a
        roof for torch, which accumulates in fp32, unless no other is known.
        """
        if self.emulated(precision) is not None:
            return self.compute("fp32", engine)
        found = self._highest(precision, engine)
        if found is None and engine == "vector" and precision in ("tf32", *_NARROW):
            return self.compute("fp32", "vector")
        return found

    def _highest(self, precision: str, engine: Engine) -> Ceiling | None:
        engines = ("matrix", "vector") if engine == "matrix" else ("vector",)
        found = [c for c in self.main("compute") if c.precision == precision and c.engine in engines]
        usual = [c for c in found if not (c.engine == "matrix" and c.accumulate == "fp16")]
        return max(usual or found, key=lambda c: c.value, default=None)

    def emulated(self, precision: str) -> Ceiling | None:
        """The rate of products in a precision that the device emulates, or has so few units for that fp32 is
        twice as fast; None for another one."""
        found = (c for c in self.ceilings if c.variant == EMULATED and c.precision == precision)
        slow = next(found, None)
        if slow is None and precision in _NARROW:
            own, usual = self._highest(precision, "matrix"), self._highest("fp32", "matrix")
            return own if own is not None and usual is not None and 2 * own.value < usual.value else None
        return slow

    def with_three_passes(self) -> Ceilings:
        """These with a roof of fp32 products that are made of three in TF32."""
        tf32 = self.compute("tf32", "matrix")
        if tf32 is None or tf32.engine != "matrix":
            return self
        passes = replace(tf32, name=f"fp32 by 3 x {tf32.name}", precision="fp32", value=tf32.value / 3)
        return replace(self, ceilings=(*self.ceilings, passes))

    def of_any_accumulation(self) -> Ceilings:
        """These with products that accumulate in fp16 as any others."""
        if not any(one.accumulate == "fp16" and one.engine == "matrix" for one in self.ceilings):
            return self
        return replace(self, ceilings=tuple(replace(one, accumulate=None) for one in self.ceilings))

    def memory_levels(self) -> tuple[Ceiling, ...]:
        """The fastest access rate of every memory level, nearest to the arithmetic first; the last has no
        capacity limit."""
        best: dict[str, Ceiling] = {}
        for ceiling in self.main("memory"):
            level = ceiling.level or ceiling.name
            if level not in best or ceiling.value > best[level].value:
                best[level] = ceiling
        return tuple(sorted(best.values(), key=lambda c: (c.capacity_bytes is None, c.capacity_bytes or 0)))

    def outermost_memory(self) -> Ceiling | None:
        """The fastest access rate of DRAM or HBM: the slanted line that is always drawn."""
        levels = self.memory_levels()
        return levels[-1] if levels and levels[-1].capacity_bytes is None else None

    def latency(self) -> Ceiling | None:
        """The shortest time this device takes to run an operator that does nothing."""
        return min(self.main("latency"), key=lambda c: c.value, default=None)


def marks_of(ceiling: Ceiling) -> list[str]:
    """The words of ``MARKS`` that belong to a ceiling."""
    found = [word for word in MARKS if f", {word}" in ceiling.source.detail]
    return [*found, THROTTLED] if ceiling.conditions and ceiling.conditions.throttled else found


def marked(ceiling: Ceiling, word: str) -> str:
    """The text after one of these words in the source of ``ceiling``; empty without it."""
    for part in ceiling.source.detail.split(", "):
        if part.startswith(word):
            return part.removeprefix(word).lstrip(": ")
    return ""
