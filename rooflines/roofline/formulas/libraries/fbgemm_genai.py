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
from rooflines.roofline.formulas.arguments import Arguments, NotCounted, size
from rooflines.roofline.formulas.costs import DEQUANTIZE, QUANTIZE, SILU
from rooflines.roofline.formulas.experts import DYNAMIC_QUANTIZE
from rooflines.roofline.formulas.matmul import grouped_product, layer_work, product_flops
from rooflines.roofline.formulas.record import Work, matrix_precision_of
from rooflines.roofline.formulas.registry import formula, words
from rooflines.roofline.formulas.rows import Row, register
from rooflines.roofline.formulas.scaled import FOUR_BIT, operand_precision

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


# [m, k] @ [n, k]^T with scales that the product applies, perhaps one more for all results; two numbers of four bits in a byte.
_BLOCK_SCALED: Final = Row(
    "read left[m k], read right[n packed], read left_scale, read right_scale, out=None, read global_scale?",
    matrix="2 * m * k * n", other="m * n * bool(global_scale)", writes="2 * m * n", precision="=fp8",
)  # fmt: skip
_PRODUCTS: Final[dict[str, Row]] = {
    "fbgemm::mx8mx4bf16 fbgemm::mx8mx6bf16": _BLOCK_SCALED,
    "fbgemm::f4f4bf16": replace(_BLOCK_SCALED, matrix="2 * m * 2 * k * n", precision="=fp4"),
    # [tokens, n] of each group with its [tokens, k]: a gradient [n, k] for each group
    "fbgemm::bf16bf16bf16_grouped_wgrad": Row(
        "read left[t n], read right[t k], read sizes", matrix="2 * n * t * k", writes="sizes.n * n * k * left.item"
    ),
}
register(_PRODUCTS, "matmul")

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

# The largest magnitude of each row, of each column, of each block or of all, and a byte an element; a scale is float32.
_QUANTIZED: Final = Row("read self[*rows k]", DYNAMIC_QUANTIZE, "self", writes="self.n + 4 * rows")
_BY_SCALE: Final = Row("read self", QUANTIZE, "self", writes="self.n")
# SiLU of the gate times the other half; ``valid`` says how many rows are no padding.
_GATED: Final = Row("read gate, read up, view valid?", SILU + 1, "gate", result="gate", assumption=PADDING, given="valid")
_ELEMENTWISE: Final[dict[str, Row]] = {
    "fbgemm::quantize_fp8_per_row triton::quantize_fp8_row triton::quantize_fp8_packed_row": _QUANTIZED,
    "triton::quantize_fp8_packed_row_raw": _QUANTIZED,
    "fbgemm::quantize_fp8_per_col": replace(_QUANTIZED, writes="self.n + 4 * k"),
    "fbgemm::quantize_fp8_per_tensor fbgemm::per_tensor_dynamic_quantize_i8 triton::quantize_fp8_tensor": replace(
        _QUANTIZED, schema="read self", writes="self.n + 4"
    ),
    "triton::quantize_fp8_block": replace(
        _QUANTIZED,
        schema="read self[*rows k], block_m=256, block_k=256",
        writes="self.n + 4 * up(rows, block_m) * up(k, block_k)",
    ),
    "fbgemm::quantize_fp8_per_tensor_fixed_scale fbgemm::per_tensor_quantize_i8": _BY_SCALE,
    "fbgemm::silu_mul": _GATED,
    "fbgemm::silu_mul_quant": replace(
        _GATED,
        schema="read gate[rows *k], read up, bound=None, view valid?",
        cost=SILU + 1 + DYNAMIC_QUANTIZE,
        result="",
        writes="gate.n + 4 * rows",
    ),
    "fbgemm::silu_mul_quantize_i8": Row("read gate", SILU + 1 + QUANTIZE, "gate", reads="2 * gate.size", writes="gate.n"),
}
register(_ELEMENTWISE, "element-wise")
# The largest magnitude.
register({"fbgemm::get_fp8_per_tensor_scale": Row("read self", 2, "self", writes="4")}, "reduction")

# --- tokens of experts -------------------------------------------------------------------------------------------------------------

# Rows of [tokens, k], perhaps times a score of [tokens, experts] each, perhaps as fp8 with a scale for each row.
_GATHERED: Final = Row(
    "read source[*tokens k], read index",
    where="made = index.n * k", reads="selected(source, made) + index.size", writes="made * source.item",
)  # fmt: skip
_SCALED_ROWS: Final = replace(
    _GATHERED,
    schema="read source[*tokens k], read index, read experts?, read scores, view valid?",
    other="made",
    reads=f"{_GATHERED.reads} + experts.size + selected(scores, index.n)",
    assumption=PADDING,
    given="valid",
)
# Rows added to those of [tokens, k].
_ADDED: Final = Row(
    "read target, read source[*rows k], read index, view valid?",
    where="taken = index.n * k; changed = selected(target, taken)",
    other="taken",
    reads="taken * source.item + index.size + changed",
    writes="changed",
    precision="target",
    assumption=PADDING,
    given="valid",
)
# Rows of [tokens, k] from the order of ranks to that of experts, or back; [ranks, experts] says how many each has.
_SHUFFLED: Final = Row(
    "read tokens, read counts[*ranks experts], first=None, last=None, padded=False",
    result="tokens", assumption=PADDING, given="padded",
)  # fmt: skip
_MOVES: Final[dict[str, Row]] = {
    "fbgemm::gather_along_first_dim": _GATHERED,
    "fbgemm::gather_scale_dense_tokens": _SCALED_ROWS,
    "fbgemm::gather_scale_quant_dense_tokens": replace(
        _SCALED_ROWS,
        schema="read source[*tokens k], read index, read experts?, read scores, bound=None, view valid?",
        other=f"made * {1 + DYNAMIC_QUANTIZE}",
        writes="made + 4 * index.n",
    ),
    "fbgemm::scatter_add_along_first_dim fbgemm::scatter_add_dense_tokens": _ADDED,
    # Of [ranks, rows, k] each row is of one rank, and the others' is padding.
    "fbgemm::scatter_add_padded_tokens": replace(
        _ADDED,
        schema="read source[*rows k], read counts?, read index, read target",
        reads=f"{_ADDED.reads} + counts.size",
        assumption="",
        given="",
    ),
    "fbgemm::split_shuffling": _SHUFFLED,
    # And how many each expert has.
    "fbgemm::combine_shuffling": replace(_SHUFFLED, writes="(experts + 1) * counts.item"),
}
register(_MOVES, "copy")
# The best experts of each token, sorted by expert: for each of the pairs an expert and a token, and how many each expert has; int32.
_ROUTED: Final = Row(
    "read scores[tokens experts], first=None, last=None, view valid?, top_k=1", 1, "scores",
    writes="4 * (2 * tokens * top_k + experts + 2)", assumption=PADDING, given="valid",
)  # fmt: skip
register({"fbgemm::index_shuffling": _ROUTED}, "moe")
