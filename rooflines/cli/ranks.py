"""Options for traces of several ranks, and their checks."""

from __future__ import annotations

from typing import Annotated

import typer

from rooflines.errors import UsageError

RANKS = "Several ranks"

Jobs = Annotated[
    int | None,
    typer.Option(
        help="Number of processes that read traces.", rich_help_panel=RANKS, show_default="number of processors; fewer for small traces"
    ),
]
DaskAddress = Annotated[
    str | None,
    typer.Option("--dask", help="Read the traces on the workers of a Dask scheduler.", metavar="ADDRESS", rich_help_panel=RANKS),
]


def refuse_for_several(ceilings: str | None) -> None:
    if ceilings is not None:
        raise UsageError(
            "--ceilings applies to one run or trace, not to several ranks.", hint="Analyze a single trace with --ceilings."
        )


def refuse_for_one(jobs: int | None, dask: str | None) -> None:
    if jobs is not None or dask is not None:
        raise UsageError(
            f"{'--jobs' if jobs is not None else '--dask'} requires the traces of several ranks, got one.",
            hint="Give several files, a directory of traces, or a quoted pattern.",
        )
