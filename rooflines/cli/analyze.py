# ruff: noqa: T201 (a command line prints)
"""``rooflines analyze``: a run directory, a trace, or the traces of several ranks."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from rooflines.arguments import arg
from rooflines.cli.app import app
from rooflines.cli.options import At, format_option, is_file_name, option, reading_options
from rooflines.cli.output import check_at, destination, json_of, page_of, print_page, print_written, progress_bar, show, sweep_of
from rooflines.errors import writing
from rooflines.pipeline.options import CEILINGS_HELP
from rooflines.profiler.options import OUTPUT


@app.command()
@reading_options()
def analyze(
    sources: Annotated[
        list[str],
        typer.Argument(
            help="Run directory (from profile, monitor or sweep) or PyTorch trace (.json, .json.gz, .json.zst or URL)."
            " For several ranks: trace files, a directory or a quoted pattern.",
            metavar="SOURCE...",
        ),
    ],
    format: Annotated[str | None, format_option("table", "json", traced=True)] = None,
    output: Annotated[Path | None, option(
        "Write the analysis (.json) or its page (.html, .pdf, .md, .txt) to a file, or reports into a directory.", "--output", "-o",
        group=OUTPUT, metavar="PATH", show_default="RUN/analysis.json; not written for a trace"
    )] = None,
    ceilings: Annotated[
        str | None, option(CEILINGS_HELP, show_default="the run's own; for a trace, the data sheet of its device")
    ] = None,
    at: At = None,
    **reading: Any,
) -> None:  # fmt: skip
    """Analyze a run directory or any PyTorch trace.

    Traces of several ranks are analyzed together: time per rank, waiting times between ranks, and bandwidth of the collectives.

    [bold]rooflines analyze trace.json.gz[/bold]

    [bold]rooflines analyze 'traces/rank*.json.gz'[/bold]
    """
    from rooflines import pipeline, serial
    from rooflines.profiler.directory import RUN_FILE

    check_at(at, format, output)
    given = output is not None
    # a directory gets the analysis under its usual name
    into = output is not None and format in (None, "json") and not is_file_name(output)
    reports, chosen = ((), "table") if into else destination(format, output, {".json": "json"}, traced=None)
    swept = sweep_of(sources)
    if swept is not None:
        show(page_of(swept), "analyze", reports, chosen, output, {"json": lambda: json_of(swept, at)})
        return
    source = pipeline.find_source(sources)
    with progress_bar(chosen == "json") as progress:
        if reports:
            print_written(pipeline.report(source, reports, output=output, ceilings=ceilings, **reading, progress=progress))
            return
        _, analysis = pipeline.analyze_source(source, ceilings=ceilings, **reading, progress=progress)
    # what rooflines recorded, a monitored program or a run, keeps its analysis beside it
    ours = not isinstance(source, list) and (not isinstance(source, str) or Path(source, RUN_FILE).is_file())
    if output is None and at is None and ours:
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
        print(json_of(analysis, at), end="")  # which needs nothing of pages
        return
    page = page_of(analysis)
    show(page, "analyze", (), chosen, output, {"json": lambda: serial.to_json(analysis)})
    if output is not None and format is None:
        print_page(page)
