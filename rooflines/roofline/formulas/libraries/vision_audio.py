"""Deformable convolutions and attention, autograd functions of detectron2, MMCV and Deformable DETR with no operator inside, and
torchaudio's operators: the loss of transducers, alignment to a text, and recursive filters.
"""

from __future__ import annotations

from typing import Final

from rooflines.profiler.trace.signature import Signature
from rooflines.roofline.formulas.arguments import Arguments, NotCounted
from rooflines.roofline.formulas.nodes import parts
from rooflines.roofline.formulas.record import Work
from rooflines.roofline.formulas.registry import formula
from rooflines.roofline.formulas.resample import point_cost
from rooflines.roofline.formulas.tables import table
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
_SAMPLE: Final = 2 * CORNERS + 2
_POINTS: Final = "points[batch queries heads levels taps two]"
_READ: Final = f"selected(values, weights.n * d * {CORNERS}) + shapes.size + starts.size + points.size + weights.size"


table(f"""
[attention functions]
# Bilinear samples of ``values`` [b, places, h, d] at ``points`` [b, queries, h, levels, points, 2], each with a weight.
{" ".join(_ATTENTION)}: read values[b places h d], read shapes, read starts, read {_POINTS}, read weights;
    other = weights.n * (d * {_SAMPLE} + {point_cost(2)}); reads = {_READ}; writes = batch * queries * heads * d * values.item
# The samples again: for the gradient of a weight their product with the gradient, which goes to each sample's corners, and for that
# of a point what moving it would change.
{" ".join(f"{name}Backward" for name in _ATTENTION)}: read grad, update values[b places h d], read shapes, read starts,
    update {_POINTS}, update weights;
    other = weights.n * (d * {_SAMPLE + 2 * CORNERS + 1 + CORNERS * (1 + 2 * 2)} + {point_cost(2)}); reads = grad.size + {_READ};
    precision = values
[other]
# Logits [b, times, targets + 1, classes]: the sum of each row's exponentials, the sums of all paths to and from each place, and as
# the gradient exp of the logit and both sums, less that of the step taken.
torchaudio::rnnt_loss torchaudio::rnnt_loss_forward: read logits[b *places classes], read targets, read logit_lengths,
    read target_lengths -> logits; other = logits.n * (2 * TRANSCENDENTAL + 5) + b * places * 2 * (LOG_ADD + 2);
    writes = b * logits.item; assumption = all sequences are as long as the longest; given = b > 1
# The best path through the symbols and the blanks between them, of all times [b, times, classes]: which of three came before, and
# the largest sum, which is subtracted.
torchaudio::forced_align: read log_probs[b times classes], read targets[*rows symbols]; other = b * times * (2 * symbols + 1) * 5;
    reads = min(log_probs.n, b * times * (symbols + 1)) * log_probs.item + targets.size; writes = b * times * targets.item
# [b, channels, samples], each less its predecessors times coefficients [channels, order].
torchaudio::_lfilter_core_loop: read input, read coefficients[*channels order] -> input; other = input.n * 2 * (order - 1)
""")
