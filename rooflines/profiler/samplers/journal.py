"""The file between the sampler process and its parent: one JSON object per line, flushed, so a killed writer loses one line."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

import msgspec

from rooflines.profiler.samplers.fields import Counter, DeviceSample, Field


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line: a sample, how well one of its fields can be read, declared fields, a problem, or that sampling has ``started``."""

    sample: DeviceSample | None = None
    counter: Counter | None = None
    fields: dict[str, Field] = {}
    problem: str | None = None
    started: bool = False


class Journal(msgspec.Struct, frozen=True, kw_only=True):
    """The contents written by a sampler process so far."""

    started: bool
    samples: tuple[DeviceSample, ...]
    counters: tuple[Counter, ...]
    fields: dict[str, Field]
    problems: tuple[str, ...]


def write_entry(file: BinaryIO, entry: Entry) -> None:
    """Append one line and hand it to the system at once. Raises OSError when it does not fit any more."""
    line = memoryview(msgspec.json.encode(entry) + b"\n")
    while line:  # a disk that fills up takes the beginning, and refuses the rest
        line = line[file.write(line) :]
    file.flush()


def read_journal(path: Path) -> Journal:
    """Every whole line of the file: one that does not end yet is still being written, and a file that is not there has none."""
    try:
        content = path.read_bytes()
    except OSError:
        content = b""
    entries = [entry for line in content.split(b"\n")[:-1] if (entry := _decode(line))]
    return Journal(
        started=any(entry.started for entry in entries),
        # Each series is in order; which of two series was written first is chance.
        samples=tuple(sorted((entry.sample for entry in entries if entry.sample is not None), key=lambda sample: sample.time_ns)),
        counters=tuple(entry.counter for entry in entries if entry.counter is not None),
        fields={key: field for entry in entries for key, field in entry.fields.items()},
        problems=tuple(entry.problem for entry in entries if entry.problem is not None),
    )


def _decode(line: bytes) -> Entry | None:
    """The entry in ``line``, or None when a full disk cut it."""
    try:
        return msgspec.json.decode(line, type=Entry)
    except msgspec.DecodeError:
        return None
