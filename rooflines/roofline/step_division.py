"""How a step divides, by what its time is for, and whether the input or the host sets its pace.

The division comes from the trace, how long the program waits for its data from the timed pass; each is held against the other. What
the loader and the step reach alone says which of the two is the slower one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rooflines.profiler.records import Loading, RunFile
from rooflines.profiler.trace import intervals
from rooflines.profiler.trace.breakdown import device_intervals, host_intervals
from rooflines.profiler.trace.calls import BACKWARD, FORWARD, OPTIMIZER, OUTSIDE, Calls
from rooflines.profiler.trace.idle import idle_causes
from rooflines.profiler.trace.intervals import Intervals
from rooflines.profiler.trace.records import ANNOTATION, COMMUNICATION, MEMCPY, OPERATOR, STEP_PREFIX, Trace
from rooflines.roofline.analysis import Analysis, Input, Limit, Rate, StepDivision
from rooflines.roofline.attribution import Attribution

# From this share of a step on that its input delays it, a loader that is slower than the step alone makes the step input-bound.
INPUT_BOUND = 0.1
# The same where nobody measured the two alone, and for the host.
LARGE_SHARE = 0.25

_RESAMPLES = 2000
_PHASES = {"forward": FORWARD, "backward": BACKWARD, "optimizer": OPTIMIZER}
_FROM_HOST = ("HtoD", "Host -> Device", "HostToDevice", "H2D", "M2D")
_COMMUNICATES = ("c10d::", "record_param_comms", "nccl:", "gloo:", "mpi:")

Mask = npt.NDArray[np.bool_]


class Division(NamedTuple):
    """``record`` is per step or trace; ``idle_loading_s`` how much of the timeline's idle time is the data loader's."""

    record: StepDivision
    idle_loading_s: float


def divide(trace: Trace, calls: Calls, attribution: Attribution) -> Division:
    """Each nanosecond of the steps to one part; of the whole trace where it has no steps."""
    windows = attribution.windows
    window = intervals.union(windows[:, 0], windows[:, 1])
    count = attribution.steps or 1
    loading = intervals.intersect(_in_loader(trace, calls), window)
    on_device = len(trace.device) > 0
    layers = _device_layers(trace, calls, attribution, window) if on_device else _host_layers(trace, calls, loading)
    found: dict[str, int] = {}
    left = window
    for part, busy in layers:
        found[part] = found.get(part, 0) + intervals.length(intervals.intersect(left, busy))
        left = intervals.subtract(left, busy)
    rest = "idle" if on_device else "host"
    found[rest] = found.get(rest, 0) + intervals.length(left)
    parts = {f"{part}_s": length / 1e9 / count for part, length in found.items() if length}
    record = StepDivision(
        of="device" if on_device else "host",
        step_s=intervals.length(window) / 1e9 / count,
        loader_s=intervals.length(loading) / 1e9 / count if len(loading) else None,
        **parts,
    )
    busy = attribution.busy
    idle = intervals.subtract(window if not on_device else _span(busy), busy)
    if on_device:
        idle_loading = idle_causes(trace, calls, attribution.launch, idle)["data_loading"]
    else:
        idle_loading = intervals.intersect(idle, loading)
    return Division(record, intervals.length(idle_loading) / 1e9 / count)


def _span(busy: Intervals) -> Intervals:
    return np.array([[busy[0, 0], busy[-1, 1]]], np.int64) if len(busy) else busy


def _device_layers(trace: Trace, calls: Calls, attribution: Attribution, window: Intervals) -> list[tuple[str, Intervals]]:
    device, launch = trace.device, attribution.launch
    known = launch >= 0
    phase = np.where(known, calls.phase[np.maximum(launch, 0)] if len(trace.host) else -1, -1)
    named = np.array([any(word in name for word in _FROM_HOST) for name in trace.names], bool)
    from_host = (device.kind == MEMCPY) & named[device.name]
    works = ~from_host & (device.kind != COMMUNICATION)

    def of_phase(number: int) -> Intervals:
        chosen = works & (phase == number)
        return intervals.union(device.start_ns[chosen], device.end_ns[chosen])

    layers = [(part, of_phase(number)) for part, number in _PHASES.items()]
    # What is launched from within the loader is the loader's; what has no launch in the trace has no phase.
    layers += [("data_loading", of_phase(OUTSIDE)), ("other", of_phase(-1))]
    layers += [("communication", device_intervals(trace, COMMUNICATION))]
    layers += [("host_to_device", intervals.union(device.start_ns[from_host], device.end_ns[from_host]))]
    gaps = intervals.subtract(window, device_intervals(trace))
    causes = idle_causes(trace, calls, launch, gaps)
    return [*layers, ("data_loading", causes["data_loading"]), ("host", causes["host_bound"])]


def _host_layers(trace: Trace, calls: Calls, loading: Intervals) -> list[tuple[str, Intervals]]:
    host = trace.host
    main = host.thread == _main_thread(trace, calls)
    talks = np.array([name.startswith(_COMMUNICATES) for name in trace.names], bool)[host.name]
    # A thread that loads data ahead computes for nobody who waits.
    loads = np.unique(host.thread[(host.kind == ANNOTATION) & (calls.phase == OUTSIDE) & ~main])
    counts = ~np.isin(host.thread, loads)
    runs = (host.kind == OPERATOR) & counts & ~talks

    def of_phase(number: int) -> Intervals:
        chosen = runs & (calls.phase == number)
        if number == OPTIMIZER:
            chosen |= (host.kind == ANNOTATION) & (calls.phase == OPTIMIZER) & counts
        return host_intervals(trace, calls, chosen)

    return [
        ("data_loading", loading),
        ("communication", host_intervals(trace, calls, talks & main & (host.kind == OPERATOR))),
        *((part, of_phase(number)) for part, number in reversed(_PHASES.items())),
        # What other threads exchange delays this one only while it does nothing else.
        ("communication", host_intervals(trace, calls, talks)),
    ]


def _in_loader(trace: Trace, calls: Calls) -> Intervals:
    """When the thread that makes the steps was in a data loader; in a trace without steps, when any thread was."""
    host = trace.host
    chosen = (host.kind == ANNOTATION) & (calls.phase == OUTSIDE)
    if len(calls.steps):
        chosen &= host.thread == _main_thread(trace, calls)
    return host_intervals(trace, calls, chosen)


def _main_thread(trace: Trace, calls: Calls) -> int:
    """The thread that makes the steps; without steps the one with the most operators' time."""
    host = trace.host
    if not len(host):
        return -1
    steps = (host.kind == ANNOTATION) & np.array([name.startswith(STEP_PREFIX) for name in trace.names], bool)[host.name]
    if steps.any():
        return int(np.bincount(host.thread[steps]).argmax())
    outermost = (host.kind == OPERATOR) & (calls.parent < 0)
    lasting = np.where(outermost, calls.end_ns - host.start_ns, 0)
    return int(np.bincount(host.thread, weights=lasting).argmax())


