# ruff: noqa: T201 (a command line prints)
"""``rooflines profile``: run and profile a model or a script."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rooflines.cli.app import app
from rooflines.cli.options import (
    CEILINGS_HELP,
    FORMATS_HELP,
    HOW,
    MEASURE,
    OUTPUT,
    WHAT,
    BatchSize,
    ChannelsLast,
    Formulas,
    ImageSize,
    Mode,
    Precision,
    PrecisionOption,
    SequenceLength,
)
from rooflines.cli.options import formats as parse_formats
from rooflines.cli.output import print_page, progress_bar
from rooflines.errors import RooflinesError, UsageError

if TYPE_CHECKING:
    from rooflines.profiler.distributed import ProcessRank


@app.command()
def profile(
    context: typer.Context,
    target: Annotated[str | None, typer.Argument(help="Script (train.py) or path/to/file.py:factory.", show_default=False)] = None,
    arguments: Annotated[list[str] | None, typer.Argument(help="Arguments of the script, after --.", show_default=False)] = None,
    module: Annotated[
        str | None,
        typer.Option("--module", "-m", help="Module to run like python -m (package.train).", rich_help_panel=WHAT, show_default=False),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="Torchvision model (resnet50), timm:NAME, hf:NAME or path/to/file.py:factory.",
            rich_help_panel=WHAT,
            show_default=False,
        ),
    ] = None,
    mode: Annotated[Mode, typer.Option(help="Inference or training (with SGD).", rich_help_panel=WHAT)] = Mode.inference,
    batch_size: BatchSize = None,
    image_size: ImageSize = None,
    sequence_length: SequenceLength = 128,
    precision: PrecisionOption = Precision.fp32,
    device: Annotated[str, typer.Option(help="Device: auto, cpu, cuda, cuda:N or mps.", rich_help_panel=HOW)] = "auto",
    threads: Annotated[
        int | None, typer.Option(help="Number of CPU threads.", rich_help_panel=HOW, show_default="torch's choice")
    ] = None,
    channels_last: ChannelsLast = False,
    compile: Annotated[bool, typer.Option("--compile", help="Run with torch.compile.", rich_help_panel=HOW)] = False,
    seed: Annotated[int, typer.Option(help="Random seed for weights and inputs.", rich_help_panel=HOW)] = 0,
    to_end: Annotated[
        bool,
        typer.Option("--to-end", help="Run the script to its end instead of stopping after enough steps.", rich_help_panel=HOW),
    ] = False,
    steps: Annotated[
        int | None, typer.Option(help="Number of timed steps.", rich_help_panel=MEASURE, show_default="about 5 s, 5 to 100 steps")
    ] = None,
    warmup: Annotated[
        int | None, typer.Option(help="Number of warm-up steps.", rich_help_panel=MEASURE, show_default="until step times settle")
    ] = None,
    ceilings: Annotated[str, typer.Option(help=CEILINGS_HELP, rich_help_panel=MEASURE)] = "measured",
    remeasure: Annotated[
        bool, typer.Option("--remeasure", help="Measure the ceilings again instead of using the cached ones.", rich_help_panel=MEASURE)
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Run directory to create.", rich_help_panel=OUTPUT, show_default="runs/NAME-MODE-TIME"),
    ] = None,
    formats: Annotated[str, typer.Option(help=FORMATS_HELP, rich_help_panel=OUTPUT)] = "html,pdf,json,csv,tensorboard",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the path of the report.", rich_help_panel=OUTPUT)] = False,
    formulas: Formulas = None,
) -> None:
    """Profile a model or script and write a roofline report.

    [bold]rooflines profile --model resnet50 --mode training --batch-size 8[/bold]

    [bold]rooflines profile train.py -- --epochs 2[/bold]

    [bold]torchrun --nproc-per-node 2 -m rooflines profile train.py[/bold]
    """
    from rooflines import pipeline
    from rooflines.profiler.distributed import rank_here

    chosen = parse_formats(formats)
    program, own = _program(target, arguments or [], module, model)
    if program is not None:
        _refuse_for_script(context)
    rank = rank_here() if program is not None else None
    silent = rank is not None and rank.number > 0  # only rank 0 prints
    try:
        with progress_bar(quiet or silent) as progress:
            if program is not None:
                run = pipeline.profile_script(
                    program, own, module=module is not None, device=device, threads=threads, batch_size=batch_size,
                    precision=precision.value, steps=steps, warmup=warmup, ceilings=ceilings, remeasure=remeasure, output=output,
                    formats=chosen, to_end=to_end, progress=progress,
                )  # fmt: skip
            else:
                run = pipeline.profile(
                    model or target or "", mode=mode.value, batch_size=batch_size, image_size=image_size,
                    sequence_length=sequence_length, precision=precision.value, device=device, threads=threads,
                    channels_last=channels_last, compile=compile, steps=steps, warmup=warmup, ceilings=ceilings, remeasure=remeasure,
                    output=output, formats=chosen, seed=seed, progress=progress,
                )  # fmt: skip
    except RooflinesError as error:
        if error.reported is not None and not silent:
            _print_run(error.reported, chosen, quiet, rank)
        raise
    if not silent:
        _print_run(run.directory, chosen, quiet, rank)


def _program(target: str | None, arguments: list[str], module: str | None, model: str | None) -> tuple[str | None, list[str]]:
    """Return the script or module to run (None for a model) and its arguments."""
    if module is not None:
        if model is not None:
            raise UsageError(f"--module {module} cannot be combined with --model {model}.", hint="Give one of them.")
        return module, [target, *arguments] if target is not None else []
    if target is None and model is None:
        raise UsageError("no model or script was given.", hint="For example: rooflines profile --model resnet50")
    if target is not None and model is not None:
        raise UsageError(f"--model {model} cannot be combined with {target}.", hint="Give one of them.")
    is_script = target is not None and target.endswith(".py")
    if arguments and not is_script:
        raise UsageError(f"unexpected argument {arguments[0]!r}.", hint="Only a script (train.py) takes arguments; give them after --.")
    return target if is_script else None, arguments


# Options that a script sets itself. Batch size and precision are only labels there.
_NOT_FOR_SCRIPTS = ("mode", "image_size", "sequence_length", "channels_last", "compile", "seed")


def _refuse_for_script(context: typer.Context) -> None:
    for name in _NOT_FOR_SCRIPTS:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise UsageError(
                f"--{name.replace('_', '-')} does not apply to scripts.",
                hint="Give the script's own options after --.",
            )


def _print_run(directory: Path, formats: tuple[str, ...], quiet: bool, rank: ProcessRank | None) -> None:
    from rooflines import pipeline

    shown = directory / ("report.html" if "html" in formats else pipeline.ANALYSIS_FILE)
    if quiet:
        print(shown)
        return
    from rooflines.reports.views import run

    print_page(run.page(pipeline.analyze(directory)))
    print(f"\nreport    {shown}")
    print(f"rebuild   rooflines report {shlex.quote(str(directory))}")
    if "tensorboard" in formats:
        print(f"browse    tensorboard --logdir {shlex.quote(str(directory.parent))}")
    if rank is not None:
        print(f"all ranks rooflines analyze {shlex.quote(str(directory.parent))}")
