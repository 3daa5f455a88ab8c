"""``rooflines.analyze`` and ``rooflines.report``: one run or trace, several ranks, or a monitored program."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, overload

from rooflines.arguments import arg
from rooflines.device_specs.records import Ceilings
from rooflines.errors import UsageError
from rooflines.pipeline import reading
from rooflines.pipeline.captures import Captures, captured_beside, with_captures
from rooflines.pipeline.reading import Reading, ReadingTraces
from rooflines.profiler.progress import Progress
from rooflines.profiler.records import Run
from rooflines.profiler.trace.columns import MEMORY_LIMIT_BYTES
from rooflines.roofline.analysis import Analysis

if TYPE_CHECKING:
    from typing import TypeAlias

    from typing_extensions import Unpack

    from rooflines.profiler.monitor.monitored import Monitored
    from rooflines.roofline.ranks.records import RankAnalysis
    from rooflines.roofline.usage.device_usage import MonitorAnalysis

    Several: TypeAlias = list[str] | list[Path] | tuple[Path | str, ...]
    Source: TypeAlias = Run | Monitored | Path | str | Several


class ReadingRanks(ReadingTraces, total=False):
    """How the traces of several ranks are read: by ``jobs`` processes, or by the workers of the Dask scheduler at ``dask``."""

    jobs: int | None
    dask: str | None


class ReadingAny(Reading, ReadingRanks, total=False):
    """How any source is read."""


@overload
def analyze(source: Run | Path | str, **options: Unpack[Reading]) -> Analysis: ...


@overload
def analyze(source: Several, **options: Unpack[ReadingRanks]) -> RankAnalysis: ...


@overload
def analyze(source: Monitored) -> MonitorAnalysis: ...


@overload
def analyze(source: Source, **options: Unpack[ReadingAny]) -> Analysis | RankAnalysis | MonitorAnalysis: ...


def analyze(
    source: Source,
    *,
    ceilings: Ceilings | str | None = None,
    capture: Captures | None = None,
    jobs: int | None = None,
    dask: str | None = None,
    partial: bool = False,
    memory_limit_bytes: int = MEMORY_LIMIT_BYTES,
    inductor_cache: Path | str | None = None,
    progress: Progress | None = None,
) -> Analysis | RankAnalysis | MonitorAnalysis:
    """Analyze a run, a PyTorch trace, the traces of several ranks, or a monitored program; nothing is written.

    ``source`` is a ``Run`` or its directory, or a trace (a file, or a URL that fsspec opens). A list holds the ranks of one job:
    traces, run directories, directories of traces, or patterns. A ``Monitored`` is what ``monitor`` returns.

    Args:
        ceilings: For one run or trace: ``measured`` (on this machine, now), ``spec``, a file, a device name, or ``Ceilings``. By
            default those stored with the run; for a trace, the data sheet of the device that it names.
        capture: For one trace that launches CUDA or HIP graphs: the trace of their capture, a folder of such traces, or a list.
        jobs: For several ranks: number of processes that read traces. They are spawned, so a script needs
            ``if __name__ == "__main__":``.
        dask: For several ranks: address of a Dask scheduler whose workers read the traces.
        partial: Read a truncated trace up to the cut; the notes say what is missing.
        memory_limit_bytes: Maximum memory for trace data, in each process.
        inductor_cache: For one run or trace: directory with the code that inductor generated for the program, which counts its
            kernels exactly. The files are read, not executed.
        progress: Called with each stage.

    Raises RunError and TraceError for a source that cannot be read, UsageError for an argument that does not apply to it.
    """
    if isinstance(source, Run | Path | str):
        _refuse("one run or trace", jobs=jobs, dask=dask)
        source, capture = with_captures(source, capture)
        return reading.analyze(
            source, ceilings=ceilings, capture=capture, partial=partial, memory_limit_bytes=memory_limit_bytes,
            inductor_cache=inductor_cache, progress=progress,
        )  # fmt: skip
    if not isinstance(source, Sequence):
        from rooflines.pipeline.monitoring import analyze_monitored

        _refuse("a monitored program", ceilings=ceilings, capture=capture, jobs=jobs, dask=dask, inductor_cache=inductor_cache)
        return analyze_monitored(source)
    from rooflines.pipeline.several import analyze_ranks

    _refuse("several ranks", ceilings=ceilings, capture=capture, inductor_cache=inductor_cache)
    return analyze_ranks(source, jobs=jobs, dask=dask, partial=partial, memory_limit_bytes=memory_limit_bytes, progress=progress)


def report(
    source: Source,
    formats: Sequence[str] | None = None,
    *,
    output: Path | str | None = None,
    ceilings: Ceilings | str | None = None,
    capture: Captures | None = None,
    jobs: int | None = None,
    dask: str | None = None,
    partial: bool = False,
    memory_limit_bytes: int = MEMORY_LIMIT_BYTES,
    inductor_cache: Path | str | None = None,
    progress: Progress | None = None,
) -> dict[str, Path]:
    """Analyze ``source`` and write its reports; returns the files by format. ``formats`` are by default all that there are for it.

    The reports are written into the directory ``output``: by default the one of the run or monitored program, or a new one under
    ``runs``. The directory of a monitored program is a source, too. The other parameters are those of ``analyze``. Raises UsageError
    for an unknown format, OutputError for a directory that cannot be written.
    """
    from rooflines.pipeline.reporting import report_on
    from rooflines.pipeline.several import analyze_ranks, report_ranks
    from rooflines.profiler.monitor.monitored import Monitored, is_monitored

    chosen = {} if formats is None else {"formats": formats}
    directory = None if output is None else Path(output)
    if isinstance(source, Monitored) or (isinstance(source, Path | str) and is_monitored(source)):
        from rooflines.pipeline.monitoring import report_monitored

        _refuse("a monitored program", ceilings=ceilings, capture=capture, jobs=jobs, dask=dask, inductor_cache=inductor_cache)
        return report_monitored(source, **chosen, output=directory, progress=progress)
    if isinstance(source, Run | Path | str):
        _refuse("one run or trace", jobs=jobs, dask=dask)
        source, capture = with_captures(source, capture)
        return report_on(
            source, **chosen, output=directory, ceilings=ceilings, capture=capture, partial=partial,
            memory_limit_bytes=memory_limit_bytes, inductor_cache=inductor_cache, progress=progress,
        )  # fmt: skip
    _refuse("several ranks", ceilings=ceilings, capture=capture, inductor_cache=inductor_cache)
    ranks = analyze_ranks(source, jobs=jobs, dask=dask, partial=partial, memory_limit_bytes=memory_limit_bytes, progress=progress)
    return report_ranks(ranks, **chosen, output=directory, progress=progress)


def find_source(names: Sequence[str]) -> Monitored | str | list[str]:
    """The source that ``names`` stand for: a monitored program, one run or trace, or several ranks. Raises UsageError where none is."""
    if any(map(reading.is_directory, names)):
        from rooflines.profiler.monitor import monitored

        if any(map(monitored.is_monitored, names)):
            if len(names) > 1:
                raise UsageError("monitored programs cannot be analyzed together.", hint="Give one directory.")
            return monitored.load(names[0])
    if len(names) == 1 and captured_beside(names[0]):
        return names[0]
    from rooflines.pipeline.several import find_sources

    found = find_sources(names)
    return found if len(found) > 1 else found[0]


def _refuse(source: str, **arguments: object) -> None:
    """Raise UsageError for arguments that do not apply to ``source`` and have a value."""
    for name, value in arguments.items():
        if value is not None:
            raise UsageError(f"{arg(name)} does not apply to {source}.", hint=f"Remove {arg(name)}.")
