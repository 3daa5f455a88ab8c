# ruff: noqa: T201 (a command line prints)
"""``rooflines check``: compare a run with the baseline that a repository keeps."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from rooflines.cli.app import app, load
from rooflines.cli.compare import SUFFIXES, Anyway, OutputFormat, Rows, Top, fail_if_slower, show_comparisons
from rooflines.cli.options import TRACE_OPTIONS, Output, option, reading_options
from rooflines.cli.output import destination, progress_bar
from rooflines.errors import UsageError

# Two runs of the same code differ by as much on a shared machine after its drift has been taken out; benchmarks/compare_noise.py.
FAIL_ABOVE = 5.0


@app.command()
@reading_options(*TRACE_OPTIONS)
def check(
    run: Annotated[
        list[str],
        typer.Argument(help="Run directory, trace or analysis.json; or, after --, the arguments of rooflines profile.", metavar="RUN"),
    ],
    baseline: Annotated[Path, option("Directory of the baselines, one file per workload.", metavar="DIR")],
    update: Annotated[bool, option("Store the run as the baseline of its workload, without comparing.", "--update")] = False,
    fail_above: Annotated[float, option(
        "Exit with code 1 if the run is slower than its baseline by more than this percentage, outside the noise.", metavar="PERCENT",
        min=0
    )] = FAIL_ABOVE,
    by: Rows = "operator",
    top: Top = 5,
    format: OutputFormat = None,
    output: Output = None,
    anyway: Anyway = False,
    **reading: Any,
) -> None:  # fmt: skip
    """Compare a run with the stored baseline of the same workload, and fail if it is slower.

    [bold]rooflines check --baseline perf runs/now[/bold]

    [bold]rooflines check --baseline perf --update -- --model resnet18 --batch-size 8[/bold]

    Exit codes: 0 not slower, or noise unknown; 1 slower than --fail-above allows; 2 no (good) baseline, not comparable or not readable.
    """
    reports, chosen = destination(format, output, SUFFIXES)
    from rooflines import pipeline
    from rooflines.profiler.trace.records import ReadOptions

    source = run[0] if _is_run(run) else _profiled(run)
    options = ReadOptions(**reading)
    with progress_bar(not sys.stderr.isatty()) as progress:
        if update:
            stored = pipeline.update_baseline(source, baseline, reading=options, progress=progress)
        else:
            comparison = pipeline.check(source, baseline, anyway=anyway, reading=options, progress=progress)
    if update:
        print(f"baseline  {stored}")
        return
    show_comparisons([comparison], by, top, reports, chosen, output, fail_above)
    fail_if_slower([comparison], fail_above)


def _is_run(arguments: Sequence[str]) -> bool:
    """Whether the only argument is a run, rather than the arguments of a profile."""
    return len(arguments) == 1 and not arguments[0].startswith("-") and not arguments[0].endswith(".py")


def _profiled(arguments: Sequence[str]) -> str:
    """Profile as ``rooflines profile`` does with these arguments; returns the directory of the run."""
    from rooflines.profiler.directory import default_directory

    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    if any(argument.split("=")[0] in ("-o", "--output") for argument in own):
        raise UsageError("check chooses the directory of the run that it profiles.", hint="Leave out --output, or profile first.")
    directory = str(default_directory("check", "run"))
    load(["profile"])
    # Standard output is for the comparison.
    with contextlib.redirect_stdout(sys.stderr):
        app(["profile", "--output", directory, *arguments], prog_name="rooflines", standalone_mode=False)
    return directory
