"""Run the GPU check: its parts one after another, each written to the JSON as soon as it is done."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import NamedTuple

import msgspec

from rooflines.arguments import arg
from rooflines.errors import writing
from rooflines.gpu_check.commands import checkout
from rooflines.gpu_check.evidence import bundle, collect
from rooflines.gpu_check.page import page
from rooflines.gpu_check.parts import TOTAL_S, PartPlan, limit_s
from rooflines.gpu_check.process import run_part
from rooflines.gpu_check.recorder import DEVICE_FILE
from rooflines.gpu_check.records import Device, GpuCheck
from rooflines.gpu_check.redaction import Redaction
from rooflines.reports.render import html
from rooflines.serial import read_json, to_json, write_json, write_text


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
    files = _files(folder, "rehearsal" if device.rehearsed else device.environment.device_name, created)
    redaction = Redaction.here()
    result = GpuCheck(
        created=created.isoformat(timespec="seconds"), device=device, evidence=files.evidence.name,
        rehearsal="A rehearsal of the code on a CPU: no GPU was checked." if device.rehearsed else "",
    )  # fmt: skip
    with writing(f"write the GPU check in {str(folder)!r}", f"Choose another {arg('output')}."):
        files.evidence.mkdir(parents=True)
        write_json(files.evidence / DEVICE_FILE, device)
        collect(files.evidence)
        _write(files.json, result, redaction)
        for index, part in enumerate(parts):
            limit = limit_s(parts, index, time.monotonic() - begun)
            progress(f"{part.name}: {part.what} (up to {limit:.0f} s)")
            raw = files.evidence / part.name
            raw.mkdir()
            result = msgspec.structs.replace(result, parts=(*result.parts, run_part(part, raw, limit)))
            _write(files.json, result, redaction)
        result = read_json(files.json, GpuCheck)  # as it was redacted
        try:
            html.write(page(result), files.html)
        finally:  # if the page fails, the rest can still be sent
            shown = [path for path in (files.json, files.html) if path.is_file()]
            bundle(shown, files.evidence, files.zip, redaction, until=begun + TOTAL_S)
    return result, files


def _write(path: Path, result: GpuCheck, redaction: Redaction) -> None:
    write_text(path, redaction.json(to_json(result)))


def default_folder() -> Path:
    """Where the files go: benchmarks/results of a repository, else the current directory."""
    root = checkout()
    return root / "benchmarks" / "results" if root else Path()


def _files(folder: Path, device_name: str, created: datetime) -> Files:
    stem = f"gpu_check_{re.sub(r'[^A-Za-z0-9]+', '-', device_name).strip('-').lower()}"
    evidence = f"{stem}-{created:%Y%m%d-%H%M%S}"
    return Files(folder / f"{stem}.json", folder / f"{stem}.html", folder / f"{evidence}.zip", folder / evidence)
