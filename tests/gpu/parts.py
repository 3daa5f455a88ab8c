"""What the GPU tests record, and how a part of them measures in its own process.

A part is a test module. Its function ``measure(recorder)`` runs once, in its own process with a time limit; one whose measurements
are commands runs each with a time limit (``run_commands(recorder)``). Its laws are functions of what it recorded, so that a record
can be judged again without a GPU.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec
import numpy as np
import pytest

from rooflines.device_specs import catalog, detect
from rooflines.device_specs.catalog import SheetFacts
from rooflines.device_specs.nvml import start_nvml
from rooflines.errors import DeviceError, UsageError
from rooflines.profiler.machine.environment import collect_environment
from rooflines.profiler.records import Environment
from rooflines.serial import from_plain, read_json_if_whole, to_plain, write_json
from rooflines.sweeps.process import end

ROOT = Path(__file__).parents[2]
SCHEMA = "rooflines.gpu_check/1"
_DEVICE_LIMIT_S = 120.0

Outcome = Literal["ok", "failed", "left out"]
# Whether a law holds and the figures that it compared; or the reason why it was left out.
Verdict = tuple[bool, str] | str
T = TypeVar("T")


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """The GPU under test, with its software; ``cpu`` in a rehearsal only."""

    environment: Environment
    # The SM clock that it should hold: the driver's highest, or the data sheet's boost clock where that is lower. GeForce
    # cards name a highest clock that they do not reach under load.
    max_clock_hz: float | None = None
    # Names for CUDA_VISIBLE_DEVICES of the GPUs that this session may use.
    gpus: tuple[str, ...] = ()

    @property
    def facts(self) -> SheetFacts:
        """What distinguishes this device from others of its name."""
        known = self.environment
        kind = known.device.partition(":")[0]
        return SheetFacts(kind=kind, units=known.device_units, memory_bytes=known.device_memory_bytes)

    @property
    def rehearsed(self) -> bool:
        """Whether this is a rehearsal without a GPU."""
        return self.environment.device == "cpu"


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a law: ``found`` are the figures compared, or why the law was left out."""

    law: str
    subject: str
    outcome: Outcome
    found: str


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """A figure that was not measured, and why."""

    what: str
    reason: str


class NotMeasured(Exception):
    """A figure that a law needs is not in the record."""


class Findings(msgspec.Struct, kw_only=True):
    """What a part has found so far; its process sends it after each addition."""

    figures: dict[str, Any] = msgspec.field(default_factory=dict)
    checks: list[Check] = msgspec.field(default_factory=list)
    left_out: list[LeftOut] = msgspec.field(default_factory=list)

    def figure(self, name: str, kind: type[T]) -> T:
        """Return the figure ``name`` as a ``kind``. Raises NotMeasured with the reason where it is not there."""
        if name not in self.figures:
            reasons = "; ".join(dict.fromkeys(left.reason for left in self.left_out))
            raise NotMeasured(reasons or f"{name} was not measured")
        return from_plain(self.figures[name], kind)


class Part(msgspec.Struct, kw_only=True):
    """A part of the record. ``reason`` says why it failed or was left out, ``limit_s`` is the time that it was given."""

    name: str
    outcome: Outcome = "left out"
    reason: str = ""
    wall_s: float = 0.0
    limit_s: float
    findings: Findings


class Record(msgspec.Struct, kw_only=True):
    """The record of a session. ``rehearsal`` is empty unless no GPU measured it; ``evidence`` names the folder of raw files."""

    schema: str = SCHEMA
    created: str
    device: Device
    rehearsal: str = ""
    evidence: str
    parts: list[Part] = []

    def checks(self, outcome: Outcome) -> list[Check]:
        """Return the checks of all parts with ``outcome``."""
        return [check for part in self.parts for check in part.findings.checks if check.outcome == outcome]


class Recorder:
    """What a part gets: the ``folder`` of its raw files, the ``device``, its time limit, and where to put figures.

    Each addition is written to ``findings.json``. ``error`` says why its process failed, or is empty. One that ``rejudges`` has the
    figures of a record, in whose folder it is.
    """

    error = ""
    rejudges = False

    def __init__(self, folder: Path, device: Device, limit_s: float) -> None:
        self.folder = folder
        self.device = device
        self.findings = Findings()
        self._until = time.monotonic() + limit_s

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
        self.findings.figures[name] = to_plain(msgspec.to_builtins(value, enc_hook=_builtin))
        write_json(self.folder / "findings.json", self.findings)

    def leave_out(self, what: str, reason: str) -> None:
        """Record that ``what`` was not measured, and why."""
        self.findings.left_out.append(LeftOut(what=what, reason=reason))
        write_json(self.folder / "findings.json", self.findings)


def _builtin(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"a figure cannot be {type(value).__name__}")


# --- laws as tests ------------------------------------------------------------------------------------------------------

Judge = Callable[[Findings, Device], Verdict]


def named(subject: str, judges: Mapping[str, Judge]) -> list[Any]:
    """Return the parameters of the tests of ``judges``: each test is named ``SUBJECT: LAW``."""
    return [pytest.param(judge, id=f"{subject}: {law}") for law, judge in judges.items()]


def settle(verdict: Verdict, record_property: Callable[[str, object], None]) -> None:
    """End a test as its ``verdict`` says: skipped with the reason, or passed or failed with the figures compared."""
    if isinstance(verdict, str):
        pytest.skip(verdict)
    holds, compared = verdict
    record_property("found", compared)
    assert holds, compared


