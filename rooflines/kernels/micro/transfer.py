"""Memory bandwidth of a GPU by torch operators: read, write, copy, triad, reads that stay in the L2 cache,
and copies over a link.

Within a device the bytes follow the STREAM convention: every byte read plus every byte written. Over a link
to the host or to another device every byte counts once, as it crosses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch

Access = Literal["read", "write", "copy", "triad"]
Call = Callable[[], object]
OPERATORS: dict[Access, str] = {
    "read": "torch.sum",
    "write": "Tensor.fill_",
    "copy": "Tensor.copy_",
    "triad": "torch.add(alpha=)",
}


def operands(size_bytes: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Three float32 tensors of ``size_bytes`` each."""
    elements = size_bytes // 4
    return (
        torch.ones(elements, device=device),
        torch.full((elements,), 2.0, device=device),
        torch.empty(elements, device=device),
    )


def streaming(
    access: Access, first: torch.Tensor, second: torch.Tensor, target: torch.Tensor
) -> tuple[Call, int]:
    """The operator for ``access`` on three tensors of one size: the call, and the bytes that it moves.

    A read sums ``first``, a write fills ``target`` with ones, a copy is of ``first``, a triad is ``first + 3
    * second``.
    """
    out = torch.empty((), device=first.device)
    calls: dict[Access, tuple[Call, int]] = {
        "read": (lambda: torch.sum(first, dim=0, out=out), 1),
        "write": (lambda: target.fill_(1.0), 1),
        "copy": (lambda: target.copy_(first), 2),
        "triad": (lambda: torch.add(first, second, alpha=3.0, out=target), 3),
    }
    call, arrays = calls[access]
    return call, arrays * first.nbytes


def repeated_read(source: torch.Tensor, times: int) -> tuple[Call, int]:
    """Sum ``source`` ``times`` times in one kernel: the call and the bytes it reads.

    The tensor is expanded without being copied, so that every row is the same memory. With a source that fits
    into the L2 cache but not into the L1 caches this reads from L2, for long enough that the launch does not
    matter.
    """
    rows = source.expand(times, source.numel())
    out = torch.empty(times, device=source.device)
    return lambda: torch.sum(rows, dim=1, out=out), times * source.nbytes


def crossing(source: torch.Tensor, target: torch.Tensor) -> tuple[Call, int]:
    """Copy ``source`` to ``target``, which is on another device or on the host: the call and the bytes that
    cross.

    Returns before the copy has ended where both ends allow it, that is between devices and from and to pinned
    memory.
    """
    return lambda: target.copy_(source, non_blocking=True), source.nbytes
