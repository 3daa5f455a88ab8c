"""Train the perceptron with one array library: iterations over all samples at once, then its operators.

``time_size`` times a perceptron of other widths, ``784-10-10@59000``, on random samples: their values do not
change its time.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from rooflines.ext import MeasuredValue, OthersMeter, PointResult, UsageError, arg
from rooflines_studies import data, network_runs
from rooflines_studies.networks import perceptron
from rooflines_studies.records import Detail, ImageFacts, NetworkResult, TimedOperator

if TYPE_CHECKING:
    from rooflines.ext import WorkerChannel

# The paper's headings, and two that it does not list.
MATRIX, RELU, SOFTMAX, GRADIENTS, BIAS, UPDATE = (
    "matrix multiplication",
    "ReLU",
    "softmax",
    "gradient computation",
    "bias",
    "update",
)
GROUPS = (MATRIX, RELU, SOFTMAX, GRADIENTS, BIAS, UPDATE)
_CHECKS = 50  # times that the accuracy is looked at
# An iteration is repeated until this much time has gone by, and at least so often.
_SECONDS = 0.6
_ROUNDS = 3
CLASSES = 10


class Iterations(Detail, frozen=True, kw_only=True):
    """Full-batch training: the loss before each iteration, and the accuracy on the held-out samples after
    some of them.

    ``widths`` are those of the network. ``iteration_s`` is the median, ``fastest_s`` the fastest.
    """

    widths: tuple[int, ...]
    losses: tuple[float, ...]
    checked_at: tuple[int, ...]
    accuracies: tuple[float, ...]
    total_s: float
    iteration_s: float
    fastest_s: float
    process_memory_bytes: int
    device_memory_bytes: int | None = None


class MemoryParts(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of one iteration by component, each measured, and the growth that they should add up to; ``how``
    says by what."""

    parameters: float
    input: float
    activations: float
    gradients: float
    overhead: float
    total: float
    how: str

    @property
    def parts(self) -> float:
        """The components together."""
        return self.parameters + self.input + self.activations + self.gradients + self.overhead


class SizePoint(msgspec.Struct, frozen=True, kw_only=True):
    """Another network: widths from input to classes, samples, and the seconds of an iteration."""

    widths: tuple[int, ...]
    samples: int
    iteration: MeasuredValue
    flops: float


class LibraryResult(NetworkResult, frozen=True, kw_only=True):
    """What one array library did with the perceptron, with the seconds of an iteration of ``speed`` over all
    rounds."""

    speed: Iterations | None = None
    iteration: MeasuredValue | None = None
    accuracy: Iterations | None = None
    memory: MemoryParts | None = None
    sizes: tuple[SizePoint, ...] = ()


def group(operator: TimedOperator) -> str:
    """Under which of the paper's headings an operator is: products forward and backward are matrix
    multiplication."""
    if operator.matrix_flops:
        return MATRIX
    if operator.phase == "optimizer":
        return UPDATE
    if operator.name.startswith("relu"):
        return RELU
    if operator.name in ("softmax", "cross-entropy"):
        return SOFTMAX
    return BIAS if operator.name == "bias" else GRADIENTS


def grouped(operators: Iterable[TimedOperator]) -> dict[str, float]:
    """Seconds an iteration under each heading."""
    found = dict.fromkeys(GROUPS, 0.0)
    for one in operators:
        found[group(one)] += one.time_s
    return found


class PerceptronOptions(network_runs.DataOptions, frozen=True, kw_only=True):
    """Options of a training; ``operators`` times them afterwards."""

    widths: str
    iterations: network_runs.Positive
    operators: bool = False
    ceilings: str
    threads: int | None = None


