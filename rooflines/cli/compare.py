# ruff: noqa: T201 (a command line prints)
"""``rooflines compare``: compare runs, traces and analyses with the first."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import typer

from rooflines.cli.app import app
from rooflines.cli.options import By, Formats, Formulas, MemoryLimit, Partial, size
from rooflines.cli.options import formats as parse_formats
from rooflines.cli.output import check_writable, page_text, print_page, progress_bar, write, write_page
from rooflines.errors import RooflinesError, UsageError
from rooflines.pipeline.options import CEILINGS_HELP

if TYPE_CHECKING:
    from rooflines.roofline.comparison.records import Comparison

Format: TypeAlias = Literal["table", "json", "csv", "markdown", "junit"]
_OF_SUFFIX: dict[str, Format] = {".json": "json", ".csv": "csv", ".md": "markdown", ".xml": "junit"}

Rows = Annotated[By, typer.Option(help="Group rows by operator or module.")]
Top = Annotated[int, typer.Option(help="Maximum number of rows per section (slower, faster, new, gone).", min=1)]
OutputFormat = Annotated[Format | None, typer.Option(help="Output format.", show_default="table, or by the suffix of --output")]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="Write to a file instead of the terminal.", metavar="FILE"),
]
Anyway = Annotated[bool, typer.Option("--anyway", help="Compare even if device, threads or mode differ.")]


@app.command()
def compare(
    sources: Annotated[
        list[str], typer.Argument(help="Run directories, traces (files or URLs) or analysis.json files. The first is the baseline.")
    ],
    by: Rows = "operator",
    top: Top = 5,
    format: OutputFormat = None,
    output: Output = None,
    formats: Formats = None,
    ceilings: Annotated[
        str | None,
        typer.Option(help=CEILINGS_HELP, show_default="as in rooflines analyze"),
    ] = None,
    anyway: Anyway = False,
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
    reports = checked(formats, output)
    limit = size(memory_limit)
    from rooflines import pipeline

    with progress_bar(not sys.stderr.isatty()) as progress:
        comparisons = pipeline.compare_all(
            sources, ceilings=ceilings, anyway=anyway, partial=partial, memory_limit_bytes=limit, progress=progress
        )
    show(comparisons, by, top, format, output, reports, fail_above)
    if fail_above is not None:
        fail_if_slower(comparisons, fail_above)


def checked(formats: str | None, output: Path | None) -> tuple[str, ...]:
    """The formats of the reports. Raises OutputError if ``output`` cannot be written as a file."""
    reports = parse_formats(formats)
    if output is not None and not reports:
        check_writable(output)
    return reports


def show(
    comparisons: Sequence[Comparison],
    by: By,
    top: int,
    format: Format | None,
    output: Path | None,
    reports: Sequence[str],
    fail_above: float | None,
) -> None:
    """Print the comparisons or write them to ``output``, which is the directory of the ``reports`` if there are any."""
    from rooflines.reports.views.comparison import page

    found = page(comparisons, by, top)
    chosen = format or _OF_SUFFIX.get(output.suffix if output is not None else "", "table")
    if reports:
        write_page(found, reports, output, "compare")
    elif chosen == "table" and output is None:
        print_page(found)
    else:
        text = page_text(found) if chosen == "table" else _text(comparisons, by, top, chosen, fail_above)
        if output is None:
            print(text, end="")
        else:
            write(output, text.encode())
            print(f"written   {output}", file=sys.stderr)


def _text(comparisons: Sequence[Comparison], by: By, top: int, format: Format, fail_above: float | None) -> str:
    """The comparisons in a format other than a table."""
    if format == "json":
        from rooflines import serial

        return serial.to_json(comparisons[0] if len(comparisons) == 1 else comparisons)
    if format == "junit":
        from rooflines.reports.views.junit import junit

        return junit(comparisons, by, (fail_above or 0.0) / 100)
    from rooflines.reports.views.comparison import comparison_csv, page

    if format == "csv":
        return comparison_csv(comparisons, by)
    from rooflines.reports.render import markdown

    return markdown.render(page(comparisons, by, top))


def fail_if_slower(comparisons: Sequence[Comparison], fail_above: float) -> None:
    """Raise RooflinesError if any is slower by more than ``fail_above`` percent."""
    from rooflines.units import percent

    slower = [comparison for comparison in comparisons if comparison.slower_than(fail_above / 100)]
    if slower:
        names = ", ".join(f"{one.b.source!r} by {percent(one.slowdown, 1)}" for one in slower)
        raise RooflinesError(f"slower than {slower[0].a.source!r} by more than {fail_above:g} %: {names}.")
