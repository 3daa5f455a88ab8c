"""Deformable convolutions and attention: autograd functions of detectron2, MMCV and Deformable DETR, with no operator inside.

Order of arguments: facebookresearch/detectron2 02b5c4e2 (detectron2/layers/deform_conv.py), open-mmlab/mmcv 0093647 (mmcv/ops),
fundamentalvision/Deformable-DETR (models/ops/functions/ms_deform_attn_func.py), whose function Mask2Former and transformers copy.
"""

from __future__ import annotations

from math import prod
from typing import Final

from rooflines.profiler.trace.signature import Signature
from rooflines.roofline.formulas.arguments import Arguments, NotCounted, size, size_of, written
from rooflines.roofline.formulas.gather import selected
from rooflines.roofline.formulas.nodes import parts
from rooflines.roofline.formulas.record import Work, precision_of
from rooflines.roofline.formulas.resample import point_cost
from rooflines.roofline.formulas.table import formula
from rooflines.roofline.formulas.vision import CORNERS, Deformable, deformable_gradient_work, deformable_work

_CONVOLUTIONS: Final = {
    "_DeformConv": "self offset weight",
    "DeformConv2dFunction": "self offset weight",
    "_ModulatedDeformConv": "self offset mask weight bias=None",
    "ModulatedDeformConv2dFunction": "self offset mask weight bias=None",
}


def _convolution(call: Signature, name: str) -> tuple[Deformable, Arguments]:
    args = Arguments(call, _CONVOLUTIONS[name])
    mask = args.tensor("mask") if args.has("mask") else None
    found = Deformable(args.tensor("self"), args.tensor("weight"), args.tensor("offset"), mask)
    if any(len(tensor.shape) != 4 for tensor in found.read if tensor is not None):
        raise NotCounted("arguments of another version of this operator")
    return found, args


@formula(*_CONVOLUTIONS, category="convolution")
def _forward(signature: Signature) -> Work:
    found, args = _convolution(signature, signature.name)
    return deformable_work(found, args.optional("bias"))


@formula(*(f"{name}Backward" for name in _CONVOLUTIONS), category="convolution")
def _backward(signature: Signature) -> Work:
    gradients, call = parts(signature)
    found, args = _convolution(call, signature.name.removesuffix("Backward"))
    return deformable_gradient_work(found, gradients[0], found.mask, args.optional("bias"))


_ATTENTION: Final = ("MultiScaleDeformableAttnFunction", "MultiScaleDeformableAttentionFunction", "MSDeformAttnFunction")


@formula(*_ATTENTION, *(f"{name}Backward" for name in _ATTENTION), category="attention")
def _attention(signature: Signature) -> Work:
    """Bilinear samples of ``values`` [b, places, h, d] at ``points`` [b, queries, h, levels, points, 2], each with a weight.

    The backward pass takes the samples again: for the gradient of a weight their product with the gradient, which goes to each sample's
    corners, and for that of a point what moving it would change.
    """
    back = signature.name.endswith("Backward")
    gradients, call = parts(signature) if back else ((), signature)
    args = Arguments(call, "values shapes starts points weights")
    values, points, weights = args.tensor("values"), args.tensor("points"), args.tensor("weights")
    if len(values.shape) != 4 or len(points.shape) != 6:
        raise NotCounted("arguments of another version of this operator")
    elements = weights.numel * values.shape[-1]
    sampled = 2 * CORNERS + 2
    moved = CORNERS * (1 + 2 * 2)
    results = prod(points.shape[:3]) * values.shape[-1]
    return Work(
        other_flops=elements * (sampled + (2 * CORNERS + 1 + moved) * back) + weights.numel * point_cost(2),
        bytes_read=selected(values, elements * CORNERS)
        + size(args.optional("shapes"), args.optional("starts"), points, weights, *gradients[:1]),
        bytes_written=written(values, points, weights) if back else results * size_of(values.dtype),
        precision=precision_of(values.dtype),
    )
