"""A step in two streams, which does not wait for the second one: events in the first stream do not see all of its time."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch

SIDES = {"cuda": 4096, "cpu": 64}  # of the square matrices
# Products in the stream of the step and in the other one.
HERE, THERE = 2, 6


def two_streams(device: torch.device) -> Callable[[], None]:
    """A step of ``HERE + THERE`` matrix products; on a CPU, which has no streams, one after another."""
    side = SIDES[device.type]
    left, right = (torch.randn(side, side, device=device) for _ in range(2))
    here, there = torch.empty_like(left), torch.empty_like(left)
    other: Any = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]

    def step() -> None:
        if other is not None:
            other.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(other) if other is not None else contextlib.nullcontext():
            for _ in range(THERE):
                torch.mm(left, right, out=there)
        for _ in range(HERE):
            torch.mm(left, right, out=here)

    return step


def flops(kind: str) -> int:
    """The FLOPs of a step on a device of this ``kind``."""
    side: int = SIDES[kind]
    return (HERE + THERE) * 2 * side**3
