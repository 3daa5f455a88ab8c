"""What is happening, on standard error: a bar where somebody is watching, a line per stage where nobody is."""

from __future__ import annotations

import time
from typing import Any

# A refresh costs about a millisecond of the interpreter; at this period it is lost in the noise of a timed step.
REFRESH_S = 0.25


class Bar:
    """Context manager and progress for the collector. It draws only when told of something, never from a thread of its own."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        self._console = Console(stderr=True)
        self._live = self._console.is_terminal
        self._task: Any = None
        self._drawn = 0.0
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self._console,
            auto_refresh=False,
            transient=True,
        )

    def __enter__(self) -> Bar:
        if self._live:
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._progress.stop()

    def stage(self, name: str, total: int | None) -> None:
        """A new stage begins; ``total`` steps are planned, None when it depends."""
        if not self._live:
            self._console.print(name, markup=False, highlight=False)
            return
        if self._task is not None:
            self._progress.remove_task(self._task)
        self._task = self._progress.add_task(name, total=total)
        self._progress.refresh()

    def advance(self) -> None:
        """One step of the stage is done."""
        if self._live and self._task is not None:
            self._progress.advance(self._task)
            if time.monotonic() - self._drawn > REFRESH_S:
                self._drawn = time.monotonic()
                self._progress.refresh()
