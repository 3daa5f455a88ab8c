"""``numba-cuda``: the network trained by our own CUDA kernels, everything on the device, thirteen launches a
step.

A step launches the two convolutions (each with bias, ReLU and pooling), the two dense layers (with bias and
ReLU), the loss with its gradient, the gradients of weights and inputs layer by layer, and one kernel that
adds up all partial sums and updates all parameters. Nothing is allocated in a step and nothing but the loss
comes back: four bytes, into pinned memory. ../README.md says how the kernels work and why.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np
from numba import cuda
from numpy.typing import NDArray

from rooflines.ext import CUDA_IS_SIMULATED, DeviceError, UsageError, cuda_launcher, recur_fma
from rooflines_studies.networks import cnn
from rooflines_studies.networks import cnn_numba_cuda_convolution as convolution
from rooflines_studies.networks import cnn_numba_cuda_dense as dense
from rooflines_studies.networks import cnn_numba_cuda_update as ends
from rooflines_studies.networks.base import Array, NetworkOperator, OperatorTime, fastest
from rooflines_studies.networks.cnn_numba_cuda_convolution import CudaKernel

_FORWARD = 4  # the launches of a step that compute the logits
_DELAY_ITERATIONS = 5 << 10  # of ``recur_fma``, about a millisecond


def unusable() -> str:
    """The reason why the network cannot run on this machine, in one line; empty if a kernel ran on a GPU with
    a correct result."""
    if CUDA_IS_SIMULATED:
        return "NUMBA_ENABLE_CUDASIM is set: Numba simulates a GPU"
    try:
        logits = cuda.to_device(np.zeros(2, np.float32))
        classes = cuda.to_device(np.zeros(1, np.int64))
        gradient, partials = (cuda.device_array(size, np.float32) for size in (2, 1))
        kernel, threads = ends.loss(2)
        cuda_launcher(kernel, 1, threads, logits, classes, 0, gradient, partials, 1)()
        if not np.allclose(gradient.copy_to_host(), [-0.5, 0.5]):
            return "the gradient of a loss by a Numba kernel came out wrong"
    except Exception as error:  # every version of Numba, toolkit and driver fails in its own way
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        return " ".join(lines[:2]) or type(error).__name__
    return ""


class Resident:
    """Samples or classes in device memory: ``flat`` is the whole of them, this is ``shape[0]`` from ``first``
    on."""

    def __init__(self, flat: Any, first: int, shape: tuple[int, ...]) -> None:
        self.flat, self.first, self.shape = flat, first, shape

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, part: slice) -> Resident:
        begin, end, step = part.indices(len(self))
        if step != 1:
            raise UsageError(f"resident data must be sliced with step 1, got {step}")
        return Resident(self.flat, self.first + begin, (max(0, end - begin), *self.shape[1:]))


_Call = Callable[["Resident", "Resident"], object]
# The launches of a step in their order, by the operator that each is.
_Plan = dict[str, _Call]


class _Memory:
    """Device memory that was allocated here, in bytes."""

    def __init__(self) -> None:
        self.held = self.most = 0

    def array(self, size: int, kind: Any = np.float32) -> Any:
        """A flat array of ``size`` numbers, not initialized."""
        made = cuda.device_array(size, kind)
        taken = size * np.dtype(kind).itemsize
        self.held += taken
        self.most = max(self.most, self.held)
        weakref.finalize(made, self._free, taken)
        return made

    def copy(self, array: NDArray[Any]) -> Any:
        """``array``, flat, on the device."""
        made = self.array(array.size, array.dtype)
        made.copy_to_device(array.reshape(-1))
        return made

    def _free(self, taken: int) -> None:
        self.held -= taken


class _Buffers:
    """What a step of up to ``samples`` samples writes: values of the layers by name, their gradients, and
    switches of the poolings."""

    def __init__(self, memory: _Memory, sizes: Mapping[str, int], samples: int) -> None:
        self.samples = samples
        self.given: tuple[Any, Any] | None = None  # samples and classes from the host
        self.values, self.gradients = (
            {name: memory.array(samples * size) for name, size in sizes.items()} for _ in range(2)
        )
        self.switches = {name: memory.array(samples * sizes[name], np.int8) for name in ("pool1", "pool2")}


class NumbaCuda:
    """The network of ``cnn`` on the current CUDA device, float32; see ``base.Network`` for what its methods
    promise.

    ``parameters`` are copied and set the layers' sizes; ``image`` is the shape of a sample. Kernels are
    compiled in the first step, and buffers grow with the largest batch so far.
    """

    name = "numba-cuda"

    def __init__(
        self,
        parameters: Mapping[str, NDArray[np.float32]] | None = None,
        *,
        image: tuple[int, int, int] = cnn.IMAGE,
        learning_rate: float = cnn.LEARNING_RATE,
        momentum: float = cnn.MOMENTUM,
    ) -> None:
        if not CUDA_IS_SIMULATED and not cuda.is_available():
            raise DeviceError("numba-cuda needs an NVIDIA GPU.", hint=unusable())
        given = cnn.initial_parameters() if parameters is None else dict(parameters)
        self._shapes = {name: array.shape for name, array in given.items()}
        ends_at = np.cumsum([0, *map(prod, self._shapes.values())])
        self._places = {
            name: slice(*place)
            for name, place in zip(given, itertools.pairwise(map(int, ends_at)), strict=True)
        }
        self._learning_rate, self._momentum = np.float32(learning_rate), np.float32(momentum)
        self._image = image
        filters1, channels = self._shapes["conv1.weight"][:2]
        filters2 = self._shapes["conv2.weight"][0]
        rows, columns = ((size - 2) // 2 for size in image[1:])
        hidden, features = self._shapes["dense1.weight"]
        self._sizes = {
            "pool1": filters1 * rows * columns,
            "pool2": features,
            "dense1": hidden,
            "dense2": self._shapes["dense2.weight"][0],
        }
        if features != filters2 * ((rows - 2) // 2) * ((columns - 2) // 2) or channels != image[0]:
            raise UsageError(f"the parameters do not match a network for images of {image}")
        first = (channels, *image[1:], filters1)
        second = (filters1, rows, columns, filters2)
        makers = convolution.forward, convolution.weight_gradient
        self._forward, self._weights = ([make(*layer) for layer in (first, second)] for make in makers)
        self._inputs2 = convolution.input_gradient(*second)

        self.memory = _Memory()
        self._parameters = self.memory.copy(
            np.concatenate([np.asarray(array, np.float32).reshape(-1) for array in given.values()])
        )
        count = self._parameters.size
        self._velocity = self.memory.copy(np.zeros(count, np.float32))
        self._sums = self.memory.copy(
            np.zeros(count + 1, np.float32)
        )  # the gradients, and behind them the loss
        self._loss_there = self._sums[count : count + 1]
        self._loss = cuda.pinned_array(1, np.float32)
        places = map(self._layer, cnn.LAYERS)
        sizes = (*(place.stop - place.start for place in places), 1)
        self._layout = ends.layout(
            [ends.Region(*region) for region in zip(sizes, ends.MOST_ROWS, strict=True)]
        )
        self._table = self.memory.copy(self._layout.table)
        self._partials = self.memory.array(self._layout.partials)
        self._buffers: _Buffers | None = None
        self._plans: dict[int, _Plan] = {}
        self._ends: dict[
            int, tuple[Callable[..., object], Any]
        ] = {}  # the update, and how many rows each of its blocks adds up

    def step(self, x: Array, y: Array) -> float:
        self._run(x, y, train=True)
        self._loss_there.copy_to_host(self._loss)
        return float(self._loss[0])

    def gradients(self, x: Array, y: Array) -> dict[str, NDArray[np.float32]]:
        self._run(x, y, train=False)
        return self._by_name(self._sums)

    def predict(self, x: Array) -> NDArray[np.int64]:
        """The class with the largest logit for each sample; many samples in several goes, so that they need
        no more memory."""
        most = max(cnn.BATCH_SIZE, self._buffers.samples if self._buffers else 0)
        found = np.empty(len(x), np.int64)
        for begin in range(0, len(x), most):
            part = x[begin : begin + most]
            images = self._images(part)
            for call in list(self._plan(len(part)).values())[:_FORWARD]:
                call(images, images)
            logits = (
                self._grown(len(part)).values["dense2"][: len(part) * self._sizes["dense2"]].copy_to_host()
            )
            found[begin : begin + len(part)] = logits.reshape(len(part), -1).argmax(axis=1)
        return found

    def parameters(self) -> dict[str, NDArray[np.float32]]:
        return self._by_name(self._parameters)

    def resident(self, array: NDArray[Any]) -> Resident:
        """``array`` in device memory: float32 samples, or classes of any integer type."""
        numbers = np.ascontiguousarray(array, np.int64 if array.dtype.kind in "iu" else np.float32)
        return Resident(self.memory.copy(numbers), 0, numbers.shape)

    def synchronize(self) -> None:
        cuda.synchronize()

    def operators(self, x: Array, y: Array, rounds: int = 5) -> tuple[OperatorTime, ...]:
        """The operators of a step, each timed by CUDA events around its launch.

        A launch takes the host longer than the kernel takes the device. So that the events do not measure the
        host, a kernel that does nothing of use keeps the device busy until a whole step is queued behind it;
        a round in which it ended too early is repeated.
        """
        if CUDA_IS_SIMULATED:
            raise UsageError("NUMBA_ENABLE_CUDASIM is set: times of a simulated GPU are not meaningful.")
        if self._shapes != cnn.PARAMETERS:
            raise UsageError("work is declared for the default network sizes only.")
        work = declared(len(x))
        images, classes = self._images(x), self._classes(y)
        plan: _Plan = {**self._plan(len(x)), "update": lambda x, _: self._finish(len(x), train=True)}
        saved = [(array, array.copy_to_host()) for array in (self._parameters, self._velocity)]
        for call in plan.values():
            call(images, classes)
        events = [(cuda.event(), cuda.event()) for _ in plan]
        queued = cuda.event()
        idle = cuda.to_device(np.ones(convolution.WARP, np.float32))
        iterations = _DELAY_ITERATIONS
        seconds: list[list[float]] = []
        while len(seconds) < rounds:
            cuda_launcher(recur_fma, 1, convolution.WARP, idle, np.float32(0.5), np.float32(1), iterations)()
            queued.record()
            for call, (begin, end) in zip(plan.values(), events, strict=True):
                begin.record()
                call(images, classes)
                end.record()
            too_early = queued.query()
            self.synchronize()
            if too_early:
                iterations *= 2
            else:
                seconds.append([begin.elapsed_time(end) * 1e-3 for begin, end in events])  # from milliseconds
        for array, before in saved:
            array.copy_to_device(before)
        return fastest([work[name] for name in plan], seconds)

    def device_memory_bytes(self) -> int:
        """The most memory that the network's arrays have taken at once: parameters, buffers, and what
        ``resident`` made."""
        return self.memory.most

    def close(self) -> None:
        self._plans.clear()
        self._ends.clear()
        self._buffers = None
        del self._parameters, self._velocity, self._sums, self._loss_there, self._table, self._partials

    def _run(self, x: Array, y: Array, *, train: bool) -> None:
        """All launches of a step; the last one adds up the gradients, and with ``train`` updates the
        parameters."""
        images, classes = self._images(x), self._classes(y)
        if len(images) != len(classes):
            raise UsageError(
                f"images and classes must have the same length, got {len(images)} and {len(classes)}"
            )
        for call in self._plan(len(x)).values():
            call(images, classes)
        self._finish(len(images), train=train)

    def _images(self, x: Array) -> Resident:
        if len(x) < 1 or x.shape[1:] != self._image:
            raise UsageError(
                f"x must have shape [N, {', '.join(map(str, self._image))}] with N of at least 1, "
                f"got {list(x.shape)}"
            )
        return x if isinstance(x, Resident) else self._moved(np.asarray(x, np.float32), 0)

    def _classes(self, y: Array) -> Resident:
        if len(y.shape) != 1:
            raise UsageError(f"y must have one class number per sample, got shape {list(y.shape)}")
        return y if isinstance(y, Resident) else self._moved(np.asarray(y, np.int64), 1)

    def _moved(self, array: NDArray[Any], which: int) -> Resident:
        """``array`` in the buffer for samples (0) or classes (1) from the host."""
        buffers = self._grown(len(array))
        if buffers.given is None:
            buffers.given = (
                self.memory.array(buffers.samples * prod(self._image)),
                self.memory.array(buffers.samples, np.int64),
            )
        flat = np.ascontiguousarray(array).reshape(-1)
        buffers.given[which][: flat.size].copy_to_device(flat)
        return Resident(buffers.given[which], 0, array.shape)

    def _grown(self, samples: int) -> _Buffers:
        """Buffers for at least ``samples`` samples."""
        if self._buffers is None or self._buffers.samples < samples:
            self._plans.clear()
            self._buffers = None  # first, so that the two are not held at once
            self._buffers = _Buffers(self.memory, self._sizes, samples)
        return self._buffers

    def _layer(self, name: str) -> slice:
        """Where the weight of a layer and its bias behind it are among the parameters."""
        return slice(self._places[f"{name}.weight"].start, self._places[f"{name}.bias"].stop)

    def _by_name(self, flat: Any) -> dict[str, NDArray[np.float32]]:
        numbers = flat.copy_to_host()
        return {
            name: numbers[self._places[name]].reshape(shape).copy() for name, shape in self._shapes.items()
        }

    def _finish(self, samples: int, *, train: bool) -> None:
        call, rows = self._ends[samples]
        rates = self._learning_rate, self._momentum
        call(
            self._partials,
            self._table,
            rows,
            self._sums,
            self._parameters,
            self._velocity,
            *rates,
            int(train),
        )

    def _plan(self, samples: int) -> _Plan:
        """The launches of a step for a batch of ``samples``, without the update."""
        buffers = self._grown(samples)
        if samples in self._plans:
            return self._plans[samples]
        weights = {name: self._parameters[self._layer(name)] for name in cnn.LAYERS}
        bias = {name: self._parameters[self._places[f"{name}.bias"]] for name in ("dense1", "dense2")}
        partials = [self._partials[begin:] for begin in self._layout.begins]
        counts = ends.row_counts(samples)
        chunk = dense.chunk(samples, ends.DENSE_ROWS)
        rows = np.array(counts, np.int32)[self._layout.regions]
        self._ends[samples] = (ends.update().over(len(rows)), self.memory.copy(rows))

        forward1, forward2 = (kernel.over(samples) for kernel in self._forward)
        weights1, weights2 = (kernel.over(counts[0]) for kernel in self._weights)
        inputs2 = self._inputs2.over(samples)

        def product(
            kernel: CudaKernel, operands: tuple[Any, Any, Any, Any], sizes: tuple[int, int, int], chunk: int
        ) -> _Call:
            rows, columns, depth = sizes
            call = kernel.over(dense.grid(rows, columns, -(-depth // chunk)))
            return lambda x, y: call(*operands, *sizes, chunk)

        _, features, units, classes = self._sizes.values()
        loss, gradient, through = (
            ends.loss(classes).over(counts[-1]),
            dense.weight_gradient(),
            dense.input_gradient,
        )
        pool1, pool2, hidden, logits = buffers.values.values()
        of_pool1, of_pool2, of_hidden, of_logits = buffers.gradients.values()
        switches1, switches2 = buffers.switches.values()
        # rows, columns and depth of each product; one column more for the gradient of the bias
        of_weight1, of_weight2 = (units, features + 1, samples), (classes, units + 1, samples)
        of_inputs1, of_inputs2 = (samples, features, units), (samples, units, classes)
        output1, output2 = (samples, units, features), (samples, classes, units)
        self._plans[samples] = {
            "conv1": lambda x, y: forward1(x.flat, x.first, weights["conv1"], pool1, switches1),
            "conv2": lambda x, y: forward2(pool1, 0, weights["conv2"], pool2, switches2),
            "dense1": product(
                dense.forward(True), (pool2, weights["dense1"], bias["dense1"], hidden), output1, features
            ),
            "dense2": product(
                dense.forward(False), (hidden, weights["dense2"], bias["dense2"], logits), output2, units
            ),
            "loss": lambda x, y: loss(logits, y.flat, y.first, of_logits, partials[4], samples),
            "dense2 weight": product(gradient, (of_logits, hidden, hidden, partials[3]), of_weight2, chunk),
            "dense2 input": product(
                through(True), (of_logits, weights["dense2"], hidden, of_hidden), of_inputs2, classes
            ),
            "dense1 weight": product(gradient, (of_hidden, pool2, pool2, partials[2]), of_weight1, chunk),
            "dense1 input": product(
                through(False), (of_hidden, weights["dense1"], hidden, of_pool2), of_inputs1, units
            ),
            "conv2 weight": lambda x, y: weights2(pool1, 0, samples, of_pool2, switches2, partials[1]),
            "conv2 input": lambda x, y: inputs2(of_pool2, switches2, weights["conv2"], of_pool1),
            "conv1 weight": lambda x, y: weights1(x.flat, x.first, samples, of_pool1, switches1, partials[0]),
        }
        return self._plans[samples]


# --- work -------------------------------------------------------------------------------------------------


def declared(batch: int) -> dict[str, NetworkOperator]:
    """The operator that each launch of a step is, in their order, under the launch's name.

    FLOPs are those of the direct algorithm, so that they add up to what ``cnn.work`` says; bytes are what
    this launch must read and write, the partial sums of gradients among them. ``executed_flops`` counts what
    the kernels do: the forward convolutions compute only what a pooling window covers, the weight gradients
    only one position of each window, and conv2's input gradient also what falls on the zeros around.
    """
    partials = {
        name: rows * (cnn.parameter_count(name) if name in cnn.LAYERS else 1)
        for name, rows in zip((*cnn.LAYERS, "loss"), ends.row_counts(batch), strict=True)
    }
    executed = {"update": cnn.work(batch)[-1].flops + sum(partials.values())}
    for layer, pool in (("conv1", "pool1"), ("conv2", "pool2")):
        cells, (_, channels, *window) = cnn.elements(pool, batch), cnn.PARAMETERS[f"{layer}.weight"]
        products = 2 * channels * prod(window)
        # four products and biases a window, its maximum, and ReLU once; the bias of the gradients is added up
        # by every channel
        executed |= {
            layer: cells * (4 * (products + 1) + 4 + 1),
            f"{layer} weight": cells * (products + channels),
        }
    filters, _, *window = cnn.PARAMETERS["conv2.weight"]
    executed["conv2 input"] = cnn.elements("pool1", batch) * 2 * filters * prod(window)
    sizes = {f"{name}.partials": cnn.FLOAT * count for name, count in partials.items()}
    return cnn.operators("numba-cuda", batch, index_bytes=1, sizes=sizes, executed=executed)
