"""Autograd functions around Triton kernels, which have no operator of their own: activations and gates of several libraries, modules of
flash-linear-attention and flash-attn, Liger Kernel, and Unsloth.

A gate takes the two halves of the last dimension, or two tensors. A bias or the weights of a routing follow. Where operators below an
activation are counted, these count, except below those of Liger and Mamba. What a function of Liger calls besides its kernels
(``zeros``, the sum of a loss) belongs to it. Fused linear losses compute all their gradients in the forward, chunk by chunk; their
backward only scales them, and does not where the loss is the last of the network. Functions of Unsloth own the products below them and
the kernels that widen the weight: a layer is x @ W^T + s * (x @ A^T) @ B^T; W may be packed in 4 bits, so that its sizes are those of A
[rank, in] and B [out, rank].
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.formulas import costs
from rooflines.roofline.formulas.arguments import NotCounted, share, size, size_of, written
from rooflines.roofline.formulas.experts import SPREAD
from rooflines.roofline.formulas.libraries.norms import KIND, norm_backward, norm_forward, norm_of, register_norms
from rooflines.roofline.formulas.matmul import product_flops
from rooflines.roofline.formulas.nodes import gradients_and_forward, parts, with_gradient
from rooflines.roofline.formulas.record import Work, matrix_precision_of, precision_of
from rooflines.roofline.formulas.registry import dispatches, formula
from rooflines.roofline.formulas.rows import Row, register

# silu(a) * b; backward: a: s * (1 + a * (1 - s)) * b * g; b: silu(a) * g.
_SWIGLU: Final = (costs.SILU + 1, costs.SILU + 7)
# gelu(a) * b by a tanh of a polynomial of degree 3.
_GEGLU: Final = (costs.TANH + 9, costs.TANH + 20)
# Function -> FLOPs for an element of the result, and of its backward, which computes the activation again.
_GATES: Final[dict[str, tuple[int, int]]] = {
    **dict.fromkeys(("SwiGLUFunction", "BiasSwiGLUFunction", "WeightedSwiGLUFunction"), _SWIGLU),
    **dict.fromkeys(("GeGLUFunction", "BiasGeGLUFunction"), _GEGLU),
    **dict.fromkeys(("WeightedQuickGeGLUFunction", "WeightedBiasQuickGeGLUFunction"), (_SWIGLU[0] + 1, _SWIGLU[1] + 2)),
    "SigmoidGLUFunction": (costs.SIGMOID + 1, costs.SIGMOID + 5),
}
_PLAIN: Final[dict[str, tuple[int, int]]] = {
    "GeLUFunction": (costs.TANH + 8, costs.TANH + 16),
    "FastGeLUFunction": (costs.TANH + 8, costs.TANH + 16),
    "SwishFunction": (costs.SILU, costs.SIGMOID + 5),
    "SigmoidFunction": (costs.SIGMOID, costs.SIGMOID + 3),
    "LogSigmoidFunction": (costs.SOFTPLUS + 1, costs.SIGMOID + 2),
    "SquaredReLUFunction": (2, 3),
    "WeightedSquaredReLUFunction": (2, 3),
}
# Of Liger and Mamba, which own what is below them.
_OWN_GATES: Final = {"LigerSiLUMulFunction": _SWIGLU, "LigerGELUMulFunction": _GEGLU}
_OWN: Final = {"LigerReLUSquaredFunction": (2, 3)}


def _activations(costs_of: dict[str, tuple[int, int]], operands: str, made: str) -> dict[str, Row]:
    """Functions and their backward, which has a gradient for each operand; of a bias or a weight a product and a sum."""
    rows: dict[str, Row] = {}
    fits = "up or x[-1] % 2 == 0" if "?" in operands else ""
    for name, (cost, back_cost) in costs_of.items():
        rows[name] = Row(f"{operands}, read more*", other=f"{made} * ({cost} + len(more))", writes=f"{made} * x.item", fits=fits)
        rows[f"{name}Backward"] = Row(
            f"read grad, {operands}, update more*".replace("read x", "update x").replace("read up", "update up"),
            other=f"{made} * ({back_cost} + 2 * len(more))", precision="x", fits=fits,
        )  # fmt: skip
    return rows


_PAIR: Final = "read x[*rows k], read up[*=rows =k]"
register(_activations(_GATES, f"{_PAIR}?", "(x.n if up else x.n // 2)"), "element-wise", wraps=True, functions=True)
register(_activations({"SwiGLU": _SWIGLU}, f"{_PAIR}?", "(x.n if up else x.n // 2)"), "element-wise", functions=True)
register(_activations(_OWN_GATES, _PAIR, "x.n"), "element-wise", functions=True)
register(_activations(_PLAIN, "read x", "x.n"), "element-wise", wraps=True, functions=True)
register(_activations(_OWN, "read x", "x.n"), "element-wise", functions=True)

# --- a gate and the layer behind it ------------------------------------------------------------------------------------------------

# (silu(a) * b) @ weight^T, perhaps with a bias; what is between is not kept.
_LAYERS: Final[dict[str, Row]] = {
    "SwiGLULinearFunction": Row(
        "read gate[*rows k], read up[*=rows =k], read weight[n =k], read bias?",
        matrix="2 * rows * k * n",
        other=f"gate.n * {_SWIGLU[0]} + rows * n * len(bias)",
        writes="rows * n * gate.item",
    ),
    "SwiGLULinearFunctionBackward": Row(
        "read grad, update gate[*rows k], update up[*=rows =k], update weight[n =k], write bias?",
        matrix="2 * 2 * rows * k * n",
        other=f"gate.n * {_SWIGLU[1]} + grad.n * len(bias)",
    ),
}
register(_LAYERS, "matmul", functions=True)

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

# [tokens, hidden] @ [vocabulary, hidden]^T, the loss of it, and the gradients of both: the logits are never kept.
_LINEAR_LOSS: Final = Row(
    "update input[*tokens k], read target, update weight[vocabulary =k], update bias[=vocabulary]?",
    matrix="3 * 2 * tokens * k * vocabulary", other="tokens * vocabulary * (SOFTMAX + 2)", writes="4",
    assumption="gradients computed in the forward",
)  # fmt: skip
register({"FusedLinearCrossEntropyFunction": _LINEAR_LOSS}, "matmul", functions=True)

# Whether the gradients are scaled depends on the value of the gradient that is given.
dispatches("FusedLinearCrossEntropyFunctionBackward", category="element-wise")

# --- norms -------------------------------------------------------------------------------------------------------------------------

register_norms("LigerRMSNormFunction", "LigerFusedAddRMSNormFunction", rms=True)
register_norms("LigerLayerNormFunction", rms=False)

# A row of the norm is a group; means and deviations in float32 are kept.
_GROUP_NORM: Final = Row(
    "read x[batch *rest], read weight, read bias, channels, groups",
    costs.MEAN_AND_VARIANCE + costs.SCALE_AND_SHIFT + 2,
    result="x",
    writes="8 * batch * groups",
    per="x",
)
_GROUP_NORM_GRADIENT: Final = Row(
    "read grad, update x[batch *rest], update weight, write bias, channels, groups",
    costs.LAYER_NORM_BACKWARD,
    "x",
    also="8 * batch * groups",
    precision="x",
)
register({"LigerGroupNormFunction": _GROUP_NORM}, "normalisation")
register({"LigerGroupNormFunctionBackward": _GROUP_NORM_GRADIENT}, "normalisation", given=with_gradient)

# --- element by element ------------------------------------------------------------------------------------------------------------

_LIGER_ROPES: Final = ("LigerRopeFunction", "LigerQwen2VLMRopeFunction", "LigerLlama4RopeFunction")
_ELEMENTS: Final[dict[str, Row]] = {
    # gamma * tanh(alpha * x) + beta
    "LigerDyTFunction": Row("read input, read alpha, read gamma, read beta?", other="input.n * (TANH + 2 + len(beta))", result="input"),
    # t again; x: g * gamma * (1 - t²) * alpha; of alpha, gamma and beta a sum each.
    "LigerDyTFunctionBackward": Row(
        "read grad, update input, update alpha, update gamma, write beta?",
        other="input.n * (TANH + 1 + 5 + 2 + 2 + len(beta))",
        precision="input",
    ),
    # Queries and keys turned in place by tabulated angles: two multiplications and an addition an element.
    " ".join(_LIGER_ROPES): Row("update queries, update keys, read angles, read more*", costs.ROTARY_EMBEDDING, "queries keys"),
    " ".join(f"{name}Backward" for name in _LIGER_ROPES): Row(
        "update grads*, queries, keys, read angles, read more*", other="ROTARY_EMBEDDING * grads.n"
    ),
}
register(_ELEMENTS, "element-wise", functions=True)

# --- losses ------------------------------------------------------------------------------------------------------------------------

_EARLY: Final = "gradients computed in the forward"
# FLOPs an element of a divergence and its gradient.
_JSD: Final = 3 * costs.TRANSCENDENTAL + 2 * costs.TRANSCENDENTAL + 12
_DIVERGENCE: Final = "update first, read second, read labels*"
_ROWS: Final[dict[str, Row]] = {
    "LigerSoftmaxFunction": Row("read input", costs.SOFTMAX, result="input"),
    "LigerSoftmaxFunctionBackward": Row("read grad", costs.SOFTMAX_BACKWARD, "grad", result="grad", reads="2 * grad.size"),
    # Of logits [tokens, vocabulary]; their gradient takes their place.
    "LigerCrossEntropyFunction": Row(
        "update logits, read target, read weights*", costs.SOFTMAX + 2, "logits", writes="4", assumption=_EARLY
    ),
    "LigerJSDFunction": Row(_DIVERGENCE, _JSD, "first", writes="4", assumption=_EARLY),
    "LigerTVDLossFunction": Row(_DIVERGENCE, 5, "first", writes="4", assumption=_EARLY),
    # y * (log(y) - x), summed.
    "LigerKLDivLossFunction": Row("read first, read second", costs.TRANSCENDENTAL + 4, "first", writes="4 * first[0]"),
}
register(_ROWS, "reduction", functions=True)
_LINEAR: Final[dict[str, Row]] = {
    # [tokens, hidden] @ [vocabulary, hidden]^T, the loss of it, and the gradients of both: the logits are never kept.
    "LigerFusedLinearCrossEntropyFunction": Row(
        "update input[*tokens k], update weight[vocabulary =k], read target, read rest*",
        matrix="3 * 2 * tokens * k * vocabulary",
        other="tokens * vocabulary * (SOFTMAX + 2)",
        writes="4",
        assumption=_EARLY,
    ),
    # Logits of a student and of a teacher, their divergence, and the gradients of the student's two operands.
    "LigerFusedLinearJSDFunction": Row(
        "update student[*tokens k], update weight[vocabulary *hidden], read teacher[*rows width], read second, read labels*",
        matrix="3 * 2 * tokens * k * vocabulary + 2 * tokens * width * vocabulary",
        other=f"tokens * vocabulary * (2 * SOFTMAX + {_JSD})",
        writes="4",
        assumption=_EARLY,
    ),
}
register(_LINEAR, "matmul", functions=True)

# Whether the gradients are scaled depends on the value of the gradient that is given.
dispatches(
    *(f"Liger{name}FunctionBackward" for name in ("CrossEntropy", "JSD", "TVDLoss", "FusedLinearCrossEntropy", "FusedLinearJSD")),
    category="element-wise",
)

# --- layers with adapters ----------------------------------------------------------------------------------------------------------

_UNSLOTH_LAYERS: Final = {"LoRA_MLP": 3, "LoRA_QKV": 3, "LoRA_W": 1}
_GATE: Final = (costs.SILU + 1, costs.SILU + 7)


def _layers(tensors: tuple[TensorArg, ...], count: int) -> list[tuple[TensorArg, TensorArg, TensorArg]]:
    """Weight, A and B of ``count`` layers, each of a weight, perhaps its scales, and two matrices."""
    each, left = divmod(len(tensors), count)
    if left or each not in (3, 4):
        raise NotCounted("a layer without an adapter")
    layers = list(zip(tensors[::each], tensors[each - 2 :: each], tensors[each - 1 :: each], strict=True))
    if any(down.shape[0] != up.shape[1] for _, down, up in layers):
        raise NotCounted("shapes not understood")
    return layers


@formula(*_UNSLOTH_LAYERS, *(f"{name}Backward" for name in _UNSLOTH_LAYERS), category="matmul")
def _adapted(signature: Signature) -> Work:
    """``LoRA_MLP`` has the gate, the layer up and the one down, and keeps the results of the first two. Multiplies in fp8 with fp8
    weights.

    Backward, gradients of the input and the adapters, none of the weights: g @ W, g @ B and that times A and x, x @ A^T again and that
    with g.
    """
    name, back = signature.name.removesuffix("Backward"), signature.name.endswith("Backward")
    gradients, call = parts(signature) if back else ((), signature)
    if not call.tensors:
        raise NotCounted("shapes not recorded")
    inputs = call.tensors[0]
    layers = _layers(call.tensors[1:], _UNSLOTH_LAYERS[name])
    rows = inputs.numel // max(inputs.shape[-1], 1)
    sizes = [(down.shape[1], down.shape[0], up.shape[0]) for _, down, up in layers]
    of_down, of_up = (3, 2) if back else (1, 1)
    products = sum(inner * outer + of_down * inner * rank + of_up * rank * outer for inner, rank, outer in sizes)
    whole = [(weight.numel, inner * outer) for (weight, *_), (inner, _, outer) in zip(layers, sizes, strict=True)]
    widened = costs.DEQUANTIZE * sum(numbers for packed, numbers in whole if packed < numbers)
    gated = rows * sizes[0][2] * (name == "LoRA_MLP")
    outputs = rows * sum(outer for *_, outer in sizes)
    weight = layers[0][0].dtype
    operand = weight if weight.startswith("float8") and not back else inputs.dtype
    return Work(
        matrix_flops=2 * rows * products,
        other_flops=gated * _GATE[back] + widened + outputs * (not back),
        bytes_read=size(*gradients, *call.tensors) + 2 * gated * size_of(inputs.dtype) * back,
        bytes_written=written(inputs, *(one for layer in layers for one in layer[1:])) if back else outputs * size_of(inputs.dtype),
        precision=matrix_precision_of(operand),
    )


# --- layers in fp8 -----------------------------------------------------------------------------------------------------------------

_FP8: Final = ("FP8BlockQuantLinear", "FbgemmFp8Linear_matmul", "FP8_fbgemm_block_linear")
_NARROW: Final[dict[str, Row]] = {
    # x [..., in], a weight [out, in] with its scales, perhaps a bias; the input becomes fp8 first.
    " ".join(_FP8): Row(
        "read input[*rows k], read weight[n =k], read scale, read bias*",
        costs.QUANTIZE + 2,
        matrix="2 * rows * k * n",
        other="rows * n * (1 + bool(bias))",
        writes="rows * n * input.item",
        precision="weight",
    ),
    # Of the input alone, with the weight widened.
    " ".join(f"{name}Backward" for name in _FP8): Row(
        "read grad, write input[*rows k], read weight[n =k], read scale", 1, "weight", matrix="2 * rows * k * n"
    ),
}
register(_NARROW, "matmul", functions=True)


# --- grouped products --------------------------------------------------------------------------------------------------------------


@formula("GroupedGemm", "GroupedGemmBackward", category="matmul")
def _grouped(signature: Signature) -> Work:
    """[rows or tokens, in], [groups, out, in] or [groups, in, out], the sizes of the groups, perhaps which token a row is of.

    Backward, a product for each operand; the rows of a token are added up.
    """
    gradients, call = parts(signature) if signature.name.endswith("Backward") else ((), signature)
    if len(call.tensors) < 3 or len(call.tensors[1].shape) != 3:
        raise NotCounted("shapes not recorded")
    inputs, weight, *small = call.tensors
    groups, first, second = weight.shape
    if inputs.shape[-1] not in (first, second):
        raise NotCounted("shapes not understood")
    order = max((one.numel for one in small[1:] if one.dtype.startswith("int")), default=0)
    tokens = inputs.numel // max(inputs.shape[-1], 1)
    rows = max(tokens, order)
    flops = product_flops(1, rows, first, second)
    read = size(*gradients[:1], inputs, *small) + share((weight,), groups, rows)
    if gradients:
        added = rows * inputs.shape[-1] * (rows > tokens)
        return Work(2 * flops, added, read, written(inputs, weight), precision_of(inputs.dtype), SPREAD)
    outputs = first if inputs.shape[-1] == second else second
    return Work(flops, 0, read, rows * outputs * size_of(inputs.dtype), matrix_precision_of(inputs.dtype), SPREAD)
