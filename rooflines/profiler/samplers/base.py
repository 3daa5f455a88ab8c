"""The seam where hardware starts: what a sampler must do, and two samplers that need no hardware.

docs/sampling.md says how to add one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Protocol

from rooflines.profiler.records import Counter, DeviceSample


class Sampler(Protocol):
    """Something that can be read again and again, each sampler by one thread of its own.

    ``counters`` says how well the fields can be read, and may take a fraction of a second to measure it. It is asked once, before the
    first reading. ``period_s`` is asked after it: the sampler is never read more often, which is at most twice in the time that its
    fastest counter takes to change; 0.0 where nothing limits it. ``read`` returns one sample per device it watches, or none when there
    is nothing to say. ``counters`` and ``read`` raise DeviceError once the device is gone for good; a sampler that raised is closed and
    not asked again.
    """

    @property
    def period_s(self) -> float: ...

    def counters(self) -> Sequence[Counter]: ...

    def read(self) -> Sequence[DeviceSample]: ...

    def close(self) -> None: ...


class NullSampler:
    """Reads nothing: a run without device samples."""

    period_s = 0.0

    def counters(self) -> Sequence[Counter]:
        return ()

    def read(self) -> Sequence[DeviceSample]:
        return ()

    def close(self) -> None:
        return


class ReplaySampler:
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
