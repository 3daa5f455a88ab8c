"""FBGEMM's GenAI operators: products of fp8, fp6, fp4, int8 and int4 numbers, grouped products, quantization, and moves of tokens
to the experts of a mixture and back.

Order of arguments: FBGEMM 1.9 (commit 71d6f8b22): ``fbgemm_gpu/experimental/gen_ai/src/quantize/quantize_defs.cpp``,
``fbgemm_gpu/experimental/gemm/triton_gemm/fp8_gemm.py``, ``fbgemm_gpu/experimental/gen_ai/gen_ai/moe`` and
``gen_ai/src/gather_scatter``; MSLK (meta-pytorch/MSLK 2a3c897: ``csrc/gemm/gemm_ops.cpp``, ``mslk/quantize/triton/fp8_quantize.py``,
``mslk/moe``, ``csrc/moe/moe_ops.cpp``) has the same operators in its namespace ``mslk``. A weight is [n, k]. How many tokens each
group of a grouped product has is data; together they are the rows of the input, which the stacked forms hold packed. Of moves, an
argument may say how many rows are no padding.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Final

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.formulas.arguments import Arguments, NotCounted, size, size_of, written
from rooflines.roofline.formulas.costs import DEQUANTIZE, QUANTIZE, SILU
from rooflines.roofline.formulas.experts import DYNAMIC_QUANTIZE
from rooflines.roofline.formulas.gather import selected
from rooflines.roofline.formulas.matmul import grouped_product, layer_work, product_flops
from rooflines.roofline.formulas.narrow import narrowed
from rooflines.roofline.formulas.record import Work, matrix_precision_of, precision_of
from rooflines.roofline.formulas.scaled import FOUR_BIT, operand_precision
from rooflines.roofline.formulas.table import formula, words

PADDING: Final = "no row is padding"
_RESULT: Final = 2  # bytes of a float16 or bfloat16 result
_BYTES_OF_TWO: Final = (*FOUR_BIT, "int8")  # a weight of a grouped product that holds two numbers in a byte

# --- products ----------------------------------------------------------------------------------------------------------------------

_SCALED: Final = words(
    "f8f8bf16 f8f8bf16_rowwise f8f8f16_rowwise f8f8bf16_rowwise_batched f8f8bf16_rowwise_out f8f8bf16_rowwise_preshuffle"
    " f8f8f16_rowwise_preshuffle f8f8bf16_tensorwise f8f8bf16_blockwise f8f8bf16_groupwise f8f8bf16_cublas f8f8bf16_lite i8i8bf16"
    " i8i8bf16_dynamic fp8fp8bf16_fast_gemv"
)
_MIXED: Final = {  # the weight's elements a byte
    "bf16i4bf16_rowwise": 2, "bf16i4bf16_rowwise_batched": 2, "bf16i4bf16_shuffled": 2, "bf16i4bf16_shuffled_batched": 2,
    "f8i4bf16_rowwise": 2, "f8i4bf16_shuffled": 2, "bf16_fast_gemv": 1, "bf16fp8bf16_fast_gemv": 1,
}  # fmt: skip


@formula(*(f"fbgemm::{name}" for name in (*_SCALED, *_MIXED)), "triton::matmul_fp8_block",
         "triton::matmul_fp8_row", category="matmul")  # fmt: skip
def _scaled(signature: Signature) -> Work:
    """[..., m, k] @ [..., n, k]^T with scales; each result is scaled once, or each element of a narrow weight is widened."""
    args = Arguments(signature, "left right")
    left, right = args.tensor("left"), args.tensor("right")
    packing = _MIXED.get(signature.name.rpartition("::")[2], 0)
    small = [one for one in signature.args[2:] if isinstance(one, TensorArg)]
    if signature.name.endswith("_out"):
        small.pop()  # the result
    widened = DEQUANTIZE * right.numel * packing if packing and right.dtype != left.dtype else 0
    each = int(bool(small) and not widened)
    return layer_work(left, right.shape[-2], right, *small, each=each, besides=widened, dtype="bfloat16")


@formula("fbgemm::bf16bf16bf16_grouped_dynamic", "fbgemm::f8f8bf16_rowwise_grouped_dynamic", category="matmul")
def _padded(signature: Signature) -> Work:
    """[groups, m, k] with [groups, n, k]; where each group's padding starts is data."""
    work = replace(_scaled(signature), assumption=PADDING)
    return replace(work, other_flops=0) if work.precision == "bf16" else work