# --- the input ---------------------------------------------------------------------------------------------------------------------


def feeding(facts: RunFile, division: StepDivision | None) -> Input | None:
    """What the timed pass says of the input, with what the loader and the step reach alone; None where no loader was seen."""
    loading, steps = facts.loading, facts.steps
    if loading is None or steps is None or not steps.timed_ns or len(loading.timed_wait_ns) != len(steps.timed_ns):
        return None
    timed, waited = np.array(steps.timed_ns) / 1e9, np.array(loading.timed_wait_ns) / 1e9
    whole_s = float(timed.sum())
    # Between warm-up and timed pass the workers had time to fill their queue: what comes out of it was not waited for.
    fed = int((np.cumsum(loading.timed_batches) <= loading.prefetched).sum()) if loading.prefetched else 0
    is_lower_bound = 2 * fed > len(timed)
    if not is_lower_bound:
        timed, waited = timed[fed:], waited[fed:]
    mean_s, wait_s = float(timed.mean()), float(waited.mean())
    # On a device the host may well wait while the device is at work, and the waits of a step and its duration are not those of the
    # same moment: only their means go together.
    delay_s: float | None = wait_s
    without: npt.NDArray[np.float64] | None = timed - waited
    if not facts.environment.device.startswith("cpu"):
        seen = division is not None and division.of == "device"
        delay_s = min(wait_s, division.data_loading_s or 0.0) if division is not None and seen else None
        without = timed - delay_s if delay_s is not None else None
    told = bool(loading.timed_samples)
    per_step = float(np.mean(loading.timed_samples if told else loading.timed_batches))
    busy = None
    if loading.workers and loading.workers_cpu_s is not None:
        busy = loading.workers_cpu_s / (whole_s * loading.workers)
    return Input(
        loader=loading.loader,
        wait_s=wait_s,
        wait_fraction=wait_s / mean_s,
        delay_s=delay_s,
        delay_fraction=delay_s / mean_s if delay_s is not None else None,
        unit=facts.workload.unit if told else "batches",
        workers=loading.workers,
        ready_batches=loading.prefetched,
        is_lower_bound=is_lower_bound,
        pin_memory=loading.pin_memory,
        workers_busy_fraction=busy,
        loader_rate=_loader_rate(loading, told),
        step_rate=_step_rate(loading, without, per_step),
    )


