"""What a backend did in the study: the epochs of its trainings, and its training through the paper's loader."""

from __future__ import annotations

import msgspec

from rooflines.studies.records import Detail, NetworkResult
from rooflines.sweeps.records import Estimate


class Epoch(msgspec.Struct, frozen=True, kw_only=True):
    """One epoch. ``epoch_s`` is all of it but the test; ``input_s`` is the part in which the step waited for its batch."""

    epoch: int
    epoch_s: float
    samples_per_s: float
    test_accuracy: float
    train_loss: float
    process_memory_bytes: int
    device_memory_bytes: int | None = None
    input_s: float


class Training(Detail, frozen=True, kw_only=True):
    """The epochs of one backend on one set of data.

    ``setup_s`` is what it took to make the network and to put the data in place, and ``step_s`` the fastest step, without its input
    (the operators beside it are the fastest of several, too).
    """

    batch_size: int
    learning_rate: float
    momentum: float
    epochs: tuple[Epoch, ...]
    setup_s: float
    step_s: float

    @property
    def process_memory_bytes(self) -> int:
        """The most of any epoch."""
        return max(epoch.process_memory_bytes for epoch in self.epochs)

    @property
    def device_memory_bytes(self) -> int | None:
        """The most of any epoch; None on a CPU."""
        return max((epoch.device_memory_bytes for epoch in self.epochs if epoch.device_memory_bytes is not None), default=None)

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

    The rate counts the samples that fill the last batch, which are computed, too. ``accuracy`` is the training that accuracy is taken
    from: the same on MNIST.
    """

    speed: Training
    epoch_s: float
    rate: Estimate
    accuracy: Training | None = None
    loader: ThroughLoader | None = None
