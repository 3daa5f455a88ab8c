"""A study: a folder with the points of its sweep (``study.toml``) and what its page shows of them (``page.py``)."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import msgspec

from rooflines._version import __version__
from rooflines.device_specs.records import Ceilings
from rooflines.errors import DataError, DeviceError, Interrupted, UsageError
from rooflines.pipeline.reading import default_command
from rooflines.profiler.options import Value
from rooflines.profiler.progress import Progress
from rooflines.reports.document import ABSENT, Facts, Page, Paragraph, Section
from rooflines.serial import write_json
from rooflines.sweeps.page import ceilings_of
from rooflines.sweeps.points import RECORDS, grid, make_points
from rooflines.sweeps.records import Kind, Point, Row
from rooflines.sweeps.results import rows as rows_in
from rooflines.sweeps.run import Place, load_sweep, run_sweep
from rooflines.sweeps.search_point import search_points
from rooflines.sweeps.write import write_table

STUDY_FILE = "study.toml"
RECORD_FILE = "study.json"
SCHEMA = "rooflines.study/2"
HERE = Path(__file__).parent
NO_GPU = "this machine has no GPU that torch can use"
# In a study's points, the GPU of the machine, whatever its kind.
GPU = "gpu"


class StudyFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The file of a study.

    ``points`` are tables whose lists are crossed; each has a ``part``, by which the page finds its rows, and may have ``quick``, the
    options that replace its own in a quick study (``skip = true`` leaves it out). ``search`` makes each point a search over the options
    in it, which it gives as text, with its ``objective``, ``trials`` and ``repeats``. ``options`` are those of all points, with those
    of ``quick`` in a quick study, where a table does not say otherwise.
    """

    name: str
    title: str
    paper: str = ""
    repeats: int = 3
    options: dict[str, Any] = {}
    quick: dict[str, Any] = {}
    points: list[dict[str, Any]]


