"""The jobs of the studies of networks written for each backend: a training, one behind the paper's loader, the perceptron.

Each runs in its own process (``sweeps/worker.py``) and says what it found as it goes, in the messages of ``records.py``.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import psutil

from rooflines.errors import RooflinesError
from rooflines.studies.other_programs import OtherProgramsMeter
from rooflines.studies.records import (
    DataFacts,
    DataName,
    Ended,
    Epoch,
    EpochDone,
    Iterations,
    IterationsDone,
    LoaderDone,
    LoaderJob,
    OperatorsDone,
    PerceptronJob,
    SizeDone,
    SizePoint,
    ThroughLoader,
    TimedOperator,
    TrainJob,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rooflines.kernels.networks.base import OperatorTime
    from rooflines.sweeps.worker import Channel

_OPERATOR_ROUNDS = 15
# An iteration of the perceptron's sweep is repeated until this much time has gone by, and at least so often.
_SIZE_S = 0.6
_SIZE_ROUNDS = 3
# The paper's ten hidden units get 94 to 96 % of the digits right, by the start that they had; these get 97.5 % from any.
_HIDDEN = 128
_CHECKS = 50  # times that the perceptron's accuracy is looked at
_TEST_BATCH = 512


def train(options: dict[str, Any], directory: Path, channel: Channel) -> Ended:
    """Epoch after epoch on data that lies where the backend computes, each followed by a test."""
    import numpy as np

    from rooflines.studies import data, networks

    job = msgspec.convert(options, TrainJob)
    channel.stage(f"{job.backend}: preparing the data")
    images = data.load(job.data, job.data_dir, seed=job.seed, train_samples=job.train_samples, test_samples=job.test_samples)
    order = np.random.default_rng(job.seed).permutation(len(images.train_images))
    order = order[data.padded(len(order), job.batch_size)]
    inputs, classes = data.normalised(images.train_images)[order], images.train_classes[order]
    test_inputs, test_classes, facts = data.normalised(images.test_images), images.test_classes, images.facts
    del images
    channel.stage(f"{job.backend}: compiling and warming up")
    begun = time.perf_counter()
    if not networks.is_compiled(job.backend):
        # Kernels that Numba compiles serve every network of the process; a throw-away one compiles the optimizer's, too.
        warm = networks.network(job.backend, job.learning_rate, job.momentum, job.seed)
        warm.step(warm.resident(inputs[: job.batch_size]), warm.resident(classes[: job.batch_size]))
        warm.close()
    network = networks.network(job.backend, job.learning_rate, job.momentum, job.seed)
    x, y = network.resident(inputs), network.resident(classes)
    network.gradients(x[: job.batch_size], y[: job.batch_size])
    network.predict(network.resident(test_inputs[:_TEST_BATCH]))
    network.synchronise()
    setup_s = time.perf_counter() - begun
    batches = len(inputs) // job.batch_size
    channel.stage(f"{job.backend}: {job.epochs} epochs on {job.data}", job.epochs)
    fastest_s, others, training_begun = math.inf, OtherProgramsMeter(), time.monotonic()
    for number in range(1, job.epochs + 1):
        starts = np.random.default_rng((job.seed, number)).permutation(batches) * job.batch_size
        losses, steps = [], []
        input_s = 0.0
        epoch_begun = time.perf_counter()
        for start in starts:
            begun = time.perf_counter()
            batch_x, batch_y = x[start : start + job.batch_size], y[start : start + job.batch_size]
            there = time.perf_counter()
            losses.append(network.step(batch_x, batch_y))
            steps.append(time.perf_counter() - there)
            input_s += there - begun
        epoch_s = time.perf_counter() - epoch_begun
        check_losses(losses, (number - 1) * batches)
        predicted = [
            network.predict(network.resident(test_inputs[begin : begin + _TEST_BATCH]))
            for begin in range(0, len(test_inputs), _TEST_BATCH)
        ]
        epoch = Epoch(
            backend=job.backend,
            data=job.data,
            epoch=number,
            epoch_s=epoch_s,
            samples_per_s=len(inputs) / epoch_s,
            test_accuracy=float(np.mean(np.concatenate(predicted) == test_classes)),
            train_loss=float(np.mean(losses)),
            process_memory_bytes=_resident_bytes(),
            device_memory_bytes=network.device_memory_bytes(),
            input_s=input_s,
        )
        fastest_s = min(fastest_s, *steps)
        channel.found(EpochDone(epoch, facts, setup_s, fastest_s, others.cores()))
        channel.advance()
        if job.budget_s is not None and time.monotonic() - training_begun > job.budget_s:
            break
    if job.operators:
        channel.stage(f"{job.backend}: timing its operators")
        timed = network.operators(x[: job.batch_size], y[: job.batch_size], rounds=_OPERATOR_ROUNDS)
        channel.found(OperatorsDone(job.batch_size, tuple(_plain(one) for one in timed)))
    network.close()
    return _end(job.backend)


def check_losses(losses: Sequence[float], before: int) -> None:
    """Raise RooflinesError at the first loss that is not finite, which JSON could not carry; ``before`` is how many came before."""
    for number, loss in enumerate(losses, before + 1):
        if not math.isfinite(loss):
            raise RooflinesError(f"the loss is not finite (step {number}).")


def train_through_loader(options: dict[str, Any], directory: Path, channel: Channel) -> Ended:
    """The loader alone, then the training behind it: how long each batch is waited for."""
    from rooflines.studies import networks
    from rooflines.studies.loader import papers_loader

    job = msgspec.convert(options, LoaderJob)
    channel.stage(f"{job.backend}: the paper's loader alone", job.batches)
    loader, facts = papers_loader(job.data, job.data_dir, job.batch_size, job.batches, job.seed)
    begun = time.perf_counter()
    alone = 0
    for x, _ in loader:
        alone += len(x)
        channel.advance()
    alone_s = time.perf_counter() - begun
    network = networks.network(job.backend, 0.01, 0.9, job.seed)
    channel.stage(f"{job.backend}: training with the paper's loader", job.batches)
    samples, input_s = 0, 0.0
    for x, y in loader:
        network.step(network.resident(x.numpy()), network.resident(y.numpy()))
        break
    begun = last = time.perf_counter()
    for x, y in loader:
        input_s += time.perf_counter() - last
        network.step(network.resident(x.numpy()), network.resident(y.numpy()))
        samples += len(x)
        channel.advance()
        last = time.perf_counter()
    seconds = last - begun
    network.close()
    through = ThroughLoader(
        data=facts, batch_size=job.batch_size, samples=samples, seconds=seconds, input_s=input_s, alone_samples_per_s=alone / alone_s
    )
    channel.found(LoaderDone(through))
    return _end(job.backend)


def train_perceptron(options: dict[str, Any], directory: Path, channel: Channel) -> Ended:
    """The perceptron: its training for speed and for accuracy, its operators, then other sizes."""
    import numpy as np

    from rooflines.kernels.networks import perceptron
    from rooflines.kernels.networks.perceptron_library import library
    from rooflines.studies import data

    job = msgspec.convert(options, PerceptronJob)
    loaded = library(job.backend)

    def made(name: DataName, samples: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any], DataFacts]:
        """Samples [N, pixels] and classes to train on, and the ones held out."""
        images = data.load(name, job.data_dir, seed=job.seed, train_samples=samples + perceptron.VALIDATION_SAMPLES)
        if name == "digits":
            tests = images.test_images, images.test_classes
            trains = images.train_images[:samples], images.train_classes[:samples]
        else:
            # The paper holds the last thousand of MNIST's 60,000 training images out; of few images it is a sixth.
            count = len(images.train_images)
            count -= min(perceptron.VALIDATION_SAMPLES, -(-count // 6))
            count = min(count, samples)
            tests = images.train_images[count:], images.train_classes[count:]
            trains = images.train_images[:count], images.train_classes[:count]
        facts = DataFacts(name=images.name, label=images.facts.label, train_samples=len(trains[0]), test_samples=len(tests[0]))
        return _pixels(trains[0], job.widths[0]), trains[1], _pixels(tests[0], job.widths[0]), tests[1], facts

    purposes: list[tuple[Literal["speed", "accuracy"], DataName, int]] = [("speed", job.data, job.iterations)]
    if job.accuracy_data is not None:
        purposes.append(("accuracy", job.accuracy_data, job.accuracy_iterations))
    for purpose, name, iterations in purposes:
        channel.stage(f"{job.backend}: preparing the data")
        inputs, classes, tests, test_classes, facts = made(name, job.samples)
        widths = job.widths
        if name == "digits" and widths == perceptron.WIDTHS:
            widths = (widths[0], _HIDDEN, widths[-1])
        network = perceptron.Perceptron(loaded, widths=widths, seed=job.seed)
        x, y, test_x = network.resident(inputs), network.resident(classes), network.resident(tests)
        del inputs, tests
        network.gradients(x, y)
        channel.stage(f"{job.backend}: {iterations} iterations on {name}", iterations)
        losses, steps, checked, accuracies = [], [], [], []
        every, others = max(1, iterations // _CHECKS), OtherProgramsMeter()
        for number in range(1, iterations + 1):
            begun = time.perf_counter()
            losses.append(network.step(x, y))
            steps.append(time.perf_counter() - begun)
            check_losses(losses[-1:], number - 1)
            if number % every == 0 or number == iterations:
                checked.append(number)
                accuracies.append(float(np.mean(network.predict(test_x) == test_classes)))
            channel.advance()
        found = Iterations(
            data=facts, widths=widths, losses=tuple(losses), checked_at=tuple(checked), accuracies=tuple(accuracies),
            total_s=sum(steps), iteration_s=statistics.median(steps), fastest_s=min(steps), others_cores=others.cores(),
        )  # fmt: skip
        channel.found(IterationsDone(purpose, found, _resident_bytes(), network.device_memory_bytes()))
        if purpose == "speed":
            channel.stage(f"{job.backend}: timing its operators")
            timed = network.operators(x, y, rounds=_OPERATOR_ROUNDS)
            channel.found(OperatorsDone(len(classes), tuple(_plain(one) for one in timed)))
        network.close()
    channel.stage(f"{job.backend}: other sizes", len(job.sizes))
    for widths, samples in job.sizes:
        channel.found(SizeDone(_size(job, widths, samples)))
        channel.advance()
    return _end(job.backend)


def _size(job: PerceptronJob, widths: tuple[int, ...], samples: int) -> SizePoint:
    """An iteration of other widths on random samples: their values do not change how long it takes."""
    import numpy as np

    from rooflines.kernels.networks.perceptron import Perceptron
    from rooflines.kernels.networks.perceptron_library import library

    generator = np.random.default_rng(job.seed)
    network = Perceptron(library(job.backend), widths=widths, seed=job.seed)
    x = network.resident(generator.random((samples, widths[0]), np.float32))
    y = network.resident(generator.integers(0, widths[-1], samples))
    network.step(x, y)
    steps: list[float] = []
    while len(steps) < _SIZE_ROUNDS or sum(steps) < _SIZE_S:
        begun = time.perf_counter()
        network.step(x, y)
        steps.append(time.perf_counter() - begun)
    declared = [one.operator for one in network.operators(x, y, rounds=1)]
    network.close()
    return SizePoint(
        widths=widths, samples=samples, iteration_s=statistics.median(steps), flops=sum(one.flops for one in declared),
        bytes=sum(one.bytes for one in declared),
    )  # fmt: skip


def _pixels(images: NDArray[np.uint8], width: int) -> NDArray[np.float32]:
    """Images as rows of ``width`` pixels from 0 to 1; other widths than 784 take the first or repeat them."""
    import numpy as np

    rows = images.reshape(len(images), -1)
    if width != rows.shape[1]:
        rows = rows[:, np.arange(width) % rows.shape[1]]
    scaled = rows.astype(np.float32)
    scaled *= 1 / 255
    return scaled


def _plain(timed: OperatorTime) -> TimedOperator:
    one = timed.operator
    return TimedOperator(
        name=one.name, layer=one.layer, phase=one.phase, time_s=timed.seconds, rounds=timed.rounds, calls=one.calls, flops=one.flops,
        matrix_flops=one.matrix_flops, bytes=one.bytes, precision=one.precision, executed_flops=one.executed_flops,
    )  # fmt: skip


def _end(backend: str) -> Ended:
    """The facts of this process."""
    from rooflines.studies import networks

    device = networks.device_of(backend)
    return Ended(device, _threads(backend) if device == "cpu" else None, networks.versions_of(backend))


def _threads(backend: str) -> int | None:
    """The threads that a backend on the CPU computes with."""
    if backend.startswith("torch"):
        import torch

        return torch.get_num_threads()
    if backend.startswith("numba"):
        import numba

        return int(numba.get_num_threads())
    # NumPy's BLAS is asked by its own variables and has no call that tells.
    return None


def _resident_bytes() -> int:
    return int(psutil.Process().memory_info().rss)
