"""The multilayer perceptron, written once against what NumPy, CuPy and PyTorch agree on: dense, ReLU, ...,
dense, softmax.

Every operator is one or a few calls of the library in ``Library.module``; nothing asks which library that is.
With widths (784, 10, 10), all samples in one batch and a learning rate of 0.1 it is the network of the
``from-scratch`` study. Plain gradient descent, ``p = p - learning_rate * gradient``; parameters have torch's
layout (weights [out, in]).
"""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rooflines.ext import DeviceError
from rooflines_studies.networks.base import (
    Array,
    NetworkOperator,
    OperatorTime,
    declared,
    fastest,
    he_parameters,
    work_table,
)

WIDTHS = (784, 10, 10)
LEARNING_RATE = 0.1
VALIDATION_SAMPLES = 1_000

_CLASS = 8  # bytes of a class number, int64
LIBRARIES = ("numpy", "cupy", "torch-cpu", "torch-cuda", "torch-mps")


def initial_parameters(widths: Sequence[int] = WIDTHS, seed: int = 0) -> dict[str, NDArray[np.float32]]:
    """Random parameters, the same for every library (see ``he_parameters``): weights [out, in]."""
    shapes: dict[str, tuple[int, ...]] = {}
    for number, (inner, outer) in enumerate(pairwise(widths), start=1):
        shapes |= {f"dense{number}.weight": (outer, inner), f"dense{number}.bias": (outer,)}
    return he_parameters(shapes, seed)


