"""Terminal output and files of a command."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rooflines.errors import OutputError

if TYPE_CHECKING:
    from rich.console import Console

    from rooflines.profiler.progress import Progress


def console(*, text_only: bool = False, stderr: bool = False) -> Console:
    """Return a console. ``text_only`` is for files: no color, 100 columns."""
    from rich.console import Console

    return Console(width=100, color_system=None, force_terminal=False) if text_only else Console(stderr=stderr)


@contextlib.contextmanager
def progress_bar(quiet: bool) -> Iterator[Progress | None]:
    """Show a progress bar on standard error, or nothing if ``quiet``."""
    if quiet:
        yield None
        return
    from rooflines.reports.progress import Bar

    with Bar() as bar:
        yield bar


def check_writable(path: Path) -> None:
    """Raise OutputError if the file cannot be written, before anything is measured for it."""
    if path.is_dir():
        raise OutputError(f"{str(path)!r} is a directory.", hint="Give a file name.")
    if not path.parent.is_dir():
        raise OutputError(f"directory not found: {str(path.parent)!r}.", hint="Create it or choose another file.")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise OutputError(f"cannot write {str(path)!r}: permission denied.", hint="Choose another file.")


def write(path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        raise OutputError(f"cannot write {str(path)!r}: {error.strerror or error}.", hint="Choose another file.") from None
