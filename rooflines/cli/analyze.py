# ruff: noqa: T201 (a command line prints)
"""``rooflines analyze``: a run directory, a trace, or the traces of several ranks."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from rooflines.arguments import arg
from rooflines.cli.app import app
from rooflines.cli.options import format_option, is_file_name, option, reading_options
from rooflines.cli.output import destination, page_of, print_page, print_written, progress_bar, show
from rooflines.errors import UsageError, writing
from rooflines.pipeline.options import CEILINGS_HELP
from rooflines.profiler.options import OUTPUT


@app.command()
@reading_options()
def analyze(
    sources: Annotated[
        list[str],
        typer.Argument(
            help="Run directory (from profile or monitor) or PyTorch trace (.json, .json.gz, .json.zst or URL)."
            " For several ranks: trace files, a directory or a quoted pattern.",
            metavar="SOURCE...",
        ),
    ],
    format: Annotated[str | None, format_option("table", "json")] = None,
    output: Annotated[Path | None, option(
        "Write the analysis (.json) or its page (.html, .pdf, .md, .txt) to a file, or reports into a directory.", "--output", "-o",
        group=OUTPUT, metavar="PATH", show_default="RUN/analysis.json; not written for a trace"
    )] = None,
    ceilings: Annotated[
        str | None, option(CEILINGS_HELP, show_default="the run's own; for a trace, the data sheet of its device")
    ] = None,
    at: Annotated[str | None, option(
        "Print only this part of the JSON: a JSON pointer, for example /totals or /operators/0.", group=OUTPUT, metavar="POINTER",
        show_default="all of it"
    )] = None,
    **reading: Any,
) -> None:  # fmt: skip
    """Analyze a run directory or any PyTorch trace.

    Traces of several ranks are analyzed together: time per rank, waiting times between ranks, and bandwidth of the collectives.

    [bold]rooflines analyze trace.json.gz[/bold]

    [bold]rooflines analyze 'traces/rank*.json.gz'[/bold]
    """
    from rooflines import pipeline, serial
    from rooflines.profiler.directory import RUN_FILE

    if at is not None and (format != "json" or output is not None):
        raise UsageError("--at is a part of the JSON that is printed.", hint="Add --format json, and leave out --output.")
    source = pipeline.find_source(sources)
    given = output is not None
    # a directory gets the analysis under its usual name
    into = output is not None and format in (None, "json") and not is_file_name(output)
    reports, chosen = ((), "table") if into else destination(format, output, {".json": "json"})
    with progress_bar(chosen == "json") as progress:
        if reports:
            print_written(pipeline.report(source, reports, output=output, ceilings=ceilings, **reading, progress=progress))
            return
        _, analysis = pipeline.analyze_source(source, ceilings=ceilings, **reading, progress=progress)
    # what rooflines recorded, a monitored program or a run, keeps its analysis beside it
    if output is None and not isinstance(source, list) and (not isinstance(source, str) or Path(source, RUN_FILE).is_file()):
        output, into = Path(sources[0]), True
    if output is not None and into:
        path = output / (pipeline.RANKS_FILE if isinstance(source, list) else pipeline.ANALYSIS_FILE)
        with writing(f"write {str(path)!r}", f"Choose another {arg('output')}."):
            output.mkdir(parents=True, exist_ok=True)
            serial.write_text(path, serial.to_json(analysis))
        if given and format == "json":
            print(f"written   {path}", file=sys.stderr)
            return
        output = None
    if chosen == "json" and output is None:
        print(serial.to_json(analysis if at is None else _part(analysis, at)), end="")  # which needs nothing of pages
        return
    page = page_of(analysis)
    show(page, "analyze", (), chosen, output, {"json": lambda: serial.to_json(analysis)})
    if output is not None and format is None:
        print_page(page)


def _part(analysis: Any, pointer: str) -> Any:
    from rooflines import serial

    try:
        return serial.part(serial.to_plain(analysis), pointer)
    except KeyError as error:
        raise UsageError(f"--at {error.args[0]}.", hint="rooflines schema analysis describes the fields.") from error
