"""A recording that the callbacks of a framework open, drive and close."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import distributed as ranks

from rooflines.pipeline import ANALYSIS_FILE, FORMATS, record
from rooflines.profiler.record.collect import Recording
from rooflines.profiler.records import Run


class Session:
    """The part that the callbacks of all frameworks share.

    ``output`` is the run directory, and ``options`` are further arguments of ``rooflines.record``. ``steps``
    and ``warmup`` are numbers of timed and warm-up steps, chosen from the step times when None. ``stop`` ends
    the training when everything is recorded. ``run`` is the recorded run, available once recording has ended.
    Only the first training is recorded.
    """

    def __init__(
        self,
        output: Path | str | None = None,
        *,
        steps: int | None = None,
        warmup: int | None = None,
        formats: Sequence[str] = FORMATS,
        stop: bool = False,
        **options: Any,
    ) -> None:
        super().__init__()
        self.run: Run | None = None
        self._options = {"output": output, "steps": steps, "warmup": warmup, "formats": formats, **options}
        self._stop = stop
        self._recording: Recording | None = None
        self._stack = contextlib.ExitStack()
        self._paused = False

    def _begin(self, name: str) -> None:
        if self._recording is None:
            self._recording = self._stack.enter_context(record(**{"name": name, **self._options}))
            weakref.finalize(
                self, self._stack.close
            )  # not every framework says that an exception ended the training

    @property
    def _open(self) -> Recording | None:
        """The recording, until it is closed."""
        return self._recording if self.run is None else None

    def _step(self) -> bool:
        """End a step; True when the training is to be stopped."""
        if recording := self._open:
            recording.step()
            if recording.done:
                self.close()
        return self._stop and self.run is not None

    def _pause(self) -> None:
        if (recording := self._open) and not self._paused:
            recording.pause()
            self._paused = True

    def _resume(self) -> None:
        if (recording := self._open) and self._paused:
            recording.resume()
            self._paused = False

    def close(self, error: BaseException | None = None) -> None:
        """End the recording, write its reports and print where; after an ``error`` what was recorded is
        stored without reports."""
        if recording := self._open:
            self._stack.__exit__(
                type(error) if error else None, error, error.__traceback__ if error else None
            )
            self.run = recording.run
            if self.run is not None and not (
                ranks.is_available() and ranks.is_initialized() and ranks.get_rank()
            ):
                shown = next(
                    path
                    for name in ("report.html", ANALYSIS_FILE, "")
                    if (path := self.run.directory / name).exists()
                )
                print(f"\n{'report' if shown.is_file() else 'run':9} {shown}")  # noqa: T201 (as commands do)
