"""The interface of samplers, and two samplers that need no hardware. docs/extending.md shows how to add one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from rooflines.profiler.samplers.fields import Counter, DeviceSample, Field


class Sampler:
    """Reads one source of device samples periodically, each sampler in its own thread.

    ``fields`` declares the keys that its samples have in ``more``; built-in fields are declared already. ``period_s`` is the shortest
    time between two readings, at most half the time that its fastest counter takes to change; 0.0 where nothing limits it. It is read
    after ``counters`` was called. ``counters`` and ``read`` raise DeviceError once the device is gone for good; a sampler that raised
    is closed and not asked again.
    """

    fields: Mapping[str, Field] = {}
    period_s: float = 0.0

    def __str__(self) -> str:
        """What problems call it."""
        return type(self).__name__

    def counters(self) -> Sequence[Counter]:
        """Measure how well the fields can be read. Called once, before the first reading; may take a fraction of a second."""
        return ()

    def read(self) -> Sequence[DeviceSample]:
        """One sample per device, or none when there is nothing new."""
        raise NotImplementedError

    def close(self) -> None:
        """Release what is held."""


class NullSampler(Sampler):
    """Reads nothing: a run without device samples."""

    def read(self) -> Sequence[DeviceSample]:
        return ()


class ReplaySampler(Sampler):
    """Plays recorded samples back, exactly as they were: for tests, and for a run on a machine that lacks the hardware.

    ::

        ReplaySampler(run.samples, run.facts.counters)

    Neighbouring samples of one time are one reading, as they were when they were taken. After the last one it reads nothing.
    ``period_s`` is how often it asks to be read at most; it makes no difference to what is read.
    """

    def __init__(self, samples: Iterable[DeviceSample], counters: Iterable[Counter] = (), *, period_s: float = 0.0) -> None:
        self.period_s = period_s
        self._counters = tuple(counters)
        self._readings = iter([tuple(reading) for _, reading in groupby(samples, key=lambda sample: sample.time_ns)])

    def counters(self) -> Sequence[Counter]:
        return self._counters

    def read(self) -> Sequence[DeviceSample]:
        return next(self._readings, ())

    def close(self) -> None:
        self._readings = iter(())
