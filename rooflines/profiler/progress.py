"""The interface for progress of a recording: a progress bar, or nothing."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Receives progress: a progress bar, or nothing."""

    def stage(self, name: str, total: int | None) -> None:
        """A new stage begins; ``total`` steps are planned, None when it depends."""

    def advance(self) -> None:
        """One step of the stage is done."""


class Silent:
    """A progress that says nothing."""

    def stage(self, name: str, total: int | None) -> None:
        """Nothing."""

    def advance(self) -> None:
        """Nothing."""
