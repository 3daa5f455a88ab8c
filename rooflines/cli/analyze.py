# ruff: noqa: T201 (a command line prints)
"""``rooflines analyze``: a run directory, a trace, or the traces of several ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rooflines.cli.app import app
from rooflines.cli.monitored import refuse_for_monitored
from rooflines.cli.options import Formulas, MemoryLimit, Partial, RecordFormat, size
from rooflines.cli.output import print_page, progress_bar
from rooflines.cli.ranks import DaskAddress, Jobs, refuse_for_one, refuse_for_several
from rooflines.errors import OutputError
from rooflines.pipeline.options import CEILINGS_HELP


@app.command()
def analyze(
    sources: Annotated[
        list[str],
        typer.Argument(
            help="Run directory (from profile or monitor) or PyTorch trace (.json, .json.gz, .json.zst or URL)."
            " For several ranks: trace files, a directory or a quoted pattern.",
            metavar="SOURCE...",
        ),
    ],
    format: Annotated[RecordFormat, typer.Option(help="Output format.")] = "table",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Write the analysis as JSON.", show_default="RUN/analysis.json; not written for a trace"),
    ] = None,
    ceilings: Annotated[
        str | None,
        typer.Option(
            help=CEILINGS_HELP,
            show_default="the run's own; for a trace, the data sheet of its device",
        ),
    ] = None,
    jobs: Jobs = None,
    dask: DaskAddress = None,
    partial: Partial = False,
    memory_limit: MemoryLimit = "4GB",
    formulas: Formulas = None,
) -> None:
    """Analyze a run directory or any PyTorch trace.

    Traces of several ranks are analyzed together: time per rank, waiting times between ranks, and bandwidth of the collectives.

    [bold]rooflines analyze trace.json.gz[/bold]

    [bold]rooflines analyze 'traces/rank*.json.gz'[/bold]
    """
    from rooflines import pipeline, serial

    if any(map(pipeline.is_monitored, sources)):
        refuse_for_monitored(sources, ceilings, jobs, dask)
        _analyze_monitored(sources[0], format == "json", output)
        return
    limit = size(memory_limit)
    quiet = format == "json"
    found = pipeline.find_sources(sources)
    if len(found) > 1:
        refuse_for_several(ceilings)
        with progress_bar(quiet) as progress:
            ranks = pipeline.analyze_ranks(found, jobs=jobs, dask=dask, partial=partial, memory_limit_bytes=limit, progress=progress)
        _write(output, pipeline.RANKS_FILE, text := serial.to_json(ranks))
        if quiet:
            print(text, end="")
            return
        from rooflines.reports.views import ranks as several

        print_page(several.page(ranks))
        return
    refuse_for_one(jobs, dask)
    (source,) = found
    with progress_bar(quiet) as progress:
        analysis = pipeline.analyze(source, ceilings=ceilings, partial=partial, memory_limit_bytes=limit, progress=progress)
    if output is None and pipeline.is_directory(source):
        output = Path(source) / pipeline.ANALYSIS_FILE
    _write(output, pipeline.ANALYSIS_FILE, text := serial.to_json(analysis))
    if quiet:
        print(text, end="")
        return
    from rooflines.reports.views import run

    print_page(run.page(analysis))


def _analyze_monitored(source: str, quiet: bool, output: Path | None) -> None:
    from rooflines import pipeline, serial
    from rooflines.reports.views import monitor

    analysis = pipeline.analyze_monitored(source)
    _write(output or Path(source) / pipeline.ANALYSIS_FILE, pipeline.ANALYSIS_FILE, text := serial.to_json(analysis))
    if quiet:
        print(text, end="")
    else:
        print_page(monitor.page(analysis))


def _write(output: Path | None, name: str, text: str) -> None:
    """``text`` in ``output``, under ``name`` where that is a directory."""
    from rooflines import serial

    if output is None:
        return
    path = output / name if output.is_dir() else output
    try:
        serial.write_text(path, text)
    except OSError as error:
        raise OutputError(f"cannot write {str(path)!r}: {error.strerror or error}.", hint="Choose another --output.") from None
