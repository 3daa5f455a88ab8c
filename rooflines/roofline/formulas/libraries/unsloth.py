"""Unsloth: layers with low-rank adapters, layers in fp8 and grouped products, as autograd functions.

Order of arguments: unslothai/unsloth 015bdef: unsloth/kernels/fast_lora.py, fp8.py, moe/grouped_gemm/interface.py; the last one's name
is also that of tgale96/grouped_gemm 0593234 (grouped_gemm/ops.py), which Megatron-LM uses, with the same first tensors. The functions
own the products below them and the kernels that widen the weight. A layer is x @ W^T + s * (x @ A^T) @ B^T; W may be packed in 4 bits,
so that its sizes are those of A [rank, in] and B [out, rank].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.formulas import costs
from rooflines.roofline.formulas.arguments import NotCounted, size, size_of, written
from rooflines.roofline.formulas.experts import SPREAD, share
from rooflines.roofline.formulas.matmul import layer_work, product_flops
from rooflines.roofline.formulas.nodes import parts
from rooflines.roofline.formulas.record import Work, matrix_precision_of, precision_of
from rooflines.roofline.formulas.table import formula

# --- layers with adapters ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Adapted:
    """A layer: its weight, perhaps with scales, and its adapter."""

    weight: tuple[TensorArg, ...]
    down: TensorArg
    up: TensorArg

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Inner width, rank and outputs."""
        return self.down.shape[1], self.down.shape[0], self.up.shape[0]

    @property
    def widening(self) -> int:
        """FLOPs of widening a packed weight."""
        inner, _, outputs = self.sizes
        return inner * outputs * costs.DEQUANTIZE if self.weight[0].numel < inner * outputs else 0


def _layers(signature: Signature, count: int) -> tuple[TensorArg, int, list[_Adapted]]:
    """The input, its rows, and ``count`` layers of a weight, perhaps its scales, and two matrices."""
    if not signature.tensors:
        raise NotCounted("shapes not recorded")
    inputs, *rest = signature.tensors
    each, left = divmod(len(rest), count)
    if left or each not in (3, 4):
        raise NotCounted("a layer without an adapter")
    layers = [_Adapted(tuple(group[:-2]), *group[-2:]) for group in (rest[place * each : (place + 1) * each] for place in range(count))]
    if any(one.down.shape[0] != one.up.shape[1] for one in layers):
        raise NotCounted("shapes not understood")
    return inputs, inputs.numel // max(inputs.shape[-1], 1), layers


_LAYERS: Final = {"LoRA_MLP": 3, "LoRA_QKV": 3, "LoRA_W": 1}
_GATE: Final = (costs.SILU + 1, costs.SILU + 7)


@formula(*_LAYERS, category="matmul")
def _adapted(signature: Signature) -> Work:
    """``LoRA_MLP`` has the gate, the layer up and the one down, and keeps the results of the first two."""
    inputs, rows, layers = _layers(signature, _LAYERS[signature.name])
    gated = rows * layers[0].sizes[2] * (signature.name == "LoRA_MLP")
    outputs = rows * sum(one.sizes[2] for one in layers)
    return Work(
        matrix_flops=sum(
            product_flops(1, rows, inner, outer) + product_flops(1, rows, inner, rank) + product_flops(1, rows, rank, outer)
            for inner, rank, outer in (one.sizes for one in layers)
        ),
        other_flops=gated * _GATE[0] + sum(one.widening for one in layers) + outputs,
        bytes_read=size(*signature.tensors),
        bytes_written=outputs * size_of(inputs.dtype),
        precision=matrix_precision_of(_operand(inputs, layers)),
    )


def _operand(inputs: TensorArg, layers: list[_Adapted]) -> str:
    """The dtype that a weight is multiplied in: fp8 of the forward with fp8 weights, else that of the input."""
    weight = layers[0].weight[0]
    return weight.dtype if weight.dtype.startswith("float8") else inputs.dtype


@formula(*(f"{name}Backward" for name in _LAYERS), category="matmul")
def _adapted_gradient(signature: Signature) -> Work:
    """Gradients of the input and the adapters, none of the weights: g @ W, g @ B and that times A and x, x @ A^T again and that with
    g."""
    gradients, forward = parts(signature)
    name = signature.name.removesuffix("Backward")
    inputs, rows, layers = _layers(forward, _LAYERS[name])
    gated = rows * layers[0].sizes[2] * (name == "LoRA_MLP")
    item = size_of(inputs.dtype)
    return Work(
        matrix_flops=sum(
            product_flops(1, rows, inner, outer) + 3 * product_flops(1, rows, inner, rank) + 2 * product_flops(1, rows, rank, outer)
            for inner, rank, outer in (one.sizes for one in layers)
        ),
        other_flops=gated * _GATE[1] + sum(one.widening for one in layers),
        bytes_read=size(*gradients, *forward.tensors) + 2 * gated * item,
        bytes_written=written(inputs, *(matrix for one in layers for matrix in (one.down, one.up))),
        precision=matrix_precision_of(inputs.dtype),
    )


