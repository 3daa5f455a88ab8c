# ruff: noqa: T201 (a command line prints)
"""``rooflines compare``: compare runs, traces and analyses with the first."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from rooflines.cli.app import app
from rooflines.cli.options import By, Formats, Formulas, MemoryLimit, Partial, TableFormat, size, table_format
from rooflines.cli.options import formats as parse_formats
from rooflines.cli.output import check_writable, page_text, print_page, progress_bar, write, write_page
from rooflines.errors import RooflinesError, UsageError
from rooflines.pipeline.options import CEILINGS_HELP


@app.command()
def compare(
    sources: Annotated[
        list[str], typer.Argument(help="Run directories, traces (files or URLs) or analysis.json files. The first is the baseline.")
    ],
    by: Annotated[By, typer.Option(help="Group rows by operator or module.")] = "operator",
    top: Annotated[int, typer.Option(help="Maximum number of rows per section (slower, faster, new, gone).", min=1)] = 5,
    format: Annotated[
        TableFormat | None,
        typer.Option(help="Output format.", show_default="table, or by the suffix of --output"),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Write to a file instead of the terminal.", metavar="FILE"),
    ] = None,
    formats: Formats = None,
    ceilings: Annotated[
        str | None,
        typer.Option(help=CEILINGS_HELP, show_default="as in rooflines analyze"),
    ] = None,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Compare even if device, threads or mode differ.")
    ] = False,
    fail_above: Annotated[
        float | None,
        typer.Option(
            help="Exit with code 1 if a run is slower than the baseline by more than this percentage, outside the noise.",
            metavar="PERCENT", min=0, show_default="never",
        ),
    ] = None,
    partial: Partial = False,
    memory_limit: MemoryLimit = "4GB",
    formulas: Formulas = None,
) -> None:  # fmt: skip
    """Compare runs, traces or analyses with the first: slower, faster, new and gone operators or modules.

    [bold]rooflines compare runs/before runs/after[/bold]

    [bold]rooflines compare main.pt.trace.json.gz branch.pt.trace.json.gz --fail-above 10[/bold]

    Exit codes: 0 compared; 1 slower than --fail-above allows; 2 not comparable or not readable.
    """
    if len(sources) < 2:
        raise UsageError("compare needs at least two runs or traces, got 1.", hint="rooflines compare BEFORE AFTER")
    reports = parse_formats(formats)
    chosen = format or table_format(output)
    limit = size(memory_limit)
    if output is not None and not reports:
        check_writable(output)
    from rooflines import pipeline, serial
    from rooflines.reports.views.comparison import comparison_csv, page
    from rooflines.units import percent

    with progress_bar(not sys.stderr.isatty()) as progress:
        comparisons = pipeline.compare_all(
            sources, ceilings=ceilings, anyway=anyway, partial=partial, memory_limit_bytes=limit, progress=progress
        )
    if chosen == "json":
        text = serial.to_json(comparisons[0] if len(comparisons) == 1 else comparisons)
    elif chosen == "csv":
        text = comparison_csv(comparisons, by)
    else:
        text = ""
    if reports:
        write_page(page(comparisons, by, top), reports, output, "compare")
    elif chosen == "table" and output is None:
        print_page(page(comparisons, by, top))
    elif output is None:
        print(text, end="")
    else:
        write(output, (text or page_text(page(comparisons, by, top))).encode())
        print(f"written   {output}", file=sys.stderr)
    if fail_above is not None:
        slower = [comparison for comparison in comparisons if comparison.slower_than(fail_above / 100)]
        if slower:
            names = ", ".join(f"{one.b.source!r} by {percent(one.pace.ratio - 1, 1)}" for one in slower if one.pace is not None)
            raise RooflinesError(f"slower than {slower[0].a.source!r} by more than {fail_above:g} %: {names}.")
