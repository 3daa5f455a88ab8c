"""How many products Winograd's algorithm saves a convolution on vector units."""

from __future__ import annotations

import math
import re

from rooflines.roofline.predict.forecast import Operator

# The outputs of a tile in each dimension: larger ones lose too many digits of fp32.
_TILE = 4
_OPERANDS = re.compile(r"([\dx]+), ([\dx]+)(?:, ([\dx]+))?")


def products_saved(one: Operator) -> float:
    """The products of a direct convolution for each of Winograd's algorithm, whose tiles of 4 outputs take 4
    + k - 1 products in each dimension of a window of k, where windows move by one position; 1 for any other
    operator.

    Source: Lavin, Gray, "Fast Algorithms for Convolutional Neural Networks", arXiv 1509.09308, section 4.
    """
    found = _OPERANDS.match(one.shapes) if one.category == "convolution" else None
    if found is None:
        return 1.0
    first, second, third = (
        [int(size) for size in (text or "").split("x") if size] for text in found.groups()
    )
    of_gradient = "backward" in one.name
    inputs, weight = (second, third) if of_gradient else (first, second)
    outputs = math.prod(first[2:])
    if not of_gradient:
        outputs = one.work.matrix_flops // (2 * first[0] * math.prod(weight) or 1)
    # Windows that move by one position have about as many outputs as there are inputs.
    if 2 * outputs <= math.prod(inputs[2:]):
        return 1.0
    return math.prod(_TILE * window / (_TILE + window - 1) for window in weight[2:])
