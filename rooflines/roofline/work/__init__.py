"""Operator signature -> FLOPs and compulsory bytes, in plain integers. ``docs/counting.md`` states the conventions."""

from rooflines.roofline.work import (  # noqa: F401 (importing a family registers its formulas)
    attention,
    convolution,
    elementwise,
    loss,
    matmul,
    movement,
    normalization,
    optimizer,
    pooling,
    reduction,
)
from rooflines.roofline.work.record import Work
from rooflines.roofline.work.table import Count, count, formula

__all__ = ["Count", "Work", "count", "formula"]
