# ruff: noqa: T201 (a command line prints)
"""``rooflines analyze``: a run directory, a trace, or the traces of several ranks."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rooflines.arguments import arg
from rooflines.cli.app import app
from rooflines.cli.options import Capture, DaskAddress, Formulas, InductorCache, Jobs, MemoryLimit, Partial, RecordFormat, option, size
from rooflines.cli.output import destination, print_page, progress_bar
from rooflines.errors import writing
from rooflines.pipeline.options import CEILINGS_HELP
from rooflines.profiler.trace.collection import paused
from rooflines.reports.formats import write_file

if TYPE_CHECKING:
    from rooflines.reports.document import Page
    from rooflines.roofline.analysis import Analysis
    from rooflines.roofline.ranks.records import RankAnalysis
    from rooflines.roofline.usage.monitored import MonitorAnalysis


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
    format: Annotated[RecordFormat, option("Output format.")] = "table",
    output: Annotated[Path | None, option(
        "Write the analysis as JSON, or its page (.html, .pdf, .md, .txt).", "--output", "-o",
        show_default="RUN/analysis.json; not written for a trace"
    )] = None,
    ceilings: Annotated[
        str | None, option(CEILINGS_HELP, show_default="the run's own; for a trace, the data sheet of its device")
    ] = None,
    capture: Capture = None,
    jobs: Jobs = None,
    dask: DaskAddress = None,
    partial: Partial = False,
    memory_limit: MemoryLimit = "4GB",
    formulas: Formulas = None,
    inductor_cache: InductorCache = None,
) -> None:  # fmt: skip
    """Analyze a run directory or any PyTorch trace.

    Traces of several ranks are analyzed together: time per rank, waiting times between ranks, and bandwidth of the collectives.

    [bold]rooflines analyze trace.json.gz[/bold]

    [bold]rooflines analyze 'traces/rank*.json.gz'[/bold]
    """
    from rooflines import pipeline, serial
    from rooflines.profiler.run import RUN_FILE

    source = pipeline.find_source(sources)
    quiet, written = format == "json", "json"
    if output is not None and not output.is_dir():
        _, written = destination(None, None, output, {".json": "json", "": "json"})
    with progress_bar(quiet) as progress:
        analysis = pipeline.analyze(
            source, ceilings=ceilings, capture=capture or None, jobs=jobs, dask=dask, partial=partial,
            memory_limit_bytes=size(memory_limit), inductor_cache=inductor_cache, progress=progress,
        )  # fmt: skip
    # what rooflines recorded, a monitored program or a run, keeps its analysis beside it
    if output is None and not isinstance(source, list) and (not isinstance(source, str) or Path(source, RUN_FILE).is_file()):
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


def _page(analysis: Analysis | RankAnalysis | MonitorAnalysis) -> Page:
    """The page of a record, made by the view of its kind."""
    view = {"Analysis": "run", "RankAnalysis": "ranks", "MonitorAnalysis": "monitor"}[type(analysis).__name__]
    page: Page = import_module(f"rooflines.reports.views.{view}").page(analysis)
    return page
