"""Train the convolutional network with one backend: epochs on data in place, each followed by a test, then
its operators.

``train_through_loader`` trains it behind the input pipeline of the paper's PyTorch runs: one image at a time
through transforms, in the process that trains.
"""

from __future__ import annotations

import math
import statistics
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from rooflines.ext import MeasuredValue, OthersMeter, PointResult
from rooflines_studies import data, network_runs
from rooflines_studies.records import Detail, NetworkResult

if TYPE_CHECKING:
    from rooflines.ext import WorkerChannel

_TEST_BATCH = 512


class NetworkEpoch(msgspec.Struct, frozen=True, kw_only=True):
    """One epoch. ``epoch_s`` is all of it but the test; ``input_s`` is the part in which the step waited for
    its batch."""

    epoch: int
    epoch_s: float
    samples_per_s: float
    test_accuracy: float
    train_loss: float
    process_memory_bytes: int
    device_memory_bytes: int | None = None
    input_s: float


class NetworkTraining(Detail, frozen=True, kw_only=True):
    """The epochs of one backend on one set of data.

    ``setup_s`` is what it took to make the network and to put the data in place, and ``step_s`` the fastest
    step, without its input (the operators beside it are the fastest of several, too).
    """

    batch_size: int
    learning_rate: float
    momentum: float
    epochs: tuple[NetworkEpoch, ...]
    setup_s: float
    step_s: float

    @property
    def process_memory_bytes(self) -> int:
        """The most of any epoch."""
        return max(epoch.process_memory_bytes for epoch in self.epochs)

    @property
    def device_memory_bytes(self) -> int | None:
        """The most of any epoch; None on a CPU."""
        return max(
            (epoch.device_memory_bytes for epoch in self.epochs if epoch.device_memory_bytes is not None),
            default=None,
        )

    @property
    def input_fraction(self) -> float:
        """The share of the epochs in which a step waited for its batch."""
        return sum(epoch.input_s for epoch in self.epochs) / sum(epoch.epoch_s for epoch in self.epochs)


class ThroughLoader(msgspec.Struct, frozen=True, kw_only=True):
    """A PyTorch backend fed as the paper fed it: image by image through transforms in the training process.

    ``alone_samples_per_s`` is the loader without training.
    """

    samples_per_s: float
    input_fraction: float
    alone_samples_per_s: float


class BackendResult(NetworkResult, frozen=True, kw_only=True):
    """What one backend did, with the time per epoch and the rate (samples/s) of ``speed`` over all rounds.

    The rate counts the samples that fill the last batch, which are computed, too. ``accuracy`` is the
    training that accuracy is taken from: the same on MNIST.
    """

    speed: NetworkTraining
    epoch_s: float
    rate: MeasuredValue
    accuracy: NetworkTraining | None = None
    loader: ThroughLoader | None = None


class BackendOptions(network_runs.DataOptions, frozen=True, kw_only=True):
    """Options of a training; ``operators`` times them afterwards. After ``budget_s`` no further epoch
    begins."""

    epochs: network_runs.Positive
    batch_size: network_runs.Positive
    learning_rate: float
    momentum: float
    operators: bool = False
    budget_s: float | None = None
    ceilings: str
    threads: int | None = None


