"""``rooflines report``: write the reports of a run, a trace or several ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from rooflines.cli.app import app
from rooflines.cli.options import (
    FORMAT_FLAGS,
    FORMATS_HELP,
    OtherCeilings,
    is_file_name,
    option,
    parse_formats,
    reading_options,
)
from rooflines.cli.output import destination, page_of, print_written, progress_bar


@app.command()
@reading_options()
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
        option(
            FORMATS_HELP,
            *FORMAT_FLAGS,
            show_default=(
                "html,pdf,json,csv,tensorboard; html,json,csv for several ranks; "
                "html,json,csv,tensorboard for monitor"
            ),
        ),
    ] = None,
    output: Annotated[
        Path | None,
        option(
            "Directory for the reports, or one file (.html, .pdf, .md, .txt).",
            "--output",
            "-o",
            metavar="PATH",
            show_default="the run; runs/TRACE-... for a trace",
        ),
    ] = None,
    ceilings: OtherCeilings = None,
    **reading: Any,
) -> None:
    """Write the reports of a run, a trace or several ranks from the recorded data."""
    from rooflines import pipeline

    source = pipeline.open_source(sources)
    with progress_bar(False) as progress:
        if output is not None and is_file_name(output):
            place = destination(formats, output, {})
            page = page_of(
                pipeline.analyze_source(source, ceilings=ceilings, **reading, progress=progress).analysis
            )
            place.show(lambda: page, "report", {})
            return
        chosen_formats = None if formats is None else parse_formats(formats, traced=None)
        written = pipeline.report(
            source, chosen_formats, output=output, ceilings=ceilings, **reading, progress=progress
        )
    print_written(written)
