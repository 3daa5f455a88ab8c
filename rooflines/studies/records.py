"""What a study measured, field by field as ``study.json`` shows it, and what its processes tell each other.

Units are SI base units, given in the field names. A field that is None was not measured and is absent from the JSON.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from rooflines.device_specs.records import Ceilings
from rooflines.roofline.analysis import Bound

STUDY_SCHEMA = "rooflines.study/1"
DataName = Literal["mnist", "digits", "synthetic"]
Status = Literal["complete", "interrupted"]


class DataFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The data that something was trained on. ``label`` says it in words wherever a number of it is shown."""

    name: DataName
    label: str
    train_samples: int
    test_samples: int


class Epoch(msgspec.Struct, frozen=True, kw_only=True):
    """One epoch. ``epoch_s`` is all of it but the test; ``input_s`` is the part in which the step waited for its batch."""

    backend: str
    data: DataName
    epoch: int
    epoch_s: float
    samples_per_s: float
    test_accuracy: float
    train_loss: float
    process_memory_bytes: int
    device_memory_bytes: int | None = None
    input_s: float


class TimedOperator(msgspec.Struct, frozen=True, kw_only=True):
    """One operator of a training step: the work that it declares, the fastest of ``rounds`` measured alone, and where that stands.

    ``flops`` are those of the direct algorithm, ``executed_flops`` what the kernel does where it leaves out what cannot matter; rates
    and roofs are about the latter. ``efficiency`` is its lower bound over its time; it and ``bound`` need the ceilings of the device.
    """

    name: str
    layer: str
    phase: str
    time_s: float
    rounds: int
    calls: int
    flops: int
    matrix_flops: int
    bytes: int
    precision: str
    executed_flops: int | None = None
    lower_bound_s: float | None = None
    attainable_flop_per_s: float | None = None
    efficiency: float | None = None
    bound: Bound = "unknown"
    memory_level: str | None = None

    @property
    def executed(self) -> int:
        """The FLOPs that are done."""
        return self.flops if self.executed_flops is None else self.executed_flops


class Training(msgspec.Struct, frozen=True, kw_only=True):
    """The epochs of one backend on one set of data.

    ``setup_s`` is what it took to make the network and to put the data in place, ``step_s`` the fastest step, without its input (the
    operators beside it are the fastest of several, too), and ``others_cores`` how many processors other programs kept busy meanwhile.
    """

    data: DataFacts
    batch_size: int
    learning_rate: float
    momentum: float
    epochs: tuple[Epoch, ...]
    setup_s: float
    step_s: float
    others_cores: float | None = None


class ThroughLoader(msgspec.Struct, frozen=True, kw_only=True):
    """A PyTorch backend fed as the paper fed it: image by image through transforms in the training process.

    ``alone_samples_per_s`` is the loader without training; of ``seconds`` for ``samples``, ``input_s`` went by in the loader.
    """

    data: DataFacts
    batch_size: int
    samples: int
    seconds: float
    input_s: float
    alone_samples_per_s: float

    @property
    def samples_per_s(self) -> float:
        """Samples trained a second."""
        return self.samples / self.seconds


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What one backend did in a study. ``device`` is its torch name, ``versions`` are those of the packages involved.

    ``operators`` are of a step of ``operators_batch`` samples; ``stopped`` is why it did not get to its end.
    """

    backend: str
    device: str
    threads: int | None = None
    versions: dict[str, str] = msgspec.field(default_factory=dict)
    operators: tuple[TimedOperator, ...] = ()
    operators_batch: int = 0
    stopped: str | None = None

    @property
    def measured(self) -> bool:
        """Whether there is anything to show."""
        raise NotImplementedError


class BackendResult(Result, frozen=True, kw_only=True):
    """``speed`` is the training that times are taken from and ``accuracy`` the one that accuracy is taken from: the same on MNIST."""

    speed: Training | None = None
    accuracy: Training | None = None
    loader: ThroughLoader | None = None

    @property
    def measured(self) -> bool:
        return self.speed is not None


class Missing(msgspec.Struct, frozen=True, kw_only=True):
    """A backend that did not run, or not to the end, and why."""

    backend: str
    reason: str


class Study(msgspec.Struct, frozen=True, kw_only=True):
    """What every study says. ``ceilings`` are by device; ``findings`` are sentences computed from the numbers."""

    schema: str = STUDY_SCHEMA
    created: str
    command: str
    rooflines: str
    machine: str
    status: Status
    quick: bool
    missing: tuple[Missing, ...] = ()
    ceilings: dict[str, Ceilings] = msgspec.field(default_factory=dict)
    findings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class BackendsStudy(Study, frozen=True, kw_only=True):
    """``rooflines study backends``."""

    study: Literal["backends"] = "backends"
    results: tuple[BackendResult, ...]


class MemoryParts(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of one iteration by component, each measured, and the growth that they should add up to; ``how`` says by what."""

    parameters: int
    input: int
    activations: int
    gradients: int
    overhead: int
    total: int
    how: str

    @property
    def parts(self) -> int:
        """The components together."""
        return self.parameters + self.input + self.activations + self.gradients + self.overhead


