"""Analyze any source: a run, its directory, any trace, the ranks of a job, a monitored program, or a stored
analysis."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, cast, overload

import msgspec
from msgspec.structs import replace

from rooflines.arguments import arg
from rooflines.device_specs.records import Ceilings
from rooflines.errors import DataError, TraceError, UsageError
from rooflines.pipeline.captures import Captures, captured_beside, find_captures
from rooflines.pipeline.ceilings import given_ceilings, sheet_of
from rooflines.pipeline.command import default_command
from rooflines.pipeline.sources import find_sources, is_directory
from rooflines.profiler.directory import load
from rooflines.profiler.progress import Progress, Silent
from rooflines.profiler.read.reader import paused, read
from rooflines.profiler.read.records import MEMORY_LIMIT_BYTES, CaptureTrace, ReadOptions
from rooflines.profiler.read.sources import is_url, shown
from rooflines.profiler.records import Run
from rooflines.profiler.tree.external_trace import run_of_trace
from rooflines.roofline.analysis import ANALYSIS_SCHEMA, Analysis
from rooflines.roofline.analyze import analyze as _analyze
from rooflines.roofline.judge.judge import Judged
from rooflines.serial import OLDER_SCHEMAS, read_json

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from rooflines.pipeline.sources import Source
    from rooflines.profiler.monitor.monitored import Monitored
    from rooflines.roofline.judge.usage.device_usage import MonitorAnalysis
    from rooflines.roofline.ranks.records import RankAnalysis

_STORED = re.compile(rb'\s*\{\s*"schema"\s*:\s*"(rooflines\.[a-z]+/[0-9]+)"')


class AnalyzeOptions(TypedDict, total=False):
    """The keyword arguments of ``analyze`` and ``analyze_ranks``."""

    #: of one run or trace
    ceilings: Ceilings | str | None
    capture: Captures | None
    inductor_cache: Path | str | None
    #: of several ranks
    jobs: int | None
    dask: str | None
    #: of every trace
    partial: bool
    memory_limit_bytes: int
    keep_paths: bool
    progress: Progress | None


class Analyzed(NamedTuple):
    """A source and its analysis."""

    #: None for several ranks
    record: Any
    analysis: Analysis | RankAnalysis | MonitorAnalysis
    #: what the analysis of a run or a trace is made of
    judged: Judged | None = None


@overload
def analyze(source: Run | Path | str, **options: Unpack[AnalyzeOptions]) -> Analysis: ...


@overload
def analyze(source: Monitored) -> MonitorAnalysis: ...


def analyze(
    source: Run | Monitored | Path | str, **options: Unpack[AnalyzeOptions]
) -> Analysis | MonitorAnalysis:
    """Analyze a run, a PyTorch trace or a monitored program; nothing is written. ``analyze_ranks`` analyzes
    several ranks.

    ``source`` is a ``Run`` or its directory, or a trace (a file, its directory, or a URL that fsspec opens).
    A ``Monitored`` is what ``monitor`` returns.

    Args:
        ceilings: ``measured`` (on this machine, now), ``spec``, a file, a device name, or ``Ceilings``. By
            default those stored with the run; for a trace, the data sheet of the device that it names.
        capture: For a trace that launches CUDA or HIP graphs: the trace of their capture, a folder of such
            traces, or a list.
        inductor_cache: Directory with the code that inductor generated for the program, which counts its
            kernels exactly. The files are read, not executed.
        partial: Read a truncated trace up to the cut; the notes say what is missing.
        memory_limit_bytes: Maximum memory for trace data.
        keep_paths: Name source files by their whole paths as recorded, instead of the file and its folder.
        progress: Called with each stage.

    Raises RunError and TraceError for a source that cannot be read, UsageError for several ranks.
    """
    several: object = source
    if isinstance(source, Path | str) and is_directory(source) and not captured_beside(source):
        found = find_sources([source])
        source, several = found[0], found if len(found) > 1 else None
    if isinstance(several, list | tuple):
        raise UsageError(
            f"analyze takes one run or trace, got {len(several)}; use analyze_ranks for the ranks of a job."
        )
    return cast("Analysis | MonitorAnalysis", analyze_source(source, **options).analysis)


def analyze_ranks(
    sources: Sequence[Path | str] | Path | str, **options: Unpack[AnalyzeOptions]
) -> RankAnalysis:
    """Analyze the traces of several ranks of one job, each and together, with their collectives matched;
    nothing is written.

    ``sources`` are files, run directories, directories of traces, patterns or URLs, or a single one of them.

    Args:
        jobs: Number of processes that read traces. They are spawned, so a script needs ``if __name__ ==
            "__main__":``.
        dask: Address of a Dask scheduler whose workers read the traces.
        partial, memory_limit_bytes (in each process), keep_paths: As for ``analyze``.
        progress: Called with each stage.

    Raises TraceError for a trace that cannot be read, UsageError for two of one rank.
    """
    several = [sources] if isinstance(sources, Path | str) else sources
    return cast("RankAnalysis", analyze_source(several, **options).analysis)


def check_options(options: Mapping[str, object]) -> None:
    """Raise TypeError for one that ``analyze`` does not have."""
    if unknown := options.keys() - AnalyzeOptions.__annotations__.keys():
        raise TypeError(f"analyze() got an unexpected keyword argument {min(unknown)!r}")


def analyze_source(source: Source, **options: Unpack[AnalyzeOptions]) -> Analyzed:
    """Return the record of any source and its analysis. Raises UsageError for an option that does not apply
    to the source, TypeError for one that does not exist."""
    check_options(options)
    given = cast("AnalyzeOptions", {name: value for name, value in options.items() if value is not None})
    of_one = {"ceilings", "capture", "inductor_cache"} & given.keys()
    of_ranks = {"jobs", "dask"} & given.keys()
    if isinstance(source, Run | Path | str):
        _refuse("one run or trace", of_ranks)
        return _one(source, given)
    if isinstance(source, Sequence):
        _refuse("several ranks", of_one)
        return Analyzed(None, _several(source, given))
    from rooflines.roofline.judge.usage.device_usage import analyze_monitored

    _refuse("a monitored program", of_one | of_ranks)
    return Analyzed(source, analyze_monitored(source))


def _refuse(source: str, names: Iterable[str]) -> None:
    for name in sorted(names):
        raise UsageError(f"{arg(name)} does not apply to {source}.", hint=f"Remove {arg(name)}.")


def _reading(options: AnalyzeOptions) -> ReadOptions:
    limit = options.get("memory_limit_bytes", MEMORY_LIMIT_BYTES)
    return ReadOptions(options.get("partial", False), limit, options.get("keep_paths", False))


@paused()
def _one(source: Run | Path | str, options: AnalyzeOptions) -> Analyzed:
    """A run or trace; a directory with a trace and the traces of its graphs' capture is that trace with
    them."""
    progress = options.get("progress") or Silent()
    capture = options.get("capture")
    reading = _reading(options)
    beside = captured_beside(source) if isinstance(source, Path | str) else None
    if beside is not None:
        source, capture = beside[0], capture if capture is not None else beside[1]
    captured = find_captures(capture, "" if isinstance(source, Run) else str(source))
    trace = None
    if isinstance(source, Run):
        run = source
    elif is_directory(source):
        run = load(source)
    elif is_url(source) or os.path.exists(source):
        progress.stage("reading the trace", None)
        trace = read(source, reading)
        run = run_of_trace(source, trace, default_command())
    else:
        raise TraceError(
            f"no such run or trace: {str(source)!r}.",
            hint="Give a run directory, or a trace as a file or URL.",
        )
    if captured:
        progress.stage("reading the capture", None)
    captures = [CaptureTrace(read(path, reading), shown(path), tokens) for path, tokens in captured.items()]
    roofs: Ceilings | None = None  # those stored with the run
    if trace is not None:
        progress.stage("analyzing", None)
    ceilings, environment = options.get("ceilings"), run.facts.environment
    if ceilings is not None:
        roofs = given_ceilings(ceilings, environment.device, recorded=environment)(run, False, progress)
    elif trace is not None:
        roofs, why_not = sheet_of(environment)
        if why_not:
            run = replace(run, facts=replace(run.facts, notes=(*run.facts.notes, why_not)))
    code = options.get("inductor_cache")
    judged = _analyze(run, roofs, trace, captures=captures, reading=reading, inductor_cache=code)
    return Analyzed(run, judged.analysis, judged)


def _several(sources: Sequence[Path | str], options: AnalyzeOptions) -> RankAnalysis:
    from rooflines.roofline.ranks.analyze import analyze_parts
    from rooflines.roofline.ranks.readers import read_ranks

    jobs, progress = options.get("jobs"), options.get("progress") or Silent()
    if jobs is not None and jobs < 1:
        raise UsageError(
            f"{arg('jobs')} must be at least 1, got {jobs}.", hint="Omit it to use all processors."
        )
    traces = find_sources(sources)
    progress.stage(f"reading traces of {len(traces)} ranks", len(traces))
    reading, dask = _reading(options), options.get("dask")
    parts = read_ranks(traces, jobs=jobs, dask=dask, reading=reading, judge=sheet_of, done=progress.advance)
    progress.stage("matching collectives", None)
    return analyze_parts(parts)


def read_analysis(source: Run | Path | str, **options: Unpack[AnalyzeOptions]) -> Analysis:
    """Return the analysis of a run, its directory or a trace, derived again, or the one stored in a file of
    rooflines.

    Raises DataError for a file of ours that is corrupt or something else, UsageError for ``ceilings`` with a
    stored analysis, which holds no times to judge again.
    """
    stored = None if isinstance(source, Run) else _stored_analysis(source)
    if stored is None:
        return cast("Analysis", analyze_source(source, **options).analysis)
    if options.get("ceilings") is not None:
        raise UsageError(
            f"{str(source)!r} is an analysis; {arg('ceilings')} requires the run or trace.",
            hint="Give the run directory or the trace.",
        )
    return stored


def _stored_analysis(path: Path | str) -> Analysis | None:
    """The analysis in a JSON file of rooflines; None for anything else, such as a trace."""
    if is_url(path) or not os.path.isfile(path):
        return None
    try:
        with open(path, "rb") as file:
            schema = _STORED.match(file.read(1024))
        if schema is None:
            return None
        name = schema[1].decode()
        if OLDER_SCHEMAS.get(name, name) != ANALYSIS_SCHEMA:
            raise DataError(
                f"{str(path)!r} has schema {name!r}; this version compares {ANALYSIS_SCHEMA!r}.",
                hint="Give the run directory, a trace, or an analysis.json of this version.",
            )
        return read_json(Path(path), Analysis)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        message = f"the analysis {str(path)!r} is corrupt: {error}."
        raise DataError(message, hint="Write it again with 'rooflines analyze'.") from None
    except OSError:
        return None  # reading it as a trace says why
