# ruff: noqa: T201 (a command line prints)
"""Terminal output and files of a command."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rooflines.errors import OutputError, writing

if TYPE_CHECKING:
    from rich.console import Console

    from rooflines.profiler.progress import Progress
    from rooflines.reports.document import Page


def console(*, text_only: bool = False, stderr: bool = False) -> Console:
    """Return a console. ``text_only`` is for files: no color, 100 columns."""
    from rich.console import Console

    return Console(width=100, color_system=None, force_terminal=False) if text_only else Console(stderr=stderr)


def print_page(page: Page, *, stderr: bool = False) -> None:
    """Print the short form of ``page``."""
    from rooflines.reports.render import terminal

    terminal.print_page(page, console(stderr=stderr))


def page_text(page: Page) -> str:
    """The short form of ``page`` as a file has it."""
    from rooflines.reports.render import terminal

    shown = console(text_only=True)
    with shown.capture() as captured:
        terminal.print_page(page, shown)
    return captured.get()


def write_page(page: Page, formats: Sequence[str], output: Path | None, kind: str) -> None:
    """Write ``page`` into the directory ``output``, or into a new one for the ``kind`` of report, and say where."""
    from rooflines.pipeline import write_reports
    from rooflines.profiler.directory import create_directory, default_directory

    directory = output or default_directory(page.kind, kind)
    create_directory(directory)
    print_written(write_reports(page, formats, directory))


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
    from rooflines.reports.progress import Bar, Lines

    with Bar() if sys.stderr.isatty() else Lines() as progress:
        yield progress


def check_writable(path: Path) -> None:
    """Raise OutputError if the file cannot be written, before anything is measured for it."""
    if path.is_dir():
        raise OutputError(f"{str(path)!r} is a directory.", hint="Give a file name.")
    if not path.parent.is_dir():
        raise OutputError(f"directory not found: {str(path.parent)!r}.", hint="Create it or choose another file.")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise OutputError(f"cannot write {str(path)!r}: permission denied.", hint="Choose another file.")


def write(path: Path, content: bytes) -> None:
    with writing(f"write {str(path)!r}", "Choose another file."):
        path.write_bytes(content)
