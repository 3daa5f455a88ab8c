"""``rooflines study backends``: one convolutional network on every backend that is here, with the same start and order of the data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from rooflines._version import __version__
from rooflines.errors import DeviceError
from rooflines.profiler.directory import create_directory
from rooflines.profiler.progress import Progress, Silent
from rooflines.studies import data, networks, processes, session
from rooflines.studies.backends_findings import findings
from rooflines.studies.backends_page import combined_rows, page
from rooflines.studies.operator_bounds import bounded
from rooflines.studies.records import (
    Advance,
    BackendResult,
    BackendsStudy,
    DataName,
    Ended,
    EpochDone,
    Failed,
    Job,
    LoaderDone,
    LoaderJob,
    Missing,
    OperatorsDone,
    Stage,
    Training,
    TrainJob,
)

EPOCHS, QUICK_EPOCHS = 10, 3
QUICK_SAMPLES = 20_480
# Of a backend's training for speed in a quick study, so that a slow or a busy machine has its answer, too; one epoch at least.
QUICK_BUDGET_S = 15.0
BATCH_SIZE = 512
LEARNING_RATE, MOMENTUM = 0.01, 0.9
# On the digits, which are 1,437 images, batches of the paper's size would be three steps an epoch. With this setting every epoch from
# the 18th on had 97.7 % right or more, for five seeds; from the 13th on 97.2 %.
DIGITS_EPOCHS, QUICK_DIGITS_EPOCHS = 20, 15
DIGITS_BATCH_SIZE, DIGITS_LEARNING_RATE = 32, 0.005
LOADER_BATCHES, QUICK_LOADER_BATCHES = 20, 8
_EPOCH_HEADER = (
    "backend", "epoch", "epoch_s", "samples_per_s", "test_accuracy", "train_loss", "process_memory_bytes", "device_memory_bytes",
    "input_s", "data",
)  # fmt: skip
_OPERATOR_HEADER = (
    "backend", "name", "layer", "phase", "time_s", "flops", "executed_flops", "bytes", "flop_per_s", "byte_per_s", "lower_bound_s",
    "efficiency", "bound", "memory_level",
)  # fmt: skip


class BackendsOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What to run. ``backends`` is a comma-separated list; None in the others chooses by ``quick`` and by what data there is."""

    quick: bool = False
    backends: str | None = None
    epochs: int | None = None
    batch_size: int = BATCH_SIZE
    samples: int | None = None
    data_dir: str | None = None
    output: Path | None = None
    ceilings: str = "measured"
    threads: int | None = None
    seed: int = 0
    command: str = ""
    formats: tuple[str, ...] = session.FORMATS


def run(options: BackendsOptions, progress: Progress | None = None) -> tuple[BackendsStudy, Path]:
    """Run the study and write it; returns what was found, and where it is. A Ctrl-C ends it early, with what there is by then.

    Raises UsageError for what cannot be asked, DeviceError when no backend that was asked for can run here, DataError for a
    ``data_dir`` without MNIST, RooflinesError when no backend got as far as a result.
    """
    progress = progress or Silent()
    asked = networks.chosen(options.backends, networks.BACKENDS)
    session.check_ceilings(options.ceilings)
    on_mnist = session.check_data(options.data_dir)
    directory = session.directory_for("backends", options.output)
    progress.stage("checking available backends", None)
    missing = [Missing(backend=name, reason=reason) for name in asked if (reason := _why_not(name, options))]
    able = [name for name in asked if name not in {one.backend for one in missing}]
    if not able:
        raise DeviceError(
            f"none of {', '.join(asked)} can run here: {missing[0].reason}.", hint="numba-cpu and torch-cpu run everywhere."
        )
    create_directory(directory)
    notes = session.data_notes(on_mnist)
    results: dict[str, BackendResult] = {}
    interrupted = False
    try:
        for name in able:
            results[name] = BackendResult(backend=name, device=networks.device_of(name))
            for job in _jobs(name, options, on_mnist):
                for grown in _measure(job, results[name], options, progress):
                    results[name] = grown
                if results[name].stopped:
                    break
            _write_epochs(results[name], directory)
    except KeyboardInterrupt:
        interrupted = True
    done = [one for one in results.values() if one.speed is not None]
    missing += [Missing(backend=one.backend, reason=one.stopped) for one in results.values() if one.stopped]
    ending = session.judge(done, missing, options.ceilings, options.threads, progress, interrupted=interrupted)
    study = BackendsStudy(
        created=session.now(), command=options.command, rooflines=__version__, machine=session.machine(),
        status=ending.status, quick=options.quick, missing=tuple(missing), ceilings=ending.ceilings,
        notes=(*notes, *ending.notes),
        results=tuple(msgspec.structs.replace(one, operators=bounded(one.operators, ending.ceilings.get(one.device))) for one in done),
    )  # fmt: skip
    study = msgspec.structs.replace(study, findings=findings(study))
    progress.stage("writing the report", None)
    write(study, directory, options.formats)
    return study, directory


