"""``rooflines tune``: search options for the best throughput, latency, memory, energy or accuracy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
from rooflines.errors import Interrupted, UsageError
from rooflines.profiler.options import MEASURE_GROUP, OUTPUT, WHAT_GROUP

if TYPE_CHECKING:
    from rooflines.sweeps.records import Kind
    from rooflines.sweeps.tune import Tuning


@app.command()
@lists_of_options
def tune(
    *,
    model: Annotated[
        str | None,
        option("Model, or several separated by commas.", group=WHAT_GROUP, metavar="NAME,..."),
    ] = None,
    train: TrainFlag = False,
    objective: Annotated[
        str | None,
        option(
            "What to improve, comma-separated: throughput, latency, memory, energy, accuracy (--train).",
            group=MEASURE_GROUP,
            metavar="NAME,...",
            show_default="throughput; accuracy with --train",
        ),
    ] = None,
    trials: Annotated[
        int, option("Number of trials, those of earlier calls included.", group=MEASURE_GROUP)
    ] = 20,
    repeats: Annotated[
        int,
        option(
            "Number of runs of the best and of the default setting at the end, in turn.", group=MEASURE_GROUP
        ),
    ] = 5,
    storage: Annotated[
        str | None,
        option(
            "Database of the study, shared by several processes or machines (sqlite:///FILE, "
            "postgresql://...).",
            group=OUTPUT,
            metavar="URL",
            show_default="study.db in the output directory",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        output_directory("Directory of the search; an unfinished one is continued.", "runs/NAME-tune-TIME"),
    ] = None,
    formats: ReportsOption = SEARCH_FORMATS,
    quiet: QuietOption = False,
    **lists: str | None,
) -> None:
    """Search options of profile or train for the best throughput, latency, memory, energy or accuracy.

    [bold]rooflines tune --model resnet18 --batch-size 8..128 --precision fp32,amp-bf16 --channels-last
    off,on[/bold]

    [bold]rooflines tune --model resnet18 --train --data digits --learning-rate 1e-4..1e-1 --batch-size
    16,32,64[/bold]

    An option takes one value, several separated by commas, or a range LOW..HIGH. The report names the best
    setting and compares it with the default one. A search that was interrupted continues with the same
    command and --output or --storage.
    """
    from rooflines.pipeline.command import default_command
    from rooflines.profiler.directory import default_directory, timestamp
    from rooflines.sweeps.results import read_objectives
    from rooflines.sweeps.space import read_space
    from rooflines.sweeps.tune import TUNE_FILE, Tuning, load_tuning, run_tuning

    if model is None:
        raise UsageError(
            "no model was given.", hint="For example: rooflines tune --model resnet18 --batch-size 8..128"
        )
    chosen = parse_formats(formats)
    kind: Kind = "train" if train else "profile"
    models = [part.strip() for part in model.split(",")]
    space = read_space(models, {name: text for name, text in lists.items() if text is not None}, kind)
    objectives = read_objectives(objective or ("accuracy" if train else "throughput"), kind)
    name = "-".join(Path(one).name for one in models)
    directory = output or default_directory(name, "tune")
    tuning = Tuning(
        name=name,
        created=timestamp(),
        command=default_command(),
        space=space,
        objectives=tuple(one.name for one in objectives),
        budget=trials,
        repeats=repeats,
    )
    try:
        with progress_bar(quiet) as progress:
            tuning = run_tuning(tuning, directory, storage=storage, progress=progress)
    except Interrupted:
        if (directory / TUNE_FILE).is_file():
            _finish(load_tuning(directory), directory, chosen, quiet)
        raise
    _finish(tuning, directory, chosen, quiet)


def _finish(tuning: Tuning, directory: Path, formats: tuple[str, ...], quiet: bool) -> None:
    """Write the reports and print the short form."""
    from rooflines.sweeps.sweep import write_tuning

    with progress_bar(quiet) as progress:
        page, _ = write_tuning(tuning, directory, formats, progress)
    print_report(page, directory, formats, "results.csv", quiet=quiet)
