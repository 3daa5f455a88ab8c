"""Sizes of tensors, read from the shapes of a row."""

from __future__ import annotations

import math
import re

from rooflines.roofline.analysis import OperatorRow, Unmodelled

_SHAPE = re.compile(r"\d+(?:x\d+)*")
_ITEM_BYTES = {"fp64": 8, "fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2}


def tensors(row: OperatorRow | Unmodelled) -> tuple[tuple[int, ...], ...]:
    """Return the sizes of the tensors of ``row``, as far as they were recorded."""
    return tuple(tuple(map(int, part.split("x"))) for part in row.shapes.split(", ") if _SHAPE.fullmatch(part))


def tensor_bytes(size: tuple[int, ...], precision: str | None) -> int:
    """Return the bytes of a tensor of ``size`` in ``precision``, fp32 where that is not known."""
    return math.prod(size) * _ITEM_BYTES.get(precision or "fp32", 4)
