"""The usual operators of networks at several sizes, as one network: what a machine is calibrated with.

Its run tells what calls of an operator take beside their bound, from the start of a small one to the rate of
a large one, so that other networks are predicted from it. Tensors are its parameters: in training each
operator has its backward pass, and each size is updated.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

# The numbers of elements of the largest tensors on processors and on other devices, and of the other ones by
# powers of two less.
_LARGEST = {"cpu": 2**20}
_LARGEST_OF_DEVICES = 2**24
_SMALLER = (0, 4, 8, 12)
_HEAD = 64
_LONGEST = 1024
# Rows of products besides square ones: one token, and one of each of several sequences.
_FEW_ROWS = (1, 32)


class KernelSweep(nn.Module):
    """Operators on tensors of up to as many elements as suit the ``kind`` of device; the output is that of
    each."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        largest = _LARGEST.get(kind, _LARGEST_OF_DEVICES)
        self.sizes = nn.ModuleList(_OneSize(largest >> less) for less in _SMALLER)

    def forward(self, _: Tensor) -> list[Tensor]:
        return [found for size in self.sizes for found in size()]


class _OneSize(nn.Module):
    """The operators on tensors of ``elements``, a power of two."""

    def __init__(self, elements: int) -> None:
        super().__init__()
        exponent = elements.bit_length() - 1
        rows = 2 ** (exponent // 2)
        width = elements // rows
        channels = max(8, 2 ** (exponent // 3))
        side = max(2, round((elements / channels) ** 0.5))
        length = min(_LONGEST, max(1, elements // _HEAD))
        heads = max(1, elements // _HEAD // length)
        self.matrix = nn.Parameter(torch.randn(rows, width))
        self.few = nn.ParameterList(torch.randn(few, width) for few in _FEW_ROWS)
        self.image = nn.Parameter(torch.randn(1, channels, side, side))
        self.heads = nn.ParameterList(torch.randn(1, heads, length, _HEAD) for _ in "qkv")
        self.linear = nn.Linear(width, width)
        self.embedding = nn.Embedding(width, width)
        self.convolutions = nn.ModuleList(
            (
                nn.Conv2d(channels, channels, 3, padding=1, bias=False),
                nn.Conv2d(channels, channels, 1),
                nn.Conv2d(channels, channels, 3, stride=2, padding=1, bias=False),
                nn.Conv2d(channels, channels, 3, padding=1, groups=channels, bias=False),
                nn.BatchNorm2d(channels),
                nn.ReLU(inplace=False),
                nn.MaxPool2d(3, 2, padding=1),
                nn.AdaptiveAvgPool2d(1),
            )
        )
        self.rowwise = nn.ModuleList(
            (
                nn.ReLU(),
                nn.GELU(),
                nn.SiLU(),
                nn.Sigmoid(),
                nn.Tanh(),
                nn.Hardswish(),
                nn.Dropout(0.1),
                nn.Softmax(-1),
                nn.LayerNorm(width),
            )
        )

    def forward(self) -> list[Tensor]:
        matrix, query, key, value = self.matrix, *self.heads
        rows = torch.arange(len(matrix), device=matrix.device) % self.embedding.num_embeddings
        return [
            *(self.linear(one) for one in (matrix, *self.few)),
            *(operator(self.image) for operator in self.convolutions),
            *(operator(matrix) for operator in self.rowwise),
            functional.scaled_dot_product_attention(query, key, value, is_causal=True),
            torch.matmul(query, key.mT).softmax(-1) @ value,
            self.embedding(rows),
            matrix + matrix,
            matrix * matrix,
            matrix.pow(2).mean(-1),
            matrix.sum(),
            matrix.T.contiguous(),
            torch.cat((matrix, matrix)),
        ]
