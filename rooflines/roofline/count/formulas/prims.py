"""Operators that only torch.compile has: what inductor puts in the place of others before it generates
kernels."""

from __future__ import annotations

from rooflines.profiler.read.signature import Argument
from rooflines.roofline.count.formulas.arguments import NotCounted
from rooflines.roofline.count.formulas.random import RANDOM
from rooflines.roofline.count.formulas.rows import named

_MODES = {"rand": RANDOM["uniform"], "randn": RANDOM["normal"]}


@named
def drawing(mode: Argument) -> int:
    """FLOPs of a random number."""
    if mode not in _MODES:
        raise NotCounted(f"unknown random number distribution ('{mode}')")
    return _MODES[mode]
