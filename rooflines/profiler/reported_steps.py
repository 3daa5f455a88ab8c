"""The number of steps that a recording tells ``rooflines monitor --live``, which may run its program in any number of processes.

``VARIABLE`` names a directory where each process that records keeps a file of a few bytes, so that neither forks nor other programs
between the two matter. Without the variable nothing is counted.
"""

from __future__ import annotations

import contextlib
import os
import struct
import time
from collections import defaultdict, deque
from functools import partial
from pathlib import Path

from rooflines.units import counted, seconds, significant

VARIABLE = "ROOFLINES_STEPS"
_REPORT_EVERY_S = 0.2
# The number of steps, and when the last one ended on the monotonic clock, which all processes share.
_REPORT = struct.Struct("<qd")
# Readings that a rate is computed from, and how many times the mean step time is a pause.
_READINGS, _PAUSE_STEPS, _PAUSE_S = 10, 3, 3.0


class StepReport:
    """Writes the number of steps of this process into ``directory``, five times a second at most."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._steps = 0
        self._reported_s = float("-inf")

    def step(self) -> None:
        """Count a step."""
        self._steps += 1
        now_s = time.monotonic()
        if now_s - self._reported_s > _REPORT_EVERY_S:
            self._reported_s = now_s
            with contextlib.suppress(OSError):  # the monitor has ended
                file = os.open(os.path.join(self._directory, str(os.getpid())), os.O_WRONLY | os.O_CREAT, 0o666)
                with os.fdopen(file, "wb", buffering=0) as report:
                    report.write(_REPORT.pack(self._steps, now_s))


class StepRate:
    """The steps per second that processes report in ``directory``."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._reports: dict[str, deque[tuple[int, float]]] = defaultdict(partial(deque, maxlen=_READINGS))

    def text(self) -> str:
        """The mean rate of the processes that make steps, or how long they have made none; empty without reports."""
        for file in self._directory.iterdir() if self._directory.is_dir() else ():
            with contextlib.suppress(OSError, struct.error):
                report = _REPORT.unpack(file.read_bytes())
                reports = self._reports[file.name]
                if reports and report[0] < reports[-1][0]:  # another recording
                    reports.clear()
                if not reports or report != reports[-1]:
                    reports.append(report)
        if not self._reports:
            return ""
        idle_s = time.monotonic() - max(reports[-1][1] for reports in self._reports.values())
        most = counted(max(reports[-1][0] for reports in self._reports.values()), "step")
        rates = [rate for reports in self._reports.values() if (rate := _rate(reports))]
        if not rates:
            return f"{most}, no step for {seconds(idle_s)}" if idle_s > _PAUSE_S else most
        where = f", mean of {counted(len(rates), 'process')}es" if len(rates) > 1 else ""
        return f"{significant(sum(rates) / len(rates))} ({most}{where})"


def _rate(reports: deque[tuple[int, float]]) -> float | None:
    """Steps per second between the first and the last report; None if there are too few of them, or no step for long."""
    (first, began_s), (last, ended_s) = reports[0], reports[-1]
    if last == first or ended_s <= began_s:
        return None
    rate = (last - first) / (ended_s - began_s)
    return rate if time.monotonic() - ended_s < max(_PAUSE_S, _PAUSE_STEPS / rate) else None
