"""``numba-cpu``: the network in vector kernels on all cores, and the work of its operators, fused ones in the
order of a step."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import get_num_threads
from numpy.typing import NDArray

from rooflines.ext import UsageError
from rooflines_studies.networks import cnn
from rooflines_studies.networks import cnn_numba_step as steps
from rooflines_studies.networks.base import NetworkOperator, OperatorTime, fastest
from rooflines_studies.networks.cnn_numba_kernels import POOL1, POOL2, WINDOW
from rooflines_studies.networks.cnn_numba_step import COPIES, SIZE

# Outputs of conv1 that some window of the pooling behind covers, where that window is read again
_COMPUTED1 = 4 * POOL1
_TAPS1 = 9


class NumbaCpu:
    """The network on the CPU with Numba's threads, ``threads`` of them (default: as many as Numba would use).

    A step allocates no array: all buffers belong to the network, for any batch size.
    """

    name = "numba-cpu"

    def __init__(
        self,
        parameters: dict[str, NDArray[np.float32]] | None = None,
        *,
        learning_rate: float = cnn.LEARNING_RATE,
        momentum: float = cnn.MOMENTUM,
        threads: int | None = None,
    ) -> None:
        self.threads = threads or get_num_threads()
        self._learning_rate, self._momentum = np.float32(learning_rate), np.float32(momentum)
        self._weights = steps.make_weights()
        self._sums = steps.make_gradients(self.threads)
        self._kept = steps.make_activations(self.threads * steps.BLOCK, self.threads)
        given = parameters or cnn.initial_parameters()
        for name, view in _views(self._weights.parameters).items():
            view[...] = given[name].reshape(view.shape)
        self._spread_out()

    def step(self, x: Any, y: Any) -> float:
        images, classes = _images(x), _classes(y, len(x))
        loss = steps.train(images, classes, self.threads, steps.BLOCK, self._weights, self._kept, self._sums)
        steps.update(self.threads, self._weights, self._sums.total, self._learning_rate, self._momentum)
        return float(loss)

    def gradients(self, x: Any, y: Any) -> dict[str, NDArray[np.float32]]:
        steps.train(
            _images(x), _classes(y, len(x)), self.threads, steps.BLOCK, self._weights, self._kept, self._sums
        )
        return _unpack(self._sums.total)

    def predict(self, x: Any) -> NDArray[np.int64]:
        classes = np.empty(len(x), np.int64)
        steps.classify(_images(x), self.threads, steps.BLOCK, self._weights, self._kept, classes)
        return classes

    def parameters(self) -> dict[str, NDArray[np.float32]]:
        return _unpack(self._weights.parameters)

    def resident(self, array: NDArray[Any]) -> NDArray[Any]:
        return np.ascontiguousarray(array, np.float32 if array.dtype.kind == "f" else np.int64)

    def synchronize(self) -> None:
        return

    def operators(
        self, x: Any, y: Any, rounds: int = 5, *, clock: Callable[[], float] = time.perf_counter
    ) -> tuple[OperatorTime, ...]:
        """See ``Network.operators``. Each operator runs over the whole batch, so that what it reads has left
        the nearest cache.

        ``clock`` gives the time in seconds: on a machine with other work, that of the processor for a network
        of one thread.
        """
        images, classes = _images(x), _classes(y, len(x))
        kept = steps.make_activations(-(-len(classes) // steps.ROWS) * steps.ROWS, len(classes))
        names = work(len(classes), self.threads)
        before = self._weights.parameters.copy(), self._weights.momentum.copy()
        seconds = []
        for _ in range(rounds + 1):
            self._sums.conv1[:] = self._sums.others[:] = 0
            times = []
            for number in range(len(names)):
                began = clock()
                steps.operator(number, images, classes, self.threads, self._weights, kept, self._sums)
                if number == len(names) - 1:
                    steps.update(
                        self.threads, self._weights, self._sums.total, self._learning_rate, self._momentum
                    )
                times.append(clock() - began)
            seconds.append(times)
            self._weights.parameters[:], self._weights.momentum[:] = before
            self._spread_out()
        return fastest(names, seconds[1:])

    def device_memory_bytes(self) -> None:
        return None

    def close(self) -> None:
        return

    def _spread_out(self) -> None:
        for thread in range(self.threads):
            steps.spread_out(thread, self.threads, self._weights)


def _images(x: Any) -> NDArray[np.float32]:
    """The pixels of a batch in one row."""
    images = np.ascontiguousarray(x, np.float32)
    if images.shape[1:] != cnn.IMAGE or not len(images):
        raise UsageError(
            f"unsupported image batch of shape {images.shape}.",
            hint="The shape must be [N, 1, 28, 28] with N of at least 1.",
        )
    return images.reshape(-1)


def _classes(y: Any, count: int) -> NDArray[np.int64]:
    classes = np.ascontiguousarray(y, np.int64)
    if classes.shape != (count,) or classes.min() < 0 or classes.max() >= cnn.CLASSES:
        raise UsageError(f"{count} images require {count} class numbers from 0 to {cnn.CLASSES - 1}.")
    return classes


def _views(flat: NDArray[np.float32]) -> dict[str, NDArray[np.float32]]:
    """The parameters in ``flat``, which is laid out as the kernels have them, as views of torch's shapes."""
    at = steps
    return {
        "conv1.weight": flat[at.CONV1 : at.CONV1_BIAS].reshape(3, 3, 1, 8).transpose(3, 2, 0, 1),
        "conv1.bias": flat[at.CONV1_BIAS : at.CONV2],
        "conv2.weight": flat[at.CONV2 : at.CONV2_BIAS].reshape(16, 3, 3, 8).transpose(0, 3, 1, 2),
        "conv2.bias": flat[at.CONV2_BIAS : at.DENSE1],
        # [5, 5, 16, 128] to [128, 16, 5, 5]: torch flattens channel, row, column
        "dense1.weight": flat[at.DENSE1 : at.DENSE1_BIAS].reshape(5, 5, 16, 128).transpose(3, 2, 0, 1),
        "dense1.bias": flat[at.DENSE1_BIAS : at.DENSE2],
        "dense2.weight": flat[at.DENSE2 : at.DENSE2_BIAS].reshape(128, 16)[:, : cnn.CLASSES].T,
        "dense2.bias": flat[at.DENSE2_BIAS :][: cnn.CLASSES],
    }


