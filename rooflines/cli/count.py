# ruff: noqa: T201 (a command line prints)
"""``rooflines count``: count FLOPs and bytes without running the model."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from rooflines.cli.app import app
from rooflines.cli.options import By, Directory, Formats, Formulas, TableFormat, options_of
from rooflines.cli.options import formats as parse_formats
from rooflines.cli.output import print_page, write_page
from rooflines.errors import UsageError
from rooflines.profiler.options import OUTPUT, WHAT, Options


@app.command()
@options_of(Options, "mode", "batch_size", "image_size", "sequence_length", "precision", "channels_last")
def count(
    target: Annotated[str | None, typer.Argument(help="Same as --model.", show_default=False)] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="Torchvision model (resnet50), timm:NAME, hf:NAME, hf:PATH/config.json or path/to/file.py:factory.",
            rich_help_panel=WHAT,
            show_default=False,
        ),
    ] = None,
    *,
    by: Annotated[By, typer.Option(help="Group rows by operator or module.", rich_help_panel=OUTPUT)] = "operator",
    format: Annotated[TableFormat, typer.Option(help="Output format.", rich_help_panel=OUTPUT)] = "table",
    rows: Annotated[int, typer.Option(help="Maximum number of rows.", min=1, rich_help_panel=OUTPUT)] = 20,
    against: Annotated[
        str,
        typer.Option(
            help="Compare with other counters and explain the differences. Comma-separated: torch, fvcore, profiler.",
            rich_help_panel=OUTPUT,
            show_default=False,
        ),
    ] = "",
    memory: Annotated[
        bool, typer.Option("--memory", help="Also show the peak memory of a step by category.", rich_help_panel=OUTPUT)
    ] = False,
    formats: Formats = None,
    output: Directory = None,
    formulas: Formulas = None,
    **options: Any,
) -> None:
    """Count FLOPs and bytes of a model per operator, without data and without running it.

    [bold]rooflines count --model resnet50[/bold]

    [bold]rooflines count --model hf:path/to/config.json --mode training --by module[/bold]
    """
    from rooflines.profiler.recording.collect import quiet_profiler
    from rooflines.roofline.counting.other_counters import count_against

    if (model is None) == (target is None):
        raise UsageError("exactly one model is required.", hint="For example: rooflines count --model resnet50")
    if memory and format == "csv":
        raise UsageError("--memory cannot be written as CSV.", hint="Use --format table or json.")
    reports = parse_formats(formats)
    quiet_profiler()
    workload, counted, others = count_against(
        model or target or "", Options(**options, device="cpu"), against.split(","), memory=memory
    )
    if format == "json":
        from rooflines import serial

        beside = {"against": others} if others else {}
        print(serial.to_json({"workload": workload, **counted.to_dict(), **beside}), end="")
        return
    from rooflines.pipeline import default_command
    from rooflines.reports.views.count import count_csv, page

    made = page(counted, workload, by, rows, others, default_command())
    if reports:
        write_page(made, reports, output, "count")
        return
    if format == "csv":
        print(count_csv(counted, by), end="")
        return
    print_page(made)
