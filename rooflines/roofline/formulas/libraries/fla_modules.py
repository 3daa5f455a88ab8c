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

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.formulas import costs
from rooflines.roofline.formulas.arguments import NotCounted, floating, size, written
from rooflines.roofline.formulas.libraries.norms import KIND, Norm, norm_backward, norm_forward, norm_of, register
from rooflines.roofline.formulas.matmul import product_flops
from rooflines.roofline.formulas.nodes import parts
from rooflines.roofline.formulas.record import Work, matrix_precision_of, precision_of
from rooflines.roofline.formulas.table import dispatches, formula

# --- norms -------------------------------------------------------------------------------------------------------------------------


_SILU: Final = "a gate of SiLU, because the name of the activation is not recorded"


register("LayerNormFunction", "RMSNormFunction", rms=None)


def _gated(signature: Signature) -> tuple[TensorArg, Norm]:
    """x, the gate, a weight and a bias, a residual: the gate and the norm without it."""
    tensors = signature.tensors
    if len(tensors) < 2 or tensors[0].numel != tensors[1].numel:
        raise NotCounted("shapes not recorded")
    return tensors[1], norm_of((tensors[0], *tensors[2:]), None)


@formula("LayerNormGatedFunction", category="normalisation")
def _gated_norm(signature: Signature) -> Work:
    """norm(x) * silu(gate)."""
    gate, norm = _gated(signature)
    gated = Work(0, gate.numel * (costs.SILU + 1), size(gate), 0, precision_of(gate.dtype))
    return norm_forward(norm, assumption=f"{KIND}; {_SILU}") + gated


@formula("LayerNormGatedFunctionBackward", category="normalisation")
def _gated_norm_gradient(signature: Signature) -> Work:
    """The normalized input once more, for the gradient of the gate."""
    gradients, forward = parts(signature)
    gate, norm = _gated(forward)
    gated = Work(0, gate.numel * (costs.SILU + 7), size(gate), written(gate), precision_of(gate.dtype))
    return norm_backward(norm, gradients, assumption=f"{KIND}; {_SILU}") + gated


@formula("L2NormFunction", category="normalisation")
def _unit(signature: Signature) -> Work:
    """x / |x|, and 1 / |x| of each row for the backward."""
    if not signature.tensors:
        raise NotCounted("shapes not recorded")
    inputs = signature.tensors[0]
    rows = inputs.numel // max(inputs.shape[-1], 1)
    return Work(0, inputs.numel * costs.WEIGHT_NORM, size(inputs), written(inputs) + 4 * rows, precision_of(inputs.dtype))


@formula("L2NormFunctionBackward", category="normalisation")
def _unit_gradient(signature: Signature) -> Work:
    """(g - y * sum(g * y)) / |x|."""
    (grad, *_), _ = parts(signature)
    rows = grad.numel // max(grad.shape[-1], 1)
    return Work(0, grad.numel * costs.WEIGHT_NORM_BACKWARD, 2 * size(grad) + 4 * rows, written(grad), precision_of(grad.dtype))


def _frozen(signature: Signature, rms: bool) -> Work:
    """Of Unsloth: the gradient of the input alone; of the weight it would be a product and a sum, of the bias a sum."""
    gradients, forward = parts(signature)
    norm = norm_of(forward.tensors, rms)
    work = norm_backward(norm, gradients)
    return replace(
        work, other_flops=work.other_flops - norm.inputs.numel * (2 if rms else 3), bytes_written=written(norm.inputs)
    )  # fmt: skip


def _affine(signature: Signature, rms: bool) -> Work:
    return norm_forward(norm_of(signature.tensors, rms))


for _name, _rms in {"Fast_RMS_Layernorm": True, "Fast_Layernorm": False}.items():
    formula(_name, category="normalisation")(partial(_affine, rms=_rms))
    formula(f"{_name}Backward", category="normalisation")(partial(_frozen, rms=_rms))

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
    tensors = signature.tensors
    if len(tensors) < rope.count + 2 or not tensors[rope.count].shape:
        raise NotCounted("shapes not recorded")
    rotating, angles = tensors[: rope.count], tensors[rope.count : rope.count + 2]
    turned = 0
    for one in rotating:
        if rope.packed and (len(one.shape) != 5 or one.shape[2] not in (2, 3)):
            raise NotCounted("number of heads that rotate not recorded")
        width = min(angles[0].shape[-1] * (1 if rope.twice else 2), one.shape[-1])
        turned += one.numel // one.shape[-1] * width * (one.shape[2] - 1 if rope.packed else 1) // (one.shape[2] if rope.packed else 1)
    copied = rope.copies and signature.arg(4, False) is not True
    moved = written(*rotating) if copied else turned * rotating[0].itemsize
    return Work(0, turned * costs.ROTARY_EMBEDDING, moved + size(*angles), moved, precision_of(rotating[0].dtype))


def _rotate_back(signature: Signature, rope: _Rope) -> Work:
    gradients, forward = parts(signature)
    return _rotate(Signature(signature.name, (*gradients[: rope.count], *forward.args[rope.count :])), rope)


for _name, _rope in _ROPES.items():
    formula(_name, category="element-wise")(partial(_rotate, rope=_rope))
    formula(f"{_name}Backward", category="element-wise")(partial(_rotate_back, rope=_rope))

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
