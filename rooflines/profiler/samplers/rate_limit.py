"""Costly readings, taken at a limited rate."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class RateLimited(Generic[T]):
    """Asks ``question`` when called, but not before ``every_s`` seconds have passed since it did, nor so often that asking takes more
    than ``share`` of a core. None in between. What a question costs depends on the machine (hundreds of cores) and on what is watched
    (hundreds of processes, terabytes of pages), so it is measured, every time.
    """

    def __init__(self, question: Callable[[], T], *, every_s: float = 0.0, share: float) -> None:
        self._question = question
        self._every_s = every_s
        self._share = share
        self._due = -float("inf")
        self._primed: T | None = None

    def prime(self) -> None:
        """Ask now and keep the answer for the next call."""
        self._primed = self()

    def __call__(self) -> T | None:
        if self._primed is not None:
            answer, self._primed = self._primed, None
            return answer
        now = time.monotonic()
        if now < self._due:
            return None
        before_s = time.thread_time()
        answer = self._question()
        # A tenth of a period early is in time: a second's question asked ten times a second is asked every tenth time.
        self._due = now + max(0.9 * self._every_s, (time.thread_time() - before_s) / self._share)
        return answer
