"""The traces of several ranks of one job: found, analysed together, reported."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rooflines.arguments import arg
from rooflines.errors import UsageError
from rooflines.pipeline.ceilings import sheet_of
from rooflines.pipeline.reading import is_directory
from rooflines.profiler.progress import Progress, Silent
from rooflines.profiler.run import RUN_FILE, load
from rooflines.profiler.trace.columns import MEMORY_LIMIT_BYTES

if TYPE_CHECKING:
    from rooflines.roofline.ranks.records import RankAnalysis


RANKS_FILE = "ranks.json"


RANKS_FORMATS = ("html", "json", "csv")


def find_sources(sources: Sequence[Path | str]) -> list[str]:
    """Resolve ``sources``: one run or trace, for ``analyze``, or the traces of several ranks, for ``analyze_ranks``.

    A source is a file, a directory of traces, a pattern, a URL, a run, or the directory of a job with a run for each rank. Raises
    UsageError for a pattern without traces, and for such a directory where more than it is given.
    """
    from rooflines.profiler.trace.sources import find_traces

    if len(sources) == 1 and is_directory(sources[0]):
        # A directory without traces is a run, a job or nothing; loading it says which.
        found = [] if _is_run(sources[0]) else find_traces(sources, may_be_empty=True) or _ranks_of_job(Path(sources[0]))
        return found or [str(sources[0])]
    return [trace for source in sources for trace in ([_trace_of_run(source)] if _is_run(source) else find_traces([source]))]


def analyze_ranks(
    sources: Sequence[Path | str],
    *,
    jobs: int | None = None,
    dask: str | None = None,
    partial: bool = False,
    memory_limit_bytes: int = MEMORY_LIMIT_BYTES,
    progress: Progress | None = None,
) -> RankAnalysis:
    """The traces of several ranks of one job, each and together, with their collectives matched; nothing is written.

    ``sources`` are files, directories of traces, patterns, URLs or run directories. The traces are read by ``jobs`` processes (by
    default as many as there are processors and work for), each within ``memory_limit_bytes``, or by the workers of the Dask scheduler
    at the address ``dask``. The processes are spawned: a script that calls this needs ``if __name__ == "__main__":``. With ``partial``,
    traces that are cut off are read up to the cut. Raises TraceError for a trace that cannot be read, UsageError for two of one rank.
    """
    from rooflines.roofline.ranks.analyze import analyze_parts
    from rooflines.roofline.ranks.readers import read_ranks

    if jobs is not None and jobs < 1:
        raise UsageError(f"{arg('jobs')} must be at least 1, got {jobs}.", hint="Omit it to use all processors.")
    progress = progress or Silent()
    traces = find_sources(sources)
    progress.stage(f"reading traces of {len(traces)} ranks", len(traces))
    parts = read_ranks(
        traces, jobs=jobs, dask=dask, partial=partial, memory_limit_bytes=memory_limit_bytes, judge=sheet_of, done=progress.advance
    )  # fmt: skip
    progress.stage("matching collectives", None)
    return analyze_parts(parts)


def report_ranks(
    analysis: RankAnalysis, formats: Sequence[str] = RANKS_FORMATS, *, output: Path | None = None, progress: Progress | None = None
) -> dict[str, Path]:
    """Write the reports of several ranks into ``output``, without it into a new directory under ``runs``; returns what was written, by
    format, and the analysis, which is in ``ranks.json``. Raises UsageError for an unknown format."""
    from rooflines.pipeline.reporting import write_reports
    from rooflines.profiler.directory import create_directory, default_directory
    from rooflines.reports.formats import check_formats
    from rooflines.reports.views import ranks as view

    chosen = check_formats(formats)
    directory = output or default_directory(f"{len(analysis.ranks)}-ranks", "trace")
    create_directory(directory)

    def csv(path: Path) -> Path:
        path.with_name("collectives.csv").write_text(view.collectives_csv(analysis), encoding="utf-8")
        path.with_name("ranks.csv").write_text(view.ranks_csv(analysis), encoding="utf-8")
        return path.with_name("ranks.csv")

    return write_reports(view.page(analysis), chosen, directory, record=(RANKS_FILE, analysis), own={"csv": csv}, progress=progress)


def _is_run(source: Path | str) -> bool:
    return is_directory(source) and os.path.isfile(os.path.join(source, RUN_FILE))


def _ranks_of_job(directory: Path) -> list[str]:
    """The traces of the ranks recorded below ``directory``, or the run of the only one that has a trace."""
    runs = [path.parent for path in directory.glob(f"rank*/{RUN_FILE}") if path.parent.name[4:].isdigit()]
    traced = sorted((run for run in runs if load(run).trace_path is not None), key=lambda run: int(run.name[4:]))
    return list(map(str, traced or runs[:1])) if len(traced) < 2 else list(map(_trace_of_run, traced))


def _trace_of_run(source: Path | str) -> str:
    run = load(source)
    if run.trace_path is None:
        raise UsageError(f"the run {str(source)!r} has no trace.", hint="Remove it from the list or record it again.")
    return str(run.trace_path)
