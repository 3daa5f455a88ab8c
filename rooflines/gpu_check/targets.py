"""What the measured ceilings of a device must reach, and the goals above that.

Both exist for the H200 and for the H100 SXM only: the same chip at the same clocks and power, so that the same fraction of the data
sheet can be reached on both. A device of another power limit (H100 PCIe, H200 NVL) or a slice of one (MIG) has no targets.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from rooflines.device_specs import catalog
from rooflines.device_specs.catalog import Facts
from rooflines.device_specs.records import Ceiling
from rooflines.device_specs.sheet import Sheet
from rooflines.errors import UsageError


class _Figures(NamedTuple):
    least: float
    goal: float


_REFERENCE = "H200 SXM5"
_SAME_CHIP = "H100 SXM5 80GB"
# B/s and FLOP/s. ``least`` fails the check below it; ``goal`` is what the kernels are written to reach, and is only reported.
_TARGETS = {
    "HBM copy": _Figures(4.1e12, 4.3e12),
    "FMA fp32": _Figures(60e12, 62e12),
    "GEMM bf16": _Figures(780e12, 800e12),
    "GEMM fp8": _Figures(1400e12, 1500e12),
}


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """The ``least`` that passes and the ``goal`` of a ceiling, what was ``measured`` (None: nothing), and the ``basis`` of both."""

    ceiling: str
    unit: str
    least: float
    goal: float
    basis: str
    measured: float | None = None


def targets(device_name: str, facts: Facts, measured: Iterable[Ceiling]) -> tuple[Target, ...]:
    """The targets of the device that its driver calls ``device_name``; empty for a device that has none."""
    try:
        match = catalog.identify(device_name, facts)
    except UsageError:
        return ()
    if match.mig is not None or match.sheet.name not in (_REFERENCE, _SAME_CHIP):
        return ()
    reference = next(sheet for sheet in catalog.sheets() if sheet.name == _REFERENCE)
    values = {one.name: one.value for one in measured if not one.variant}
    return tuple(_target(name, figures, match.sheet, reference, values.get(name)) for name, figures in _TARGETS.items())


def _target(name: str, figures: _Figures, sheet: Sheet, reference: Sheet, measured: float | None) -> Target:
    share = _rate(sheet, name) / _rate(reference, name)
    basis = f"set for the {reference.name}"
    if sheet is not reference:
        basis += f", times {share:.4g}, the ratio of the data-sheet rates of the two"
    unit = "B/s" if name.startswith("HBM") else "FLOP/s"
    return Target(ceiling=name, unit=unit, least=figures.least * share, goal=figures.goal * share, basis=basis, measured=measured)


def _rate(sheet: Sheet, name: str) -> float:
    """The data-sheet rate of the memory or arithmetic that the ceiling ``name`` measures."""
    kind, precision = name.split()
    if kind == "HBM":
        return sheet.memory.bytes_per_second
    engine = "vector" if kind == "FMA" else "matrix"
    return next(
        rate.per_second for rate in sheet.compute if (rate.precision, rate.engine, rate.accumulate) == (precision, engine, "fp32")
    )
