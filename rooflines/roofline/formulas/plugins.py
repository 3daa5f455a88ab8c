"""Formulas of other packages (entry points in the group ``rooflines.formulas``) and of single files (``--formulas FILE.py``)."""

from __future__ import annotations

import runpy
from pathlib import Path

from rooflines.errors import UsageError
from rooflines.installed import explained, load_all


def load_installed() -> None:
    """Import the modules that installed packages name, once; each registers its formulas. Raises UsageError naming one that fails."""
    load_all("formulas")


def load_file(path: Path) -> None:
    """Run a Python file that registers formulas. Raises UsageError if the file is missing or fails."""
    if not path.is_file():
        raise UsageError(f"no such file: {str(path)!r}.", hint="Give a Python file that registers formulas with rooflines.formula.")
    with explained(f"{str(path)!r}"):
        runpy.run_path(str(path))
