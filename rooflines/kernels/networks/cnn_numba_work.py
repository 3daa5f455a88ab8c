"""The work of the operators of ``numba-cpu``: fused ones, in the order of a step."""

from __future__ import annotations

from math import prod
from typing import Final

from rooflines.kernels.networks import cnn
from rooflines.kernels.networks.base import Operator, fused
from rooflines.kernels.networks.cnn_numba_kernels import POOL1, POOL2, WINDOW
from rooflines.kernels.networks.cnn_numba_step import COPIES, SIZE

_FLOAT: Final = 4  # bytes, also of the offset of a window
# Outputs of the convolutions that some window of the pooling behind covers, where that window is read again
_COMPUTED1: Final = 4 * POOL1
_COMPUTED2: Final = 4 * POOL2
_TAPS1: Final = 9


def work(batch: int, threads: int) -> tuple[Operator, ...]:
    """The operators of one training step on this many threads. All parts of ``cnn.work`` are in one of them, once.

    ``executed_flops`` counts as ``cnn.work`` does, but only the outputs, maxima and gradients that are computed; of the update also
    the sums over all threads' gradients, which the direct algorithm has not.
    """
    parts = {(part.name, part.layer, part.phase): part for part in cnn.work(batch)}
    images = _FLOAT * cnn.elements("image", batch)
    pool1, pool2 = _FLOAT * batch * POOL1, _FLOAT * batch * POOL2
    hidden, logits = _FLOAT * cnn.elements("dense1", batch), _FLOAT * cnn.elements("dense2", batch)
    parameters = {layer: cnn.parameter_bytes(layer) for layer in ("conv1", "conv2", "dense1", "dense2")}
    weights = {layer: _FLOAT * prod(cnn.PARAMETERS[f"{layer}.weight"]) for layer in parameters}
    update = cnn.sgd()
    pooling = 1 + 4  # FLOPs a maximum: ReLU, and a window of four
    return (
        fused(
            "convolution, relu, maxpool", "conv1", "forward",
            (parts["convolution", "conv1", "forward"], parts["relu", "conv1", "forward"], parts["maxpool", "pool1", "forward"]),
            read=images + parameters["conv1"], written=pool1 + batch * POOL1,
            executed_flops=batch * (_COMPUTED1 * (2 * _TAPS1 + 1) + POOL1 * pooling),
        ),
        fused(
            "convolution, relu, maxpool", "conv2", "forward",
            (parts["convolution", "conv2", "forward"], parts["relu", "conv2", "forward"], parts["maxpool", "pool2", "forward"]),
            read=pool1 + parameters["conv2"], written=2 * pool2,
            executed_flops=batch * (_COMPUTED2 * (2 * WINDOW + 1) + POOL2 * pooling),
        ),
        fused(
            "linear, relu", "dense1", "forward", (parts["linear", "dense1", "forward"], parts["relu", "dense1", "forward"]),
            read=pool2 + parameters["dense1"], written=hidden,
        ),
        parts["linear", "dense2", "forward"],
        fused(
            "softmax, cross-entropy and their gradient", "loss", "forward", [part for part in parts.values() if part.layer == "loss"],
            read=logits + 8 * batch, written=logits,
        ),
        fused(
            "linear gradients, relu gradient", "dense2", "backward",
            [part for part in parts.values() if part.layer == "dense2" and part.phase == "backward"]
            + [parts["relu gradient", "dense1", "backward"]],
            read=logits + weights["dense2"] + hidden, written=parameters["dense2"] + hidden,
        ),
        fused(
            "linear weight gradient", "dense1", "backward",
            (parts["linear weight gradient", "dense1", "backward"], parts["linear bias gradient", "dense1", "backward"]),
            read=hidden + pool2, written=parameters["dense1"],
        ),
        fused(
            "linear input gradient, relu gradient", "dense1", "backward",
            (parts["linear input gradient", "dense1", "backward"], parts["relu gradient", "conv2", "backward"]),
            read=hidden + weights["dense1"] + pool2, written=pool2,
            executed_flops=batch * (cnn.products("dense1", 1) + POOL2),
        ),
        fused(
            "convolution gradients, maxpool gradient", "conv2", "backward",
            (parts["convolution gradients", "conv2", "backward"], parts["maxpool gradient", "pool2", "backward"]),
            read=2 * pool2 + pool1 + weights["conv2"], written=pool1 + parameters["conv2"],
            # each gradient above reaches the weights and the inputs of one window, and the bias
            executed_flops=batch * POOL2 * (2 * 2 * WINDOW + 1),
        ),
        fused(
            "convolution gradients, relu gradient, maxpool gradient", "conv1", "backward",
            (
                parts["convolution gradients", "conv1", "backward"], parts["relu gradient", "conv1", "backward"],
                parts["maxpool gradient", "pool1", "backward"],
            ),
            read=pool1 + batch * POOL1 + images, written=parameters["conv1"],
            executed_flops=batch * _COMPUTED1 * (2 * _TAPS1 + 1),
        ),
        # Every thread's gradient is read and their sum written; parameters and momentum are read and written, and the copies of the
        # parameters written.
        fused(
            "sum of gradients, sgd with momentum", "", "optimizer", (update,),
            read=_FLOAT * (threads + 2) * SIZE, written=_FLOAT * (3 * SIZE + COPIES),
            executed_flops=update.flops + (threads - 1) * SIZE,
        ),
    )  # fmt: skip
