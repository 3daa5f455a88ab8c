# ruff: noqa: T201 (a command line prints)
"""``rooflines calibrate``: measure the usual operators here, for predictions."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any

from rooflines.cli.app import app
from rooflines.cli.options import QuietOption, options_of, output_directory
from rooflines.cli.output import progress_bar
from rooflines.errors import RooflinesError
from rooflines.pipeline.options import ProfileOptions
from rooflines.units import counted

_OPTIONS = ("device", "precision", "threads", "ceilings", "wait_quiet")


@app.command()
@options_of(ProfileOptions, *_OPTIONS)
def calibrate(
    *,
    output: Annotated[
        Path | None, output_directory("Directory of the runs.", "runs/kernels-calibrate-TIME")
    ] = None,
    quiet: QuietOption = False,
    **options: Any,
) -> None:
    """Measure the usual operators of networks at several sizes on this machine, for predictions of networks
    on it.

    [bold]rooflines calibrate --output mine; rooflines predict --model resnet50 --device this --like
    mine/inference[/bold]
    """
    from rooflines import pipeline
    from rooflines.pipeline.predicted_devices import THIS
    from rooflines.roofline.judge.step.interference import is_delayed

    with progress_bar(quiet) as progress:
        runs = pipeline.calibrate(**options, output=output, formats=("json",), progress=progress)
    if quiet:
        return
    for run in runs:
        analysis = pipeline.analyze(run.directory)
        measured = analysis.operators
        mode = analysis.workload.mode
        if is_delayed(analysis):
            raise RooflinesError(
                f"other programs delayed nearly every step of the sweep in {mode}: it predicts nothing.",
                hint="Repeat it while they pause: rooflines calibrate --wait-quiet",
            )
        names = len({row.name for row in measured})
        print(f"{mode}: {counted(names, 'operator')} in {counted(len(measured), 'row')}")
    like = shlex.join(word for run in runs for word in ("--like", str(run.directory)))
    print(f"predict with them: rooflines predict --model resnet50 --device {THIS} {like}")
