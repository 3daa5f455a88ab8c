# ruff: noqa: T201 (a command line prints)
"""``rooflines view``: the runs and traces of a directory in TensorBoard, with the tab "Rooflines"."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path
from typing import Annotated

import typer

from rooflines.cli.app import app
from rooflines.cli.options import option
from rooflines.errors import UsageError


@app.command()
def view(
    directory: Annotated[Path, typer.Argument(help="Directory to search for runs and traces.")] = Path(
        "runs"
    ),
    port: Annotated[
        int | None,
        option("Port of the server.", min=0, max=65535, show_default="the first free one from 6006"),
    ] = None,
    host: Annotated[
        str, option("Address to listen on. Any but localhost lets other machines read the reports.")
    ] = "localhost",
    open: Annotated[bool, option("Open the address in a browser.", "--open/--no-open")] = False,
) -> None:
    """Show the runs and traces of a directory in TensorBoard.

    [bold]rooflines view runs[/bold]

    Runs that are recorded later appear by themselves. Ctrl-C stops the server.
    """
    if not directory.is_dir():
        raise UsageError(
            f"{str(directory)!r} is not a directory.",
            hint="Give the directory that holds the runs or traces.",
        )
    from tensorboard import default, program

    from rooflines.integrations.tensorboard_tab import RooflinesTab

    # Ours is among the others only where the package is installed with its entry points.
    server = program.TensorBoard(
        [*(one for one in default.get_plugins() if one is not RooflinesTab), RooflinesTab]
    )
    server.configure(logdir=str(directory), port=port, host=host, load_fast="false")
    try:
        address = f"{server.launch()}#rooflines"
    except program.TensorBoardServerException as error:
        raise UsageError(
            f"TensorBoard cannot start: {' '.join(error.msg.split())}",
            hint="Choose another --port or --host.",
        ) from None
    print(f"view      {address}\nstop      Ctrl-C", flush=True)
    if open:
        typer.launch(address)
    with contextlib.suppress(KeyboardInterrupt):
        threading.Event().wait()
