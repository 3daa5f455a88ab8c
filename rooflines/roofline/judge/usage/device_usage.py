"""Turn device samples into energy, gauges, counts and throttling of each device.

The window is the timed pass where the run says when that began. The samples lie around it; the traced pass is
not sampled.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import replace

from rooflines.device_specs.records import Ceilings
from rooflines.profiler.monitor.monitored import Monitored, MonitorFacts
from rooflines.profiler.read.extremes import extremes
from rooflines.profiler.read.records import Int64s, Mask
from rooflines.profiler.records import Run
from rooflines.profiler.samplers.fields import FIELDS, NUMBERS, Counter, DeviceSample, Field, Summary
from rooflines.roofline.analysis import DeviceUsage, Energy, Gauge, Series, Throttling, Unresolved, Usage
from rooflines.roofline.judge.usage.energy import LIMIT, EnergyReadings, better, by_counter, by_power
from rooflines.roofline.uncertainty import Floats

HOST = "host"
# The series of whether anything held the clocks down, 0 or 1.
THROTTLED = "throttled"
# Energy counters of the host other than the packages: memory and board.
_PARTS = ("dram", "psys")
# Integrated to a device's energy, which has an error and a separate record, like the counter energy_j.
_POWER = ("power_w", "power_instant_w")
# One of these is read of every GPU or slice of one.
_ACCELERATOR = ("gpu_utilization", "memory_used_bytes", "process_memory_bytes", "sm_clock_hz")
MOST_POINTS = 600
# A device without a reading for this many of its usual pauses was absent.
_LATE = 5.0
# A clock limit chosen by the user, or an idle clock, is not throttling.
_CHOSEN = ("applications clocks setting", "display clocks setting", "gpu idle", "idle", "none")
# Where a run does not say how well a field can be read (older ones do not): NVML averages power over a second
# from Ampere on.
_ASSUMED = {("nvml", "power_w"): Counter(source="nvml", device="", field="power_w", window_s=1.0)}


class Window(NamedTuple):
    """A stretch of time, epoch nanoseconds."""

    begin_ns: int
    end_ns: int

    @property
    def length_s(self) -> float:
        return (self.end_ns - self.begin_ns) / 1e9


def usage(run: Run, flops_per_step: float | None = None, ceilings: Ceilings | None = None) -> Usage | None:
    """Return the usage in the samples of ``run``; None without samples. ``flops_per_step`` is the sum over
    all devices of the run."""
    if not run.samples:
        return None
    facts = run.facts
    window, steps, times = None, None, facts.steps
    if times is not None and times.timed_began_ns is not None and times.timed_ns:
        window = Window(times.timed_began_ns, times.timed_began_ns + sum(times.timed_ns))
        steps = len(times.timed_ns)
        if (stretch := times.timed_stretch) is not None:
            window = Window(stretch.began_ns, stretch.ended_ns)
            steps = stretch.steps
    clocks = [
        roof.conditions.clock_hz
        for roof in (ceilings.main("compute") if ceilings else ())
        if roof.conditions is not None
    ]
    clock_hz = max((clock for clock in clocks if clock is not None), default=None)
    found = usage_of(
        run.samples,
        facts.counters,
        window,
        steps,
        facts.workload.batch_size,
        fields=facts.fields,
        reference_clock_hz=clock_hz,
    )
    own = _own(found.devices, facts.environment.device)
    energies = [device.energy for device in found.devices if device.device in own]
    known = [energy for energy in energies if energy is not None]
    if not steps or not known or len(known) < len(energies):
        return replace(found, own=own)
    per_step_j = sum(energy.energy_j for energy in known) / steps
    return replace(
        found,
        own=own,
        energy_per_step_j=per_step_j,
        energy_per_step_error_j=sum(energy.error_j for energy in known) / steps,
        energy_per_sample_j=per_step_j / facts.workload.batch_size if facts.workload.batch_size else None,
        flop_per_j=flops_per_step / per_step_j if flops_per_step else None,
    )


def usage_of(
    samples: Sequence[DeviceSample],
    counters: Iterable[Counter] = (),
    window: Window | None = None,
    steps: int | None = None,
    batch_size: int | None = None,
    *,
    fields: Mapping[str, Field] | None = None,
    reference_clock_hz: float | None = None,
) -> Usage:
    """Return the usage of each device in ``samples`` (at least one) during ``window``, by default from the
    first to the last.

    ``steps`` is how many steps of ``batch_size`` the window holds; ``fields`` are those that samplers of
    other packages declare. Nothing here needs a run: the samples may be of any program.
    """
    declared = {key: field for key, field in (fields or {}).items() if key not in FIELDS}
    known = {key: FIELDS[key] for key in NUMBERS} | declared
    times = [sample.time_ns for sample in samples]
    whole = window is None
    window = window or Window(min(times), max(times))
    described = {(counter.source, counter.device, counter.field): counter for counter in counters}
    devices = []
    series = []
    for device in sorted(
        {sample.device for sample in samples}, key=lambda device: (device != HOST, is_host(device), device)
    ):
        taken = sorted(
            (sample for sample in samples if sample.device == device), key=lambda sample: sample.time_ns
        )
        found = _fields(taken, described, known)
        devices.append(_device(device, taken, found, known, window, steps, batch_size, reference_clock_hz))
        drawn = (*(key for key, field in known.items() if "chart" in field.shown), THROTTLED)
        series += [_series(device, key, found[key], window, known.get(key)) for key in drawn if key in found]
    return Usage(
        window="samples" if whole else "timed pass",
        began_ns=window.begin_ns,
        window_s=window.length_s,
        steps=steps,
        devices=tuple(devices),
        series=tuple(series),
        fields=declared,
    )


def figure(one: DeviceUsage, key: str, summary: Summary) -> float | None:
    """One of the figures that sum up the field ``key`` of a device; None where it was not read."""
    if summary in ("difference", "integral"):
        return one.counts.get(key)
    return None if key not in one.gauges else float(getattr(one.gauges[key], summary))


def is_host(device: str) -> bool:
    """Whether a sampled device is the host or a part of it."""
    return device == HOST or device.startswith(_PARTS)


def is_accelerator(one: DeviceUsage) -> bool:
    """Whether a device is a GPU: neither the host or a part of it, nor something that another package's
    sampler reads."""
    return not is_host(one.device) and any(key in one.gauges for key in _ACCELERATOR)


def held_down(reasons: str) -> tuple[str, ...]:
    """The reasons in a sample's ``throttle_reasons`` that are throttling: not the user's settings, not
    idleness."""
    named = (reason.strip() for reason in reasons.split(","))
    return tuple(reason for reason in named if reason and reason.lower() not in _CHOSEN)


def _device(
    device: str,
    taken: Sequence[DeviceSample],
    fields: dict[str, EnergyReadings],
    known: Mapping[str, Field],
    window: Window,
    steps: int | None,
    batch_size: int | None,
    reference_clock_hz: float | None,
) -> DeviceUsage:
    inside = [sample for sample in taken if window.begin_ns <= sample.time_ns <= window.end_ns]
    of_counter = [
        by_counter(read.times_ns, read.values, *window, read.counter)
        for name, read in fields.items()
        if name == "energy_j"
    ]
    by_watts = [
        by_power(
            read.times_ns,
            read.values,
            *window,
            read.counter,
            fields.get("power_instant_w") if name == "power_w" else None,
        )
        for name in _POWER
        if (read := fields.get(name)) is not None
    ]
    best, second = (
        better(figures) if window.length_s > 0 else None for figures in ([*of_counter, *by_watts], by_watts)
    )
    energy = best if isinstance(best, Energy) else None
    refused = best if isinstance(best, Unresolved) else None
    if refused is not None and refused.needs_s is not None and steps:
        refused = replace(refused, needs_steps=math.ceil(refused.needs_s / (window.length_s / steps)))
    per_step_j = energy.energy_j / steps if energy is not None and steps else None
    throttled_s, throttled_fraction, throttled = _throttled(taken, window)
    gauges = {}
    counted = {}
    for name, readings in fields.items():
        field = known.get(name)
        if field is None or name == "energy_j":
            continue
        if field.is_counter:
            if (total := _count(readings, window)) is not None:
                counted[name] = total
        elif (gauge := _gauge(readings, window)) is not None:
            gauges[name] = gauge
            if "integral" in field.summary and name not in _POWER:
                time_s = _covered(readings.times_ns, window).length_s
                counted[name] = gauge.mean * time_s, time_s
    times = np.array([sample.time_ns for sample in taken], np.int64)
    return DeviceUsage(
        device=device,
        readings=len(inside),
        energy=energy,
        no_energy=refused,
        energy_by_power=second
        if energy is not None and energy.method == "counter" and isinstance(second, Energy)
        else None,
        energy_per_step_j=per_step_j,
        energy_per_sample_j=per_step_j / batch_size if per_step_j is not None and batch_size else None,
        mean_power_w=energy.energy_j / window.length_s if energy is not None else None,
        gauges=gauges,
        counts={name: count for name, (count, _) in counted.items()},
        counted_s={name: time_s for name, (_, time_s) in counted.items()},
        throttled_s=throttled_s,
        throttled_fraction=throttled_fraction,
        throttled=throttled,
        clock_loss_fraction=_clock_loss(taken, window, reference_clock_hz) if throttled_s else None,
        ended=_covered(times, window).end_ns < window.end_ns,
    )


# --- fields as arrays -------------------------------------------------------------------------------------


def _fields(
    taken: Sequence[DeviceSample], described: dict[tuple[str, str, str], Counter], known: Mapping[str, Field]
) -> dict[str, EnergyReadings]:
    """Every field that was sampled, in the order of time; ``throttled`` is made of the reasons."""
    found = {}
    numbers = [(sample, sample.numbers()) for sample in taken]
    for name in known:
        given = [
            (sample, read[name]) for sample, read in numbers if name in read and math.isfinite(read[name])
        ]
        if given:
            first = given[0][0]
            counter = described.get((first.source, first.device, name)) or _ASSUMED.get((first.source, name))
            found[name] = _at_distinct_times(given, counter)
    held = [
        (sample, float(bool(held_down(sample.throttle_reasons))))
        for sample in taken
        if sample.throttle_reasons is not None
    ]
    return {**found, THROTTLED: _at_distinct_times(held, None)} if held else found


def _at_distinct_times(given: Sequence[tuple[DeviceSample, Any]], counter: Counter | None) -> EnergyReadings:
    times, first = np.unique(np.array([sample.time_ns for sample, _ in given], np.int64), return_index=True)
    return EnergyReadings(times, np.array([value for _, value in given], np.float64)[first], counter)


def _weights(times_ns: Int64s, window: Window) -> Floats:
    """The seconds of the window that each reading represents: those to which no other reading is nearer."""
    middles = (times_ns[1:] + times_ns[:-1]) / 2
    edges = np.clip(np.concatenate(([-np.inf], middles, [np.inf])), window.begin_ns, window.end_ns)
    return np.diff(edges) / 1e9


def _covered(times_ns: Int64s, window: Window) -> Window:
    """The part of the window that the readings speak of, which ends before it begins where they speak of
    none.

    It is all of the window, unless they begin after it does or end before it does by more than a few pauses
    (and by more than a second): then the device was absent, and the first or last reading represents half a
    pause beyond it.
    """
    if len(times_ns) < 2:
        return window
    pause_ns = float(np.median(np.diff(times_ns)))
    begin_ns, end_ns = window
    late_ns = max(_LATE * pause_ns, 1e9)
    if times_ns[0] - begin_ns > late_ns:
        begin_ns = int(times_ns[0] - pause_ns / 2)
    if end_ns - times_ns[-1] > late_ns:
        end_ns = int(times_ns[-1] + pause_ns / 2)
    return Window(begin_ns, end_ns)


def _part(readings: EnergyReadings, window: Window) -> tuple[Mask, Window]:
    """The readings that speak of nothing but the window, and the time they were read in.

    An average over the time before describes the window only once that time lies within it. Where there is no
    such reading one just after the window will do, nine tenths of whose average lie in it, and where there is
    none of those, none. What is of the moment is taken from next to a window without a reading.
    """
    times = readings.times_ns
    average_ns = round(readings.window_s * 1e9)
    begin_ns = window.begin_ns + average_ns
    for end_ns in (window.end_ns, window.end_ns + round(LIMIT * average_ns)):
        found = (times >= begin_ns) & (times <= end_ns)
        if found.any():
            return found, Window(begin_ns, end_ns)
    if average_ns:
        return found, window
    around = np.zeros(len(times), bool)
    before = int(np.searchsorted(times, window.begin_ns)) - 1
    after = int(np.searchsorted(times, window.end_ns, side="right"))
    around[max(0, before) : after + 1] = True
    return around, window


def _gauge(readings: EnergyReadings, window: Window) -> Gauge | None:
    part, told = _part(readings, window)
    times = readings.times_ns[part]
    values = readings.values[part]
    told = _covered(readings.times_ns, told)
    if not len(values) or told.end_ns < told.begin_ns:
        return None
    weights = _weights(times, told)
    mean = np.average(values, weights=weights) if weights.sum() > 0 else np.mean(values)
    lowest = float(np.min(values))
    highest = float(np.max(values))
    return Gauge(
        start=float(values[0]),
        end=float(values[-1]),
        mean=min(max(float(mean), lowest), highest),  # a weighted sum of equals can be off in its last digit
        median=float(np.median(values)),
        lowest=lowest,
        highest=highest,
    )


def _count(readings: EnergyReadings, window: Window) -> tuple[float, float] | None:
    """What came between the last reading before the window (its first one without that) and the first one
    after it, in which seconds.

    So nothing in the window is missed; events just outside may be counted too. A counter that restarted (its
    process or its driver did) counts from zero.
    """
    times = readings.times_ns
    first = max(0, int(np.searchsorted(times, window.begin_ns, side="right")) - 1)
    last = int(np.searchsorted(times, window.end_ns)) + 1
    part = readings.values[first:last]
    if len(part) < 2:
        return None
    steps = np.diff(part)
    return float(np.sum(np.where(steps < 0, part[1:], steps))), float(np.ptp(times[first:last])) / 1e9


def _series(device: str, key: str, readings: EnergyReadings, window: Window, field: Field | None) -> Series:
    """A curve; that of a counter starts at zero."""
    start = readings.values[0] if field is not None and field.is_counter else 0.0
    times, values = thinned((readings.times_ns - window.begin_ns) / 1e9, readings.values - start)
    return Series(
        device=device,
        field=key,
        times_s=tuple(round(time, 4) for time in times.tolist()),
        values=tuple(float(f"{value:.6g}") for value in values.tolist()),
    )


def thinned(times: Floats, values: Floats, most: int = MOST_POINTS) -> tuple[Floats, Floats]:
    """At most ``most`` points of a curve: the lowest and the highest of equally many neighbors, so that no
    peak is lost."""
    kept = extremes(values, most)
    return times[kept], values[kept]


# --- throttling -------------------------------------------------------------------------------------------


def _throttled(
    taken: Sequence[DeviceSample], window: Window
) -> tuple[float | None, float | None, tuple[Throttling, ...]]:
    """For how long anything held the clocks down, which share of the time that was, and each reason by
    itself, longest first.

    The time is that between the readings. None without two readings: a duration cannot be seen from a moment.
    """
    told = [sample for sample in taken if sample.throttle_reasons is not None]
    times = np.array([sample.time_ns for sample in told], np.int64)
    covered = _covered(times, window)
    if len(told) < 2 or covered.length_s <= 0:
        return None, None, ()
    weights = _weights(times, covered)
    time_of: dict[str, float] = {}
    whole_s = 0.0
    for sample, weight in zip(told, weights.tolist(), strict=True):
        reasons = held_down(sample.throttle_reasons or "")
        whole_s += weight if reasons else 0.0
        for reason in reasons:
            time_of[reason] = time_of.get(reason, 0.0) + weight
    ranked = sorted(
        ((reason, time_s) for reason, time_s in time_of.items() if time_s > 0),
        key=lambda one: (-one[1], one[0]),
    )
    reasons_of = tuple(
        Throttling(reason=name, time_s=time_s, fraction=time_s / covered.length_s) for name, time_s in ranked
    )
    return whole_s, whole_s / covered.length_s, reasons_of


def _clock_loss(taken: Sequence[DeviceSample], window: Window, reference_hz: float | None) -> float | None:
    """By which share the SM clock was lower while it was held down, averaged over the time that the readings
    speak of.

    Compared with the highest clock of this run at which nothing held it, and where it was always held with
    that of the ceilings; None where there is neither.
    """
    told = [
        sample for sample in taken if sample.sm_clock_hz is not None and sample.throttle_reasons is not None
    ]
    times = np.array([sample.time_ns for sample in told], np.int64)
    covered = _covered(times, window)
    if not told or covered.length_s <= 0:
        return None
    clocks = [(sample.sm_clock_hz or 0.0, bool(held_down(sample.throttle_reasons or ""))) for sample in told]
    reference = max((clock for clock, held in clocks if not held), default=0.0) or reference_hz
    if not reference:
        return None
    lost = [max(0.0, 1 - clock / reference) if held else 0.0 for clock, held in clocks]
    return float(np.dot(_weights(times, covered), lost)) / covered.length_s


def _own(devices: Sequence[DeviceUsage], device: str) -> tuple[str, ...]:
    """The sampled devices that did the run's work: its own one, and every other accelerator on which the
    process held memory."""
    kind = device.partition(":")[0]
    if kind == "cpu":
        return tuple(one.device for one in devices if one.device == HOST)
    names = [one.device for one in devices if one.device.partition(":")[0] == kind]
    first = device if device in names else next(iter(names), "")
    held = {
        one.device
        for one in devices
        if "process_memory_bytes" in one.gauges and one.gauges["process_memory_bytes"].highest > 0
    }
    return tuple(name for name in names if name == first or name in held)


MONITOR_ANALYSIS_SCHEMA = "rooflines.monitor-analysis/1"


class MonitorAnalysis(MonitorFacts, frozen=True, kw_only=True):
    """The analysis of a monitored program, the source of its reports.

    ``command`` is absent unless it was asked to be shown. ``window_s`` is how long it was watched. ``usage``
    is absent where nothing was sampled.
    """

    schema: str = MONITOR_ANALYSIS_SCHEMA
    command: tuple[str, ...] | None = None
    window_s: float | None = None
    usage: Usage | None = None


def analyze_monitored(monitored: Monitored) -> MonitorAnalysis:
    """Analyze the samples of ``monitored``, from its begin to its end or, if that was not observed, to the
    last sample."""
    facts, samples = monitored.facts, monitored.samples
    times = [sample.time_ns for sample in samples]
    began_ns = facts.began_ns if facts.began_ns is not None else min(times, default=None)
    ended_ns = facts.ended_ns if facts.ended_ns is not None else max(times, default=None)
    window = (
        Window(began_ns, ended_ns)
        if began_ns is not None and ended_ns is not None and ended_ns > began_ns
        else None
    )
    sampled = None
    if samples and window is not None:
        # No pass was timed: the window is that of the samples, to the moment.
        sampled = replace(usage_of(samples, facts.counters, window, fields=facts.fields), window="samples")
    return MonitorAnalysis(
        **{name: getattr(facts, name) for name in MonitorFacts.__struct_fields__},
        command=facts.command if facts.show_command and facts.command else None,
        window_s=facts.ending.wall_s
        if facts.ending is not None
        else window.length_s
        if window is not None
        else None,
        usage=sampled,
    )