def train(task: dict[str, Any], directory: Path, channel: WorkerChannel) -> PointResult:
    """Run the point of ``task``."""
    job = network_runs.read_options(task["point"]["options"], PerceptronOptions)
    widths = parse_widths(job.widths)
    channel.stage("preparing the data")
    inputs, classes, tests, test_classes, facts = load_samples(job, widths[0])
    network = perceptron.Perceptron(perceptron.library(job.backend), widths=widths, seed=job.seed)
    x, y, test_x = network.resident(inputs), network.resident(classes), network.resident(tests)
    del inputs, tests
    network.gradients(x, y)
    channel.stage(f"{job.iterations} iterations on {facts.name}", job.iterations)
    losses: list[float] = []
    steps, checked, accuracies = [], [], []
    every, others = max(1, job.iterations // _CHECKS), OthersMeter()
    for number in range(1, job.iterations + 1):
        begun = time.perf_counter()
        losses.append(network.step(x, y))
        steps.append(time.perf_counter() - begun)
        network_runs.check_losses(losses[-1:], number - 1)
        if number % every == 0 or number == job.iterations:
            checked.append(number)
            accuracies.append(float(np.mean(network.predict(test_x) == test_classes)))
        channel.advance()
    iterations = Iterations(
        **network_runs.process_facts(job.backend),
        data=facts,
        others_cores=others.cores(),
        widths=widths,
        losses=tuple(losses),
        checked_at=tuple(checked),
        accuracies=tuple(accuracies),
        total_s=sum(steps),
        iteration_s=statistics.median(steps),
        fastest_s=min(steps),
        process_memory_bytes=network_runs.resident_bytes(),
        device_memory_bytes=network.device_memory_bytes(),
    )
    result = partial(network_runs.detail_result, task, directory, values_of)
    return network_runs.finish(job, iterations, network, x, y, channel, result, operators=job.operators)


def load_samples(
    job: PerceptronOptions, width: int
) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.float32], NDArray[np.int64], ImageFacts]:
    """Return samples [N, ``width`` pixels] and classes [N] to train on, those held out, and what they are."""
    name = data.or_synthetic(job.data, job.data_dir)
    images = data.load(
        name, job.data_dir, seed=job.seed, train_samples=job.samples + perceptron.VALIDATION_SAMPLES
    )
    if name == "digits":
        count = min(job.samples, len(images.train_images))
        tests = images.test_images, images.test_classes
    else:
        # The paper holds a thousand of MNIST's 60,000 training images out, here the last; of few images it is
        # a sixth.
        count = len(images.train_images)
        count = min(count - min(perceptron.VALIDATION_SAMPLES, -(-count // 6)), job.samples)
        tests = images.train_images[count:], images.train_classes[count:]
    facts = ImageFacts(
        name=images.name, label=images.facts.label, train_samples=count, test_samples=len(tests[0])
    )
    return (
        _pixels(images.train_images[:count], width),
        images.train_classes[:count],
        _pixels(tests[0], width),
        tests[1],
        facts,
    )


def _pixels(images: NDArray[np.uint8], width: int) -> NDArray[np.float32]:
    """Images as rows of ``width`` pixels from 0 to 1; other widths than 784 take the first or repeat them."""
    rows = images.reshape(len(images), -1)
    if width != rows.shape[1]:
        rows = rows[:, np.arange(width) % rows.shape[1]]
    scaled = rows.astype(np.float32)
    scaled *= 1 / 255
    return scaled


def values_of(iterations: Iterations) -> dict[str, float | None]:
    """The values of a result, with the operators by pass and by the paper's headings; an accuracy on
    synthetic images means nothing."""
    timed = iterations.operators
    passes = {
        f"{name}_s": sum(one.time_s for one in timed if one.phase == name) for name in ("forward", "backward")
    }
    return {
        "iteration_s": iterations.iteration_s,
        "fastest_s": iterations.fastest_s,
        "total_s": iterations.total_s,
        "samples_per_s": iterations.data.train_samples / iterations.iteration_s,
        "accuracy": iterations.accuracies[-1] if iterations.data.name != "synthetic" else None,
        "train_loss": iterations.losses[-1],
        "process_memory_bytes": iterations.process_memory_bytes,
        "device_memory_bytes": iterations.device_memory_bytes,
        "others_cores": iterations.others_cores,
        **(
            {
                **passes,
                **{f"{name.replace(' ', '_').lower()}_s": time for name, time in grouped(timed).items()},
            }
            if timed
            else {}
        ),
    }


# --- other sizes ------------------------------------------------------------------------------------------


class SizeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a network to time: ``size`` has its widths and the number of samples."""

    backend: str
    size: str
    seed: int


def time_size(task: dict[str, Any], directory: Path, channel: WorkerChannel) -> PointResult:
    """Run the point of ``task``."""
    job = network_runs.read_options(task["point"]["options"], SizeOptions)
    widths, samples = parse_size(job.size)
    channel.stage("timing its iterations")
    generator = np.random.default_rng(job.seed)
    network = perceptron.Perceptron(perceptron.library(job.backend), widths=widths, seed=job.seed)
    x = network.resident(generator.random((samples, widths[0]), np.float32))
    y = network.resident(generator.integers(0, widths[-1], samples))
    network.step(x, y)
    steps: list[float] = []
    others = OthersMeter()
    while len(steps) < _ROUNDS or sum(steps) < _SECONDS:
        begun = time.perf_counter()
        network.step(x, y)
        steps.append(time.perf_counter() - begun)
    busy = others.cores()
    declared = [one.operator for one in network.operators(x, y, rounds=1)]
    network.close()
    iteration_s, flops, size = (
        statistics.median(steps),
        sum(one.flops for one in declared),
        sum(one.bytes for one in declared),
    )
    values = {
        "iteration_s": iteration_s,
        "flops": flops,
        "bytes": size,
        "flop_per_s": flops / iteration_s,
        "byte_per_s": size / iteration_s,
        "others_cores": busy,
    }
    return network_runs.make_result(task, directory, values, data="random samples")


def parse_widths(text: str, name: str = "widths") -> tuple[int, ...]:
    """Return the widths of the input, the hidden layers and the classes in ``text``, the option ``name``;
    raises UsageError."""
    given = arg("set", f"{name}={text}")
    widths = tuple(_positive(width, f"{given}: a width") for width in text.split("-"))
    if len(widths) < 2:
        raise UsageError(
            f"{given} has too few layers.", hint="Give at least inputs and classes, for example 784-10-10."
        )
    if widths[-1] < CLASSES:
        raise UsageError(
            f"{given}: the last width must be {CLASSES} (the number of classes), got {widths[-1]}.",
            hint="For example: 784-10-10",
        )
    return widths


def parse_size(text: str) -> tuple[tuple[int, ...], int]:
    """Return the widths and the number of samples in ``784-10-10@59000``; raises UsageError for anything
    else."""
    widths, _, samples = text.partition("@")
    return parse_widths(widths, "size"), _positive(
        samples, f"{arg('set', f'size={text}')}: the samples behind @"
    )


def _positive(text: str, what: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise UsageError(
            f"{what} must be a positive integer, got {text!r}.", hint="For example: 784-10-10@59000"
        )
    return number
