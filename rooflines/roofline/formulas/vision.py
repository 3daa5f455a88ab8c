"""torchvision's own operators: boxes suppressed, regions of interest sampled or pooled, deformable convolutions.

What depends on where the boxes are is counted by what is certain: a region with an adaptive number of samples takes one for each bin,
a pooled bin has one pixel, and non-maximum suppression compares the boxes that it keeps with each other and each one that it drops with
the one that overlaps it.
"""

from __future__ import annotations

from typing import Final

from rooflines.roofline.formulas.resample import point_cost
from rooflines.roofline.formulas.rows import Row, register

_MAPPING_BYTES: Final = 4  # where a pooled value came from, as int32
CORNERS: Final = 4  # taps of a bilinear sample


# Boxes [n, 4], scores [n] -> indices of the k boxes kept. Scores sorted, areas, then k (k - 1) / 2 + n - k overlaps at least.
_KEPT: Final = "returned('number of boxes kept not recorded')"
_SUPPRESSION: Final = Row(
    "read boxes, read scores", where=f"kept = min({_KEPT} // 8, scores.n); overlaps = kept * (kept - 1) // 2 + scores.n - kept",
    other="scores.n * (compares(scores.n) + 3) + overlaps * OVERLAP", writes=_KEPT,
)  # fmt: skip
register({"torchvision::nms torchvision::qnms": _SUPPRESSION}, "reduction")


# Regions of interest: [n, c, h, w] and boxes [k, 5] -> [k, c, height, width]. ``ratio`` samples lie along each side of a bin; one is
# certain where that is adaptive. Position-sensitive pooling deals the channels of the input out to the bins, and keeps which channel
# each value is of.
_BINS: Final = "bins = (rois[0] if rois.rank else 0) * height * width; samples = max(ratio, 1) ** 2"
_ONE_SAMPLE: Final = "bins = (rois[0] if rois.rank else 0) * height * width"
_DEALT: Final = "made = bins * (self[1] // (height * width))"


def _aligned(schema: str, made: str, kept: int) -> Row:
    """The mean of bilinear samples."""
    return Row(
        schema, where=f"{_BINS}; {made}", other=f"made * ({2 * CORNERS} * samples + 1) + bins * samples * {point_cost(2)}",
        reads=f"selected(self, made * samples * {CORNERS}) + rois.size", writes=f"made * (self.item + {kept})", precision="self",
    )  # fmt: skip


def _pooled(made: str) -> Row:
    """The maximum of each bin and where it was, or the mean and of which channel: one pixel of a bin is certain."""
    return Row(
        "view self, read rois, scale, height, width", where=f"{_ONE_SAMPLE}; {made}", other="made",
        reads="selected(self, made) + rois.size", writes=f"made * (self.item + {_MAPPING_BYTES})", precision="self",
    )  # fmt: skip


def _gradient(schema: str, each: str = "1", where: str = "") -> Row:
    """Gradients [k, c, height, width] divided among the pixels that each came from, in an image of zeros."""
    image = "batch * channels * rows * columns * grad.item"
    besides = f" + bins * samples * {point_cost(2)}" if where else ""
    return Row(f"read grad, read rois, {schema}", where=where, other=f"grad.n * ({each}){besides}", writes=image)


_ALIGN: Final = "view self, read rois, scale, height, width, ratio"
_QUANTIZED_ALIGN: Final = "view self, read rois, in_scale, in_zero, rois_scale, rois_zero, scale, height, width, ratio"
_IMAGE: Final = "batch, channels, rows, columns"
_SAMPLED: Final = f"{2 * CORNERS} * samples + 1"
_ALIGNMENTS: Final[dict[str, Row]] = {
    "roi_align": _aligned(_ALIGN, "made = bins * self[1]", 0),
    "qroi_align": _aligned(_QUANTIZED_ALIGN, "made = bins * self[1]", 0),
    "ps_roi_align": _aligned(_ALIGN, _DEALT, _MAPPING_BYTES),
    "_roi_align_backward": _gradient(f"scale, height, width, {_IMAGE}, ratio", _SAMPLED, _BINS),
    "_ps_roi_align_backward": _gradient(f"read mapping?, scale, height, width, ratio, {_IMAGE}", _SAMPLED, _BINS),
}
_POOLS: Final[dict[str, Row]] = {
    "roi_pool": _pooled("made = bins * self[1]"),
    "ps_roi_pool": _pooled(_DEALT),
    "_roi_pool_backward _ps_roi_pool_backward": _gradient(f"read mapping?, scale, height, width, {_IMAGE}"),
}
register(_ALIGNMENTS, "copy", namespace="torchvision::")
register(_POOLS, "reduction", namespace="torchvision::")


# Deformable convolution: a convolution whose taps are bilinear samples at learned offsets, weighted by a mask where there is one. Input
# [n, c, h, w], weight [o, c / groups, kh, kw], offset [n, 2 * offset groups * kh * kw, oh, ow], mask half as many.
_POINT: Final = point_cost(2, position=1)  # its place in the window plus the offset
_PLACES: Final = "places = n * oh * ow; samples = places * c * kh * kw"
_OPERANDS: Final = "read self[n c h w], read weight[o g kh kw], read offset[n shifts oh ow]"


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


_DEFORMED: Final = f"{_OPERANDS}, view mask"
_GEOMETRY: Final = "stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w, groups, offset_groups, use_mask"
_DEFORMABLE: Final[dict[str, Row]] = {
    "deform_conv2d": deformable(f"{_DEFORMED}, read bias?, {_GEOMETRY}", "use_mask"),
    "_deform_conv2d_backward": deformable_gradients(f"read grad, {_DEFORMED}, view bias, {_GEOMETRY}", "use_mask", "mask bias"),
}
register(_DEFORMABLE, "convolution", namespace="torchvision::")
