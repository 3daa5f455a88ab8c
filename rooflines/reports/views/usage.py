"""The devices side by side, a row each, and the samples themselves as CSV."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rooflines.profiler.samplers.fields import FIELDS, DeviceSample, Field, Summary
from rooflines.reports.document import ABSENT, Column, Row, Table
from rooflines.reports.words.text import csv_text
from rooflines.reports.words.usage_sentences import SUMMARY_WORDS, devices_apart, peak_power
from rooflines.roofline.analysis import Analysis, DeviceUsage
from rooflines.roofline.usage.device_usage import figure
from rooflines.units import percent, quantity, si

# A title, a remark and what a device has there.
Figure = tuple[str, str, Callable[[DeviceUsage], str | None]]


def usage_table(analysis: Analysis) -> Table | None:
    """A row a device, accelerators first, and only the columns in which some device has a figure; None where nothing was sampled."""
    if analysis.usage is None or not analysis.usage.devices:
        return None
    devices = devices_apart(analysis.usage.devices)
    energy = "a step" if analysis.usage.steps else "in all"
    fields = (*_field_columns(FIELDS), ("throttled", "of the time", _throttled), *_field_columns(analysis.usage.fields))
    kept = [one for one in (*_ENERGY_COLUMNS, *fields) if any(one[2](device) is not None for device in devices)]
    columns = (
        Column("device", format="middle"),
        *(Column(label, remark or energy, priority=place) for place, (label, remark, _) in enumerate(kept, start=1)),
    )
    rows = tuple(Row((one.device, *(cell(one) or ABSENT for _, _, cell in kept))) for one in devices)
    return Table(name="devices", caption="Devices, from their samples", columns=columns, rows=rows, show="always")


def write_samples_csv(samples: Sequence[DeviceSample], path: Path) -> Path:
    """Write every sample to ``path``, a row each, the fields that no sample has left out; lists are parted by spaces."""
    rows = [sample.columns() for sample in samples]
    given = [name for name in dict.fromkeys(name for row in rows for name in row) if any(row.get(name) is not None for row in rows)]
    cells = ((" ".join(map(str, value)) if isinstance(value, tuple) else value for value in map(row.get, given)) for row in rows)
    path.write_text(csv_text(given, cells), encoding="utf-8", newline="")
    return path


def _field_columns(fields: Mapping[str, Field]) -> list[Figure]:
    """A column for every figure of the fields that tables show; fields of the same name share one."""
    keys: dict[tuple[str, str], list[tuple[str, Summary, Field]]] = {}
    for key, field in fields.items():
        for summary in field.summary if "table" in field.shown else ():
            whose = ("this run",) if field.program else ()
            words = ", ".join((*(() if whose and len(field.summary) == 1 else (SUMMARY_WORDS[summary],)), *whose))
            keys.setdefault((field.label, words), []).append((key, summary, field))
    return [(title, remark, _first(tuple(found))) for (title, remark), found in keys.items()]


def _first(fields: tuple[tuple[str, Summary, Field], ...]) -> Callable[[DeviceUsage], str | None]:
    def cell(one: DeviceUsage) -> str | None:
        for key, summary, field in fields:
            value = figure(one, key, summary)
            if value is not None:
                return quantity(value, field.unit_of(summary))
        return None

    return cell


def _mean_power(one: DeviceUsage) -> float | None:
    return one.mean_power_w if one.mean_power_w is not None else figure(one, "power_w", "mean")


def _watts(power_of: Callable[[DeviceUsage], float | None]) -> Callable[[DeviceUsage], str | None]:
    def cell(one: DeviceUsage) -> str | None:
        power_w = power_of(one)
        return None if power_w is None else si(power_w, "W")

    return cell


def _joules(one: DeviceUsage) -> str | None:
    if one.energy is None:
        return None
    value = one.energy_per_step_j if one.energy_per_step_j is not None else one.energy.energy_j
    return f"{si(value, 'J')} ±{percent(one.energy.error_j / one.energy.energy_j)}"


def _throttled(one: DeviceUsage) -> str | None:
    longest = max((reason.fraction for reason in one.throttled), default=0.0)
    return None if one.throttled_s is None else percent(longest) if longest else "no"


_ENERGY_COLUMNS: tuple[Figure, ...] = (
    ("energy", "", _joules),
    ("power", "mean", _watts(_mean_power)),
    ("power", "peak", _watts(peak_power)),
    ("power", "limit", _watts(lambda one: figure(one, "power_limit_w", "end"))),
)
