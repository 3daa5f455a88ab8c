"""``rooflines compare``: compare runs, traces and analyses with the first."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from rooflines.cli.app import app
from rooflines.cli.options import (
    TRACE_OPTIONS,
    At,
    By,
    OtherCeilings,
    Output,
    format_option,
    option,
    reading_options,
)
from rooflines.cli.output import RECORD_SUFFIXES, Destination, check_at, destination, json_of, progress_bar
from rooflines.errors import RooflinesError, UsageError

if TYPE_CHECKING:
    from rooflines.roofline.compare.records import Comparison

SUFFIXES = {**RECORD_SUFFIXES, ".md": "markdown", ".xml": "junit"}

Rows = Annotated[By, option("Group rows by operator or module.")]
Top = Annotated[int, option("Maximum number of rows per section (slower, faster, new, gone).", min=1)]
OutputFormat = Annotated[str | None, format_option("table", "json", "csv", "markdown", "junit")]
Undecided = Annotated[
    Literal["pass", "fail"], option("Exit with code 0 or 1 where it is not decided which is slower.")
]
Anyway = Annotated[bool, option("Compare even if device, threads or mode differ.", "--anyway")]


@app.command()
@reading_options(*TRACE_OPTIONS)
def compare(
    sources: Annotated[
        list[str],
        typer.Argument(
            help="Run directories, traces (files or URLs) or analysis.json files. The first is the baseline."
        ),
    ],
    by: Rows = "operator",
    top: Top = 5,
    format: OutputFormat = None,
    output: Output = None,
    ceilings: OtherCeilings = None,
    anyway: Anyway = False,
    fail_above: Annotated[
        float | None,
        option(
            "Exit with code 1 if a run is slower than the baseline by more than this percentage, "
            "outside the noise.",
            metavar="PERCENT",
            min=0,
            show_default="never",
        ),
    ] = None,
    undecided: Undecided = "pass",
    at: At = None,
    **reading: Any,
) -> None:
    """Compare runs, traces or analyses with the first: slower, faster, new and gone operators or modules.

    [bold]rooflines compare runs/before runs/after[/bold]

    [bold]rooflines compare main.pt.trace.json.gz branch.pt.trace.json.gz --fail-above 10[/bold]

    Exit codes: 0 compared; 1 slower than --fail-above allows, or not decided with --undecided fail; 2 not
    comparable or not readable.
    """
    if len(sources) < 2:
        raise UsageError(
            "compare needs at least two runs or traces, got 1.", hint="rooflines compare BEFORE AFTER"
        )
    check_at(at, format, output)
    place = destination(format, output, SUFFIXES)
    from rooflines import pipeline

    with progress_bar(not sys.stderr.isatty()) as progress:
        comparisons = pipeline.compare_all(
            sources, anyway=anyway, ceilings=ceilings, **reading, progress=progress
        )
    show_comparisons(comparisons, by, top, place, fail_above, at)
    fail_if_slower(comparisons, fail_above, undecided)


def show_comparisons(
    comparisons: Sequence[Comparison],
    by: By,
    top: int,
    place: Destination,
    fail_above: float | None,
    at: str | None = None,
) -> None:
    """Print the comparisons, or the part ``at`` a JSON pointer, or write them to their destination."""
    from rooflines.reports.page.comparison import comparison_csv, junit, page
    from rooflines.reports.render import markdown

    made = page(comparisons, by, top)
    own = {
        "json": lambda: json_of(comparisons[0] if len(comparisons) == 1 else comparisons, at),
        "csv": lambda: comparison_csv(comparisons, by),
        "markdown": lambda: markdown.render(made),
        "junit": lambda: junit(comparisons, by, (fail_above or 0.0) / 100),
    }
    place.show(lambda: made, "compare", own)


def fail_if_slower(comparisons: Sequence[Comparison], fail_above: float | None, undecided: str) -> None:
    """Raise RooflinesError if any is slower by more than ``fail_above`` percent, or not decided where
    ``undecided`` is ``fail``. Says on standard error which are not decided, and where a slowdown of more than
    ``fail_above`` is within the noise."""
    from rooflines.units import percent

    if fail_above is None and undecided == "pass":
        return
    open_ = [
        one
        for one in comparisons
        if one.implausible
        or (one.pace and one.pace.exceeds_noise is None and not one.excludes((fail_above or 0.0) / 100))
    ]
    for one in comparisons:
        interval = (one.pace.noise or one.pace).ci95 if one.pace and one.pace.exceeds_noise is False else None
        more = interval[1] - 1 if interval is not None else 0.0
        if one in open_ or 100 * more > (math.inf if fail_above is None else fail_above):
            found = f"up to {percent(more)} more time is within the noise"
            found = one.verdict.partition(":")[0] if one in open_ else found
            text = f"{one.b.source!r} compared with {one.a.source!r}: {found}"
            typer.echo(f"rooflines: warning: {text}.", err=True)
    slower = [one for one in comparisons if fail_above is not None and one.slower_than(fail_above / 100)]
    if slower:
        names = ", ".join(f"{one.b.source!r} by {percent(one.slowdown, 1)}" for one in slower)
        raise RooflinesError(f"slower than {slower[0].a.source!r} by more than {fail_above:g} %: {names}.")
    if open_ and undecided == "fail":
        names = ", ".join(repr(one.b.source) for one in open_)
        raise RooflinesError(f"not decided whether slower than {open_[0].a.source!r}: {names}.")
