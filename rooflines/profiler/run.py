"""The run directory: made, written once, loaded.

``run.json`` is written when the run starts (status ``running``) and replaced atomically when it ends, so a run that was killed is
loadable and says so. Everything else in the directory is the trace, the device samples, and files derived from these three. While the
run lasts, and where they could not be made a table at its end, the device samples are a journal of JSON lines.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import msgspec

from rooflines.errors import OutputError, RunError
from rooflines.profiler.records import RUN_SCHEMA, DeviceSample, Run, RunFile
from rooflines.profiler.samplers.journal import read_journal
from rooflines.profiler.samplers.storage import read_samples, write_samples
from rooflines.serial import read_json, write_json

RUN_FILE = "run.json"
SAMPLES_FILE = "samples.parquet"
JOURNAL_FILE = ".samples.jsonl"


def default_directory(name: str, mode: str) -> Path:
    """``runs/resnet50-inference-20261120-105500``: a folder per run that ``tensorboard --logdir runs`` shows side by side."""
    first = Path("runs") / f"{file_stem(name)}-{mode}-{datetime.now():%Y%m%d-%H%M%S}"
    path, number = first, 1
    while path.exists():  # a second run within the same second
        number += 1
        path = first.with_name(f"{first.name}-{number}")
    return path


def file_stem(name: str) -> str:
    """``name`` with everything but letters, digits, dot, dash and underscore replaced, short enough for a file name."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:80] or "run"


def check_directory(directory: Path) -> None:
    """Raise OutputError unless ``directory`` can be made, or is empty, and can be written. Nothing is left behind."""
    try:
        if directory.is_dir():
            entries = len(list(directory.iterdir()))
            if entries:
                raise OutputError(
                    f"the output directory {str(directory)!r} is not empty ({entries} {'entry' if entries == 1 else 'entries'}).",
                    hint="Give another --output, or empty it; a run never overwrites another.",
                )
        elif directory.exists():
            raise OutputError(f"the output {str(directory)!r} is a file, not a directory.", hint="Give another --output.")
        nearest = directory
        while not nearest.exists():
            nearest = nearest.parent
        with tempfile.TemporaryFile(dir=nearest):
            pass
    except OSError as error:
        raise OutputError(
            f"the output directory {str(directory)!r} cannot be written: {error.strerror or error}.", hint="Give another --output."
        ) from None


def create_directory(directory: Path) -> None:
    """Make the directory after the same check as ``check_directory``."""
    check_directory(directory)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(
            f"the output directory {str(directory)!r} cannot be made: {error.strerror or error}.", hint="Give another --output."
        ) from None


def save(directory: Path, facts: RunFile, samples: Sequence[DeviceSample] = ()) -> Run:
    """Write ``run.json`` (and the samples) into ``directory`` and return the run.

    Raises OutputError when the disk is full or the directory has gone; ``run.json`` is tried even when the samples did not fit.
    """
    try:
        try:
            if samples:
                write_samples(samples, directory / SAMPLES_FILE)
        finally:
            write_json(directory / RUN_FILE, facts)
    except OSError as error:
        raise OutputError(
            f"cannot write the run in {str(directory)!r}: {error.strerror or error}.", hint="Is the disk full, or the directory gone?"
        ) from None
    return Run(directory=directory, facts=facts, samples=tuple(samples))


class _Head(msgspec.Struct):
    """The part of ``run.json`` that every version has."""

    schema: str = ""


def load(directory: Path | str) -> Run:
    """The run in ``directory``; raises RunError saying what is wrong when it is not one or is corrupt."""
    directory = Path(directory)
    path = directory / RUN_FILE
    where = "Give the directory that 'rooflines profile' printed."
    if not directory.exists():
        raise RunError(f"no such run: {str(directory)!r}.", hint=where)
    if not path.is_file():
        raise RunError(f"{str(directory)!r} is not a run directory: it has no {RUN_FILE}.", hint=where)
    corrupt = f"the run {str(directory)!r} is corrupt"
    try:
        schema = read_json(path, _Head).schema
        if schema != RUN_SCHEMA:
            raise RunError(
                f"the run {str(directory)!r} has schema {schema!r}; this version of rooflines reads {RUN_SCHEMA!r}.",
                hint="Read it with the version that wrote it, or record it again.",
            )
        facts = read_json(path, RunFile)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RunError(f"{corrupt}: {RUN_FILE}: {error}.", hint="Record it again.") from None
    except OSError as error:
        raise RunError(f"cannot read {str(path)!r}: {error.strerror or error}.", hint="Check who may read it.") from None
    if facts.trace is not None and os.path.basename(facts.trace) != facts.trace:
        raise RunError(f"{corrupt}: its trace {facts.trace!r} is not a file name.", hint="Record it again.")
    samples: Sequence[DeviceSample] = ()
    if (directory / SAMPLES_FILE).is_file():
        try:
            samples = read_samples(directory / SAMPLES_FILE)
        except OSError as error:
            raise RunError(f"{corrupt}: {SAMPLES_FILE}: {error}.", hint=f"Delete {SAMPLES_FILE}; the rest stays usable.") from None
    elif (directory / JOURNAL_FILE).is_file():
        journal = read_journal(directory / JOURNAL_FILE)
        samples = journal.samples
        problems = (note for problem in journal.problems if (note := f"device samples: {problem}") not in facts.notes)
        facts = msgspec.structs.replace(facts, counters=facts.counters or journal.counters, notes=(*facts.notes, *problems))
    return Run(directory=directory, facts=facts, samples=tuple(samples))
