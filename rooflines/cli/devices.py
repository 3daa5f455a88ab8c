# ruff: noqa: T201 (a command line prints)
"""``rooflines devices``: the data sheets."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Optional

import typer

from rooflines.cli.app import app
from rooflines.cli.options import OUTPUT, Directory, Formats, TableFormat
from rooflines.cli.options import formats as parse_formats
from rooflines.cli.output import print_page, write_page
from rooflines.errors import UsageError

_WHICH, _OWN = "Which devices", "Your own sheets"


class DeviceKind(str, Enum):
    """Which devices ``devices`` lists."""

    cpu = "cpu"
    cuda = "cuda"
    mps = "mps"
    xpu = "xpu"
    gpu = "gpu"


class SheetPrecision(str, Enum):
    """The precisions that a data sheet may have a rate for."""

    fp64 = "fp64"
    fp32 = "fp32"
    tf32 = "tf32"
    bf16 = "bf16"
    fp16 = "fp16"
    fp8 = "fp8"
    int8 = "int8"


@app.command()
def devices(
    name: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Argument(help="A name as a driver prints it, or some words of it.", show_default=False),
    ] = None,
    vendor: Annotated[str, typer.Option(help="NVIDIA, AMD, Intel, Apple, AWS.", rich_help_panel=_WHICH, show_default=False)] = "",
    kind: Annotated[
        Optional[DeviceKind],  # noqa: UP045
        typer.Option(help="The torch device type; gpu is all but cpu.", rich_help_panel=_WHICH),
    ] = None,
    architecture: Annotated[
        str, typer.Option(help="Part of its name, or a compute capability.", rich_help_panel=_WHICH, show_default=False)
    ] = "",
    precision: Annotated[
        Optional[SheetPrecision],  # noqa: UP045
        typer.Option(help="Only devices with a rate for this precision.", rich_help_panel=_WHICH),
    ] = None,
    min_bandwidth: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(help="GB/s of memory bandwidth, at least.", rich_help_panel=_WHICH, metavar="GB/S"),
    ] = None,
    min_memory: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(help="GB of memory, at least.", rich_help_panel=_WHICH, metavar="GB"),
    ] = None,
    format: Annotated[TableFormat, typer.Option(help="What to print.", rich_help_panel=OUTPUT)] = TableFormat.table,
    formats: Formats = None,
    output: Directory = None,
    add: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="Check a data sheet of your own and keep it.", rich_help_panel=_OWN, metavar="FILE.toml", show_default=False),
    ] = None,
    remove: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Take out a data sheet of your own.", rich_help_panel=_OWN, metavar="NAME", show_default=False),
    ] = None,
) -> None:
    """List the data sheets of devices, or show one with the source of every figure.

    [bold]rooflines devices --vendor nvidia --min-bandwidth 2000[/bold]

    [bold]rooflines devices "NVIDIA A100-SXM4-80GB"[/bold]
    """
    from rooflines.device_specs import search, user_sheets

    if sum(map(bool, (name, add, remove))) > 1:
        raise UsageError("NAME, --add and --remove exclude each other.", hint="Give one of them.")
    if add is not None:
        sheet, kept = user_sheets.add(add)
        print(f"{sheet.name} is kept in {kept}")
        return
    if remove is not None:
        print(f"{user_sheets.remove(remove)} is removed")
        return
    found = search.search(
        " ".join(name or ()), vendor=vendor, kind=kind.value if kind else "", architecture=architecture,
        precision=precision.value if precision else "", min_bandwidth=min_bandwidth, min_memory=min_memory,
    )  # fmt: skip
    from rooflines.reports.views import devices as show

    reports = parse_formats(formats)
    if reports:
        write_page(show.device_page(found[0]) if name and len(found) == 1 else show.page(found), reports, output, "devices")
    elif format is TableFormat.json:
        print(show.to_json(found), end="")
    elif format is TableFormat.csv:
        print(show.to_csv(found), end="")
    elif name and len(found) == 1:
        print_page(show.device_page(found[0]))
    else:
        print_page(show.page(found))
