# ruff: noqa: T201 (a command line prints)
"""``rooflines monitor``: sample the machine while a program runs."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from rooflines.cli.app import app
from rooflines.cli.options import (
    MONITOR_FORMATS,
    QuietOption,
    ReportsOption,
    option,
    output_directory,
    parse_formats,
)
from rooflines.cli.output import print_page
from rooflines.errors import UsageError
from rooflines.profiler.monitor.monitored import OUTPUT_FILE
from rooflines.profiler.options import MEASURE_GROUP, OUTPUT, WHAT_GROUP
from rooflines.reports.render.progress import has_screen


# What follows the command's name is the command's, with or without the -- before it.
@app.command(context_settings={"allow_interspersed_args": False})
def monitor(
    command: Annotated[
        list[str] | None,
        typer.Argument(help="Command and its arguments, after --.", metavar="[--] COMMAND [ARGS]..."),
    ] = None,
    pid: Annotated[
        int | None,
        option(
            "Monitor a running process until it exits or Ctrl-C is pressed.",
            group=WHAT_GROUP,
        ),
    ] = None,
    duration: Annotated[
        float | None,
        option(
            "Stop after this many seconds (requires --pid).",
            group=WHAT_GROUP,
            metavar="SECONDS",
            show_default="until it exits",
        ),
    ] = None,
    gpus: Annotated[
        str,
        option("GPUs to sample: all, none, or numbers or UUIDs from nvidia-smi -L (0,2).", group=WHAT_GROUP),
    ] = "all",
    live: Annotated[
        bool,
        option(
            "Show a screen while the program runs; its terminal output goes to DIR/output.txt.",
            "--live",
            group=OUTPUT,
        ),
    ] = False,
    period: Annotated[float, option("Sampling period in seconds.", group=MEASURE_GROUP)] = 0.1,
    json: Annotated[
        bool, option("Print the analysis as JSON instead of the summary.", "--json", group=OUTPUT)
    ] = False,
    output: Annotated[Path | None, output_directory("Output directory.", "runs/PROGRAM-monitor-TIME")] = None,
    formats: ReportsOption = MONITOR_FORMATS,
    show_command: Annotated[
        bool,
        option(
            "Include the command's arguments in the reports. They may contain secrets.",
            "--show-command",
            group=OUTPUT,
        ),
    ] = False,
    quiet: QuietOption = False,
) -> None:
    """Run any program and record CPU, memory, I/O, GPU and power use.

    The program keeps the terminal, and its exit code is returned. The summary is printed to standard error.

    [bold]rooflines monitor -- python train.py --epochs 2[/bold]

    [bold]rooflines monitor --pid 4711 --duration 60[/bold]
    """
    from rooflines import pipeline

    chosen = parse_formats(formats)
    if live and not has_screen():
        print(
            "rooflines: --live needs a terminal on standard error; monitoring without a screen.",
            file=sys.stderr,
        )
    if pid is None and not command:
        raise UsageError(
            "no command and no --pid was given.", hint="For example: rooflines monitor -- python train.py"
        )
    if pid is not None:
        refused = {"a command": bool(command), "--show-command": show_command}
        for name in (name for name, given in refused.items() if given):
            raise UsageError(
                f"--pid {pid} cannot be combined with {name}.",
                hint="--pid monitors a process that is already running.",
            )
        monitored = pipeline.attach(
            pid, output=output, period_s=period, gpus=gpus, duration_s=duration, live=live
        )
    else:
        if duration is not None:
            raise UsageError(
                "--duration requires --pid.",
                hint="A command is monitored until it exits. To stop it earlier: timeout 60 rooflines ...",
            )
        monitored = pipeline.monitor(
            command or (), output=output, period_s=period, gpus=gpus, show_command=show_command, live=live
        )
    written = pipeline.report(monitored, chosen)
    # Standard output is the command's own.
    stream = sys.stdout if pid is not None else sys.stderr
    shown = written.get("html", written["analysis"])
    if quiet:
        print(shown, file=stream)
    elif json:
        print(written["analysis"].read_text(encoding="utf-8"), end="", file=stream)
    else:
        from rooflines.reports.page import monitor as view

        print_page(view.page(pipeline.analyze(monitored)), stderr=stream is sys.stderr)
        print(
            f"\nreport    {shown}\nrebuild   rooflines report {shlex.quote(str(shown.parent))}", file=stream
        )
        if (printed := monitored.directory / OUTPUT_FILE).is_file():
            print(f"output    {printed}", file=stream)
    ending = monitored.facts.ending
    if ending is not None:
        raise typer.Exit(ending.exit_code)
