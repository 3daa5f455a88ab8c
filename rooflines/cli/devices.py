# ruff: noqa: T201 (a command line prints)
"""``rooflines devices``: data sheets of GPUs and CPUs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from rooflines.cli.app import app
from rooflines.cli.options import Format, Output, option
from rooflines.cli.output import destination
from rooflines.errors import UsageError

_WHICH, _OWN = "Filters", "User data sheets"


@app.command()
def devices(
    name: Annotated[
        list[str] | None,
        typer.Argument(help="Device name as the driver reports it, or words from it."),
    ] = None,
    vendor: Annotated[str, option("Vendor: NVIDIA, AMD, Intel, Apple or AWS.", group=_WHICH)] = "",
    kind: Annotated[
        Literal["cpu", "cuda", "mps", "xpu", "gpu"] | None,
        option("Torch device type; gpu selects all except cpu.", group=_WHICH),
    ] = None,
    architecture: Annotated[
        str,
        option("Part of the architecture name, or a compute capability.", group=_WHICH),
    ] = "",
    precision: Annotated[
        Literal["fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "fp4", "int8"] | None,
        option("Only devices with a rate for this precision.", group=_WHICH),
    ] = None,
    min_bandwidth: Annotated[
        float | None, option("Minimum memory bandwidth in GB/s.", group=_WHICH, metavar="GB/S")
    ] = None,
    min_memory: Annotated[float | None, option("Minimum memory in GB.", group=_WHICH, metavar="GB")] = None,
    format: Format = None,
    output: Output = None,
    add: Annotated[
        Path | None,
        option("Check and save a data sheet.", group=_OWN, metavar="FILE.toml"),
    ] = None,
    remove: Annotated[str | None, option("Remove a saved data sheet.", group=_OWN, metavar="NAME")] = None,
) -> None:
    """List device data sheets, or show one with the source of every figure.

    [bold]rooflines devices --vendor nvidia --min-bandwidth 2000[/bold]

    [bold]rooflines devices "NVIDIA A100-SXM4-80GB"[/bold]
    """
    from rooflines.device_specs import search, user_sheets

    place = destination(format, output)
    if sum(map(bool, (name, add, remove))) > 1:
        raise UsageError("NAME, --add and --remove cannot be combined.", hint="Give one of them.")
    if add is not None:
        sheet, kept = user_sheets.add(add)
        print(f"saved {sheet.name} in {kept}")
        return
    if remove is not None:
        print(f"removed {user_sheets.remove(remove)}")
        return
    found = search.search(
        " ".join(name or ()),
        vendor=vendor,
        kind=kind or "",
        architecture=architecture,
        precision=precision or "",
        min_bandwidth=min_bandwidth,
        min_memory=min_memory,
    )
    from rooflines.reports.page import devices as view

    page = view.device_page(found[0]) if name and len(found) == 1 else view.page(found)
    own = {"json": lambda: view.to_json(found), "csv": lambda: view.to_csv(found)}
    place.show(lambda: page, "devices", own)