class Perceptron:
    """A ``Network`` (see ``base``) of dense layers; ``widths`` are those of the input, the hidden layers and
    the classes.

    ``x`` is [N, widths[0]], or anything that can be viewed so; the arithmetic is in the dtype of the
    parameters. The arrays of the last step stay until the next one replaces them, as they do in a script that
    computes step after step.
    """

    def __init__(
        self,
        library: Library,
        parameters: dict[str, NDArray[Any]] | None = None,
        *,
        widths: Sequence[int] = WIDTHS,
        learning_rate: float = LEARNING_RATE,
        seed: int = 0,
    ) -> None:
        parameters = initial_parameters(widths, seed) if parameters is None else parameters
        self.library, self.name = library, library.name
        self.synchronize, self.device_memory_bytes = library.synchronize, library.device_memory_bytes
        self.learning_rate = learning_rate
        weights = [value for name, value in parameters.items() if name.endswith(".weight")]
        self.layers = len(weights)
        self.widths = (weights[0].shape[1], *(weight.shape[0] for weight in weights))
        self._dtype = weights[0].dtype
        self._parameters = {name: library.to_device(value.copy()) for name, value in parameters.items()}
        self._gradients: dict[str, Array] = {}
        self._outputs: list[Array] = []
        self._sums: list[Array] = []
        self._errors: list[Array] = []
        self._rows: Array = None
        self._timed: list[tuple[NetworkOperator, float]] | None = (
            None  # the operators of a step, where they are timed
        )

    def step(self, x: Array, y: Array) -> float:
        """One iteration over all of ``x``; the mean cross-entropy before the update."""
        x, y = self._given(x), self.library.to_device(y)
        loss = self.forward(x, y)
        self.backward(x, y)
        self.update()
        result = float(loss)
        self.library.synchronize()
        return result

    def forward(self, x: Array, y: Array) -> Array:
        """Probabilities of all samples, kept for ``backward``; the mean cross-entropy as an array of the
        library."""
        module, run = self.library.module, partial(self._run, len(x))
        self._sums, self._outputs = [], [x]
        for number in range(1, self.layers + 1):
            layer = f"dense{number}"
            sums = run("matrix product", layer, module.matmul, self._outputs[-1], self._weight(number).T)
            run("bias", layer, operator.iadd, sums, self._parameters[f"{layer}.bias"])
            self._sums.append(sums)
            if number < self.layers:
                self._outputs.append(run("relu", layer, module.clip, sums, 0, None))
        probabilities, totals, shifted = run("softmax", "loss", self._normalize, sums)
        self._outputs.append(probabilities)
        return run("cross-entropy", "loss", self._likelihood, shifted, totals, y)

    def backward(self, x: Array, y: Array) -> None:
        """The gradient of the mean loss for each parameter, kept for ``update``."""
        module, run = self.library.module, partial(self._run, len(x))
        gradient = run("softmax gradient", "loss", self._from_probabilities, self._outputs[-1], y)
        self._gradients, self._errors = {}, [gradient]
        for number in range(self.layers, 0, -1):
            layer = f"dense{number}"
            self._gradients[f"{layer}.weight"] = run(
                "weight gradient", layer, module.matmul, gradient.T, self._outputs[number - 1]
            )
            self._gradients[f"{layer}.bias"] = run(
                "bias gradient", layer, partial(module.sum, axis=0), gradient
            )
            if number > 1:
                before = run("input gradient", layer, module.matmul, gradient, self._weight(number))
                gradient = run(
                    "relu gradient", f"dense{number - 1}", _where_positive, before, self._sums[number - 2]
                )
                self._errors.append(gradient)

    def update(self) -> None:
        """One step down the gradient, parameter by parameter."""
        for name, parameter in self._parameters.items():
            self._run(
                0, "gradient descent", name, _descend, parameter, self._gradients[name], self.learning_rate
            )

    def gradients(self, x: Array, y: Array) -> dict[str, NDArray[Any]]:
        x, y = self._given(x), self.library.to_device(y)
        self.forward(x, y)
        self.backward(x, y)
        return {name: self.library.to_host(self._gradients[name]) for name in self._parameters}

    def predict(self, x: Array) -> NDArray[np.int64]:
        module, outputs = self.library.module, self._given(x)
        for number in range(1, self.layers + 1):
            outputs = module.matmul(outputs, self._weight(number).T) + self._parameters[f"dense{number}.bias"]
            if number < self.layers:
                outputs = module.clip(outputs, 0, None)
        return self.library.to_host(module.argmax(outputs, axis=1)).astype(np.int64)

    def parameters(self) -> dict[str, NDArray[Any]]:
        return {name: np.array(self.library.to_host(value)) for name, value in self._parameters.items()}

    def resident(self, array: NDArray[Any]) -> Array:
        """``array`` where the library computes; samples as rows of the parameters' dtype."""
        return self.library.to_device(array) if array.ndim == 1 else self._given(array)

    def operators(self, x: Array, y: Array, rounds: int = 5) -> tuple[OperatorTime, ...]:
        """The operators of an iteration in their order, each synchronized before and after and timed: the
        fastest of ``rounds``.

        One iteration before them warms up. The parameters are afterwards what they were before.
        """
        x, y = self._given(x), self.library.to_device(y)
        kept = self.parameters()
        steps: list[list[tuple[NetworkOperator, float]]] = []
        try:
            self.step(x, y)
            for _ in range(rounds):
                self._timed = []
                self.forward(x, y)
                self.backward(x, y)
                self.update()
                steps.append(self._timed)
        finally:
            self._timed = None
            self._parameters = {name: self.library.to_device(value) for name, value in kept.items()}
        return fastest(
            [operator for operator, _ in steps[0]], [[seconds for _, seconds in step] for step in steps]
        )

    def close(self) -> None:
        for arrays in (self._parameters, self._gradients, self._outputs, self._sums, self._errors):
            arrays.clear()
        self._rows = None
        self.library.release()

    # --- what an operator computes ------------------------------------------------------------------------

    def _normalize(self, scores: Array) -> tuple[Array, Array, Array]:
        """Softmax of each row [N, classes], with what the loss needs of it: the sums of the exponentials and
        the shifted scores."""
        module = self.library.module
        shifted = scores - module.amax(scores, axis=1, keepdims=True)
        exponentials = module.exp(shifted)
        totals = module.sum(exponentials, axis=1, keepdims=True)
        exponentials /= totals
        return exponentials, totals, shifted

    def _likelihood(self, shifted: Array, totals: Array, y: Array) -> Array:
        """The mean of log(sum of exponentials) - score of the right class, which no rounding turns
        infinite."""
        return (self.library.module.log(totals[:, 0]) - shifted[self._numbers(len(y)), y]).mean()

    def _from_probabilities(self, probabilities: Array, y: Array) -> Array:
        """The gradient of the mean cross-entropy for the scores: (probabilities - one-hot classes) / N."""
        count = len(y)
        gradient = probabilities / count
        gradient[self._numbers(count), y] -= 1 / count
        return gradient

    def _numbers(self, count: int) -> Array:
        """0 ... count - 1, made once for a batch size."""
        if self._rows is None or len(self._rows) != count:
            self._rows = self.library.to_device(np.arange(count))
        return self._rows

    def _weight(self, number: int) -> Array:
        return self._parameters[f"dense{number}.weight"]

    def _given(self, x: Array) -> Array:
        if isinstance(x, np.ndarray):
            x = np.ascontiguousarray(x.reshape(len(x), -1), dtype=self._dtype)
        return self.library.to_device(x)

    def _run(self, count: int, name: str, layer: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call ``function``, which is the operator ``name`` of ``layer`` on ``count`` samples; timed where
        operators are."""
        if self._timed is None:
            return function(*arguments)
        self.library.synchronize()  # the device is idle before and after it
        begun = time.perf_counter()
        result = function(*arguments)
        self.library.synchronize()
        seconds = time.perf_counter() - begun
        self._timed.append((self._declared(name, layer, count), seconds))
        return result

    def _declared(self, name: str, layer: str, count: int) -> NetworkOperator:
        """The work of an operator on ``count`` samples; the ``layer`` of a gradient descent is a parameter.

        FLOPs an element are those of docs/counting.md: a softmax costs 14, and the logarithm in the
        cross-entropy of a sample 10.
        """
        dense, _, parameter = layer.partition(".")
        number = self.layers if layer == "loss" else int(dense.removeprefix("dense"))
        inner, outer = self.widths[number - 1 : number + 1]
        # Of input [N, in], weight [out, in] and scores [N, out] two are multiplied and the third is the
        # product.
        own = {"weight": outer * inner, "bias": outer}
        counts = own | {"inputs": count * inner, "scores": count * outer, "samples": count, "loss": 1}
        counts |= {"parameter": own.get(parameter, 0), "product": 2 * count * inner * outer}
        itemsize = int(self._dtype.itemsize)
        sizes = {array: itemsize * number for array, number in counts.items()} | {"classes": _CLASS * count}
        row = next(row for row in work_table("perceptron_work.csv") if row["operator"] == name)
        return declared(row, sizes, counts, layer=layer, precision=f"fp{8 * itemsize}")


def _where_positive(gradient: Array, sums: Array) -> Array:
    gradient *= sums > 0
    return gradient


def _descend(parameter: Array, gradient: Array, learning_rate: float) -> None:
    parameter -= learning_rate * gradient


# --- the array libraries ----------------------------------------------------------------------------------


class Library:
    """One library on one device; this one is NumPy. ``module`` has NumPy's functions under NumPy's names, as
    far as they are called."""

    name = "numpy"
    module: Any = np

    def to_device(self, array: Any) -> Any:
        """A NumPy array as the library's own, which comes back as it is."""
        return array

    def to_host(self, array: Any) -> NDArray[Any]:
        """The library's array as NumPy's."""
        return np.asarray(array)

    def synchronize(self) -> None:
        """Wait until the device is done."""

    def device_memory_bytes(self) -> int | None:
        """The peak of the device allocator; None on the host."""
        return None

    def release(self) -> None:
        """Give memory that the allocator keeps for later back to the device."""


def library(name: str) -> Library:
    """The library of this name (``LIBRARIES``). Raises DeviceError where it or its device is not on this
    machine, saying which."""
    if name not in LIBRARIES:
        raise DeviceError(f"unknown array library {name!r}.", hint=f"Choose from {', '.join(LIBRARIES)}.")
    return {"numpy": Library, "cupy": _CuPy}.get(name, partial(_Torch, name.removeprefix("torch-")))()


class _CuPy(Library):
    name = "cupy"

    def __init__(self) -> None:
        try:
            import cupy
        except ImportError as error:
            raise DeviceError(
                f"CuPy cannot be imported ({error}).",
                hint="Run 'rooflines doctor' for the command that installs it.",
            ) from None
        try:
            count = int(cupy.cuda.runtime.getDeviceCount())
        except cupy.cuda.runtime.CUDARuntimeError as error:
            raise DeviceError(f"CuPy finds no usable GPU ({error}).") from None
        if count == 0:
            raise DeviceError("CuPy finds no GPU.")
        self.module = cupy
        self._peak = 0

    def to_device(self, array: Any) -> Any:
        return self.module.asarray(array)

    def to_host(self, array: Any) -> NDArray[Any]:
        return np.asarray(self.module.asnumpy(array))

    def synchronize(self) -> None:
        self.module.cuda.get_current_stream().synchronize()

    def device_memory_bytes(self) -> int | None:
        # The pool keeps what it once took until it is freed explicitly, so its size is its peak.
        self._peak = max(self._peak, int(self.module.get_default_memory_pool().total_bytes()))
        return self._peak

    def release(self) -> None:
        self.device_memory_bytes()
        self.module.get_default_memory_pool().free_all_blocks()


class _Torch(Library):
    def __init__(self, device: str) -> None:
        import torch

        from rooflines.ext import synchronize_device

        present = device == "cpu" or (torch.cuda if device == "cuda" else torch.backends.mps).is_available()
        if not present:
            raise DeviceError(
                f"torch {torch.__version__} finds no {'NVIDIA' if device == 'cuda' else 'Apple'} GPU."
            )
        self.name = f"torch-{device}"
        self.module = torch
        self._device = torch.device(device)
        self._synchronize = synchronize_device

    def to_device(self, array: Any) -> Any:
        return self.module.as_tensor(array, device=self._device)

    def to_host(self, array: Any) -> NDArray[Any]:
        return np.asarray(array.cpu().numpy())

    def synchronize(self) -> None:
        self._synchronize(self._device)

    def device_memory_bytes(self) -> int | None:
        if self._device.type == "cuda":
            return int(self.module.cuda.max_memory_allocated())
        return int(self.module.mps.driver_allocated_memory()) if self._device.type == "mps" else None

    def release(self) -> None:
        if self._device.type == "cuda":
            self.module.cuda.empty_cache()
