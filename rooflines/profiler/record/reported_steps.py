"""Steps per second that recordings tell ``rooflines monitor --live``, which may run its program in any number
of processes.

``VARIABLE`` names a directory where each process that records keeps a file of a few bytes, so that neither
forks nor other programs between the two matter. Without the variable nothing is counted.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import time
from pathlib import Path

from rooflines.units import counted, seconds, significant

VARIABLE = "ROOFLINES_STEPS"
_REPORT_EVERY_S = 1.0
# A process has paused if its last report is older than both: this many seconds, and the time of this many
# steps.
_PAUSE_S, _PAUSE_STEPS = 3.0, 3


class StepReport:
    """Writes the steps of this process and their rate since the last report into ``directory``, once a second
    at most."""

    def __init__(self, directory: str) -> None:
        self._directory = Path(directory)
        self._steps = self._reported = 0
        self._reported_s = 0.0

    def step(self) -> None:
        """Count a step."""
        self._steps += 1
        now_s = time.monotonic()
        if self._steps == 1:  # how long it took is not known
            self._reported, self._reported_s = 1, now_s
        elif now_s - self._reported_s > _REPORT_EVERY_S:
            rate = (self._steps - self._reported) / (now_s - self._reported_s)
            self._reported, self._reported_s = self._steps, now_s
            with contextlib.suppress(OSError):  # the monitor has ended
                (self._directory / str(os.getpid())).write_text(f"{self._steps} {rate}")


def reported_steps(directory: Path) -> str:
    """The mean rate of the processes that make steps, or how long they have reported none; empty without
    reports."""
    reports = []
    for file in directory.glob("*"):
        with contextlib.suppress(OSError, ValueError):  # it is just being written
            steps, rate = file.read_text().split()
            reports.append((int(steps), float(rate), time.time() - file.stat().st_mtime))
    if not reports:
        return ""
    most = counted(max(steps for steps, _, _ in reports), "step")
    rates = [rate for _, rate, age_s in reports if age_s < max(_PAUSE_S, _PAUSE_STEPS / rate)]
    if not rates:
        return f"{most}, none reported for {seconds(min(age_s for _, _, age_s in reports))}"
    where = f", mean of {len(rates)} processes" if len(rates) > 1 else ""
    return f"{significant(statistics.fmean(rates))} ({most}{where})"
