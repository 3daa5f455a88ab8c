"""The interface for progress of a recording: a screen, lines, or nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable


class Progress(Protocol):
    """Receives progress: a progress bar, or nothing."""

    def stage(self, name: str, total: int | None) -> None:
        """A new stage begins; ``total`` steps are planned, None when it depends."""

    def advance(self) -> None:
        """One step of the stage is done."""


@dataclass
class Live:
    """Facts of a recording while it runs: the ``journal`` of its sampler, the durations of timed steps as far
    as they are known, and the trace while it is that of one step."""

    journal: Path
    timed_ns: list[int] = field(default_factory=list)
    step_trace: Path | None = None


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
