"""Ceilings from the data sheet: one TOML file a device in ``data/``, found by the name that the driver prints.

A file lists dense rates, FMA = 2 FLOP, in the unit that its key names, each with its sources, and beside it the units, the rate of one
unit per cycle and the clock that should give the same number; a test multiplies them. Names are matched whole, so that an "L40S" is
never an "L4" and a slice of a GPU (MIG) is never the GPU. No sheet gives a latency, so these ceilings have none.
"""

from __future__ import annotations

import difflib
import functools
import math
import re
import sys
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from rooflines.device_specs import detect
from rooflines.device_specs.records import Ceiling, Ceilings, Engine, Precision, Source
from rooflines.errors import DataError, UsageError
from rooflines.units import si

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_DATA = Path(__file__).with_name("data")

_Positive = Annotated[float, msgspec.Meta(gt=0, lt=1e9)]  # TOML has inf and nan
_Text = Annotated[str, msgspec.Meta(min_length=1)]
_Sources = Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]


class _Figure(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every number of a sheet has: ``source`` names entries of the file's ``[sources]``; ``unconfirmed`` if none was seen."""

    source: _Sources
    unconfirmed: bool = False


class Units(_Figure, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many SMs, CUs or cores the device has; ``name`` is what its vendor calls one."""

    name: _Text
    count: Annotated[int, msgspec.Meta(gt=0)]


class Clock(_Figure, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A clock that the sheet's rates refer to."""

    mhz: _Positive


class Rate(_Figure, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One dense arithmetic rate, floating point or (int8) integer.

    ``per_cycle`` is the operations of one unit in a cycle of ``clock``; where the product differs from the rate, ``differs`` says why.
    ``derived`` marks a rate that was computed so because no sheet prints it. ``isa`` is the instruction set a CPU must have for it.
    """

    precision: Precision
    engine: Engine
    accumulate: Literal["fp64", "fp32", "fp16", "int32"]
    tflop_per_s: _Positive | None = None
    top_per_s: _Positive | None = None
    per_cycle: _Positive
    clock: str
    isa: str = ""
    derived: bool = False
    differs: str = ""

    def __post_init__(self) -> None:
        unit, other = ("top_per_s", "tflop_per_s") if self.precision == "int8" else ("tflop_per_s", "top_per_s")
        if getattr(self, unit) is None or getattr(self, other) is not None:
            raise ValueError(f"a rate of {self.precision} is given as `{unit}`, and only so")

    @property
    def per_second(self) -> float:
        """The rate in FLOP/s or OP/s."""
        return _base(self.tflop_per_s or self.top_per_s or 0.0, 1e12)


class Memory(_Figure, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The device's own memory; ``technology`` as in "HBM3" or "DDR5-4800 x8" (channels)."""

    technology: _Text
    gb_per_s: _Positive
    capacity_gb: _Positive | None = None
    derived: bool = False

    @property
    def level(self) -> str:
        """What the memory is called in ceilings."""
        return "HBM" if self.technology.startswith("HBM") else "DRAM"

    @property
    def bytes_per_second(self) -> float:
        return _base(self.gb_per_s, 1e9)


class Sheet(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One device. ``kind`` is the torch device type, ``names`` are patterns, each of a whole name that drivers print."""

    name: _Text
    vendor: _Text
    kind: Literal["cpu", "cuda", "mps", "xpu"]
    architecture: _Text
    names: Annotated[tuple[_Text, ...], msgspec.Meta(min_length=1)]
    compute: Annotated[tuple[Rate, ...], msgspec.Meta(min_length=1)]
    memory: Memory
    units: Units
    clocks: dict[str, Clock]
    sources: dict[str, _Text]
    compute_capability: str = ""

    def __post_init__(self) -> None:
        for pattern in self.names:
            _check_pattern(pattern)
        for rate in self.compute:
            if rate.clock not in self.clocks:
                raise ValueError(f"`compute` refers to the clock {rate.clock!r}, which is not in `clocks`")
        kinds = [(rate.precision, rate.engine, rate.accumulate) for rate in self.compute]
        if len(set(kinds)) < len(kinds):
            raise ValueError("`compute` gives the same precision, engine and accumulate type twice")
        figures: list[_Figure] = [*self.compute, self.memory, self.units, *self.clocks.values()]
        used = {key for figure in figures for key in figure.source}
        for key in sorted(used ^ set(self.sources)):
            raise ValueError(f"the source {key!r} is " + ("not in `sources`" if key in used else "in `sources` but no figure has it"))

    def matches(self, device_name: str) -> bool:
        """Whether ``device_name``, as a driver prints it, is this device."""
        return any(re.fullmatch(pattern, device_name) for pattern in self.names)

    def hertz(self, rate: Rate) -> float:
        return _base(self.clocks[rate.clock].mhz, 1e6)

    def cited(self, figure: _Figure) -> str:
        """The sources of ``figure`` in words."""
        return "; ".join(self.sources[key] for key in figure.source) + ("; unconfirmed" if figure.unconfirmed else "")


def look_up(device_name: str, *, cores: int | None = None) -> Ceilings:
    """The data-sheet ceilings of the device that its driver calls ``device_name``.

    ``cores``, for a CPU only, is the number of physical cores that the run could use; without it those of this machine count, provided
    that its CPU has that name. Raises UsageError when there is no sheet, or no way to know the cores.
    """
    name = " ".join(device_name.split())
    found = [sheet for sheet in sheets() if sheet.matches(name)]
    if len(found) != 1:
        message = f"no data sheet for {device_name!r}"
        if found:
            message = f"more than one data sheet for {device_name!r}: {', '.join(sheet.name for sheet in found)}"
        elif near := nearest(name):
            message += f"; nearest: {', '.join(near)}"
        raise UsageError(f"{message}.", hint="Use --ceilings measured, or a file with your own.")
    return _of_cpu(found[0], name, cores) if found[0].kind == "cpu" else _of_gpu(found[0], name)


@functools.cache
def sheets() -> tuple[Sheet, ...]:
    """Every data sheet of the package, ordered by file name."""
    return tuple(read_sheet(path) for path in sorted(_DATA.glob("*.toml")))


def read_sheet(path: Path) -> Sheet:
    """The data sheet in the file at ``path``; raises DataError naming the file and the field that does not fit."""
    try:
        return msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), Sheet)
    except OSError as error:
        raise DataError(f"cannot read the data sheet {path.name}: {error.strerror or error}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"the data sheet {path.name} is not TOML: {error}.") from None
    except msgspec.ValidationError as error:
        raise DataError(f"the data sheet {path.name} does not fit: {error}.") from None


def nearest(device_name: str, count: int = 3) -> tuple[str, ...]:
    """Names in the catalogue that look like ``device_name``, the most alike first; empty when none does."""
    names = {_bare(sheet.name): sheet.name for sheet in sheets()}
    return tuple(names[key] for key in difflib.get_close_matches(_bare(device_name), names, count, 0.5))


def _check_pattern(pattern: str) -> None:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"`names` has {pattern!r}, which is no regular expression: {error}") from None


def _bare(name: str) -> str:
    """``name`` without the words that many devices share."""
    return re.sub(r"nvidia|amd|intel|geforce|tesla|instinct|\(r\)|\d+-core|processor|cpu| mig .*", "", name.lower()).strip()


def _of_gpu(sheet: Sheet, name: str) -> Ceilings:
    found = []
    for rate in sheet.compute:
        # torch accumulates in fp32, so the twice higher FP16-accumulate rate of GeForce tensor cores is no roof of its work
        if rate.engine == "matrix" and rate.accumulate == "fp16":
            continue
        detail = sheet.cited(rate)
        if rate.derived:
            detail = f"{sheet.units.count} {sheet.units.name} x {_speed(sheet, rate)}; {detail}"
        found.append(_compute(rate, rate.per_second, Source(kind="derived" if rate.derived else "spec", detail=detail)))
    kind: Literal["derived", "spec"] = "derived" if sheet.memory.derived else "spec"
    found.append(_memory(sheet, sheet.memory.bytes_per_second, Source(kind=kind, detail=sheet.cited(sheet.memory))))
    return Ceilings(device=name, kind=sheet.kind, ceilings=tuple(found))


def _of_cpu(sheet: Sheet, name: str, cores: int | None) -> Ceilings:
    """The ceilings of ``cores`` cores of the CPU.

    A sheet is of one whole chip, but a run may have a slice of it (a virtual machine, a container) or several chips. Arithmetic is
    done core by core, so it scales by cores, and the figure is "derived" and says of how many. Memory is shared: any slice might have
    all of a chip's bandwidth, which is therefore not scaled down and still a bound, if a loose one. An instruction set that a virtual
    machine hides gives no ceiling.
    """
    cpu = detect.cpu()
    here = cpu.name == name
    if cores is None and here and cpu.physical_cores:
        cores = min(cpu.physical_cores, len(detect.usable_cpus()))
    if not cores:
        raise UsageError(
            f"the data sheet of {name!r} cannot be scaled: how many of its {sheet.units.count} cores there were is not known.",
            hint="Use --ceilings measured, or a file with your own.",
        )
    count = sheet.units.count
    chips = math.ceil(cores / count)
    share = f"{cores} cores ({chips} chips of {count})" if chips > 1 else f"{cores} of {count} cores"
    found = []
    for rate in sheet.compute:
        if here and rate.isa and rate.isa not in cpu.isa:
            continue
        detail = f"{share} x {_speed(sheet, rate)} ({rate.clock} clock, turbo exceeds it); {sheet.cited(rate)}"
        found.append(_compute(rate, rate.per_second * cores / count, Source(kind="derived", detail=detail)))
    bandwidth, detail = sheet.memory.bytes_per_second, sheet.cited(sheet.memory)
    if chips > 1:
        detail = f"{chips} chips x {si(bandwidth, 'B/s')}; {detail}"
    elif cores < count:
        detail = f"the whole chip's, not scaled to {share}; {detail}"
    found.append(_memory(sheet, bandwidth * chips, Source(kind="derived" if chips > 1 else "spec", detail=detail)))
    return Ceilings(device=name, kind=sheet.kind, ceilings=tuple(found))


def _compute(rate: Rate, value: float, source: Source) -> Ceiling:
    unit: Literal["OP/s", "FLOP/s"] = "OP/s" if rate.precision == "int8" else "FLOP/s"
    return Ceiling(kind="compute", name=f"{rate.precision} {rate.engine}", value=value, unit=unit, precision=rate.precision,
                   engine=rate.engine, accumulate=rate.accumulate, source=source)  # fmt: skip


def _memory(sheet: Sheet, value: float, source: Source) -> Ceiling:
    level = sheet.memory.level
    return Ceiling(kind="memory", name=f"{level} {sheet.memory.technology}", value=value, unit="B/s", level=level, source=source)


def _speed(sheet: Sheet, rate: Rate) -> str:
    """What one unit does: ``256 FLOP/cycle x 1.71 GHz``."""
    return f"{rate.per_cycle:g} {'OP' if rate.precision == 'int8' else 'FLOP'}/cycle x {si(sheet.hertz(rate), 'Hz')}"


def _base(value: float, factor: float) -> float:
    """A sheet's figure in its base unit, rounded to whole ones: 494.7 T is not 494700000000000.06."""
    return float(round(value * factor))
