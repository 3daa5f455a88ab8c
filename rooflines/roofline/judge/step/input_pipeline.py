"""Analyze data loading: whether the input or the host limits the steps.

How long a step waits for its data comes from the timed pass, how much of that delays it from the division of
the traced one. What the loader and the step reach alone says which of the two is the slower one.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from rooflines.profiler.records import Loading, RunFile
from rooflines.roofline.analysis import Analysis, Input, Limit, RareWaits, Rate, StepDivision
from rooflines.roofline.uncertainty import RESAMPLES, interval95, resampled_medians

# From this share of a step on that its input delays it, a loader that is slower than the step alone makes the
# step input-bound.
INPUT_BOUND = 0.1
# The same if the two were not measured alone, and for the host.
LARGE_SHARE = 0.25
# A class with this share of the largest one is as large: what they are judged by is not known better.
_CLOSE = 0.9
# A wait of half a step in at most one step of twenty is no part of the median step: an epoch that begins, a
# file that is opened.
LONG_WAIT, RARE = 0.5, 0.05


def feeding(
    facts: RunFile, division: StepDivision | None, quiet: npt.NDArray[np.bool_] | None = None
) -> Input | None:
    """The input in the ``quiet`` steps of the timed pass, with the rates of the loader and the step alone;
    None without a loader."""
    loading, steps = facts.loading, facts.steps
    if (
        loading is None
        or steps is None
        or not steps.timed_ns
        or len(loading.timed_wait_ns) != len(steps.timed_ns)
    ):
        return None
    timed = np.array(steps.timed_ns) / 1e9
    waited = np.array(loading.timed_wait_ns) / 1e9
    whole_s = float(timed.sum())
    quiet = np.ones(len(timed), bool) if quiet is None else quiet
    # Between warm-up and timed pass the workers had time to fill their queue: what comes out of it was not
    # waited for.
    fed = int((np.cumsum(loading.timed_batches) <= loading.prefetched).sum()) if loading.prefetched else 0
    is_lower_bound = 2 * fed > len(timed)
    if not is_lower_bound:
        timed = timed[fed:]
        waited = waited[fed:]
        quiet = quiet[fed:]
    if quiet.any():  # else all were ready
        timed = timed[quiet]
        waited = waited[quiet]
    rare = waited > LONG_WAIT * np.median(timed)
    rare_share = float(waited[rare].sum() / timed.sum()) if 0 < rare.sum() <= RARE * len(rare) else None
    if rare_share is not None:
        timed, waited, rare_s = timed[~rare], waited[~rare], float(waited[rare].mean())
    mean_s = float(timed.mean())
    wait_s = float(waited.mean())
    # On a device the host may well wait while the device is at work, and the waits of a step and its duration
    # are not those of the same moment: only their means go together.
    delay_s: float | None = wait_s
    without: npt.NDArray[np.float64] | None = timed - waited
    if not facts.environment.device.startswith("cpu"):
        seen = division is not None and division.of == "device"
        delay_s = min(wait_s, division.data_loading_s or 0.0) if division is not None and seen else None
        without = timed - delay_s if delay_s is not None else None
    told = bool(loading.timed_samples)
    per_step = float(np.mean(loading.timed_samples if told else loading.timed_batches))
    spent_s = loading.workers_cpu_s
    busy = spent_s / (whole_s * loading.workers) if loading.workers and spent_s is not None else None
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
        rare_waits=RareWaits(steps=int(rare.sum()), of=len(rare), wait_s=rare_s, fraction=rare_share)
        if rare_share is not None
        else None,
        pin_memory=loading.pin_memory,
        workers_busy_fraction=busy,
        loader_rate=_loader_rate(loading, told),
        step_rate=_step_rate(loading, without, per_step),
    )


def delayed(found: Input, division: StepDivision) -> Input:
    """``found`` in the step of ``division``: the same share of it is waited for, and a device is delayed as
    ``division`` says."""
    wait_s = found.wait_fraction * division.step_s
    if found.delay_s is None or division.of == "host":
        return replace(found, wait_s=wait_s, delay_s=None if found.delay_s is None else wait_s)
    delay_s = division.data_loading_s or 0.0
    fraction = delay_s / division.step_s if division.step_s else 0.0
    return replace(found, wait_s=wait_s, delay_s=delay_s, delay_fraction=fraction)


def _loader_rate(loading: Loading, told: bool) -> Rate | None:
    """Workers deliver in bursts: only whole groups of as many batches as there are workers count, and these
    are resampled."""
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
        picks = np.random.default_rng(0).integers(0, groups, (RESAMPLES, groups))
        interval = interval95(sizes[picks].sum(axis=1) / times[picks].sum(axis=1))
    return Rate(per_s=float(sizes.sum() / times.sum()), ci95_per_s=interval)


def _step_rate(loading: Loading, without: npt.NDArray[np.float64] | None, per_step: float) -> Rate | None:
    """The step that does not wait: run on a batch that is there, or the timed steps less what delayed them
    (``without``)."""
    measured = bool(loading.resident_ns)
    durations = np.array(loading.resident_ns) / 1e9 if measured else without
    if durations is None:
        return None
    median = float(np.median(durations))
    if median <= 0 or per_step <= 0:
        return None
    low, high = interval95(resampled_medians(durations))
    interval = (per_step / high, per_step / low) if low > 0 and len(durations) >= 3 else None
    return Rate(per_s=per_step / median, ci95_per_s=interval, how="measured" if measured else "derived")


# --- the verdict ------------------------------------------------------------------------------------------


def input_fraction(analysis: Analysis) -> float:
    """The share of a step that its input delays it."""
    division = analysis.division
    if division is not None and division.step_s:
        return (division.data_loading_s or 0.0) / division.step_s
    found = analysis.input
    return found.delay_fraction or 0.0 if found is not None else 0.0


def host_fraction(analysis: Analysis) -> float:
    """The share of a step in which the host keeps the device waiting, data loading apart."""
    division = analysis.division
    return (division.host_s or 0.0) / division.step_s if division is not None and division.step_s else 0.0


def limited_by(analysis: Analysis) -> Limit | None:
    """The input, where a step waits for it and the loader alone is slower than the step alone; else the host,
    where it takes the most.

    A loader slower than the step sets the pace: a faster host would only wait longer. Beside a device that
    was not traced nobody knows what the host keeps waiting.
    """
    waits = input_fraction(analysis)
    host = host_fraction(analysis)
    slower = loader_is_slower(analysis)
    if (slower and waits >= INPUT_BOUND) or (slower is None and waits >= LARGE_SHARE and waits > host):
        return "input"
    if analysis.device_untraced:
        return None
    shares = {name: share for name, share in (analysis.bound_breakdown or {}).items() if name != "input"}
    return "host" if leading(shares) == ["host"] and host >= LARGE_SHARE and host > waits else None


def leading(times: dict[str, float]) -> list[str]:
    """The largest class and those within 10 % of it, largest first: only a single one leads clearly."""
    most = max(times.values(), default=0.0)
    return sorted(
        (name for name, time_s in times.items() if most > 0 and time_s >= _CLOSE * most),
        key=lambda name: -times[name],
    )


def loader_is_slower(analysis: Analysis) -> bool | None:
    """Whether the loader alone delivers less than the step alone could take; None where they were not
    measured.

    As far as their means tell: that a step waits was seen, and an interval that is wide on a busy machine
    takes nothing from it.
    """
    found = analysis.input
    if found is None or found.loader_rate is None or found.step_rate is None:
        return None
    return found.loader_rate.per_s < found.step_rate.per_s
