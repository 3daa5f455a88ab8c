"""The recorder of a part: keeps what it finds in a file, so that a part that is stopped leaves what it measured."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from rooflines.gpu_check.records import Check, Device, Findings, LeftOut
from rooflines.serial import to_plain, write_json

FINDINGS_FILE = "findings.json"
DEVICE_FILE = "device.json"


class Recorder:
    """What a part gets: the ``folder`` of its raw files, the ``device`` and where to put figures, checks and omissions.

    The process of the part is ended after ``limit_s`` seconds.
    """

    def __init__(self, folder: Path, device: Device, limit_s: float = math.inf) -> None:
        self.folder = folder
        self.device = device
        self._until = time.monotonic() + limit_s
        self._findings = Findings()
        self._write()

    @property
    def torch_device(self) -> str:
        """The device as torch calls it: ``cuda:0``; ``cpu`` in a rehearsal only."""
        return self.device.environment.device

    @property
    def left_s(self) -> float:
        """The seconds until the process of the part is ended."""
        return self._until - time.monotonic()

    def figure(self, name: str, value: Any) -> None:
        """Record a figure, or a record or list of them, also numbers of NumPy."""
        self._findings.figures[name] = to_plain(msgspec.to_builtins(value, enc_hook=_builtin))
        self._write()

    def check(self, *checks: Check) -> None:
        """Record the results of laws."""
        self._findings.checks.extend(checks)
        self._write()

    def leave_out(self, what: str, reason: str) -> None:
        """Record that ``what`` was not measured, and why."""
        self._findings.left_out.append(LeftOut(what=what, reason=reason))
        self._write()

    def fail(self, error: str) -> None:
        """Record that the part could not go on."""
        self._findings.error = error
        self._write()

    def _write(self) -> None:
        write_json(self.folder / FINDINGS_FILE, self._findings)


def _builtin(value: Any) -> Any:
    """A number or an array of NumPy as Python's own. Raises TypeError for anything else."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"a figure cannot be {type(value).__name__}")
