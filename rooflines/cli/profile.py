# ruff: noqa: T201 (a command line prints)
"""``rooflines profile``: run and profile a model or a script."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rooflines.cli.app import app, print_error
from rooflines.cli.options import Formulas, QuietOption, option, options_of, parse_formats
from rooflines.cli.output import page_of, print_page, progress_bar
from rooflines.errors import RooflinesError, UsageError
from rooflines.pipeline.options import ProfileOptions
from rooflines.profiler.options import WHAT_GROUP

if TYPE_CHECKING:
    from rooflines.profiler.distributed import ProcessRank


@app.command()
@options_of(ProfileOptions)
def profile(
    target: Annotated[
        str | None, typer.Argument(help="Script (train.py) or path/to/file.py:factory.")
    ] = None,
    arguments: Annotated[list[str] | None, typer.Argument(help="Arguments of the script, after --.")] = None,
    module: Annotated[
        str | None,
        option(
            "Module to run like python -m (package.train).",
            "--module",
            "-m",
            group=WHAT_GROUP,
        ),
    ] = None,
    model: Annotated[
        str | None,
        option(
            "Torchvision model (resnet50), timm:NAME, hf:NAME or path/to/file.py:factory.",
            group=WHAT_GROUP,
        ),
    ] = None,
    *,
    quiet: QuietOption = False,
    formulas: Formulas = None,
    **options: Any,
) -> None:
    """Profile a model or script and write a roofline report.

    [bold]rooflines profile --model resnet50 --mode training --batch-size 8[/bold]

    [bold]rooflines profile train.py -- --epochs 2[/bold]

    [bold]torchrun --nproc-per-node 2 -m rooflines profile train.py[/bold]
    """
    from rooflines import pipeline
    from rooflines.profiler.distributed import rank_here

    options["formats"] = chosen = parse_formats(options["formats"], traced=options["trace"])
    program, own = _program(target, arguments or [], module, model)
    rank = rank_here() if program is not None else None
    silent = rank is not None and rank.number > 0  # only rank 0 prints

    def show(directory: Path | None, error: RooflinesError | None) -> None:
        if directory is not None and not silent:
            _print_run(directory, chosen, quiet, rank)
        if error is not None:
            print_error(error)

    try:
        with progress_bar(quiet or silent) as progress:
            if program is not None:
                chosen_options = ProfileOptions(**options, progress=progress)
                run = pipeline.profile_script(
                    program, own, chosen_options, module=module is not None, show=show
                )
            else:
                run = pipeline.profile(model or target or "", **options, progress=progress)
    except RooflinesError as error:
        show(error.reported, None)
        raise
    show(run.directory, None)


def _program(
    target: str | None, arguments: list[str], module: str | None, model: str | None
) -> tuple[str | None, list[str]]:
    """Return the script or module to run (None for a model) and its arguments."""
    if module is not None:
        if model is not None:
            raise UsageError(
                f"--module {module} cannot be combined with --model {model}.", hint="Give one of them."
            )
        return module, [target, *arguments] if target is not None else []
    if target is None and model is None:
        raise UsageError(
            "no model or script was given.", hint="For example: rooflines profile --model resnet50"
        )
    if target is not None and model is not None:
        raise UsageError(f"--model {model} cannot be combined with {target}.", hint="Give one of them.")
    is_script = target is not None and target.endswith(".py")
    if arguments and not is_script:
        raise UsageError(
            f"unexpected argument {arguments[0]!r}.",
            hint="Only a script (train.py) takes arguments; give them after --.",
        )
    return target if is_script else None, arguments


def _print_run(directory: Path, formats: tuple[str, ...], quiet: bool, rank: ProcessRank | None) -> None:
    from rooflines import pipeline

    is_job = (directory.parent / pipeline.RANKS_FILE).is_file()
    record = pipeline.RANKS_FILE if is_job else pipeline.ANALYSIS_FILE
    directory = directory.parent if is_job else directory
    shown = directory / ("report.html" if "html" in formats else record)
    if quiet:
        print(shown)
        return
    if is_job:
        from rooflines.roofline.ranks.records import RankAnalysis
        from rooflines.serial import read_json

        print_page(page_of(read_json(directory / record, RankAnalysis)))
    else:
        print_page(page_of(pipeline.analyze(directory)))
    parent = shlex.quote(str(directory.parent))
    print(f"\nreport    {shown}")
    if "tensorboard" in formats:
        print(f"browse    tensorboard --logdir {parent}")
    if rank is not None:
        print(f"all ranks rooflines analyze {parent}")
    else:
        print(f"next      rooflines advise {shlex.quote(str(directory))}")
