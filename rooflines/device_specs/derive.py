"""Ceilings computed from plain facts, where no data sheet exists: units x operations per cycle x clock, bus
width x memory clock.

Nothing here looks at a machine, so everything can be computed for any device. Every rate is dense, FMA = 2
FLOP, and its source spells the arithmetic out. These are upper bounds: where the facts leave a choice (how
many FMA units a Xeon has), the higher rate counts.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec
from msgspec.structs import replace

from rooflines.arguments import arg
from rooflines.device_specs import names
from rooflines.device_specs.records import EMULATED, Ceiling, Ceilings, Engine, Precision, Source, rate_unit
from rooflines.device_specs.sheet import SheetRate
from rooflines.errors import UsageError
from rooflines.units import si

HINT = f"Use {arg('ceilings', 'measured')} or a JSON file."
_Accumulate = Literal["fp64", "fp32", "fp16", "int32"]


class PerCycle(msgspec.Struct, frozen=True, kw_only=True):
    """Operations of one unit (SM, CPU core, GPU core) per cycle, dense, FMA = 2."""

    precision: Precision
    engine: Engine
    accumulate: _Accumulate
    operations: float
    #: The clock of the unit over the highest one of the device.
    clock_scale: float = 1.0
    #: The instruction set of a CPU that does it.
    isa: str = ""
    #: Whether no source was seen for the figure.
    unconfirmed: bool = False


# --- NVIDIA GPUs ------------------------------------------------------------------------------------------


class ChipRates(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The FLOP per SM and cycle of a compute capability; ``rates.toml`` has their sources."""

    #: On the vector units.
    vector: dict[Precision, float]
    #: On the tensor cores of data-center and professional cards.
    professional: dict[Precision, float] = {}
    #: On those of GeForce and the A10G; empty where they are the same.
    geforce: dict[Precision, float] = {}
    #: The tensor cores' clock over the highest one.
    tensor_clock: float = 1.0
    #: Whether the memory is HBM.
    hbm: bool = False


