"""The convolutional network for MNIST that all backends compute: layers, shapes, initial parameters, hyperparameters, work.

    image [N, 1, 28, 28]
    conv1 8 x 3 x 3, ReLU [N, 8, 26, 26], maximum of 2 x 2 [N, 8, 13, 13]
    conv2 16 x 3 x 3, ReLU [N, 16, 11, 11], maximum of 2 x 2 [N, 16, 5, 5]
    dense1 400 -> 128, ReLU [N, 128]
    dense2 128 -> 10 [N, 10], softmax and the mean cross-entropy

Stride 1, no padding; the last row and column of conv2's output lie in no window. Parameters have torch's layout in all backends
(convolutions [out, in, row, column], dense layers [out, in]), and so has the order in which dense1 sees pool2: channel, row, column.
The optimizer is SGD with momentum as torch defines it: ``m = momentum * m + gradient``, then ``p = p - learning_rate * m``, m being 0
at first.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rooflines_studies.networks.base import Operator, Phase, fused

IMAGE: Final = (1, 28, 28)
CLASSES: Final = 10
BATCH_SIZE: Final = 512
LEARNING_RATE: Final = 0.01
MOMENTUM: Final = 0.9

PARAMETERS: Final[dict[str, tuple[int, ...]]] = {
    "conv1.weight": (8, 1, 3, 3),
    "conv1.bias": (8,),
    "conv2.weight": (16, 8, 3, 3),
    "conv2.bias": (16,),
    "dense1.weight": (128, 400),
    "dense1.bias": (128,),
    "dense2.weight": (CLASSES, 128),
    "dense2.bias": (CLASSES,),
}
# Outputs of the layers for one image. ReLU keeps the shape of the layer before it.
OUTPUTS: Final[dict[str, tuple[int, ...]]] = {
    "image": IMAGE,
    "conv1": (8, 26, 26),
    "pool1": (8, 13, 13),
    "conv2": (16, 11, 11),
    "pool2": (16, 5, 5),
    "dense1": (128,),
    "dense2": (CLASSES,),
}
_BEFORE: Final = {"conv1": "image", "conv2": "pool1", "dense1": "pool2", "dense2": "dense1"}
_FLOAT: Final = 4  # bytes
_CLASS: Final = 8  # bytes of a class number, int64

# The operators of the loss, for ``fusing``.
LOSS: Final = "log_softmax loss, nll_loss loss, nll_loss gradient loss, log_softmax gradient loss"

# FLOPs an element, as docs/counting.md has them.
_SOFTMAX: Final = 14  # max, subtract, exp (10), sum, divide or subtract
_LOG_SOFTMAX_BACKWARD: Final = 13  # g - exp(y) * sum(g)
_SGD_MOMENTUM: Final = 4  # m * momentum + g, p - learning_rate * m


def initial_parameters(seed: int = 0) -> dict[str, NDArray[np.float32]]:
    """Random parameters, the same for every backend: weights normal with variance 2 / fan-in, biases 0.

    He's initialization (He et al., "Delving Deep into Rectifiers", 2015), for dense layers and convolutions alike.
    """
    generator = np.random.default_rng(seed)
    made = {}
    for name, shape in PARAMETERS.items():
        if name.endswith(".bias"):
            made[name] = np.zeros(shape, np.float32)
        else:
            made[name] = (generator.standard_normal(shape) * np.sqrt(2 / prod(shape[1:]))).astype(np.float32)
    return made


def elements(layer: str, batch: int) -> int:
    """Elements of the output of ``layer``."""
    return batch * prod(OUTPUTS[layer])


def products(layer: str, batch: int) -> int:
    """FLOPs of a layer's products, without its bias: those of its forward, and of each of its two gradients."""
    return 2 * elements(layer, batch) * prod(PARAMETERS[f"{layer}.weight"][1:])


