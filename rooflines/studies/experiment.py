"""What every study does around its measurements: it asks each backend for its jobs, judges the results, and writes them."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from rooflines._version import __version__
from rooflines.device_specs.records import Ceilings
from rooflines.errors import DeviceError, RooflinesError
from rooflines.profiler.directory import check_directory, create_directory, default_directory
from rooflines.profiler.progress import Progress, Silent
from rooflines.serial import write_json, write_text
from rooflines.studies import data, networks
from rooflines.studies.operator_bounds import bounded
from rooflines.studies.records import (
    BackendsStudy,
    Ended,
    FromScratchStudy,
    Job,
    LoaderJob,
    Message,
    Missing,
    OperatorsDone,
    PerceptronJob,
    TrainJob,
)
from rooflines.studies.records import Result as AnyResult
from rooflines.sweeps import process
from rooflines.sweeps import records as run
from rooflines.units import counted

if TYPE_CHECKING:
    from rooflines.reports.document import Page

STUDY_FILE = "study.json"
# What does each kind of job.
FUNCTIONS = {
    TrainJob: "rooflines.studies.network_jobs:train",
    LoaderJob: "rooflines.studies.network_jobs:train_through_loader",
    PerceptronJob: "rooflines.studies.network_jobs:train_perceptron",
}
_OPERATOR_HEADER = (
    "backend", "name", "layer", "phase", "time_s", "flops", "executed_flops", "bytes", "flop_per_s", "byte_per_s", "lower_bound_s",
    "efficiency", "bound", "memory_level",
)  # fmt: skip

Result = TypeVar("Result", bound=AnyResult)
Study = TypeVar("Study", BackendsStudy, FromScratchStudy)


class StudyOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of every study. ``backends`` is a comma-separated list, None all that can run here."""

    quick: bool = False
    backends: str | None = None
    data_dir: str | None = None
    output: Path | None = None
    ceilings: str = "measured"
    threads: int | None = None
    seed: int = 0
    command: str = ""
    formats: tuple[str, ...] = ("html",)


