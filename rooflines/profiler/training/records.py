"""What training a network gave, as ``training.json`` stores it: units in the field names, absent where not
measured."""

from __future__ import annotations

import statistics
from typing import Literal

import msgspec

from rooflines.profiler.options import OptionValues
from rooflines.profiler.records import Environment, ResultError, Workload

TRAINING_SCHEMA = "rooflines.training/1"
TRAINING_FILE = "training.json"


class DataFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The images of a training. ``real`` says whether their labels mean something, and so accuracy does."""

    name: str
    label: str
    real: bool
    classes: int
    train_samples: int
    test_samples: int


class Epoch(msgspec.Struct, frozen=True, kw_only=True):
    """One epoch."""

    epoch: int
    #: All of it but the test.
    epoch_s: float
    #: Time of ``epoch_s`` in which the step waited for its batch.
    input_s: float
    test_s: float
    samples_per_s: float
    train_loss: float
    test_accuracy: float
    learning_rate: float
    #: Loss on the test images; absent if it is not finite.
    test_loss: float | None = None
    peak_memory_bytes: int | None = None
    #: First step of the process, in which libraries load and code is compiled; part of the first epoch's
    #: ``epoch_s`` only.
    first_step_s: float | None = None
    #: Steps that a gradient scaler left out.
    skipped_steps: int = 0
    #: Processors that other programs kept busy while the steps ran.
    others_cores: float | None = None


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """The step (from 1, of the epoch) whose loss was not finite; ``what`` says so."""

    epoch: int
    step: int
    what: str


class SeedResult(msgspec.Struct, frozen=True, kw_only=True):
    """The epochs of one seed, and its failure if it failed."""

    seed: int
    epochs: tuple[Epoch, ...] = ()
    failure: Failure | None = None

    @property
    def accuracy(self) -> float | None:
        """The accuracy after the last epoch, 0 to 1."""
        return self.epochs[-1].test_accuracy if self.epochs else None


class VariantResult(msgspec.Struct, frozen=True, kw_only=True):
    """The trained network tested in another precision. ``sample_s`` is the time per image of the fastest of
    three passes.

    It leaves out the data loader. ``error`` compares the scores with those in fp32. ``reason`` says why it
    could not be tested.
    """

    name: str
    accuracy: float | None = None
    sample_s: float | None = None
    error: ResultError | None = None
    notes: tuple[str, ...] = ()
    reason: str = ""


class Training(msgspec.Struct, frozen=True, kw_only=True):
    """A training. ``options`` are those that determine its result; ``results`` are one per seed."""

    schema: str = TRAINING_SCHEMA
    status: Literal["running", "complete", "interrupted"] = "running"
    created: str = ""
    command: str = ""
    workload: Workload
    environment: Environment
    data: DataFacts
    options: OptionValues = {}
    results: tuple[SeedResult, ...] = ()
    variants: tuple[VariantResult, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def accuracies(self) -> tuple[float, ...]:
        """The accuracy of each seed that did not fail."""
        return tuple(
            result.accuracy
            for result in self.results
            if result.accuracy is not None and result.failure is None
        )

    @property
    def accuracy(self) -> float | None:
        """The median accuracy of the seeds, 0 to 1."""
        return statistics.median(self.accuracies) if self.accuracies else None

    @property
    def epoch_s(self) -> float | None:
        """The median time of an epoch without the first of each seed, which includes start-up, unless there
        is no other."""
        later = [epoch.epoch_s for result in self.results for epoch in result.epochs[1:]]
        return statistics.median(later or [epoch.epoch_s for epoch in self._epochs] or [0.0]) or None

    @property
    def _epochs(self) -> list[Epoch]:
        return [epoch for result in self.results for epoch in result.epochs]

    @property
    def others_cores(self) -> float | None:
        """The most processors that other programs kept busy during an epoch."""
        return max(
            (epoch.others_cores for epoch in self._epochs if epoch.others_cores is not None), default=None
        )

    @property
    def peak_memory_bytes(self) -> int | None:
        """The largest peak of any epoch."""
        return max(
            (epoch.peak_memory_bytes for epoch in self._epochs if epoch.peak_memory_bytes is not None),
            default=None,
        )
