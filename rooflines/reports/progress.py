"""Progress on standard error: a bar in a terminal, a line per stage elsewhere."""

from __future__ import annotations

import sys
import time
from typing import Any

# A refresh costs about a millisecond of the interpreter; at this period it is lost in the noise of a timed step.
REFRESH_S = 0.25


class Lines:
    """A line per stage. Needs no library, so that a command in a script starts at once."""

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def stage(self, name: str, total: int | None) -> None:
        """Print the name of the stage."""
        print(name, file=sys.stderr, flush=True)  # noqa: T201

    def advance(self) -> None:
        """Print nothing."""


class Bar:
    """A bar with the steps of the stage. It draws only when called, never from another thread."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            SpinnerColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        self._task: Any = None
        self._drawn = 0.0
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
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
        self._task = self._progress.add_task(name, total=total)
        self._progress.refresh()

    def advance(self) -> None:
        """Count one step of the stage."""
        if self._task is not None:
            self._progress.advance(self._task)
            if time.monotonic() - self._drawn > REFRESH_S:
                self._drawn = time.monotonic()
                self._progress.refresh()
