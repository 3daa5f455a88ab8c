"""Distances between the rows of matrices, forward and backward. p = 2 is a square and an addition, other
norms by ``norm_cost``."""

from __future__ import annotations

from rooflines.profiler.read.signature import Argument
from rooflines.roofline.count.formulas import costs
from rooflines.roofline.count.formulas.rows import named


@named
def gradient_cost(order: Argument) -> int:
    """FLOPs of one coordinate's share of a distance's gradient: subtract, times gradient over distance, add;
    other powers too."""
    return 4 if order in (0, 1, 2) or costs.norm_cost(order) == costs.norm_cost(2) else costs.POW + 4
