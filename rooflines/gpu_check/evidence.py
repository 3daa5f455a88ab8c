"""The raw evidence of a check: facts about the software and the driver, and a zip of everything for a bug report.

The folder of evidence keeps all files as they are. What goes into the zip is redacted first, and only texts can be: device samples are
written as JSON lines, and reports and other files that can be made again from what is there are left out.
"""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import time
import zipfile
import zlib
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path, PurePosixPath

from rooflines.errors import RooflinesError
from rooflines.gpu_check.redaction import Redaction
from rooflines.profiler.directory import SAMPLES_FILE
from rooflines.profiler.samplers.fields import DeviceSample
from rooflines.profiler.samplers.storage import read_samples
from rooflines.serial import to_plain

# Issue trackers accept attachments of 25 MB.
MOST_ZIPPED_BYTES = 24_000_000
_MOST_READ_BYTES = 100_000_000  # of one file: a longer trace takes longer to redact than a check may
_TEXTS = (".json", ".jsonl", ".txt", ".csv", ".html")
_REPORTS = ("report.html", "report.json")
_DRIVER_S = 20.0


def collect(folder: Path) -> None:
    """Write the installed packages and what nvidia-smi says into ``folder``."""
    (folder / "packages.txt").write_text("".join(f"{line}\n" for line in packages()))
    (folder / "nvidia-smi.txt").write_text(_nvidia_smi())


def packages() -> list[str]:
    """The installed packages as pip freeze lists them, without the addresses that they came from, which may hold tokens."""
    found = {(dist.metadata["Name"] or "").lower(): dist.version for dist in metadata.distributions()}
    return sorted(f"{name}=={version}" for name, version in found.items() if name)


def _nvidia_smi() -> str:
    program = shutil.which("nvidia-smi")
    if program is None:
        return "nvidia-smi is not installed\n"
    try:
        done = subprocess.run([program, "-q"], capture_output=True, text=True, errors="replace", timeout=_DRIVER_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"nvidia-smi -q failed: {error}\n"
    return done.stdout + done.stderr


def bundle(
    files: Sequence[Path], folder: Path, target: Path, redaction: Redaction, *, until: float, most_bytes: int = MOST_ZIPPED_BYTES
) -> list[str]:
    """Write ``files`` and what is in ``folder``, redacted, to the zip ``target``; returns the files that were left out, with reasons.

    Small files come first, so that a trace that is too large leaves out nothing but itself. After the time ``until`` (time.monotonic)
    nothing is added.
    """
    omitted: list[str] = []
    raw = sorted((path for path in folder.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in (*files, *raw):
            inside = path.relative_to(folder.parent) if path in raw else Path(path.name)
            name = redaction.text(inside.as_posix())
            try:
                if time.monotonic() > until:
                    raise _Omitted("no time was left")
                last, content = _redacted(path, redaction)
                if target.stat().st_size + len(zlib.compress(content)) > most_bytes:
                    raise _Omitted(f"the zip would exceed {most_bytes // 1_000_000} MB")
            except _Omitted as reason:
                omitted.append(f"{name}: {reason}")
                continue
            archive.writestr(str(PurePosixPath(name).with_name(redaction.text(last))), content)
        archive.writestr(f"{folder.name}/left_out.txt", "".join(f"{line}\n" for line in omitted) or "nothing was left out\n")
    return omitted


class _Omitted(Exception):
    """Why a file is not in the zip."""


def _redacted(path: Path, redaction: Redaction) -> tuple[str, bytes]:
    """The name and the content that ``path`` has in the zip. Raises _Omitted for a file that is not put there."""
    if path.name == SAMPLES_FILE:
        lines = "".join(f"{json.dumps(to_plain(sample))}\n" for sample in _samples(path))
        return f"{path.stem}.jsonl", redaction.text(lines).encode()
    packed = path.suffix == ".gz"
    if path.name in _REPORTS or (path.with_suffix("") if packed else path).suffix not in _TEXTS:
        raise _Omitted("not a text, or a report that can be made from the other files")
    try:
        with gzip.open(path) if packed else path.open("rb") as file:
            content = file.read(_MOST_READ_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:  # of a process that was stopped while it wrote
        raise _Omitted(f"cannot be read: {type(error).__name__}") from None
    if len(content) > _MOST_READ_BYTES:
        raise _Omitted(f"larger than {_MOST_READ_BYTES // 1_000_000} MB")
    redact = redaction.json if ".json" in path.suffixes else redaction.text
    content = redact(content.decode(errors="replace")).encode()
    return path.name, gzip.compress(content, mtime=0) if packed else content


def _samples(path: Path) -> Sequence[DeviceSample]:
    try:
        return read_samples(path)
    except (OSError, RooflinesError) as error:
        raise _Omitted(str(error)) from None
