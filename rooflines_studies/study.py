"""A study: a folder with the points of its sweep (``study.toml``) and what its page shows of them
(``page.py``)."""

from __future__ import annotations

import contextlib
import importlib
import runpy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from operator import itemgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec

from rooflines import Ceilings, RooflinesError, __version__
from rooflines.ext import (
    ABSENT,
    OTHERS_CORES,
    Block,
    DataError,
    DeviceError,
    Facts,
    Interrupted,
    MeasuredValue,
    OptionValue,
    Page,
    Paragraph,
    Progress,
    Section,
    SweepPoint,
    SweepRow,
    UsageError,
    arg,
    ceilings_of_rows,
    crossed_options,
    curves_section,
    default_command,
    default_directory,
    file_or_device,
    find_dataset,
    grouped,
    load_sweep,
    make_points,
    parse_values,
    point_grid,
    points_table,
    run_sweep,
    search_points,
    section,
    sections_of,
    significant,
    sweep_rows,
    sweep_sentences,
    swept_options,
    write_json,
    write_sweep_table,
    write_text,
)
from rooflines_studies.tables import TableFile, make_table

STUDY_FILE = "study.toml"
RECORD_FILE = "study.json"
SCHEMA = "rooflines.study/2"
HERE = Path(__file__).parent
NO_GPU = "this machine has no GPU that torch can use"
# In a study's points, the GPU of the machine, of any kind, and the data with real labels.
GPU, REAL = "gpu", "real"
_WITHOUT_FOLDER = ("digits", "resident", None)


class StudyFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The file of a study."""

    name: str
    title: str
    paper: str = ""
    #: Sentences about the paper, by name, which the page puts among its findings.
    remarks: dict[str, str] = {}
    repeats: int = 3
    #: Options of all points where a table does not say otherwise. ``data = "real"`` is the data given here
    #: where the user gave its folder, else scikit-learn's digits, whose labels are real too.
    options: dict[str, Any] = {}
    #: Options that replace them in a quick study.
    quick: dict[str, Any] = {}
    #: Options that all tables of a part share, with those of their ``quick``.
    parts: dict[str, dict[str, Any]] = {}
    #: Tables whose lists are crossed. Each has a ``part``, by which the page finds its rows, and may have
    #: ``quick``, the options that replace its own in a quick study (``skip = true`` leaves it out).
    #: ``search`` makes each point a search over the options in it, which it gives as text, with its
    #: ``objective``, ``trials`` and ``repeats``; ``function`` runs what is neither a profile nor a training.
    points: list[dict[str, Any]]
    #: Names with titles, in the order of the page.
    sections: dict[str, str] = {}
    #: What stands first in the sections.
    tables: tuple[TableFile, ...] = ()


class Missing(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was not run, and why."""

    what: str
    reason: str


class Study(msgspec.Struct, frozen=True, kw_only=True):
    """The results of a study, on one machine or merged from several: ``ceilings`` are by the name of the
    device."""

    schema: str = SCHEMA
    name: str
    title: str
    created: str
    command: str
    rooflines: str = __version__
    quick: bool = False
    rows: tuple[SweepRow, ...]
    ceilings: dict[str, Ceilings] = msgspec.field(default_factory=dict)
    missing: tuple[Missing, ...] = ()
    findings: tuple[str, ...] = ()
    data: str = ""

    def part(self, name: str) -> tuple[SweepRow, ...]:
        """Return the rows of a part."""
        return tuple(row for row in self.rows if row.point.part == name)

    @property
    def devices(self) -> tuple[str, ...]:
        """The names of the devices with a result."""
        return tuple(dict.fromkeys(name for row in self.rows if (name := device_of(row))))


class StudyOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a study is run."""

    quick: bool = False
    data_dir: str | None = None
    device: str | None = None
    threads: int | None = None
    seed: int = 0
    ceilings: str = "measured"
    repeats: int | None = None
    #: The parts to run; None for all.
    parts: tuple[str, ...] | None = None
    #: Options of the points to replace: a name, with ``PART.`` before it for one part only, and values as
    #: text.
    settings: dict[str, str] = {}


def device_of(row: SweepRow) -> str:
    """Return the name of the device of a row; empty for one without a result."""
    return row.facts.get("device_name", "")


def model_of(row: SweepRow) -> str:
    """Return the model of a row."""
    return str(row.point.options["model"])


def decided(
    comparisons: Iterable[tuple[str, MeasuredValue, str, MeasuredValue]], takes: str, long: str
) -> Iterator[str]:
    """Yield ``A takes 2.00 (1.90 to 2.10) times as long as B`` for all whose intervals over the rounds
    differ, and name the others."""
    undecided = []
    for name, value, other, base in comparisons:
        if (
            value.low
            and value.high
            and base.low
            and base.high
            and (value.low > base.high or value.high < base.low)
        ):
            ends = f"{significant(value.low / base.high)} to {significant(value.high / base.low)}"
            yield (
                f"{name} {takes} {significant(value.value / base.value)} ({ends}) times as {long} as {other}."
            )
        else:
            undecided.append(f"{name} compared with {other}")
    if undecided:
        yield (
            f"The rounds do not decide: {'; '.join(undecided)}. At least three rounds (--repeats) on "
            "an idle machine can."
        )


def find_study(name: str) -> Path:
    """Return the folder of the study ``name``, one of rooflines or a folder with a ``study.toml``; raises
    UsageError without one."""
    own = HERE / name.replace("-", "_")
    for folder in (own, Path(name)):
        if (folder / STUDY_FILE).is_file():
            return folder
    known = ", ".join(sorted(path.parent.name.replace("_", "-") for path in HERE.glob(f"*/{STUDY_FILE}")))
    raise UsageError(
        f"unknown study {name!r}.", hint=f"Give a folder with a {STUDY_FILE}, or one of {known}."
    )


def read_study(folder: Path) -> StudyFile:
    """Return the file of the study in ``folder``; raises DataError where it cannot be read."""
    try:
        return msgspec.toml.decode((folder / STUDY_FILE).read_bytes(), type=StudyFile)
    except (OSError, msgspec.DecodeError, ImportError) as error:
        raise DataError(
            f"{str(folder / STUDY_FILE)!r} is not a study: {error}.", hint="See rooflines_studies/README.md."
        ) from None


def study_points(folder: Path, options: StudyOptions) -> tuple[tuple[SweepPoint, ...], tuple[Missing, ...]]:
    """Return the points of the study in ``folder`` on this machine, and what it cannot run here.

    Raises UsageError for parts and options that the study does not have.
    """
    file = read_study(folder)
    points: list[SweepPoint] = []
    missing: list[Missing] = []
    used: set[str] = set()
    tables = [(table.get("part", ""), table) for table in file.points]
    for name in options.parts or ():
        if name not in dict(tables):
            raise UsageError(
                f"the study has no part {name!r}.", hint=f"Choose from {', '.join(dict(tables))}."
            )
    for part, table in tables:
        if options.parts is not None and part not in options.parts:
            continue
        shared = file.parts.get(part, {})
        layers = [file.options, shared, table]
        if options.quick:
            layers = [
                file.options,
                file.quick,
                shared,
                table,
                shared.get("quick", {}),
                table.get("quick", {}),
            ]
        asked = {
            name: value for layer in layers for name, value in layer.items() if name not in ("part", "quick")
        }
        if asked.pop("skip", False):
            missing.append(Missing(what=part, reason="skipped in a quick study"))
            continue
        kind, function, search = (
            asked.pop("kind", "profile"),
            asked.pop("function", ""),
            asked.pop("search", None),
        )
        known = {} if function else swept_options(kind)
        if asked.get("data") == REAL:
            asked["data"] = "digits" if options.data_dir is None else file.options["data"]
        for name, text in options.settings.items():
            key = name.removeprefix(f"{part}.")
            if key in asked or key in known:
                asked[key] = (
                    parse_values(key, text, kind)
                    if key in known
                    else [_value(one.strip()) for one in text.split(",")]
                )
                used.add(name)
        folder_of_data = options.data_dir if asked.get("data") not in _WITHOUT_FOLDER else None
        common = {
            "data_dir": folder_of_data,
            "threads": options.threads,
            "seed": options.seed,
            "ceilings": options.ceilings,
        }
        for name, value in common.items():
            if value is not None and (name in known or function):
                asked.setdefault(name, value)
        if not function:
            asked.setdefault("device", "cpu")
        asked, without = _on_this_machine(asked, options)
        missing += [Missing(what=f"{part} on a GPU", reason=reason) for reason in without]
        settings = crossed_options(asked) if function else point_grid(asked, kind)
        made = (
            search_points(settings, search, kind)
            if search
            else make_points(((kind, one) for one in settings), function)
        )
        points += [msgspec.structs.replace(point, part=part, id=f"{part}-{point.id}") for point in made]
    # Folders of data sets are read once, so that one that cannot be read ends the study before anything runs.
    for data, where in {
        (one.options.get("data"), one.options.get("data_dir")) for one in points if not one.function
    }:
        if isinstance(data, str) and isinstance(where, str):
            find_dataset(data, where)
    for name, text in options.settings.items():
        if name not in used:
            raise UsageError(f"{arg('set', f'{name}={text}')}: the study has no option {name!r}.")
    chosen: list[SweepPoint | Missing] = list(page_module(folder).choose(points, options))
    missing += [one for one in chosen if isinstance(one, Missing)]
    return tuple({one.id: one for one in chosen if isinstance(one, SweepPoint)}.values()), tuple(
        dict.fromkeys(missing)
    )


def _value(text: str) -> OptionValue:
    """The number or truth value in ``text``, or else the text."""
    try:
        return msgspec.json.decode(text, type=bool | int | float)
    except msgspec.DecodeError:
        return text


def _on_this_machine(asked: dict[str, Any], options: StudyOptions) -> tuple[dict[str, Any], list[str]]:
    """The options of a table with the devices that are here, and the reasons for those that are not."""
    if "device" not in asked:
        return asked, []
    wanted = [asked["device"]] if isinstance(asked["device"], str) else asked["device"]
    gpu = gpu_here()
    found = [device for name in wanted if (device := gpu if name == GPU else str(name)) is not None]
    if options.device is not None:
        found = [name for name in found if name.partition(":")[0] == options.device.partition(":")[0]]
    without = [NO_GPU] if GPU in wanted and gpu is None and options.device in (None, "cuda", "mps") else []
    return {**asked, "device": found}, without


def gpu_here() -> str | None:
    """Return torch's name for the GPU of this machine; None without one."""
    import torch

    return "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else None


