"""Directories that something is recorded into: their names, whether they can be written, and how what is in
them is written and read.

A directory holds a file of facts (``run.json``, ``monitor.json``), replaced atomically, and the device
samples: a table once all is over, and while it lasts, and where they could not be made a table, a journal of
JSON lines. While steps are timed, their durations are in a journal as well.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from rooflines.arguments import arg, escaped
from rooflines.errors import OutputError, RunError, writing
from rooflines.extras import is_installed
from rooflines.profiler.distributed import launched_at, rank_here
from rooflines.profiler.records import RUN_SCHEMA, Run, RunFile
from rooflines.profiler.samplers.fields import DeviceSample
from rooflines.profiler.samplers.storage import (
    Journal,
    read_journal,
    read_samples,
    write_lines,
    write_samples,
)
from rooflines.serial import read_json, write_json
from rooflines.units import sentence

RUN_FILE = "run.json"
SAMPLES_FILE = "samples.parquet"
# The same without pyarrow: a line for each sample.
LINES_FILE = "samples.jsonl"
JOURNAL_FILE = ".samples.jsonl"
# The durations of the timed steps while they are timed, eight bytes each.
STEPS_FILE = ".timed_ns"

T = TypeVar("T")


def default_directory(name: str, mode: str) -> Path:
    """``runs/resnet50-inference-20261120-105500``: a folder per run that ``tensorboard --logdir runs`` shows
    side by side.

    All ranks of a job get the same one.
    """
    launched = launched_at() if rank_here() is not None else None
    first = Path("runs") / f"{file_stem(name)}-{mode}-{launched or datetime.now():%Y%m%d-%H%M%S}"
    # There may be another run of the same second.
    return first if launched is not None else unused(first)


def unused(first: Path) -> Path:
    """``first``, or where that exists the first of ``first-2``, ``first-3`` and so on that does not."""
    path, number = first, 1
    while path.exists():
        number += 1
        path = first.with_name(f"{first.name}-{number}")
    return path


def timestamp() -> str:
    """The time now in UTC, to the second (ISO 8601)."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def file_stem(name: str) -> str:
    """``name`` with everything but letters, digits, dot, dash and underscore replaced, short enough for a
    file name."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:80] or "run"


def check_directory(directory: Path) -> None:
    """Raise OutputError unless ``directory`` can be made, or is empty, and can be written. Nothing is left
    behind."""
    name, another = str(directory), f"Choose another {arg('output')}"
    if escaped(name) != name:  # pyarrow takes no such path
        raise OutputError(
            f"the name of the output directory {escaped(name)!r} is not UTF-8.", hint=f"{another}."
        )
    with writing(f"write the output directory {name!r}", f"{another}."):
        # In this order, because another process may make the directory meanwhile.
        if directory.exists() and not directory.is_dir():
            raise OutputError(f"the output {name!r} is a file, not a directory.", hint=f"{another}.")
        if directory.is_dir() and (entries := len(list(directory.iterdir()))):
            raise OutputError(
                f"the output directory {name!r} is not empty ({entries} "
                f"{'entry' if entries == 1 else 'entries'}).",
                hint=f"{another} or empty the directory. Runs are never overwritten.",
            )
        nearest = directory
        while not nearest.exists():
            nearest = nearest.parent
        with tempfile.TemporaryFile(dir=nearest):
            pass


def create_directory(directory: Path) -> None:
    """Make the directory after the same check as ``check_directory``."""
    check_directory(directory)
    with writing(f"create the output directory {str(directory)!r}", f"Choose another {arg('output')}."):
        directory.mkdir(parents=True, exist_ok=True)


def discard(directory: Path, *files: str, made: bool) -> None:
    """Remove these files of a recording that holds nothing, and the directory where it was ``made`` for it
    and has no others."""
    for name in files:
        (directory / name).unlink(missing_ok=True)
    if made:
        with contextlib.suppress(OSError):
            directory.rmdir()


def write_record(path: Path, facts: object, samples: Sequence[DeviceSample], what: str) -> None:
    """Write ``facts`` to ``path`` and the samples, if any, next to it.

    Raises OutputError, which calls it ``what``, when the disk is full or the directory has gone; the facts
    are tried even when the samples did not fit.
    """
    with writing(
        f"write {what} in {str(path.parent)!r}", "Check that the directory exists and the disk is not full."
    ):
        try:
            if samples and is_installed("pyarrow"):
                write_samples(samples, path.with_name(SAMPLES_FILE))
            elif samples:
                write_lines(samples, path.with_name(LINES_FILE))
        finally:
            write_json(path, facts)


def read_facts(path: Path, kind: type[T], schema: str, *, what: str, again: str) -> T:
    """The facts in ``path``, of a type whose field ``schema`` says the version.

    Raises RunError, which begins with ``what`` they are of and says how to get them ``again``, when they are
    corrupt or of another version.
    """
    hint = sentence(again)
    try:
        stored = read_json(path, _Head).schema
        if stored != schema:
            raise RunError(
                f"{what} has schema {stored!r}; this version of rooflines reads {schema!r}.",
                hint=f"Read it with the version that wrote it, or {again}.",
            )
        return read_json(path, kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RunError(f"{what} is corrupt: {path.name}: {error}.", hint=hint) from None
    except FileNotFoundError:
        raise RunError(f"{what} is missing.", hint=hint) from None
    except OSError as error:
        raise RunError(
            f"cannot read {str(path)!r}: {error.strerror or error}.", hint="Check the file's permissions."
        ) from None


def add_step(journal: str, step_ns: int) -> None:
    """Add a timed step to the file ``journal``, which stays if this process is killed. Takes five
    microseconds.

    The file is not kept open: a program may close descriptors that it has not opened, and open others.
    """
    with contextlib.suppress(OSError):
        file = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        os.write(file, step_ns.to_bytes(8, "little"))
        os.close(file)


def stored_samples(directory: Path, *, what: str) -> Journal:
    """The device samples in ``directory``, and the extra facts of the journal if there is no table.

    Raises RunError, which begins with ``what`` they are of, when the table is corrupt.
    """
    if (directory / SAMPLES_FILE).is_file():
        try:
            samples = read_samples(directory / SAMPLES_FILE)
        except OSError as error:
            hint = f"Delete {SAMPLES_FILE}; the rest of the run stays usable."
            raise RunError(f"{what} is corrupt: {SAMPLES_FILE}: {error}.", hint=hint) from None
        return Journal(started=True, samples=tuple(samples), counters=(), fields={}, problems=())
    lines = directory / LINES_FILE
    return read_journal(lines if lines.is_file() else directory / JOURNAL_FILE)


def journal_facts(facts: Any, stored: Journal, problems: Sequence[str]) -> dict[str, Any]:
    """The facts that a recording which was killed left in its journal, as changes of those in its file."""
    notes = (*facts.notes, *(problem for problem in problems if problem not in facts.notes))
    return {
        "counters": facts.counters or stored.counters,
        "fields": facts.fields or stored.fields,
        "notes": notes,
    }


class _Head(msgspec.Struct):
    """The part of a file of facts that every version has."""

    schema: str = ""


def save(directory: Path, facts: RunFile, samples: Sequence[DeviceSample] = ()) -> Run:
    """Write ``run.json`` (and the samples) into ``directory`` and return the run. Raises OutputError when
    that does not fit."""
    write_record(directory / RUN_FILE, facts, samples, "the run")
    return Run(directory=directory, facts=facts, samples=tuple(samples))


def saved_with(run: Run, *notes: str, **changes: Any) -> Run:
    """``run`` with these notes added and these facts changed, also in its directory. Raises OutputError when
    that does not fit."""
    before = run.facts.notes
    facts = replace(run.facts, notes=(*before, *(note for note in notes if note not in before)), **changes)
    return replace(save(run.directory, facts), samples=run.samples)


def load(directory: Path | str) -> Run:
    """The run in ``directory``; raises RunError saying what is wrong when it is not one or is corrupt."""
    directory = Path(directory)
    path = directory / RUN_FILE
    where = "Give the run directory that 'rooflines profile' printed."
    if not directory.exists():
        raise RunError(f"no such run: {str(directory)!r}.", hint=where)
    if not path.is_file():
        raise RunError(f"{str(directory)!r} is not a run directory: it has no {RUN_FILE}.", hint=where)
    what = f"the run {str(directory)!r}"
    facts = read_facts(path, RunFile, RUN_SCHEMA, what=what, again="record it again")
    if facts.trace is not None and os.path.basename(facts.trace) != facts.trace:
        raise RunError(
            f"{what} is corrupt: the trace {facts.trace!r} is not a file name.", hint="Record it again."
        )
    steps, journal = facts.steps, directory / STEPS_FILE
    if steps is not None and not steps.timed_ns and journal.is_file():
        times = journal.read_bytes()
        timed_ns = tuple(int.from_bytes(times[at : at + 8], "little") for at in range(0, len(times) - 7, 8))
        facts = replace(facts, steps=replace(steps, timed_ns=timed_ns))
    stored = stored_samples(directory, what=what)
    problems = [f"device samples: {problem}" for problem in stored.problems]
    facts = replace(facts, **journal_facts(facts, stored, problems))
    return Run(directory=directory, facts=facts, samples=stored.samples)
