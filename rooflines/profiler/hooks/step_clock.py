"""The clock of steps and tokens: the host's, or on CUDA events in the stream, so that the host never waits in
between."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


class StepClock:
    """Times steps one by one: ``begin``, and after every step ``end`` and ``go_on``; ``take_ns`` gives what
    they took.

    On CUDA by events, so that steps are not synchronized one by one, as in real use; elsewhere by the host's
    clock.
    """

    def __init__(self, device: torch.device, wait: Callable[[], None] | None = None) -> None:
        """``wait`` waits until everything in use has finished; None where steps have finished when they
        return."""
        self._device, self._wait = device, wait
        self._is_cuda = device.type == "cuda"
        self._begun: Any = None
        self._spans: list[tuple[Any, Any]] = []  # CUDA events, or perf_counter_ns

    def __len__(self) -> int:
        """The steps that have ended and were not taken yet."""
        return len(self._spans)

    def begin(self) -> None:
        """The first step begins now."""
        self._begun = self._mark()

    def end(self) -> None:
        """A step ends now."""
        if self._wait is not None and not self._is_cuda:
            self._wait()
        self._spans.append((self._begun, self._mark()))

    def go_on(self) -> None:
        """The next step begins: on the host now, so that what was done since is in no step; on CUDA it
        follows in the stream."""
        self._begun = self._spans[-1][1] if self._is_cuda else self._mark()

    def drop(self) -> None:
        """Forget the steps that have ended."""
        self._spans = []

    def so_far_ns(self) -> list[int]:
        """The durations of finished steps, without waiting for the device: empty on CUDA before
        ``take_ns``."""
        return [] if self._is_cuda else [ended - begun for begun, ended in self._spans]

    def last_ns(self) -> int:
        """The duration of the last step on the host's clock."""
        begun, ended = self._spans[-1]
        return int(ended - begun)

    def take_ns(self) -> list[int]:
        """Return and remove the durations of finished steps. Waits for the device."""
        spans, self._spans = self._spans, []
        if self._wait is not None:
            self._wait()
        if self._is_cuda:
            return [round(begun.elapsed_time(ended) * 1e6) for begun, ended in spans]
        return [ended - begun for begun, ended in spans]

    def _mark(self) -> Any:
        if self._is_cuda:
            import torch

            event: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            event.record(torch.cuda.current_stream(self._device))
            return event
        return time.perf_counter_ns()
