"""What a GPU check records: the result of each law, of each part and of the whole."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from rooflines.device_specs.catalog import Facts
from rooflines.profiler.records import Environment

SCHEMA = "rooflines.gpu_check/1"

Outcome = Literal["ok", "failed", "left out"]


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """The GPU that is checked, with its software; ``cpu`` in a rehearsal only.

    ``max_clock_hz`` is the SM clock that it should hold: the driver's highest, or the data sheet's boost clock where that is lower.
    GeForce cards name a highest clock that they do not reach under load.
    """

    environment: Environment
    max_clock_hz: float | None = None

    @property
    def facts(self) -> Facts:
        """What tells this device from others of its name."""
        known = self.environment
        return Facts(kind=known.device.partition(":")[0], units=known.device_units, memory_bytes=known.device_memory_bytes)

    @property
    def rehearsed(self) -> bool:
        """Whether this is a rehearsal without a GPU."""
        return self.environment.device == "cpu"


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """A law applied to the data of one subject. ``found`` are the figures compared, or why the law was left out."""

    law: str
    subject: str
    outcome: Outcome
    found: str


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """A figure that was not measured, and why."""

    what: str
    reason: str


class Findings(msgspec.Struct, kw_only=True):
    """What a part has found so far; its process writes it to a file after each addition."""

    figures: dict[str, Any] = msgspec.field(default_factory=dict)
    checks: list[Check] = msgspec.field(default_factory=list)
    left_out: list[LeftOut] = msgspec.field(default_factory=list)
    error: str = ""


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the check. ``reason`` says why it failed or was left out, ``limit_s`` is the time that it was given."""

    name: str
    outcome: Outcome
    reason: str = ""
    wall_s: float
    limit_s: float
    findings: Findings


class GpuCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The whole check. ``rehearsal`` is empty, except in one of the code without a GPU; ``evidence`` names the folder of raw files."""

    schema: str = SCHEMA
    created: str
    device: Device
    rehearsal: str = ""
    evidence: str
    parts: tuple[Part, ...] = ()

    def checks(self, outcome: Outcome) -> tuple[Check, ...]:
        """The checks of all parts with ``outcome``."""
        return tuple(check for part in self.parts for check in part.findings.checks if check.outcome == outcome)

    @property
    def failed(self) -> bool:
        """Whether a part or a law failed."""
        return any(part.outcome == "failed" for part in self.parts)