class Iterations(msgspec.Struct, frozen=True, kw_only=True):
    """Full-batch training: the loss before each iteration, and the accuracy on the held-out samples after some of them.

    ``widths`` are those of the network. ``iteration_s`` is the median, ``fastest_s`` the fastest; ``others_cores`` is how many
    processors other programs kept busy.
    """

    data: DataFacts
    widths: tuple[int, ...]
    losses: tuple[float, ...]
    checked_at: tuple[int, ...]
    accuracies: tuple[float, ...]
    total_s: float
    iteration_s: float
    fastest_s: float
    others_cores: float | None = None


class SizePoint(msgspec.Struct, frozen=True, kw_only=True):
    """One configuration of a sweep: widths from input to classes, samples, and the median iteration."""

    widths: tuple[int, ...]
    samples: int
    iteration_s: float
    flops: int
    bytes: int


class LibraryResult(Result, frozen=True, kw_only=True):
    """What one array library did with the perceptron."""

    widths: tuple[int, ...]
    speed: Iterations | None = None
    accuracy: Iterations | None = None
    memory: MemoryParts | None = None
    memory_missing: str | None = None
    sizes: tuple[SizePoint, ...] = ()
    process_memory_bytes: int | None = None
    device_memory_bytes: int | None = None

    @property
    def measured(self) -> bool:
        return self.speed is not None or bool(self.sizes)


class FromScratchStudy(Study, frozen=True, kw_only=True):
    """``rooflines study from-scratch``."""

    study: Literal["from-scratch"] = "from-scratch"
    widths: tuple[int, ...]
    samples: int
    iterations: int
    results: tuple[LibraryResult, ...]


# --- what is asked of a process, and what it answers ---------------------------------------------------------------------------------


class TrainJob(msgspec.Struct, frozen=True, kw_only=True, tag="train"):
    """Train the convolutional network with one backend; ``operators`` times them afterwards.

    After ``budget_s`` no further epoch begins.
    """

    backend: str
    data: DataName
    data_dir: str | None
    train_samples: int | None
    test_samples: int | None
    epochs: int
    batch_size: int
    learning_rate: float
    momentum: float
    seed: int
    operators: bool
    budget_s: float | None = None


class LoaderJob(msgspec.Struct, frozen=True, kw_only=True, tag="loader"):
    """Train it for ``batches`` batches through the paper's loader."""

    backend: str
    data: DataName
    data_dir: str | None
    batch_size: int
    batches: int
    seed: int


class PerceptronJob(msgspec.Struct, frozen=True, kw_only=True, tag="perceptron"):
    """Train the perceptron for ``iterations`` on all samples at once, time its operators, then run ``sizes``."""

    backend: str
    widths: tuple[int, ...]
    samples: int
    iterations: int
    data: DataName
    data_dir: str | None
    accuracy_data: DataName | None
    accuracy_iterations: int
    seed: int
    sizes: tuple[tuple[tuple[int, ...], int], ...] = ()


Job: TypeAlias = TrainJob | LoaderJob | PerceptronJob


class EpochDone(msgspec.Struct, frozen=True, tag="epoch"):
    """An epoch, as soon as it has ended: what an interruption keeps."""

    epoch: Epoch
    data: DataFacts
    setup_s: float
    step_s: float
    others_cores: float


class OperatorsDone(msgspec.Struct, frozen=True, tag="operators"):
    """The operators of a step of ``batch`` samples."""

    batch: int
    operators: tuple[TimedOperator, ...]


class LoaderDone(msgspec.Struct, frozen=True, tag="loader done"):
    """The run through the loader."""

    loader: ThroughLoader


class IterationsDone(msgspec.Struct, frozen=True, tag="iterations"):
    """The perceptron's training; ``purpose`` says what it is for."""

    purpose: Literal["speed", "accuracy"]
    iterations: Iterations
    process_memory_bytes: int
    device_memory_bytes: int | None = None


class SizeDone(msgspec.Struct, frozen=True, tag="size"):
    """One configuration of the sweep."""

    size: SizePoint


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """The job is done; the facts of the process that did it."""

    device: str
    threads: int | None = None
    versions: dict[str, str] = msgspec.field(default_factory=dict)


Message: TypeAlias = EpochDone | OperatorsDone | LoaderDone | IterationsDone | SizeDone | Ended
