"""Checks of options that do not apply to monitored programs."""

from __future__ import annotations

from collections.abc import Sequence

from rooflines.cli.ranks import refuse_for_one
from rooflines.errors import UsageError


def refuse_for_monitored(sources: Sequence[str], ceilings: str | None, jobs: int | None, dask: str | None) -> None:
    if len(sources) > 1:
        raise UsageError("monitored programs cannot be analyzed together.", hint="Give one directory.")
    if ceilings is not None:
        raise UsageError(f"--ceilings does not apply to the monitored program {sources[0]!r}.", hint="Remove --ceilings.")
    refuse_for_one(jobs, dask)