# --- processes ---------------------------------------------------------------------------------------------------------


class Ended(NamedTuple):
    """How a command ended: its exit ``code`` (None: it was stopped), ``how`` in words, and what it printed."""

    code: int | None
    how: str
    stdout: str
    stderr: str


def run_logged(command: Sequence[str], log: Path, limit_s: float, *, variables: Mapping[str, str] | None = None) -> Ended:
    """Run ``command`` in the repository for at most ``limit_s`` seconds, with ``variables`` added to the environment.

    What it prints is in ``log`` while it runs, errors in a file next to it. At its limit all of its processes are ended.
    """
    errors = log.with_name(f"{log.stem}.errors{log.suffix}")
    code = None
    with log.open("wb") as out, errors.open("wb") as err:
        process = subprocess.Popen(
            command, cwd=ROOT, env={**os.environ, **(variables or {})}, stdout=out, stderr=err, start_new_session=True
        )
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            pass
        finally:
            end(process)
    how = f"stopped after {limit_s:.0f} s" if code is None else f"exit code {code}"
    return Ended(code, how, *(path.read_text(errors="replace") for path in (log, errors)))


def python(*arguments: str) -> list[str]:
    """Return the command ``python -m ARGUMENTS`` with this interpreter."""
    return [sys.executable, "-m", *arguments]


def failure(done: Ended) -> str:
    """Return how a command ended and its last words."""
    last = next((line.strip() for line in reversed(done.stderr.splitlines()) if line.strip()), "") if done.code else ""
    return f"{done.how}: {last}" if last else done.how


def measured(function: str, device: Device, folder: Path, limit_s: float) -> tuple[Findings, str]:
    """Run ``function`` (``module:name``) with a Recorder in its own process for at most ``limit_s`` seconds.

    Returns what it found, also if it failed, and the reason why it failed or an empty string. Its raw files are in ``folder``.
    """
    write_json(folder / "device.json", device)
    done = run_logged(python("tests.gpu", function, str(folder), str(limit_s)), folder / "log.txt", limit_s)
    findings = read_json_if_whole(folder / "findings.json", Findings) or Findings()
    return findings, "" if done.code == 0 else failure(done)


def outcome_of(findings: Findings, error: str) -> tuple[Outcome, str]:
    """Return the outcome of a part and its reason: failed with an ``error`` or a failed check, left out without figures."""
    failed = sum(check.outcome == "failed" for check in findings.checks)
    if error or failed:
        return "failed", error or f"{failed} of {len(findings.checks)} checks failed"
    if not findings.figures:
        return "left out", "; ".join(left.reason for left in findings.left_out) or "it measured nothing"
    return "ok", ""


# --- the device --------------------------------------------------------------------------------------------------------


def find_device(name: str = "cuda:0") -> Device:
    """Return the device that torch calls ``name``. Raises DeviceError with the reason where torch cannot use it.

    Another process asks torch: a driver that hangs stops nothing, and this process holds no memory on the GPU.
    """
    with tempfile.TemporaryDirectory() as folder:
        done = run_logged(python("tests.gpu", name), Path(folder) / "log.txt", _DEVICE_LIMIT_S)
    if done.code != 0:
        raise DeviceError(f"torch was asked for {name}: {failure(done)}")
    return msgspec.json.decode(done.stdout, type=Device)


def describe_device(name: str) -> Device:
    """Return the facts about the device ``name``; raises DeviceError where torch cannot use it."""
    import torch

    if name != "cpu" and (torch.version.cuda is None or not torch.cuda.is_available()):
        built = "without CUDA" if torch.version.cuda is None else f"for CUDA {torch.version.cuda}"
        raise DeviceError(f"torch, built {built}, finds no usable NVIDIA GPU or driver.")
    environment = msgspec.structs.replace(collect_environment(name), host=None)
    if name == "cpu":
        return Device(environment=environment)
    device = Device(environment=environment, gpus=visible_gpus(torch.cuda.device_count()))
    clock_hz = full_clock_hz(device, detect.gpu(torch.device(name).index or 0).sm_clock_hz)
    return msgspec.structs.replace(device, max_clock_hz=clock_hz)


def full_clock_hz(device: Device, driver_hz: float | None) -> float | None:
    """Return the SM clock that ``device`` should hold (see ``Device``); ``driver_hz`` is the driver's highest."""
    try:
        clocks = catalog.identify(device.environment.device_name, device.facts).sheet.clocks
    except UsageError:
        return driver_hz
    boost_hz = clocks["boost"].mhz * 1e6 if "boost" in clocks else None
    return min((clock for clock in (driver_hz, boost_hz) if clock), default=None)


def visible_gpus(count: int) -> tuple[str, ...]:
    """Return the names for CUDA_VISIBLE_DEVICES of the GPUs that this process may use: as set, else UUIDs; empty without NVML.

    Torch sees ``count`` GPUs: one slice of a machine with MIG, however many boards there are, and none behind a name that
    is invalid.
    """
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return tuple(name.strip() for name in chosen.split(",") if name.strip())[:count]
    try:
        nvml = start_nvml()
    except DeviceError:
        return ()
    try:
        indices = range(min(count, nvml.nvmlDeviceGetCount()))
        return tuple(nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByIndex(index)) for index in indices)
    except nvml.NVMLError:
        return ()
    finally:
        nvml.nvmlShutdown()
