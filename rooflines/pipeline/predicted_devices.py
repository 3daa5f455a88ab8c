"""The devices of a prediction by name: a data sheet, a file with ceilings, or this machine; with memory,
power and price."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from rooflines.arguments import arg
from rooflines.device_specs import catalog, search
from rooflines.device_specs.history import load_file
from rooflines.device_specs.records import Ceilings
from rooflines.errors import UsageError
from rooflines.pipeline.ceilings import measured_ceilings
from rooflines.profiler.options import find_device
from rooflines.profiler.progress import Progress
from rooflines.roofline.predict.forecast import DeviceFacts

THIS = "this"


def find_devices(
    names: Sequence[str], *, power: Mapping[str, float], price: Mapping[str, float], progress: Progress
) -> tuple[DeviceFacts, ...]:
    """The devices called ``names``; ``power`` (W) and ``price`` (per hour) are by the same names.

    Raises UsageError for a device without a data sheet, with names that look alike, and for a name that is
    not among ``names``.
    """
    if not names:
        raise UsageError(
            "no device was given.", hint=f"For example: NVIDIA H200, or {THIS} for this machine."
        )
    found = tuple(dict.fromkeys(names))
    for option, given in (("power", power), ("price", price)):
        for name, value in given.items():
            if name not in found:
                hint = f"Devices: {', '.join(found)}."
                raise UsageError(f"{arg(option)} names {name!r}, which is not one of the devices.", hint=hint)
            if not 0 < value < float("inf"):
                raise UsageError(f"{arg(option)} of {name!r} must be above 0, got {value:g}.")
    return tuple(
        replace(
            facts,
            price_per_hour=price.get(name),
            power_w=power.get(name, facts.power_w),
            power_source="given" if name in power else facts.power_source,
        )
        for name in found
        for facts in (_device(name, progress),)
    )


def _device(name: str, progress: Progress) -> DeviceFacts:
    if name == THIS:
        return _this(progress)
    if Path(name).is_file():
        return _with_roofs(load_file(Path(name)), source="file")
    match = search.only(name)
    sheet, capacity = match.sheet, match.sheet.memory.capacity_gb
    return _with_roofs(
        catalog.look_up(name)
        if match.mig is not None
        else catalog.ceilings_of(sheet, user=match.user, of_any_library=True),
        peer_link=catalog.peer_link(sheet),
        memory_bytes=round(capacity * 2**30) if capacity is not None else None,
        cache_bytes=round(sheet.l2.mb * 2**20) if sheet.l2 is not None else 0,
        power_w=sheet.power.tdp_w if sheet.power is not None else None,
        power_source="TDP" if sheet.power is not None else None,
    )


def _this(progress: Progress) -> DeviceFacts:
    """The device that ``rooflines profile`` would choose here, by its measured ceilings."""
    import psutil

    device = find_device("auto")
    ceilings = measured_ceilings(str(device), None, remeasure=False, progress=progress)
    memory = psutil.virtual_memory().total
    if device.type == "cuda":
        import torch

        memory = torch.cuda.get_device_properties(device).total_memory
    return _with_roofs(ceilings, source="measured", memory_bytes=memory)


def _with_roofs(ceilings: Ceilings, **facts: Any) -> DeviceFacts:
    return DeviceFacts(name=ceilings.device, kind=ceilings.kind, ceilings=ceilings.ceilings, **facts)


def numbers_by_name(option: str, texts: Iterable[str]) -> dict[str, float]:
    """The numbers in ``NAME=NUMBER``, by name. Raises UsageError for any other text."""
    found = {}
    for text in texts:
        name, _, number = text.rpartition("=")
        try:
            found[name] = float(number)
        except ValueError:
            name = ""
        if not name:
            raise UsageError(
                f"{arg(option)} {text!r} is not NAME=NUMBER.",
                hint=f'For example: {arg(option)} "NVIDIA H200=3.5"',
            )
    return found
