# ruff: noqa: T201 (a command line prints)
"""``rooflines view``: the runs and traces of a directory in TensorBoard, with the tab "Rooflines"."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Annotated

import typer

from rooflines.cli.app import app
from rooflines.cli.options import option
from rooflines.errors import UsageError


@app.command()
def view(
    directory: Annotated[
        Path, typer.Argument(help="Directory with runs and traces; its subdirectories are searched.", show_default=True)
    ] = Path("runs"),
    port: Annotated[int | None, option("Port of the server.", min=0, max=65535, show_default="the first free one from 6006")] = None,
    host: Annotated[str, option("Address that the server listens on. Other machines can open all reports at any but localhost.")] = "localhost",
    open: Annotated[bool, option("Open the address in a browser.", "--open/--no-open")] = False,
) -> None:  # fmt: skip
    """Show the runs and traces of a directory in TensorBoard.

    [bold]rooflines view runs[/bold]

    Runs that are recorded later appear by themselves. Ctrl-C stops the server.
    """
    if not directory.is_dir():
        what = "is not a directory" if directory.exists() else "does not exist"
        raise UsageError(f"the directory {str(directory)!r} {what}.", hint="Give the directory that holds the runs or traces.")
    from tensorboard import default, program

    from rooflines.integrations.tensorboard_tab import RooflinesTab
    from rooflines.integrations.tensorboard_tab.sources import Scan

    others = [plugin for plugin in default.get_plugins() if plugin is not RooflinesTab]
    server = program.TensorBoard([*others, RooflinesTab])
    server.configure(logdir=str(directory), port=port, host=host, load_fast="false")
    try:
        address = f"{server.launch()}#rooflines"
    except program.TensorBoardServerException as error:
        raise UsageError(f"TensorBoard cannot start: {' '.join(error.msg.split())}", hint="Choose another --port or --host.") from None
    found = len(Scan([str(directory)])())
    print(f"view      {address}", flush=True)
    print(f"found     {found} runs and traces in {str(directory)!r}" if found else f"found     no runs in {str(directory)!r} yet")
    print("stop      Ctrl-C", flush=True)
    if open:
        import webbrowser

        webbrowser.open(address)
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        print()
