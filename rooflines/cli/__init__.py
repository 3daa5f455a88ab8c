"""The command line: a file a command, which parses, calls the library and prints; nothing heavy is imported before it is needed."""

from __future__ import annotations

# Importing a command registers it.
from rooflines.cli import analyze, ceilings, compare, count, devices, doctor, monitor, profile, report, study  # noqa: F401
from rooflines.cli.app import app, main

__all__ = ["app", "main"]
