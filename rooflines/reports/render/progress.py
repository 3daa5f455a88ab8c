"""Progress on standard error: a screen in a terminal, a line per stage elsewhere; both with the time since
the command began."""

from __future__ import annotations

import contextlib
import os
import statistics
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from rooflines.errors import RooflinesError
from rooflines.units import counted, percent, seconds

if TYPE_CHECKING:
    from rooflines.profiler.progress import Live

# The screen is drawn between two steps. Drawing takes a millisecond or two: at this period it is lost in the
# noise of the steps.
REFRESH_S = 0.5
# Number of latest steps in the median: drawing then takes the same time at any step.
_LATEST_STEPS = 100
# Of a compressed trace: read in a third of a second.
_LARGEST_TRACE_BYTES = 2 << 20
_WIDTH = 40  # of a bar


def has_screen() -> bool:
    """Whether standard error is a terminal on which lines can be replaced."""
    return (
        sys.stderr is not None
        and sys.stderr.isatty()
        and os.environ.get("TERM") != "dumb"
        and os.name == "posix"
    )


class Lines:
    """A line per stage: ``12 s  tracing``. Needs no library, so that a command in a script starts at once."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def stage(self, name: str, total: int | None) -> None:
        """Print the time and the name of the stage."""
        print(f"{time.monotonic() - self._began:3.0f} s  {name}", file=sys.stderr, flush=True)  # noqa: T201

    def advance(self) -> None:
        """Print nothing."""


class ProgressBar:
    """The stage with its steps, the time left if their number is known, and the facts of a recording if there
    is one.

    It draws only when called, not from a thread. The device is not asked: readings are those that the sampler
    has written.
    """

    def __init__(self) -> None:
        from rooflines.reports.render.screen import region

        self._began = self._drawn = self._stage_began = self._first_step = time.monotonic()
        self._name, self._done, self._total = "", 0, 0
        self._live: Live | None = None
        self._slowest: list[str] = []
        self._region = region(self._lines)

    def __enter__(self) -> ProgressBar:
        self._region.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._region.stop()

    def stage(self, name: str, total: int | None) -> None:
        """Begin a stage of ``total`` steps, None if their number is unknown."""
        self._name, self._done, self._total = name, 0, total or 0
        self._stage_began = time.monotonic()
        if self._live and self._live.step_trace is not None:  # here it delays no step
            self._slowest, self._live.step_trace = list(_slowest(self._live.step_trace)), None
        self._draw()

    def advance(self) -> None:
        """Count one step of the stage."""
        self._done += 1
        if self._done == 1:
            self._first_step = time.monotonic()
        if time.monotonic() - self._drawn > REFRESH_S:
            self._draw()

    def follow(self, live: Live) -> None:
        """Show the facts of this recording, too."""
        from rooflines.reports.render.screen import Readings

        self._live, self._readings, self._slowest = live, Readings(live.journal), []

    def _draw(self) -> None:
        self._drawn = time.monotonic()
        with contextlib.suppress(OSError):  # the terminal has gone, which is no reason to stop
            self._region.refresh()

    def _lines(self) -> Iterator[str]:
        done, total = self._done, self._total
        parts = [
            self._name,
            f"{done}/{total}" if total else str(done or ""),
            _clock(self._drawn - self._began),
        ]
        if 0 < done <= total:
            parts.append(f"({_clock((self._drawn - self._stage_began) / done * (total - done))} left)")
        yield " ".join(filter(None, parts))
        if total:
            yield ("━" * (_WIDTH * done // total)).ljust(_WIDTH, "─")[:_WIDTH]
        if not self._live:
            return
        times_ns = self._live.timed_ns[-_LATEST_STEPS:]
        if len(times_ns) > 1:
            low, median, high = (
                seconds(ns / 1e9) for ns in statistics.quantiles(times_ns, n=4, method="inclusive")
            )
            yield (
                f"step time    median {median}, quartiles {low} and {high} (last "
                f"{counted(len(times_ns), 'step')})"
            )
        elif done > 1:  # on a GPU, the durations are known when the pass has ended
            mean_s = (self._drawn - self._first_step) / (done - 1)
            yield f"step time    mean {seconds(mean_s)} ({counted(done - 1, 'step')}, host clock)"
        yield from self._readings.lines()
        yield from self._slowest


def _slowest(path: Path) -> Iterator[str]:
    from rooflines.profiler.read.reader import read
    from rooflines.profiler.tree.slowest import slowest
    from rooflines.reports.render.screen import plain
    from rooflines.roofline.count.kernel_names import short_kernel

    with contextlib.suppress(OSError, RooflinesError):  # the program deleted it, or it has no operators
        if path.stat().st_size > _LARGEST_TRACE_BYTES:
            return
        what, rows = slowest(read(path), 5)
        yield f"{f'slowest {what} of one traced step':52}      time  share"
        for name, time_s, share in rows:
            short = plain(short_kernel(name) if what == "kernels" else name)
            yield f"  {short[:50]:50} {seconds(time_s):>9}  {percent(share):>5}"


def _clock(duration_s: float) -> str:
    return str(timedelta(seconds=round(duration_s)))
