"""What every study does around its measurements: where it writes, on which machine it runs, the ceilings of its devices."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from rooflines.device_specs.records import Ceilings
from rooflines.errors import RooflinesError
from rooflines.profiler.progress import Progress
from rooflines.serial import write_json, write_text
from rooflines.studies import data
from rooflines.studies.records import BackendResult, LibraryResult, Missing, Status, TimedOperator
from rooflines.units import counted

STUDY_FILE = "study.json"
if TYPE_CHECKING:
    from rooflines.reports.document import Page

# What is written of a study unless something else is asked for.
FORMATS = ("html",)


def directory_for(name: str, output: Path | None) -> Path:
    """The directory that a study is to write to; nothing is made yet. Raises OutputError where it cannot be made, or is not empty."""
    from rooflines.profiler.directory import check_directory, default_directory

    directory = output if output is not None else default_directory(name, "study")
    check_directory(directory)
    return directory


def write_reports(page: Page, directory: Path, formats: Sequence[str]) -> None:
    """The page in ``formats``, and its figures as files. Raises OutputError where they cannot be written."""
    from rooflines.pipeline.reporting import write_reports as write_all
    from rooflines.reports.render.figures import DIRECTORY, write_figures

    write_figures(page, directory / DIRECTORY)
    write_all(page, formats, directory)


def check_ceilings(choice: str) -> None:
    """Raise UsageError for ceilings that do not exist, before anything runs."""
    if choice not in ("measured", "spec"):
        from rooflines.pipeline.ceilings import file_or_device

        file_or_device(choice)


def machine() -> str:
    """This machine in a few words."""
    import torch

    from rooflines.device_specs import detect

    cpu = detect.cpu()
    usable = len(detect.usable_cpus())
    parts = [f"{cpu.name}, {counted(usable, 'CPU')}"]
    if torch.cuda.is_available():
        parts.append(detect.gpu(0).name)
    return " + ".join(parts)


def now() -> str:
    """The time as reports say it."""
    return f"{datetime.now():%Y-%m-%d %H:%M}"


class Ending(NamedTuple):
    """How the measurements of a study ended: its status, the ceilings of each device, and sentences for the report."""

    status: Status
    ceilings: dict[str, Ceilings]
    notes: tuple[str, ...]


def judge(
    done: Sequence[BackendResult | LibraryResult],
    missing: Sequence[Missing],
    choice: str,
    threads: int | None,
    progress: Progress,
    *,
    interrupted: bool,
) -> Ending:
    """The ceilings for what is ``done``; of an interrupted study, or when it is interrupted here, what had been measured stays.

    Raises RooflinesError with the reasons in ``missing`` where nothing was measured: a report of nothing is none.
    """
    if not done and not interrupted:
        reasons = "; ".join(f"{one.backend}: {one.reason.rstrip('.')}" for one in missing)
        raise RooflinesError(f"nothing was measured ({reasons}).")
    if not interrupted:
        try:
            ceilings, notes = ceilings_of(dict.fromkeys(one.device for one in done), choice, threads, progress)
            return Ending("complete", ceilings, notes)
        except KeyboardInterrupt:
            pass
    return Ending("interrupted", {}, ("Interrupted: the report contains the results so far.",))


def ceilings_of(
    devices: Iterable[str], choice: str, threads: int | None, progress: Progress
) -> tuple[dict[str, Ceilings], tuple[str, ...]]:
    """The ceilings of each device, and a sentence for each that has none."""
    from rooflines.pipeline.ceilings import ceilings_of_device

    found: dict[str, Ceilings] = {}
    notes = []

    def ask(device: str) -> None:
        try:
            found[device] = ceilings_of_device(choice, device, threads, progress)
        except RooflinesError as error:
            notes.append(f"No bounds on {device}: {error.message}")

    for device in devices:
        ask(device)
    return found, tuple(notes)


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Rows by column name; what is not known is empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    for row in rows:
        writer.writerow(["" if row.get(name) is None else row[name] for name in header])
    write_text(path, text.getvalue())


def write_study(directory: Path, study: Any) -> None:
    """``study.json``, whole or not at all."""
    write_json(directory / STUDY_FILE, study)


def write_operators(directory: Path, header: Sequence[str], backends: Iterable[tuple[str, Iterable[TimedOperator]]]) -> None:
    """``operators.csv``: a row an operator of a backend, with its rates."""
    rows = (
        {
            **msgspec.to_builtins(one),
            "backend": backend,
            "flop_per_s": one.executed / one.time_s,
            "byte_per_s": one.bytes / one.time_s,
        }
        for backend, operators in backends
        for one in operators
    )
    write_csv(directory / "operators.csv", header, rows)


def check_data(data_dir: str | None) -> bool:
    """Whether MNIST is there; a folder that was named and has none is an error, not a reason to take something else.

    It is read once, so that what is missing or corrupt in it is said before anything runs.
    """
    if data_dir is None:
        return False
    data.load("mnist", data_dir)
    return True


def data_notes(on_mnist: bool) -> tuple[str, ...]:
    """What is to be said of data that is not there."""
    missing = None if on_mnist else data.why_no_digits()
    return (f"Accuracy was not measured: no folder with MNIST was given, and {missing}.",) if missing else ()
