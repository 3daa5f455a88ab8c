"""The interface of samplers, and the samplers of other packages. docs/extending.md shows how to add one."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import TypeAlias

import msgspec

from rooflines.errors import DeviceError
from rooflines.profiler.samplers.fields import FIELDS, Counter, DeviceSample, Field

# Gives the processes that are watched.
Pids: TypeAlias = Callable[[], Collection[int]]


class Sampler:
    """Reads one source of device samples periodically, each sampler in its own thread.

    ``fields`` declares the keys that its samples have in ``more``; built-in fields are declared already.
    ``period_s`` is the shortest time between two readings, at most half the time that its fastest counter
    takes to change; 0.0 where nothing limits it. It is read after ``counters`` was called. ``counters`` and
    ``read`` raise DeviceError once the device is gone for good; a sampler that raised is closed and not asked
    again.
    """

    fields: Mapping[str, Field] = {}
    period_s: float = 0.0

    def __str__(self) -> str:
        """What problems call it."""
        return type(self).__name__

    def counters(self) -> Sequence[Counter]:
        """Measure how well the fields can be read. Called once, before the first reading; may take a fraction
        of a second."""
        return ()

    def read(self) -> Sequence[DeviceSample]:
        """One sample per device, or none when there is nothing new."""
        raise NotImplementedError

    def close(self) -> None:
        """Release what is held."""


# A key is a column of a table, a part of a TensorBoard tag and a key in JSON.
_KEY = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(eq=False)
class PluggedInSampler(Sampler):
    """The sampler that the entry point ``name = path`` opens for the process ``pid``, read every ``period_s``
    seconds.

    The package is imported in the sampler's own thread, by ``counters``, so that a package that hangs or
    fails delays no other sampler.
    """

    name: str
    path: str
    pid: int
    asked_period_s: float
    sampler: Sampler | None = None

    def __str__(self) -> str:
        return f"The sampler {self.name!r} ({self.path})"

    def counters(self) -> Sequence[Counter]:
        sampler: Sampler | None = resolve_name(self.path)(self.pid, self.asked_period_s)
        self.sampler = sampler
        if sampler is None:
            return ()
        counters = sampler.counters()
        self.fields, self.period_s = self._checked_fields(sampler.fields), sampler.period_s
        return counters

    def read(self) -> Sequence[DeviceSample]:
        return [self._checked(sample) for sample in self.sampler.read()] if self.sampler is not None else ()

    def close(self) -> None:
        if self.sampler is not None:
            self.sampler.close()

    def _checked(self, sample: DeviceSample) -> DeviceSample:
        """The sample with plain numbers. Raises DeviceError for an undeclared key, ValueError or TypeError
        for a wrong value."""
        undeclared = sorted(sample.more.keys() - self.fields.keys())
        if undeclared:
            raise DeviceError(f"{self} stopped: it does not declare the field {undeclared[0]!r}.")
        plain = {key: None if value is None else float(value) for key, value in sample.more.items()}
        return msgspec.convert(msgspec.to_builtins(msgspec.structs.replace(sample, more=plain)), DeviceSample)

    def _checked_fields(self, fields: Mapping[str, Field]) -> dict[str, Field]:
        for key in fields:
            if key in FIELDS:
                raise DeviceError(
                    f"{self} is not used: {key!r} is a built-in field and needs no declaration."
                )
            if not _KEY.fullmatch(key) or key in DeviceSample.__struct_fields__:
                raise DeviceError(
                    f"{self} is not used: {key!r} cannot be the key of a field (lower-case "
                    "letters, digits and _)."
                )
        return msgspec.convert(msgspec.to_builtins(dict(fields)), dict[str, Field])
