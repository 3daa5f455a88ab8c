# ruff: noqa: T201 (a command line prints)
"""``rooflines formulas``: the files of operators."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from rooflines.cli.app import app
from rooflines.errors import UsageError


@app.command()
def formulas(
    action: Annotated[Literal["check"], typer.Argument(help="What to do with the file.")],
    file: Annotated[
        Path,
        typer.Argument(
            help="File of operators, as in rooflines/roofline/count/formulas.", metavar="FILE.rows"
        ),
    ],
) -> None:
    """Check a file of operators: every paragraph is read and every expression compiled. All errors are
    printed, with file and line.

    [bold]rooflines formulas check rooflines/roofline/count/formulas/libraries/vllm.rows[/bold]

    Exit codes: 0 no error; 1 errors; 2 not readable.
    """
    from rooflines.roofline.count.formulas.tables import problems

    if not file.is_file():
        raise UsageError(
            f"no such file: {str(file)!r}.", hint="Give a file of operators, such as mylib.rows."
        )
    try:
        file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{str(file)!r} is no text: {error}.", hint="Save the file in UTF-8.") from error
    count, errors = problems(file)
    if errors:
        print(*errors, sep="\n")
        raise typer.Exit(1)
    print(f"{file}: {count} {'operator' if count == 1 else 'operators'}, no errors")
