"""One device's data sheet as a TOML file: the fields, their checks, and reading one.

A file lists dense rates, FMA = 2 FLOP, in the unit that its key names, each with its sources and the rate of
one unit per cycle and the clock that should give the same number. docs/devices.md shows a whole file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec

from rooflines.device_specs import names
from rooflines.device_specs.records import Engine, Precision, RateUnit, rate_unit
from rooflines.errors import DataError

Kind = Literal["cpu", "cuda", "mps", "xpu"]

_Positive = Annotated[float, msgspec.Meta(gt=0, lt=1e9)]  # TOML has inf and nan
_Count = Annotated[int, msgspec.Meta(gt=0, lt=1_000_000)]
_Text = Annotated[str, msgspec.Meta(min_length=1)]
_Sources = Annotated[tuple[_Text, ...], msgspec.Meta(min_length=1)]


class SheetFigure(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of every number of a sheet: ``source`` names entries of the file's ``[sources]``; ``unconfirmed``
    if none was seen."""

    source: _Sources
    unconfirmed: bool = False


class Units(SheetFigure, frozen=True, kw_only=True):
    """The number of SMs, CUs or cores of the device; ``name`` is the vendor's word."""

    name: _Text
    count: _Count


class Clock(SheetFigure, frozen=True, kw_only=True):
    """A clock that the sheet's rates refer to."""

    mhz: _Positive


class Speed(SheetFigure, frozen=True, kw_only=True):
    """A bandwidth."""

    gb_per_s: _Positive

    @property
    def bytes_per_second(self) -> float:
        return _base(self.gb_per_s, 1e9)


class SheetRate(SheetFigure, frozen=True, kw_only=True):
    """One dense arithmetic rate, floating point or (int8) integer."""

    precision: Precision
    engine: Engine
    accumulate: Literal["fp64", "fp32", "fp16", "int32"]
    tflop_per_s: _Positive | None = None
    top_per_s: _Positive | None = None
    #: Operations of one unit in a cycle of ``clock``.
    per_cycle: _Positive | None = None
    clock: str = ""
    #: The instruction set that a CPU must have for it.
    isa: str = ""
    #: Whether it was computed from ``per_cycle`` and ``clock`` because no sheet prints it.
    derived: bool = False
    #: Why the product of units, ``per_cycle`` and ``clock`` is not the rate.
    differs: str = ""
    #: Who reached a matrix rate with FP16 accumulate, which otherwise is no roof: torch accumulates in FP32.
    reached: str = ""

    def __post_init__(self) -> None:
        unit, other = (
            ("top_per_s", "tflop_per_s") if self.precision == "int8" else ("tflop_per_s", "top_per_s")
        )
        if getattr(self, unit) is None or getattr(self, other) is not None:
            raise ValueError(f"a rate of {self.precision} must be given as `{unit}` only")
        if (self.per_cycle is None) == bool(self.clock):
            raise ValueError("`per_cycle` and `clock` must be given together")
        if self.derived and self.per_cycle is None:
            raise ValueError("a `derived` rate requires `per_cycle` and `clock`")

    @property
    def per_second(self) -> float:
        """The rate in FLOP/s or OP/s."""
        return _base(self.tflop_per_s or self.top_per_s or 0.0, 1e12)

    @property
    def unit(self) -> RateUnit:
        return rate_unit(self.precision)

    @property
    def is_roof(self) -> bool:
        """Whether torch's work can be compared with it."""
        return self.engine != "matrix" or self.accumulate != "fp16" or bool(self.reached)


class SheetMemory(Speed, frozen=True, kw_only=True):
    """The memory of the device."""

    #: As in "HBM3" or "DDR5-4800 x8" (channels).
    technology: _Text
    #: The size by which it is sold (binary GB).
    capacity_gb: _Positive | None = None
    #: The least and the most where the buyer chooses.
    capacities_gb: tuple[_Positive, _Positive] | None = None
    derived: bool = False

    def __post_init__(self) -> None:
        if self.capacity_gb is not None and self.capacities_gb is not None:
            raise ValueError("`capacity_gb` and `capacities_gb` cannot be combined")

    @property
    def level(self) -> str:
        """The name of the memory in ceilings."""
        return "HBM" if self.technology.startswith("HBM") else "DRAM"


class L2Cache(SheetFigure, frozen=True, kw_only=True):
    """The L2 cache, of the whole device; on a CPU the sum of its cores' (binary MB)."""

    mb: _Positive


class Power(SheetFigure, frozen=True, kw_only=True):
    """The power that the device is built to dissipate."""

    tdp_w: _Positive


class Link(Speed, frozen=True, kw_only=True):
    """NVLink (or NVLink-C2C), all links, both directions together, as NVIDIA prints it."""


