"""The convolutional network for MNIST that all backends compute: layers, shapes, initial parameters,
hyperparameters, work.

    image [N, 1, 28, 28]
    conv1 8 x 3 x 3, ReLU [N, 8, 26, 26], maximum of 2 x 2 [N, 8, 13, 13]
    conv2 16 x 3 x 3, ReLU [N, 16, 11, 11], maximum of 2 x 2 [N, 16, 5, 5]
    dense1 400 -> 128, ReLU [N, 128]
    dense2 128 -> 10 [N, 10], softmax and the mean cross-entropy

Stride 1, no padding; the last row and column of conv2's output lie in no window. Parameters have torch's
layout in all backends (convolutions [out, in, row, column], dense layers [out, in]), and so has the order in
which dense1 sees pool2: channel, row, column. The optimizer is SGD with momentum as torch defines it: ``m =
momentum * m + gradient``, then ``p = p - learning_rate * m``, m being 0 at first.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np
from numpy.typing import NDArray

from rooflines_studies.networks.base import NetworkOperator, declared, he_parameters, work_table

IMAGE = (1, 28, 28)
CLASSES = 10
BATCH_SIZE = 512
LEARNING_RATE = 0.01
MOMENTUM = 0.9

PARAMETERS: dict[str, tuple[int, ...]] = {
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
OUTPUTS: dict[str, tuple[int, ...]] = {
    "image": IMAGE,
    "conv1": (8, 26, 26),
    "pool1": (8, 13, 13),
    "conv2": (16, 11, 11),
    "pool2": (16, 5, 5),
    "dense1": (128,),
    "dense2": (CLASSES,),
}
LAYERS = ("conv1", "conv2", "dense1", "dense2")
FLOAT = 4  # bytes
_CLASS = 8  # bytes of a class number, int64
# In ``cnn_work.csv``, the operators of an eager framework, and the halves of one that a fused operator may
# compute alone.
_EAGER, _HALF = "torch", "half"


def initial_parameters(seed: int = 0) -> dict[str, NDArray[np.float32]]:
    """Random parameters, the same for every backend (see ``he_parameters``)."""
    return he_parameters(PARAMETERS, seed)


def elements(layer: str, batch: int) -> int:
    """Elements of the output of ``layer``."""
    return batch * prod(OUTPUTS[layer])


def products(layer: str, batch: int) -> int:
    """FLOPs of a layer's products, without its bias: those of its forward, and of each of its two
    gradients."""
    return 2 * elements(layer, batch) * prod(PARAMETERS[f"{layer}.weight"][1:])


def work(batch: int, index_bytes: int = 8) -> tuple[NetworkOperator, ...]:
    """The operators of one training step in their order, one by one as an eager framework runs them, and the
    work of each.

    ``index_bytes`` is the size of the numbers in which a pooling keeps where its maxima were (torch: 8).
    """
    return tuple(operators("torch", batch, index_bytes).values())


def operators(
    backend: str,
    batch: int,
    index_bytes: int = 8,
    sizes: Mapping[str, int] = {},
    executed: Mapping[str, int] = {},
) -> dict[str, NetworkOperator]:
    """The operators of one training step on ``backend`` in their order, by name, as ``cnn_work.csv`` has them
    (see ``declared``).

    FLOPs an element are those of docs/counting.md: a log_softmax costs 14 (maximum, subtraction, exponential
    (10), sum, difference), its gradient 13. ``sizes`` are bytes of arrays that the backend stores in its own
    way, ``executed`` the FLOPs that differ from those of the direct algorithm.
    """
    count = {layer: elements(layer, batch) for layer in OUTPUTS} | {
        name: prod(shape) for name, shape in PARAMETERS.items()
    }
    # of each sample one score; the sums of the loss and of the classes' weights
    count |= {"parameters": parameter_count(), "scores": batch, "sums": 2, "loss": 1}
    count |= {f"windows{number}": 4 * count[f"pool{number}"] for number in (1, 2)}
    size = {name: FLOAT * number for name, number in count.items()} | {"classes": _CLASS * batch}
    size |= {f"maxima{number}": index_bytes * count[f"pool{number}"] for number in (1, 2)} | dict(sizes)
    count |= {f"{layer}.products": products(layer, batch) for layer in LAYERS}
    known = {} if backend in (_EAGER, _HALF) else {**operators(_EAGER, batch), **operators(_HALF, batch)}
    found = {}
    for row in work_table("cnn_work.csv"):
        if row["backend"] == backend:
            name = row["name"] or f"{row['operator']} {row['layer']}".strip()
            parts = [known[part] for part in row["parts"].split(" + ") if part]
            found[name] = declared(row, size, count, parts, executed_flops=executed.get(name))
    return found


def parameter_count(layer: str = "") -> int:
    """Numbers in the weight and the bias of ``layer``, or of all."""
    return sum(prod(shape) for name, shape in PARAMETERS.items() if name.startswith(layer))
