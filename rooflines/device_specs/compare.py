"""Measured, data sheet and derived side by side: which figure of one belongs to which of the others, and how much of it is reached."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from rooflines.device_specs import detect
from rooflines.device_specs.records import Ceiling, Ceilings
from rooflines.errors import UsageError

# A variant that a sheet's figure can be held against: the others are lower on purpose (one thread, no SIMD, one access pattern).
_SUSTAINED = "sustained"


class References(msgspec.Struct, frozen=True, kw_only=True):
    """What a measurement is held against. Where there is none, ``no_spec`` and ``no_derived`` say why."""

    spec: Ceilings | None = None
    derived: Ceilings | None = None
    no_spec: str = ""
    no_derived: str = ""


class RoofComparison(msgspec.Struct, frozen=True, kw_only=True):
    """One roof as it was measured, as the sheet gives it and as it was derived; None for what there is not."""

    measured: Ceiling | None = None
    spec: Ceiling | None = None
    derived: Ceiling | None = None

    @property
    def any(self) -> Ceiling:
        """The one that names the row: the measured figure where there is one."""
        found = self.measured or self.spec or self.derived
        assert found is not None
        return found

    @property
    def reference(self) -> Ceiling | None:
        """What the measured figure is held against: the sheet, or what was derived where there is no sheet."""
        return self.spec or self.derived

    @property
    def reference_source(self) -> Literal["spec", "derived"] | None:
        """Which of the two that is."""
        return "spec" if self.spec else "derived" if self.derived else None

    @property
    def fraction(self) -> float | None:
        """Measured over reference, both a rate; above 1 where the device ran at a clock above the reference's."""
        return self.measured.value / self.reference.value if self.measured and self.reference else None


def references(measured: Ceilings, device: str) -> References:
    """The data sheet and the derived ceilings of ``device`` (cpu, cuda:0, mps), which ``measured`` is of, as far as there are any."""
    from rooflines.device_specs import live

    cores = _cores(measured)
    spec, no_spec = _known(lambda: live.spec(device, cores=cores))
    derived, no_derived = _known(lambda: live.derived(device, cores=cores, clock_hz=measured.clock_hz))
    return References(spec=spec, derived=derived, no_spec=no_spec, no_derived=no_derived)


def _known(look: Callable[[], Ceilings]) -> tuple[Ceilings | None, str]:
    """What ``look`` finds, or why it finds nothing."""
    try:
        return look(), ""
    except UsageError as error:
        return None, error.message


def _cores(measured: Ceilings) -> int | None:
    """The physical cores that the measured threads ran on, on a CPU: two threads of a core do not add up to more of it."""
    if measured.kind != "cpu":
        return None
    known = [count for count in (measured.threads, detect.physical_cores()) if count]
    return min(known, default=None)


def compare(measured: Ceilings | None, references: References) -> tuple[RoofComparison, ...]:
    """A row for every measured rate that a sheet or a derivation has too, and one for each of theirs that was not measured.

    Compute goes by precision, engine and accumulate type; a matrix product without a matrix figure of its own is held against the
    vector units that it runs on. Memory goes by level, every access pattern on its own, a link to the host by its
    direction. Latency has no sheet.
    """
    spec, derived = references.spec, references.derived
    rows = [
        RoofComparison(measured=one, spec=_counterpart(one, spec), derived=_counterpart(one, derived))
        for one in (measured.ceilings if measured else ())
        if one.kind in ("compute", "memory", "link") and (not one.variant or one.variant.startswith(_SUSTAINED))
    ]
    rows = [row for row in rows if row.reference is not None]
    for one in spec.ceilings if spec else ():
        if _is_rate(one) and not any(row.spec is one for row in rows):
            rows.append(RoofComparison(spec=one, derived=_counterpart(one, derived)))
    for one in derived.ceilings if derived else ():
        if _is_rate(one) and not any(row.derived is one for row in rows):
            rows.append(RoofComparison(derived=one))
    return tuple(sorted(rows, key=lambda row: row.any.kind != "compute"))


def without_reference(measured: Ceilings, rows: tuple[RoofComparison, ...]) -> tuple[Ceiling, ...]:
    """The main roofs that nothing could be held against: caches, as a rule."""
    held = [row.measured for row in rows]
    return tuple(one for one in measured.ceilings if _is_rate(one) and not any(one is other for other in held))


def _is_rate(one: Ceiling) -> bool:
    return one.kind in ("compute", "memory") and not one.variant


def _counterpart(one: Ceiling, others: Ceilings | None) -> Ceiling | None:
    """The figure of ``others`` for the same units or the same memory."""
    if others is None:
        return None
    if one.kind == "memory":
        return next((other for other in others.memory_levels() if _same_level(one, other)), None)
    if one.kind == "link":
        return next((other for other in others.main("link") if other.name == one.name), None)
    same = [other for other in others.main("compute") if other.precision == one.precision]
    own = [other for other in same if other.engine == one.engine]
    exact = [other for other in own if one.accumulate is None or other.accumulate in (None, one.accumulate)]
    shared = same if one.engine == "matrix" else []
    # Another accumulate type on the same engine is another figure, not this one.
    candidates = exact or ([] if own else shared)
    return max(candidates, key=lambda other: other.value, default=None)


def _same_level(one: Ceiling, other: Ceiling) -> bool:
    """The same cache, or both the memory outside of all caches, whatever it is called."""
    if one.capacity_bytes is None or other.capacity_bytes is None:
        return one.capacity_bytes is None and other.capacity_bytes is None
    return one.level == other.level
