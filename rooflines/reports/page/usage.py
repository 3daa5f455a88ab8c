"""What the samples tell of each device: sentences (energy and its error, what held it back), a table, and the
samples as CSV."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from rooflines.profiler.samplers.fields import FIELDS, DeviceSample, Field, Summary
from rooflines.reports.document import ABSENT, Column, Table, table
from rooflines.reports.words.sentences import listed
from rooflines.reports.words.text import csv_text, given, joined
from rooflines.roofline.analysis import Analysis, DeviceUsage, Energy, Unresolved, Usage
from rooflines.roofline.judge.usage.device_usage import figure, is_host
from rooflines.units import counted, percent, quantity, seconds, si

_METHODS = {"counter": "by its energy counter", "power": "by integrating its power"}
_METHODS_OF_MANY = {"counter": "by their energy counters", "power": "by integrating their power"}
# Of more devices the table is enough.
_MOST_SINGLE = 3
# What the figures of a field are called.
SUMMARY_WORDS: dict[Summary, str] = {
    "mean": "mean",
    "median": "median",
    "lowest": "lowest",
    "highest": "peak",
    "end": "last",
    "difference": "in all",
    "integral": "in all",
}
_WAYS = (("tx", "out"), ("rx", "in"))
# The least share of the window that is worth naming.
_NAMED = 0.005


def missing_usage(analysis: Analysis) -> str:
    """Why there is nothing to say of the devices; empty where there is."""
    return "" if analysis.usage else "Nothing was sampled: power, load, memory and temperature are not known."


def usage_remarks(analysis: Analysis) -> list[str]:
    """What ``usage_table`` leaves out: the energy of all devices, of a sample, how each was got or why not,
    what held a device back."""
    usage = analysis.usage
    if not usage:
        return []
    texts = _together(analysis, usage)
    known = [one for one in usage.devices if one.energy]
    many = len(known) > _MOST_SINGLE
    if many:
        for method, how in _METHODS_OF_MANY.items():
            names = [one.device for one in known if one.energy and one.energy.method == method]
            texts += [f"Energy over {seconds(usage.window_s)} {how}: {listed(names, 12)}."] if names else []
    for one in devices_apart(usage.devices):
        joules = [] if many and one.energy else _joules(analysis, usage, one)
        parts = [*joules, *_traffic(one), *_held(one), *_errors(one)]
        parts += ["its samples end before the window does"] if one.ended else []
        texts += [f"{one.device}: {'; '.join(parts)}."] if parts else []
    return texts


def _together(analysis: Analysis, usage: Usage) -> list[str]:
    if usage.energy_per_step_j is None:
        return []
    texts = []
    if len(usage.own) > 1:
        error = (usage.energy_per_step_error_j or 0.0) / usage.energy_per_step_j
        texts.append(
            f"{si(usage.energy_per_step_j, 'J')} a step (±{percent(error, 1)}) on {len(usage.own)} devices"
        )
        texts += _per_sample(usage.energy_per_sample_j, analysis)
    if usage.flop_per_j is not None:
        texts.append(f"{si(usage.flop_per_j, 'FLOP/s')} per watt")
    return [f"{', '.join(texts)}."] if texts else []


def _per_sample(energy_j: float | None, analysis: Analysis) -> list[str]:
    """``1.2 J an image``, by the workload's unit."""
    unit = analysis.workload.unit.removesuffix("s")
    return [] if energy_j is None else [f"{si(energy_j, 'J')} {'an' if unit[:1] in 'aeiou' else 'a'} {unit}"]


def _joules(analysis: Analysis, usage: Usage, one: DeviceUsage) -> list[str]:
    texts = []
    if one.energy:
        texts.append(f"{energy_text(one.energy)} in {seconds(usage.window_s)} {_METHODS[one.energy.method]}")
    if one.energy_per_step_j is not None:
        texts.append(
            ", ".join(
                (f"{si(one.energy_per_step_j, 'J')} a step", *_per_sample(one.energy_per_sample_j, analysis))
            )
        )
    if one.no_energy:
        texts.append(f"no joules, because {refusal_text(one.no_energy)}")
    elif one.device in usage.own and not one.energy:
        texts.append("no joules, because neither energy nor power could be read")
    return texts


def energy_text(energy: Energy) -> str:
    """``1.50 kJ (±2.1 %)``."""
    return f"{si(energy.energy_j, 'J')} (±{percent(energy.error_j / energy.energy_j, 1)})"


def refusal_text(refused: Unresolved) -> str:
    """Why no energy is given and what would help: ``... ; 0.9 s would do (--steps 42)``."""
    if refused.needs_s is None:
        return refused.reason
    steps = given(" (--steps {})", refused.needs_steps)
    return f"{refused.reason}: {seconds(refused.needs_s, 2)} would do{steps}"


def peak_power(one: DeviceUsage) -> float | None:
    """The highest power read: that of a moment where it was sampled, else the highest average."""
    gauge = one.gauges.get("power_instant_w") or one.gauges.get("power_w")
    return None if not gauge else gauge.highest


