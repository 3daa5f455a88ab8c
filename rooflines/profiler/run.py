"""The run directory, written once and loaded.

``run.json`` is written when the run starts (status ``running``) and replaced when it ends, so a run that was killed is loadable and
says so. Everything else in the directory is the trace, the device samples, and files derived from these three.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from rooflines.errors import RunError
from rooflines.profiler.directory import read_facts, stored_samples, write_record
from rooflines.profiler.records import RUN_SCHEMA, Run, RunFile
from rooflines.profiler.samplers.fields import DeviceSample

RUN_FILE = "run.json"


def save(directory: Path, facts: RunFile, samples: Sequence[DeviceSample] = ()) -> Run:
    """Write ``run.json`` (and the samples) into ``directory`` and return the run. Raises OutputError when that does not fit."""
    write_record(directory / RUN_FILE, facts, samples, "the run")
    return Run(directory=directory, facts=facts, samples=tuple(samples))


def saved_with(run: Run, *notes: str, **changes: Any) -> Run:
    """``run`` with these notes added and these facts changed, also in its directory. Raises OutputError when that does not fit."""
    before = run.facts.notes
    facts = msgspec.structs.replace(run.facts, notes=(*before, *(note for note in notes if note not in before)), **changes)
    return msgspec.structs.replace(save(run.directory, facts), samples=run.samples)


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
        raise RunError(f"{what} is corrupt: the trace {facts.trace!r} is not a file name.", hint="Record it again.")
    stored = stored_samples(directory, what=what)
    problems = (note for problem in stored.problems if (note := f"device samples: {problem}") not in facts.notes)
    facts = msgspec.structs.replace(
        facts, counters=facts.counters or stored.counters, fields=facts.fields or stored.fields, notes=(*facts.notes, *problems)
    )
    return Run(directory=directory, facts=facts, samples=stored.samples)
