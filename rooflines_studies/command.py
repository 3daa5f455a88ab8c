# ruff: noqa: T201 (a command line prints)
"""``rooflines study``: reproduce published comparisons."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from rooflines.ext import (
    CEILINGS_HELP,
    HOW_GROUP,
    MEASURE_GROUP,
    PAGE_FORMATS,
    WHAT_GROUP,
    Interrupted,
    QuietOption,
    ReportsOption,
    UsageError,
    arg,
    option,
    output_directory,
    parse_formats,
    print_report,
    progress_bar,
)

study = typer.Typer(
    name="study",
    help="Reproduce a published study on this machine and compare the results.",
    rich_markup_mode="rich",
    invoke_without_command=True,
)


@study.callback()
def _root(context: typer.Context) -> None:
    """Print the help if no study was given."""
    if context.invoked_subcommand is None:
        print(context.get_help())


@study.command("run")
def run(
    folder: Annotated[
        Path, typer.Argument(help="Folder with study.toml and, optionally, page.py.", show_default=False)
    ],
    quick: Annotated[
        bool, option("Use fewer samples, steps and epochs; takes minutes.", "--quick", group=WHAT_GROUP)
    ] = False,
    data_dir: Annotated[
        str | None,
        option(
            "Folder with the data set of the paper.",
            group=WHAT_GROUP,
            metavar="FOLDER",
            show_default="synthetic images of its size; scikit-learn's digits for accuracy",
        ),
    ] = None,
    device: Annotated[
        str | None,
        option(
            "Run on one device only: cpu, cuda or mps.",
            group=HOW_GROUP,
            show_default="all that the study names",
        ),
    ] = None,
    threads: Annotated[
        int | None,
        option(
            "Number of CPU threads per process.", group=HOW_GROUP, min=1, show_default="the library's choice"
        ),
    ] = None,
    seed: Annotated[
        int, option("Random seed for parameters, sample order and synthetic data.", group=HOW_GROUP, min=0)
    ] = 0,
    ceilings: Annotated[str, option(CEILINGS_HELP, group=MEASURE_GROUP)] = "measured",
    repeats: Annotated[
        int | None,
        option(
            "Rounds of every point.",
            group=MEASURE_GROUP,
            min=1,
            show_default="those of the study; 1 with --quick",
        ),
    ] = None,
    parts: Annotated[
        str | None,
        option("Parts of the study to run, comma-separated.", group=WHAT_GROUP, show_default="all"),
    ] = None,
    settings: Annotated[
        list[str] | None,
        option(
            "Replace an option of the points, in all parts or in one (repeatable): epochs=5, "
            "speed.epochs=5, backend=numpy,cupy.",
            "--set",
            group=WHAT_GROUP,
            metavar="[PART.]NAME=VALUE",
            show_default=False,
        ),
    ] = None,
    merge: Annotated[
        list[Path] | None,
        option(
            "Combine the results in these directories, of several machines, instead of running (repeatable).",
            "--merge",
            group=WHAT_GROUP,
            show_default=False,
        ),
    ] = None,
    output: Annotated[Path | None, output_directory("Output directory.", "runs/STUDY-study-TIME")] = None,
    formats: ReportsOption = PAGE_FORMATS,
    quiet: QuietOption = False,
) -> None:
    """Run a study of your own: a folder with its points and its page.

    [bold]rooflines study run path/to/folder[/bold]
    """
    from rooflines.ext import create_directory, default_directory, write_reports
    from rooflines_studies import study as job

    name = str(folder)
    found_in = job.find_study(name)
    chosen = parse_formats(formats)
    if merge:
        found, directory = job.merge_studies(found_in, merge), output or default_directory(name, "merged")
        create_directory(directory)
    else:
        options = job.StudyOptions(
            quick=quick,
            data_dir=data_dir,
            device=device,
            threads=threads,
            seed=seed,
            ceilings=ceilings,
            repeats=repeats,
            parts=None if parts is None else tuple(part.strip() for part in parts.split(",")),
            settings=_pairs(settings or ()),
        )
        with progress_bar(quiet) as progress:
            found, directory = job.run_study(found_in, options, output=output, progress=progress)
    made = job.page(found, found_in)
    write_reports(made, chosen, directory)
    print_report(made, directory, chosen, "study.json", quiet=quiet)
    if made.status is not None:
        hint = f"The same command with {arg('output', str(directory))} continues it."
        raise Interrupted("interrupted; the report contains the results so far.", hint=hint)


def _pairs(settings: Sequence[str]) -> dict[str, str]:
    """The values in ``name=value`` by name."""
    found = {}
    for text in settings:
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError(
                f"{arg('set', text)} has no value.", hint=f"For example: {arg('set', 'batch_size=8,16')}"
            )
        found[name.strip()] = value.strip()
    return found


def _add(name: str, text: str) -> None:
    """Add the command of a study, with the options of ``run``."""

    def command(**options: Any) -> None:
        run(Path(name), **options)

    signature = inspect.signature(run, eval_str=True)
    own = [
        one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in list(signature.parameters.values())[1:]
    ]
    command.__signature__ = signature.replace(parameters=own)  # type: ignore[attr-defined]
    study.command(name, help=f"{text}\n\n[bold]rooflines study {name} --quick[/bold]")(command)


_add(
    "backends",
    "Compare a small CNN on MNIST in Numba and PyTorch: epoch time, accuracy, memory, operators "
    "and input pipeline.",
)
_add(
    "from-scratch",
    "Compare a perceptron in NumPy, CuPy and PyTorch: time per operation, memory per component, "
    "convergence and sizes.",
)
_add("environments", "Compare four networks on Tiny-ImageNet by device: throughput, intensity and rooflines.")
_add(
    "optimizations",
    "Compare default, low-precision, int8 and compiled CNNs: accuracy, epoch time, latency and memory.",
)
_add(
    "training-profile",
    "Profile the training of DenseNet-121: operators, steps, utilization, several GPUs and accuracy.",
)