def _traffic(one: DeviceUsage) -> list[str]:
    """Mean rates over PCIe (gauges) and NVLink (counts over the time between their readings), if anything
    goes over it."""
    pcie, sent = {}, {}
    for wire, way in _WAYS:
        pcie[way], count = figure(one, f"pcie_{wire}_bytes_per_s", "mean"), f"nvlink_{wire}_bytes"
        sent[way] = one.counts[count] / one.counted_s[count] if one.counted_s.get(count) else None
    texts = []
    for name, rates in (("PCIe", pcie), ("NVLink", sent if any(sent.values()) else {})):
        told = [f"{si(rate, 'B/s')} {way}" for way, rate in rates.items() if rate is not None]
        texts += [f"{name} {', '.join(told)}"] if told else []
    return texts


def _held(one: DeviceUsage) -> list[str]:
    named = [
        f"{reason.reason} {percent(reason.fraction)}" for reason in one.throttled if reason.fraction >= _NAMED
    ]
    return [f"throttled for {seconds(one.throttled_s or 0.0)} ({', '.join(named)})"] if named else []


def _errors(one: DeviceUsage) -> list[str]:
    found = [(round(one.counts.get(f"ecc_{kind}", 0.0)), kind) for kind in ("uncorrected", "corrected")]
    return [counted(count, f"{kind} memory error") for count, kind in found if count]


def devices_apart(devices: Iterable[DeviceUsage]) -> tuple[DeviceUsage, ...]:
    """Accelerators first, then the host: the order of tables and charts."""
    return tuple(sorted(devices, key=lambda one: is_host(one.device)))


# A title, a remark and what a device has there.
_FigureColumn = tuple[str, str, Callable[[DeviceUsage], str | None]]


def usage_table(analysis: Analysis) -> Table | None:
    """A row a device, accelerators first, and only the columns in which some device has a figure; None where
    nothing was sampled."""
    if not analysis.usage or not analysis.usage.devices:
        return None
    devices = devices_apart(analysis.usage.devices)
    energy = "a step" if analysis.usage.steps else "in all"
    fields = (
        *_field_columns(FIELDS),
        ("throttled", "of the time", _throttled),
        *_field_columns(analysis.usage.fields),
    )
    kept = [
        column
        for column in (*_ENERGY_COLUMNS, *fields)
        if any(column[2](device) is not None for device in devices)
    ]
    columns = (
        Column(label, remark or energy, priority=place)
        for place, (label, remark, _) in enumerate(kept, start=1)
    )
    rows = ((device.device, *(cell(device) or ABSENT for _, _, cell in kept)) for device in devices)
    return table(
        "devices",
        (Column("device", format="middle"), *columns),
        rows,
        "Devices, from their samples",
        show="always",
    )


def write_samples_csv(samples: Sequence[DeviceSample], path: Path) -> Path:
    """Write every sample to ``path``, a row each, the fields that no sample has left out; lists are parted by
    spaces."""
    rows = [sample.columns() for sample in samples]
    given = [
        name
        for name in dict.fromkeys(name for row in rows for name in row)
        if any(row.get(name) is not None for row in rows)
    ]
    cells = (
        (" ".join(map(str, value)) if isinstance(value, tuple) else value for value in map(row.get, given))
        for row in rows
    )
    path.write_text(csv_text(given, cells), encoding="utf-8", newline="")
    return path


def _field_columns(fields: Mapping[str, Field]) -> list[_FigureColumn]:
    """A column for every figure of the fields that tables show; fields of the same name share one, in which
    the first that was read stands."""
    keys: dict[tuple[str, str], list[tuple[str, Summary, Field]]] = {}
    for key, field in fields.items():
        for summary in field.summary if "table" in field.shown else ():
            only = field.program and len(field.summary) == 1
            words = joined(", ", "" if only else SUMMARY_WORDS[summary], "this run" if field.program else "")
            keys.setdefault((field.label, words), []).append((key, summary, field))
    return [
        (title, remark, functools.partial(_first_read, tuple(found)))
        for (title, remark), found in keys.items()
    ]


def _first_read(fields: tuple[tuple[str, Summary, Field], ...], one: DeviceUsage) -> str | None:
    read = ((figure(one, key, summary), field.unit_of(summary)) for key, summary, field in fields)
    return next((quantity(value, unit) for value, unit in read if value is not None), None)


def _watts(power_w: float | None) -> str | None:
    return None if power_w is None else si(power_w, "W")


def _energy_cell(one: DeviceUsage) -> str | None:
    if not one.energy:
        return None
    value = one.energy_per_step_j if one.energy_per_step_j is not None else one.energy.energy_j
    return f"{si(value, 'J')} ±{percent(one.energy.error_j / one.energy.energy_j)}"


def _throttled(one: DeviceUsage) -> str | None:
    longest = max((reason.fraction for reason in one.throttled), default=0.0)
    return None if one.throttled_s is None else percent(longest) if longest else "no"


_ENERGY_COLUMNS: tuple[_FigureColumn, ...] = (
    ("energy", "", _energy_cell),
    (
        "power",
        "mean",
        lambda one: _watts(
            one.mean_power_w if one.mean_power_w is not None else figure(one, "power_w", "mean")
        ),
    ),
    ("power", "peak", lambda one: _watts(peak_power(one))),
    ("power", "limit", lambda one: _watts(figure(one, "power_limit_w", "end"))),
)