# Products of numbers with a scale for each block -> how many numbers a byte of the left operand holds.
_BLOCK_SCALED: Final = {"f4f4bf16": 2, "mx8mx4bf16": 1, "mx8mx6bf16": 1}


@formula(*(f"fbgemm::{name}" for name in _BLOCK_SCALED), category="matmul")
def _block_scaled(signature: Signature) -> Work:
    """[m, k] @ [n, k]^T with scales that the product applies, perhaps one more for all results."""
    args = Arguments(signature, "left right left_scale right_scale out=None global_scale=None")
    left, right, whole = args.tensor("left"), args.tensor("right"), args.optional("global_scale")
    numbers = _BLOCK_SCALED[signature.name.rpartition("::")[2]]
    rows, outputs = left.shape[0], right.shape[0]
    return Work(
        matrix_flops=product_flops(1, rows, left.shape[-1] * numbers, outputs),
        other_flops=rows * outputs * (whole is not None),
        bytes_read=size(left, right, args.tensor("left_scale"), args.tensor("right_scale"), whole),
        bytes_written=rows * outputs * _RESULT,
        precision="fp4" if numbers == 2 else "fp8",
    )


# Grouped products -> how many tensors after the two operands they read: scales and sizes, before a result.
_STACKED: Final = {
    "bf16bf16bf16_grouped_stacked": 1, "bf16bf16bf16_grouped_grad": 1, "f8f8bf16_rowwise_grouped_stacked": 3,
    "f8f8bf16_groupwise_grouped": 3, "f8f8bf16_groupwise_grouped_preshuffle": 3, "bf16i4bf16_shuffled_grouped": 3,
    "f8i4bf16_shuffled_grouped": 4, "f4f4bf16_grouped_stacked": 5,
}  # fmt: skip


@formula(*(f"fbgemm::{name}" for name in _STACKED), category="matmul")
def _stacked(signature: Signature) -> Work:
    """[tokens, k] of all groups with [groups, n, k]; no more weights are read than groups have a token."""
    tensors = signature.tensors
    if len(tensors) < 3 or len(tensors[1].shape) != 3:
        raise NotCounted("shapes not recorded")
    left, right, *small = tensors
    small = small[: _STACKED[signature.name.rpartition("::")[2]]]
    rows, (groups, outputs, inner) = left.numel // max(left.shape[-1], 1), right.shape
    packed = right.dtype in _BYTES_OF_TWO
    precision = operand_precision(left, right)
    if left.shape[-1] != inner and not packed:  # the gradient of the input: [tokens, n] @ [groups, n, k]
        outputs, inner = inner, outputs
    touched = min(groups, rows)
    weights = touched * outputs * inner
    return Work(
        matrix_flops=product_flops(1, rows, inner * (1 + packed), outputs),
        other_flops=DEQUANTIZE * 2 * weights if packed and precision != "fp4" else rows * outputs * (len(small) > 1),
        bytes_read=size(left, *small) + weights * right.itemsize,
        bytes_written=rows * outputs * _RESULT,
        precision=precision,
        assumption="every group has a token" if groups > 1 else "",
    )


_GROUPED: Final = {
    "mx8mx8bf16_grouped_mm": "out=None tokens=None",
    "mx8mx4bf16_grouped_mm": "out=None",
    "f4f4bf16_grouped_mm": "out=None left_global=None",
    "f4f4bf16_ultra_grouped_mm": "left_global right_global out=None",
    "f8f8bf16_rowwise_grouped_mm": "out",
}


@formula(*(f"fbgemm::{name}" for name in _GROUPED), category="matmul")
def _grouped(signature: Signature) -> Work:
    """As ``aten::_scaled_grouped_mm``, with the right operand [.., k, n], of the row-wise one [.., n, k]."""
    name = signature.name.rpartition("::")[2]
    args = Arguments(signature, f"left right left_scale right_scale offsets {_GROUPED[name]}")
    left, right, offsets = args.tensor("left"), args.tensor("right"), args.optional("offsets")
    *leading, inner, outputs = right.shape if len(right.shape) > 1 else (0, 0)
    rowwise = name.startswith("f8f8bf16_rowwise")
    if rowwise:
        inner, outputs = outputs, inner
    packed = name.startswith("mx8mx4")
    flops, shape = grouped_product(left, replace(right, shape=(*leading, inner * (1 + packed), outputs)), offsets)
    fp4 = operand_precision(left, right) == "fp4"
    whole = [args.optional(one) for one in ("left_global", "right_global") if args.has(one)]
    return Work(
        matrix_flops=flops * (1 + fp4),
        other_flops=prod(shape) * (rowwise or any(whole)),
        bytes_read=size(left, right, args.tensor("left_scale"), args.tensor("right_scale"), offsets, *whole),
        bytes_written=prod(shape) * _RESULT,
        precision="fp4" if fp4 else matrix_precision_of(left.dtype),
    )


