"""torchvision's own operators: boxes suppressed, regions of interest sampled or pooled, deformable convolutions.

What depends on where the boxes are is counted by what is certain: a region with an adaptive number of samples takes one for each bin,
a pooled bin has one pixel, and non-maximum suppression compares the boxes that it keeps with each other and each one that it drops with
the one that overlaps it.
"""

from __future__ import annotations

from typing import Final

from rooflines.roofline.formulas.resample import point_cost
from rooflines.roofline.formulas.rows import Row

CORNERS: Final = 4  # taps of a bilinear sample


# Deformable convolution: a convolution whose taps are bilinear samples at learned offsets, weighted by a mask where there is one. Input
# [n, c, h, w], weight [o, c / groups, kh, kw], offset [n, 2 * offset groups * kh * kw, oh, ow], mask half as many.
_POINT: Final = point_cost(2, position=1)  # its place in the window plus the offset
_PLACES: Final = "places = n * oh * ow; samples = places * c * kh * kw"


def deformable(schema: str, masked: str, bias: str = "bool(bias)") -> Row:
    """The samples, their product with the weight, and a bias. ``masked`` says whether the tensor ``mask`` weighs the samples."""
    return Row(
        schema, where=_PLACES, matrix="2 * places * weight.n", writes="places * o * self.item", precision="self",
        other=f"samples * ({2 * CORNERS} + {masked}) + offset.n // 2 * {_POINT} + places * o * {bias}",
        also=f"mask.size if {masked} else 0",
    )  # fmt: skip


def deformable_gradients(schema: str, masked: str, results: str) -> Row:
    """Two products, for the gradient of the samples and that of the weight. The samples are taken again for the latter; their gradient
    is added to its corners, and weighs what moving the point, and the mask, would change. ``results`` have the shapes of what is
    written besides the gradients of input, weight and offset."""
    return Row(
        schema, where=_PLACES, matrix="4 * places * weight.n", result=f"self weight offset {results}", precision="grad",
        other=f"samples * ({4 * CORNERS + CORNERS * (1 + 2 * 2)} + 4 * {masked}) + offset.n // 2 * {_POINT} + places * o",
        also=f"mask.size if {masked} else 0",
    )  # fmt: skip
