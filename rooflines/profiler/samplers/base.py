"""What a sampler does; docs/extending.md says how to add one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rooflines.profiler.samplers.fields import Counter, DeviceSample, Field


class Sampler:
    """Reads one source of device samples again and again, each sampler in a thread of its own.

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
        """How well the fields can be read. Called once, before the first reading; may take a fraction of a second to measure it."""
        return ()

    def read(self) -> Sequence[DeviceSample]:
        """One sample per device, or none when there is nothing new."""
        raise NotImplementedError

    def close(self) -> None:
        """Release what is held."""
