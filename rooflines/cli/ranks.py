"""What the commands that take several ranks share: their options, and what goes only with one or with several."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

from rooflines.errors import UsageError

RANKS = "Several ranks"

Jobs = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option(help="Processes that read traces.", rich_help_panel=RANKS, show_default="the processors, or fewer for small traces"),
]
DaskAddress = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--dask", help="Read on the workers of this Dask scheduler instead.", metavar="ADDRESS", rich_help_panel=RANKS),
]


def refuse_for_several(ceilings: str | None) -> None:
    if ceilings is not None:
        raise UsageError("--ceilings judge one run or trace, not several ranks.", hint="Analyse one of the traces with them.")


def refuse_for_one(jobs: int | None, dask: str | None) -> None:
    if jobs is not None or dask is not None:
        raise UsageError(
            f"{'--jobs' if jobs is not None else '--dask'} is for the traces of several ranks, and one was given.",
            hint="Give several files, a directory of traces, or a quoted pattern.",
        )