@formula("fbgemm::bf16bf16bf16_grouped_wgrad", category="matmul")
def _weight_gradient(signature: Signature) -> Work:
    """[tokens, n] of each group with its [tokens, k]: a gradient [n, k] for each group."""
    args = Arguments(signature, "left right sizes")
    left, right, sizes = args.tensor("left"), args.tensor("right"), args.tensor("sizes")
    return Work(
        matrix_flops=product_flops(1, left.shape[-1], left.shape[0], right.shape[-1]),
        bytes_read=size(left, right, sizes),
        bytes_written=sizes.numel * left.shape[-1] * right.shape[-1] * left.itemsize,
        precision=matrix_precision_of(left.dtype),
    )


@formula(
    *(f"fbgemm::{kind}_grouped{form}" for kind in ("bf16bf16bf16", "f8f8bf16_rowwise") for form in ("", "_cat")), category="matmul"
)
def _listed(signature: Signature) -> Work:
    """A list of inputs with a list of weights, whose dtype is that of the name: traces do not record that of lists."""
    args = Arguments(signature, "left right left_scale=() right_scale=()")
    lefts, rights = args.tensors("left"), args.tensors("right")
    if not lefts or len(lefts) != len(rights):
        raise NotCounted("tensors of the list not recorded")
    narrow = "f8f8" in signature.name
    pairs = list(zip(lefts, rights, strict=True))
    results = sum(prod(left.shape[:-1]) * right.shape[0] for left, right in pairs)
    scales = sum(prod(left.shape[:-1]) + right.shape[0] for left, right in pairs) if narrow else 0
    return Work(
        matrix_flops=sum(product_flops(1, prod(left.shape[:-1]), left.shape[-1], right.shape[0]) for left, right in pairs),
        other_flops=results * narrow,
        bytes_read=(1 if narrow else 2) * sum(left.numel + right.numel for left, right in pairs) + 4 * scales,
        bytes_written=_RESULT * results,
        precision="fp8" if narrow else "bf16",
    )


# --- quantization ------------------------------------------------------------------------------------------------------------------


@formula("fbgemm::quantize_fp8_per_row", "fbgemm::quantize_fp8_per_tensor", "fbgemm::quantize_fp8_per_col",
         "fbgemm::per_tensor_dynamic_quantize_i8", "triton::quantize_fp8_row", "triton::quantize_fp8_packed_row",
         "triton::quantize_fp8_packed_row_raw", "triton::quantize_fp8_tensor", category="element-wise")  # fmt: skip
def _quantize(signature: Signature) -> Work:
    """The largest magnitude of each row, of each column or of all, and a byte an element."""
    inputs = Arguments(signature, "self").tensor("self")
    scales = prod(inputs.shape[:-1]) if "row" in signature.name else inputs.shape[-1] if "_col" in signature.name else 1
    return narrowed(inputs, scales=4 * scales)


