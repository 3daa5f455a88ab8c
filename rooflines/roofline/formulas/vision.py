"""torchvision's own operators: boxes suppressed, regions of interest sampled or pooled, deformable convolutions.

What depends on where the boxes are is counted by what is certain: a region with an adaptive number of samples takes one for each bin,
a pooled bin has one pixel, and non-maximum suppression compares the boxes that it keeps with each other and each one that it drops with
the one that overlaps it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Final

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.formulas.arguments import Arguments, size, size_of, written
from rooflines.roofline.formulas.record import Work, matrix_precision_of
from rooflines.roofline.formulas.registry import formula
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


# Deformable convolution: a convolution whose taps are bilinear samples at learned offsets, weighted by a mask where there is one.
_GEOMETRY: Final = "stride_h stride_w pad_h pad_w dilation_h dilation_w groups offset_groups use_mask"
_POINT: Final = point_cost(2, position=1)  # its place in the window plus the offset


@dataclass(frozen=True, slots=True)
class Deformable:
    """Input [n, c, h, w], weight [o, c / groups, kh, kw], offset [n, 2 * offset groups * kh * kw, oh, ow], mask half as many."""

    inputs: TensorArg
    weight: TensorArg
    offset: TensorArg
    mask: TensorArg | None

    @property
    def positions(self) -> int:
        """Places where the kernel is applied."""
        return self.offset.shape[0] * prod(self.offset.shape[2:])

    @property
    def samples(self) -> int:
        """Bilinear samples, of all channels."""
        return self.positions * self.inputs.shape[1] * prod(self.weight.shape[2:])

    @property
    def read(self) -> tuple[TensorArg | None, ...]:
        """All tensors."""
        return self.inputs, self.weight, self.offset, self.mask


def deformable_work(one: Deformable, bias: TensorArg | None) -> Work:
    """The samples, their product with the weight, and a bias."""
    outputs = one.positions * one.weight.shape[0]
    return Work(
        matrix_flops=2 * one.positions * one.weight.numel,
        other_flops=one.samples * (2 * CORNERS + (one.mask is not None))
        + one.offset.numel // 2 * _POINT
        + outputs * (bias is not None),
        bytes_read=size(*one.read, bias),
        bytes_written=outputs * size_of(one.inputs.dtype),
        precision=matrix_precision_of(one.inputs.dtype),
    )


def deformable_gradient_work(one: Deformable, grad: TensorArg, *gradients: TensorArg | None) -> Work:
    """Two products, for the gradient of the samples and that of the weight. The samples are taken again for the latter; their gradient
    is added to its corners, and weighs what moving the point, and the mask, would change. ``gradients`` have the shapes of what is
    written besides those of input, weight and offset."""
    masked = one.mask is not None
    again, scattered = 2 * CORNERS + masked, 2 * CORNERS + masked
    moved = CORNERS * (1 + 2 * 2) + 2 * masked
    return Work(
        matrix_flops=2 * 2 * one.positions * one.weight.numel,
        other_flops=one.samples * (again + scattered + moved) + one.offset.numel // 2 * _POINT + one.positions * one.weight.shape[0],
        bytes_read=size(grad, *one.read),
        bytes_written=written(*one.read[:3], *gradients),
        precision=matrix_precision_of(grad.dtype),
    )


def _deformable(args: Arguments) -> Deformable:
    mask = args.tensor("mask") if args.flag("use_mask") else None
    return Deformable(args.tensor("self"), args.tensor("weight"), args.tensor("offset"), mask)


@formula("torchvision::deform_conv2d", category="convolution")
def _deformable_convolution(signature: Signature) -> Work:
    args = Arguments(signature, f"self weight offset mask bias {_GEOMETRY}")
    return deformable_work(_deformable(args), args.optional("bias"))


@formula("torchvision::_deform_conv2d_backward", category="convolution")
def _deformable_backward(signature: Signature) -> Work:
    args = Arguments(signature, f"grad self weight offset mask bias {_GEOMETRY}")
    return deformable_gradient_work(_deformable(args), args.tensor("grad"), args.tensor("mask"), args.tensor("bias"))
