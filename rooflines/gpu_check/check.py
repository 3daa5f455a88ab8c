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
from rooflines.gpu_check.device import GPU
from rooflines.gpu_check.parts import PartPlan, limit_s
from rooflines.gpu_check.process import run_part
from rooflines.gpu_check.records import GpuCheck
from rooflines.profiler.records import Environment
from rooflines.serial import write_json


class Files(NamedTuple):
    """The files of a check: its record and the folder of raw evidence."""

    json: Path
    evidence: Path


def run(
    parts: Sequence[PartPlan], environment: Environment, folder: Path, *, progress: Callable[[str], None], device: str = GPU
) -> tuple[GpuCheck, Files]:
    """Run ``parts`` on the GPU of ``environment`` and write into ``folder``. ``device`` is ``cpu`` in a rehearsal only.

    Raises OutputError where ``folder`` cannot be written.
    """
    begun = time.monotonic()
    created = datetime.now(timezone.utc)
    rehearsal = "" if device == GPU else f"a rehearsal of the code on {device}, without a GPU"
    files = _files(folder, "rehearsal" if rehearsal else environment.device_name, created)
    result = GpuCheck(
        created=created.isoformat(timespec="seconds"), environment=environment, rehearsal=rehearsal, evidence=files.evidence.name
    )
    with writing(f"write the GPU check in {str(folder)!r}", f"Choose another {arg('output')}."):
        files.evidence.mkdir(parents=True)
        for index, part in enumerate(parts):
            limit = limit_s(parts, index, time.monotonic() - begun)
            progress(f"{part.name}: {part.what} (up to {limit:.0f} s)")
            raw = files.evidence / part.name
            raw.mkdir()
            result = msgspec.structs.replace(result, parts=(*result.parts, run_part(part, raw, device, limit)))
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
