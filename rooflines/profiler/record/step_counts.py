"""The numbers of steps: warm-up until step times have settled, timed steps by the time that one takes, and
more of them because other programs delay them.
"""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rooflines.profiler.machine.others import OTHERS_CORES, OthersMeter, busy_elsewhere, is_quiet, is_shared
from rooflines.profiler.progress import Progress
from rooflines.profiler.records import Numbers, Settings
from rooflines.profiler.samplers.fields import DeviceSample
from rooflines.units import counted, percent, seconds

# Warm-up ends when the medians of the last SETTLE_WINDOW steps and of as many before them differ by less than
# SETTLE_LIMIT.
SETTLE_WINDOW = 3
SETTLE_LIMIT = 0.05
WARMUP_MAX_STEPS = 50
WARMUP_MAX_S = 30.0
# Of ranks that make the same steps and would each see other times.
WARMUP_RANK_STEPS = 8
# An idle GPU lowers its clock and takes a while to raise it again. Steps keep it busy for this long, up to
# this many of them.
BUSY_S = 0.5
BUSY_MAX_STEPS = 2000
# The timed pass aims at this many seconds, within these numbers of steps; short ones go on until half a
# second is over, because other programs come and go in less.
TIMED_S = 5.0
TIMED_MIN_STEPS, TIMED_MAX_STEPS = 5, 100
TIMED_LEAST_S, TIMED_SHORT_STEPS = 0.5, 5000
TIMED_LEAST_STEPS = 3  # if five steps take longer than the limit of the warm-up
# Of the time that the steps of a recording may take: the warm-up at most this part, and of what is left when
# they begin another trace of one step and the timed pass. The traced pass has the rest.
WARMUP_PART, EARLY_PART, TIMED_PART = 1 / 6, 1 / 8, 1 / 2
# Steps take longer under the profiler.
TRACED_DILATION = 2.0
# Steps on a GPU are short, and its counter of energy, which moves every 20 to 100 ms, needs two seconds of
# them. Two and a half are planned, because warm-up, which waits for every step, makes them look longer than
# they are.
GPU_TIMED_STEPS, GPU_TIMED_MOST = 2000, 10_000
GPU_ENERGY_S = 2.5
# Of a program that may end at any step, so that it still reaches the traced pass. On a GPU it is timed
# further afterwards.
PROGRAM_WARMUP_STEPS, PROGRAM_TIMED_STEPS = 20, 50
# Timing and tracing go on for this long, or until this many timed steps are quiet; much longer if the user
# waits for it.
PATIENCE_S, WAIT_QUIET_S, QUIET_STEPS = 10.0, 60.0, 10
IDLE_S = 0.5


class Budget:
    """The ``whole_s`` seconds that the steps of a recording may take, from now on; they cut passes short, and
    leave none out."""

    def __init__(self, whole_s: float) -> None:
        self.whole_s = whole_s
        self._began = time.monotonic()

    def steps(self, step_s: float, part: float = 1.0) -> int:
        """How many steps that take ``step_s`` seconds fit into this part of what is left."""
        left_s = self.whole_s - (time.monotonic() - self._began)
        return max(0, int(part * left_s / step_s))


