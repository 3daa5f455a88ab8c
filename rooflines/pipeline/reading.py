"""Analyze any source: a run, its directory, any trace, the ranks of a job, a monitored program, or a stored analysis.

Capture traces of CUDA and HIP graphs belong to the trace that launches the graphs: files, folders, and the layout in which vLLM, SGLang
and xDiT record them.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, cast, overload

import msgspec

from rooflines.arguments import arg
from rooflines.device_specs.records import Ceilings
from rooflines.errors import DataError, TraceError, UsageError
from rooflines.pipeline.ceilings import given_ceilings, sheet_of
from rooflines.profiler.directory import RUN_FILE, load
from rooflines.profiler.external_trace import run_of_trace
from rooflines.profiler.progress import Progress, Silent
from rooflines.profiler.records import Run
from rooflines.profiler.trace.reader import paused, read
from rooflines.profiler.trace.records import READ_DEFAULTS, CaptureTrace, ReadOptions
from rooflines.profiler.trace.sources import find_traces, is_url, rank_in_name, shown
from rooflines.roofline.analysis import ANALYSIS_SCHEMA, Analysis
from rooflines.roofline.analyze import Divided
from rooflines.roofline.analyze import analyze as _analyze
from rooflines.serial import read_json

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from rooflines.profiler.monitor.monitored import Monitored
    from rooflines.roofline.ranks.records import RankAnalysis
    from rooflines.roofline.usage.device_usage import MonitorAnalysis

    Several: TypeAlias = list[str] | list[Path] | tuple[Path | str, ...]
    Source: TypeAlias = Run | Monitored | Path | str | Several

Captures: TypeAlias = Path | str | Sequence[Path | str]

DETAILS = "execution_details.json"
_FOLDER = "capture_traces"
_LARGEST_DETAILS = 1 << 20
_BATCH = re.compile(r"bs_(\d{1,9})_")
_STORED = re.compile(rb'\s*\{\s*"schema"\s*:\s*"(rooflines\.[a-z]+/[0-9]+)"')


class Reading(TypedDict, total=False):
    """How traces are read: the fields of ``ReadOptions`` that a user chooses."""

    partial: bool
    memory_limit_bytes: int
    keep_paths: bool


class TraceOptions(Reading, total=False):
    """The keyword arguments of ``analyze``."""

    ceilings: Ceilings | str | None
    capture: Captures | None
    inductor_cache: Path | str | None
    progress: Progress | None


class SourceOptions(TraceOptions, total=False):
    """Those of ``analyze`` and ``analyze_ranks``, for a source that may be either."""

    jobs: int | None
    dask: str | None


@overload
def analyze(source: Run | Path | str, **options: Unpack[TraceOptions]) -> Analysis: ...


@overload
def analyze(source: Monitored) -> MonitorAnalysis: ...


def analyze(source: Run | Monitored | Path | str, **options: Unpack[TraceOptions]) -> Analysis | MonitorAnalysis:
    """Analyze a run, a PyTorch trace or a monitored program; nothing is written. ``analyze_ranks`` analyzes several ranks.

    ``source`` is a ``Run`` or its directory, or a trace (a file, its directory, or a URL that fsspec opens). A ``Monitored`` is what
    ``monitor`` returns.

    Args:
        ceilings: ``measured`` (on this machine, now), ``spec``, a file, a device name, or ``Ceilings``. By default those stored with
            the run; for a trace, the data sheet of the device that it names.
        capture: For a trace that launches CUDA or HIP graphs: the trace of their capture, a folder of such traces, or a list.
        inductor_cache: Directory with the code that inductor generated for the program, which counts its kernels exactly. The files
            are read, not executed.
        partial: Read a truncated trace up to the cut; the notes say what is missing.
        memory_limit_bytes: Maximum memory for trace data.
        keep_paths: Name source files by their whole paths as recorded, instead of the file and its folder.
        progress: Called with each stage.

    Raises RunError and TraceError for a source that cannot be read, UsageError for several ranks.
    """
    several: Sequence[object] | None = source if isinstance(source, list | tuple) else None
    if isinstance(source, Path | str) and is_directory(source) and not captured_beside(source):
        found = find_sources([source])
        source, several = found[0], found if len(found) > 1 else None
    if several is not None:
        raise UsageError(f"analyze takes one run or trace, got {len(several)}; use analyze_ranks for the ranks of a job.")
    return cast("Analysis | MonitorAnalysis", analyze_source(source, **options)[1])


def analyze_source(
    source: Source, *, divided: list[Divided] | None = None, **options: Unpack[SourceOptions]
) -> tuple[Any, Analysis | RankAnalysis | MonitorAnalysis]:
    """Return the record of any source (``Run`` or ``Monitored``; None for several ranks) and its analysis.

    ``divided`` is that of ``analyze_trace``. Raises UsageError for an option that does not apply to the source.
    """
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    of_one, of_ranks = {"ceilings", "capture", "inductor_cache"} & given.keys(), {"jobs", "dask"} & given.keys()
    if isinstance(source, Run | Path | str):
        _refuse("one run or trace", of_ranks)
        return analyze_trace(source, divided=divided, **given)
    if isinstance(source, Sequence):
        _refuse("several ranks", of_one)
        return None, analyze_ranks(source, **given)
    from rooflines.roofline.usage.device_usage import analyze_monitored

    _refuse("a monitored program", of_one | of_ranks)
    return source, analyze_monitored(source)


def _refuse(source: str, names: Iterable[str]) -> None:
    for name in sorted(names):
        raise UsageError(f"{arg(name)} does not apply to {source}.", hint=f"Remove {arg(name)}.")


@paused()
def analyze_trace(
    source: Run | Path | str,
    *,
    ceilings: Ceilings | str | None = None,
    capture: Captures | None = None,
    inductor_cache: Path | str | None = None,
    progress: Progress | None = None,
    divided: list[Divided] | None = None,
    **reading: Unpack[Reading],
) -> tuple[Run, Analysis]:
    """Return the run in ``source``, such as that recorded in a trace, and its analysis; the parameters are those of ``analyze``.

    What the analysis is made of is added to ``divided``. A directory with a trace and the traces of its graphs' capture is that trace
    with them.
    """
    progress, read_options = progress or Silent(), ReadOptions(**reading)
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
        trace = read(source, read_options)
        run = run_of_trace(source, trace, default_command())
    else:
        raise TraceError(f"no such run or trace: {str(source)!r}.", hint="Give a run directory, or a trace as a file or URL.")
    if captured:
        progress.stage("reading the capture", None)
    captures = [CaptureTrace(read(path, read_options), shown(path), tokens) for path, tokens in captured.items()]
    judges: Ceilings | None = None  # those stored with the run
    if trace is not None:
        progress.stage("analyzing", None)
    if ceilings is not None:
        judges = given_ceilings(ceilings, run.facts.environment.device, recorded=run.facts.environment)(run, False, progress)
    elif trace is not None:
        judges, why_not = sheet_of(run.facts.environment)
        if why_not:
            facts = msgspec.structs.replace(run.facts, notes=(*run.facts.notes, why_not))
            run = msgspec.structs.replace(run, facts=facts)
    return run, _analyze(run, judges, trace, captures=captures, reading=read_options, inductor_cache=inductor_cache, divided=divided)


def analyze_ranks(
    sources: Several | Path | str,
    *,
    jobs: int | None = None,
    dask: str | None = None,
    progress: Progress | None = None,
    **reading: Unpack[Reading],
) -> RankAnalysis:
    """Analyze the traces of several ranks of one job, each and together, with their collectives matched; nothing is written.

    ``sources`` are files, run directories, directories of traces, patterns or URLs, or a single one of them.

    Args:
        jobs: Number of processes that read traces. They are spawned, so a script needs ``if __name__ == "__main__":``.
        dask: Address of a Dask scheduler whose workers read the traces.
        progress: Called with each stage.
        reading: ``partial`` and ``memory_limit_bytes`` (in each process), as for ``analyze``.

    Raises TraceError for a trace that cannot be read, UsageError for two of one rank.
    """
    from rooflines.roofline.ranks.analyze import analyze_parts
    from rooflines.roofline.ranks.readers import read_ranks

    if jobs is not None and jobs < 1:
        raise UsageError(f"{arg('jobs')} must be at least 1, got {jobs}.", hint="Omit it to use all processors.")
    progress = progress or Silent()
    traces = find_sources([sources] if isinstance(sources, Path | str) else sources)
    progress.stage(f"reading traces of {len(traces)} ranks", len(traces))
    parts = read_ranks(traces, jobs=jobs, dask=dask, reading=ReadOptions(**reading), judge=sheet_of, done=progress.advance)
    progress.stage("matching collectives", None)
    return analyze_parts(parts)


def read_analysis(
    source: Run | Path | str,
    *,
    ceilings: Ceilings | str | None = None,
    reading: ReadOptions = READ_DEFAULTS,
    progress: Progress | None = None,
) -> Analysis:
    """Return the analysis of a run, its directory or a trace, derived again, or the one stored in a file of rooflines.

    The parameters are those of ``analyze``. Raises DataError for a file of ours that is corrupt or something else, UsageError for
    ``ceilings`` with a stored analysis, which holds no times to judge again.
    """
    stored = None if isinstance(source, Run) else _stored_analysis(source)
    if stored is not None:
        if ceilings is not None:
            raise UsageError(
                f"{str(source)!r} is an analysis; {arg('ceilings')} requires the run or trace.",
                hint="Give the run directory or the trace.",
            )
        return stored
    options: Reading = {
        "partial": reading.partial, "memory_limit_bytes": reading.memory_limit_bytes, "keep_paths": reading.keep_paths,
    }  # fmt: skip
    return analyze_trace(source, ceilings=ceilings, progress=progress, **options)[1]


def _stored_analysis(path: Path | str) -> Analysis | None:
    """The analysis in a JSON file of rooflines; None for anything else, such as a trace."""
    if is_url(path) or not os.path.isfile(path):
        return None
    try:
        with open(path, "rb") as file:
            schema = _STORED.match(file.read(1024))
        if schema is None:
            return None
        if schema[1].decode() != ANALYSIS_SCHEMA:
            raise DataError(
                f"{str(path)!r} has schema {schema[1].decode()!r}; this version compares {ANALYSIS_SCHEMA!r}.",
                hint="Give the run directory, a trace, or an analysis.json of this version.",
            )
        return read_json(Path(path), Analysis)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DataError(f"the analysis {str(path)!r} is corrupt: {error}.", hint="Write it again with 'rooflines analyze'.") from None
    except OSError:
        return None  # reading it as a trace says why


# --- which source it is ------------------------------------------------------------------------------------------------------------


def is_directory(source: Path | str) -> bool:
    """Whether ``source`` is a directory here, and so a run, rather than a trace."""
    return not is_url(source) and os.path.isdir(source)


def find_source(names: Sequence[str]) -> Monitored | str | list[str]:
    """The source that ``names`` stand for: a monitored program, one run or trace, or several ranks. Raises UsageError where none is."""
    if any(map(is_directory, names)):
        from rooflines.profiler.monitor import monitored

        if any(map(monitored.is_monitored, names)):
            if len(names) > 1:
                raise UsageError("monitored programs cannot be analyzed together.", hint="Give one directory.")
            return monitored.load(names[0])
    if len(names) == 1 and captured_beside(names[0]):
        return names[0]
    sources = find_sources(names)
    return sources if len(sources) > 1 else sources[0]


def find_sources(sources: Sequence[Path | str]) -> list[str]:
    """Resolve ``sources``: one run or trace, for ``analyze``, or the traces of several ranks, for ``analyze_ranks``.

    A source is a file, a directory of traces, a pattern, a URL, a run, or the directory of a job with a run for each rank. Raises
    UsageError for a pattern without traces, and for such a directory where more than it is given.
    """
    if len(sources) == 1 and is_directory(sources[0]):
        # A directory without traces is a run, a job or nothing; loading it says which.
        traces = [] if _is_run(sources[0]) else find_traces(sources, may_be_empty=True) or _ranks_of_job(Path(sources[0]))
        return traces or [str(sources[0])]
    return [trace for source in sources for trace in ([_trace_of_run(source)] if _is_run(source) else find_traces([source]))]


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


def default_command() -> str:
    """The shell line that started this process, with the programs' names instead of their paths and no credentials in URLs; empty in a
    notebook."""
    program, *arguments = map(shown, sys.argv or [""])
    path = Path(program)
    if path.name in ("rooflines", "rooflines.exe") or (path.name == "__main__.py" and path.parent.name == "rooflines"):
        return shlex.join(["rooflines", *arguments])
    if path.name.startswith(("ipykernel", "colab_kernel")):
        return ""
    return shlex.join(["python", program, *arguments]) if program else "python"


# --- traces of captures ------------------------------------------------------------------------------------------------------------


class _Detail(msgspec.Struct):
    """A line of ``execution_details.json``: a trace of captures, and for how many tokens it captured."""

    file: str
    batch_size: int | None = None


def captured_beside(source: Path | str) -> tuple[str, str] | None:
    """The trace and the folder of its captures where ``source`` is a directory that holds both; None for anything else."""
    if is_url(source) or not os.path.isdir(folder := os.path.join(source, _FOLDER)):
        return None
    if not os.path.isfile(os.path.join(folder, DETAILS)) and not find_traces([folder], may_be_empty=True):
        return None
    traces = find_traces([source], may_be_empty=True)
    return (traces[0], folder) if len(traces) == 1 else None


def find_captures(captures: Captures | None, of: str = "") -> dict[str, int | None]:
    """The capture traces in files and folders, each with the number of tokens that it was captured for (None: not recorded).

    Of a folder with the captures of several ranks, those of the rank in the name ``of`` of the trace. Raises TraceError for a path that
    does not exist, DataError for a damaged record.
    """
    given = () if captures is None else [captures] if isinstance(captures, Path | str) else captures
    return dict(pair for source in given for pair in _files(source, rank_in_name(of)))


def _files(source: Path | str, rank: int | None) -> list[tuple[str, int | None]]:
    """The capture traces of one source, each with the number of tokens that it was captured for."""
    if not is_url(source) and not os.path.exists(source):
        raise TraceError(f"capture trace not found: {str(source)!r}.", hint="Give an existing file or folder.")
    if is_url(source):
        return [(path, None) for path in find_traces([source])]
    if not os.path.isdir(source):
        sizes = _details(Path(source).parent)
        return [(str(source), sizes.get(Path(source).name))]
    sizes = _details(Path(source))
    paths = [str(Path(source) / name) for name in sizes] or find_traces([source])
    own = [path for path in paths if rank is None or rank_in_name(path) in (rank, None)]
    return [(path, sizes.get(Path(path).name, _size(path))) for path in own or paths]


def _size(path: str) -> int | None:
    """The batch in the name of a capture of SGLang: ``bs_32_rank0.json.gz``."""
    batch = _BATCH.match(os.path.basename(path))
    return int(batch[1]) if batch else None


def _details(folder: Path) -> dict[str, int | None]:
    """The traces listed in the record of ``folder``, each with its size; without one where several are listed for a file."""
    path = folder / DETAILS
    try:
        if not path.is_file() or path.stat().st_size > _LARGEST_DETAILS:
            return {}
        details = msgspec.json.decode(path.read_bytes(), type=list[_Detail])
    except (msgspec.DecodeError, UnicodeDecodeError, OSError, RecursionError) as error:
        raise DataError(f"cannot read {str(path)!r}: {error}.", hint="Give the capture traces as files.") from None
    if any(detail.file != os.path.basename(detail.file) for detail in details):
        raise DataError(f"{str(path)!r} names a file outside of its folder.", hint="Give the capture traces as files.")
    times = Counter(detail.file for detail in details)
    return {detail.file: detail.batch_size if times[detail.file] == 1 else None for detail in details}