def work(batch: int, index_bytes: int = 8) -> tuple[Operator, ...]:
    """The operators of one training step in their order, one by one as an eager framework runs them, and the work of each.

    ``index_bytes`` is the size of the numbers in which a pooling keeps where its maxima were (torch: 8).
    """
    count = {layer: elements(layer, batch) for layer in OUTPUTS}
    size = {layer: _FLOAT * number for layer, number in count.items()}
    kept = {layer: (_FLOAT + index_bytes) * count[layer] for layer in ("pool1", "pool2")}  # maxima and where they were
    weight = {layer: _FLOAT * prod(PARAMETERS[f"{layer}.weight"]) for layer in _BEFORE}
    bias = {layer: _FLOAT * prod(PARAMETERS[f"{layer}.bias"]) for layer in _BEFORE}
    matrix = {layer: products(layer, batch) for layer in _BEFORE}

    def weighted(name: str, layer: str) -> Operator:
        read = size[_BEFORE[layer]] + parameter_bytes(layer)
        return operator(name, layer, "forward", read, size[layer], matrix=matrix[layer], other=count[layer])  # a bias an output

    def relu(layer: str) -> Operator:
        return operator("relu", layer, "forward", size[layer], size[layer], other=count[layer])

    def relu_gradient(layer: str) -> Operator:
        """Reads the gradient above and the output."""
        return operator("relu gradient", layer, "backward", 2 * size[layer], size[layer], other=count[layer])

    def pool(layer: str) -> Operator:
        """A window of 4 costs 4; positions in no window are not read."""
        return operator("maxpool", layer, "forward", 4 * size[layer], kept[layer], other=4 * count[layer])

    def pool_gradient(layer: str, before: str) -> Operator:
        """One addition for each maximum; the whole gradient is written, zeros included."""
        return operator("maxpool gradient", layer, "backward", kept[layer], size[before], other=count[layer])

    def linear_gradients(layer: str) -> tuple[Operator, Operator, Operator]:
        above, inputs = size[layer], size[_BEFORE[layer]]
        return (
            # [N, out] @ [out, in]
            operator("linear input gradient", layer, "backward", above + weight[layer], inputs, matrix=matrix[layer]),
            # [out, N] @ [N, in]
            operator("linear weight gradient", layer, "backward", above + inputs, weight[layer], matrix=matrix[layer]),
            operator("linear bias gradient", layer, "backward", above, bias[layer], other=count[layer]),
        )

    def convolution_gradients(layer: str, of_input: bool) -> Operator:
        """Gradients of weight and bias, and of the input if requested; conv1's input is the image, which is not trained."""
        inputs = size[_BEFORE[layer]]
        read, written = size[layer] + inputs + of_input * weight[layer], parameter_bytes(layer) + of_input * inputs
        flops = matrix[layer] * (1 + of_input)
        return operator("convolution gradients", layer, "backward", read, written, matrix=flops, other=count[layer])

    scores, logits, classes, sums = size["dense2"], count["dense2"], _CLASS * batch, 2 * _FLOAT
    return (
        weighted("convolution", "conv1"), relu("conv1"), pool("pool1"),
        weighted("convolution", "conv2"), relu("conv2"), pool("pool2"),
        weighted("linear", "dense1"), relu("dense1"),
        weighted("linear", "dense2"),
        operator("log_softmax", "loss", "forward", scores, scores, other=_SOFTMAX * logits),
        # of each sample one score, and its sum with the others; the mean loss and the sum of the classes' weights are written
        operator("nll_loss", "loss", "forward", _FLOAT * batch + classes, sums, other=2 * batch),
        operator("nll_loss gradient", "loss", "backward", classes + sums, scores, other=batch),
        operator("log_softmax gradient", "loss", "backward", 2 * scores, scores, other=_LOG_SOFTMAX_BACKWARD * logits),
        *linear_gradients("dense2"), relu_gradient("dense1"),
        *linear_gradients("dense1"),
        pool_gradient("pool2", "conv2"), relu_gradient("conv2"), convolution_gradients("conv2", of_input=True),
        pool_gradient("pool1", "conv1"), relu_gradient("conv1"), convolution_gradients("conv1", of_input=False),
        sgd(),
    )  # fmt: skip


def fusing(batch: int, index_bytes: int = 8) -> Callable[..., Operator]:
    """Return a function that fuses operators of ``work``, named with their layers: ``"linear dense1, relu dense1"``."""
    parts = {f"{part.name} {part.layer}".strip(): part for part in work(batch, index_bytes)}

    def fuse(name: str, layer: str, phase: Phase, names: str, **traffic: int) -> Operator:
        return fused(name, layer, phase, [parts[part] for part in names.split(", ")], **traffic)

    return fuse


def sgd() -> Operator:
    """The optimizer's update of all parameters in one pass: reads parameter, gradient and momentum, writes the first and the last."""
    count = sum(prod(shape) for shape in PARAMETERS.values())
    return operator("sgd with momentum", "", "optimizer", 3 * _FLOAT * count, 2 * _FLOAT * count, other=_SGD_MOMENTUM * count)


def parameter_bytes(layer: str) -> int:
    """Bytes of the weight and the bias of ``layer``."""
    return _FLOAT * (prod(PARAMETERS[f"{layer}.weight"]) + prod(PARAMETERS[f"{layer}.bias"]))


def operator(name: str, layer: str, phase: Phase, read: int, written: int, *, matrix: int = 0, other: int = 0) -> Operator:
    """``read`` and ``written`` are bytes, ``matrix`` and ``other`` FLOPs."""
    return Operator(name=name, layer=layer, phase=phase, matrix_flops=matrix, other_flops=other, bytes_read=read, bytes_written=written)
