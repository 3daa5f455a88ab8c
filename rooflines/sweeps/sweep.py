"""A sweep from Python: every combination of options, run and written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rooflines.profiler.options import Value
from rooflines.profiler.progress import Progress
from rooflines.sweeps.points import grid, make_points
from rooflines.sweeps.records import Kind
from rooflines.sweeps.results import frame, rows
from rooflines.sweeps.run import Place, here, run_sweep
from rooflines.sweeps.write import write_sweep

if TYPE_CHECKING:
    import pandas as pd


def sweep(
    model: str | Sequence[str],
    *,
    kind: Kind = "profile",
    repeats: int = 3,
    output: Path | str | None = None,
    formats: Sequence[str] = ("html",),
    dask: str | None = None,
    progress: Progress | None = None,
    **options: Value | Sequence[Value],
) -> pd.DataFrame:
    """Profile or ``train`` every combination of ``options``, lists of values of the options of that ``kind``, and return their table.

    A row is a point: its options, the medians of its rounds with the ends of their 95 % intervals (``_low``, ``_high``), and the
    ``reason`` if it failed. Each point runs in its own process ``repeats`` times, here or on the Dask scheduler at ``dask``. An
    ``output`` that holds an unfinished sweep is continued. Raises UsageError for options that no machine can run, and Interrupted.
    """
    models = [model] if isinstance(model, str) else list(model)
    points = make_points((kind, setting) for setting in grid({"model": models, **options}, kind))
    place: Place = here
    if dask is not None:
        from rooflines.sweeps.places import on_dask

        place = on_dask(dask)
    where = Path(output) if output is not None else None
    done, directory = run_sweep("-".join(models), points, repeats=repeats, output=where, place=place, progress=progress)
    write_sweep(done, directory, formats, progress=progress)
    return frame(rows(directory, done))
