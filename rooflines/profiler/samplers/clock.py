"""The clock of device samples, and of the windows that they are read in: nanoseconds since the epoch that
never step.

The system's wall clock may be set while a program runs: by NTP, by a person, when a machine wakes up. Power
over a second that was twenty is the wrong energy, and nothing shows it. So the epoch is looked up once, and
everything else is the monotonic clock, which all processes of a machine share. A process that another one
starts must be told its epoch, or theirs differ by what the wall clock stepped meanwhile.
"""

from __future__ import annotations

import time

_epoch_ns = time.time_ns() - time.monotonic_ns()


def now_ns() -> int:
    """Nanoseconds since the epoch, as the wall clock counted them when this process began to."""
    return _epoch_ns + time.monotonic_ns()


def epoch_ns() -> int:
    """The offset that this process adds to the monotonic clock."""
    return _epoch_ns


def set_epoch(epoch_ns: int) -> None:
    """Count as another process does, whose ``epoch_ns`` this is."""
    global _epoch_ns
    _epoch_ns = epoch_ns
