"""The number of timed steps, from the time that one takes."""

from __future__ import annotations

import math
from typing import Final

from rooflines.profiler.recording.warmup import WARMUP_MAX_S

# The timed pass aims at this many seconds, within these numbers of steps; short ones go on until half a second is over, because other
# programs come and go in less.
TIMED_S: Final = 5.0
TIMED_MIN_STEPS, TIMED_MAX_STEPS = 5, 100
TIMED_LEAST_S, TIMED_SHORT_STEPS = 0.5, 5000
TIMED_LEAST_STEPS: Final = 3  # if five steps take longer than the limit of the warm-up
# Steps on a GPU are short, and its counter of energy, which moves every 20 to 100 ms, needs two seconds of them. Two and a half are
# planned, because warm-up, which waits for every step, makes them look longer than they are.
GPU_TIMED_STEPS, GPU_TIMED_MOST = 2000, 10_000
GPU_ENERGY_S: Final = 2.5
# Of a program that may end at any step, so that it still reaches the traced pass. On a GPU it is timed further afterwards.
PROGRAM_WARMUP_STEPS, PROGRAM_TIMED_STEPS = 20, 50


def planned_steps(step_s: float | None, *, gpu: bool, program: bool) -> int:
    """The steps of a timed pass whose steps take ``step_s`` seconds (None: unknown); those of a ``program`` may end at any time."""
    if step_s is None:
        return TIMED_MIN_STEPS
    least = TIMED_MIN_STEPS if step_s * TIMED_MIN_STEPS <= WARMUP_MAX_S else TIMED_LEAST_STEPS
    most = max(TIMED_MAX_STEPS, min(TIMED_SHORT_STEPS, round(TIMED_LEAST_S / step_s)))
    if program:
        most = PROGRAM_TIMED_STEPS
    elif gpu:
        most = min(GPU_TIMED_MOST, max(GPU_TIMED_STEPS, math.ceil(GPU_ENERGY_S / step_s)))
    return max(least, min(most, round(TIMED_S / step_s)))
