"""Run the GPU check: its parts one after another, each written to the JSON as soon as it is done."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from rooflines.arguments import arg
from rooflines.device_specs import catalog, detect
from rooflines.errors import DeviceError, UsageError, writing
from rooflines.gpu_check import TOTAL_S, PartPlan, limit_s
from rooflines.gpu_check.evidence import Redaction, bundle, collect
from rooflines.gpu_check.page import page
from rooflines.gpu_check.records import Device, Findings, GpuCheck, Outcome, Part, Recorder
from rooflines.gpu_check.tests import checkout
from rooflines.profiler.environment import collect_environment
from rooflines.profiler.progress import Silent
from rooflines.reports.render import html
from rooflines.serial import read_json, to_json, to_plain, write_json, write_text
from rooflines.sweeps.process import JobError, run_job
from rooflines.sweeps.records import Job
from rooflines.sweeps.worker import WorkerChannel

_DEVICE_LIMIT_S = 120.0


def find_device(name: str = "cuda:0") -> Device:
    """Return the facts about the device that torch calls ``name``. Raises DeviceError with the reason where torch cannot use it.

    Another process asks torch: a driver that hangs stops nothing, and this process holds no memory on the GPU.
    """
    job = Job(function="rooflines.gpu_check.check:describe_device", options={"name": name}, limit_s=_DEVICE_LIMIT_S)
    try:
        return msgspec.json.decode(run_job(job, Silent()), type=Device)
    except JobError as error:
        raise DeviceError(error.message.replace("its process", "the process that asks torch", 1)) from None


def describe_device(options: dict[str, Any], directory: Path, channel: WorkerChannel) -> Device:
    """Return the facts about the device ``name`` of ``options``; raises DeviceError where torch cannot use it."""
    name = options["name"]
    try:
        import torch
    except ImportError as error:
        raise DeviceError(f"torch cannot be imported: {error}.") from None
    if name != "cpu":
        if torch.version.hip is not None:
            raise DeviceError("this torch is built for AMD GPUs.")
        if torch.version.cuda is None:
            raise DeviceError("this torch is built without CUDA.")
        if not torch.cuda.is_available():
            raise DeviceError("torch finds no usable NVIDIA GPU or driver.")
    device = Device(environment=msgspec.structs.replace(collect_environment(name), host=None))
    if name == "cpu":
        return device
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


class Files(NamedTuple):
    """The files of a check: its record, its report, the zip for a bug report and the folder of raw evidence."""

    json: Path
    html: Path
    zip: Path
    evidence: Path


def run(parts: Sequence[PartPlan], device: Device, folder: Path, *, progress: Callable[[str], None]) -> tuple[GpuCheck, Files]:
    """Run ``parts`` on ``device`` and write into ``folder``; the record is written after each part.

    Record, report and zip are redacted; the folder of evidence is not. Raises OutputError where ``folder`` cannot be written.
    """
    begun = time.monotonic()
    folder = folder.absolute()
    created = datetime.now(timezone.utc)
    stem = "rehearsal" if device.rehearsed else re.sub(r"[^A-Za-z0-9]+", "-", device.environment.device_name).strip("-").lower()
    raw = folder / f"gpu_check_{stem}-{created:%Y%m%d-%H%M%S}"
    files = Files(folder / f"gpu_check_{stem}.json", folder / f"gpu_check_{stem}.html", folder / f"{raw.name}.zip", raw)
    redaction = Redaction.here()
    result = GpuCheck(
        created=created.isoformat(timespec="seconds"), device=device, evidence=raw.name,
        rehearsal="A rehearsal of the code on a CPU: no GPU was checked." if device.rehearsed else "",
    )  # fmt: skip
    with writing(f"write the GPU check in {str(folder)!r}", f"Choose another {arg('output')}."):
        raw.mkdir(parents=True)
        write_json(raw / "device.json", device)
        collect(raw)
        write_text(files.json, redaction.json(to_json(result)))
        for index, part in enumerate(parts):
            limit = limit_s(parts, index, time.monotonic() - begun)
            progress(f"{part.name}: {part.what} (up to {limit:.0f} s)")
            result = msgspec.structs.replace(result, parts=(*result.parts, run_part(part, device, raw / part.name, limit)))
            write_text(files.json, redaction.json(to_json(result)))
        result = read_json(files.json, GpuCheck)  # as it was redacted
        try:
            html.write(page(result), files.html)
        finally:  # if the page fails, the rest can still be sent
            shown = [path for path in (files.json, files.html) if path.is_file()]
            bundle(shown, raw, files.zip, redaction, until=begun + TOTAL_S)
    return result, files


def default_folder() -> Path:
    """Return where the files go: benchmarks/results of a repository, else the current directory."""
    root = checkout()
    return root / "benchmarks" / "results" if root else Path()


def run_part(part: PartPlan, device: Device, folder: Path, limit: float) -> Part:
    """Run ``part`` in its own process for at most ``limit`` seconds, with its raw files in ``folder``; return its result."""
    folder.mkdir()
    begun, findings, error = time.monotonic(), Findings(), ""

    def keep(encoded: bytes) -> None:
        nonlocal findings
        findings = msgspec.json.decode(encoded, type=Findings)
        (folder / "findings.json").write_bytes(encoded)

    job = Job(
        function="rooflines.gpu_check.check:record_part", directory=str(folder), limit_s=limit,
        options={"function": part.function, "device": to_plain(device), "limit_s": limit},
    )  # fmt: skip
    try:
        run_job(job, Silent(), found=keep, log=folder / "log.txt")
    except JobError as problem:
        error = str(problem)
    outcome, reason = outcome_of(findings, error)
    return Part(name=part.name, outcome=outcome, reason=reason, wall_s=time.monotonic() - begun, limit_s=limit, findings=findings)


def record_part(options: dict[str, Any], directory: Path, channel: WorkerChannel) -> Findings:
    """Run the ``function`` of a part on the ``device`` of ``options``, and return what it found."""
    module, _, name = options["function"].partition(":")
    recorder = Recorder(directory, msgspec.convert(options["device"], Device), options["limit_s"], channel.found)
    getattr(import_module(module), name)(recorder)
    return recorder.findings


def outcome_of(findings: Findings, error: str) -> tuple[Outcome, str]:
    """Return the outcome of a part and its reason: failed with an ``error`` or a failed check, left out where nothing was measured."""
    failed = [check for check in findings.checks if check.outcome == "failed"]
    if error or failed:
        return "failed", error or f"{len(failed)} of {len(findings.checks)} checks failed"
    if not findings.figures:
        return "left out", "; ".join(omitted.reason for omitted in findings.left_out) or "it measured nothing"
    return "ok", ""
