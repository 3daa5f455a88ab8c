"""Which source it is: a run, its directory, any trace, the ranks of a job, or a monitored program."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from rooflines.errors import UsageError
from rooflines.pipeline.captures import captured_beside
from rooflines.profiler.directory import RUN_FILE, load
from rooflines.profiler.read.sources import find_traces, is_url
from rooflines.profiler.records import Run

if TYPE_CHECKING:
    from rooflines.profiler.monitor.monitored import Monitored

    # A run or trace, several ranks, or a monitored program.
    Source: TypeAlias = Run | Monitored | Path | str | Sequence[Path | str]


# What a run's directory holds besides its record and trace.
_OF_A_RUN = ("analysis.json", "report.html", "report.json", "report.md", "report.pdf")


def is_directory(source: Path | str) -> bool:
    """Whether ``source`` is a directory here, and so a run, rather than a trace."""
    return not is_url(source) and os.path.isdir(source)


def open_source(names: Sequence[str]) -> Monitored | str | list[str]:
    """The source that ``names`` stand for: a monitored program, one run or trace, or several ranks. Raises
    UsageError where none is."""
    names = [*map(_of_report, names)]
    if any(map(is_directory, names)):
        from rooflines.profiler.monitor import monitored

        if any(map(monitored.is_monitored, names)):
            if len(names) > 1:
                raise UsageError(
                    "monitored programs cannot be analyzed together.", hint="Give one directory."
                )
            return monitored.load(names[0])
    if len(names) == 1 and captured_beside(names[0]):
        return names[0]
    sources = find_sources(names)
    return sources if len(sources) > 1 else sources[0]


def find_sources(sources: Sequence[Path | str]) -> list[str]:
    """Resolve ``sources``: one run or trace, for ``analyze``, or the traces of several ranks, for
    ``analyze_ranks``.

    A source is a file, a directory of traces, a pattern, a URL, a run, or the directory of a job with a run
    for each rank. Raises UsageError for a pattern without traces, and for such a directory where more than it
    is given.
    """
    if len(sources) == 1 and is_directory(sources[0]):
        # A directory without traces is a run, a job or nothing; loading it says which.
        traces = (
            []
            if _is_run(sources[0])
            else find_traces(sources, may_be_empty=True) or _ranks_of_job(Path(sources[0]))
        )
        return traces or [str(sources[0])]
    return [
        trace
        for source in sources
        for trace in ([_trace_of_run(source)] if _is_run(source) else find_traces([source]))
    ]


def _of_report(name: str) -> str:
    """The run whose report or analysis this file is; any other name as it is."""
    path = Path(name)
    is_part = path.name in _OF_A_RUN and not is_url(name) and _is_run(path.parent)
    return str(path.parent) if is_part else name


def _is_run(source: Path | str) -> bool:
    return is_directory(source) and os.path.isfile(os.path.join(source, RUN_FILE))


def _ranks_of_job(directory: Path) -> list[str]:
    """The traces of the ranks recorded below ``directory``, or the run of the only one that has a trace."""
    runs = [path.parent for path in directory.glob(f"rank*/{RUN_FILE}") if path.parent.name[4:].isdigit()]
    traced = sorted(
        (run for run in runs if load(run).trace_path is not None), key=lambda run: int(run.name[4:])
    )
    return list(map(str, traced or runs[:1])) if len(traced) < 2 else list(map(_trace_of_run, traced))


def _trace_of_run(source: Path | str) -> str:
    run = load(source)
    if run.trace_path is None:
        raise UsageError(
            f"the run {str(source)!r} has no trace.", hint="Remove it from the list or record it again."
        )
    return str(run.trace_path)
