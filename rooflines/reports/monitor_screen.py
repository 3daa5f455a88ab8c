"""The screen of ``rooflines monitor --live``."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

from rooflines.profiler.reported_steps import StepRate
from rooflines.reports.screen import Readings, Region, line, plain

_REFRESH_S = 0.5
_OUTPUT_LINES, _OUTPUT_BYTES = 5, 4096


class MonitorScreen:
    """Context manager that shows how ``program`` runs: its ``journal``, the ``steps`` that it reports, the end of its ``output``.

    A thread of the monitor draws, which the program does not wait for.
    """

    def __init__(self, program: str, journal: Path, steps: Path | None = None, output: Path | None = None) -> None:
        self._program, self._output = program, output
        self._readings = Readings(journal)
        self._rate = None if steps is None else StepRate(steps)
        self._region = Region()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._draw, daemon=True)

    def __enter__(self) -> MonitorScreen:
        self._began = time.monotonic()
        self._region.__enter__()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
        self._region.__exit__()

    def _draw(self) -> None:
        while not self._end.wait(_REFRESH_S):
            self._region.draw(self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"{plain(self._program)}  {timedelta(seconds=round(time.monotonic() - self._began))}"
        if self._rate is not None and (rate := self._rate.text()):
            yield line("steps/s", rate)
        yield from self._readings.lines()
        if self._output is not None:
            yield line("output", plain(str(self._output)))
            yield from (f"  {plain(text)}" for text in last_lines(self._output))


def last_lines(path: Path) -> list[str]:
    """The last lines of a text file, as a terminal would show those that return to their beginning; empty if it cannot be read."""
    with contextlib.suppress(OSError), open(path, "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - _OUTPUT_BYTES))
        lines = file.read().decode(errors="replace").rstrip().split("\n")
        return [text.rstrip("\r").rpartition("\r")[2] for text in lines[-_OUTPUT_LINES:]]
    return []
