"""A transformer in training: scaled dot-product attention and linear layers, in torch alone."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional


class Size(NamedTuple):
    """Blocks, width of a token, heads, and tokens of a sequence."""

    blocks: int
    width: int
    heads: int
    tokens: int


SIZES = {"cuda": Size(4, 1024, 16, 1024), "cpu": Size(2, 32, 2, 16)}


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
        found = functional.scaled_dot_product_attention(query, key, value)
        output: torch.Tensor = self.output(found.transpose(1, 2).reshape(batch, tokens, width))
        return output


class Block(nn.Module):
    """Attention and two linear layers, each normalised before and added to its input."""

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


def training(batch_size: int, device: torch.device) -> tuple[nn.Module, torch.Tensor]:
    """The network and its input [batch, tokens, width]."""
    size = SIZES[device.type]
    return Transformer(size), torch.randn(batch_size, size.tokens, size.width)


def flops(batch_size: int, kind: str) -> int:
    """The matrix FLOPs of a training step on a device of this ``kind``.

    The linear layers of a block have 3 + 1 + 4 + 4 times width x width weights, and their backward makes two products for each. The two
    products of attention (queries by keys, scores by values) have four in their backward, and the scores are computed once more,
    because no backend keeps them.
    """
    size = SIZES[kind]
    linear = 2 * batch_size * size.tokens * 12 * size.width**2
    attention = 2 * batch_size * size.tokens**2 * size.width
    return size.blocks * (3 * linear + (2 + 5) * attention)