def _loader_rate(loading: Loading, told: bool) -> Rate | None:
    """Workers deliver in bursts: only whole groups of as many batches as there are workers count, and these are resampled."""
    alone = loading.alone
    if alone is None or (told and not alone.samples):
        return None
    times = np.array(alone.batch_ns) / 1e9
    sizes = np.array(alone.samples if told else np.ones(len(times)), np.float64)
    group = max(1, loading.workers or 0)
    groups = len(times) // group
    if not groups:
        return None
    times, sizes = (values[: groups * group].reshape(groups, group).sum(axis=1) for values in (times, sizes))
    interval = None
    if groups >= 3:
        picks = np.random.default_rng(0).integers(0, groups, (_RESAMPLES, groups))
        low, high = np.percentile(sizes[picks].sum(axis=1) / times[picks].sum(axis=1), (2.5, 97.5))
        interval = (float(low), float(high))
    return Rate(per_s=float(sizes.sum() / times.sum()), ci95_per_s=interval)


def _step_rate(loading: Loading, without: npt.NDArray[np.float64] | None, per_step: float) -> Rate | None:
    """The step that does not wait: run on a batch that is there, or the timed steps less what delayed them (``without``)."""
    measured = bool(loading.resident_ns)
    durations = np.array(loading.resident_ns) / 1e9 if measured else without
    if durations is None:
        return None
    median = float(np.median(durations))
    if median <= 0 or per_step <= 0:
        return None
    picks = np.random.default_rng(0).choice(durations, (_RESAMPLES, len(durations)))
    low, high = np.percentile(np.median(picks, axis=1), (2.5, 97.5))
    interval = (per_step / float(high), per_step / float(low)) if low > 0 and len(durations) >= 3 else None
    return Rate(per_s=per_step / median, ci95_per_s=interval, how="measured" if measured else "derived")


# --- the verdict -------------------------------------------------------------------------------------------------------------------


def input_fraction(analysis: Analysis) -> float:
    """The share of a step that its input delays it: of the timed pass where loading was watched, else of the trace."""
    if analysis.input is not None and analysis.input.delay_fraction is not None:
        return analysis.input.delay_fraction
    division = analysis.division
    return (division.data_loading_s or 0.0) / division.step_s if division is not None and division.step_s else 0.0


def host_fraction(analysis: Analysis) -> float:
    """The share of a step in which the host keeps the device waiting, data loading apart.

    The trace divides it; of a processor's steps that were watched waiting, it divides what the timed pass left of them.
    """
    division, found = analysis.division, analysis.input
    if division is None or division.step_s <= 0 or not division.host_s:
        return 0.0
    loading_s = division.data_loading_s or 0.0
    if found is None or division.of == "device" or division.step_s <= loading_s:
        return division.host_s / division.step_s
    return (1 - found.wait_fraction) * division.host_s / (division.step_s - loading_s)


def limited_by(analysis: Analysis) -> Limit | None:
    """The input, where a step waits for it and the loader alone is slower than the step alone; else the host, where it takes the most.

    A loader that is the slower one sets the pace whatever the rest of the step does: a faster host would only wait longer.
    """
    waits, host = input_fraction(analysis), host_fraction(analysis)
    slower = loader_is_slower(analysis)
    if (slower and waits >= INPUT_BOUND) or (slower is None and waits >= LARGE_SHARE and waits > host):
        return "input"
    shares = {name: share for name, share in (analysis.bound_breakdown or {}).items() if name != "input"}
    most = max(shares, key=lambda name: shares[name], default="")
    return "host" if most == "host" and host >= LARGE_SHARE and host > waits else None


def loader_is_slower(analysis: Analysis) -> bool | None:
    """Whether the loader alone delivers less than the step alone could take; None where they were not measured.

    As far as their means tell: that a step waits was seen, and an interval that is wide on a busy machine takes nothing from it.
    """
    found = analysis.input
    if found is None or found.loader_rate is None or found.step_rate is None:
        return None
    return found.loader_rate.per_s < found.step_rate.per_s
