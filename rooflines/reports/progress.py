"""Progress on standard error: a screen in a terminal, a line per stage elsewhere; both with the time since the command began."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING

from rooflines.units import counted, percent, seconds

if TYPE_CHECKING:
    from rooflines.profiler.progress import Live
    from rooflines.profiler.trace.slowest import Slowest
    from rooflines.reports.screen import Readings

# The screen is drawn between two steps. Drawing takes a millisecond or two: at this period it is lost in the noise of the steps.
REFRESH_S = 0.5


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


class Bar:
    """A bar with the steps of the stage, the time left if their number is known, and the facts of a recording if there is one.

    It draws only when called, not from a thread. The device is not asked: readings are those that the sampler has written.
    """

    def __init__(self) -> None:
        from rooflines.reports.screen import Region

        self._began = self._drawn = self._stage_began = self._first_step = time.monotonic()
        self._region = Region()
        self._name, self._done, self._total = "", 0, 0
        self._live: Live | None = None
        self._readings: Readings | None = None

    def __enter__(self) -> Bar:
        self._region.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._region.__exit__(None, None, None)

    def stage(self, name: str, total: int | None) -> None:
        """Begin a stage of ``total`` steps, None if their number is unknown."""
        self._name, self._done, self._total = name, 0, total or 0
        self._stage_began = time.monotonic()
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
        self._live, self._readings = live, None

    def _draw(self) -> None:
        self._drawn = time.monotonic()
        self._region.draw([self._stage(), *self._facts()])

    def _stage(self) -> str:
        done, total, now = self._done, self._total, self._drawn
        parts = [f"{done}/{total}" if total else str(done or ""), _clock(now - self._began)]
        if 0 < done <= total:
            parts.append(f"({_clock((now - self._stage_began) / done * (total - done))} left)")
        state = " ".join(filter(None, parts))
        width = min(24, self._region.width - len(self._name) - len(state) - 5)
        if not total or width < 4:
            return f"{self._name}  {state}"
        filled = width * min(done, total) // total
        return f"{self._name}  {'━' * filled}{'─' * (width - filled)}  {state}"

    def _facts(self) -> Iterator[str]:
        if self._live is None:
            return
        from rooflines.reports.screen import Readings, line

        if text := self._step_time():
            yield line("step time", text)
        if self._live.journal is None:
            self._readings = None
        else:
            self._readings = self._readings or Readings(self._live.journal)
            yield from self._readings.lines()
        if self._live.slowest is not None:
            yield from _slowest(self._live.slowest)

    def _step_time(self) -> str:
        times_ns = self._live.step_ns() if self._live is not None else None
        if times_ns is None:
            return ""
        if len(times_ns) > 1:
            low, median, high = (seconds(ns / 1e9) for ns in statistics.quantiles(times_ns, n=4, method="inclusive"))
            return f"median {median}, quartiles {low} and {high} (last {counted(len(times_ns), 'step')})"
        if times_ns or self._done < 2:
            return ""
        # On a GPU, the durations are known when the pass has ended.
        mean_s = (self._drawn - self._first_step) / (self._done - 1)
        return f"mean {seconds(mean_s)} ({counted(self._done - 1, 'step')}, host clock)"


def _slowest(slowest: Slowest) -> Iterator[str]:
    from rooflines.reports.screen import plain
    from rooflines.roofline.kernel_names import short_kernel

    what = "kernels" if slowest.what == "kernels" else "operators (self time)"
    yield f"{f'slowest {what}, one traced step':52}      time  share"
    for name, time_us, share in slowest.rows:
        short = plain(short_kernel(name) if slowest.what == "kernels" else name)
        yield f"  {short[:50]:50} {seconds(time_us / 1e6):>9}  {percent(share):>5}"


def _clock(duration_s: float) -> str:
    return str(timedelta(seconds=round(duration_s)))
