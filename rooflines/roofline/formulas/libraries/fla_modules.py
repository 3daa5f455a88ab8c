"""Norms, rotary embeddings and losses of flash-linear-attention, flash-attn and Unsloth: autograd functions around Triton kernels.

Order of arguments: fla-org/flash-linear-attention bc3b101 (fla/modules/layernorm.py, fused_norm_gate.py, l2norm.py, rotary.py,
fused_linear_cross_entropy.py), Dao-AILab/flash-attention 0251105 (flash_attn/layers/rotary.py), Dao-AILab/quack c8ec317
(quack/rmsnorm.py), unslothai/unsloth 015bdef (unsloth/kernels/rms_layernorm.py, layernorm.py, rope_embedding.py). Losses whose
gradient is computed in the backward are in ``apex.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from rooflines.profiler.trace.signature import Signature
from rooflines.roofline.formulas import costs
from rooflines.roofline.formulas.arguments import NotCounted, floating, size, written
from rooflines.roofline.formulas.libraries.norms import KIND, norm_backward, norm_forward, norm_of, register_norms
from rooflines.roofline.formulas.matmul import product_flops
from rooflines.roofline.formulas.nodes import gradients_and_forward
from rooflines.roofline.formulas.record import Work, matrix_precision_of, precision_of
from rooflines.roofline.formulas.registry import dispatches, formula
from rooflines.roofline.formulas.rows import Row, register

# --- norms -------------------------------------------------------------------------------------------------------------------------

_SILU: Final = "a gate of SiLU, because the name of the activation is not recorded"

register_norms("LayerNormFunction", "RMSNormFunction", rms=None)


@formula("LayerNormGatedFunction", "LayerNormGatedFunctionBackward", category="normalisation")
def _gated_norm(signature: Signature) -> Work:
    """norm(x) * silu(gate) of x, the gate, a weight and a bias, a residual; the gradient of the gate needs the normalized input."""
    gradients, forward = gradients_and_forward(signature)
    tensors = forward.tensors
    if len(tensors) < 2 or tensors[0].numel != tensors[1].numel:
        raise NotCounted("shapes not recorded")
    gate, norm = tensors[1], norm_of((tensors[0], *tensors[2:]), None)
    assumption = f"{KIND}; {_SILU}"
    cost, results = (costs.SILU + 7, written(gate)) if gradients else (costs.SILU + 1, 0)
    gated = Work(0, gate.numel * cost, size(gate), results, precision_of(gate.dtype))
    return (norm_backward(norm, gradients, assumption) if gradients else norm_forward(norm, assumption=assumption)) + gated


_UNITS: Final[dict[str, Row]] = {
    # x / |x|, and 1 / |x| of each row for the backward.
    "L2NormFunction": Row("read x[*rows k]", costs.WEIGHT_NORM, "x", result="x", writes="4 * rows"),
    # (g - y * sum(g * y)) / |x|.
    "L2NormFunctionBackward": Row(
        "read grad[*rows k], x", costs.WEIGHT_NORM_BACKWARD, "grad", result="grad", reads="2 * grad.size + 4 * rows"
    ),
}
register(_UNITS, "normalisation", functions=True)


def _unsloth(signature: Signature, rms: bool) -> Work:
    """Back the gradient of the input alone; of the weight it would be a product and a sum, of the bias a sum."""
    gradients, forward = gradients_and_forward(signature)
    norm = norm_of(forward.tensors, rms)
    if not gradients:
        return norm_forward(norm)
    work, saved = norm_backward(norm, gradients), norm.inputs.numel * (2 if rms else 3)
    return replace(work, other_flops=work.other_flops - saved, bytes_written=written(norm.inputs))


for _name, _rms in {"Fast_RMS_Layernorm": True, "Fast_Layernorm": False}.items():
    formula(_name, f"{_name}Backward", category="normalisation")(partial(_unsloth, rms=_rms))

# --- rotary embeddings -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Rope:
    """``count`` tensors rotate, in place unless ``copies``; of packed ones [batch, steps, 2 or 3, heads, depth] those that are no
    values. ``twice`` says that the angle of a pair stands twice in a row of the tables."""

    count: int = 1
    copies: bool = False
    twice: bool = False
    packed: bool = False


_ROPES: Final[dict[str, _Rope]] = {
    "RotaryEmbeddingFunction": _Rope(copies=True),
    "ApplyRotaryEmb": _Rope(copies=True),
    "ApplyRotaryEmbQKV_": _Rope(packed=True),
    "ApplyRotaryEmbKV_": _Rope(packed=True),
    "Fast_RoPE_Embedding": _Rope(twice=True),
    "Fast_RoPE_Embedding_QK": _Rope(count=2, twice=True),
}


def _rotate(signature: Signature, rope: _Rope) -> Work:
    """x * cos - y * sin; a function that copies writes what does not turn as well, unless its fifth argument asks for ``inplace``."""
    gradients, forward = gradients_and_forward(signature)
    if gradients:
        forward = replace(forward, args=(*gradients[: rope.count], *forward.args[rope.count :]))
    tensors = forward.tensors
    if len(tensors) < rope.count + 2 or not tensors[rope.count].shape:
        raise NotCounted("shapes not recorded")
    rotating, angles = tensors[: rope.count], tensors[rope.count : rope.count + 2]
    turned = 0
    for one in rotating:
        if rope.packed and (len(one.shape) != 5 or one.shape[2] not in (2, 3)):
            raise NotCounted("number of heads that rotate not recorded")
        width = min(angles[0].shape[-1] * (1 if rope.twice else 2), one.shape[-1])
        turned += one.numel // one.shape[-1] * width * (one.shape[2] - 1 if rope.packed else 1) // (one.shape[2] if rope.packed else 1)
    copied = rope.copies and forward.arg(4, False) is not True
    moved = written(*rotating) if copied else turned * rotating[0].itemsize
    return Work(0, turned * costs.ROTARY_EMBEDDING, moved + size(*angles), moved, precision_of(rotating[0].dtype))


for _name, _rope in _ROPES.items():
    formula(_name, f"{_name}Backward", category="element-wise")(partial(_rotate, rope=_rope))

# --- losses ------------------------------------------------------------------------------------------------------------------------


@formula("FusedLinearCrossEntropyFunction", category="matmul")
def _linear_cross_entropy(signature: Signature) -> Work:
    """[tokens, hidden] @ [vocabulary, hidden]^T, the loss of it, and the gradients of both: the logits are never kept."""
    numbers = [one for one in signature.tensors if floating(one.dtype)]
    if len(numbers) < 2 or len(numbers[1].shape) != 2 or numbers[0].shape[-1] != numbers[1].shape[-1]:
        raise NotCounted("shapes not recorded")
    inputs, weight = numbers[:2]
    tokens, (vocabulary, hidden) = inputs.numel // max(inputs.shape[-1], 1), weight.shape
    return Work(
        matrix_flops=3 * product_flops(1, tokens, hidden, vocabulary),
        other_flops=tokens * vocabulary * (costs.SOFTMAX + 2),
        bytes_read=size(*signature.tensors),
        bytes_written=written(*numbers) + 4,
        precision=matrix_precision_of(inputs.dtype),
        assumption="gradients computed in the forward",
    )


# Whether the gradients are scaled depends on the value of the gradient that is given.
dispatches("FusedLinearCrossEntropyFunctionBackward", category="element-wise")
