"""Measured, data sheet and derived side by side: which figure of one belongs to which of the others, and how
much of it is reached."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from rooflines.device_specs import detect
from rooflines.device_specs.records import Ceiling, Ceilings
from rooflines.errors import UsageError

# A variant comparable with a sheet's figure: the others are lower on purpose (one thread, no SIMD, one access
# pattern).
_SUSTAINED = "sustained"


class References(msgspec.Struct, frozen=True, kw_only=True):
    """The references of a measurement. If one is missing, ``no_spec`` or ``no_derived`` gives the reason."""

    spec: Ceilings | None = None
    derived: Ceilings | None = None
    no_spec: str = ""
    no_derived: str = ""


class RoofComparison(msgspec.Struct, frozen=True, kw_only=True):
    """One roof as measured, as in the sheet and as derived; None if missing."""

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
        """The reference for the measured figure: the sheet, or the derived figure without a sheet."""
        return self.spec or self.derived

    @property
    def reference_source(self) -> Literal["spec", "derived"] | None:
        """The kind of that reference."""
        return "spec" if self.spec else "derived" if self.derived else None

    @property
    def fraction(self) -> float | None:
        """Measured over reference, both a rate; above 1 where the device ran at a clock above the
        reference's."""
        return self.measured.value / self.reference.value if self.measured and self.reference else None


def references(measured: Ceilings, device: str) -> References:
    """The data sheet and the derived ceilings of ``device`` (cpu, cuda:0, mps), of ``measured``, if there are
    any."""
    from rooflines.device_specs import live

    # the physical cores that the measured threads ran on: two threads of a core do not add up to more of it
    counts = (measured.threads, detect.physical_cores()) if measured.kind == "cpu" else ()
    cores = min(filter(None, counts), default=None)
    spec, no_spec = _known(lambda: live.spec(device, cores=cores))
    derived, no_derived = _known(lambda: live.derived(device, cores=cores, clock_hz=measured.clock_hz))
    return References(spec=spec, derived=derived, no_spec=no_spec, no_derived=no_derived)


def _known(look: Callable[[], Ceilings]) -> tuple[Ceilings | None, str]:
    """What ``look`` finds, or why it finds nothing."""
    try:
        return look(), ""
    except UsageError as error:
        return None, error.message


def compare(measured: Ceilings | None, references: References) -> tuple[RoofComparison, ...]:
    """Return a row for every measured rate with a reference, and one for every reference that was not
    measured.

    Compute goes by precision, engine and accumulate type; a matrix product without a matrix figure is
    compared with the vector units that it runs on. Memory goes by level, every access pattern on its own, a
    link to the host by its direction. Latency has no sheet.
    """
    spec, derived = references.spec, references.derived
    rows = [
        RoofComparison(measured=one, spec=_counterpart(one, spec), derived=_counterpart(one, derived))
        for one in (measured.ceilings if measured else ())
        if one.kind in ("compute", "memory", "link")
        and (not one.variant or one.variant.startswith(_SUSTAINED))
    ]
    rows = [row for row in rows if row.reference is not None]
    for one in filter(_is_rate, spec.ceilings if spec else ()):
        if not any(row.spec is one for row in rows):
            rows.append(RoofComparison(spec=one, derived=_counterpart(one, derived)))
    for one in filter(_is_rate, derived.ceilings if derived else ()):
        if not any(row.derived is one for row in rows):
            rows.append(RoofComparison(derived=one))
    return tuple(sorted(rows, key=lambda row: row.any.kind != "compute"))


def without_reference(measured: Ceilings, rows: tuple[RoofComparison, ...]) -> tuple[Ceiling, ...]:
    """The main roofs without a reference: usually caches."""
    held = [row.measured for row in rows]
    return tuple(
        one for one in measured.ceilings if _is_rate(one) and not any(one is other for other in held)
    )


def _is_rate(one: Ceiling) -> bool:
    return one.kind in ("compute", "memory") and not one.variant


def _counterpart(one: Ceiling, others: Ceilings | None) -> Ceiling | None:
    """The figure of ``others`` for the same units or the same memory."""
    if others is None:
        return None
    if one.kind == "memory":  # the same cache, or the memory outside of all caches under any name
        caches = one.capacity_bytes is not None
        levels = [other for other in others.memory_levels() if (other.capacity_bytes is not None) == caches]
        return next((other for other in levels if not caches or other.level == one.level), None)
    if one.kind == "link":
        return next((other for other in others.main("link") if other.name == one.name), None)
    same = [other for other in others.main("compute") if other.precision == one.precision]
    own = [other for other in same if other.engine == one.engine]
    exact = [other for other in own if one.accumulate is None or other.accumulate in (None, one.accumulate)]
    shared = same if one.engine == "matrix" else []
    # Another accumulate type on the same engine is another figure, not this one.
    candidates = exact or ([] if own else shared)
    return max(candidates, key=lambda other: other.value, default=None)
