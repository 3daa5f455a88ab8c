"""The command line: one file per command, which parses, calls the library and prints. Heavy imports are deferred."""

from __future__ import annotations

# Importing a command registers it.
from rooflines.cli import (  # noqa: F401
    advise,
    analyze,
    ceilings,
    check,
    compare,
    count,
    devices,
    doctor,
    monitor,
    profile,
    report,
    study,
    sweep,
    train,
    tune,
)  # fmt: skip
from rooflines.cli.app import app, main

__all__ = ["app", "main"]
