# ruff: noqa: T201 (a command line prints)
"""``rooflines analyze``: a run directory, a trace, or the traces of several ranks."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rooflines.arguments import arg
from rooflines.cli.app import app
from rooflines.cli.options import Capture, DaskAddress, Formulas, InductorCache, Jobs, MemoryLimit, Partial, RecordFormat, size
from rooflines.cli.output import destination, print_page, progress_bar
from rooflines.errors import writing
from rooflines.pipeline.options import CEILINGS_HELP
from rooflines.profiler.trace.collection import paused
from rooflines.reports.formats import write_file

if TYPE_CHECKING:
    from rooflines.profiler.monitor.monitored import Monitored
    from rooflines.reports.document import Page
    from rooflines.roofline.analysis import Analysis
    from rooflines.roofline.ranks.records import RankAnalysis
    from rooflines.roofline.usage.device_usage import MonitorAnalysis


@app.command()
@paused()
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
        typer.Option(
            "--output",
            "-o",
            help="Write the analysis as JSON, or its page (.html, .pdf, .md, .txt).",
            show_default="RUN/analysis.json; not written for a trace",
        ),
    ] = None,
    ceilings: Annotated[
        str | None,
        typer.Option(
            help=CEILINGS_HELP,
            show_default="the run's own; for a trace, the data sheet of its device",
        ),
    ] = None,
    capture: Capture = None,
    jobs: Jobs = None,
    dask: DaskAddress = None,
    partial: Partial = False,
    memory_limit: MemoryLimit = "4GB",
    formulas: Formulas = None,
    inductor_cache: InductorCache = None,
) -> None:
    """Analyze a run directory or any PyTorch trace.

    Traces of several ranks are analyzed together: time per rank, waiting times between ranks, and bandwidth of the collectives.

    [bold]rooflines analyze trace.json.gz[/bold]

    [bold]rooflines analyze 'traces/rank*.json.gz'[/bold]
    """
    from rooflines import pipeline, serial

    source = pipeline.find_source(sources)
    quiet, written = format == "json", "json"
    if output is not None and not output.is_dir():
        _, written = destination(None, None, output, {".json": "json", "": "json"})
    with progress_bar(quiet) as progress:
        analysis = pipeline.analyze(
            source, ceilings=ceilings, capture=capture or None, jobs=jobs, dask=dask, partial=partial,
            memory_limit_bytes=size(memory_limit), inductor_cache=inductor_cache, progress=progress,
        )  # fmt: skip
    if output is None and not isinstance(source, list) and _is_recorded(source):
        output = Path(sources[0])
    if output is not None:
        name = pipeline.RANKS_FILE if isinstance(source, list) else pipeline.ANALYSIS_FILE
        path = output / name if output.is_dir() else output
        with writing(f"write {str(path)!r}", f"Choose another {arg('output')}."):
            if written == "json":
                serial.write_text(path, serial.to_json(analysis))
            else:
                write_file(_page(analysis), written, path)
    if quiet:
        print(serial.to_json(analysis), end="")
    else:
        print_page(_page(analysis))


def _is_recorded(source: Monitored | str) -> bool:
    """Whether rooflines wrote ``source``: a monitored program, or the directory of a run."""
    from rooflines.profiler.run import RUN_FILE

    return not isinstance(source, str) or os.path.isfile(os.path.join(source, RUN_FILE))


def _page(analysis: Analysis | RankAnalysis | MonitorAnalysis) -> Page:
    from rooflines.roofline.analysis import Analysis

    if isinstance(analysis, Analysis):
        from rooflines.reports.views import run

        return run.page(analysis)
    from rooflines.roofline.ranks.records import RankAnalysis

    if isinstance(analysis, RankAnalysis):
        from rooflines.reports.views import ranks

        return ranks.page(analysis)
    from rooflines.reports.views import monitor

    return monitor.page(analysis)
