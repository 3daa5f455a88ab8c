# ruff: noqa: T201 (a command line prints)
"""``rooflines study``: one network run in several ways, held against each other and against a paper."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from rooflines.cli.app import app
from rooflines.cli.options import CEILINGS_HELP, FORMATS_HELP, HOW, MEASURE, OUTPUT, WHAT
from rooflines.cli.options import formats as parse_formats
from rooflines.cli.output import print_page, progress_bar
from rooflines.errors import Interrupted

if TYPE_CHECKING:
    from rooflines.reports.document import Page

study = typer.Typer(
    name="study",
    help="Run one network in several ways on this machine, and hold them against each other and against a published study.",
    rich_markup_mode="rich",
    invoke_without_command=True,
)
app.add_typer(study)


@study.callback()
def _root(context: typer.Context) -> None:
    """Without a study: which there are."""
    if context.invoked_subcommand is None:
        print(context.get_help())


Quick = Annotated[bool, typer.Option("--quick", help="Less of everything: under two minutes.", rich_help_panel=WHAT)]
DataDir = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        help="Folder with torchvision's MNIST (FOLDER/MNIST/raw).", rich_help_panel=WHAT, metavar="FOLDER",
        show_default="synthetic images for speed, scikit-learn's digits for accuracy",
    ),
]  # fmt: skip
Output = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option("--output", "-o", help="The directory to make.", rich_help_panel=OUTPUT, show_default="runs/STUDY-study-TIME"),
]
Ceilings = Annotated[str, typer.Option(help=CEILINGS_HELP, rich_help_panel=MEASURE)]
Threads = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option(help="CPU threads of every backend.", min=1, rich_help_panel=HOW, show_default="each library's choice"),
]
Seed = Annotated[int, typer.Option(help="Of parameters, order and synthetic data.", min=0, rich_help_panel=HOW)]
Formats = Annotated[str, typer.Option(help=FORMATS_HELP, rich_help_panel=OUTPUT)]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print the report's path only.", rich_help_panel=OUTPUT)]


@study.command("backends")
def backends(
    quick: Quick = False,
    backends: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            help="Of numba-cpu, numba-cuda, torch-cpu, torch-cuda, torch-mps, and torch-cpu-compile, torch-cuda-compile, separated by"
            " commas.",
            rich_help_panel=WHAT, show_default="all that run here",
        ),
    ] = None,
    epochs: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Of the training that times are taken from.", min=1, rich_help_panel=WHAT, show_default="10; 3 with --quick"),
    ] = None,
    batch_size: Annotated[int, typer.Option(help="Samples per step.", min=1, rich_help_panel=WHAT)] = 512,
    samples: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(
            help="Most training samples.", min=1, rich_help_panel=WHAT, show_default="60000; 20480 with --quick on synthetic images"
        ),
    ] = None,
    data_dir: DataDir = None,
    threads: Threads = None,
    seed: Seed = 0,
    ceilings: Ceilings = "measured",
    output: Output = None,
    formats: Formats = "html",
    quiet: Quiet = False,
) -> None:  # fmt: skip
    """A small CNN on MNIST by hand in Numba and in PyTorch, on every device here: epochs, accuracy, memory, operators, input.

    [bold]rooflines study backends --quick[/bold]

    [bold]rooflines study backends --data-dir ~/data --backends numba-cpu,torch-cpu --epochs 10[/bold]
    """
    from rooflines import pipeline
    from rooflines.studies import backends as job
    from rooflines.studies.backends_page import page

    options = job.BackendsOptions(
        quick=quick, backends=backends, epochs=epochs, batch_size=batch_size, samples=samples, data_dir=data_dir, output=output,
        ceilings=ceilings, threads=threads, seed=seed, command=pipeline.default_command(), formats=parse_formats(formats),
    )  # fmt: skip
    with progress_bar(quiet) as progress:
        done, directory = job.run(options, progress)
    _finish(page(done), directory, formats, quiet)


@study.command("from-scratch")
def from_scratch(
    quick: Quick = False,
    backends: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            help="Of numpy, cupy, torch-cpu, torch-cuda, torch-mps, separated by commas.", rich_help_panel=WHAT,
            show_default="all that run here",
        ),
    ] = None,
    widths: Annotated[str, typer.Option(help="Input, hidden layers, classes.", rich_help_panel=WHAT)] = "784-10-10",
    samples: Annotated[int, typer.Option(help="Training samples.", min=10, rich_help_panel=WHAT)] = 59_000,
    iterations: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Of gradient descent over all samples.", min=1, rich_help_panel=WHAT, show_default="500; 60 with --quick"),
    ] = None,
    sizes: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            help="Other networks to time, as 784-128-10@10000: widths@samples, separated by commas.", rich_help_panel=WHAT,
            show_default="seven around 784-10-10; four with --quick",
        ),
    ] = None,
    data_dir: DataDir = None,
    threads: Threads = None,
    seed: Seed = 0,
    ceilings: Ceilings = "measured",
    output: Output = None,
    formats: Formats = "html",
    quiet: Quiet = False,
) -> None:  # fmt: skip
    """A perceptron written once for NumPy, CuPy and PyTorch: times by operation, memory by component, convergence, other sizes.

    [bold]rooflines study from-scratch --quick[/bold]

    [bold]rooflines study from-scratch --backends numpy,cupy --sizes 784-10-10@59000,784-512-10@59000[/bold]
    """
    from rooflines import pipeline
    from rooflines.studies import from_scratch as job
    from rooflines.studies.from_scratch_page import page

    options = job.FromScratchOptions(
        quick=quick, backends=backends, widths=job.parse_widths(widths), samples=samples, iterations=iterations,
        sizes=None if sizes is None else job.parse_sizes(sizes), data_dir=data_dir, output=output, ceilings=ceilings, threads=threads,
        seed=seed, command=pipeline.default_command(), formats=parse_formats(formats),
    )  # fmt: skip
    with progress_bar(quiet) as progress:
        done, directory = job.run(options, progress)
    _finish(page(done), directory, formats, quiet)


def _finish(page: Page, directory: Path, formats: str, quiet: bool) -> None:
    """Print what was found; an interrupted study is an error all the same."""
    from rooflines.reports.formats import FORMATS

    chosen = parse_formats(formats)
    shown = directory / (FORMATS[chosen[0]].file if chosen else "study.json")
    if quiet:
        print(shown)
    else:
        print_page(page)
        print(f"\nreport    {shown}")
    if page.status is not None:
        raise Interrupted("interrupted; what had been measured by then is in the report.", hint=f"It is in {str(directory)!r}.")
