"""Deformable convolutions and attention, autograd functions of detectron2, MMCV and Deformable DETR with no operator inside, and
torchaudio's operators: the loss of transducers, alignment to a text, and recursive filters.
"""

from __future__ import annotations

from typing import Final

from rooflines.roofline.formulas.nodes import with_gradient
from rooflines.roofline.formulas.resample import point_cost
from rooflines.roofline.formulas.rows import Row, register
from rooflines.roofline.formulas.vision import CORNERS, deformable, deformable_gradients

_OPERANDS: Final = "read self[n c h w], read offset[n shifts oh ow], read weight[o g kh kw]"
_MASKED: Final = "read self[n c h w], read offset[n shifts oh ow], view mask, read weight[o g kh kw]"
_PLAIN: Final = ("_DeformConv", "DeformConv2dFunction")
_MODULATED: Final = ("_ModulatedDeformConv", "ModulatedDeformConv2dFunction")
register({
    " ".join(_PLAIN): deformable(_OPERANDS, "0", bias="0"),
    " ".join(_MODULATED): deformable(f"{_MASKED}, read bias?", "1"),
}, "convolution")  # fmt: skip
register({
    "Backward ".join((*_PLAIN, "")).strip(): deformable_gradients(f"read grad, {_OPERANDS}", "0", ""),
    "Backward ".join((*_MODULATED, "")).strip(): deformable_gradients(f"read grad, {_MASKED}, view bias?", "1", "mask bias"),
}, "convolution", given=with_gradient)  # fmt: skip

_ATTENTION: Final = ("MultiScaleDeformableAttnFunction", "MultiScaleDeformableAttentionFunction", "MSDeformAttnFunction")
_SAMPLE: Final = 2 * CORNERS + 2
_POINTS: Final = "points[batch queries heads levels taps two]"
_READ: Final = f"selected(values, weights.n * d * {CORNERS}) + shapes.size + starts.size + points.size + weights.size"
_SAMPLED: Final[dict[str, Row]] = {
    # Bilinear samples of ``values`` [b, places, h, d] at ``points`` [b, queries, h, levels, points, 2], each with a weight.
    " ".join(_ATTENTION): Row(
        f"read values[b places h d], read shapes, read starts, read {_POINTS}, read weights",
        other=f"weights.n * (d * {_SAMPLE} + {point_cost(2)})",
        reads=_READ,
        writes="batch * queries * heads * d * values.item",
    ),
    # The samples again: for the gradient of a weight their product with the gradient, which goes to each sample's corners, and for that
    # of a point what moving it would change.
    " ".join(f"{name}Backward" for name in _ATTENTION): Row(
        f"read grad, update values[b places h d], read shapes, read starts, update {_POINTS}, update weights",
        other=f"weights.n * (d * {_SAMPLE + 2 * CORNERS + 1 + CORNERS * (1 + 2 * 2)} + {point_cost(2)})",
        reads=f"grad.size + {_READ}",
        precision="values",
    ),
}
register(_SAMPLED, "attention", functions=True)

LONGEST: Final = "all sequences are as long as the longest"

_ROWS: Final[dict[str, Row]] = {
    # Logits [b, times, targets + 1, classes]: the sum of each row's exponentials, the sums of all paths to and from each place, and as
    # the gradient exp of the logit and both sums, less that of the step taken.
    "torchaudio::rnnt_loss torchaudio::rnnt_loss_forward": Row(
        "read logits[b *places classes], read targets, read logit_lengths, read target_lengths",
        other="logits.n * (2 * TRANSCENDENTAL + 5) + b * places * 2 * (LOG_ADD + 2)",
        result="logits",
        writes="b * logits.item",
        assumption=LONGEST,
        given="b > 1",
    ),
    # The best path through the symbols and the blanks between them, of all times [b, times, classes]: which of three came before, and
    # the largest sum, which is subtracted.
    "torchaudio::forced_align": Row(
        "read log_probs[b times classes], read targets[*rows symbols]",
        other="b * times * (2 * symbols + 1) * 5",
        reads="min(log_probs.n, b * times * (symbols + 1)) * log_probs.item + targets.size",
        writes="b * times * targets.item",
    ),
    # [b, channels, samples], each less its predecessors times coefficients [channels, order].
    "torchaudio::_lfilter_core_loop": Row(
        "read input, read coefficients[*channels order]", other="input.n * 2 * (order - 1)", result="input"
    ),
}
register(_ROWS, "other")
