"""Train the convolutional network with one backend: epochs on data in place, each followed by a test, then its operators."""

from __future__ import annotations

import math
import statistics
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rooflines.profiler.others import OthersMeter
from rooflines.studies import data, network_result, networks
from rooflines.studies.backends.records import Epoch, Training
from rooflines.sweeps.records import Result

if TYPE_CHECKING:
    from rooflines.sweeps.worker import Channel

_TEST_BATCH = 512


class TrainOptions(networks.DataOptions, frozen=True, kw_only=True):
    """Options of a training; ``operators`` times them afterwards. After ``budget_s`` no further epoch begins."""

    epochs: networks.Positive
    batch_size: networks.Positive
    learning_rate: float
    momentum: float
    operators: bool = False
    budget_s: float | None = None
    ceilings: str
    threads: int | None = None


def train(task: dict[str, Any], directory: Path, channel: Channel) -> Result:
    """Run the point of ``task``; its result so far is sent after every epoch."""
    job = networks.read_options(task["point"]["options"], TrainOptions)
    channel.stage("preparing the data")
    name = data.or_synthetic(job.data, job.data_dir)
    tests = max(1, job.samples // 6) if name == "synthetic" else None
    images = data.load(name, job.data_dir, seed=job.seed, train_samples=job.samples, test_samples=tests)
    order = np.random.default_rng(job.seed).permutation(len(images.train_images))
    order = order[data.padded(len(order), job.batch_size)]
    inputs, classes = data.normalised(images.train_images)[order], images.train_classes[order]
    test_inputs, test_classes, facts = data.normalised(images.test_images), images.test_classes, images.facts
    del images
    channel.stage("compiling and warming up")
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
    channel.stage(f"{job.epochs} epochs on {name}", job.epochs)
    fastest_s, others, training_begun = math.inf, OthersMeter(), time.monotonic()
    epochs: list[Epoch] = []
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
        network_result.check_losses(losses, (number - 1) * batches)
        predicted = [
            network.predict(network.resident(test_inputs[begin : begin + _TEST_BATCH]))
            for begin in range(0, len(test_inputs), _TEST_BATCH)
        ]
        epochs.append(
            Epoch(
                epoch=number, epoch_s=epoch_s, samples_per_s=len(inputs) / epoch_s, input_s=input_s, train_loss=float(np.mean(losses)),
                test_accuracy=float(np.mean(np.concatenate(predicted) == test_classes)),
                process_memory_bytes=network_result.resident_bytes(), device_memory_bytes=network.device_memory_bytes(),
            )
        )  # fmt: skip
        fastest_s = min(fastest_s, *steps)
        training = Training(
            **network_result.process_facts(job.backend), data=facts, others_cores=others.cores(), batch_size=job.batch_size,
            learning_rate=job.learning_rate, momentum=job.momentum, epochs=tuple(epochs), setup_s=setup_s, step_s=fastest_s,
        )  # fmt: skip
        channel.found(_result(task, directory, training))
        channel.advance()
        if job.budget_s is not None and time.monotonic() - training_begun > job.budget_s:
            break
    timed = job.operators and not networks.is_compiled(job.backend)
    first = x[: job.batch_size], y[: job.batch_size]
    return network_result.finish(job, training, network, *first, channel, partial(_result, task, directory), operators=timed)


def values_of(training: Training) -> dict[str, float | None]:
    """The values of a result; an accuracy on synthetic images means nothing."""
    accuracies = [epoch.test_accuracy for epoch in training.epochs] if training.data.name != "synthetic" else []
    return {
        "epoch_s": statistics.median(epoch.epoch_s for epoch in training.epochs),
        "total_s": sum(epoch.epoch_s for epoch in training.epochs),
        "samples_per_s": statistics.median(epoch.samples_per_s for epoch in training.epochs),
        "input_fraction": training.input_fraction, "accuracy": accuracies[-1] if accuracies else None,
        "best_accuracy": max(accuracies, default=None), "train_loss": training.epochs[-1].train_loss,
        "fastest_step_s": training.step_s, "setup_s": training.setup_s, "process_memory_bytes": training.process_memory_bytes,
        "device_memory_bytes": training.device_memory_bytes, "others_cores": training.others_cores,
    }  # fmt: skip


def _result(task: dict[str, Any], directory: Path, training: Training, remark: str = "") -> Result:
    return network_result.make_result(task, directory, values_of(training), training, remark=remark)
