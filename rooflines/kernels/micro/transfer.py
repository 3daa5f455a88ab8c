"""Memory bandwidth of a GPU by torch operators: read, copy, triad, and reads that stay in the L2 cache.

The bytes follow the STREAM convention: every byte read plus every byte written.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

Call = Callable[[], object]


def operands(size_bytes: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Three float32 tensors of ``size_bytes`` each."""
    elements = size_bytes // 4
    return (
        torch.ones(elements, device=device),
        torch.full((elements,), 2.0, device=device),
        torch.empty(elements, device=device),
    )


def read(source: torch.Tensor) -> tuple[Call, int]:
    """Sum ``source``: the call and the bytes it moves."""
    out = torch.empty((), device=source.device)
    return lambda: torch.sum(source, dim=0, out=out), source.nbytes


def copy(source: torch.Tensor, target: torch.Tensor) -> tuple[Call, int]:
    """Copy ``source`` to ``target``: the call and the bytes it moves."""
    return lambda: target.copy_(source), 2 * source.nbytes


def triad(first: torch.Tensor, second: torch.Tensor, target: torch.Tensor) -> tuple[Call, int]:
    """``target = first + 3 * second``: the call and the bytes it moves."""
    return lambda: torch.add(first, second, alpha=3.0, out=target), 3 * first.nbytes


def repeated_read(source: torch.Tensor, times: int) -> tuple[Call, int]:
    """Sum ``source`` ``times`` times in one kernel: the call and the bytes it reads.

    The tensor is expanded without being copied, so that every row is the same memory. With a source that fits into the L2 cache
    but not into the L1 caches this reads from L2, for long enough that the launch does not matter.
    """
    rows = source.expand(times, source.numel())
    out = torch.empty(times, device=source.device)
    return lambda: torch.sum(rows, dim=1, out=out), times * source.nbytes
