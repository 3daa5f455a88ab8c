"""Progress on standard error: a bar in a terminal, a line per stage elsewhere; both with the time since the command began."""

from __future__ import annotations

import sys
import time
from datetime import timedelta

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

        self._began = self._drawn = time.monotonic()
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
        for task in self._progress.tasks:
            self._progress.remove_task(task.id)
        self._progress.add_task(name, total=total, state="")
        self._draw()

    def advance(self) -> None:
        """Count one step of the stage."""
        for task in self._progress.tasks:
            self._progress.advance(task.id)
        if time.monotonic() - self._drawn > REFRESH_S:
            self._draw()

    def _draw(self) -> None:
        self._drawn = now = time.monotonic()
        for task in self._progress.tasks:
            done, total = int(task.completed), int(task.total or 0)
            parts = [f"{done}/{total}" if total else str(done or ""), _clock(now - self._began)]
            if 0 < done <= total:
                parts.append(f"({_clock((task.elapsed or 0.0) / done * (total - done))} left)")
            self._progress.update(task.id, state=" ".join(filter(None, parts)), refresh=True)


def _clock(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))