class Experiment(Generic[Result, Study]):
    """A study. A subclass names its backends and says what each does, what a message adds to its result, and what is shown.

    ``backends`` are all that it knows, ``everywhere`` those that need no GPU; ``findings`` are sentences computed from its numbers.
    """

    name: str
    backends: tuple[str, ...]
    everywhere: str
    options: StudyOptions
    findings: Callable[[Study], tuple[str, ...]]
    page: Callable[[Study], Page]

    def jobs(self, backend: str, on_mnist: bool) -> Iterator[Job]:
        """What a backend does, each job in its own process. ``on_mnist`` is whether MNIST is available."""
        raise NotImplementedError

    def empty(self, backend: str, device: str) -> Result:
        """The result before the first job."""
        raise NotImplementedError

    def add(self, result: Result, job: Job, message: Message) -> Result:
        """The result with what only this study's messages say."""
        return result

    def finish(self, result: Result, directory: Path, progress: Progress) -> Result:
        """The result after the last job of its backend."""
        return result

    def record(self, **common: Any) -> Study:
        """The record of the study; ``common`` are the fields of every study."""
        raise NotImplementedError

    def write_tables(self, study: Study, directory: Path) -> None:
        """Write this study's own CSV files."""

    def why_not(self, backend: str) -> str | None:
        """Why ``backend`` does not run, None where it does."""
        return networks.why_not(backend)

    def run(self, progress: Progress | None = None) -> tuple[Study, Path]:
        """Run the study and write it; returns its record and its directory. Ctrl-C ends it early with the results so far.

        Raises UsageError for invalid options, DeviceError if no requested backend can run here, DataError for a ``data_dir`` without
        MNIST, RooflinesError if no backend has a result.
        """
        progress = progress or Silent()
        options = self.options
        asked = networks.chosen(options.backends, self.backends)
        check_ceilings(options.ceilings)
        on_mnist = check_data(options.data_dir)
        directory = options.output if options.output is not None else default_directory(self.name, "study")
        check_directory(directory)
        progress.stage("checking available backends", None)
        missing = [Missing(backend=name, reason=reason) for name in asked if (reason := self.why_not(name))]
        able = [name for name in asked if name not in {one.backend for one in missing}]
        if not able:
            raise DeviceError(
                f"none of {', '.join(asked)} can run here: {missing[0].reason}.", hint=f"{self.everywhere} run everywhere."
            )
        create_directory(directory)
        notes = list(data_notes(on_mnist))
        results: dict[str, Result] = {}
        interrupted = False
        ceilings: dict[str, Ceilings] = {}
        try:
            for name in able:
                results[name] = self.empty(name, networks.device_of(name))
                for job in self.jobs(name, on_mnist):
                    self._do(job, results, name, progress)
                    if results[name].stopped:
                        break
                results[name] = self.finish(results[name], directory, progress)
        except KeyboardInterrupt:
            interrupted = True
        done = [one for one in results.values() if one.measured]
        missing += [Missing(backend=one.backend, reason=one.stopped) for one in results.values() if one.stopped]
        if not done and not interrupted:
            reasons = "; ".join(f"{one.backend}: {one.reason.rstrip('.')}" for one in missing)
            raise RooflinesError(f"nothing was measured ({reasons}).")
        if not interrupted:
            try:
                ceilings, unjudged = ceilings_of(dict.fromkeys(one.device for one in done), options, progress)
                notes += unjudged
            except KeyboardInterrupt:
                interrupted = True
        if interrupted:
            notes.append("Interrupted: the report contains the results so far.")
        study = self.record(
            created=f"{datetime.now():%Y-%m-%d %H:%M}", command=options.command, rooflines=__version__, machine=machine(),
            status="interrupted" if interrupted else "complete", quick=options.quick, missing=tuple(missing), ceilings=ceilings,
            notes=tuple(notes),
            results=tuple(msgspec.structs.replace(one, operators=bounded(one.operators, ceilings.get(one.device))) for one in done),
        )  # fmt: skip
        study = msgspec.structs.replace(study, findings=self.findings(study))
        progress.stage("writing the report", None)
        self.write(study, directory)
        return study, directory

    def write(self, study: Study, directory: Path) -> None:
        """Write the record, its CSV files, and its page in the formats of the options."""
        from rooflines.pipeline.reporting import write_reports
        from rooflines.reports.render.figures import DIRECTORY, write_figures

        write_json(directory / STUDY_FILE, study)
        self.write_tables(study, directory)
        operators = (
            {**msgspec.to_builtins(one), "backend": result.backend, "flop_per_s": one.executed / one.time_s,
             "byte_per_s": one.bytes / one.time_s}
            for result in study.results
            for one in result.operators
        )  # fmt: skip
        write_csv(directory / "operators.csv", _OPERATOR_HEADER, operators)
        page = self.page(study)
        write_figures(page, directory / DIRECTORY)
        write_reports(page, self.options.formats, directory)

    def _do(self, job: Job, results: dict[str, Result], name: str, progress: Progress) -> None:
        """Add what ``job`` finds to the result of ``name`` as it comes, so that an interruption has what there is."""

        def found(message: bytes) -> None:
            results[name] = self._grown(results[name], job, msgspec.json.decode(message, type=Message))

        asked = run.Job(function=FUNCTIONS[type(job)], options=msgspec.to_builtins(job), threads=self.options.threads)
        try:
            process.run_job(asked, progress, found=found)
        except process.JobError as error:
            results[name] = msgspec.structs.replace(results[name], stopped=f"{error.message} {error.hint}".strip())

    def _grown(self, result: Result, job: Job, message: Message) -> Result:
        if isinstance(message, OperatorsDone):
            return msgspec.structs.replace(result, operators=message.operators, operators_batch=message.batch)
        if isinstance(message, Ended):
            return msgspec.structs.replace(result, device=message.device, threads=message.threads, versions=message.versions)
        return self.add(result, job, message)


def check_ceilings(choice: str) -> None:
    """Raise UsageError for ceilings that do not exist, before anything runs."""
    if choice not in ("measured", "spec"):
        from rooflines.pipeline.ceilings import file_or_device

        file_or_device(choice)


def machine() -> str:
    """This machine in a few words."""
    import torch

    from rooflines.device_specs import detect

    parts = [f"{detect.cpu().name}, {counted(len(detect.usable_cpus()), 'CPU')}"]
    if torch.cuda.is_available():
        parts.append(detect.gpu(0).name)
    return " + ".join(parts)


def ceilings_of(devices: Iterable[str], options: StudyOptions, progress: Progress) -> tuple[dict[str, Ceilings], list[str]]:
    """The ceilings of each device, and a sentence for each that has none."""
    from rooflines.pipeline.ceilings import ceilings_of_device

    found: dict[str, Ceilings] = {}
    notes: list[str] = []
    for device in devices:
        try:
            found[device] = ceilings_of_device(options.ceilings, device, options.threads, progress)
        except RooflinesError as error:  # noqa: PERF203
            notes.append(f"No bounds on {device}: {error.message}")
    return found, notes


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Rows by column name; what is not known is empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, header, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(path, text.getvalue())


def check_data(data_dir: str | None) -> bool:
    """Whether MNIST is available. It is read once, so that missing or corrupt files raise DataError before anything runs."""
    if data_dir is None:
        return False
    data.load("mnist", data_dir)
    return True


def data_notes(on_mnist: bool) -> tuple[str, ...]:
    """Notes on data that is not available."""
    missing = None if on_mnist else data.why_no_digits()
    return (f"Accuracy was not measured: no folder with MNIST was given, and {missing}.",) if missing else ()
