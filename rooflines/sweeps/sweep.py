"""A sweep from Python; and the files of a sweep or a search: its table, its page, and a TensorBoard run for
each point."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from rooflines.errors import writing
from rooflines.pipeline.reporting import Written, write_reports
from rooflines.profiler.options import OptionValue
from rooflines.profiler.progress import Progress
from rooflines.reports.document import Measured, Page
from rooflines.reports.render import tensorboard
from rooflines.serial import write_text
from rooflines.sweeps.page import page as sweep_page
from rooflines.sweeps.places import on_dask
from rooflines.sweeps.point import RUN_FOLDER
from rooflines.sweeps.points import make_points, point_grid
from rooflines.sweeps.records import Kind, Sweep, SweepAnalysis, SweepRow
from rooflines.sweeps.results import frame, row_of, sweep_rows
from rooflines.sweeps.run import run_sweep
from rooflines.sweeps.tune import Tuning
from rooflines.sweeps.tune_page import page as tune_page

if TYPE_CHECKING:
    import pandas as pd

CSV_FILE, PARQUET_FILE, TENSORBOARD = "results.csv", "results.parquet", "tensorboard"


def sweep(
    model: str | Sequence[str],
    *,
    kind: Kind = "profile",
    repeats: int = 3,
    output: Path | str | None = None,
    formats: Sequence[str] = ("html",),
    dask: str | None = None,
    progress: Progress | None = None,
    **options: OptionValue | Sequence[OptionValue],
) -> pd.DataFrame:
    """Profile or ``train`` every combination of ``options``, lists of values of the options of that ``kind``,
    and return their table.

    A row is a point: its options, the medians of its rounds with the ends of their 95 % intervals (``_low``,
    ``_high``), and the ``reason`` if it failed. Each point runs in its own process ``repeats`` times, here or
    on the Dask scheduler at ``dask``. An ``output`` that holds an unfinished sweep is continued. Raises
    UsageError for options that no machine can run, and Interrupted.
    """
    models = [model] if isinstance(model, str) else list(model)
    points = make_points((kind, setting) for setting in point_grid({"model": models, **options}, kind))
    place = on_dask(dask) if dask is not None else None
    where = Path(output) if output is not None else None
    done, directory = run_sweep(
        "-".join(models), points, repeats=repeats, output=where, place=place, progress=progress
    )
    write_sweep(done, directory, formats, progress=progress)
    return frame(sweep_rows(directory, done))


def write_sweep(
    sweep: Sweep, directory: Path, formats: Sequence[str], *, progress: Progress | None
) -> tuple[Page, Written]:
    """Write the table and the page of the sweep in ``directory``; returns the page and what was written, by
    format."""
    found = sweep_rows(directory, sweep)
    made = sweep_page(SweepAnalysis(sweep=sweep, rows=found))
    return made, _write(made, found, found, directory, formats, progress)


def write_tuning(
    tuning: Tuning, directory: Path, formats: Sequence[str], progress: Progress | None = None
) -> tuple[Page, Written]:
    """Write the table of trials and the page of a search in ``directory``; returns the page and what was
    written, by format."""
    made = tune_page(tuning)
    return made, _write(made, trial_rows(tuning, directory), tuning.rows, directory, formats, progress)


def _write(
    page: Page,
    table: Sequence[SweepRow],
    settings: Sequence[SweepRow],
    directory: Path,
    formats: Sequence[str],
    progress: Progress | None,
) -> Written:
    """Write the rows of ``table``, then ``page``, and for TensorBoard a run for each of ``settings``."""
    with writing(f"write the results in {str(directory)!r}", "Check that the disk is not full."):
        write_sweep_table(table, directory)

    def hyperparameters(path: Path) -> Path:
        return write_hyperparameters(page, settings, path.parent / TENSORBOARD)

    return write_reports(page, formats, directory, own={"tensorboard": hyperparameters}, progress=progress)


def trial_rows(tuning: Tuning, directory: Path) -> tuple[SweepRow, ...]:
    """Return a row for each trial, with its number and state among its facts, and the directory of its run if
    it is here."""
    rows = []
    for trial in tuning.trials:
        row = row_of(trial.point, [trial.result] if trial.result is not None else [])
        folder = directory / "trials" / f"{trial.number:04}" / RUN_FOLDER
        facts = {"trial": str(trial.number + 1), "state": trial.state, **row.facts}
        rows.append(
            replace(row, facts=facts, reason=trial.reason, run=str(folder) if folder.is_dir() else None)
        )
    return tuple(rows)


def write_sweep_table(found: Sequence[SweepRow], directory: Path) -> None:
    """Write the rows as CSV and Parquet."""
    table = frame(found)
    write_text(directory / CSV_FILE, table.to_csv(index=False))
    mixed = [
        name for name in table.columns if table[name].map(type).nunique() > 1 and table[name].dtype == object
    ]
    table.astype(dict.fromkeys(mixed, "string")).to_parquet(directory / PARQUET_FILE, index=False)


def write_hyperparameters(page: Page, found: Sequence[SweepRow], directory: Path) -> Path:
    """Write an event file for each point, with its options as hyperparameters, and one for the page; returns
    its directory."""
    tensorboard.write(page, directory / "report" / "events")
    for row in found:
        if row.estimates:
            point = Page(
                kind="point",
                name=row.point.label,
                title=row.point.label,
                verdict=row.facts.get("verdict", row.point.label),
            )
            measured = Measured(
                summary={name: one.value for name, one in row.estimates.items()},
                settings=row.point.options,
                pictures=False,
            )
            tensorboard.write(point, directory / row.point.id / "events", measured)
    return directory
