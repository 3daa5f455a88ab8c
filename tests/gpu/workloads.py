"""The workloads of the GPU check that are factories, given to ``rooflines profile`` by path.

Each has a size for a GPU, chosen so that a step takes some milliseconds on a large one, and a small one to rehearse the code on a CPU,
with the matrix FLOPs of a step in closed form for a device of a ``kind``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional

# --- a step in two streams, which does not wait for the second one: events in the first stream do not see all of its time ----------

_SIDES = {"cuda": 4096, "cpu": 64}  # of the square matrices
# Products in the stream of the step and in the other one.
_HERE, _THERE = 2, 6


def two_streams(device: torch.device) -> Callable[[], None]:
    """Return a step of matrix products in two streams; on a CPU, which has no streams, one after another."""
    side = _SIDES[device.type]
    left, right = (torch.randn(side, side, device=device) for _ in range(2))
    here, there = torch.empty_like(left), torch.empty_like(left)
    other: Any = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]

    def step() -> None:
        if other is not None:
            other.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(other) if other is not None else contextlib.nullcontext():
            for _ in range(_THERE):
                torch.mm(left, right, out=there)
        for _ in range(_HERE):
            torch.mm(left, right, out=here)

    return step


def streams_flops(kind: str) -> int:
    """Return the FLOPs of a step."""
    side: int = _SIDES[kind]
    return (_HERE + _THERE) * 2 * side**3


# --- an LSTM: cuDNN decides by a switch of its own whether recurrent layers use TF32 ------------------------------------------------

_LAYERS = 2
_UNITS, _STEPS = {"cuda": 1024, "cpu": 16}, {"cuda": 64, "cpu": 4}


class Recurrent(nn.Module):
    """An LSTM, and as the loss the mean square of its output, which training makes smaller."""

    def __init__(self, units: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(units, units, _LAYERS, batch_first=True)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        output, _ = self.lstm(x)
        return {"loss": output.square().mean()}


def lstm(batch_size: int, device: torch.device) -> tuple[nn.Module, torch.Tensor]:
    """Return the network and its input [batch, steps of the sequence, units]."""
    units = _UNITS[device.type]
    return Recurrent(units), torch.randn(batch_size, _STEPS[device.type], units)


def lstm_flops(batch_size: int, kind: str) -> int:
    """Return the matrix FLOPs of a training step.

    Each layer multiplies its input and its hidden state [batch, units] by weights [units, 4 units] in every step of the sequence. The
    backward makes two products for each; cuDNN leaves out the gradient of the network's input, oneDNN does not.
    """
    product = 2 * _STEPS[kind] * batch_size * _UNITS[kind] * 4 * _UNITS[kind]
    return product * (3 * 2 * _LAYERS - (kind == "cuda"))


# --- a transformer: scaled dot-product attention and linear layers, in torch alone --------------------------------------------------


class Size(NamedTuple):
    """Blocks, width of a token, heads, and tokens of a sequence."""

    blocks: int
    width: int
    heads: int
    tokens: int


_SIZES = {"cuda": Size(4, 1024, 16, 1024), "cpu": Size(2, 32, 2, 16)}


class Attention(nn.Module):
    """Self-attention without a mask: [batch, tokens, width] -> the same."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.heads = size.heads
        self.inputs = nn.Linear(size.width, 3 * size.width)
        self.output = nn.Linear(size.width, size.width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, width = x.shape
        parts = self.inputs(x).view(batch, tokens, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)  # each [batch, heads, tokens, width of a head]
        attended = functional.scaled_dot_product_attention(query, key, value)
        output: torch.Tensor = self.output(attended.transpose(1, 2).reshape(batch, tokens, width))
        return output


class Block(nn.Module):
    """Attention and two linear layers, each normalized before and added to its input."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.attention = nn.Sequential(nn.LayerNorm(size.width), Attention(size))
        self.wider = nn.Sequential(
            nn.LayerNorm(size.width), nn.Linear(size.width, 4 * size.width), nn.GELU(), nn.Linear(4 * size.width, size.width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(x)
        result: torch.Tensor = x + self.wider(x)
        return result


class Transformer(nn.Module):
    """Blocks, and as the loss the mean square of their output, which training makes smaller."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(Block(size) for _ in range(size.blocks)))

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": self.blocks(x).square().mean()}


def transformer(batch_size: int, device: torch.device) -> tuple[nn.Module, torch.Tensor]:
    """Return the network and its input [batch, tokens, width]."""
    size = _SIZES[device.type]
    return Transformer(size), torch.randn(batch_size, size.tokens, size.width)


def transformer_flops(batch_size: int, kind: str) -> int:
    """Return the matrix FLOPs of a training step.

    The linear layers of a block have 3 + 1 + 4 + 4 times width x width weights, and their backward makes two products for each. The two
    products of attention (queries by keys, scores by values) have four in their backward, and the scores are computed once more,
    because no backend keeps them.
    """
    size = _SIZES[kind]
    linear = 2 * batch_size * size.tokens * 12 * size.width**2
    attention = 2 * batch_size * size.tokens**2 * size.width
    return size.blocks * (3 * linear + (2 + 5) * attention)
