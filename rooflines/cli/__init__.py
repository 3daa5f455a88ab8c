"""The command line: one file per command, which parses, calls the library and prints. Heavy imports are
deferred."""

from __future__ import annotations

from rooflines.cli.app import app, main

__all__ = ["app", "main"]
