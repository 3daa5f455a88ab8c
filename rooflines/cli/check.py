# ruff: noqa: T201 (a command line prints)
"""``rooflines check``: compare a run with the baseline that a repository keeps, or the working tree with a
commit."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from rooflines.cli.app import app, load
from rooflines.cli.compare import (
    SUFFIXES,
    OutputFormat,
    Rows,
    Top,
    Undecided,
    fail_if_slower,
    show_comparisons,
)
from rooflines.cli.options import TRACE_OPTIONS, Output, option, reading_options
from rooflines.cli.output import check_writable, destination, progress_bar
from rooflines.errors import UsageError, writing
from rooflines.profiler.options import OUTPUT

# Two runs of the same code differ by as much on a shared machine after its drift has been taken out;
# benchmarks/compare_noise.py.
FAIL_ABOVE = 5.0
# The 95 % interval is 2.5 times as wide as the rounds scatter for 3 rounds, 1.2 times for 5 and 0.8 times for
# 8.
ROUNDS, FEWEST_ROUNDS = 5, 3


@app.command()
@reading_options(*TRACE_OPTIONS, profiles=True)
def check(
    run: Annotated[
        list[str],
        typer.Argument(
            help="Run directory, trace or analysis.json; or, after --, the arguments of rooflines profile.",
            metavar="RUN",
        ),
    ],
    baseline: Annotated[
        Path | None,
        option("Directory of the baselines, one file per workload.", metavar="DIR"),
    ] = None,
    against: Annotated[
        str | None,
        option(
            "Profile this commit and the working tree in turn, and compare them.",
            metavar="GIT_REF",
        ),
    ] = None,
    rounds: Annotated[
        int | None,
        option("With --against: how often both are profiled.", min=FEWEST_ROUNDS, show_default=str(ROUNDS)),
    ] = None,
    runs: Annotated[
        Path | None,
        option(
            "With --against: directory of the runs.", metavar="DIR", show_default="runs/check-rounds-TIME"
        ),
    ] = None,
    update: Annotated[
        bool, option("Store the run as the baseline of its workload, without comparing.", "--update")
    ] = False,
    fail_above: Annotated[
        float,
        option(
            "Exit with code 1 if the run is slower than the baseline by more than this "
            "percentage, outside the noise.",
            metavar="PERCENT",
            min=0,
        ),
    ] = FAIL_ABOVE,
    by: Rows = "operator",
    top: Top = 5,
    format: OutputFormat = None,
    output: Output = None,
    benchmark: Annotated[
        Path | None,
        option(
            "Also write the figures for github-action-benchmark (customSmallerIsBetter).",
            group=OUTPUT,
            metavar="FILE",
        ),
    ] = None,
    undecided: Undecided = "pass",
    anyway: Annotated[
        bool,
        option(
            "Compare even if device, threads or mode differ; with --update, store a baseline whose time is "
            "not known well enough.",
            "--anyway",
        ),
    ] = False,
    **reading: Any,
) -> None:
    """Compare a run with the stored baseline of the same workload, or the working tree with a commit, and
    fail if it is slower.

    [bold]rooflines check --baseline perf runs/now[/bold]

    [bold]rooflines check --baseline perf --update -- --model resnet18 --batch-size 8[/bold]

    [bold]rooflines check --against main -- train.py -- --epochs 1[/bold]

    Exit codes: 0 not slower, or not decided; 1 slower than --fail-above allows, or not decided with
    --undecided fail; 2 no (good) baseline, not
    comparable or not readable.
    """
    place = destination(format, output, SUFFIXES)
    if benchmark is not None:
        check_writable(benchmark)
    if (baseline is None) == (against is None) or (update and against is not None):
        given = (
            "--update cannot be combined with --against"
            if update and against
            else "check needs either --baseline or --against"
        )
        raise UsageError(f"{given}.", hint="For example: rooflines check --against main -- train.py")
    if against is None and (rounds or runs):
        raise UsageError(
            f"--{'rounds' if rounds else 'runs'} requires --against.",
            hint="A stored baseline is compared with one run.",
        )
    if against is not None:
        from rooflines.sweeps.against import compare_with_commit

        _check_arguments(run, "or choose it with --runs")
        with progress_bar(False) as progress:
            comparison = compare_with_commit(
                against,
                run,
                function=f"{__name__}:profile_here",
                rounds=rounds or ROUNDS,
                small=min(fail_above, FAIL_ABOVE) / 100,
                output=runs,
                anyway=anyway,
                progress=progress,
            )
    elif baseline is not None:
        from rooflines import pipeline

        if not update:
            pipeline.check_baselines(baseline)
        # One argument that is neither an option nor a script is a run; else they are the arguments of a
        # profile.
        source = (
            run[0]
            if len(run) == 1 and not run[0].startswith("-") and not run[0].endswith(".py")
            else _profiled(run)
        )
        with progress_bar(not sys.stderr.isatty()) as progress:
            if update:
                stored = pipeline.update_baseline(
                    source, baseline, anyway=anyway, **reading, progress=progress
                )
                print(f"baseline  {stored}")
                return
            comparison = pipeline.check(source, baseline, anyway=anyway, **reading, progress=progress)
    if benchmark is not None:
        from rooflines.reports.page import comparison as view

        with writing(f"write {str(benchmark)!r}", "Choose another file."):
            benchmark.write_text(view.benchmark(comparison, top), encoding="utf-8")
    show_comparisons([comparison], by, top, place, fail_above)
    fail_if_slower([comparison], fail_above, undecided)


def _profiled(arguments: Sequence[str]) -> str:
    """Profile as ``rooflines profile`` does with these arguments; returns the directory of the run."""
    from rooflines.profiler.directory import default_directory

    _check_arguments(arguments, "or profile first")
    directory = str(default_directory("check", "run"))
    command = sys.argv
    # Standard output is for the comparison; what the page suggests repeats the profile.
    sys.argv = ["rooflines", "profile", *arguments]
    try:
        with contextlib.redirect_stdout(sys.stderr):
            _profile(["--output", directory, *arguments])
    finally:
        sys.argv = command
    return directory


def _check_arguments(arguments: Sequence[str], instead: str) -> None:
    """Raise UsageError for arguments of a profile that choose where it is recorded."""
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    if any(argument.split("=")[0] in ("-o", "--output") for argument in own):
        raise UsageError(
            "check chooses the directory of the run that it profiles.", hint=f"Leave out --output, {instead}."
        )


def _profile(arguments: Sequence[str]) -> None:
    load(["profile"])
    app(["profile", *arguments], prog_name="rooflines", standalone_mode=False)


def profile_here(options: Mapping[str, Any], directory: Path, channel: object) -> None:
    """Profile in the process of a round, with the ``arguments`` of ``options``, into ``directory``."""
    sys.argv = ["rooflines", "profile", *options["arguments"]]
    _profile(["--format", "json", "--output", str(directory), *options["arguments"]])
