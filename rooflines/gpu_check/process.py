"""Run a part in a process of its own, for as long as its limit. ``main`` is what that process does."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import msgspec

from rooflines.errors import RooflinesError
from rooflines.gpu_check.commands import environment
from rooflines.gpu_check.parts import PARTS, PartPlan
from rooflines.gpu_check.recorder import DEVICE_FILE, FINDINGS_FILE, Recorder
from rooflines.gpu_check.records import Device, Findings, Outcome, Part
from rooflines.serial import read_json

LOG_FILE = "log.txt"
_END_S = 5.0


def run_part(part: PartPlan, folder: Path, limit_s: float) -> Part:
    """Run ``part`` with its raw files in ``folder``, next to the file of the device, and return its result, also if it fails."""
    begun = time.monotonic()
    with (folder / LOG_FILE).open("wb") as log:
        worker = subprocess.Popen(
            [sys.executable, "-m", "rooflines.gpu_check.process", part.name, str(folder), str(limit_s)],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment(), start_new_session=True,
        )  # fmt: skip
        try:
            worker.wait(limit_s)
            ended = _how_it_ended(worker.returncode)
        except subprocess.TimeoutExpired:
            ended = f"stopped after {limit_s:.0f} s"
        finally:
            _end(worker)
    findings = _findings(folder)
    return result(part, findings, ended or findings.error, time.monotonic() - begun, limit_s)


def result(part: PartPlan, findings: Findings, error: str, wall_s: float, limit_s: float) -> Part:
    """The result of ``part``: failed with an ``error`` or a failed check, left out where nothing was measured, else ok."""
    failed = [check for check in findings.checks if check.outcome == "failed"]
    outcome: Outcome = "ok"
    reason = ""
    if error or failed:
        outcome = "failed"
        reason = error or f"{len(failed)} of {len(findings.checks)} checks failed"
    elif not findings.figures:
        outcome = "left out"
        reason = "; ".join(one.reason for one in findings.left_out) or "it measured nothing"
    return Part(name=part.name, outcome=outcome, reason=reason, wall_s=wall_s, limit_s=limit_s, findings=findings)


def _how_it_ended(code: int) -> str:
    """In words what is wrong with an exit code; empty for 0."""
    return "" if code == 0 else f"its process was killed by signal {-code}" if code < 0 else f"its process ended with exit code {code}"


def _findings(folder: Path) -> Findings:
    """What the part recorded before its process ended."""
    try:
        return read_json(folder / FINDINGS_FILE, Findings)
    except (OSError, msgspec.DecodeError):
        return Findings(error="its process recorded nothing")


def _end(worker: subprocess.Popen[bytes]) -> None:
    """End ``worker`` and every process that it left behind in its group: ask first, then kill.

    A process that waits inside the driver cannot be killed; it is left behind, so that the other parts can run.
    """
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):  # none is left
            os.killpg(worker.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            worker.wait(_END_S)


def main(name: str, folder: str, limit_s: str) -> int:
    """Run the part ``name`` for at most ``limit_s`` seconds, with its raw files in ``folder``, next to the file of the device."""
    (part,) = (part for part in PARTS if part.name == name)
    recorder = Recorder(Path(folder), read_json(Path(folder).with_name(DEVICE_FILE), Device), float(limit_s))
    try:
        function_of(part)(recorder)
    except RooflinesError as error:
        recorder.fail(str(error))
    except Exception as error:  # the other parts run in any case
        traceback.print_exc()
        recorder.fail(f"{type(error).__name__}: {error}")
    return 0


def function_of(part: PartPlan) -> Callable[[Recorder], None]:
    """The function that runs ``part``. It is named as text, so that the process that only starts the parts imports none of them."""
    module, _, name = part.function.partition(":")
    function: Callable[[Recorder], None] = getattr(import_module(module), name)
    return function


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
