# ruff: noqa: T201 (a command line prints)
"""``rooflines analyze``: a run directory, a trace, or the traces of several ranks."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from rooflines.arguments import arg
from rooflines.cli.app import app
from rooflines.cli.options import At, format_option, is_file_name, option, reading_options
from rooflines.cli.output import (
    Destination,
    check_at,
    destination,
    json_of,
    page_of,
    print_page,
    print_written,
    progress_bar,
    sweep_of,
)
from rooflines.errors import UsageError, writing
from rooflines.pipeline.options import CEILINGS_HELP
from rooflines.profiler.options import OUTPUT

if TYPE_CHECKING:
    from rooflines.reports.document import Page


@app.command()
@reading_options()
def analyze(
    sources: Annotated[
        list[str],
        typer.Argument(
            help="Run directory (from profile, monitor or sweep) or PyTorch trace (.json, .json.gz, "
            ".json.zst or URL)."
            " For several ranks: trace files, a directory or a quoted pattern.",
            metavar="SOURCE...",
        ),
    ],
    format: Annotated[str | None, format_option("table", "json", traced=True)] = None,
    output: Annotated[
        Path | None,
        option(
            "Write the analysis (.json) or its page (.html, .pdf, .md, .txt) to a file, or "
            "reports into a directory.",
            "--output",
            "-o",
            group=OUTPUT,
            metavar="PATH",
            show_default="RUN/analysis.json; not written for a trace",
        ),
    ] = None,
    ceilings: Annotated[
        str | None,
        option(CEILINGS_HELP, show_default="the run's own; for a trace, the data sheet of its device"),
    ] = None,
    at: At = None,
    by: Annotated[
        Literal["operator", "line", "module", "kernel"] | None,
        option(
            "One table, whole: the time by operator, line of the program, module or kernel.",
            show_default="the page",
        ),
    ] = None,
    **reading: Any,
) -> None:
    """Analyze a run directory or any PyTorch trace.

    Traces of several ranks are analyzed together: time per rank, waiting times between ranks, and bandwidth
    of the collectives.

    [bold]rooflines analyze trace.json.gz[/bold]

    [bold]rooflines analyze 'traces/rank*.json.gz'[/bold]
    """
    from rooflines import pipeline

    check_at(at, format, output)
    swept = sweep_of(sources)
    if output is not None and not is_file_name(output) and format in (None, "json") and swept is None:
        place = Destination((), "table")  # the analysis goes there under its usual name
    else:
        place = destination(format, output, {".json": "json"}, traced=None)
    if by is not None and (swept is not None or place.reports or place.format == "json"):
        raise UsageError("--by is for the page of one run or trace.", hint="Leave out --by or --format.")
    if swept is not None:
        place.show(lambda: page_of(swept), "analyze", {"json": lambda: json_of(swept, at)})
        return
    source = pipeline.open_source(sources)
    with progress_bar(place.format == "json") as progress:
        if place.reports:
            print_written(
                pipeline.report(
                    source, place.reports, output=output, ceilings=ceilings, **reading, progress=progress
                )
            )
            return
        analysis = pipeline.analyze_source(source, ceilings=ceilings, **reading, progress=progress).analysis
    if output is None and at is None and (own := _own_directory(source)) is not None:
        _store(analysis, own)
    if output is None or is_file_name(output):
        place.show(lambda: _page(analysis, by), "analyze", {"json": lambda: json_of(analysis, at)})
    else:
        path = _store(analysis, output)
        if format == "json":
            print(f"written   {path}", file=sys.stderr)
    if output is not None and format is None:
        print_page(_page(analysis, by))


def _page(analysis: Any, by: str | None) -> Page:
    page = page_of(analysis)
    return page if by is None else page.of_table(f"{by}s")


def _own_directory(source: Any) -> Path | None:
    """The directory of what rooflines recorded, a run or a monitored program, which keeps its analysis."""
    from rooflines.profiler.directory import RUN_FILE

    if isinstance(source, str):
        return Path(source) if Path(source, RUN_FILE).is_file() else None
    return getattr(source, "directory", None)


def _store(analysis: Any, directory: Path) -> Path:
    """Write the analysis into a directory under its usual name."""
    from rooflines import pipeline, serial
    from rooflines.roofline.ranks.records import RankAnalysis

    path = directory / (pipeline.RANKS_FILE if isinstance(analysis, RankAnalysis) else pipeline.ANALYSIS_FILE)
    with writing(f"write {str(path)!r}", f"Choose another {arg('output')}."):
        directory.mkdir(parents=True, exist_ok=True)
        serial.write_text(path, serial.to_json(analysis))
    return path
