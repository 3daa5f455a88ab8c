# ruff: noqa: T201 (a command line prints)
"""``rooflines report``: the reports of a run or a trace."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from rooflines.cli.app import app
from rooflines.cli.options import MemoryLimit, size
from rooflines.cli.output import progress_bar


@app.command()
def report(
    source: Annotated[str, typer.Argument(help="A run directory, or a trace (file or URL).")],
    formats: Annotated[str, typer.Option(help="Reports to write, separated by commas.")] = "html,pdf,json,csv,tensorboard",
    output: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--output", "-o", help="Directory for the reports.", show_default="the run itself; runs/TRACE-... for a trace"),
    ] = None,
    ceilings: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="measured, spec, or a JSON file: judge by these.", show_default="as rooflines analyze"),
    ] = None,
    memory_limit: MemoryLimit = "4GB",
) -> None:
    """Write the reports of a run again with this version's formulas and pages, or those of a trace."""
    from rooflines import pipeline

    chosen = pipeline.check_formats(name.strip() for name in formats.split(",") if name.strip())
    with progress_bar(False) as progress:
        written = pipeline.report_on(
            source, chosen, output=output, ceilings=ceilings, memory_limit_bytes=size(memory_limit), progress=progress
        )
    for name, path in written.items():
        print(f"{name:12} {path}")
