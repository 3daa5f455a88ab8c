"""The number of timed steps: from the time that one takes, and more because other programs delay them."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from typing import Final

from rooflines.profiler.others import OthersMeter
from rooflines.profiler.progress import Progress
from rooflines.profiler.quiet import OTHERS_CORES, busy_elsewhere, is_quiet, is_shared
from rooflines.profiler.recording.warmup import WARMUP_MAX_S
from rooflines.profiler.records import Settings
from rooflines.profiler.samplers.fields import DeviceSample
from rooflines.units import seconds

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
# Timing and tracing go on for this long, or until this many timed steps are quiet; much longer if the user waits for it.
PATIENCE_S, WAIT_QUIET_S, QUIET_STEPS = 10.0, 60.0, 10
_IDLE_S = 0.5


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


class Patience:
    """Decides how many more steps are timed and traced, from those that other programs left alone.

    ``samples`` are the device samples since the timed pass began, none where the steps are not those of one process on a CPU. A
    ``program`` may end after any step.
    """

    def __init__(self, settings: Settings, samples: Callable[[], Sequence[DeviceSample]], *, program: bool) -> None:
        self._wait_quiet = settings.wait_quiet
        self._counted = settings.steps is not None and not settings.wait_quiet  # that many steps were asked for, quiet or not
        self._samples = samples
        self._program = program

    @property
    def limit_s(self) -> float:
        """The seconds for which a pass may go on."""
        return WAIT_QUIET_S if self._wait_quiet else PATIENCE_S

    def is_disturbed(self) -> bool:
        """Whether other programs compute beside the run."""
        return is_shared(busy_elsewhere(self._samples(), os.cpu_count() or 1))

    def wait_for_idle(self, progress: Progress) -> str | None:
        """Wait until other programs leave the processors alone, if that was asked for; returns a sentence where they did not."""
        if not self._wait_quiet:
            return None
        progress.stage("waiting for other programs to pause", None)
        until = time.monotonic() + WAIT_QUIET_S
        while time.monotonic() < until:
            others = OthersMeter()
            time.sleep(_IDLE_S)
            if others.cores() < OTHERS_CORES:
                return None
        return f"other programs did not pause for {seconds(WAIT_QUIET_S)}: {', '.join(others.by_name())}"

    def further_timed(self, planned: int, times_ns: Sequence[int], waited_ns: Sequence[int | None]) -> int:
        """How many steps to time beyond those of ``times_ns``, because most of them were delayed; 0 when they are enough."""
        missing = min(planned, planned if self._wait_quiet else QUIET_STEPS) - quiet(times_ns, waited_ns)
        # A program that may end is to reach its traced pass.
        enough = self._counted or missing <= 0 or (self._program and len(times_ns) > planned and not self._wait_quiet)
        if enough or sum(times_ns) > (self.limit_s + TIMED_S) * 1e9 or not self.is_disturbed():
            return 0
        return missing

    def most_traced_again(self, steps: int) -> float:
        """How many steps may pass until ``steps`` are traced again: a program that was asked for a number of steps may soon be over."""
        return steps if self._program and self._counted else math.inf


def quiet(times_ns: Sequence[int], waited_ns: Sequence[int | None]) -> int:
    """The number of steps that other programs did not delay; all of them where that is not known."""
    waits = known(waited_ns, len(times_ns))
    return sum(map(is_quiet, times_ns, waits)) if waits else len(times_ns)


def known(figures: Sequence[int | None], steps: int) -> tuple[int, ...]:
    """A figure of each of the ``steps``; empty where one of them is not known."""
    return tuple(one for one in figures if one is not None) if len(figures) == steps and None not in figures else ()
