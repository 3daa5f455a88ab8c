"""``rooflines monitor``: any program, sampled while it runs."""

from __future__ import annotations

import shlex
import sys
from enum import Enum
from pathlib import Path
from typing import Annotated, Optional, TextIO

import typer

from rooflines.cli.app import app
from rooflines.cli.options import FORMATS_HELP, MEASURE, OUTPUT, WHAT
from rooflines.cli.options import formats as parse_formats
from rooflines.cli.output import print_page
from rooflines.errors import UsageError


class MonitorFormat(str, Enum):
    """How ``monitor`` answers."""

    table = "table"
    json = "json"


# What follows the command's name is the command's, with or without the -- before it.
@app.command(context_settings={"allow_interspersed_args": False})
def monitor(
    command: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Argument(help="The command with its arguments, after --.", show_default=False, metavar="[--] COMMAND [ARGS]..."),
    ] = None,
    pid: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Watch this running process instead, until it ends or Ctrl-C.", rich_help_panel=WHAT, show_default=False),
    ] = None,
    duration: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(
            help="Stop after this many seconds (requires --pid).", rich_help_panel=WHAT, metavar="SECONDS",
            show_default="until it ends",
        ),
    ] = None,
    gpus: Annotated[
        str, typer.Option(help="all, none, or numbers or UUIDs as nvidia-smi -L lists them: 0,2", rich_help_panel=WHAT)
    ] = "all",
    python_memory: Annotated[
        bool,
        typer.Option(
            "--python-memory", help="Follow Python's allocations (tracemalloc), which slows it down.", rich_help_panel=MEASURE
        ),
    ] = False,
    period: Annotated[float, typer.Option(help="Seconds between two readings.", rich_help_panel=MEASURE)] = 0.1,
    format: Annotated[MonitorFormat, typer.Option(help="What to print.", rich_help_panel=OUTPUT)] = MonitorFormat.table,
    output: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--output", "-o", help="The directory to make.", rich_help_panel=OUTPUT, show_default="runs/PROGRAM-monitor-TIME"),
    ] = None,
    formats: Annotated[
        str, typer.Option(help=FORMATS_HELP, rich_help_panel=OUTPUT)
    ] = "html,json,csv,tensorboard",
    show_command: Annotated[
        bool,
        typer.Option("--show-command", help="Put the arguments into the reports, too: they may hold secrets.", rich_help_panel=OUTPUT),
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the report's path only.", rich_help_panel=OUTPUT)] = False,
) -> None:  # fmt: skip
    """Run any program and say what the machine did meanwhile: processors, memory, I/O, GPUs, power.

    The program has the terminal and its exit code is that of this command; what we print goes to standard error.

    [bold]rooflines monitor -- python train.py --epochs 2[/bold]

    [bold]rooflines monitor --pid 4711 --duration 60[/bold]
    """
    from rooflines import pipeline

    chosen = parse_formats(formats)
    if pid is None and not command:
        raise UsageError("nothing to monitor was given.", hint="For example: rooflines monitor -- python train.py")
    if pid is not None:
        refused = {"a command": bool(command), "--python-memory": python_memory, "--show-command": show_command}
        for name in (name for name, given in refused.items() if given):
            raise UsageError(f"both --pid {pid} and {name} were given.", hint="--pid watches a process that runs already.")
        monitored = pipeline.attach(pid, output=output, period_s=period, gpus=gpus, duration_s=duration)
    else:
        if duration is not None:
            raise UsageError("--duration goes with --pid.", hint="A command is monitored to its end: timeout 60 rooflines ...")
        monitored = pipeline.monitor(
            command or (), output=output, period_s=period, gpus=gpus, python_memory=python_memory, show_command=show_command
        )
    written = pipeline.report_monitored(monitored, chosen)
    # Standard output is the command's own.
    stream = sys.stdout if pid is not None else sys.stderr
    _print(written, format, quiet, stream)
    ending = monitored.facts.ending
    if ending is not None:
        raise typer.Exit(ending.exit_code)


def _print(written: dict[str, Path], format: MonitorFormat, quiet: bool, stream: TextIO) -> None:
    shown = written.get("html", written["analysis"])
    if quiet:
        print(shown, file=stream)
        return
    if format is MonitorFormat.json:
        print(written["analysis"].read_text(encoding="utf-8"), end="", file=stream)
        return
    from rooflines import pipeline
    from rooflines.reports.views import monitor as view

    print_page(view.page(pipeline.analyze_monitored(shown.parent)), stderr=stream is sys.stderr)
    directory = shlex.quote(str(shown.parent))
    print(f"\nreport    {shown}\nagain     rooflines report {directory}", file=stream)