class Missing(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was not run, and why."""

    what: str
    reason: str


class Study(msgspec.Struct, frozen=True, kw_only=True):
    """The results of a study, on one machine or merged from several: ``ceilings`` are by the name of the device."""

    schema: str = SCHEMA
    name: str
    title: str
    created: str
    command: str
    rooflines: str = __version__
    quick: bool = False
    rows: tuple[Row, ...]
    ceilings: dict[str, Ceilings] = msgspec.field(default_factory=dict)
    missing: tuple[Missing, ...] = ()
    findings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def part(self, name: str) -> tuple[Row, ...]:
        """Return the rows of a part."""
        return tuple(row for row in self.rows if row.point.part == name)

    @property
    def devices(self) -> tuple[str, ...]:
        """The names of the devices with a result."""
        return tuple(dict.fromkeys(name for row in self.rows if (name := device_of(row))))


class StudyOptions(NamedTuple):
    """How a study is run. ``parts`` are the parts to run, None all; ``settings`` replace options of all points."""

    quick: bool = False
    data_dir: str | None = None
    device: str | None = None
    threads: int | None = None
    seed: int = 0
    ceilings: str = "measured"
    repeats: int | None = None
    parts: tuple[str, ...] | None = None


def device_of(row: Row) -> str:
    """Return the name of the device of a row; empty for one without a result."""
    return row.facts.get("device_name", "")


def model_of(row: Row) -> str:
    """Return the model of a row."""
    return str(row.point.options["model"])


def find_study(name: str) -> Path:
    """Return the folder of the study ``name``, one of rooflines or a folder with a ``study.toml``; raises UsageError without one."""
    own = HERE / name.replace("-", "_")
    for folder in (own, Path(name)):
        if (folder / STUDY_FILE).is_file():
            return folder
    known = ", ".join(sorted(path.parent.name.replace("_", "-") for path in HERE.glob(f"*/{STUDY_FILE}")))
    raise UsageError(f"{name!r} is no study.", hint=f"Give a folder with a {STUDY_FILE}, or one of {known}.")


def read_study(folder: Path) -> StudyFile:
    """Return the file of the study in ``folder``; raises DataError where it cannot be read."""
    try:
        return msgspec.toml.decode((folder / STUDY_FILE).read_bytes(), type=StudyFile)
    except (OSError, msgspec.DecodeError, ImportError) as error:
        raise DataError(f"{str(folder / STUDY_FILE)!r} is not a study: {error}.", hint="See docs/studies.md.") from None


def study_points(file: StudyFile, options: StudyOptions) -> tuple[tuple[Point, ...], tuple[Missing, ...]]:
    """Return the points of a study on this machine, and what it cannot run here."""
    points: list[Point] = []
    missing: list[Missing] = []
    parts = [table.get("part", "") for table in file.points]
    for name in options.parts or ():
        if name not in parts:
            raise UsageError(f"the study has no part {name!r}.", hint=f"Choose from {', '.join(dict.fromkeys(parts))}.")
    for table in file.points:
        own = dict(table)
        part, kind, quick = own.pop("part", ""), own.pop("kind", "profile"), own.pop("quick", {})
        if options.parts is not None and part not in options.parts:
            continue
        if options.quick and quick.get("skip"):
            missing.append(Missing(what=part, reason="skipped in a quick study"))
            continue
        asked = {**file.options, **(file.quick if options.quick else {}), **own, **(quick if options.quick else {})}
        search = asked.pop("search", None)
        asked, without = _on_this_machine(asked, kind, options)
        missing += [Missing(what=f"{part} on a GPU", reason=reason) for reason in without]
        if asked["device"]:
            settings = grid(asked, kind)
            made = search_points(settings, search, kind) if search else make_points((kind, setting) for setting in settings)
            points += [msgspec.structs.replace(point, part=part, id=f"{part}-{point.id}") for point in made]
    return tuple(points), tuple(dict.fromkeys(missing))


def _on_this_machine(asked: dict[str, Any], kind: Kind, options: StudyOptions) -> tuple[dict[str, Any], list[str]]:
    """The options of a table with the devices that are here, and the reasons for those that are not."""
    listed = asked.get("device", "cpu")
    wanted = listed if isinstance(listed, list) else [listed]
    gpu = gpu_here()
    found = [device for name in wanted if (device := gpu if name == GPU else str(name)) is not None]
    if options.device is not None:
        found = [name for name in found if name.partition(":")[0] == options.device.partition(":")[0]]
    without = [NO_GPU] if GPU in wanted and gpu is None and options.device in (None, "cuda", "mps") else []
    known = {field.name for field in dataclasses.fields(RECORDS[kind])}
    given: dict[str, Value | None] = {
        "data_dir": options.data_dir if asked.get("data") != "digits" else None, "threads": options.threads, "seed": options.seed,
        "ceilings": options.ceilings,
    }  # fmt: skip
    chosen = {name: value for name, value in given.items() if value is not None and name in known and name not in asked}
    return {**asked, **chosen, "device": found}, without


def gpu_here() -> str | None:
    """Return torch's name for the GPU of this machine; None without one."""
    import torch

    return "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else None


def run_study(
    folder: Path,
    options: StudyOptions,
    *,
    output: Path | None = None,
    place: Place | None = None,
    progress: Progress | None = None,
) -> tuple[Study, Path]:
    """Run the study in ``folder``; returns its results and their directory. A directory with part of them is completed.

    Raises DeviceError where no point can run here, and Interrupted after the results so far were written.
    """
    file = read_study(folder)
    points, missing = study_points(file, options)
    if not points:
        raise DeviceError(f"nothing of {file.name} can run here: {missing[0].reason if missing else 'no points'}.")
    interrupted: Interrupted | None = None
    repeats = options.repeats or (1 if options.quick else file.repeats)
    try:
        _, directory = run_sweep(file.name, points, repeats=repeats, output=output, place=place, progress=progress)
    except Interrupted as error:
        if output is None:
            raise
        interrupted, directory = error, output
    study = _study(file, folder, [directory], quick=options.quick, missing=missing)
    write_json(directory / RECORD_FILE, study)
    write_table(study.rows, directory)
    if interrupted is not None:
        raise interrupted
    return study, directory


def merge_studies(folder: Path, directories: Sequence[Path]) -> Study:
    """Return the study of several machines from their directories; raises RunError for one without results."""
    return _study(read_study(folder), folder, directories)


def _study(
    file: StudyFile, folder: Path, directories: Sequence[Path], *, quick: bool = False, missing: tuple[Missing, ...] = ()
) -> Study:
    rows: list[Row] = []
    ceilings: dict[str, Ceilings] = {}
    for directory in directories:
        found = rows_in(directory, load_sweep(directory))
        taken = {device_of(row) for row in rows}
        names = {name: _other_name(name, taken) for name in {device_of(row) for row in found}}
        ours = [msgspec.structs.replace(row, facts={**row.facts, "device_name": names[device_of(row)]}) for row in found]
        for name in filter(None, names.values()):
            roofs = ceilings_of(row for row in ours if device_of(row) == name)
            if roofs is not None:
                ceilings[name] = roofs
        rows += ours
    failed = tuple(Missing(what=f"{row.point.part}: {row.point.label}", reason=row.reason) for row in rows if row.reason is not None)
    study = Study(
        name=file.name, title=file.title, created=f"{datetime.now():%Y-%m-%d %H:%M}", command=default_command(), quick=quick,
        rows=tuple(rows), ceilings=ceilings, missing=(*missing, *failed), notes=_notes(rows),
    )  # fmt: skip
    return msgspec.structs.replace(study, findings=tuple(page_module(folder).findings(study)))


def _other_name(name: str, taken: set[str]) -> str:
    """``name``, or with a number behind it where another machine has a device of that name."""
    number, found = 1, name
    while found and found in taken:
        number += 1
        found = f"{name} ({number})"
    return found


def _notes(rows: Iterable[Row]) -> tuple[str, ...]:
    data = dict.fromkeys(row.facts["data"] for row in rows if row.facts.get("data"))
    return tuple(f"Data: {label}." for label in data)


def page_module(folder: Path) -> ModuleType:
    """Return the module ``page.py`` of a study: its functions ``findings(study)`` and ``sections(study)``."""
    if folder.parent == HERE:
        return importlib.import_module(f"rooflines.studies.{folder.name}.page")
    path = folder / "page.py"
    spec = importlib.util.spec_from_file_location(f"study_{folder.name}", path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise DataError(f"{str(folder)!r} has no page.py.", hint="See docs/studies.md.")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def page(study: Study, folder: Path) -> Page:
    """Return the page of ``study``, with the sections of its folder."""
    verdict, *said = study.findings or ("Nothing was measured.",)
    sections: Sequence[Section] = page_module(folder).sections(study)
    unfinished = any(row.reason == "not run yet" for row in study.rows)
    missing = Facts(rows=tuple((one.what, one.reason) for one in study.missing), kind="definitions", show="always")
    method = [*study.notes, f"Each point runs in its own process.{' A quick study: fewer steps, images and epochs.' * study.quick}"]
    return Page(
        kind="study",
        name=study.title,
        title=f"{study.title} · {', '.join(study.devices) or ABSENT}",
        created=study.created,
        rooflines=study.rooflines,
        verdict=verdict,
        said=tuple(said),
        status=("interrupted", "Interrupted: the report contains the results so far.") if unfinished else None,
        sections=(
            *(section for section in sections if section.blocks),
            Section(
                name="missing", title="Not run or incomplete",
                blocks=(missing if study.missing else Paragraph("Everything that was asked for ran."),),
            ),
            Section(name="method", title="Method", blocks=(*map(Paragraph, method), Paragraph(study.command, "code"))),
        ),
    )  # fmt: skip


def paper_rows(file: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file with a paper's numbers, as text."""
    import csv

    with file.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def number(text: str) -> float | None:
    """Return the number in a cell of such a file; None for one that is empty or not a number."""
    try:
        value = float(text)
    except ValueError:
        return None
    return None if value != value else value