@dataclass(eq=False)
class WarmUp:
    """Decides step by step whether warm-up is over: after ``asked`` steps, or once step times have settled,
    at most ``most`` steps and ``most_s`` seconds.

    They may settle once the steps after the first one have taken ``busy_s`` seconds. ``alike()`` says whether
    other ranks must decide the same, which a fixed number of steps makes sure of. ``settled`` is None if it
    was not tested; ``rule`` says in words what ended the warm-up, ``problem`` is a warning for the reader.
    """

    asked: int | None
    most: int = WARMUP_MAX_STEPS
    alike: Callable[[], bool] = lambda: False
    busy_s: float = 0.0
    most_s: float = WARMUP_MAX_S

    def __post_init__(self) -> None:
        self._busy_steps = 0
        self._first = 0
        self.times_ns: list[int] = []
        self._over = self.asked == 0
        self.settled: bool | None = None
        self.rule = "no warm-up, as requested" if self._over else ""
        self.problem = ""

    def first_step(self, step_ns: int) -> None:
        """The first step took ``step_ns``, including one-time costs; later steps decide whether times have
        settled."""
        self._first = 1
        self.add(step_ns)

    def add(self, step_ns: int) -> None:
        """A step took ``step_ns``."""
        self.times_ns.append(step_ns)
        if self.asked is not None:
            self.rule = f"{counted(self.asked, 'warm-up step')}, as requested"
            self._over = len(self.times_ns) >= self.asked
            return
        times = self.times_ns[self._first :]
        if self.alike():
            self.rule = f"{counted(WARMUP_RANK_STEPS, 'warm-up step')}, the same on every rank"
            self._over = len(times) >= WARMUP_RANK_STEPS
            return
        if sum(self.times_ns[1:]) < self.busy_s * 1e9 and len(times) < BUSY_MAX_STEPS:
            self._busy_steps = len(times)
            return
        change, compared = math.inf, f"fewer than {2 * SETTLE_WINDOW} steps, too few to compare"
        if len(times) >= 2 * SETTLE_WINDOW:
            last = statistics.median(times[-SETTLE_WINDOW:])
            before = statistics.median(times[-2 * SETTLE_WINDOW : -SETTLE_WINDOW])
            change = abs(last - before) / before if before else 0.0
            compared = (
                f"medians of the last {SETTLE_WINDOW} steps and the {SETTLE_WINDOW} before differ by "
                f"{percent(change, 1)}"
            )
        settled = change < SETTLE_LIMIT
        if settled or len(times) - self._busy_steps >= self.most or sum(times) >= self.most_s * 1e9:
            self._over, self.settled = True, settled
            self.rule = (
                f"{'' if settled else 'not '}settled after {counted(len(self.times_ns), 'warm-up step')}: "
                f"{compared} (limit {percent(SETTLE_LIMIT)})"
            )
            if not settled:
                self.problem = f"step times had not settled when timing started: {compared}"

    def is_over(self) -> bool:
        """Whether no more steps are needed."""
        return self._over

    @property
    def step_s(self) -> float | None:
        """The step time at the end of the warm-up, None without steps."""
        recent = self.times_ns[-SETTLE_WINDOW:]
        return max(statistics.median(recent), 1) / 1e9 if recent else None


def planned_steps(step_s: float | None, *, gpu: bool, program: bool) -> int:
    """The steps of a timed pass whose steps take ``step_s`` seconds (None: unknown); those of a ``program``
    may end at any time."""
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

    ``samples`` are the device samples since the timed pass began, none where the steps are not those of one
    process on a CPU. A ``program`` may end after any step.
    """

    def __init__(
        self, settings: Settings, samples: Callable[[], Sequence[DeviceSample]], *, program: bool
    ) -> None:
        self._wait_quiet = settings.wait_quiet
        self._counted = (
            settings.steps is not None and not settings.wait_quiet
        )  # that many steps were asked for, quiet or not
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
        """Wait until other programs leave the processors alone, if that was asked for; returns a sentence
        where they did not."""
        if not self._wait_quiet:
            return None
        progress.stage("waiting for other programs to pause", None)
        until = time.monotonic() + WAIT_QUIET_S
        while time.monotonic() < until:
            others = OthersMeter()
            time.sleep(IDLE_S)
            if others.cores() < OTHERS_CORES:
                return None
        return f"other programs did not pause for {seconds(WAIT_QUIET_S)}: {', '.join(others.by_name())}"

    def further_timed(self, planned: int, times_ns: Sequence[int], waited_ns: Sequence[int | None]) -> int:
        """How many steps to time beyond those of ``times_ns``, because most of them were delayed; 0 when they
        are enough."""
        missing = min(planned, planned if self._wait_quiet else QUIET_STEPS) - quiet(times_ns, waited_ns)
        # A program that may end is to reach its traced pass.
        enough = (
            self._counted
            or missing <= 0
            or (self._program and len(times_ns) > planned and not self._wait_quiet)
        )
        if enough or sum(times_ns) > (self.limit_s + TIMED_S) * 1e9 or not self.is_disturbed():
            return 0
        return missing

    def most_traced_again(self, steps: int) -> float:
        """How many steps may pass until ``steps`` are traced again: a program that was asked for a number of
        steps may soon be over."""
        return steps if self._program and self._counted else math.inf


def quiet(times_ns: Sequence[int], waited_ns: Sequence[int | None]) -> int:
    """The number of steps that other programs did not delay; all of them where that is not known."""
    waits = known(waited_ns, len(times_ns))
    return sum(map(is_quiet, times_ns, waits)) if waits else len(times_ns)


def known(figures: Sequence[int | None], steps: int) -> Numbers:
    """A figure of each of the ``steps``; empty where one of them is not known."""
    return (
        tuple(figure for figure in figures if figure is not None)
        if len(figures) == steps and None not in figures
        else ()
    )