def _unpack(flat: NDArray[np.float32]) -> dict[str, NDArray[np.float32]]:
    return {name: view.reshape(cnn.PARAMETERS[name]).copy() for name, view in _views(flat).items()}


def work(batch: int, threads: int) -> tuple[NetworkOperator, ...]:
    """The operators of one training step on this many threads. All parts of ``cnn.work`` are in one of them,
    once.

    ``executed_flops`` counts as ``cnn.work`` does, but only the outputs, maxima and gradients that are
    computed; of the update also the sums over all threads' gradients, which the direct algorithm has not.
    """
    pooling = 1 + 4  # FLOPs a maximum: ReLU, and a window of four
    pool1, pool2 = batch * POOL1, batch * POOL2
    pooled = {
        "pool1": cnn.FLOAT * pool1,
        "maxima1": pool1,
        "pool2": cnn.FLOAT * pool2,
        "maxima2": cnn.FLOAT * pool2,
    }
    # Every thread's gradient is read and their sum written; parameters and momentum are read and written, and
    # the copies of the parameters written.
    ends = {"threads": cnn.FLOAT * threads * SIZE, "padded": cnn.FLOAT * SIZE, "copies": cnn.FLOAT * COPIES}
    executed = {
        "conv1": batch * (_COMPUTED1 * (2 * _TAPS1 + 1) + POOL1 * pooling),
        "conv2": batch * (4 * POOL2 * (2 * WINDOW + 1) + POOL2 * pooling),
        "dense1 input": batch * (cnn.products("dense1", 1) + POOL2),
        # each gradient above reaches the weights and the inputs of one window, and the bias
        "conv2 gradients": batch * POOL2 * (2 * 2 * WINDOW + 1),
        "conv1 gradients": batch * _COMPUTED1 * (2 * _TAPS1 + 1),
        "update": cnn.work(batch)[-1].flops + (threads - 1) * SIZE,
    }
    return tuple(cnn.operators("numba-cpu", batch, sizes={**pooled, **ends}, executed=executed).values())
