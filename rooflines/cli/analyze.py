# ruff: noqa: T201 (a command line prints)
"""``rooflines analyze``: a run or a trace, derived anew."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Optional

import typer

from rooflines.cli.app import app
from rooflines.cli.options import MemoryLimit, size
from rooflines.cli.output import console, progress_bar
from rooflines.errors import OutputError


class AnalysisFormat(str, Enum):
    """How ``analyze`` answers."""

    table = "table"
    json = "json"


@app.command()
def analyze(
    source: Annotated[
        str, typer.Argument(help="A run directory, or anybody's PyTorch trace: a JSON file, plain, .gz or .zst, or its URL.")
    ],
    format: Annotated[AnalysisFormat, typer.Option(help="What to print.")] = AnalysisFormat.table,
    output: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--output", "-o", help="Write the JSON there.", show_default="RUN/analysis.json, or nowhere for a trace"),
    ] = None,
    ceilings: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            help="measured, spec, or a JSON file: judge by these.",
            show_default="the run's own; for a trace the data sheet of the device it names",
        ),
    ] = None,
    memory_limit: MemoryLimit = "4GB",
) -> None:
    """Analyse a run anew from its raw files, or a trace that anybody recorded, without running the model."""
    from rooflines import pipeline, serial

    limit = size(memory_limit)
    with progress_bar(format is AnalysisFormat.json) as progress:
        if pipeline.is_directory(source):
            analysis = pipeline.analyze(source, ceilings=ceilings)
            output = output or Path(source) / pipeline.ANALYSIS_FILE
        else:
            _, analysis = pipeline.analyze_trace(source, ceilings=ceilings, memory_limit_bytes=limit, progress=progress)
    if output is not None:
        path = output / pipeline.ANALYSIS_FILE if output.is_dir() else output
        try:
            serial.write_json(path, analysis)
        except OSError as error:
            raise OutputError(f"cannot write {str(path)!r}: {error.strerror or error}.", hint="Give another --output.") from None
    if format is AnalysisFormat.json:
        print(serial.to_json(analysis), end="")
        return
    from rooflines.reports.terminal import print_analysis

    print_analysis(analysis, console())
