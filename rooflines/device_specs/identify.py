"""Identify a device without a driver's name: by compute capability, number of units, memory and names of
kernels.

Some recorders leave the name empty, and ROCm prints "AMD Radeon Graphics" for a device without a name. Facts
besides the name often fits one data sheet only, or several whose roofs hardly differ. The answer is a guess,
and is shown as one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from rooflines.device_specs import catalog
from rooflines.device_specs.catalog import SheetFacts
from rooflines.device_specs.sheet import Sheet
from rooflines.units import si

# Names that a driver prints for many devices.
_SHARED = (
    "",
    "amd radeon graphics",
    "radeon graphics",
    "amd instinct",
    "graphics device",
    "nvidia graphics device",
    "gpu",
    "cuda",
)
# Devices whose roofs lie within this factor of each other are taken for the fastest of them.
_ALIKE = 1.25
_GFX = re.compile(r"gfx([0-9]{1,2}[0-9][0-9a-f])(?![0-9a-z])|_ISA([0-9]{1,2}[0-9][0-9a-f])(?=_|$)")
_PRODUCT = re.compile(r"(?<![0-9a-zA-Z])(MI(?:100|210|250X?|300[AX]|308X|325X|350X|355X))(?![0-9a-zA-Z])")
# From Hopper on, libraries have kernels for one compute capability alone; older ones run on newer devices as
# well.
_SM = re.compile(r"(?<![0-9a-zA-Z])sm_?(90|100|103|120)a?(?![0-9a-z])")


class DeviceTraits(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about a device besides its name; None or empty if unknown."""

    #: The compute capability ("9.0"; that of ROCm for gfx942 is "9.4").
    capability: str = ""
    units: int | None = None
    memory_bytes: int | None = None
    #: Threads of a warp or wavefront.
    warp: int | None = None
    #: Compute capabilities in the names of its kernels.
    architectures: tuple[str, ...] = ()
    #: Device names in the names of its kernels.
    products: tuple[str, ...] = ()

    def words(self) -> str:
        """The traits as a list in words."""
        parts = [
            f"compute capability {self.capability}" if self.capability else "",
            f"{self.units} units" if self.units else "",
            f"{si(self.memory_bytes, 'B')} of memory" if self.memory_bytes else "",
            *(f"kernels of {name}" for name in (*self.architectures, *self.products)),
        ]
        return ", ".join(part for part in parts if part)


class Guess(msgspec.Struct, frozen=True, kw_only=True):
    """The device that the traits fit, None where they fit none or several that differ; ``others`` are the
    sheets that fit as well."""

    sheet: Sheet | None
    others: tuple[Sheet, ...] = ()

    @property
    def name(self) -> str:
        """The device as its driver prints it."""
        return "" if self.sheet is None else (self.sheet.names or (self.sheet.name,))[0]


def is_shared_name(name: str) -> bool:
    """Whether ``name`` is empty or one that a driver prints for many devices."""
    return " ".join(name.casefold().replace("(tm)", " ").split()) in _SHARED


def traits_in_kernels(names: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The architectures (``gfx942``, ``sm90``) and the products (``MI300X``) that names of kernels contain,
    sorted."""
    architectures: set[str] = set()
    products: set[str] = set()
    for name in names:
        architectures.update(f"gfx{one or other}" for one, other in _GFX.findall(name))
        architectures.update(f"sm{found}" for found in _SM.findall(name))
        products.update(_PRODUCT.findall(name))
    return tuple(sorted(architectures)), tuple(sorted(products))


def guess(traits: DeviceTraits) -> Guess:
    """The GPU that all of ``traits`` fit: the fastest of several where they differ by less than a quarter."""
    if not (traits.capability or traits.architectures or traits.products):
        return Guess(sheet=None)
    fitting = [
        sheet for sheet in catalog.sheets() if sheet.kind == "cuda" and sheet.names and _fits(sheet, traits)
    ]
    if not fitting:
        return Guess(sheet=None)
    fastest = max(fitting, key=_speed)
    others = tuple(sheet for sheet in fitting if sheet is not fastest)
    pairs = (pair for sheet in others for pair in zip(_speed(fastest), _speed(sheet), strict=True))
    alike = all(max(pair) <= _ALIKE * min(pair) for pair in pairs)
    return Guess(sheet=fastest, others=others) if alike else Guess(sheet=None, others=tuple(fitting))


def _fits(sheet: Sheet, traits: DeviceTraits) -> bool:
    own = sheet.compute_capability
    amd = sheet.vendor == "AMD"
    if own.startswith("gfx"):  # as torch reports it: gfx90a is 9.0, gfx942 is 9.4, gfx1100 is 11.0
        own = f"{own[3:-2]}.{own[-2]}"
    if traits.warp == 64 and not amd:
        return False
    if traits.capability and (
        traits.capability != own or (amd and traits.warp == 32 and own.startswith("9."))
    ):
        return False
    # gfx942 and sm90
    named = {sheet.compute_capability, f"sm{sheet.compute_capability.replace('.', '')}"}
    if traits.architectures and named.isdisjoint(traits.architectures):
        return False
    if traits.products and not any(product in sheet.name.split() for product in traits.products):
        return False
    facts = SheetFacts(kind="cuda", units=traits.units, memory_bytes=traits.memory_bytes)
    return any(match.sheet == sheet for match in catalog.matching(sheet.names[0], facts))


def _speed(sheet: Sheet) -> tuple[float, float]:
    """The bandwidth of the memory, and the fastest rate of half-precision products, else of fp32."""
    rates = [
        rate
        for precision, engine in (("fp16", "matrix"), ("fp32", "vector"))
        if (rate := sheet.rate(precision, engine))
    ]
    return sheet.memory.bytes_per_second, rates[0].per_second if rates else 0.0
