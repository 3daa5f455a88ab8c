"""What a GPU check records: the result of each law, of each part and of the whole; and the recorder in the process of a part."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np

from rooflines.device_specs.catalog import SheetFacts
from rooflines.profiler.records import Environment
from rooflines.serial import to_plain

SCHEMA = "rooflines.gpu_check/1"
NO_GPU = "there is no GPU"

Outcome = Literal["ok", "failed", "left out"]
# Whether a law holds and the figures that it compared; or the reason why it was left out.
Verdict = tuple[bool, str] | str
# A command is not begun with less time than torch takes to load, and ends before its part does.
_LEAST_S, _MARGIN_S = 15.0, 3.0


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """The GPU that is checked, with its software; ``cpu`` in a rehearsal only.

    ``max_clock_hz`` is the SM clock that it should hold: the driver's highest, or the data sheet's boost clock where that is lower.
    GeForce cards name a highest clock that they do not reach under load.
    """

    environment: Environment
    max_clock_hz: float | None = None

    @property
    def facts(self) -> SheetFacts:
        """What distinguishes this device from others of its name."""
        known = self.environment
        return SheetFacts(kind=known.device.partition(":")[0], units=known.device_units, memory_bytes=known.device_memory_bytes)

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


def judged(law: str, subject: str, verdict: Verdict) -> Check:
    """Return the result of ``law``. A law without data is left out with the reason; it is never "ok"."""
    if isinstance(verdict, str):
        return Check(law=law, subject=subject, outcome="left out", found=verdict)
    holds, found = verdict
    return Check(law=law, subject=subject, outcome="ok" if holds else "failed", found=found)


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """The ``least`` that passes and the ``goal`` of a ceiling, what was ``measured`` (None: nothing), and the ``basis`` of both."""

    ceiling: str
    unit: str
    least: float
    goal: float
    basis: str
    measured: float | None = None


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """A figure that was not measured, and why."""

    what: str
    reason: str


class Findings(msgspec.Struct, kw_only=True):
    """What a part has found so far; its process sends it after each addition."""

    figures: dict[str, Any] = msgspec.field(default_factory=dict)
    checks: list[Check] = msgspec.field(default_factory=list)
    left_out: list[LeftOut] = msgspec.field(default_factory=list)


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
        """Return the checks of all parts with ``outcome``."""
        return tuple(check for part in self.parts for check in part.findings.checks if check.outcome == outcome)

    @property
    def failed(self) -> bool:
        """Whether a part or a law failed."""
        return any(part.outcome == "failed" for part in self.parts)


class Recorder:
    """What a part gets: the ``folder`` of its raw files, the ``device`` and where to put figures, checks and omissions.

    The process of the part is ended after ``limit_s`` seconds; ``send`` takes what was found until then.
    """

    def __init__(
        self, folder: Path, device: Device, limit_s: float = math.inf, send: Callable[[Findings], None] = lambda findings: None
    ) -> None:
        self.folder = folder
        self.device = device
        self.findings = Findings()
        self._send = send
        self._until = time.monotonic() + limit_s

    @property
    def torch_device(self) -> str:
        """The device as torch calls it: ``cuda:0``; ``cpu`` in a rehearsal only."""
        return self.device.environment.device

    @property
    def left_s(self) -> float:
        """The seconds until the process of the part is ended."""
        return self._until - time.monotonic()

    def seconds_for(self, what: str, most_s: float) -> float | None:
        """Return the seconds that a command may take, ``most_s`` at most; None where too few are left, which is recorded."""
        limit_s = min(most_s, self.left_s - _MARGIN_S)
        if limit_s >= _LEAST_S:
            return limit_s
        self.leave_out(what, "no time was left")
        return None

    def figure(self, name: str, value: Any) -> None:
        """Record a figure, or a record or list of them, also numbers of NumPy."""
        self.findings.figures[name] = to_plain(msgspec.to_builtins(value, enc_hook=_builtin))
        self._send(self.findings)

    def check(self, *checks: Check) -> None:
        """Record the results of laws."""
        self.findings.checks.extend(checks)
        self._send(self.findings)

    def leave_out(self, what: str, reason: str) -> None:
        """Record that ``what`` was not measured, and why."""
        self.findings.left_out.append(LeftOut(what=what, reason=reason))
        self._send(self.findings)


def _builtin(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"a figure cannot be {type(value).__name__}")


class Ended(NamedTuple):
    """How a command ended: its exit ``code`` (None: it was stopped), ``how`` in words, and what it printed."""

    code: int | None
    how: str
    stdout: str
    stderr: str


def run_logged(
    command: Sequence[str], log: Path, limit_s: float, *, cwd: Path | None = None, variables: Mapping[str, str] | None = None
) -> Ended:
    """Run ``command`` for at most ``limit_s`` seconds, with ``variables`` added to the environment.

    What it prints is in ``log`` while it runs, errors in a file next to it.
    """
    errors = log.with_name(f"{log.stem}.errors{log.suffix}")
    with log.open("wb") as out, errors.open("wb") as err:
        try:
            code: int | None = subprocess.run(
                command, cwd=cwd, env={**os.environ, **(variables or {})}, stdout=out, stderr=err, timeout=limit_s, check=False
            ).returncode
        except subprocess.TimeoutExpired:
            code = None
    how = f"stopped after {limit_s:.0f} s" if code is None else f"exit code {code}"
    return Ended(code, how, *(path.read_text(errors="replace") for path in (log, errors)))


def rooflines_command(*arguments: str) -> list[str]:
    """Return the command ``rooflines ARGUMENTS`` with this interpreter."""
    return [sys.executable, "-m", "rooflines", *arguments]
