"""Unsloth: layers with low-rank adapters, layers in fp8 and grouped products, as autograd functions.

Order of arguments: unslothai/unsloth 015bdef: unsloth/kernels/fast_lora.py, fp8.py, moe/grouped_gemm/interface.py; the last one's name
is also that of tgale96/grouped_gemm 0593234 (grouped_gemm/ops.py), which Megatron-LM uses, with the same first tensors. The functions
own the products below them and the kernels that widen the weight. A layer is x @ W^T + s * (x @ A^T) @ B^T; W may be packed in 4 bits,
so that its sizes are those of A [rank, in] and B [out, rank].
"""

from __future__ import annotations

from typing import Final

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.formulas import costs
from rooflines.roofline.formulas.arguments import NotCounted, size, size_of, written
from rooflines.roofline.formulas.experts import SPREAD, share
from rooflines.roofline.formulas.matmul import product_flops
from rooflines.roofline.formulas.nodes import parts
from rooflines.roofline.formulas.record import Work, matrix_precision_of, precision_of
from rooflines.roofline.formulas.registry import formula
from rooflines.roofline.formulas.rows import Row, register

# --- layers with adapters ----------------------------------------------------------------------------------------------------------

_LAYERS: Final = {"LoRA_MLP": 3, "LoRA_QKV": 3, "LoRA_W": 1}
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


@formula(*_LAYERS, *(f"{name}Backward" for name in _LAYERS), category="matmul")
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
    layers = _layers(call.tensors[1:], _LAYERS[name])
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