class Bus(SheetFigure, frozen=True, kw_only=True):
    """PCI Express: its generation and lanes. ``to_host`` is false where copies from and to the host take
    another way."""

    generation: Annotated[int, msgspec.Meta(ge=1, le=7)]
    lanes: Literal[1, 2, 4, 8, 16] = 16
    to_host: bool = True

    @property
    def bytes_per_second(self) -> float:
        """The rate of one direction, after the coding of the line and before the headers of packets."""
        transfers, payload = _PCIE[self.generation]
        return transfers * 1e9 * self.lanes / 8 * payload

    def words(self) -> str:
        """The rate as a calculation: ``PCIe 4.0 x16: 16 GT/s x 16 lanes / 8 x 0.985 (line coding)``."""
        transfers, payload = _PCIE[self.generation]
        return (
            f"PCIe {self.generation}.0 x{self.lanes}: {transfers:g} GT/s x {self.lanes} lanes / 8 "
            f"x {payload:.3f} (line coding), "
            "before the headers of packets"
        )


# Transfers a second of a lane (GT/s), and the share of them that is payload: 8 of 10 bits, 128 of 130, 236 of
# 256 bytes of a flit.
_PCIE = {
    1: (2.5, 8 / 10),
    2: (5.0, 8 / 10),
    3: (8.0, 128 / 130),
    4: (16.0, 128 / 130),
    5: (32.0, 128 / 130),
    6: (64.0, 236 / 256),
    7: (128.0, 236 / 256),
}


class HostLink(Speed, frozen=True, kw_only=True):
    """The link between device and host if not PCI Express, such as NVLink-C2C; GB/s of each direction."""

    technology: _Text


class Sheet(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One device."""

    name: _Text
    vendor: _Text
    #: The torch device type.
    kind: Kind
    architecture: _Text
    #: Whole names as drivers print them; matching is tolerant of what ``names.parse`` takes off. Devices may
    #: share a name: then the number of units, the size of the memory or ``systems`` tell them apart.
    names: tuple[_Text, ...]
    compute: tuple[SheetRate, ...]
    memory: SheetMemory
    units: Units
    clocks: dict[str, Clock]
    sources: dict[str, _Text]
    compute_capability: str = ""
    #: The larger board or package of which the device is a part, where the driver shows each part as a
    #: device.
    part: str = ""
    #: Numbers of equal devices that the driver may be told to show it as.
    partitions: tuple[_Count, ...] = ()
    #: Makers of the machine, for CPUs that print only the design of their core and so share a name.
    systems: tuple[_Text, ...] = ()
    l2: L2Cache | None = None
    power: Power | None = None
    nvlink: Link | None = None
    pcie: Bus | None = None
    host_link: HostLink | None = None

    def __post_init__(self) -> None:
        for name in self.names:
            if not names.parse(name).text:
                raise ValueError(f"`names` contains {name!r}, which is not a device name")
        for rate in self.compute:
            if rate.clock and rate.clock not in self.clocks:
                raise ValueError(f"`compute` refers to the clock {rate.clock!r}, which is not in `clocks`")
        kinds = [(rate.precision, rate.engine, rate.accumulate) for rate in self.compute]
        if len(set(kinds)) < len(kinds):
            raise ValueError("`compute` gives the same precision, engine and accumulate type twice")
        used = {key for figure in self.figures() for key in figure.source}
        for key in sorted(used ^ set(self.sources)):
            raise ValueError(
                f"the source {key!r} is "
                + ("not in `sources`" if key in used else "in `sources` but not used by any figure")
            )

    def figures(self) -> tuple[SheetFigure, ...]:
        """Every figure of the sheet that it gives."""
        optional = (self.l2, self.power, self.nvlink, self.pcie, self.host_link)
        return (
            *self.compute,
            self.memory,
            self.units,
            *self.clocks.values(),
            *(figure for figure in optional if figure is not None),
        )

    def rate(self, precision: str, engine: str) -> SheetRate | None:
        """The highest rate of ``precision`` on ``engine`` that is a roof, None where the sheet has none."""
        found = [
            rate
            for rate in self.compute
            if (rate.precision, rate.engine) == (precision, engine) and rate.is_roof
        ]
        return max(found, key=lambda rate: rate.per_second, default=None)

    def hertz(self, rate: SheetRate) -> float:
        return _base(self.clocks[rate.clock].mhz, 1e6)

    def cited(self, figure: SheetFigure) -> str:
        """The sources of ``figure`` in words."""
        return "; ".join(self.sources[key] for key in figure.source) + (
            "; unconfirmed" if figure.unconfirmed else ""
        )


def read_sheet(path: Path, title: str = "") -> Sheet:
    """The data sheet in the file at ``path``; raises DataError naming the file (or ``title``) and the field
    that does not fit."""
    title = title or path.name
    try:
        return msgspec.toml.decode(path.read_bytes(), type=Sheet)
    except OSError as error:
        raise DataError(f"cannot read the data sheet {title}: {error.strerror or error}.") from None
    except msgspec.ValidationError as error:
        raise DataError(f"the data sheet {title} is not valid: {error}.") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DataError(f"the data sheet {title} is not TOML: {error}.") from None


def _base(value: float, factor: float) -> float:
    """A sheet's figure in its base unit, rounded to whole ones: 494.7 T is not 494700000000000.06."""
    return float(round(value * factor))
