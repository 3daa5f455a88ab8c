"""The interface of every implementation of a network, used by studies to train, check and compare it."""

from __future__ import annotations

import csv
import functools
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

Phase = Literal["forward", "backward", "optimizer"]
# A NumPy array, or what ``Network.resident`` made of one: a torch tensor, a device array.
Array = Any


class NetworkOperator(msgspec.Struct, frozen=True, kw_only=True):
    """One operator of a training step and the work that it declares, all its ``calls`` in one step together.

    FLOPs and bytes follow docs/counting.md: a multiply-add is 2 FLOPs, ``matrix_flops`` are the products of
    convolutions and dense layers and ``other_flops`` everything else, bytes are compulsory traffic. FLOPs are
    those of the direct algorithm, the same for all backends; ``executed_flops`` is what the kernel really
    computes where it leaves out what cannot matter (a gradient known to be zero, an output that no pooling
    window covers), None where that is all of it.
    """

    name: str
    layer: str
    phase: Phase
    bytes_read: int
    bytes_written: int
    matrix_flops: int = 0
    other_flops: int = 0
    precision: str = "fp32"
    calls: int = 1
    executed_flops: int | None = None

    @property
    def flops(self) -> int:
        """Matrix and other FLOPs together."""
        return self.matrix_flops + self.other_flops

    @property
    def bytes(self) -> int:
        """Bytes read and written."""
        return self.bytes_read + self.bytes_written


class OperatorTime(msgspec.Struct, frozen=True, kw_only=True):
    """An operator and how long it took: the fastest of ``rounds`` steps, all its calls in a step together."""

    operator: NetworkOperator
    seconds: float
    rounds: int


class Network(Protocol):
    """A network that can be trained, with the parameters and the momentum that it holds.

    ``x`` is a batch of float32 samples in the network's shape, ``y`` their classes as int64 or int32 [N]:
    NumPy arrays, which are moved to where the network computes in every call, or what ``resident`` made of
    them. Any N from 1 is allowed, and may change from call to call.
    """

    @property
    def name(self) -> str:
        """The backend: ``numba-cpu``, ``numba-cuda``, ``torch-cpu``, ``torch-cuda``, ``torch-mps``, with
        ``-compile`` behind it."""

    def step(self, x: Array, y: Array) -> float:
        """One training step: forward, mean softmax cross-entropy, the gradient of every parameter, the
        optimizer's update.

        Returns the loss before the update. When it returns, the step has ended on the device too.
        """

    def gradients(self, x: Array, y: Array) -> dict[str, NDArray[np.float32]]:
        """The gradient of the mean loss for each parameter, by name, as ``step`` computes it; nothing is
        updated."""

    def predict(self, x: Array) -> NDArray[np.int64]:
        """The class with the largest output for each sample [N]."""

    def parameters(self) -> dict[str, NDArray[np.float32]]:
        """Copies of the parameters by name."""

    def resident(self, array: NDArray[Any]) -> Array:
        """``array`` where and as the backend computes with it, so that a step moves nothing. Indexing it by a
        slice is free."""

    def synchronize(self) -> None:
        """Wait until the device has finished everything that it was given."""

    def operators(self, x: Array, y: Array, rounds: int = 5) -> tuple[OperatorTime, ...]:
        """The operators of a training step in their order, each called and synchronized apart and timed.

        The fastest of ``rounds`` steps, after one that warms up. Parameters and momentum are afterwards what
        they were before.
        """

    def device_memory_bytes(self) -> int | None:
        """The peak device memory of the network; None if it computes in the host's memory."""

    def close(self) -> None:
        """Give back threads and memory; the network is not used afterwards."""


@functools.cache
def work_table(name: str) -> tuple[dict[str, str], ...]:
    """The rows of the file ``name`` of this folder, which lists operators and their work; see
    ``declared``."""
    with Path(__file__).with_name(name).open(newline="", encoding="utf-8") as stream:
        return tuple(csv.DictReader(stream))


def declared(
    row: Mapping[str, str],
    size: Mapping[str, int],
    count: Mapping[str, int],
    parts: Iterable[NetworkOperator] = (),
    **more: Any,
) -> NetworkOperator:
    """The operator of a ``row``: an array has ``size`` bytes and ``count`` elements, both by name.

    ``read`` and ``written`` list arrays; a gradient has the name of what it is the gradient of. ``matrix``
    and ``other`` are FLOPs for each element: ``14 scores``. A fused operator has the FLOPs of its ``parts``,
    and keeps between them what it neither reads nor writes.
    """
    flops = {
        f"{kind}_flops": sum(
            int(times) * count[name]
            for times, name in (term.split() for term in row[kind].split(" + ") if term)
        )
        + sum(getattr(part, f"{kind}_flops") for part in parts)
        for kind in ("matrix", "other")
    }
    traffic = {f"bytes_{way}": sum(size[array] for array in row[way].split()) for way in ("read", "written")}
    given: dict[str, Any] = {
        "name": row["operator"],
        "layer": row.get("layer"),
        "phase": row["phase"],
        **flops,
        **traffic,
        **more,
    }
    return NetworkOperator(**given)


def he_parameters(shapes: Mapping[str, tuple[int, ...]], seed: int) -> dict[str, NDArray[np.float32]]:
    """Random parameters, the same for every backend: weights normal with variance 2 / fan-in, biases 0.

    He's initialization (He et al., "Delving Deep into Rectifiers", 2015), for dense layers and convolutions
    alike.
    """
    generator, made = np.random.default_rng(seed), {}
    for name, shape in shapes.items():
        scale = np.sqrt(2 / prod(shape[1:]))
        made[name] = (
            generator.standard_normal(shape) * scale if name.endswith(".weight") else np.zeros(shape)
        ).astype(np.float32)
    return made


def fastest(
    operators: Sequence[NetworkOperator], seconds: Sequence[Sequence[float]]
) -> tuple[OperatorTime, ...]:
    """Each operator with the shortest of its times; ``seconds`` has a row for each round and a column for
    each operator."""
    return tuple(
        OperatorTime(operator=operator, seconds=min(times), rounds=len(times))
        for operator, times in zip(operators, zip(*seconds, strict=True), strict=True)
    )
