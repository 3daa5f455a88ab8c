"""What goes with a monitored program where runs and traces are taken as well."""

from __future__ import annotations

from collections.abc import Sequence

from rooflines.cli.ranks import refuse_for_one
from rooflines.errors import UsageError


def refuse_for_monitored(sources: Sequence[str], ceilings: str | None, jobs: int | None, dask: str | None) -> None:
    if len(sources) > 1:
        raise UsageError("a monitored program is no rank of a job.", hint="Give its directory alone.")
    if ceilings is not None:
        raise UsageError(f"{sources[0]!r} is a monitored program: nothing of it is held against --ceilings.", hint="Leave them out.")
    refuse_for_one(jobs, dask)
