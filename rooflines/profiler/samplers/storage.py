"""Device samples on disk: the journal while they are taken, and ``samples.parquet`` afterwards, a table with
a column per field.

The sampler process writes the journal and its parent reads it: one JSON object per line, flushed, so a killed
writer loses one line.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from rooflines.errors import RunError
from rooflines.profiler.samplers.fields import COLUMNS, Counter, DeviceSample, Field
from rooflines.serial import write_text


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What the sampler process is started for."""

    #: The process to watch.
    pid: int
    #: File that the samples are written to.
    output: str
    #: Seconds between two readings.
    period_s: float
    #: What the process that starts it adds to the monotonic clock.
    epoch_ns: int
    #: Whether readings that cost what steps on the CPU would feel are rarer.
    low_overhead: bool = False
    #: UUIDs of GPUs by name; None means every GPU.
    gpus: dict[str, str] | None = None
    #: Entry points of other packages' samplers by name.
    plugins: dict[str, str] = {}
    #: Whether it is no child of the process that starts it, and tells its number on standard output.
    detached: bool = False
    #: Text that is written to ``terminal`` if the process that starts it ends without a word.
    farewell: str = ""
    #: Descriptor for ``farewell``.
    terminal: int = 2


class JournalEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line: a sample, how well one of its fields can be read, declared fields, a problem, or that
    sampling has ``started``."""

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


def write_entry(file: BinaryIO, entry: JournalEntry) -> None:
    """Append one line and hand it to the system at once. Raises OSError when it does not fit any more."""
    line = memoryview(msgspec.json.encode(entry) + b"\n")
    while line:  # a disk that fills up takes the beginning, and refuses the rest
        line = line[file.write(line) :]
    file.flush()


def last_bytes(path: Path, most: int) -> bytes:
    """The end of a file that is being written; nothing if it cannot be read."""
    with contextlib.suppress(OSError), open(path, "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - most))
        return file.read()
    return b""


def read_journal(path: Path, most: int = sys.maxsize) -> Journal:
    """Every whole line of the file or its last ``most`` bytes; one that does not end yet is being written. No
    file has no lines."""
    entries: list[JournalEntry] = []
    for line in last_bytes(path, most).split(b"\n")[:-1]:
        with contextlib.suppress(
            msgspec.DecodeError
        ):  # it is cut: by a full disk, or the first one by ``most``
            entries.append(msgspec.json.decode(line, type=JournalEntry))
    return Journal(
        started=any(entry.started for entry in entries),
        # Each series is in order; which of two series was written first is chance.
        samples=tuple(
            sorted(
                (entry.sample for entry in entries if entry.sample is not None),
                key=lambda sample: sample.time_ns,
            )
        ),
        counters=tuple(entry.counter for entry in entries if entry.counter is not None),
        fields={key: field for entry in entries for key, field in entry.fields.items()},
        problems=tuple(entry.problem for entry in entries if entry.problem is not None),
    )


def write_lines(samples: Sequence[DeviceSample], path: Path) -> None:
    """Write ``samples`` as a journal, for an installation without pyarrow."""
    write_text(
        path, "".join(msgspec.json.encode(JournalEntry(sample=sample)).decode() + "\n" for sample in samples)
    )


SAMPLES_SCHEMA = "rooflines.samples/1"


def write_samples(samples: Sequence[DeviceSample], path: Path) -> None:
    """Write ``samples`` to ``path``, whole or not at all.

    A field that was not measured is a null, and a column without a single figure still has its type.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    declared = sorted({key for sample in samples for key in sample.more})
    rows = [sample.columns() for sample in samples]
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        pq.write_table(pa.Table.from_pylist(rows, schema=_schema(declared)), temporary, compression="zstd")
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def read_samples(path: Path) -> tuple[DeviceSample, ...]:
    """The samples in the file at ``path``; raises OSError, or RunError when it is not a table of samples."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path, memory_map=False)
        declared = [
            column.name
            for column in table.schema
            if column.name not in COLUMNS and pa.types.is_floating(column.type)
        ]
        rows = [
            row | {"more": {key: row[key] for key in declared if row[key] is not None}}
            for row in table.to_pylist()
        ]
        return tuple(msgspec.convert(row, DeviceSample) for row in rows)
    except (pa.ArrowInvalid, msgspec.ValidationError) as error:
        raise RunError(
            f"{str(path)!r} contains no valid device samples: {error}.",
            hint="Delete it; the rest of the run stays usable.",
        ) from None


def _schema(declared: Sequence[str]) -> Any:
    """The table's columns: those of the registry, then those that other packages declare."""
    import pyarrow as pa

    types = {
        int: pa.int64(),
        float: pa.float64(),
        str: pa.string(),
        tuple[float, ...]: pa.list_(pa.float64()),
    }
    required = {field.name for field in msgspec.structs.fields(DeviceSample) if field.required}
    fields = [pa.field(key, types[kind], nullable=key not in required) for key, kind in COLUMNS.items()]
    fields += [pa.field(key, pa.float64()) for key in declared]
    return pa.schema(fields, metadata={"rooflines.schema": SAMPLES_SCHEMA})
