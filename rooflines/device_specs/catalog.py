"""Ceilings from the data sheet: which device a printed name is, and what its sheet says it can do.

The sheets of the package are in ``data/``, one TOML file a device (``sheet``); a user's own (``user_sheets``)
come before them. A name is matched whole, after ``names.parse``, so that an "L40S" is never an "L4". Where
devices share a name, other facts from torch (the number of units, the size of the memory) decides, and
without it the answer is that it is needed, not a guess. A slice of a GPU (MIG) gets its share of the whole
device's ceilings. No sheet gives a latency, so these ceilings have none.
"""

from __future__ import annotations

import difflib
import functools
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from rooflines.device_specs import derive, detect, names
from rooflines.device_specs.derive import HINT
from rooflines.device_specs.names import Mig, Printed
from rooflines.device_specs.records import Ceiling, Ceilings, Source
from rooflines.device_specs.sheet import Sheet, SheetRate, read_sheet
from rooflines.device_specs.user_sheets import user_sheets
from rooflines.errors import UsageError
from rooflines.units import si

_DATA = Path(__file__).with_name("data")
_ALIKE = 0.6  # the share of a name's letters that one to be suggested has in common with it
# What a driver reports of a memory, of the size it is sold by: ECC and reserved pages take up to 11 % (T4:
# 14.6 of 16 GiB).
_LEAST_REPORTED, _MOST_REPORTED = 0.85, 1.02


class SheetFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about a device besides its name; None if unknown."""

    #: The torch device type.
    kind: str | None = None
    #: SMs, CUs or GPU cores as torch reports them; never the cores of a CPU, of which a process may have a
    #: part.
    units: int | None = None
    memory_bytes: int | None = None
    #: The maker of the machine, as DMI gives it.
    system: str | None = None


class Match(msgspec.Struct, frozen=True, kw_only=True):
    """The sheet of a printed name; ``mig`` where the name is of a slice of that device; ``user`` for a user's
    own sheet."""

    sheet: Sheet
    mig: Mig | None = None
    user: bool = False


def look_up(
    device_name: str,
    *,
    kind: str | None = None,
    cores: int | None = None,
    multiprocessors: int | None = None,
    memory_bytes: int | None = None,
    system: str | None = None,
) -> Ceilings:
    """The data-sheet ceilings of the device that its driver calls ``device_name``: from the user's sheet,
    else from ours.

    ``cores``, for a CPU only, is the number of physical cores that the run could use; without it those of
    this machine count, provided that its CPU has that name. ``multiprocessors`` (SMs, CUs, GPU cores as torch
    reports them), ``memory_bytes``, ``kind`` (the torch device type) and ``system`` (the machine's maker)
    tell devices of one name apart, and the first is needed for a slice (MIG). Raises UsageError without a
    sheet, when one of these is needed and missing, or when the number of cores is unknown.
    """
    facts = SheetFacts(kind=kind, units=multiprocessors, memory_bytes=memory_bytes, system=system)
    match = identify(device_name, facts)
    name = " ".join(device_name.split())
    sheet = match.sheet
    if sheet.kind == "cpu":
        return _of_cpu(sheet, name, cores, match.user)
    whole = ceilings_of(sheet, name, user=match.user)
    if match.mig is not None:
        # Arithmetic by its SMs, which only the driver knows (a "1g" of an A100 has 14 of 108), bandwidth by
        # its eighths.
        if not multiprocessors:
            hint = "torch.cuda.get_device_properties reports it as multi_processor_count."
            raise UsageError(f"the number of SMs of {name!r} is required.", hint=hint)
        slices = match.mig.memory_slices(sheet.memory.capacity_gb or 0.0)
        return derive.derive_mig(name, whole, sheet.units.count, multiprocessors, slices or 0)
    if multiprocessors and multiprocessors != sheet.units.count:
        return _of_partition(sheet, whole, name, multiprocessors, memory_bytes)
    return whole


def identify(device_name: str, facts: SheetFacts | None = None) -> Match:
    """Return the device of a printed name; raises UsageError if none or more than one matches."""
    facts = facts or SheetFacts()
    parsed = names.parse(device_name)
    found = matching(device_name, facts)
    if len(found) == 1:
        return found[0]
    if not found:
        message = f"no data sheet for {device_name!r}"
        shared = (
            matching(device_name, SheetFacts(kind=facts.kind)) if facts != SheetFacts(kind=facts.kind) else ()
        )
        if shared:
            message += f" with {_told(facts)}; of that name: {', '.join(one.sheet.name for one in shared)}"
        elif near := nearest(device_name):
            message += f"; nearest: {', '.join(near)}"
        raise UsageError(f"{message}.", hint=HINT)
    candidates = [match.sheet for match in found]
    needs = " or ".join(_distinguishing(candidates, facts, parsed))
    *others, last = (sheet.name for sheet in candidates)
    raise UsageError(
        f"{device_name!r} may be {', '.join(others)} or {last}; {needs or 'a more specific name'} "
        "is needed to choose.",
        hint=HINT,
    )


def matching(device_name: str, facts: SheetFacts | None = None) -> tuple[Match, ...]:
    """Every device that ``device_name`` may be, as far as ``facts`` tell: the user's own sheets if any fits,
    else ours."""
    facts = facts or SheetFacts()
    parsed = names.parse(device_name)
    own: Callable[[str], tuple[Sheet, ...]] = functools.partial(_named, user_sheets())
    for user, named in ((True, own), (False, _ours_named)):
        found = named(parsed.text)
        memory_gb = None
        if not found and (shorter := names.without_memory(parsed.text)):
            found = named(shorter[0])
            memory_gb = shorter[1]
        # a size at the end of a name, if there is one, is that of the device's memory
        sized = [sheet for sheet in found if memory_gb is None or sheet.memory.capacity_gb == memory_gb]
        fitting = tuple(
            Match(sheet=sheet, mig=parsed.mig, user=user) for sheet in sized if _fits(sheet, parsed, facts)
        )
        if fitting:
            return fitting
    return ()


@functools.cache
def sheets() -> tuple[Sheet, ...]:
    """Every data sheet of the package, ordered by file name."""
    return tuple(map(_sheet, sorted(_DATA.glob("*.toml"))))


_sheet = functools.cache(read_sheet)


def nearest(device_name: str, count: int = 3) -> tuple[str, ...]:
    """Names in the catalog that look like ``device_name``, those with its number first; empty when none
    does."""
    wanted = _bare(names.parse(device_name).text)
    numbers = {word for word in wanted.split() if any(letter.isdigit() for letter in word)}
    matcher = difflib.SequenceMatcher(autojunk=False)
    matcher.set_seq2(wanted)
    alike: dict[str, tuple[int, float]] = {}
    for name, keys in (*map(_spelled, user_sheets()), *_our_spellings()):
        for key in keys:
            matcher.set_seq1(key)
            if (
                matcher.real_quick_ratio() > _ALIKE
                and matcher.quick_ratio() > _ALIKE
                and (ratio := matcher.ratio()) > _ALIKE
            ):
                alike[name] = max((len(numbers.intersection(key.split())), ratio), alike.get(name, (0, 0.0)))
    return tuple(sorted(alike, key=lambda name: alike[name], reverse=True)[:count])


# The compute capabilities of generation 8 before Ada.
_WITHOUT_FP8 = ("8.0", "8.6", "8.7")
_FIRST_FP4 = 10.0


def ceilings_of(
    sheet: Sheet, name: str = "", *, user: bool = False, of_any_library: bool = False
) -> Ceilings:
    """Return the ceilings of a whole device from ``sheet``; ``name`` is the driver's name, ``user`` marks a
    user's own sheet. Those ``of_any_library`` have the faster products that are added up in fp16, too, and on
    NVIDIA GPUs without units for fp8 its products, which libraries make in a half precision there."""
    found = []
    usual = {one.precision: one.per_second for one in sheet.compute if one.is_roof and one.engine == "matrix"}
    for rate in sheet.compute:
        if not (rate.is_roof or (of_any_library and rate.per_second > usual.get(rate.precision, 0.0))):
            continue
        detail = sheet.cited(rate)
        if rate.derived:
            detail = f"{sheet.units.count} {sheet.units.name} x {_speed(sheet, rate)}; {detail}"
        if rate.reached:
            detail = f"{rate.reached}; {detail}"
        source = Source(kind=_source(rate.derived, user), detail=detail)
        roof = derive.compute_roof(rate, rate.per_second, source)
        found.append(roof if rate.is_roof else replace(roof, name=f"{roof.name} (sums in fp16)"))
    if sheet.vendor == "NVIDIA":
        major = sheet.compute_capability.partition(".")[0]
        found += derive.without_bf16(found, major)
        if of_any_library and (major in ("5", "6", "7") or sheet.compute_capability in _WITHOUT_FP8):
            halves = [one for one in found if one.precision in ("bf16", "fp16") and one.engine == "matrix"]
            found += [replace(one, name=f"fp8 in {one.precision}", precision="fp8") for one in halves[:1]]
        if of_any_library and float(sheet.compute_capability) < _FIRST_FP4:
            next_ = [one for one in found if one.precision == "fp8" and one.engine == "matrix"]
            found += [replace(one, name=f"fp4 in {one.precision}", precision="fp4") for one in next_]
    memory = sheet.memory
    source = Source(kind=_source(memory.derived, user), detail=sheet.cited(memory))
    found += [
        derive.memory_roof(memory.level, memory.bytes_per_second, source, memory.technology),
        *_links(sheet, user),
    ]
    return Ceilings(device=name or sheet.name, kind=sheet.kind, ceilings=tuple(found))


# --- names ------------------------------------------------------------------------------------------------


def _spelled(sheet: Sheet) -> tuple[str, frozenset[str]]:
    """A sheet's name, and the spellings that another is compared with."""
    return sheet.name, frozenset(_bare(names.parse(name).text) for name in (sheet.name, *sheet.names))


@functools.cache
def _our_spellings() -> tuple[tuple[str, frozenset[str]], ...]:
    return tuple(map(_spelled, sheets()))


def _named(known: Iterable[Sheet], text: str) -> tuple[Sheet, ...]:
    """The sheets with a name that ``names.parse`` reduces to ``text``."""
    return tuple(sheet for sheet in known if any(names.parse(name).text == text for name in sheet.names))


@functools.cache
def _ours_named(text: str) -> tuple[Sheet, ...]:
    """Our sheets of that name. Only files with all of its words are parsed: parsing all takes longer than
    most traces."""
    words = text.split()
    return _named(
        (_sheet(path) for path, content in _contents() if all(word in content for word in words)), text
    )


@functools.cache
def _contents() -> tuple[tuple[Path, str], ...]:
    """The text of every data sheet in lower case, ordered by file name."""
    return tuple((path, path.read_text(encoding="utf-8").casefold()) for path in sorted(_DATA.glob("*.toml")))


def _fits(sheet: Sheet, parsed: Printed, facts: SheetFacts) -> bool:
    """Whether no known fact besides the name contradicts ``sheet``."""
    vendor = sheet.vendor.casefold()
    if parsed.vendor and vendor in names.VENDORS and vendor != parsed.vendor:
        return False
    if facts.kind and sheet.kind != facts.kind:
        return False
    if (
        sheet.systems
        and facts.system
        and not any(facts.system.casefold().startswith(one.casefold()) for one in sheet.systems)
    ):
        return False
    if sheet.kind == "cpu":
        return parsed.cores is None or parsed.cores == sheet.units.count
    if parsed.mig is not None:
        slices = parsed.mig.memory_slices(sheet.memory.capacity_gb) if sheet.memory.capacity_gb else None
        return sheet.vendor == "NVIDIA" and slices is not None and parsed.mig.compute_slices <= 7
    parts = 1
    if facts.units and facts.units != sheet.units.count:
        parts = next((one for one in sheet.partitions if one * facts.units == sheet.units.count), 0)
        if not parts:
            return False
    if facts.memory_bytes and (capacity := sheet.memory.capacity_gb):
        share = facts.memory_bytes / 2**30 / capacity
        # the parts of a device may share its memory or divide it
        divisors = (1, *(one for one in sheet.partitions if one <= parts))
        return any(_LEAST_REPORTED <= share * divisor <= _MOST_REPORTED for divisor in divisors)
    return True


def _distinguishing(candidates: list[Sheet], facts: SheetFacts, parsed: Printed) -> list[str]:
    """What would tell ``candidates`` apart, in words."""
    gpus = candidates if parsed.mig is None and all(sheet.kind != "cpu" for sheet in candidates) else []
    values: dict[str, tuple[object, set[Any]]] = {
        "the kind of device": (facts.kind, {sheet.kind for sheet in candidates}),
        "the maker of the machine": (facts.system, {sheet.systems for sheet in candidates}),
        f"the number of {candidates[0].units.name}s": (facts.units, {sheet.units.count for sheet in gpus}),
        "the size of its memory": (facts.memory_bytes, {sheet.memory.capacity_gb for sheet in gpus} - {None}),
    }
    return [words for words, (known, different) in values.items() if known is None and len(different) > 1]


def _told(facts: SheetFacts) -> str:
    units, memory, system = facts.units, facts.memory_bytes, facts.system
    told = (
        units and f"{units} units",
        memory and f"{memory / 2**30:.1f} GiB of memory",
        system and f"a machine of {system}",
    )
    return " and ".join(words for words in told if isinstance(words, str) and words)


def _bare(text: str) -> str:
    """A parsed name without the words that many devices share, so that alike means alike in what is
    particular."""
    shared = {"geforce", "instinct", "gpu", "apple", "data", "center", "generation"}
    return " ".join(word for word in text.split() if word not in shared)


# --- ceilings ---------------------------------------------------------------------------------------------


def _of_partition(sheet: Sheet, whole: Ceilings, name: str, units: int, memory_bytes: int | None) -> Ceilings:
    """One of the equal devices that a driver shows a GPU as. Its memory is its share only where it sees no
    more than that."""
    share = f"{units} of {sheet.units.count} {sheet.units.name}"
    parts = sheet.units.count // units
    capacity = sheet.memory.capacity_gb
    seen = memory_bytes / 2**30 / capacity if memory_bytes and capacity else 1.0
    divided = next(
        (
            one
            for one in sorted(sheet.partitions)
            if one <= parts and _LEAST_REPORTED <= seen * one <= _MOST_REPORTED
        ),
        1,
    )
    memory = (
        f"one of {divided} parts of the memory"
        if divided > 1
        else "all of the memory, which the parts share,"
    )
    return derive.partition(name, whole, (1 / parts, share), (1 / divided, memory))


def _of_cpu(sheet: Sheet, name: str, cores: int | None, user: bool) -> Ceilings:
    """The ceilings of ``cores`` cores of the CPU.

    A sheet is of one whole chip, but a run may have a slice of it (a virtual machine, a container) or several
    chips. Arithmetic is done core by core, so it scales by cores, and the figure is "derived" and says of how
    many. Memory is shared: any slice might have all of a chip's bandwidth, which is therefore not scaled down
    and still a bound, if a loose one. An instruction set that a virtual machine hides gives no ceiling.
    """
    cpu = detect.cpu()
    here = cpu.name == name
    if cores is None and here and cpu.physical_cores:
        cores = min(cpu.physical_cores, len(detect.usable_cpus()))
    if not cores:
        raise UsageError(
            f"the data sheet of {name!r} cannot be scaled: the number of active cores (of "
            f"{sheet.units.count}) is not known.",
            hint=HINT,
        )
    count = sheet.units.count
    chips = math.ceil(cores / count)
    share = f"{cores} cores ({chips} chips of {count})" if chips > 1 else f"{cores} of {count} cores"
    found = []
    for rate in sheet.compute:
        if here and rate.isa and rate.isa not in cpu.isa:
            continue
        value = rate.per_second * cores / count
        detail = f"{share} x {si(rate.per_second / count, rate.unit)}"
        if rate.per_cycle is not None:
            turbo = ", turbo exceeds it" if rate.clock == "base" else ""
            detail = f"{share} x {_speed(sheet, rate)} ({rate.clock} clock{turbo})"
            if (
                rate.differs
            ):  # cores of two kinds: the process may have the faster ones, so no part is less than those
                value = chips * min(rate.per_second, cores / chips * rate.per_cycle * sheet.hertz(rate))
                detail += f", at most {si(rate.per_second, rate.unit)} a chip: {rate.differs}"
        found.append(
            derive.compute_roof(
                rate, value, Source(kind=_source(True, user), detail=f"{detail}; {sheet.cited(rate)}")
            )
        )
    memory = sheet.memory
    detail = sheet.cited(sheet.memory)
    bandwidth = memory.bytes_per_second
    if chips > 1:
        detail = f"{chips} chips x {si(bandwidth, 'B/s')}; {detail}"
    elif cores < count:
        detail = f"the whole chip's, not scaled to {share}; {detail}"
    source = Source(kind=_source(chips > 1, user), detail=detail)
    found.append(derive.memory_roof(memory.level, bandwidth * chips, source, memory.technology))
    return Ceilings(device=name, kind=sheet.kind, ceilings=tuple(found))


def _source(derived: bool, user: bool) -> Literal["derived", "spec", "user"]:
    return "user" if user else "derived" if derived else "spec"


def _links(sheet: Sheet, user: bool) -> list[Ceiling]:
    """From the host to the device and back, of a GPU with its own bus or link to the host."""
    bus, link = sheet.pcie, sheet.host_link
    if link is not None:
        value = link.bytes_per_second
        derived = False
        detail = f"{link.technology}; {sheet.cited(link)}"
    elif bus is not None and bus.to_host and sheet.kind != "cpu":
        value = bus.bytes_per_second
        derived = True
        detail = f"{bus.words()}; {sheet.cited(bus)}"
    else:
        return []
    source = Source(kind=_source(derived, user), detail=detail)
    return [
        Ceiling(kind="link", name=name, value=value, unit="B/s", level="host", source=source)
        for name in ("H2D", "D2H")
    ]


def peer_link(sheet: Sheet) -> Ceiling | None:
    """The link from a device to others of its kind in one direction: NVLink, else PCI Express; None where the
    sheet has neither.

    Sheets lack the fabrics of other vendors' accelerators (Infinity Fabric, Xe Link), which are faster than
    their bus.
    """
    nvlink, bus = sheet.nvlink, sheet.pcie
    if nvlink is not None:
        name = level = "NVLink"
        value = nvlink.bytes_per_second / 2
        both = si(nvlink.bytes_per_second, "B/s")
        detail = f"half of {both}, which is both directions; {sheet.cited(nvlink)}"
    elif bus is None or (sheet.vendor != "NVIDIA" and sheet.memory.level == "HBM"):
        return None
    else:
        name = "PCI Express"
        level = "PCIe"
        value = bus.bytes_per_second
        detail = f"{bus.words()}; {sheet.cited(bus)}"
    source = Source(kind="derived", detail=detail)
    return Ceiling(kind="link", name=name, value=value, unit="B/s", level=level, source=source)


def _speed(sheet: Sheet, rate: SheetRate) -> str:
    """What one unit does: ``256 FLOP/cycle x 1.71 GHz``."""
    return f"{rate.per_cycle:g} {rate.unit[:-2]}/cycle x {si(sheet.hertz(rate), 'Hz')}"
