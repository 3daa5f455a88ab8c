"""What an array library did with the perceptron: its trainings, its memory and other sizes."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from rooflines.studies.records import Detail, NetworkResult, TimedOperator
from rooflines.sweeps.records import Estimate

# The paper's headings, and two that it does not list.
MATRIX, RELU, SOFTMAX, GRADIENTS, BIAS, UPDATE = "matrix multiplication", "ReLU", "softmax", "gradient computation", "bias", "update"
GROUPS = (MATRIX, RELU, SOFTMAX, GRADIENTS, BIAS, UPDATE)


class Iterations(Detail, frozen=True, kw_only=True):
    """Full-batch training: the loss before each iteration, and the accuracy on the held-out samples after some of them.

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
    """Bytes of one iteration by component, each measured, and the growth that they should add up to; ``how`` says by what."""

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
    iteration: Estimate
    flops: float
    bytes: float


class LibraryResult(NetworkResult, frozen=True, kw_only=True):
    """What one array library did with the perceptron, with the seconds of an iteration of ``speed`` over all rounds."""

    speed: Iterations | None = None
    iteration: Estimate | None = None
    accuracy: Iterations | None = None
    memory: MemoryParts | None = None
    sizes: tuple[SizePoint, ...] = ()


def group(operator: TimedOperator) -> str:
    """Under which of the paper's headings an operator is: products forward and backward are matrix multiplication."""
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
