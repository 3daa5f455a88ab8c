"""The devices side by side, a row each, and the samples themselves as CSV."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from rooflines.profiler.records import DeviceSample
from rooflines.reports.document import ABSENT, Column, Row, Table
from rooflines.reports.words.text import inert
from rooflines.reports.words.usage_sentences import devices_apart, peak_power
from rooflines.roofline.analysis import Analysis, DeviceUsage
from rooflines.units import binary_bytes, percent, si, significant


def usage_table(analysis: Analysis) -> Table | None:
    """A row a device, accelerators first, and only the columns in which some device has a figure; None where nothing was sampled."""
    if analysis.usage is None or not analysis.usage.devices:
        return None
    devices = devices_apart(analysis.usage.devices)
    energy = "a step" if analysis.usage.steps else "in all"
    kept = [one for one in _COLUMNS if any(one[2](device) is not None for device in devices)]
    columns = (
        Column("device", format="middle"),
        *(Column(label, remark or energy, priority=place) for place, (label, remark, _) in enumerate(kept, start=1)),
    )
    rows = tuple(Row((one.device, *(cell(one) or ABSENT for _, _, cell in kept))) for one in devices)
    return Table(name="devices", caption="Devices, by what their samples say", columns=columns, rows=rows, show="always")


def write_samples_csv(samples: Sequence[DeviceSample], path: Path) -> Path:
    """Write every sample to ``path``, a row each, the fields that no sample has left out; lists are parted by spaces."""
    given = [name for name in DeviceSample.__struct_fields__ if any(getattr(sample, name) is not None for sample in samples)]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
        writer.writerow(given)
        for sample in samples:
            plain = msgspec.structs.asdict(sample)
            writer.writerow([_cell(plain[name]) for name in given])
    return path


def _cell(value: object) -> object:
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    return inert(value) if isinstance(value, str) else value


def _gauge(field: str, attribute: str, text: Callable[[float], str]) -> Callable[[DeviceUsage], str | None]:
    def cell(one: DeviceUsage) -> str | None:
        gauge = one.gauges.get(field)
        return None if gauge is None else text(getattr(gauge, attribute))

    return cell


def _first(*cells: Callable[[DeviceUsage], str | None]) -> Callable[[DeviceUsage], str | None]:
    return lambda one: next((text for cell in cells if (text := cell(one)) is not None), None)


def _watts(one: DeviceUsage) -> str | None:
    return None if one.mean_power_w is None else si(one.mean_power_w, "W")


def _peak(one: DeviceUsage) -> str | None:
    peak = peak_power(one)
    return None if peak is None else si(peak, "W")


def _joules(one: DeviceUsage) -> str | None:
    if one.energy is None:
        return None
    value = one.energy_per_step_j if one.energy_per_step_j is not None else one.energy.energy_j
    return f"{si(value, 'J')} ±{percent(one.energy.error_j / one.energy.energy_j)}"


def _throttled(one: DeviceUsage) -> str | None:
    longest = max((reason.fraction for reason in one.throttled), default=0.0)
    return None if one.throttled_s is None else percent(longest) if longest else "no"


def _celsius(value: float) -> str:
    return f"{value:.0f} °C"


def _hertz(value: float) -> str:
    return si(value, "Hz")


_OWN_MEMORY = (_gauge("process_rss_bytes", "highest", binary_bytes), _gauge("process_memory_bytes", "highest", binary_bytes))
_COLUMNS: tuple[tuple[str, str, Callable[[DeviceUsage], str | None]], ...] = (
    ("energy", "", _joules),
    ("power", "mean", _first(_watts, _gauge("power_w", "mean", lambda value: si(value, "W")))),
    ("power", "peak", _peak),
    ("power", "limit", _gauge("power_limit_w", "end", lambda value: si(value, "W"))),
    ("busy", "mean", _first(_gauge("gpu_utilization", "mean", percent), _gauge("cpu_utilization", "mean", percent))),
    ("cores", "this run", _gauge("process_cpu_utilization", "mean", lambda value: significant(value, 2))),
    ("memory", "peak", _gauge("memory_used_bytes", "highest", binary_bytes)),
    ("memory", "this run", _first(*_OWN_MEMORY)),
    ("temperature", "highest", _gauge("temperature_c", "highest", _celsius)),
    ("clock", "median", _first(_gauge("sm_clock_hz", "median", _hertz), _gauge("cpu_frequency_hz", "median", _hertz))),
    ("clock", "lowest", _first(_gauge("sm_clock_hz", "lowest", _hertz), _gauge("cpu_frequency_hz", "lowest", _hertz))),
    ("throttled", "of the time", _throttled),
)
