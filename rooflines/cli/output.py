# ruff: noqa: T201 (a command line prints)
"""Terminal output and files of a command."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rooflines.cli.options import is_file_name
from rooflines.errors import OutputError, UsageError, writing
from rooflines.profiler.options import split_list
from rooflines.reports.render.formats import FORMATS, check_formats, file_of, write_file

if TYPE_CHECKING:
    from rooflines.profiler.progress import Progress
    from rooflines.reports.document import Page
    from rooflines.roofline.analysis import Analysis
    from rooflines.roofline.judge.usage.device_usage import MonitorAnalysis
    from rooflines.roofline.ranks.records import RankAnalysis
    from rooflines.sweeps.records import SweepAnalysis

_PAGES = ("html", "pdf", "markdown", "text")
# What a directory gets of a page if no format is given.
DIRECTORY_FORMATS = ("html", "json")
RECORD_SUFFIXES = {".json": "json", ".csv": "csv"}
# By name, because only the view that is asked for is imported.
_VIEWS = {
    "Analysis": "rooflines.reports.page.run",
    "RankAnalysis": "rooflines.reports.page.ranks",
    "MonitorAnalysis": "rooflines.reports.page.monitor",
    "SweepAnalysis": "rooflines.sweeps.page",
}


def print_page(page: Page, *, stderr: bool = False) -> None:
    """Print the short form of ``page``."""
    from rich.console import Console

    from rooflines.reports.render import terminal

    terminal.print_page(page, Console(stderr=stderr))


def print_report(page: Page, directory: Path, formats: Sequence[str], record: str, *, quiet: bool) -> None:
    """Print the short form of ``page`` and where the first of its reports is, without any its ``record``; if
    ``quiet`` only where."""
    shown = directory / (file_of(formats[0]) if formats else record)
    if quiet:
        print(shown)
    else:
        print_page(page)
        print(f"\nreport    {shown}")
        if record.endswith(".csv"):
            print(f"table     {directory / record}")


class Destination(NamedTuple):
    """Where the page of a command goes: ``reports`` are written into a directory; without any, it is printed
    in ``format`` or written to the file ``output``."""

    reports: tuple[str, ...]
    format: str
    output: Path | None = None

    def show(self, made: Callable[[], Page], kind: str, own: Mapping[str, Callable[[], str]]) -> None:
        """Print the page or write it, into a new directory for this ``kind`` of report where none was given.

        ``own`` has the text of the command's own formats, for which no page is made.
        """
        output, format = self.output, self.format
        if self.reports:
            from rooflines.pipeline import write_reports
            from rooflines.profiler.directory import create_directory, default_directory

            page = made()
            directory = output or default_directory(page.kind, kind)
            create_directory(directory)
            print_written(write_reports(page, self.reports, directory))
        elif output is not None:
            with writing(f"write {str(output)!r}", "Choose another file."):
                if format in own:
                    output.write_text(own[format](), encoding="utf-8")
                else:
                    write_file(made(), "text" if format == "table" else format, output)
            print(f"written   {output}", file=sys.stderr)
        elif format in own:
            print(own[format](), end="")
        else:
            print_page(made())


def destination(
    format: str | None,
    output: Path | None,
    own: Mapping[str, str] = RECORD_SUFFIXES,
    *,
    traced: bool | None = False,
) -> Destination:
    """Where a command's page goes.

    ``output`` is a file if it has a suffix, and then ``format`` is by default that of the suffix; else it is
    a directory, for HTML and JSON by default. Without ``output``, ``format`` is printed if it is ``table`` or
    one of the command's ``own`` (by suffix); others are written into a new directory, ``traced`` ones as in
    ``check_formats``. Raises UsageError for an unknown format or suffix and for several formats in one file,
    OutputError if the file cannot be written.
    """
    names = split_list(format or "")
    printed = names[0] if len(names) == 1 and names[0] in ("table", *own.values()) else ""
    if output is not None and is_file_name(output):
        suffixes = {Path(FORMATS[name].file).suffix: name for name in _PAGES} | dict(own)
        if len(names) > 1:
            raise UsageError(
                f"--output {str(output)!r} is one file, for {len(names)} formats.", hint="Give a directory."
            )
        if not names and output.suffix.lower() not in suffixes:
            raise UsageError(
                f"--output {str(output)!r}: unknown file type.", hint=f"Use one of {', '.join(suffixes)}."
            )
        check_writable(output)
        chosen = printed or (check_formats(names)[0] if names else suffixes[output.suffix.lower()])
        return Destination((), chosen, output)
    if output is None and (printed or not names):
        return Destination((), printed or "table")
    return Destination(check_formats(names or DIRECTORY_FORMATS, traced=traced), "", output)


def check_at(at: str | None, format: str | None, output: Path | None) -> None:
    """Raise UsageError for an ``at`` without JSON on standard output to take a part of."""
    if at is not None and (format != "json" or output is not None):
        raise UsageError(
            "--at is a part of the JSON that is printed.", hint="Add --format json, and leave out --output."
        )


def json_of(record: Any, at: str | None) -> str:
    """``record`` as JSON, or what the JSON pointer ``at`` names in it."""
    from rooflines import serial

    try:
        return serial.to_json(record if at is None else serial.part(serial.to_plain(record), at))
    except KeyError as error:
        raise UsageError(f"--at {error.args[0]}.", hint="rooflines schema describes the fields.") from error


def print_written(written: Mapping[str, Path]) -> None:
    """Say which files there are, by format."""
    for name, path in written.items():
        print(f"{name:12} {path}")


@contextlib.contextmanager
def progress_bar(quiet: bool) -> Iterator[Progress | None]:
    """Show progress on standard error, or nothing if ``quiet``."""
    if quiet:
        yield None
        return
    from rooflines.reports.render.progress import Lines, ProgressBar, has_screen

    with ProgressBar() if has_screen() else Lines() as progress:
        yield progress


def check_writable(path: Path) -> None:
    """Raise OutputError if the file cannot be written, before anything is measured for it."""
    if path.is_dir():
        raise OutputError(f"{str(path)!r} is a directory.", hint="Give a file name.")
    if not path.parent.is_dir():
        raise OutputError(
            f"directory not found: {str(path.parent)!r}.", hint="Create it or choose another file."
        )
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise OutputError(f"cannot write {str(path)!r}: permission denied.", hint="Choose another file.")


def sweep_of(sources: Sequence[str]) -> SweepAnalysis | None:
    """The sweep in the only one of ``sources``; None where that is something else."""
    from rooflines.sweeps.records import SWEEP_FILE

    if len(sources) != 1 or not os.path.isfile(os.path.join(sources[0], SWEEP_FILE)):
        return None
    from rooflines.sweeps.run import analyze_sweep

    return analyze_sweep(Path(sources[0]))


def page_of(analysis: Analysis | RankAnalysis | MonitorAnalysis | SweepAnalysis) -> Page:
    """The page of a record, made by the view of its kind."""
    page: Page = import_module(_VIEWS[type(analysis).__name__]).page(analysis)
    return page
