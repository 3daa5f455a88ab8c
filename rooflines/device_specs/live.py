"""The ceilings of a device of this machine without measuring: from the user's sheet, else from ours, else
derived.

``catalog`` matches names and ``derive`` multiplies; here the facts for both come from torch, NVML and the
system.
"""

from __future__ import annotations

from rooflines.device_specs import catalog, derive, detect
from rooflines.device_specs.catalog import SheetFacts
from rooflines.device_specs.derive import HINT
from rooflines.device_specs.records import Ceilings
from rooflines.errors import UsageError


def known(device: str, *, cores: int | None = None, clock_hz: float | None = None) -> Ceilings:
    """The ceilings of ``device`` (cpu, cuda:0, mps) from a data sheet, and where there is none, derived.

    ``cores`` and ``clock_hz`` are of a CPU: the physical cores that a run may use, and the clock that they
    were measured to sustain. Raises UsageError, naming the nearest sheets, where there is neither.
    """
    try:
        return spec(device, cores=cores)
    except UsageError as no_sheet:
        try:
            return derived(device, cores=cores, clock_hz=clock_hz)
        except UsageError as no_clock:
            raise UsageError(
                f"{no_sheet.message} {no_clock.message[:1].upper()}{no_clock.message[1:]}", hint=HINT
            ) from None


def spec(device: str, *, cores: int | None = None) -> Ceilings:
    """The data sheet's ceilings of ``device``; raises UsageError as ``catalog.look_up`` does."""
    name, facts = named(device)
    return catalog.look_up(
        name,
        kind=facts.kind,
        cores=cores,
        multiprocessors=facts.units,
        memory_bytes=facts.memory_bytes,
        system=facts.system,
    )


def derived(device: str, *, cores: int | None = None, clock_hz: float | None = None) -> Ceilings:
    """``device``'s ceilings from its units, their rate and its clock; raises UsageError for what these do not
    give."""
    kind, _, index = device.partition(":")
    if kind == "cuda":
        gpu = detect.gpu(int(index or 0))
        if gpu.sm_clock_hz is None:
            raise UsageError(
                f"ceilings cannot be derived for {gpu.name!r}: its maximum clock is not known.", hint=HINT
            )
        return derive.derive_gpu(
            gpu.name,
            gpu.compute_capability,
            gpu.multiprocessors,
            gpu.sm_clock_hz,
            gpu.memory_clock_hz,
            gpu.bus_bits,
        )
    if kind == "mps":
        return apple_variant(detect.cpu_name(), detect.apple_gpu_cores())
    cpu = detect.cpu()
    cores = cores or min(cpu.physical_cores or 1, len(detect.usable_cpus()))
    if clock_hz is None:
        raise UsageError(
            f"deriving the ceilings of {cpu.name!r} requires a measured sustained clock.", hint=HINT
        )
    return derive.derive_cpu(cpu.name, isa=cpu.isa, cores=cores, clock_hz=clock_hz, model=cpu.model)


def apple_variant(name: str, gpu_cores: int | None) -> Ceilings:
    """An Apple GPU with as many cores as no sheet has, at the clock of a sheet of the same chip; Apple
    publishes none."""
    same = catalog.matching(name, SheetFacts(kind="mps"))
    if not same or not gpu_cores:
        raise UsageError(
            f"ceilings cannot be derived for {name!r}: the GPU's clock and core count are not known.",
            hint=HINT,
        )
    # the nearest sibling, a larger one before a smaller one: its memory is a bound for this one's
    sheet = min(
        (match.sheet for match in same),
        key=lambda sheet: (sheet.units.count < gpu_cores, abs(sheet.units.count - gpu_cores)),
    )
    return derive.derive_apple(
        name,
        gpu_cores,
        next(iter(sheet.clocks.values())).mhz * 1e6,
        bytes_per_s=sheet.memory.bytes_per_second,
        clock=f"the clock of {sheet.name}",
    )


def named(device: str) -> tuple[str, SheetFacts]:
    """The driver's name of ``device`` and further facts. ``device`` must exist."""
    kind, _, index = device.partition(":")
    if kind not in ("cpu", "cuda", "mps"):
        raise UsageError(f"unknown device type {device!r}; expected cpu, cuda or mps.")
    if kind == "cuda":
        import torch

        properties = torch.cuda.get_device_properties(int(index or 0))
        name, units, memory = properties.name, properties.multi_processor_count, properties.total_memory
        return name, SheetFacts(kind="cuda", units=units, memory_bytes=memory)
    if kind == "mps":
        return detect.cpu_name(), SheetFacts(kind="mps", units=detect.apple_gpu_cores())
    return detect.cpu_name(), SheetFacts(kind="cpu", system=detect.system_vendor())
