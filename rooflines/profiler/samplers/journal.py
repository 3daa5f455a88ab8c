"""The file between the sampler process and whoever started it: one JSON object a line, flushed, so a killed writer loses one line."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

import msgspec

from rooflines.profiler.records import DeviceSample


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line: a sample, a sentence about what cannot be sampled, or that sampling has ``started``."""

    sample: DeviceSample | None = None
    problem: str | None = None
    started: bool = False


class Journal(msgspec.Struct, frozen=True, kw_only=True):
    """What a sampler process has written so far."""

    started: bool
    samples: tuple[DeviceSample, ...]
    problems: tuple[str, ...]


def write_entry(file: BinaryIO, entry: Entry) -> None:
    """Append one line and hand it to the system at once."""
    file.write(msgspec.json.encode(entry) + b"\n")
    file.flush()


def read_journal(path: Path) -> Journal:
    """Every whole line of the file; a file that is not there yet has none, and a last line without its end is still being written."""
    try:
        content = path.read_bytes()
    except OSError:
        content = b""
    decoder = msgspec.json.Decoder(Entry)
    entries = [decoder.decode(line) for line in content.splitlines(keepends=True) if line.endswith(b"\n")]
    return Journal(
        started=any(entry.started for entry in entries),
        samples=tuple(entry.sample for entry in entries if entry.sample is not None),
        problems=tuple(entry.problem for entry in entries if entry.problem is not None),
    )
