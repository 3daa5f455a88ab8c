# ruff: noqa: T201 (a command line prints)
"""``rooflines analyze``: a run or a trace, derived anew, or the traces of several ranks together."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Optional

import typer

from rooflines.cli.app import app
from rooflines.cli.monitored import refuse_for_monitored
from rooflines.cli.options import CEILINGS_HELP, Formulas, MemoryLimit, Partial, size
from rooflines.cli.output import console, progress_bar
from rooflines.cli.ranks import DaskAddress, Jobs, refuse_for_one, refuse_for_several
from rooflines.errors import OutputError


class AnalysisFormat(str, Enum):
    """How ``analyze`` answers."""

    table = "table"
    json = "json"


@app.command()
def analyze(
    sources: Annotated[
        list[str],
        typer.Argument(
            help="A run directory (of profile or monitor), or anybody's PyTorch trace: a JSON file, plain, .gz or .zst, or its URL."
            " Of a job of several ranks their traces: files, a directory, or a quoted pattern.",
            metavar="SOURCE...",
        ),
    ],
    format: Annotated[AnalysisFormat, typer.Option(help="What to print.")] = AnalysisFormat.table,
    output: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--output", "-o", help="Write the JSON there.", show_default="RUN/analysis.json, or nowhere for a trace"),
    ] = None,
    ceilings: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            help=CEILINGS_HELP,
            show_default="the run's own; for a trace the data sheet of the device it names",
        ),
    ] = None,
    jobs: Jobs = None,
    dask: DaskAddress = None,
    partial: Partial = False,
    memory_limit: MemoryLimit = "4GB",
    formulas: Formulas = None,
) -> None:
    """Analyse a run anew from its raw files, or a trace that anybody recorded, without running the model.

    The traces of several ranks are analysed together: where each one's time goes, how long they wait for each other, and what their
    collectives reach.

    [bold]rooflines analyze trace.json.gz[/bold]

    [bold]rooflines analyze 'traces/rank*.json.gz'[/bold]
    """
    from rooflines import pipeline, serial

    if any(map(pipeline.is_monitored, sources)):
        refuse_for_monitored(sources, ceilings, jobs, dask)
        _analyze_monitored(sources[0], format is AnalysisFormat.json, output)
        return
    limit = size(memory_limit)
    quiet = format is AnalysisFormat.json
    found = pipeline.find_sources(sources)
    if len(found) > 1:
        refuse_for_several(ceilings)
        with progress_bar(quiet) as progress:
            ranks = pipeline.analyze_ranks(found, jobs=jobs, dask=dask, partial=partial, memory_limit_bytes=limit, progress=progress)
        _write(output, pipeline.RANKS_FILE, text := serial.to_json(ranks))
        if quiet:
            print(text, end="")
            return
        from rooflines.reports.ranks import print_ranks

        print_ranks(ranks, console())
        return
    refuse_for_one(jobs, dask)
    (source,) = found
    with progress_bar(quiet) as progress:
        if pipeline.is_directory(source):
            analysis = pipeline.analyze(source, ceilings=ceilings, partial=partial)
            output = output or Path(source) / pipeline.ANALYSIS_FILE
        else:
            _, analysis = pipeline.analyze_trace(
                source, ceilings=ceilings, partial=partial, memory_limit_bytes=limit, progress=progress
            )
    _write(output, pipeline.ANALYSIS_FILE, text := serial.to_json(analysis))
    if quiet:
        print(text, end="")
        return
    from rooflines.reports.terminal import print_analysis

    print_analysis(analysis, console())


def _analyze_monitored(source: str, quiet: bool, output: Path | None) -> None:
    from rooflines import pipeline, serial
    from rooflines.reports.monitor import print_monitored

    analysis = pipeline.analyze_monitored(source)
    _write(output or Path(source) / pipeline.ANALYSIS_FILE, pipeline.ANALYSIS_FILE, text := serial.to_json(analysis))
    if quiet:
        print(text, end="")
    else:
        print_monitored(analysis, console())


def _write(output: Path | None, name: str, text: str) -> None:
    """``text`` in ``output``, under ``name`` where that is a directory."""
    from rooflines import serial

    if output is None:
        return
    path = output / name if output.is_dir() else output
    try:
        serial.write_text(path, text)
    except OSError as error:
        raise OutputError(f"cannot write {str(path)!r}: {error.strerror or error}.", hint="Give another --output.") from None
