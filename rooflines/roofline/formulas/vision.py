"""torchvision's own operators: boxes suppressed, regions of interest sampled or pooled, deformable convolutions.

What depends on where the boxes are is counted by what is certain: a region with an adaptive number of samples takes one for each bin,
a pooled bin has one pixel, and non-maximum suppression compares the boxes that it keeps with each other and each one that it drops with
the one that overlaps it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Final

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.formulas.arguments import Arguments, size, size_of, written
from rooflines.roofline.formulas.gather import selected
from rooflines.roofline.formulas.record import Work, matrix_precision_of, precision_of
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


# Regions of interest. ``height`` and ``width`` of the bins come after the scale; ``ratio`` samples lie along each side of a bin.


def _bins(args: Arguments) -> int:
    """Bins of all regions."""
    rois = args.tensor("rois")
    return (rois.shape[0] if rois.shape else 0) * args.integer("height") * args.integer("width")


def _samples(args: Arguments) -> int:
    """Samples of a bin: ``ratio`` squared; where it is adaptive, one is certain."""
    return max(args.integer("ratio"), 1) ** 2


def _depth(inputs: TensorArg, args: Arguments, by_position: bool) -> int:
    """Channels of a result; position-sensitive pooling deals those of the input out to the bins."""
    return inputs.shape[1] // (args.integer("height") * args.integer("width")) if by_position else inputs.shape[1]


def _align(signature: Signature, schema: str, by_position: bool) -> Work:
    """[n, c, h, w] and boxes [k, 5] -> [k, c, height, width]: the mean of bilinear samples; which channel each value is of, where they
    are dealt out to the bins."""
    args = Arguments(signature, schema)
    inputs, rois = args.tensor("self"), args.tensor("rois")
    bins, samples = _bins(args), _samples(args)
    results = bins * _depth(inputs, args, by_position)
    return Work(
        other_flops=results * (2 * CORNERS * samples + 1) + bins * samples * point_cost(2),
        bytes_read=selected(inputs, results * samples * CORNERS) + size(rois),
        bytes_written=results * (size_of(inputs.dtype) + (_MAPPING_BYTES if by_position else 0)),
        precision=precision_of(inputs.dtype),
    )


def _pool(signature: Signature, by_position: bool) -> Work:
    """The maximum of each bin and where it was, or the mean and of which channel: one pixel of a bin is certain."""
    args = Arguments(signature, "self rois scale height width")
    inputs, rois = args.tensor("self"), args.tensor("rois")
    results = _bins(args) * _depth(inputs, args, by_position)
    return Work(
        other_flops=results,
        bytes_read=selected(inputs, results) + size(rois),
        bytes_written=results * (size_of(inputs.dtype) + _MAPPING_BYTES),
        precision=precision_of(inputs.dtype),
    )


def _region_backward(signature: Signature, schema: str, bilinear: bool) -> Work:
    """Gradients [k, c, height, width] divided among the pixels that each came from, in an image of zeros."""
    args = Arguments(signature, schema)
    grad, rois = args.tensor("grad"), args.tensor("rois")
    samples = _samples(args) if bilinear else 1
    each = 2 * CORNERS * samples + 1 if bilinear else 1
    image = prod(args.integer(name) for name in ("batch", "channels", "rows", "columns"))
    return Work(
        other_flops=grad.numel * each + (_bins(args) * samples * point_cost(2) if bilinear else 0),
        bytes_read=size(grad, rois, args.optional("mapping")),
        bytes_written=image * size_of(grad.dtype),
        precision=precision_of(grad.dtype),
    )


_ALIGN: Final = "self rois scale height width ratio"
_QUANTIZED_ALIGN: Final = "self rois in_scale in_zero rois_scale rois_zero scale height width ratio"
_IMAGE: Final = "batch channels rows columns"

formula("torchvision::roi_align", category="copy")(partial(_align, schema=_ALIGN, by_position=False))
formula("torchvision::qroi_align", category="copy")(partial(_align, schema=_QUANTIZED_ALIGN, by_position=False))
formula("torchvision::ps_roi_align", category="copy")(partial(_align, schema=_ALIGN, by_position=True))
formula("torchvision::roi_pool", category="reduction")(partial(_pool, by_position=False))
formula("torchvision::ps_roi_pool", category="reduction")(partial(_pool, by_position=True))
for _name, _schema, _bilinear in (
    ("_roi_align_backward", f"grad rois scale height width {_IMAGE} ratio", True),
    ("_ps_roi_align_backward", f"grad rois mapping scale height width ratio {_IMAGE}", True),
    ("_roi_pool_backward", f"grad rois mapping scale height width {_IMAGE}", False),
    ("_ps_roi_pool_backward", f"grad rois mapping scale height width {_IMAGE}", False),
):
    formula(f"torchvision::{_name}", category="copy" if _bilinear else "reduction")(
        partial(_region_backward, schema=_schema, bilinear=_bilinear)
    )


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
