"""The interface for progress of a recording: a screen, lines, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from rooflines.profiler.trace.slowest import Slowest


class Progress(Protocol):
    """Receives progress: a progress bar, or nothing."""

    def stage(self, name: str, total: int | None) -> None:
        """A new stage begins; ``total`` steps are planned, None when it depends."""

    def advance(self) -> None:
        """One step of the stage is done."""


@dataclass(kw_only=True)
class Live:
    """Facts of a recording while it runs. They cost nothing until they are read.

    ``step_ns`` returns the durations of the latest timed steps: empty while they are not known, None before the timed pass. ``journal``
    is the file that the sampler writes, None while it does not run. ``slowest`` is known once a single step has been traced.
    """

    step_ns: Callable[[], Sequence[int] | None]
    journal: Path | None = None
    slowest: Slowest | None = None


@runtime_checkable
class LiveProgress(Progress, Protocol):
    """A progress that also shows the facts of a recording."""

    def follow(self, live: Live) -> None:
        """Show ``live`` from now on; read it only between two steps."""


class Silent:
    """A progress that says nothing."""

    def stage(self, name: str, total: int | None) -> None:
        """Nothing."""

    def advance(self) -> None:
        """Nothing."""
