"""Formulas of other packages (entry points in the group ``rooflines.formulas``) and of single files (``--formulas FILE.py``)."""

from __future__ import annotations

import contextlib
import runpy
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from rooflines.errors import UsageError

GROUP: Final = "rooflines.formulas"


@cache
def load_installed() -> None:
    """Import the modules that installed packages name; each registers its formulas. Raises UsageError naming one that fails."""
    from importlib.metadata import entry_points

    for entry in entry_points(group=GROUP):
        with _explained(f"the formulas {entry.name!r} ({entry.value})"):
            entry.load()


def load_file(path: Path) -> None:
    """Run a Python file that registers formulas. Raises UsageError if the file is missing or fails."""
    if not path.is_file():
        raise UsageError(f"no such file: {str(path)!r}.", hint="Give a Python file that registers formulas with rooflines.formula.")
    with _explained(f"{str(path)!r}"):
        runpy.run_path(str(path))


@contextlib.contextmanager
def _explained(source: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise UsageError(f"{source} cannot be loaded: {type(error).__name__}: {error}.") from error
