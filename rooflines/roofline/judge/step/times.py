"""Step times: the median of the timed steps with its interval."""

from __future__ import annotations

import numpy as np

from rooflines.profiler.read.records import Mask
from rooflines.profiler.records import WALL_CLOCK, StepTimes, Workload
from rooflines.roofline.analysis import Steps
from rooflines.roofline.uncertainty import Floats, half_width, interval95, resampled_medians

# Resamples of fewer values stay between their minimum and maximum, which is too narrow.
_FEWEST_RESAMPLED = 6


def per_step(total: int, steps: int) -> int | float:
    """``total`` per step: an integer where it divides, which it does when all steps do the same."""
    whole, rest = divmod(total, steps)
    return whole if rest == 0 else total / steps


def summarize_steps(
    times: StepTimes, workload: Workload, compile_s: float | None, timed: Mask, traced: Mask
) -> Steps | None:
    """The chosen ``timed`` and ``traced`` steps in seconds, with the time that compiling took; None where no
    step was timed.

    Steps that were timed together have no times of their own, and so no interval.
    """
    if not times.timed_ns:
        return None
    together = times.clock == WALL_CLOCK
    timed_s = np.array(times.timed_ns)[timed] / 1e9
    median = float(np.median(timed_s))
    dilated = times.traced_ns and times.traced != "program"
    return Steps(
        count=len(timed_s),
        median_s=median,
        p10_s=float(np.percentile(timed_s, 10)),
        p90_s=float(np.percentile(timed_s, 90)),
        ci95_s=None if together else median_interval(timed_s),
        samples_per_s=workload.batch_size / median if workload.batch_size else None,
        profiler_dilation=float(np.median(np.array(times.traced_ns)[traced])) / 1e9 / median
        if dilated
        else None,
        warmup_count=len(times.warmup_ns),
        first_s=times.warmup_ns[0] / 1e9 if times.warmup_ns and times.traced != "program" else None,
        compile_s=compile_s,
        settled=times.settled,
        rule=times.rule,
        clock=times.clock,
        slowed_by=times.slowed_by,
        durations_s=() if together else tuple((np.array(times.timed_ns) / 1e9).tolist()),
        disturbed=() if together else tuple(np.flatnonzero(~timed).tolist()),
    )


def median_interval(timed: Floats) -> tuple[float, float] | None:
    """The 95 % interval of the median, of few values by Student's t; None for a single one."""
    if len(timed) < 2:
        return None
    if len(timed) >= _FEWEST_RESAMPLED:
        return interval95(resampled_medians(timed))
    half = half_width(timed.tolist())
    middle = float(np.median(timed))
    return max(0.0, middle - half), middle + half
