"""Distances between the rows of matrices, forward and backward. p = 2 is a square and an addition, other norms by ``norm_cost``."""

from __future__ import annotations

from typing import Final

from rooflines.profiler.trace.signature import Argument
from rooflines.roofline.formulas import costs
from rooflines.roofline.formulas.rows import Row, named, register


@named
def gradient_cost(order: Argument) -> int:
    """FLOPs of one coordinate's share of a distance's gradient: subtract, times gradient over distance, add; other powers too."""
    return 4 if order in (0, 1, 2) or costs.norm_cost(order) == costs.norm_cost(2) else costs.POW + 4


_COST: Final = "(1 + norm_cost(known('p')))"
# [.., p, m], [.., r, m]: pairs of rows over all batches.
_PAIRS: Final = "pairs = batches(x1, x2) * x1[-2] * x2[-2]"
# The distances themselves are needed unless they are sums of absolute values.
_NEEDED: Final = "(distances.size if value('p') != 1 else 0)"
_DISTANCES: Final[dict[str, Row]] = {
    # the norm of the difference of two tensors: one number
    "dist": Row("read self, read other, p=2", other=f"joined(self, other) * {_COST}", writes="self.item"),
    # every row of one matrix against every row of the other, by subtraction
    "_cdist_forward": Row("read x1, read x2, p", where=_PAIRS, other=f"pairs * x1[-1] * {_COST}", writes="pairs * x1.item"),
    # the gradient of the first matrix
    "_cdist_backward": Row(
        "read grad, read x1, read x2, p, view distances", where=_PAIRS,
        other="pairs * x1[-1] * gradient_cost(known('p'))", reads=f"grad.size + x1.size + x2.size + {_NEEDED}",
        writes="batches(x1, x2) * x1[-2] * x1[-1] * x1.item", precision="x1",
    ),
    # [n, m]: every row against every later one
    "_pdist_forward": Row(
        "read self[n m], p=2", where="pairs = n * (n - 1) // 2", other=f"pairs * m * {_COST}", writes="pairs * self.item"
    ),
    # each pair's gradient, to one row added and from the other subtracted
    "_pdist_backward": Row(
        "read grad, read self, p, view distances", other="grad.n * self[-1] * (gradient_cost(known('p')) + 1)",
        reads=f"grad.size + self.size + {_NEEDED}", result="self", precision="self",
    ),
}  # fmt: skip
register(_DISTANCES, "reduction", namespace="aten::")
register({
    # sqrt(|x|² - 2 x·y + |y|²) as one product of [.., p, m + 2] and [.., m + 2, r]; the squares, the smallest 0, the root besides
    "_euclidean_dist": Row(
        "read x1, read x2", where=_PAIRS, matrix="2 * pairs * (x1[-1] + 2)",
        other="3 * x1.n + 2 * x2.n + 2 * pairs", writes="pairs * x1.item",
    ),
}, "matmul", namespace="aten::")  # fmt: skip