class _Rates(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The file ``rates.toml``."""

    nvidia: dict[str, ChipRates]
    arm: dict[str, dict[Precision, float]]


@functools.cache
def _rates() -> _Rates:
    return msgspec.toml.decode(Path(__file__).with_name("rates.toml").read_bytes(), type=_Rates)


def chip_rates(compute_capability: tuple[int, int]) -> ChipRates | None:
    """The rates of an NVIDIA GPU of this compute capability; None where they are not known."""
    return _rates().nvidia.get(".".join(map(str, compute_capability)))


# Products for certain markets whose rates were cut below what SMs and clock give, after `names.parse`.
_CAPPED = re.compile(r"(?:h20|h800|a800|l20|l2|rtx 5090 d|b30a)(?:$|[ _])")
# The smaller Turing chips have no tensor cores, though their compute capability is that of the larger ones.
_NO_TENSOR_CORES = re.compile(
    r"gtx 16\d0|(?:quadro )?t(?:400|500|550|600|1000|1200|2000)(?:$| )|mx(?:450|550)"
)


def gpu_rates(name: str, compute_capability: tuple[int, int]) -> tuple[PerCycle, ...]:
    """Operations per cycle of one SM of the NVIDIA GPU called ``name``.

    Raises UsageError for a compute capability that is not in the table and for a product whose rates do not
    follow from it.
    """
    text = names.parse(name).text
    if _CAPPED.match(text.removeprefix("geforce ")):
        raise UsageError(
            f"ceilings cannot be derived for {name!r}: its rates are limited by product, not by "
            "SMs and clock.",
            hint=HINT,
        )
    chip = chip_rates(compute_capability)
    if chip is None:
        capability = ".".join(map(str, compute_capability))
        raise UsageError(
            f"operations per cycle of compute capability {capability} ({name!r}) are not known.", hint=HINT
        )
    found = [_core_rate(precision, operations) for precision, operations in chip.vector.items()]
    rates = (chip.geforce if product_class(name) == "g" else {}) or chip.professional
    for precision, operations in {} if _NO_TENSOR_CORES.search(text) else rates.items():
        accumulate: Literal["fp64", "fp32", "int32"] = (
            "int32" if precision == "int8" else "fp64" if precision == "fp64" else "fp32"
        )
        found.append(
            PerCycle(
                precision=precision,
                engine="matrix",
                accumulate=accumulate,
                operations=operations,
                clock_scale=1.0 if precision == "fp64" else chip.tensor_clock,
            )
        )
    return tuple(found)


def product_class(name: str) -> Literal["p", "g"]:
    """ "g" for GeForce and the A10G, whose tensor cores accumulate in FP32 at half rate; "p" for every other
    NVIDIA product."""
    text = names.parse(name).text
    return "g" if "geforce" in text or text == "a10g" else "p"


def derive_gpu(
    name: str,
    compute_capability: tuple[int, int],
    multiprocessors: int,
    clock_hz: float,
    memory_clock_hz: float | None = None,
    bus_bits: int | None = None,
) -> Ceilings:
    """Ceilings of an NVIDIA GPU: SMs x rate x ``clock_hz`` (the driver's highest), and 2 x
    ``memory_clock_hz`` x ``bus_bits`` / 8.

    ``memory_clock_hz`` and ``bus_bits`` as NVML and CUDA report them, for HBM, GDDR5 to GDDR7 alike; without
    them (integrated GPUs report none) there is no memory ceiling. Raises UsageError for what ``gpu_rates``
    refuses, and for a slice or a share of a GPU.
    """
    if names.parse(name).mig:
        raise UsageError(f"{name!r} is a MIG slice of a GPU.", hint="Use derive_mig with the whole device.")
    units = f"{multiprocessors} SM"
    origin = f"compute capability {'.'.join(map(str, compute_capability))}"
    rates = gpu_rates(name, compute_capability)
    found = [
        _rate(rate, units, multiprocessors, clock_hz, origin, "the driver's highest clock") for rate in rates
    ]
    found += without_bf16(found, str(compute_capability[0]))
    if memory_clock_hz and bus_bits:
        detail = f"2 x {si(memory_clock_hz, 'Hz', 5)}, the memory's highest clock, x {bus_bits} bit / 8"
        chip = chip_rates(compute_capability)
        level = "HBM" if chip is not None and chip.hbm else "DRAM"
        source = Source(kind="derived", detail=detail)
        found.append(memory_roof(level, 2 * memory_clock_hz * bus_bits / 8, source))
    return Ceilings(device=name, kind="cuda", ceilings=tuple(found))


def without_bf16(roofs: Sequence[Ceiling], major: str) -> list[Ceiling]:
    """The rate of bf16 on NVIDIA GPUs of these ``roofs`` before Ampere (the ``major`` compute capability 8),
    which torch computes in fp32."""
    source = Source(kind="derived", detail="no units for bf16 before compute capability 8: as fp32")
    return [
        replace(one, name="bf16 in fp32", precision="bf16", variant=EMULATED, source=source)
        for one in roofs
        if one.name == "fp32 vector" and major in ("3", "5", "6", "7")
    ]


def derive_mig(
    name: str, whole: Ceilings, whole_multiprocessors: int, multiprocessors: int, memory_slices: int
) -> Ceilings:
    """Ceilings of a MIG slice: the whole device's arithmetic by SMs (``multiprocessors``, as torch reports
    them), bandwidth by eighths.

    ``whole`` are the ceilings of the undivided GPU; ``memory_slices`` of its eight are the slice's
    (``names.Mig.memory_slices``).
    """
    if not (0 < multiprocessors <= whole_multiprocessors and 0 < memory_slices <= 8):
        raise UsageError(
            f"{name!r} cannot be {multiprocessors} of {whole_multiprocessors} SMs and "
            f"{memory_slices} of 8 memory slices.",
            hint=HINT,
        )
    share = multiprocessors / whole_multiprocessors, f"{multiprocessors} of {whole_multiprocessors} SM"
    return partition(name, whole, share, (memory_slices / 8, f"{memory_slices} of 8 memory slices"))


def partition(name: str, whole: Ceilings, compute: tuple[float, str], memory: tuple[float, str]) -> Ceilings:
    """``whole``'s roofs scaled to a part of the device: the share of its arithmetic and of its memory, each
    with words for it.

    Every part may have all of a link.
    """
    found = []
    for ceiling in whole.ceilings:
        if ceiling.kind == "link":
            found.append(ceiling)
        elif ceiling.kind in ("compute", "memory"):
            share, words = compute if ceiling.kind == "compute" else memory
            detail = (
                f"{words} x {si(ceiling.value, ceiling.unit, 4)} of the whole device; {ceiling.source.detail}"
            )
            source = Source(kind="derived", detail=detail)
            found.append(replace(ceiling, value=ceiling.value * share, source=source))
    return Ceilings(device=name, kind=whole.kind, ceilings=tuple(found))


# --- CPUs -------------------------------------------------------------------------------------------------

# The instruction sets of an Arm core, and the precisions that each brings.
_ARM_ISA: dict[Precision, str] = {
    "fp64": "asimd",
    "fp32": "asimd",
    "fp16": "asimdhp",
    "bf16": "bf16",
    "int8": "i8mm",
}
_AMD_FAMILIES = (23, 25, 26)
_ZEN_2 = 0x30  # the first model number of family 23 with 256-bit units
_ZEN_5_MOBILE = ((0x20, 0x2F), (0x60, 0x6F))  # model numbers of family 26 whose units are 256 bits wide


def core_rates(name: str, isa: tuple[str, ...], model: str) -> tuple[PerCycle, ...]:
    """Operations per cycle of one CPU core, from its instruction sets.

    ``isa`` is spelled as in /proc/cpuinfo, ``model`` is family/model/stepping (``detect.cpu_model``) and
    decides how wide the units behind AVX-512 are. Instruction sets do not tell one FMA unit from two: then
    two are assumed. Raises UsageError for an unknown core. stackoverflow.com/q/15655835, wikichip.org, Tom's
    Hardware quoting Intel (AMX), numberworld.org (Zen 4 and 5).
    """
    text = names.parse(name).text
    if "asimd" in isa:
        own = _rates().arm.get("apple" if text.startswith("apple ") else text)
        if own is None:
            raise UsageError(f"operations per cycle of {name!r} are not known.", hint=HINT)
        of_core = {"fp64": own["fp32"] / 2, "fp16": 2 * own["fp32"], **own}
        there = {
            precision: extension
            for precision, extension in _ARM_ISA.items()
            if precision in of_core and extension in isa
        }
        return tuple(
            _core_rate(precision, of_core[precision], extension, unconfirmed=True)
            for precision, extension in there.items()
        )
    family, number, *_ = (int(part) if part.isdigit() else 0 for part in f"{model}/0/0".split("/"))
    amd = family in _AMD_FAMILIES or names.parse(name).vendor == "amd"
    narrow = amd and (
        family == 25 or (family == 26 and any(low <= number <= high for low, high in _ZEN_5_MOBILE))
    )
    if "avx512f" in isa:
        fp32 = 32 if narrow else 64
        with_isa = "avx512f"
    elif "fma" in isa:
        fp32 = 16 if family == 23 and number < _ZEN_2 else 32
        with_isa = "fma"
    elif "avx" in isa:
        fp32, with_isa = 16, "avx"
    else:
        raise UsageError(
            f"operations per cycle of {name!r} cannot be derived from its instruction sets.", hint=HINT
        )
    extensions: dict[Precision, dict[str, float]] = {  # the fastest first
        "fp16": {"avx512_fp16": 2 * fp32},
        "bf16": {"amx_bf16": 1024, "avx512_bf16": 2 * fp32},
        "int8": {"amx_int8": 2048, "avx512_vnni": 4 * fp32, "avx_vnni": 128},
    }
    found = [_core_rate("fp64", fp32 / 2, with_isa), _core_rate("fp32", fp32, with_isa)]
    for precision, rates in extensions.items():
        found += [
            _core_rate(precision, rates[name], name, not name.startswith("amx"))
            for name in rates
            if name in isa
        ][:1]
    return tuple(found)


def derive_cpu(name: str, *, isa: tuple[str, ...], cores: int, clock_hz: float, model: str = "") -> Ceilings:
    """Ceilings of ``cores`` physical cores at ``clock_hz``, the clock that they sustain under such
    arithmetic, measured.

    Hardware threads add nothing. There is no memory ceiling: the system does not tell its channels without
    rights. Raises UsageError for an unknown core.
    """
    units = f"{cores} {'core' if cores == 1 else 'cores'}"
    found = [
        _rate(rate, units, cores, clock_hz, rate.isa, "the measured clock")
        for rate in core_rates(name, isa, model)
    ]
    return Ceilings(device=name, kind="cpu", ceilings=tuple(found))


# --- Apple GPUs -------------------------------------------------------------------------------------------

_APPLE_PER_CORE = (
    256  # 128 FMA lanes; FP16 at the same rate since M1 (github.com/philipturner/metal-benchmarks)
)


def derive_apple(
    name: str, gpu_cores: int, clock_hz: float, *, bytes_per_s: float | None = None, clock: str = ""
) -> Ceilings:
    """Ceilings of an Apple GPU: cores x 256 FLOP per cycle x clock, in fp32 and fp16; its matrix products run
    on the same lanes.

    ``bytes_per_s`` is the bandwidth of the unified memory where it is known. Apple publishes no clock:
    ``clock`` says where it is from.
    """
    rates = [_core_rate("fp32", _APPLE_PER_CORE), _core_rate("fp16", _APPLE_PER_CORE)]
    found = [_rate(rate, f"{gpu_cores} GPU cores", gpu_cores, clock_hz, "", clock) for rate in rates]
    if bytes_per_s:
        found.append(memory_roof("DRAM", bytes_per_s, Source(kind="derived", detail="unified memory")))
    return Ceilings(device=name, kind="mps", ceilings=tuple(found))


# --- all --------------------------------------------------------------------------------------------------

# The units that have a precision outside of NVIDIA's tensor cores, and what they accumulate in.
_UNITS: dict[Precision, tuple[Engine, _Accumulate]] = {
    "fp64": ("vector", "fp64"),
    "fp32": ("vector", "fp32"),
    "fp16": ("vector", "fp16"),
    "bf16": ("matrix", "fp32"),
    "int8": ("matrix", "int32"),
}


def _core_rate(precision: Precision, operations: float, isa: str = "", unconfirmed: bool = False) -> PerCycle:
    engine, accumulate = _UNITS[precision]
    return PerCycle(
        precision=precision,
        engine=engine,
        accumulate=accumulate,
        operations=operations,
        isa=isa,
        unconfirmed=unconfirmed,
    )


def _rate(rate: PerCycle, units: str, count: int, clock_hz: float, origin: str, clock: str) -> Ceiling:
    unit = rate_unit(rate.precision)
    scaled = f" x {rate.clock_scale:g} (the tensor cores' clock)" if rate.clock_scale != 1 else ""
    detail = (
        f"{units} x {rate.operations:g} {unit[:-2]}/cycle{f' ({origin})' if origin else ''} x "
        f"{si(clock_hz, 'Hz', 4)}"
    )
    detail += f"{f', {clock}' if clock else ''}{scaled}; dense{'; unconfirmed' if rate.unconfirmed else ''}"
    value = count * rate.operations * clock_hz * rate.clock_scale
    return compute_roof(rate, value, Source(kind="derived", detail=detail))


def compute_roof(rate: PerCycle | SheetRate, value: float, source: Source) -> Ceiling:
    """The roof of arithmetic in the precision and on the units of ``rate``."""
    return Ceiling(
        kind="compute",
        name=f"{rate.precision} {rate.engine}",
        value=value,
        unit=rate_unit(rate.precision),
        precision=rate.precision,
        engine=rate.engine,
        accumulate=rate.accumulate,
        source=source,
    )


def memory_roof(level: str, value: float, source: Source, technology: str = "") -> Ceiling:
    """The roof of the memory ``level``."""
    name = f"{level} {technology}" if technology else level
    return Ceiling(kind="memory", name=name, value=value, unit="B/s", level=level, source=source)
