# ruff: noqa: T201 (a command line prints)
"""``rooflines advise``: the recommendations of a run with their predicted gain, and what they gain when they
are tried."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rooflines.cli.app import app
from rooflines.cli.options import FORMAT_FLAGS, FORMATS_HELP, option, output_directory, parse_formats
from rooflines.cli.output import print_page, print_written, progress_bar
from rooflines.errors import Interrupted, UsageError
from rooflines.profiler.options import OUTPUT, split_list

_TRY = "With --try"


@app.command()
def advise(
    run: Annotated[Path, typer.Argument(help="Run directory.", metavar="RUN")],
    trying: Annotated[
        bool,
        option("Measure each change in turn with the run as it was, then the best combination.", "--try"),
    ] = False,
    rounds: Annotated[
        int, option("Number of rounds; an interval takes at least three.", group=_TRY, min=1)
    ] = 4,
    only: Annotated[
        str | None,
        option(
            "Kinds of changes, separated by commas; also those that are predicted not to help.",
            group=_TRY,
            metavar="KIND,...",
            show_default="all that are predicted to help",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        output_directory(
            "Directory of the measurements; an unfinished one is continued.", "runs/NAME-advise-TIME"
        ),
    ] = None,
    formats: Annotated[str, option(f"With --try: {FORMATS_HELP}", *FORMAT_FLAGS, group=OUTPUT)] = "html",
) -> None:
    """Print what to change in a run and what that would gain; with --try, measure it.

    [bold]rooflines advise runs/resnet50-inference-20261120-105500[/bold]

    [bold]rooflines advise RUN --try --only precision,compile --rounds 6[/bold]
    """
    from rooflines.pipeline.reporting import report_run
    from rooflines.profiler.directory import load
    from rooflines.reports.page import advice
    from rooflines.roofline.analyze import analyze
    from rooflines.roofline.predict.trials import read_trials
    from rooflines.sweeps.trying import check_repeatable, predicted_changes, try_changes, worth_trying

    chosen, recorded = parse_formats(formats, traced=True), load(run)
    kinds = _kinds(only)
    if trying:
        check_repeatable(recorded)
    judged = analyze(recorded)
    analysis = judged.analysis
    with progress_bar(False) as progress:
        if progress is not None:
            progress.stage("predicting", None)
        predicted = predicted_changes(recorded, judged)
    if not trying:
        print_page(
            advice.page(analysis, [trial for trial in predicted if not kinds or trial.change.kind in kinds])
        )
        return
    interrupted: Interrupted | None = None
    with progress_bar(False) as progress:
        try:
            try_changes(
                recorded, worth_trying(predicted, kinds), rounds=rounds, output=output, progress=progress
            )
        except Interrupted as error:
            interrupted = error
        written = report_run(recorded, chosen, judged=judged, progress=progress)
    print_page(advice.page(analysis, trials=read_trials(run)))
    print()
    print_written(written)
    if interrupted is not None:
        raise interrupted


def _kinds(text: str | None) -> tuple[str, ...]:
    """Return the kinds in ``text``; raises UsageError for an unknown one."""
    from rooflines.roofline.predict.options import OPTIONS

    known = [option.kind for option in OPTIONS if option.values is not None]
    kinds = split_list(text or "")
    for kind in kinds:
        if kind not in known:
            raise UsageError(f"unknown kind of change {kind!r}.", hint=f"Choose from {', '.join(known)}.")
    return kinds
