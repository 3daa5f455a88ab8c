"""``rooflines sweep``: profile or train every combination of options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from rooflines.cli.app import app
from rooflines.cli.options import (
    SEARCH_FORMATS,
    QuietOption,
    ReportsOption,
    TrainFlag,
    lists_of_options,
    option,
    output_directory,
    parse_formats,
)
from rooflines.cli.output import print_report, progress_bar
from rooflines.errors import UsageError
from rooflines.profiler.options import WHAT_GROUP

WHERE = "Where it runs"


@app.command()
@lists_of_options
def sweep(
    file: Annotated[Path | None, typer.Argument(help="TOML file with the points.")] = None,
    *,
    model: Annotated[
        str | None,
        option("Models, separated by commas.", group=WHAT_GROUP, metavar="NAME,..."),
    ] = None,
    train: TrainFlag = False,
    repeats: Annotated[
        int | None, option("Number of rounds.", group=WHAT_GROUP, min=1, show_default="3")
    ] = None,
    dask: Annotated[
        str | None,
        option("Run on the workers of a Dask scheduler.", "--dask", group=WHERE, metavar="ADDRESS"),
    ] = None,
    slurm: Annotated[
        str | None,
        option(
            "Run as a SLURM job array with these parameters of submitit, such as "
            "slurm_partition=gpu,timeout_min=30.",
            group=WHERE,
            metavar="KEY=VALUE,...",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        output_directory("Directory of the sweep; an unfinished one is continued.", "runs/NAME-sweep-TIME"),
    ] = None,
    formats: ReportsOption = SEARCH_FORMATS,
    quiet: QuietOption = False,
    **lists: str | None,
) -> None:
    """Profile or train every combination of options, each in its own process, and compare them.

    [bold]rooflines sweep --model resnet18,mobilenet_v2 --batch-size 8,16,32 --precision fp32,amp-bf16[/bold]

    [bold]rooflines sweep points.toml -o runs/points[/bold]

    A sweep that was interrupted continues with the same command and --output.
    """
    from rooflines.sweeps.places import on_dask, on_slurm, parameters
    from rooflines.sweeps.points import SweepFile, make_points, parse_values, read_file, settings_of
    from rooflines.sweeps.run import run_sweep
    from rooflines.sweeps.sweep import write_sweep

    if file is None and model is None:
        raise UsageError(
            "no model and no file was given.",
            hint="For example: rooflines sweep --model resnet18 --batch-size 1,8",
        )
    if dask is not None and slurm is not None:
        raise UsageError("--dask cannot be combined with --slurm.", hint="Give one of them.")
    chosen = parse_formats(formats)
    plan = read_file(file) if file is not None else SweepFile(kind="train" if train else "profile")
    kind = "train" if train else plan.kind
    given: dict[str, Any] = (
        {"model": [part.strip() for part in model.split(",")]} if model is not None else {}
    )
    given |= {name: parse_values(name, text, kind) for name, text in lists.items() if text is not None}
    points = make_points(settings_of(plan, given))
    name = plan.name or (file.stem if file is not None else "-".join(given["model"]))
    place = on_dask(dask) if dask is not None else None
    if slurm is not None:
        place = on_slurm((output or Path("runs")) / "slurm", parameters(slurm))
    with progress_bar(quiet) as progress:
        done, directory = run_sweep(
            name, points, repeats=repeats or plan.repeats or 3, output=output, place=place, progress=progress
        )
        page, _ = write_sweep(done, directory, chosen, progress=progress)
    print_report(page, directory, chosen, "results.csv", quiet=quiet)