def run_study(
    folder: Path,
    options: StudyOptions,
    *,
    output: Path | None = None,
    progress: Progress | None = None,
) -> tuple[Study, Path]:
    """Run the study in ``folder``; returns its results and their directory. A directory with part of them is
    completed.

    Ctrl-C ends it early: the points that have not ended are rows that say so. Raises DeviceError where no
    point can run here, and RooflinesError where none has a result.
    """
    import pandas as pd

    file = read_study(folder)
    points, missing = study_points(folder, options)
    if options.ceilings not in ("measured", "spec"):
        file_or_device(options.ceilings)
    if not points:
        raise DeviceError(
            f"nothing of {file.name} can run here: {missing[0].reason if missing else 'no points'}."
        )
    directory = output if output is not None else default_directory(file.name, "study")
    repeats = options.repeats or (1 if options.quick else file.repeats)
    with contextlib.suppress(Interrupted):
        run_sweep(file.name, points, repeats=repeats, output=directory, progress=progress)
    study = _study(file, folder, [directory], quick=options.quick, missing=missing)
    if not any(row.estimates or row.unfinished for row in study.rows):
        reasons = dict.fromkeys(f"{one.what}: {one.reason.rstrip('.')}" for one in study.missing)
        raise RooflinesError(f"nothing was measured ({'; '.join(reasons)}).")
    write_json(directory / RECORD_FILE, study)
    write_sweep_table(study.rows, directory)
    for name, rows in page_module(folder).tables(study).items():
        write_text(directory / f"{name}.csv", pd.DataFrame(rows).to_csv(index=False))
    return study, directory


def merge_studies(folder: Path, directories: Sequence[Path]) -> Study:
    """Return the study of several machines from their directories; raises RunError for one without
    results."""
    return _study(read_study(folder), folder, directories)


def _study(
    file: StudyFile,
    folder: Path,
    directories: Sequence[Path],
    *,
    quick: bool = False,
    missing: tuple[Missing, ...] = (),
) -> Study:
    rows: list[SweepRow] = []
    ceilings: dict[str, Ceilings] = {}
    for directory in directories:
        found = sweep_rows(directory, load_sweep(directory))
        taken = {device_of(row) for row in rows}
        names = {name: _other_name(name, taken) for name in {device_of(row) for row in found}}
        ours = [
            msgspec.structs.replace(row, facts={**row.facts, "device_name": names[device_of(row)]})
            for row in found
        ]
        for name in filter(None, names.values()):
            roofs = ceilings_of_rows(row for row in ours if device_of(row) == name)
            if roofs is not None:
                ceilings[name] = roofs
        rows += ours
    failed = tuple(
        Missing(what=f"{row.point.part}: {row.point.label}", reason=row.reason)
        for row in rows
        if row.reason is not None
    )
    study = Study(
        name=file.name,
        title=file.title,
        created=f"{datetime.now():%Y-%m-%d %H:%M}",
        command=default_command(),
        quick=quick,
        rows=tuple(rows),
        ceilings=ceilings,
        missing=(*missing, *failed),
        data=_data(rows),
    )
    return msgspec.structs.replace(study, findings=tuple(_findings(study, folder)))


