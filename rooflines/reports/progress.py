"""Progress on standard error: a bar in a terminal, a line per stage elsewhere; both with the time since the command began."""

from __future__ import annotations

import sys
import time
from datetime import timedelta
from typing import Any

# A refresh costs about a millisecond of the interpreter; at this period it is lost in the noise of a timed step.
REFRESH_S = 0.25


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
    """A bar with the steps of the stage and the time left if their number is known. It draws only when called, not from a thread."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

        self._task: Any = None
        self._began = self._stage_began = self._drawn = time.monotonic()
        self._done, self._total = 0, 0
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[state]}"),
            console=Console(stderr=True),
            auto_refresh=False,
            transient=True,
        )

    def __enter__(self) -> Bar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def stage(self, name: str, total: int | None) -> None:
        """Begin a stage of ``total`` steps, None if their number is unknown."""
        if self._task is not None:
            self._progress.remove_task(self._task)
        self._stage_began, self._done, self._total = time.monotonic(), 0, total or 0
        self._task = self._progress.add_task(name, total=total, state="")
        self._draw()

    def advance(self) -> None:
        """Count one step of the stage."""
        if self._task is not None:
            self._done += 1
            if time.monotonic() - self._drawn > REFRESH_S:
                self._draw()

    def _draw(self) -> None:
        self._drawn = now = time.monotonic()
        parts = [f"{self._done}/{self._total}" if self._total else str(self._done or ""), _clock(now - self._began)]
        if 0 < self._done <= self._total:
            parts.append(f"({_clock((now - self._stage_began) / self._done * (self._total - self._done))} left)")
        self._progress.update(self._task, completed=self._done, state=" ".join(filter(None, parts)), refresh=True)


def _clock(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))
