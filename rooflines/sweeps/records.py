"""A sweep as its directory stores it: the points, the result of every round, and the estimates of a point
from its rounds."""

from __future__ import annotations

from typing import Literal

import msgspec

from rooflines.profiler.options import OptionValue

SWEEP_SCHEMA = "rooflines.sweep/1"
SWEEP_ANALYSIS_SCHEMA = "rooflines.sweep-analysis/1"
SWEEP_FILE = "sweep.json"
RESULT_FILE = "result.json"
Kind = Literal["profile", "train"]
NOT_RUN, INTERRUPTED = "not run yet", "interrupted"


class SweepPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One setting."""

    id: str
    #: What differs from other points, in words.
    label: str
    #: The part of a study that it belongs to.
    part: str = ""
    kind: Kind = "profile"
    #: What runs it (``package.module:name``) where that is not ``run_point``.
    function: str = ""
    #: The options of ``profile`` or ``train``, and the ``model``.
    options: dict[str, OptionValue]
    #: Variables that its process has in addition.
    environment: dict[str, str] = {}
    #: Whether it runs in the first round only.
    once: bool = False


class PointResult(msgspec.Struct, frozen=True, kw_only=True):
    """What one round of a point gave."""

    point: str
    round: int
    #: Values with the unit in their name.
    values: dict[str, float] = {}
    #: Words: the device, what limits the step.
    facts: dict[str, str] = {}
    #: The directory of the run, relative to that of the result.
    run: str | None = None
    #: Why the round failed.
    reason: str | None = None
    notes: tuple[str, ...] = ()


class Sweep(msgspec.Struct, frozen=True, kw_only=True):
    """The plan of a sweep."""

    schema: str = SWEEP_SCHEMA
    name: str
    created: str = ""
    command: str = ""
    machine: str = ""
    repeats: int
    points: tuple[SweepPoint, ...]


class MeasuredValue(msgspec.Struct, frozen=True, kw_only=True):
    """The median of a value over the rounds of a point, and its 95 % interval; absent for a single round."""

    value: float
    low: float | None = None
    high: float | None = None


class SweepRow(msgspec.Struct, frozen=True, kw_only=True):
    """A point with its estimates from the rounds that did not fail, or the reason why it has none."""

    point: SweepPoint
    rounds: int
    estimates: dict[str, MeasuredValue] = {}
    facts: dict[str, str] = {}
    run: str | None = None
    reason: str | None = None
    notes: tuple[str, ...] = ()

    def value(self, name: str) -> float | None:
        """Return the estimate of ``name``; None where it was not measured."""
        found = self.estimates.get(name)
        return None if found is None else found.value

    @property
    def unfinished(self) -> bool:
        """Whether a later call runs it."""
        return self.reason in (NOT_RUN, INTERRUPTED)


class SweepAnalysis(msgspec.Struct, frozen=True, kw_only=True):
    """A sweep and a row for each of its points, in their order."""

    schema: str = SWEEP_ANALYSIS_SCHEMA
    sweep: Sweep
    rows: tuple[SweepRow, ...]


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What a process is asked to do: call ``function`` with ``options`` and a directory."""

    #: ``package.module:name``.
    function: str
    options: dict[str, object]
    directory: str = ""
    #: Where it runs if that exists there, so that relative paths in the options mean what they mean here.
    folder: str = ""
    threads: int | None = None
    #: Variables that it has in addition to those of this process.
    environment: dict[str, str] = {}