def train(task: dict[str, Any], directory: Path, channel: WorkerChannel) -> PointResult:
    """Run the point of ``task``; its result so far is sent after every epoch."""
    job = network_runs.read_options(task["point"]["options"], BackendOptions)
    channel.stage("preparing the data")
    name = data.or_synthetic(job.data, job.data_dir)
    tests = max(1, job.samples // 6) if name == "synthetic" else None
    images = data.load(name, job.data_dir, seed=job.seed, train_samples=job.samples, test_samples=tests)
    order = np.random.default_rng(job.seed).permutation(len(images.train_images))
    order = order[data.padded(len(order), job.batch_size)]
    inputs, classes = data.normalized(images.train_images)[order], images.train_classes[order]
    test_inputs, test_classes, facts = data.normalized(images.test_images), images.test_classes, images.facts
    del images
    channel.stage("compiling and warming up")
    begun = time.perf_counter()
    if not network_runs.is_compiled(job.backend):
        # Kernels that Numba compiles serve every network of the process; a throw-away one compiles the
        # optimizer's, too.
        warm = network_runs.network(job.backend, job.learning_rate, job.momentum, job.seed)
        warm.step(warm.resident(inputs[: job.batch_size]), warm.resident(classes[: job.batch_size]))
        warm.close()
    network = network_runs.network(job.backend, job.learning_rate, job.momentum, job.seed)
    x, y = network.resident(inputs), network.resident(classes)
    network.gradients(x[: job.batch_size], y[: job.batch_size])
    network.predict(network.resident(test_inputs[:_TEST_BATCH]))
    network.synchronize()
    setup_s = time.perf_counter() - begun
    batches = len(inputs) // job.batch_size
    channel.stage(f"{job.epochs} epochs on {name}", job.epochs)
    fastest_s, others, training_begun = math.inf, OthersMeter(), time.monotonic()
    epochs: list[NetworkEpoch] = []
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
        network_runs.check_losses(losses, (number - 1) * batches)
        predicted = [
            network.predict(network.resident(test_inputs[begin : begin + _TEST_BATCH]))
            for begin in range(0, len(test_inputs), _TEST_BATCH)
        ]
        epochs.append(
            NetworkEpoch(
                epoch=number,
                epoch_s=epoch_s,
                samples_per_s=len(inputs) / epoch_s,
                input_s=input_s,
                train_loss=float(np.mean(losses)),
                test_accuracy=float(np.mean(np.concatenate(predicted) == test_classes)),
                process_memory_bytes=network_runs.resident_bytes(),
                device_memory_bytes=network.device_memory_bytes(),
            )
        )
        fastest_s = min(fastest_s, *steps)
        training = NetworkTraining(
            **network_runs.process_facts(job.backend),
            data=facts,
            others_cores=others.cores(),
            batch_size=job.batch_size,
            learning_rate=job.learning_rate,
            momentum=job.momentum,
            epochs=tuple(epochs),
            setup_s=setup_s,
            step_s=fastest_s,
        )
        channel.found(network_runs.detail_result(task, directory, values_of, training))
        channel.advance()
        if job.budget_s is not None and time.monotonic() - training_begun > job.budget_s:
            break
    timed = job.operators and not network_runs.is_compiled(job.backend)
    first, result = (
        (x[: job.batch_size], y[: job.batch_size]),
        partial(network_runs.detail_result, task, directory, values_of),
    )
    return network_runs.finish(job, training, network, *first, channel, result, operators=timed)


def values_of(training: NetworkTraining) -> dict[str, float | None]:
    """The values of a result; an accuracy on synthetic images means nothing."""
    accuracies = (
        [epoch.test_accuracy for epoch in training.epochs] if training.data.name != "synthetic" else []
    )
    return {
        "epoch_s": statistics.median(epoch.epoch_s for epoch in training.epochs),
        "total_s": sum(epoch.epoch_s for epoch in training.epochs),
        "samples_per_s": statistics.median(epoch.samples_per_s for epoch in training.epochs),
        "input_fraction": training.input_fraction,
        "accuracy": accuracies[-1] if accuracies else None,
        "best_accuracy": max(accuracies, default=None),
        "train_loss": training.epochs[-1].train_loss,
        "fastest_step_s": training.step_s,
        "setup_s": training.setup_s,
        "process_memory_bytes": training.process_memory_bytes,
        "device_memory_bytes": training.device_memory_bytes,
        "others_cores": training.others_cores,
    }


# --- behind the paper's loader ----------------------------------------------------------------------------


class LoaderOptions(network_runs.DataOptions, frozen=True, kw_only=True):
    """Options of a training through the loader: ``batches`` at most."""

    batch_size: network_runs.Positive
    batches: network_runs.Positive
    learning_rate: float
    momentum: float


def train_through_loader(task: dict[str, Any], directory: Path, channel: WorkerChannel) -> PointResult:
    """Run the point of ``task``: the loader alone, then the training behind it and how long each batch is
    waited for."""
    job = network_runs.read_options(task["point"]["options"], LoaderOptions)
    batches = batches_of(job)
    channel.stage("the paper's loader alone", batches)
    loader, label = papers_loader(job, batches)
    others, begun = OthersMeter(), time.perf_counter()
    alone = 0
    for x, _ in loader:
        alone += len(x)
        channel.advance()
    alone_s = time.perf_counter() - begun
    network = network_runs.network(job.backend, job.learning_rate, job.momentum, job.seed)
    channel.stage("training with the paper's loader", batches)
    samples, input_s = 0, 0.0
    network.step(*(network.resident(part.numpy()) for part in next(iter(loader))))
    begun = last = time.perf_counter()
    for x, y in loader:
        input_s += time.perf_counter() - last
        network.step(network.resident(x.numpy()), network.resident(y.numpy()))
        samples += len(x)
        channel.advance()
        last = time.perf_counter()
    seconds = last - begun
    network.close()
    values = {
        "samples_per_s": samples / seconds,
        "input_fraction": input_s / seconds,
        "alone_samples_per_s": alone / alone_s,
        "timed_samples": samples,
        "others_cores": others.cores(),
    }
    return network_runs.make_result(task, directory, values, data=label)


def batches_of(job: LoaderOptions) -> int:
    """Return how many batches the loader gives: no more than there are samples for."""
    return min(job.batches, -(-job.samples // job.batch_size))


def papers_loader(job: LoaderOptions, batches: int) -> tuple[Any, str]:
    """A ``DataLoader`` that makes each sample as torchvision's MNIST class does, and the label of its data.

    For every index a PIL image is made of the stored bytes, turned into a tensor and normalized, and the
    samples are stacked into a batch; no worker processes, as the paper had it. It ends after ``batches``
    batches.
    """
    import torch
    from PIL import Image
    from torchvision import transforms

    name = data.or_synthetic(job.data, job.data_dir)
    images = data.load(
        name, job.data_dir, seed=job.seed, train_samples=batches * job.batch_size, test_samples=1
    )
    pixels, classes = torch.from_numpy(images.train_images), images.train_classes
    transform = transforms.Compose(
        [transforms.ToTensor(), transforms.Normalize((data.MEAN,), (data.STANDARD_DEVIATION,))]
    )

    class Images(torch.utils.data.Dataset):  # type: ignore[type-arg]
        def __len__(self) -> int:
            return len(pixels)

        def __getitem__(self, index: int) -> tuple[Any, int]:
            return transform(Image.fromarray(pixels[index].numpy())), int(classes[index])

    generator = torch.Generator().manual_seed(job.seed)
    loader = torch.utils.data.DataLoader(
        Images(), batch_size=job.batch_size, shuffle=True, generator=generator
    )
    return loader, f"{images.facts.label}, {len(pixels):,} samples for training"
