"""Sources of an analysis: a run, its directory, any trace, or a stored analysis."""

from __future__ import annotations

import os
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import msgspec

from rooflines.arguments import arg
from rooflines.device_specs.records import Ceilings
from rooflines.errors import DataError, TraceError, UsageError
from rooflines.pipeline.captures import Captures, find_captures, read_captures, with_captures
from rooflines.pipeline.ceilings import given_ceilings, sheet_of
from rooflines.profiler.external_trace import run_of_trace
from rooflines.profiler.progress import Progress, Silent
from rooflines.profiler.records import Run
from rooflines.profiler.run import load
from rooflines.profiler.trace import collection
from rooflines.profiler.trace.columns import MEMORY_LIMIT_BYTES
from rooflines.profiler.trace.cut import whole_part
from rooflines.profiler.trace.reader import read_trace
from rooflines.profiler.trace.url import is_url, shown
from rooflines.roofline.analysis import ANALYSIS_SCHEMA, Analysis
from rooflines.roofline.analyze import analyze as _analyze
from rooflines.serial import read_json

if TYPE_CHECKING:
    from typing_extensions import Unpack


class ReadingTraces(TypedDict, total=False):
    """How traces are read: with ``partial``, a truncated one up to the cut, of which the notes say what is missing.

    ``memory_limit_bytes`` limits the memory for trace data.
    """

    partial: bool
    memory_limit_bytes: int
    progress: Progress | None


class Reading(ReadingTraces, total=False):
    """How a run or trace is read and judged: the arguments of ``analyze``.

    ``ceilings`` replaces those stored with the run: ``measured`` (on this machine, now), ``spec``, a file, the name of a device, or
    ``Ceilings``; by default a trace is judged by the data sheet of the device that it names, if there is one. ``capture`` are the
    traces in which the graphs that the trace launches were captured, as files or folders. ``inductor_cache`` is a directory with the
    code that inductor generated for the program.
    """

    ceilings: Ceilings | str | None
    capture: Captures | None
    inductor_cache: Path | str | None


def analyze(source: Run | Path | str, **options: Unpack[Reading]) -> Analysis:
    """Analyze a run from its raw files, a run directory or any PyTorch trace (a file, or a URL that fsspec opens); nothing is written.

    Raises RunError and TraceError for a source that cannot be read.
    """
    return analyze_trace(source, **options)[1]


@collection.paused()
def analyze_trace(
    source: Run | Path | str,
    *,
    ceilings: Ceilings | str | None = None,
    capture: Captures | None = None,
    partial: bool = False,
    memory_limit_bytes: int = MEMORY_LIMIT_BYTES,
    inductor_cache: Path | str | None = None,
    progress: Progress | None = None,
) -> tuple[Run, Analysis]:
    """Return the run in ``source``, such as that recorded in a trace, and its analysis; the parameters are those of ``analyze``."""
    progress = progress or Silent()
    found = find_captures(capture, "" if isinstance(source, Run) else str(source))
    trace = None
    if isinstance(source, Run):
        run = source
    elif is_directory(source):
        run = load(source)
    elif is_url(source) or os.path.exists(source):
        progress.stage("reading the trace", None)
        trace = whole_part(read_trace(source, memory_limit_bytes=memory_limit_bytes, partial=partial))
        run = run_of_trace(source, trace, default_command())
    else:
        raise TraceError(f"no such run or trace: {str(source)!r}.", hint="Give a run directory, or a trace as a file or URL.")
    captures = read_captures(found, partial=partial, memory_limit_bytes=memory_limit_bytes, progress=progress)
    if trace is not None:
        progress.stage("analyzing", None)
    judges: Ceilings | None = None  # those stored with the run
    if ceilings is not None:
        judges = given_ceilings(ceilings, run.facts.environment.device, recorded=run.facts.environment)(run, False, progress)
    elif trace is not None:
        judges, why_not = sheet_of(run.facts.environment)
        if why_not:
            facts = msgspec.structs.replace(run.facts, notes=(*run.facts.notes, why_not))
            run = msgspec.structs.replace(run, facts=facts)
    return run, _analyze(run, judges, trace, captures=captures, partial=partial, inductor_cache=inductor_cache)


def is_directory(source: Path | str) -> bool:
    """Whether ``source`` is a directory here, and so a run, rather than a trace."""
    return not is_url(source) and os.path.isdir(source)


def read_analysis(source: Run | Path | str, *, ceilings: Ceilings | str | None = None, **options: Unpack[ReadingTraces]) -> Analysis:
    """Return the analysis of a run, its directory or a trace, derived again, or the one stored in a file of rooflines.

    A directory with a trace and the traces of its graphs' capture is that trace with them. The parameters are those of ``analyze``.
    Raises DataError for a file of ours that is corrupt or something else, UsageError for ``ceilings`` with a stored analysis, which
    holds no times to judge again.
    """
    if not isinstance(source, Run):
        found = _stored_schema(source)
        if found:
            if ceilings is not None:
                raise UsageError(
                    f"{str(source)!r} is an analysis; {arg('ceilings')} requires the run or trace.",
                    hint="Give the run directory or the trace.",
                )
            return _stored_analysis(Path(source), found)
    source, capture = with_captures(source)
    return analyze(source, ceilings=ceilings, capture=capture, **options)


_STORED = re.compile(rb'\s*\{\s*"schema"\s*:\s*"(rooflines\.[a-z]+/[0-9]+)"')


def _stored_schema(source: Path | str) -> str:
    """The schema of a JSON file of rooflines; empty for anything else, such as a trace."""
    if is_url(source) or not os.path.isfile(source):
        return ""
    try:
        with Path(source).open("rb") as file:
            found = _STORED.match(file.read(1024))
    except OSError:
        return ""
    return found[1].decode() if found else ""


def _stored_analysis(path: Path, schema: str) -> Analysis:
    if schema != ANALYSIS_SCHEMA:
        raise DataError(
            f"{str(path)!r} has schema {schema!r}; this version compares {ANALYSIS_SCHEMA!r}.",
            hint="Give the run directory, a trace, or an analysis.json of this version.",
        )
    try:
        return read_json(path, Analysis)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DataError(f"the analysis {str(path)!r} is corrupt: {error}.", hint="Write it again with 'rooflines analyze'.") from None
    except OSError as error:
        raise DataError(f"cannot read {str(path)!r}: {error.strerror or error}.", hint="Check the file's permissions.") from None


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
