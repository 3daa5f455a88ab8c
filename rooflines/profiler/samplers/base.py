"""The seam where hardware starts: one method that reads, and two samplers that need no hardware."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Protocol

from rooflines.profiler.records import DeviceSample


class Sampler(Protocol):
    """Something that can be read again and again.

    ``read`` returns one sample per device it watches, or none when there is nothing to say. It raises DeviceError once its device is
    gone for good; a sampler that raised is closed and not read again.
    """

    def read(self) -> Sequence[DeviceSample]: ...

    def close(self) -> None: ...


class NullSampler:
    """Reads nothing: a run without device samples."""

    def read(self) -> Sequence[DeviceSample]:
        return ()

    def close(self) -> None:
        return


class ReplaySampler:
    """Plays recorded samples back, exactly as they were: for tests, and for a run on a machine that lacks the hardware.

    Neighbouring samples of one time are one reading, as they were when they were taken. After the last one it reads nothing.
    """

    def __init__(self, samples: Iterable[DeviceSample]) -> None:
        self._readings = iter([tuple(reading) for _, reading in groupby(samples, key=lambda sample: sample.time_ns)])

    def read(self) -> Sequence[DeviceSample]:
        return next(self._readings, ())

    def close(self) -> None:
        self._readings = iter(())
