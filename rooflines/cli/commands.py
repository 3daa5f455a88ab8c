"""The commands by name. A command's file is imported when the command runs, all of them for ``--help``."""

from __future__ import annotations

from importlib import import_module
from typing import Final

# In the order of ``rooflines --help``; each is the file of that name, which registers it.
COMMANDS: Final = (
    "advise", "analyze", "ceilings", "check", "compare", "count", "devices", "doctor", "monitor", "profile", "report", "sweep", "train",
    "tune", "study",
)  # fmt: skip


def load(arguments: list[str]) -> None:
    """Import the command that ``arguments`` begin with, none for the version, and every command if they begin with anything else."""
    first = arguments[:1]
    for name in () if first == ["--version"] else first if first and first[0] in COMMANDS else COMMANDS:
        import_module(f"rooflines.cli.{name}")
