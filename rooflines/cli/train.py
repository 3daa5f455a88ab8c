"""``rooflines train``: train a network to accuracy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from rooflines.cli.app import app
from rooflines.cli.options import (
    PAGE_FORMATS,
    QuietOption,
    ReportsOption,
    Target,
    only_model,
    option,
    options_of,
    output_directory,
    parse_formats,
)
from rooflines.cli.output import print_report, progress_bar
from rooflines.errors import RooflinesError
from rooflines.profiler.options import WHAT_GROUP
from rooflines.profiler.records import FINDS_THE_OPERATOR
from rooflines.profiler.training.options import TrainOptions

# Options of a step that a training to accuracy does not have.
_WITHOUT = (
    "classes",
    "sequence_length",
    "prompt_length",
    "new_tokens",
    "kv_cache",
    "quantize",
    "cuda_graphs",
)


@app.command()
@options_of(TrainOptions, without=_WITHOUT)
def train(
    target: Target = None,
    model: Annotated[
        str | None,
        option(
            "Torchvision model (resnet18), timm:NAME or path/to/file.py:factory.",
            group=WHAT_GROUP,
        ),
    ] = None,
    *,
    output: Annotated[
        Path | None,
        output_directory(
            "Directory of the training; an unfinished one is continued.", "runs/NAME-train-TIME"
        ),
    ] = None,
    formats: ReportsOption = PAGE_FORMATS,
    quiet: QuietOption = False,
    **options: Any,
) -> None:
    """Train an image classifier and report accuracy, time per epoch and memory.

    [bold]rooflines train --model resnet18 --data cifar10 --data-dir ~/data --epochs 5 --seeds 3[/bold]

    [bold]rooflines train --model resnet18 --data digits --variants bf16,compile[/bold]
    """
    from rooflines import pipeline
    from rooflines.reports.page.training import page

    name = only_model(target, model, "rooflines train --model resnet18")
    chosen = parse_formats(formats)
    with progress_bar(quiet) as progress:
        training, directory = pipeline.train(name, TrainOptions(**options), output=output, progress=progress)
    made = page(training)
    pipeline.write_reports(made, chosen, directory)
    print_report(made, directory, chosen, "training.json", quiet=quiet)
    failures = [one.failure for one in training.results if one.failure is not None]
    if failures:
        raise RooflinesError(f"{failures[0].what}.", hint=FINDS_THE_OPERATOR)
