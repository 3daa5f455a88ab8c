"""An LSTM in training. cuDNN decides by a switch of its own whether recurrent layers use TF32."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import nn


class Size(NamedTuple):
    """Layers, units of the input and of each layer, and steps of a sequence."""

    layers: int
    units: int
    tokens: int


SIZES = {"cuda": Size(2, 1024, 64), "cpu": Size(2, 16, 4)}


class Recurrent(nn.Module):
    """An LSTM, and as the loss the mean square of its output, which training makes smaller."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.lstm = nn.LSTM(size.units, size.units, size.layers, batch_first=True)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        output, _ = self.lstm(x)
        return {"loss": output.square().mean()}


def training(batch_size: int, device: torch.device) -> tuple[nn.Module, torch.Tensor]:
    """The network and its input [batch, tokens, units]."""
    size = SIZES[device.type]
    return Recurrent(size), torch.randn(batch_size, size.tokens, size.units)


def flops(batch_size: int, kind: str) -> int:
    """The matrix FLOPs of a training step on a device of this ``kind``.

    Each layer multiplies its input and its hidden state [batch, units] by weights [units, 4 units] in every step of the sequence. The
    backward makes two products for each; cuDNN leaves out the gradient of the network's input, oneDNN does not.
    """
    size = SIZES[kind]
    product = 2 * size.tokens * batch_size * size.units * 4 * size.units
    return product * (3 * 2 * size.layers - (kind == "cuda"))