def _findings(study: Study, folder: Path) -> Iterator[str]:
    """What the page finds, and a word on points beside other programs; the pages of rooflines find nothing in
    those."""
    measured = [row for row in study.rows if row.estimates]
    busy = [cores for row in measured if (cores := row.value("others_cores") or 0.0) >= OTHERS_CORES]
    quiet = tuple(row for row in measured if (row.value("others_cores") or 0.0) < OTHERS_CORES)
    own = folder.parent == HERE
    found: Iterable[str] = page_module(folder).findings(
        msgspec.structs.replace(study, rows=quiet) if own else study
    )
    said = list(found) if measured else []
    if busy:
        notice = (
            f"Shared machine: other programs used up to {significant(max(busy), 2)} processors "
            f"while {len(busy)} of "
            f"{len(study.rows)} points ran. The tables show these "
            f"points{', and no finding rests on them' * own}. On an idle machine "
            "the same command with a new output measures them."
        )
        said.insert(len(said) if len(quiet) >= len(busy) else 0, notice)
    yield from said


def _other_name(name: str, taken: set[str]) -> str:
    """``name``, or with a number behind it where another machine has a device of that name."""
    number, found = 1, name
    while found and found in taken:
        number += 1
        found = f"{name} ({number})"
    return found


def _data(rows: Iterable[SweepRow]) -> str:
    """What data each part was measured on."""
    named = dict.fromkeys((row.facts["data"], row.point.part) for row in rows if row.facts.get("data"))
    parts = grouped(named, itemgetter(0))
    return " ".join(
        f"{', '.join(part for _, part in pairs).capitalize()}: {label}." for label, pairs in parts.items()
    )


# A study without a page.py says and shows what a sweep does: the fastest point, the points, and curves along
# the option that varies.
_PLAIN = {
    "findings": lambda study: sweep_sentences(study.rows),
    "sections": lambda study: (
        section("points", "Points", points_table(study.rows)),
        curves_section(study.rows, {}),
    ),
    "choose": lambda points, options: points,
    "tables": lambda study: {},
    "notes": lambda study: {},
    "VALUES": {},
}


def page_module(folder: Path) -> Any:
    """Return the module ``page.py`` of a study: its ``findings(study)`` and ``sections(study)``; without one
    those of a sweep.

    It may also have ``choose(points, options)``, which yields the points to run and a ``Missing`` for what
    cannot run, ``tables(study)``, the rows of further CSV files by name, ``VALUES``, functions of a row by
    the name that a table calls them, and ``notes(study)``, what stands behind the notes of tables by name.
    """
    if folder.parent == HERE:
        module = importlib.import_module(f"rooflines_studies.{folder.name}.page")
        return SimpleNamespace(**{**_PLAIN, **vars(module)})
    path = folder / "page.py"
    return SimpleNamespace(**{**_PLAIN, **(runpy.run_path(str(path)) if path.is_file() else {})})


def _sections(study: Study, folder: Path) -> Iterator[Section]:
    """The sections of the study's file with its tables, and those of its page, of which some have tables in
    front."""
    file, module = read_study(folder), page_module(folder)
    notes: Mapping[str, str] = module.notes(study)
    own: dict[str, Section] = {part.name: part for part in module.sections(study)}
    made: dict[str, list[Block]] = {}
    for table in file.tables:
        found = make_table(table, study.rows, folder, module.VALUES, notes.get(table.name, ""))
        made.setdefault(table.section, []).extend([] if found is None else [found])
    for name in dict.fromkeys((*file.sections, *own, *made)):
        part = own.get(name, section(name, ""))
        title = file.sections.get(name) or part.title or name.capitalize()
        yield msgspec.structs.replace(part, title=title, blocks=(*made.get(name, ()), *part.blocks))


def page(study: Study, folder: Path) -> Page:
    """Return the page of ``study``, with the sections of its folder."""
    verdict, *said = study.findings or ("Nothing was measured.",)
    unfinished = any(row.unfinished for row in study.rows)
    missing = Facts(
        rows=tuple((one.what, one.reason) for one in study.missing), kind="definitions", show="always"
    )
    method = (
        "Each point runs in its own "
        f"process.{' A quick study: fewer steps, images and epochs.' * study.quick}"
    )
    return Page(
        kind="study",
        name=study.title,
        title=f"{study.title} · {', '.join(study.devices) or ABSENT}",
        created=study.created,
        rooflines=study.rooflines,
        verdict=verdict,
        label=study.data,
        said=tuple(said),
        status=("interrupted", "Interrupted: the report contains the results so far.")
        if unfinished
        else None,
        sections=(
            *sections_of(*_sections(study, folder)),
            section(
                "missing",
                "Not run or incomplete",
                missing if study.missing else Paragraph("Everything that was asked for ran."),
            ),
            section("method", "Method", Paragraph(method), Paragraph(study.command, "code")),
        ),
    )
