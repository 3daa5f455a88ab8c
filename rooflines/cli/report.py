"""``rooflines report``: write the reports of a run, a trace or several ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rooflines.cli.app import app
from rooflines.cli.monitored import refuse_for_monitored
from rooflines.cli.options import FORMATS_HELP, Formulas, MemoryLimit, Partial, size
from rooflines.cli.options import formats as parse_formats
from rooflines.cli.output import print_written, progress_bar
from rooflines.cli.ranks import DaskAddress, Jobs, refuse_for_one, refuse_for_several
from rooflines.pipeline.options import CEILINGS_HELP


@app.command()
def report(
    sources: Annotated[
        list[str],
        typer.Argument(
            help="Run directory (from profile or monitor) or PyTorch trace (file or URL)."
            " For several ranks: trace files, a directory or a quoted pattern.",
            metavar="SOURCE...",
        ),
    ],
    formats: Annotated[
        str | None,
        typer.Option(
            help=FORMATS_HELP,
            show_default="html,pdf,json,csv,tensorboard; html,json,csv for several ranks; html,json,csv,tensorboard for monitor",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Directory for the reports.", show_default="the run directory; runs/TRACE-... for a trace"),
    ] = None,
    ceilings: Annotated[
        str | None,
        typer.Option(help=CEILINGS_HELP, show_default="as in rooflines analyze"),
    ] = None,
    jobs: Jobs = None,
    dask: DaskAddress = None,
    partial: Partial = False,
    memory_limit: MemoryLimit = "4GB",
    formulas: Formulas = None,
) -> None:
    """Write the reports of a run, a trace or several ranks from the recorded data."""
    from rooflines import pipeline

    names = None if formats is None else parse_formats(formats)
    if any(map(pipeline.is_monitored, sources)):
        refuse_for_monitored(sources, ceilings, jobs, dask)
        with progress_bar(False) as progress:
            written = pipeline.report_monitored(
                sources[0], pipeline.MONITOR_FORMATS if names is None else names, output=output, progress=progress
            )
        print_written(written)
        return
    found = pipeline.find_sources(sources)
    limit = size(memory_limit)
    if len(found) > 1:
        refuse_for_several(ceilings)
        with progress_bar(False) as progress:
            ranks = pipeline.analyze_ranks(found, jobs=jobs, dask=dask, partial=partial, memory_limit_bytes=limit, progress=progress)
            written = pipeline.report_ranks(ranks, pipeline.RANKS_FORMATS if names is None else names, output=output, progress=progress)
    else:
        refuse_for_one(jobs, dask)
        (source,) = found
        with progress_bar(False) as progress:
            written = pipeline.report_on(
                source, pipeline.FORMATS if names is None else names, output=output, ceilings=ceilings, partial=partial,
                memory_limit_bytes=limit, progress=progress
            )  # fmt: skip
    print_written(written)