def write(study: BackendsStudy, directory: Path, formats: Sequence[str] = session.FORMATS) -> None:
    """Everything that a study writes, into ``directory``, its page in ``formats``."""
    session.write_study(directory, study)
    for one in study.results:
        _write_epochs(one, directory)
    session.write_operators(directory, _OPERATOR_HEADER, [(one.backend, one.operators) for one in study.results])
    header, rows = combined_rows(study)
    session.write_csv(directory / "backends.csv", header, rows)
    session.write_reports(page(study), directory, formats)


def _jobs(name: str, options: BackendsOptions, on_mnist: bool) -> Iterator[Job]:
    """What a backend is to do, each in a process of its own: its speed, its accuracy, and as the paper fed it."""
    quick = options.quick
    speed: DataName = "mnist" if on_mnist else "synthetic"
    samples = options.samples or (QUICK_SAMPLES if quick and not on_mnist else None)
    yield TrainJob(
        backend=name, data=speed, data_dir=options.data_dir, train_samples=samples,
        test_samples=max(1, samples // 6) if samples and not on_mnist else None,
        epochs=options.epochs or (QUICK_EPOCHS if quick else EPOCHS), batch_size=options.batch_size, learning_rate=LEARNING_RATE,
        momentum=MOMENTUM, seed=options.seed, operators=not networks.is_compiled(name), budget_s=QUICK_BUDGET_S if quick else None,
    )  # fmt: skip
    if not on_mnist and data.why_no_digits() is None and not networks.is_compiled(name):
        yield TrainJob(
            backend=name, data="digits", data_dir=None, train_samples=None, test_samples=None,
            epochs=QUICK_DIGITS_EPOCHS if quick else DIGITS_EPOCHS, batch_size=DIGITS_BATCH_SIZE,
            learning_rate=DIGITS_LEARNING_RATE,
            momentum=MOMENTUM, seed=options.seed, operators=False,
        )  # fmt: skip
    if name.startswith("torch") and not networks.is_compiled(name):
        most = QUICK_LOADER_BATCHES if quick else LOADER_BATCHES
        batches = min(most, -(-(samples or data.MNIST_TRAIN) // options.batch_size))
        yield LoaderJob(
            backend=name, data=speed, data_dir=options.data_dir, batch_size=options.batch_size, batches=batches, seed=options.seed
        )


def _measure(job: Job, found: BackendResult, options: BackendsOptions, progress: Progress) -> Iterator[BackendResult]:
    """The result as it grows with every message of the worker."""
    for message in processes.messages(job, options.threads):
        if isinstance(message, Stage):
            progress.stage(message.text, message.total)
        elif isinstance(message, Advance):
            progress.advance()
        elif isinstance(message, EpochDone) and isinstance(job, TrainJob):
            found = _with_epoch(found, job, message)
        elif isinstance(message, OperatorsDone):
            found = msgspec.structs.replace(found, operators=message.operators, operators_batch=message.batch)
        elif isinstance(message, LoaderDone):
            found = msgspec.structs.replace(found, loader=message.loader)
        elif isinstance(message, Ended):
            found = msgspec.structs.replace(found, device=message.device, threads=message.threads, versions=message.versions)
        elif isinstance(message, Failed):
            found = msgspec.structs.replace(found, stopped=f"{message.reason} {message.hint}".strip())
        yield found


def _with_epoch(found: BackendResult, job: TrainJob, message: EpochDone) -> BackendResult:
    before = found.accuracy if job.data == "digits" else found.speed
    training = Training(
        data=message.data,
        batch_size=job.batch_size,
        learning_rate=job.learning_rate,
        momentum=job.momentum,
        epochs=(*(before.epochs if before else ()), message.epoch),
        setup_s=message.setup_s,
        step_s=message.step_s,
        others_cores=message.others_cores,
    )
    if job.data == "digits":
        return msgspec.structs.replace(found, accuracy=training)
    return msgspec.structs.replace(found, speed=training, accuracy=training if job.data == "mnist" else found.accuracy)


def _write_epochs(one: BackendResult, directory: Path) -> None:
    """The backend's own CSV, a row an epoch; ``data`` says what was trained on."""
    folder = directory / "epochs"
    epochs = [epoch for training in (one.speed, one.accuracy) if training is not None for epoch in training.epochs]
    rows = dict.fromkeys(epochs)  # on MNIST both are the same epochs
    if rows:
        folder.mkdir(exist_ok=True)
        session.write_csv(folder / f"{one.backend}.csv", _EPOCH_HEADER, [msgspec.to_builtins(epoch) for epoch in rows])


def _why_not(name: str, options: BackendsOptions) -> str | None:
    if options.quick and options.backends is None and networks.is_compiled(name):
        return "skipped in a quick study because compiling takes longer than running; select it by name to include it"
    return networks.why_not(name)
