"""``rooflines report``: write the reports of a run, a trace or several ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rooflines.cli.app import app
from rooflines.cli.options import (
    FORMATS_HELP,
    Capture,
    DaskAddress,
    Formulas,
    InductorCache,
    Jobs,
    MemoryLimit,
    OtherCeilings,
    Partial,
    option,
    output_directory,
    parse_formats,
    size,
)
from rooflines.cli.output import print_written, progress_bar


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
    formats: Annotated[str | None, option(
        FORMATS_HELP,
        show_default="html,pdf,json,csv,tensorboard; html,json,csv for several ranks; html,json,csv,tensorboard for monitor"
    )] = None,
    output: Annotated[Path | None, output_directory("Directory for the reports.", "the run; runs/TRACE-... for a trace")] = None,
    ceilings: OtherCeilings = None,
    capture: Capture = None,
    jobs: Jobs = None,
    dask: DaskAddress = None,
    partial: Partial = False,
    memory_limit: MemoryLimit = "4GB",
    formulas: Formulas = None,
    inductor_cache: InductorCache = None,
) -> None:  # fmt: skip
    """Write the reports of a run, a trace or several ranks from the recorded data."""
    from rooflines import pipeline

    chosen = None if formats is None else parse_formats(formats)
    with progress_bar(False) as progress:
        written = pipeline.report(
            pipeline.find_source(sources), chosen, output=output, ceilings=ceilings, capture=capture or None, jobs=jobs, dask=dask,
            partial=partial, memory_limit_bytes=size(memory_limit), inductor_cache=inductor_cache, progress=progress,
        )  # fmt: skip
    print_written(written)