@formula("triton::quantize_fp8_block", category="element-wise")
def _quantize_blocks(signature: Signature) -> Work:
    args = Arguments(signature, "self block_m=256 block_k=256")
    inputs = args.tensor("self")
    rows, columns = prod(inputs.shape[:-1]), inputs.shape[-1]
    scales = -(-rows // args.integer("block_m")) * -(-columns // args.integer("block_k"))
    return narrowed(inputs, scales=4 * scales)


@formula("fbgemm::get_fp8_per_tensor_scale", category="reduction")
def _scale(signature: Signature) -> Work:
    """The largest magnitude."""
    inputs = Arguments(signature, "self").tensor("self")
    return Work(0, inputs.numel * 2, size(inputs), 4, precision_of(inputs.dtype))


@formula("fbgemm::quantize_fp8_per_tensor_fixed_scale", "fbgemm::per_tensor_quantize_i8", category="element-wise")
def _quantize_by(signature: Signature) -> Work:
    return narrowed(Arguments(signature, "self").tensor("self"), scales=0, cost=QUANTIZE)


@formula("fbgemm::silu_mul_quantize_i8", category="element-wise")
def _gated(signature: Signature) -> Work:
    gate = Arguments(signature, "gate up scale").tensor("gate")
    return Work(0, gate.numel * (SILU + 1 + QUANTIZE), 2 * size(gate), gate.numel, precision_of(gate.dtype))


# --- tokens of experts -------------------------------------------------------------------------------------------------------------

_INT32: Final = 4


def _assumed(args: Arguments) -> str:
    return PADDING if args.optional("valid") is not None else ""


_GATHERS: Final = {
    "gather_along_first_dim": "source index",
    "gather_scale_dense_tokens": "source index experts scores valid=None",
    "gather_scale_quant_dense_tokens": "source index experts scores bound=None valid=None",
}


@formula(*(f"fbgemm::{name}" for name in _GATHERS), category="copy")
def _gather(signature: Signature) -> Work:
    """Rows of [tokens, k], perhaps times a score of [tokens, experts] each, perhaps as fp8 with a scale for each row."""
    args = Arguments(signature, _GATHERS[signature.name.rpartition("::")[2]])
    source, index, scores = args.tensor("source"), args.tensor("index"), args.optional("scores")
    rows, elements = index.numel, index.numel * source.shape[-1]
    quantized = "quant" in signature.name
    return Work(
        other_flops=elements * ((scores is not None) + DYNAMIC_QUANTIZE * quantized),
        bytes_read=selected(source, elements) + size(index, args.optional("experts")) + (selected(scores, rows) if scores else 0),
        bytes_written=elements + 4 * rows if quantized else elements * size_of(source.dtype),
        precision=precision_of(source.dtype) if scores else None,
        assumption=_assumed(args),
    )


_SCATTERS: Final = {
    "scatter_add_along_first_dim": "target source index",
    "scatter_add_dense_tokens": "target source index valid=None",
    "scatter_add_padded_tokens": "source counts index target",
}


@formula(*(f"fbgemm::{name}" for name in _SCATTERS), category="copy")
def _scatter(signature: Signature) -> Work:
    """Rows added to those of [tokens, k]; of [ranks, rows, k] each row is of one rank, and the others' is padding."""
    args = Arguments(signature, _SCATTERS[signature.name.rpartition("::")[2]])
    source, index, target = args.tensor("source"), args.tensor("index"), args.tensor("target")
    elements = index.numel * source.shape[-1]
    changed = selected(target, elements)
    return Work(
        other_flops=elements,
        bytes_read=elements * size_of(source.dtype) + size(index, args.optional("counts")) + changed,
        bytes_written=changed,
        precision=precision_of(target.dtype),
        assumption=_assumed(args),
    )


@formula("fbgemm::combine_shuffling", "fbgemm::split_shuffling", category="copy")
def _shuffle(signature: Signature) -> Work:
    """Rows of [tokens, k] from the order of ranks to that of experts, or back; [ranks, experts] says how many each has."""
    args = Arguments(signature, "tokens counts first=None last=None padded=False zeros=False")
    tokens, counts = args.tensor("tokens"), args.tensor("counts")
    made = counts.shape[-1] + 1 if signature.name.endswith("combine_shuffling") else 0  # how many each expert has
    return Work(
        bytes_read=size(tokens, counts),
        bytes_written=written(tokens) + made * size_of(counts.dtype),
        assumption=PADDING if args.flag("padded") else "",
    )


@formula("fbgemm::index_shuffling", category="moe")
def _route(signature: Signature) -> Work:
    """The best experts of each token, sorted by expert: for each of the pairs an expert and a token, and how many each expert has."""
    args = Arguments(signature, "scores first=None last=None valid=None top_k=1")
    scores = args.tensor("scores")
    pairs = scores.shape[0] * args.integer("top_k")
    return Work(
        other_flops=scores.numel,
        bytes_read=size(scores),
        bytes_written=_INT32 * (2 * pairs + scores.shape[-1] + 2),
        precision=precision_of(scores.dtype),
        assumption=_assumed(args),
    )


@formula("fbgemm::silu_mul", "fbgemm::silu_mul_quant", category="element-wise")
def _gated_tokens(signature: Signature) -> Work:
    quantized = signature.name.endswith("quant")
    args = Arguments(signature, "gate up bound=None valid=None" if quantized else "gate up valid=None")
    gate, up = args.tensor("gate"), args.tensor("up")
    return Work(
        other_flops=gate.numel * (SILU + 1 + DYNAMIC_QUANTIZE * quantized),
        bytes_read=size(gate, up),
        bytes_written=gate.numel + 4 * gate.shape[0] if quantized else written(gate),
        precision=precision_of(gate.dtype),
        assumption=_assumed(args),
    )
