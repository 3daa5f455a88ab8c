"""The processes of a program that run PyTorch: their runs become ``rank0``, ``rank1``, ..., and those of one
job one report."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import psutil

from rooflines.errors import RooflinesError
from rooflines.pipeline.reading import analyze_ranks
from rooflines.pipeline.reporting import RANKS_FORMATS, report_ranks
from rooflines.profiler.directory import RUN_FILE, load, saved_with
from rooflines.profiler.progress import Progress
from rooflines.profiler.record.child import PREFIX, PROCESS_FILE, ChildProcess
from rooflines.profiler.records import Run
from rooflines.serial import read_json
from rooflines.units import counted


def gather(directory: Path) -> tuple[list[Run], list[str]]:
    """The runs of the child processes below ``directory``, numbered by rank or by start, and a sentence for
    each other child."""
    files = directory.glob(f"{PREFIX}*/{PROCESS_FILE}")
    found = sorted((read_json(file, ChildProcess) for file in files), key=lambda child: child.began_ns)
    runs: dict[ChildProcess, Run] = {}
    notes = []
    for child in found:
        place, what = directory / f"{PREFIX}{child.pid}", f"the process {child.name!r} ({child.pid})"
        run = load(place) if (place / RUN_FILE).is_file() else None
        if child.in_threads:
            notes.append(f"{what} called modules in other threads than its main one, which were not recorded")
        elif run is not None and run.facts.status == "running" and _runs(child.pid):
            notes.append(f"{what} still runs; what it records is in {place}")
        elif run is None or run.facts.steps is None or not (run.trace_path or run.facts.steps.timed_ns):
            notes.append(f"{what} ended before anything that it ran was recorded")
        else:
            runs[child] = run
    ranks = [child.rank for child in runs]
    if None in ranks or len({*ranks}) < len(ranks):
        ranks = [*range(len(runs))]
    numbered = sorted(zip(ranks, runs.values(), strict=True), key=lambda pair: pair[0] or 0)
    return [load(run.directory.rename(directory / f"rank{rank}")) for rank, run in numbered], notes


def report_job(
    runs: Sequence[Run], notes: Sequence[str], formats: Sequence[str], directory: Path, progress: Progress
) -> None:
    """Write the report of the ranks with a trace into ``directory``, where there are several; the notes of
    one go to its run."""
    traced = [str(run.trace_path) for run in runs if run.trace_path is not None]
    if len(traced) > 1:
        try:
            analysis = analyze_ranks(traced, jobs=1, progress=progress)
        except RooflinesError as error:  # they are of different jobs
            notes = (*notes, f"no report of all processes: {error.message}")
        else:
            analysis = msgspec.structs.replace(analysis, notes=(*analysis.notes, *notes))
            report_ranks(analysis, [name for name in formats if name in RANKS_FORMATS], directory, progress)
            return
    if len(runs) > 1:
        notes = (
            *notes,
            f"the program ran {counted(len(runs), 'process')}: "
            f"{', '.join(str(run.directory) for run in runs)}",
        )
    saved_with(runs[0], *notes)


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def join() -> None:
    """Wait for the children of multiprocessing, or end them, as Python does when it ends."""
    processes: Any = sys.modules.get("multiprocessing.process")
    for child in processes.active_children() if processes is not None else ():
        if child.daemon:
            child.terminate()
        child.join()
