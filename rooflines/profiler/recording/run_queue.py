"""The time for which threads of this process could run and waited for a processor that something else held."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

# A line for every thread: nanoseconds on a processor, nanoseconds waiting for one, number of turns (Linux, sched-stats.rst).
_TASKS: Final = Path("/proc/self/task")


class RunQueue:
    """Adds up what the threads wait between ``mark`` and ``since_ns``; a reading takes a microsecond for each thread.

    Threads are listed by ``watch``: those that start later are not seen. Systems that do not count it give None.
    """

    def __init__(self) -> None:
        self._files: list[int] = []
        self._marked: int | None = None

    def watch(self) -> None:
        """List the threads that run now."""
        self.close()
        try:
            for task in _TASKS.iterdir():
                self._files.append(os.open(task / "schedstat", os.O_RDONLY))
        except OSError:  # not Linux, not counted, or a thread has just ended: without it the sum would be too low
            self.close()

    def close(self) -> None:
        """Release the files."""
        for file in self._files:
            os.close(file)
        self._files, self._marked = [], None

    def mark(self) -> None:
        """Begin to count."""
        self._marked = self._waited_ns()

    def since_ns(self) -> int | None:
        """The nanoseconds waited since ``mark``, of all threads together."""
        now = self._waited_ns()
        return None if now is None or self._marked is None else max(0, now - self._marked)

    def _waited_ns(self) -> int | None:
        waited = 0
        try:
            for file in self._files:
                waited += int(os.pread(file, 64, 0).split()[1])
        except (OSError, ValueError, IndexError):  # a thread has ended
            self.watch()
            return None
        return waited if self._files else None