# --- layers in fp8 -----------------------------------------------------------------------------------------------------------------

_FP8: Final = ("FP8BlockQuantLinear", "FbgemmFp8Linear_matmul", "FP8_fbgemm_block_linear")


def _fp8_layer(signature: Signature) -> tuple[tuple[TensorArg, ...], int]:
    """x [..., in], a weight [out, in] with its scales, perhaps a bias; FLOPs of the product."""
    tensors = signature.tensors
    if len(tensors) < 3 or len(tensors[1].shape) != 2 or tensors[0].shape[-1] != tensors[1].shape[1]:
        raise NotCounted("shapes not recorded")
    outputs, width = tensors[1].shape
    return tensors, product_flops(1, tensors[0].numel // max(width, 1), width, outputs)


@formula(*_FP8, category="matmul")
def _narrow(signature: Signature) -> Work:
    """The input becomes fp8 first."""
    (inputs, weight, *small), _ = _fp8_layer(signature)
    each, besides = 1 + (len(small) > 1), inputs.numel * (costs.QUANTIZE + 2)
    precision = matrix_precision_of(weight.dtype)
    return layer_work(inputs, weight.shape[0], weight, *small, each=each, besides=besides, precision=precision)


@formula(*(f"{name}Backward" for name in _FP8), category="matmul")
def _narrow_gradient(signature: Signature) -> Work:
    """Of the input alone, with the weight widened."""
    (grad, *_), forward = parts(signature)
    (inputs, weight, scale, *_), flops = _fp8_layer(forward)
    return Work(flops, weight.numel, size(grad, weight, scale), written(inputs), matrix_precision_of(grad.dtype))


# --- grouped products --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Groups:
    """Rows of all groups, of which the input has one for each or one for each token; a weight for each group."""

    inputs: TensorArg
    weight: TensorArg
    small: tuple[TensorArg, ...]
    rows: int
    outputs: int

    @property
    def flops(self) -> int:
        """Those of the product."""
        return product_flops(1, self.rows, self.inputs.shape[-1], self.outputs)


def _groups(signature: Signature) -> _Groups:
    """[rows or tokens, in], [groups, out, in] or [groups, in, out], the sizes of the groups, perhaps which token a row is of."""
    if len(signature.tensors) < 3 or len(signature.tensors[1].shape) != 3:
        raise NotCounted("shapes not recorded")
    inputs, weight, *small = signature.tensors
    first, second = weight.shape[1:]
    if inputs.shape[-1] not in (first, second):
        raise NotCounted("shapes not understood")
    order = max((one.numel for one in small[1:] if one.dtype.startswith("int")), default=0)
    tokens = inputs.numel // max(inputs.shape[-1], 1)
    return _Groups(inputs, weight, tuple(small), max(tokens, order), first if inputs.shape[-1] == second else second)


@formula("GroupedGemm", category="matmul")
def _grouped(signature: Signature) -> Work:
    one = _groups(signature)
    return Work(
        matrix_flops=one.flops,
        bytes_read=size(one.inputs, *one.small) + share((one.weight,), one.weight.shape[0], one.rows),
        bytes_written=one.rows * one.outputs * size_of(one.inputs.dtype),
        precision=matrix_precision_of(one.inputs.dtype),
        assumption=SPREAD,
    )


@formula("GroupedGemmBackward", category="matmul")
def _grouped_gradient(signature: Signature) -> Work:
    """A product for each operand; the rows of a token are added up."""
    (grad, *_), forward = parts(signature)
    one = _groups(forward)
    tokens = one.inputs.numel // max(one.inputs.shape[-1], 1)
    return Work(
        matrix_flops=2 * one.flops,
        other_flops=one.rows * one.inputs.shape[-1] * (one.rows > tokens),
        bytes_read=size(grad, one.inputs, *one.small) + share((one.weight,), one.weight.shape[0], one.rows),
        bytes_written=written(one.inputs, one.weight),
        precision=precision_of(one.inputs.dtype),
        assumption=SPREAD,
    )
