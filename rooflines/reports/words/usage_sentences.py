"""What the samples say of each device, in words: joules and how sure they are, power, load, memory, heat, what held it back."""

from __future__ import annotations

from collections.abc import Iterable

from rooflines.profiler.samplers.fields import Summary
from rooflines.reports.words.sentences import listed
from rooflines.roofline.analysis import Analysis, DeviceUsage, Energy, Unresolved, Usage
from rooflines.roofline.usage.device_usage import figure, is_host
from rooflines.units import counted, percent, seconds, si

_METHODS = {"counter": "by its energy counter", "power": "by integrating its power"}
_METHODS_OF_MANY = {"counter": "by their energy counters", "power": "by integrating their power"}
# Of more devices the table is enough.
_MOST_SINGLE = 3
# What the figures of a field are called.
SUMMARY_WORDS: dict[Summary, str] = {
    "mean": "mean", "median": "median", "lowest": "lowest", "highest": "peak", "end": "last", "difference": "in all",
    "integral": "in all",
}  # fmt: skip
_WAYS = (("tx", "out"), ("rx", "in"))
# The least share of the window that is worth naming.
_NAMED = 0.005


def usage_title(analysis: Analysis) -> str:
    """The heading of what the devices did."""
    return "Device activity" + (" in the timed steps" if analysis.usage is None or analysis.usage.window == "timed pass" else "")


def missing_usage(analysis: Analysis) -> str:
    """Why there is nothing to say of the devices; empty where there is."""
    return "" if analysis.usage is not None else "Nothing was sampled: power, load, memory and temperature are not known."


def usage_remarks(analysis: Analysis) -> list[str]:
    """What ``usage_table`` leaves out: the energy of all devices, of a sample, how each was got or why not, what held a device back."""
    usage = analysis.usage
    if usage is None:
        return []
    texts = _together(analysis, usage)
    known = [one for one in usage.devices if one.energy is not None]
    many = len(known) > _MOST_SINGLE
    if many:
        for method, how in _METHODS_OF_MANY.items():
            names = [one.device for one in known if one.energy is not None and one.energy.method == method]
            texts += [f"Energy over {seconds(usage.window_s)} {how}: {listed(names, 12)}."] if names else []
    for one in devices_apart(usage.devices):
        joules = [] if many and one.energy is not None else _joules(analysis, usage, one)
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
        texts.append(f"{si(usage.energy_per_step_j, 'J')} a step (±{percent(error, 1)}) on {len(usage.own)} devices")
        if usage.energy_per_sample_j is not None:
            texts.append(f"{si(usage.energy_per_sample_j, 'J')} {_one(analysis.workload.unit)}")
    if usage.flop_per_j is not None:
        texts.append(f"{si(usage.flop_per_j, 'FLOP/s')} per watt")
    return [f"{', '.join(texts)}."] if texts else []


def _joules(analysis: Analysis, usage: Usage, one: DeviceUsage) -> list[str]:
    texts = []
    if one.energy is not None:
        texts.append(f"{energy_text(one.energy)} in {seconds(usage.window_s)} {_METHODS[one.energy.method]}")
    if one.energy_per_step_j is not None:
        each = "" if one.energy_per_sample_j is None else f", {si(one.energy_per_sample_j, 'J')} {_one(analysis.workload.unit)}"
        texts.append(f"{si(one.energy_per_step_j, 'J')} a step{each}")
    if one.device in usage.own and one.energy is None and one.no_energy is None:
        texts.append("no joules, because neither energy nor power could be read")
    if one.no_energy is not None:
        texts.append(f"no joules, because {refusal_text(one.no_energy)}")
    return texts


def energy_text(energy: Energy) -> str:
    """``1.50 kJ (±2.1 %)``."""
    return f"{si(energy.energy_j, 'J')} (±{percent(energy.error_j / energy.energy_j, 1)})"


def refusal_text(refused: Unresolved) -> str:
    """Why no energy is given and what would help: ``... ; 0.9 s would do (--steps 42)``."""
    if refused.needs_s is None:
        return refused.reason
    steps = f" (--steps {refused.needs_steps})" if refused.needs_steps is not None else ""
    return f"{refused.reason}: {seconds(refused.needs_s, 2)} would do{steps}"


def peak_power(one: DeviceUsage) -> float | None:
    """The highest power read: that of a moment where it was sampled, else the highest average."""
    gauge = one.gauges.get("power_instant_w") or one.gauges.get("power_w")
    return None if gauge is None else gauge.highest


def _traffic(one: DeviceUsage) -> list[str]:
    """Mean rates over PCIe (gauges) and NVLink (counts over the time between their readings)."""
    pcie = {way: figure(one, f"pcie_{wire}_bytes_per_s", "mean") for wire, way in _WAYS}
    sent = {way: _rate(one, f"nvlink_{wire}_bytes") for wire, way in _WAYS}
    # A link that nothing goes over is not worth a word.
    links = sent if any(sent.values()) else {}
    texts = []
    for name, rates in (("PCIe", pcie), ("NVLink", links)):
        told = [f"{si(rate, 'B/s')} {way}" for way, rate in rates.items() if rate is not None]
        texts += [f"{name} {', '.join(told)}"] if told else []
    return texts


def _rate(one: DeviceUsage, count: str) -> float | None:
    """What came a second; None where it was not counted."""
    time_s = one.counted_s.get(count)
    return one.counts[count] / time_s if time_s else None


def _held(one: DeviceUsage) -> list[str]:
    named = [f"{reason.reason} {percent(reason.fraction)}" for reason in one.throttled if reason.fraction >= _NAMED]
    return [f"throttled for {seconds(one.throttled_s or 0.0)} ({', '.join(named)})"] if named else []


def _errors(one: DeviceUsage) -> list[str]:
    found = [(round(one.counts.get(f"ecc_{kind}", 0.0)), kind) for kind in ("uncorrected", "corrected")]
    return [counted(count, f"{kind} memory error") for count, kind in found if count]


def _one(unit: str) -> str:
    """``an image``, ``a sample``: one of a workload's units."""
    name = unit.removesuffix("s")
    return f"{'an' if name[:1] in 'aeiou' else 'a'} {name}"


def devices_apart(devices: Iterable[DeviceUsage]) -> tuple[DeviceUsage, ...]:
    """Accelerators first, then the host: the order of tables and charts."""
    return tuple(sorted(devices, key=lambda one: is_host(one.device)))
