"""``rooflines whatif``: what a step would take with changes."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from rooflines.cli.app import app
from rooflines.cli.options import OtherCeilings, Output, format_option, option, reading_options
from rooflines.cli.output import destination, json_of, progress_bar, show
from rooflines.errors import UsageError

_MANY = "(repeatable)"


@app.command()
@reading_options("capture", "partial", "memory_limit_bytes", "formulas", "inductor_cache")
def whatif(
    source: Annotated[str, typer.Argument(help="Run directory or trace.", metavar="RUN_OR_TRACE")],
    at_bound: Annotated[
        list[str] | None,
        option(f"Operators that run at their bound {_MANY}.", metavar="NAME[@MODULE]", show_default=False),
    ] = None,
    scale: Annotated[
        list[str] | None,
        option(
            f"Operators whose time is multiplied by a factor {_MANY}.",
            metavar="NAME[@MODULE]=FACTOR",
            show_default=False,
        ),
    ] = None,
    without: Annotated[
        list[str] | None,
        option(
            f"Operators that go, with their launches {_MANY}.", metavar="NAME[@MODULE]", show_default=False
        ),
    ] = None,
    no_gaps: Annotated[bool, option("The host is never late with a launch.", "--no-gaps")] = False,
    no_waits: Annotated[bool, option("The host waits for the device nowhere.", "--no-waits")] = False,
    format: Annotated[str | None, format_option("table", "json")] = None,
    output: Output = None,
    ceilings: OtherCeilings = None,
    **reading: Any,
) -> None:
    """Replay the steps of a run or trace with changes, and print what a step would take.

    NAME is an operator, a pattern or a category. Changes add up in this order: --no-gaps, --no-waits,
    --without, --at-bound, --scale.

    [bold]rooflines whatif trace.json.gz --at-bound attention --no-gaps[/bold]

    [bold]rooflines whatif RUN --scale 'aten::mm@layers.*=0.5' --without 'aten::copy_'[/bold]
    """
    from rooflines.pipeline import what_if
    from rooflines.reports.page.what_if import page

    factors = dict(map(_factor, scale or ()))
    if not (at_bound or factors or without or no_gaps or no_waits):
        raise UsageError("no change is given.", hint="For example: --at-bound attention, or --no-gaps")
    reports, chosen = destination(format, output, {".json": "json"})
    with progress_bar(chosen == "json") as progress:
        found = what_if(
            source,
            at_bound=at_bound or (),
            scale=factors,
            without=without or (),
            gaps=not no_gaps,
            waits=not no_waits,
            ceilings=ceilings,
            progress=progress,
            **reading,
        )
    show(lambda: page(found), "whatif", reports, chosen, output, {"json": lambda: json_of(found)})


def _factor(text: str) -> tuple[str, float]:
    """An operator and its factor."""
    name, _, factor = text.rpartition("=")
    try:
        return name, float(factor)
    except ValueError:
        hint = "For example: --scale 'aten::mm=0.5'"
        raise UsageError(f"--scale {text!r} is not NAME=FACTOR.", hint=hint) from None
