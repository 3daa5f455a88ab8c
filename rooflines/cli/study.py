# ruff: noqa: T201 (a command line prints)
"""``rooflines study``: reproduce published comparisons of one network in several implementations."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rooflines.cli.app import app
from rooflines.cli.options import FORMATS_HELP
from rooflines.cli.options import formats as parse_formats
from rooflines.cli.output import print_page, progress_bar
from rooflines.errors import Interrupted
from rooflines.pipeline.options import CEILINGS_HELP
from rooflines.profiler.options import HOW, MEASURE, OUTPUT, WHAT

if TYPE_CHECKING:
    from rooflines.reports.document import Page

study = typer.Typer(
    name="study",
    help="Reproduce a published study on this machine and compare the results.",
    rich_markup_mode="rich",
    invoke_without_command=True,
)
app.add_typer(study)


@study.callback()
def _root(context: typer.Context) -> None:
    """Print the help if no study was given."""
    if context.invoked_subcommand is None:
        print(context.get_help())


Quick = Annotated[bool, typer.Option("--quick", help="Use fewer samples, steps and epochs; takes minutes.", rich_help_panel=WHAT)]
DataDir = Annotated[
    str | None,
    typer.Option(
        help="Folder with MNIST from torchvision (FOLDER/MNIST/raw).", rich_help_panel=WHAT, metavar="FOLDER",
        show_default="synthetic images for times, scikit-learn's digits for accuracy",
    ),
]  # fmt: skip
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="Output directory.", rich_help_panel=OUTPUT, show_default="runs/STUDY-study-TIME"),
]
Ceilings = Annotated[str, typer.Option(help=CEILINGS_HELP, rich_help_panel=MEASURE)]
Threads = Annotated[
    int | None,
    typer.Option(help="Number of CPU threads per backend.", min=1, rich_help_panel=HOW, show_default="the library's choice"),
]
Seed = Annotated[int, typer.Option(help="Random seed for parameters, sample order and synthetic data.", min=0, rich_help_panel=HOW)]
Formats = Annotated[str, typer.Option(help=FORMATS_HELP, rich_help_panel=OUTPUT)]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only the path of the report.", rich_help_panel=OUTPUT)]


@study.command("backends")
def backends(
    quick: Quick = False,
    backends: Annotated[
        str | None,
        typer.Option(
            help="Backends, comma-separated: numba-cpu, numba-cuda, torch-cpu, torch-cuda, torch-mps, torch-cpu-compile,"
            " torch-cuda-compile.",
            rich_help_panel=WHAT, show_default="all available",
        ),
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(help="Number of timed training epochs.", min=1, rich_help_panel=WHAT, show_default="10; 3 with --quick"),
    ] = None,
    batch_size: Annotated[int, typer.Option(help="Samples per step.", min=1, rich_help_panel=WHAT)] = 512,
    samples: Annotated[
        int | None,
        typer.Option(
            help="Maximum number of training samples.", min=1, rich_help_panel=WHAT,
            show_default="60000; 20480 with --quick on synthetic images",
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
    """Compare a small CNN on MNIST in Numba and PyTorch: epoch time, accuracy, memory, operators and input pipeline.

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
        str | None,
        typer.Option(
            help="Backends, comma-separated: numpy, cupy, torch-cpu, torch-cuda, torch-mps.", rich_help_panel=WHAT,
            show_default="all available",
        ),
    ] = None,
    widths: Annotated[str, typer.Option(help="Layer widths: inputs, hidden layers, classes.", rich_help_panel=WHAT)] = "784-10-10",
    samples: Annotated[int, typer.Option(help="Number of training samples.", min=10, rich_help_panel=WHAT)] = 59_000,
    iterations: Annotated[
        int | None,
        typer.Option(
            help="Iterations of gradient descent over all samples.", min=1, rich_help_panel=WHAT, show_default="500; 60 with --quick"
        ),
    ] = None,
    sizes: Annotated[
        str | None,
        typer.Option(
            help="Additional networks to time, comma-separated, as WIDTHS@SAMPLES (784-128-10@10000).", rich_help_panel=WHAT,
            show_default="seven variants of 784-10-10; four with --quick",
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
    """Compare a perceptron in NumPy, CuPy and PyTorch: time per operation, memory per component, convergence and other sizes.

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


Device = Annotated[
    str | None,
    typer.Option(help="Run on one device only: cpu, cuda or mps.", rich_help_panel=HOW, show_default="all that the study names"),
]
Repeats = Annotated[
    int | None, typer.Option(help="Rounds of every point.", min=1, rich_help_panel=MEASURE, show_default="3; 1 with --quick")
]
Parts = Annotated[
    str | None, typer.Option(help="Parts of the study to run, comma-separated.", rich_help_panel=WHAT, show_default="all")
]
Merge = Annotated[
    list[Path] | None,
    typer.Option(
        "--merge",
        help="Combine the results in these directories, of several machines, instead of running (repeatable).",
        rich_help_panel=WHAT,
        show_default=False,
    ),
]
AnyData = Annotated[
    str | None,
    typer.Option(
        help="Folder with the data set of the paper.", rich_help_panel=WHAT, metavar="FOLDER",
        show_default="synthetic images of its size; scikit-learn's digits for accuracy",
    ),
]  # fmt: skip


def _run(
    name: str, *, quick: bool, data_dir: str | None, device: str | None, threads: int | None, seed: int, ceilings: str,
    repeats: int | None, parts: str | None, merge: list[Path] | None, output: Path | None, formats: str, quiet: bool,
) -> None:  # fmt: skip
    """Run the study ``name``, or merge its results, and write its page."""
    from rooflines.pipeline.reporting import write_reports
    from rooflines.profiler.directory import create_directory, default_directory
    from rooflines.studies import study as job

    folder = job.find_study(name)
    chosen = parse_formats(formats)
    if merge:
        found, directory = job.merge_studies(folder, merge), output or default_directory(name, "merged")
        create_directory(directory)
    else:
        options = job.StudyOptions(
            quick=quick, data_dir=data_dir, device=device, threads=threads, seed=seed, ceilings=ceilings, repeats=repeats,
            parts=None if parts is None else tuple(part.strip() for part in parts.split(",")),
        )  # fmt: skip
        with progress_bar(quiet) as progress:
            found, directory = job.run_study(folder, options, output=output, progress=progress)
    made = job.page(found, folder)
    write_reports(made, chosen, directory)
    _finish(made, directory, formats, quiet)


def _add(name: str, text: str) -> None:
    """Add the command of a study that is a sweep."""

    @study.command(name, help=f"{text}\n\n[bold]rooflines study {name} --quick[/bold]")
    def command(
        quick: Quick = False, data_dir: AnyData = None, device: Device = None, threads: Threads = None, seed: Seed = 0,
        ceilings: Ceilings = "measured", repeats: Repeats = None, parts: Parts = None, merge: Merge = None, output: Output = None,
        formats: Formats = "html", quiet: Quiet = False,
    ) -> None:  # fmt: skip
        _run(
            name, quick=quick, data_dir=data_dir, device=device, threads=threads, seed=seed, ceilings=ceilings, repeats=repeats,
            parts=parts, merge=merge, output=output, formats=formats, quiet=quiet,
        )  # fmt: skip


@study.command("run")
def run(
    folder: Annotated[Path, typer.Argument(help="Folder with study.toml and page.py.", show_default=False)],
    quick: Quick = False, data_dir: AnyData = None, device: Device = None, threads: Threads = None, seed: Seed = 0,
    ceilings: Ceilings = "measured", repeats: Repeats = None, parts: Parts = None, merge: Merge = None, output: Output = None,
    formats: Formats = "html", quiet: Quiet = False,
) -> None:  # fmt: skip
    """Run a study of your own: a folder with its points and its page.

    [bold]rooflines study run path/to/folder[/bold]
    """
    _run(
        str(folder), quick=quick, data_dir=data_dir, device=device, threads=threads, seed=seed, ceilings=ceilings, repeats=repeats,
        parts=parts, merge=merge, output=output, formats=formats, quiet=quiet,
    )  # fmt: skip


_add("environments", "Compare four networks on Tiny-ImageNet by device: throughput, intensity and rooflines.")
_add("optimizations", "Compare default, low-precision, int8 and compiled CNNs: accuracy, epoch time, latency and memory.")
_add("training-profile", "Profile the training of DenseNet-121: operators, steps, utilization, several GPUs and accuracy.")


def _finish(page: Page, directory: Path, formats: str, quiet: bool) -> None:
    """Print the results. Raises Interrupted if the study was interrupted."""
    from rooflines.reports.formats import file_of

    chosen = parse_formats(formats)
    shown = directory / (file_of(chosen[0]) if chosen else "study.json")
    if quiet:
        print(shown)
    else:
        print_page(page)
        print(f"\nreport    {shown}")
    if page.status is not None:
        raise Interrupted("interrupted; the report contains the results so far.", hint=f"See {str(directory)!r}.")
