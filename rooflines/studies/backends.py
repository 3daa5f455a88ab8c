"""``rooflines study backends``: one convolutional network on every backend that is here, with the same start and order of the data."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from rooflines.profiler.progress import Progress
from rooflines.studies import data, networks
from rooflines.studies.backends_findings import findings
from rooflines.studies.backends_page import combined_rows, page
from rooflines.studies.experiment import Experiment, StudyOptions, write_csv
from rooflines.studies.records import (
    BackendResult,
    BackendsStudy,
    DataName,
    EpochDone,
    Job,
    LoaderDone,
    LoaderJob,
    Message,
    Training,
    TrainJob,
)

EPOCHS, QUICK_EPOCHS = 10, 3
QUICK_SAMPLES = 20_480
# Of a backend's training for speed with --quick, so that a slow or a busy machine has its answer, too; one epoch at least.
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


class BackendsOptions(StudyOptions, frozen=True, kw_only=True):
    """What to run. None chooses by ``quick`` and by the available data."""

    epochs: int | None = None
    batch_size: int = BATCH_SIZE
    samples: int | None = None


class Backends(Experiment[BackendResult, BackendsStudy]):
    """The backends study."""

    name = "backends"
    backends = networks.BACKENDS
    everywhere = "numba-cpu and torch-cpu"
    findings = staticmethod(findings)
    page = staticmethod(page)

    def __init__(self, options: BackendsOptions) -> None:
        self.options: BackendsOptions = options

    def jobs(self, backend: str, on_mnist: bool) -> Iterator[Job]:
        """Its speed, its accuracy, and its speed behind the paper's loader."""
        options, quick = self.options, self.options.quick
        speed: DataName = "mnist" if on_mnist else "synthetic"
        samples = options.samples or (QUICK_SAMPLES if quick and not on_mnist else None)
        yield TrainJob(
            backend=backend, data=speed, data_dir=options.data_dir, train_samples=samples,
            test_samples=max(1, samples // 6) if samples and not on_mnist else None,
            epochs=options.epochs or (QUICK_EPOCHS if quick else EPOCHS), batch_size=options.batch_size, learning_rate=LEARNING_RATE,
            momentum=MOMENTUM, seed=options.seed, operators=not networks.is_compiled(backend),
            budget_s=QUICK_BUDGET_S if quick else None,
        )  # fmt: skip
        if not on_mnist and data.why_no_digits() is None and not networks.is_compiled(backend):
            yield TrainJob(
                backend=backend, data="digits", data_dir=None, train_samples=None, test_samples=None,
                epochs=QUICK_DIGITS_EPOCHS if quick else DIGITS_EPOCHS, batch_size=DIGITS_BATCH_SIZE,
                learning_rate=DIGITS_LEARNING_RATE, momentum=MOMENTUM, seed=options.seed, operators=False,
            )  # fmt: skip
        if backend.startswith("torch") and not networks.is_compiled(backend):
            most = QUICK_LOADER_BATCHES if quick else LOADER_BATCHES
            batches = min(most, -(-(samples or data.MNIST_TRAIN) // options.batch_size))
            yield LoaderJob(
                backend=backend, data=speed, data_dir=options.data_dir, batch_size=options.batch_size, batches=batches,
                seed=options.seed,
            )  # fmt: skip

    def empty(self, backend: str, device: str) -> BackendResult:
        return BackendResult(backend=backend, device=device)

    def add(self, result: BackendResult, job: Job, message: Message) -> BackendResult:
        if isinstance(message, EpochDone) and isinstance(job, TrainJob):
            return _with_epoch(result, job, message)
        if isinstance(message, LoaderDone):
            return msgspec.structs.replace(result, loader=message.loader)
        return result

    def finish(self, result: BackendResult, directory: Path, progress: Progress) -> BackendResult:
        _write_epochs(result, directory)
        return result

    def record(self, **common: Any) -> BackendsStudy:
        return BackendsStudy(**common)

    def write_tables(self, study: BackendsStudy, directory: Path) -> None:
        for one in study.results:
            _write_epochs(one, directory)
        header, rows = combined_rows(study)
        write_csv(directory / "backends.csv", header, rows)

    def why_not(self, backend: str) -> str | None:
        if self.options.quick and self.options.backends is None and networks.is_compiled(backend):
            return "skipped by --quick because compiling takes longer than running; select it with --backends"
        return super().why_not(backend)


def run(options: BackendsOptions, progress: Progress | None = None) -> tuple[BackendsStudy, Path]:
    """Run the study; see ``Experiment.run``."""
    return Backends(options).run(progress)


def _with_epoch(found: BackendResult, job: TrainJob, message: EpochDone) -> BackendResult:
    before = found.accuracy if job.data == "digits" else found.speed
    training = Training(
        data=message.data, batch_size=job.batch_size, learning_rate=job.learning_rate, momentum=job.momentum,
        epochs=(*(before.epochs if before else ()), message.epoch), setup_s=message.setup_s, step_s=message.step_s,
        others_cores=message.others_cores,
    )  # fmt: skip
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
        write_csv(folder / f"{one.backend}.csv", _EPOCH_HEADER, [msgspec.to_builtins(epoch) for epoch in rows])
