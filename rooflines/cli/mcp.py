"""``rooflines mcp``: the answers of rooflines for programs that speak the Model Context Protocol."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rooflines.cli.app import app


@app.command()
def mcp(
    folders: Annotated[
        list[Path],
        typer.Argument(
            help="Folders with traces and runs. Nothing else is read.",
            metavar="FOLDER...",
            exists=True,
            file_okay=False,
        ),
    ],
) -> None:
    """Serve summary, analyze, compare, count, predict and devices over stdio to an agent.

    [bold]rooflines mcp ~/traces[/bold]
    """
    from rooflines.integrations.mcp_server import make_server

    make_server(folders).run()
