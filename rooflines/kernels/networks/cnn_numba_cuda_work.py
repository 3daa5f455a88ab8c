"""The work of each launch of ``numba-cuda``: its operators of ``cnn.work`` and its own traffic."""

from __future__ import annotations

from math import prod
from typing import Final

from rooflines.kernels.networks.base import Operator, fused
from rooflines.kernels.networks.cnn import PARAMETERS, elements, parameter_bytes, products, work
from rooflines.kernels.networks.cnn_numba_cuda_update import row_counts

_FLOAT: Final = 4  # bytes
_SWITCH: Final = 1
_CLASS: Final = 8


def declared(batch: int) -> dict[str, Operator]:
    """The operator that each launch of a step is, in their order, under the launch's name.

    FLOPs are those of the direct algorithm, so that they add up to what ``cnn.work`` says; bytes are what this launch must read and
    write, the partial sums of gradients among them. ``executed_flops`` counts what the kernels do: the forward convolutions compute
    only what a pooling window covers, the weight gradients only one position of each window, and conv2's input gradient also what
    falls on the zeros around.
    """
    parts = {(part.name, part.layer): part for part in work(batch, index_bytes=_SWITCH)}
    rows = dict(zip(("conv1", "conv2", "dense1", "dense2", "loss"), row_counts(batch), strict=True))
    size = {layer: _FLOAT * elements(layer, batch) for layer in ("image", "pool1", "pool2", "dense1", "dense2")}
    switched = {layer: (_FLOAT + _SWITCH) * elements(layer, batch) for layer in ("pool1", "pool2")}
    weight = {name.split(".")[0]: _FLOAT * prod(shape) for name, shape in PARAMETERS.items() if name.endswith(".weight")}

    def convolved(layer: str, before: str, pool: str) -> Operator:
        cells = elements(pool, batch)
        return fused(
            "convolution, relu, maxpool", layer, "forward",
            (parts["convolution", layer], parts["relu", layer], parts["maxpool", pool]),
            read=size[before] + parameter_bytes(layer), written=switched[pool],
            # four products and biases a window, its maximum, and ReLU once
            executed_flops=4 * cells * 2 * prod(PARAMETERS[f"{layer}.weight"][1:]) + (4 + 4 + 1) * cells,
        )  # fmt: skip

    def weights(layer: str, before: str, pool: str) -> Operator:
        products_of_weight = Operator(
            name="", layer=layer, phase="backward", bytes_read=0, bytes_written=0,
            matrix_flops=products(layer, batch), other_flops=elements(layer, batch),
        )  # fmt: skip
        channels, taps = PARAMETERS[f"{layer}.weight"][1], prod(PARAMETERS[f"{layer}.weight"][1:])
        return fused(
            "maxpool and relu gradient, convolution weight gradient", layer, "backward",
            (products_of_weight, parts["maxpool gradient", pool], parts["relu gradient", layer]),
            read=size[before] + switched[pool], written=rows[layer] * parameter_bytes(layer),
            # the bias is added up by every channel
            executed_flops=elements(pool, batch) * (2 * taps + channels),
        )  # fmt: skip

    def dense_weights(layer: str, before: str) -> Operator:
        return fused(
            "linear weight and bias gradient", layer, "backward",
            (parts["linear weight gradient", layer], parts["linear bias gradient", layer]),
            read=size[layer] + size[before], written=rows[layer] * parameter_bytes(layer),
        )  # fmt: skip

    summed = {"loss": 1} | {layer: parameter_bytes(layer) // _FLOAT for layer in weight}
    partials = sum(rows[name] * count for name, count in summed.items())
    count = sum(summed.values()) - 1
    update = parts["sgd with momentum", ""]
    return {
        "conv1": convolved("conv1", "image", "pool1"),
        "conv2": convolved("conv2", "pool1", "pool2"),
        "dense1": fused(
            "linear, relu", "dense1", "forward", (parts["linear", "dense1"], parts["relu", "dense1"]),
            read=size["pool2"] + parameter_bytes("dense1"), written=size["dense1"],
        ),
        "dense2": parts["linear", "dense2"],
        "loss": fused(
            "softmax cross-entropy and gradient", "loss", "forward", [part for part in parts.values() if part.layer == "loss"],
            read=size["dense2"] + _CLASS * batch, written=size["dense2"] + _FLOAT * rows["loss"],
        ),
        "dense2 weight": dense_weights("dense2", "dense1"),
        "dense2 input": fused(
            "linear input gradient, relu gradient", "dense2", "backward",
            (parts["linear input gradient", "dense2"], parts["relu gradient", "dense1"]),
            read=size["dense2"] + weight["dense2"] + size["dense1"], written=size["dense1"],
        ),
        "dense1 weight": dense_weights("dense1", "pool2"),
        "dense1 input": parts["linear input gradient", "dense1"],
        "conv2 weight": weights("conv2", "pool1", "pool2"),
        "conv2 input": Operator(
            name="convolution input gradient", layer="conv2", phase="backward", matrix_flops=products("conv2", batch),
            bytes_read=switched["pool2"] + weight["conv2"], bytes_written=size["pool1"],
            executed_flops=elements("pool1", batch) * 2 * 9 * PARAMETERS["conv2.weight"][0],
        ),
        "conv1 weight": weights("conv1", "image", "pool1"),
        "update": fused(
            "sum of gradients, sgd with momentum", "", "optimizer", (update,),
            read=_FLOAT * (partials + 2 * count), written=_FLOAT * (3 * count + 1),
            executed_flops=update.flops + partials,
        ),
    }  # fmt: skip
