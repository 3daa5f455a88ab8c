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
from rooflines.gpu_check.parts import PartPlan, limit_s
from rooflines.gpu_check.process import run_part
from rooflines.gpu_check.recorder import DEVICE_FILE
from rooflines.gpu_check.records import Device, GpuCheck
from rooflines.serial import write_json


class Files(NamedTuple):
    """The files of a check: its record and the folder of raw evidence."""

    json: Path
    evidence: Path


def run(parts: Sequence[PartPlan], device: Device, folder: Path, *, progress: Callable[[str], None]) -> tuple[GpuCheck, Files]:
    """Run ``parts`` on ``device`` and write into ``folder``.

    Raises OutputError where ``folder`` cannot be written.
    """
    begun = time.monotonic()
    created = datetime.now(timezone.utc)
    files = _files(folder, "rehearsal" if device.rehearsed else device.environment.device_name, created)
    result = GpuCheck(
        created=created.isoformat(timespec="seconds"), device=device, evidence=files.evidence.name,
        rehearsal="A rehearsal of the code on a CPU: no GPU was checked." if device.rehearsed else "",
    )  # fmt: skip
    with writing(f"write the GPU check in {str(folder)!r}", f"Choose another {arg('output')}."):
        files.evidence.mkdir(parents=True)
        write_json(files.evidence / DEVICE_FILE, device)
        for index, part in enumerate(parts):
            limit = limit_s(parts, index, time.monotonic() - begun)
            progress(f"{part.name}: {part.what} (up to {limit:.0f} s)")
            raw = files.evidence / part.name
            raw.mkdir()
            result = msgspec.structs.replace(result, parts=(*result.parts, run_part(part, raw, limit)))
            write_json(files.json, result)
    return result, files


def default_folder() -> Path:
    """Where the files go: benchmarks/results of a repository, else the current directory."""
    root = checkout()
    return root / "benchmarks" / "results" if root else Path()


def _files(folder: Path, device_name: str, created: datetime) -> Files:
    slug = re.sub(r"[^A-Za-z0-9]+", "-", device_name).strip("-").lower()
    stem = f"gpu_check_{slug}"
    return Files(folder / f"{stem}.json", folder / f"{stem}-{created:%Y%m%d-%H%M%S}")
