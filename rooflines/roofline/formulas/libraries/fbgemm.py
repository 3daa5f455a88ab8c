"""FBGEMM's operators on sparse features, jagged tensors and numbers of few bits, and those of its GenAI library, which MSLK has too:
products of narrow numbers, grouped products, and moves of tokens to experts (tables are in ``fbgemm_embedding.py``).

Jagged tensors hold the elements of all rows one after the other; how long each row is, the values of the offsets say. Kernels of jagged
tensors touch what the values hold, which is in their shapes. A weight of a product is [n, k]. How many tokens each group of a grouped
product has is data; together they are the rows of the input, which the stacked forms hold packed. Of moves, an argument may say how
many rows are no padding.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import prod
from typing import Final

from rooflines.profiler.trace.signature import Signature
from rooflines.roofline.formulas.arguments import Arguments, NotCounted, selected, size, size_of
from rooflines.roofline.formulas.copies import moved
from rooflines.roofline.formulas.costs import QUANTIZE, SILU, SOFTMAX, SOFTMAX_BACKWARD
from rooflines.roofline.formulas.experts import DYNAMIC_QUANTIZE
from rooflines.roofline.formulas.matmul import grouped_product, product_flops
from rooflines.roofline.formulas.record import Work, matrix_precision_of
from rooflines.roofline.formulas.registry import Hints, formula, hinted_formula
from rooflines.roofline.formulas.rows import Row, register, row_work
from rooflines.roofline.formulas.scaled import operand_precision, widened

# --- copies ------------------------------------------------------------------------------------------------------------------------

# Blocks of columns, or the parts of ranks, in another order; a node is given the gradient, which goes back.
_REORDERED: Final = Row("read self, read sizes?, read order?, read sizes_back?, read order_back?", result="self")
# [total, ...] -> [rows, longest, ...], filled up; what is longer is cut off.
_TO_DENSE: Final = Row(
    "read values[total *inner], read offsets+, longest*",
    where="made = (offsets[0] - 1) * prod(longest) * inner",
    reads="selected(values, made) + offsets.size",
    writes="made * values.item",
)
_COPIES: Final[dict[str, Row]] = {
    # Indices sorted into a bucket for each rank: a division and a remainder an index, a length for each bucket and row.
    "fbgemm::block_bucketize_sparse_features fbgemm::block_bucketize_sparse_features_inference": Row(
        "read lengths, read indices, bucketize_pos, sequence, read block_sizes?, my_size, read weights?",
        other="2 * indices.n",
        writes="my_size * lengths.n * lengths.item + weights.n * weights.item"
        " + indices.n * indices.item * (1 + bool(bucketize_pos) + bool(sequence))",
        precision="=",
    ),
    # The position of each value in its row.
    "fbgemm::offsets_range": Row("read offsets, range_size", writes="range_size * offsets.item"),
    "fbgemm::invert_permute": Row("read permute", result="permute"),
    "fbgemm::expand_into_jagged_permute": Row(
        "read permute, read input_offset, read output_offset, output_size", writes="output_size * output_offset.item"
    ),
    "fbgemm::permute_pooled_embs fbgemm::permute_pooled_embs_auto_grad fbgemm::permute_pooled_embs_split": _REORDERED,
    "fbgemm::permute_pooled_embs_auto_grad_split fbgemm::recat_embedding_grad_output_mixed_D_batch": _REORDERED,
    "fbgemm::recat_embedding_grad_output_mixed_D fbgemm::recat_embedding_grad_output": _REORDERED,
    "fbgemm::jagged_to_padded_dense fbgemm::jagged_to_padded_dense_forward": _TO_DENSE,
    "fbgemm::jagged_2d_to_dense fbgemm::jagged_1d_to_dense": _TO_DENSE,
    "fbgemm::index_select_dim0": Row(
        "read self[rows *rest], read indices",
        reads="selected(self, indices.n * rest) + indices.size",
        writes="indices.n * rest * self.item",
    ),
}
register(_COPIES, "copy")
for _device in ("_gpu", "_cpu", "_split_gpu", "_split_cpu"):
    _node = f"torch::autograd::CppNode<fbgemm_gpu::PermutePooledEmbsFunction<&fbgemm_gpu::permute_pooled_embs{_device}"
    formula(f"{_node}> >", f"{_node}>>", category="copy")(partial(row_work, row=_REORDERED))
# Columns of several results of tables, regrouped; a node for the gradients goes the other way.
_REGROUPED: Final = Row(
    "read pooled+, read permutes, in_shapes, out_shapes, out_lengths*",
    where="made = pooled[0] * sum(out_lengths) * pooled.item",
    reads="min(pooled.size, made) + permutes.size",
    writes="made",
)
register({"fbgemm::permute_multi_embedding fbgemm::permute_multi_embedding_function": _REGROUPED}, "embedding")


@hinted_formula("fbgemm::permute_2D_sparse_data", "fbgemm::permute_1D_sparse_data", "fbgemm::permute_sparse_data",
                "fbgemm::permute_sparse_features", category="copy")  # fmt: skip
def _permute_features(signature: Signature, hints: Hints) -> Work:
    """Rows of lengths and the values of each in another order. ``permute`` may leave rows out or repeat them; the sum of the lengths
    then says how many values there are."""
    args = Arguments(signature, "permute lengths values weights=None permuted_lengths_sum=None")
    permute, lengths, values = args.tensor("permute"), args.tensor("lengths"), args.tensor("values")
    total = args.value("permuted_lengths_sum") if args.recorded("permuted_lengths_sum") else None
    rows, assumption = lengths.shape[0] if lengths.shape else 0, ""
    if hints.outputs is not None and len(hints.outputs) > 1:
        total = hints.outputs[1].numel
    elif not isinstance(total, int):
        total = values.numel * permute.numel // rows if rows else 0
        assumption = "features have equally many values" if permute.numel != rows else ""
    kept = permute.numel * (lengths.numel // rows if rows else 0)
    parts = [part for part in (values, args.optional("weights")) if part is not None]
    return Work(
        bytes_read=size(permute) + selected(lengths, kept) + sum(selected(part, total) for part in parts),
        bytes_written=kept * size_of(lengths.dtype) + total * sum(size_of(part.dtype) for part in parts),
        assumption=assumption,
    )


@hinted_formula("fbgemm::dense_to_jagged", "fbgemm::dense_to_jagged_forward", "fbgemm::jagged_to_padded_dense_backward",
                category="copy")  # fmt: skip
def _to_jagged(signature: Signature, hints: Hints) -> Work:
    """[rows, longest, ...] -> [total, ...]."""
    args = Arguments(signature, "dense offsets total=None")
    dense, total, offsets = args.tensor("dense"), args.value("total"), args.tensors("offsets")
    if not isinstance(total, int):
        if hints.outputs is None:
            raise NotCounted("sum of the lengths not recorded")
        total = hints.outputs[0].shape[0]
    results = total * prod(dense.shape[1 + max(len(offsets), 1) :])
    return moved(selected(dense, results) + size(*offsets), results * size_of(dense.dtype))


# --- element-wise ------------------------------------------------------------------------------------------------------------------

_TO_BYTES: Final = "FloatToFP8 FloatToFused8Bit HalfToFused8Bit FloatOrHalfToFused8Bit"
# Elements of a jagged tensor with those of dense ones; the result is jagged, or dense.
_PAIRED: Final = Row(
    "read values, read offsets*, read y, read y_1?", 1, "values",
    reads="values.size + offsets.size + selected(y, values.n) + selected(y_1, values.n)", result="values",
)  # fmt: skip
_ELEMENTWISE: Final[dict[str, Row]] = {
    # Two compares an index; only indices out of bounds are written.
    "fbgemm::bounds_check_indices": Row("read rows, read indices, read offsets", 2, "indices"),
    # A byte an element, in rows filled up to four, and two float32 behind each; the range of each row is searched for.
    " ".join(f"fbgemm::{name}RowwiseQuantized" for name in _TO_BYTES.split()): Row(
        "read self[*rows k]", QUANTIZE + 2, "self", writes="rows * (up(k, 4) * 4 + 8)"
    ),
    # ``bit_rate`` bits an element, and two float16 behind each row.
    " ".join(f"fbgemm::{name}ToFusedNBitRowwiseQuantizedSBHalf" for name in ("Float", "Half", "FloatOrHalf")): Row(
        "read self[*rows k], bit_rate", QUANTIZE + 2, "self", writes="rows * (up(k * bit_rate, 8) + 4)"
    ),
    "fbgemm::FloatToHFP8Quantized": Row("read self", 1, "self", writes="self.n"),
    "fbgemm::FloatToBfloat16Quantized": Row("read self", 1, "self", writes="2 * self.n"),
    "fbgemm::HFP8QuantizedToFloat fbgemm::Bfloat16QuantizedToFloat": Row(
        "read self", 1, "self", writes="4 * self.n", precision="=fp32"
    ),
    "fbgemm::jagged_dense_elementwise_add": replace(_PAIRED, result="y"),
    "fbgemm::jagged_dense_elementwise_add_jagged_output": _PAIRED,
    "fbgemm::jagged_dense_elementwise_mul fbgemm::jagged_dense_elementwise_mul_forward": _PAIRED,
    "fbgemm::jagged_dense_dense_elementwise_add_jagged_output"
    " fbgemm::jagged_dense_dense_elementwise_add_jagged_output_forward": replace(_PAIRED, cost=2),
}
register(_ELEMENTWISE, "element-wise")

# The number of a result's dtype, its bytes and precision.
_DTYPES: Final = {0: (4, "=fp32"), 1: (2, "=fp16"), 5: (2, "=bf16")}


def _from_bytes(schema: str, code: int | None = None) -> tuple[Row, ...]:
    """Rows of bytes with two float32 behind each, or of fewer bits with two float16. ``code`` is the dtype's number where no argument
    says it."""
    numbers = "(self[-1] - 4) * 8 // bit_rate" if "bit_rate" in schema else "(self[-1] - 8)"
    return tuple(
        replace(
            widened(schema, str(item), f"self.n // self[-1] * {numbers}", precision),
            fits="" if code is not None else f"(value('output_dtype') or 0) == {number}",
        )
        for number, (item, precision) in _DTYPES.items()
        if code in (None, number)
    )


_WIDENED: Final[dict[str, tuple[Row, ...]]] = {
    "FP8RowwiseQuantizedToFloat": _from_bytes("read self, forward, output_dtype=0"),
    "Fused8BitRowwiseQuantizedToFloatOrHalf": _from_bytes("read self, output_dtype=0"),
    "Fused8BitRowwiseQuantizedToFloat": _from_bytes("read self", 0),
    "Fused8BitRowwiseQuantizedToHalf": _from_bytes("read self", 1),
    "Fused8BitRowwiseQuantizedToBfloat16": _from_bytes("read self", 5),
    "FusedNBitRowwiseQuantizedSBHalfToFloat": _from_bytes("read self, bit_rate", 0),
    "FusedNBitRowwiseQuantizedSBHalfToHalf": _from_bytes("read self, bit_rate", 1),
    "FusedNBitRowwiseQuantizedSBHalfToFloatOrHalf": _from_bytes("read self, bit_rate, output_dtype=0"),
}
register(_WIDENED, "element-wise", namespace="fbgemm::")

# --- reductions and products -------------------------------------------------------------------------------------------------------

# Over each row's values, column by column.
_SOFTMAX: Final = Row("read output, read offsets", SOFTMAX, "output", result="output")
_REDUCTIONS: Final[dict[str, Row]] = {
    # Offsets from lengths; the complete forms have the total as well.
    "fbgemm::asynchronous_inclusive_cumsum fbgemm::asynchronous_exclusive_cumsum": Row("read self", 1, "self", result="self"),
    "fbgemm::asynchronous_complete_cumsum fbgemm::asynchronous_batched_complete_cumsum": Row(
        "read self[*rows n]", 1, "self", result="self", writes="rows * self.item"
    ),
    "fbgemm::jagged_softmax fbgemm::jagged_softmax_forward": _SOFTMAX,
    "fbgemm::jagged_softmax_backward": replace(
        _SOFTMAX, schema="read grad?, read output, read offsets", cost=SOFTMAX_BACKWARD, precision="output"
    ),
    "fbgemm::segment_sum_csr": Row(
        "batch_size, read segments, read values", 1, "values", writes="(segments.n - 1) * values.item", precision="values"
    ),
}
register(_REDUCTIONS, "reduction")
_PRODUCTS: Final[dict[str, Row]] = {
    # [total, k] @ [rows, k, n] -> [total, n]: each row's values with its own matrix
    "fbgemm::jagged_dense_bmm fbgemm::jagged_dense_bmm_forward": Row(
        "read values[t k], read offsets, read y[*rows n]", matrix="2 * t * k * n", writes="t * n * values.item"
    ),
    # [k, total] @ [total, n] row by row -> [rows, k, n]
    "fbgemm::jagged_jagged_bmm fbgemm::jagged_jagged_bmm_forward": Row(
        "read x[t *k], read y[total *n], read offsets",
        matrix="2 * x[-1] * t * y[-1]",
        writes="(offsets.n - 1) * x[-1] * y[-1] * x.item",
    ),
    # [m, b, k] @ [b, k, n] + [b, n] -> [m, b, n]
    "fbgemm::permute102_baddbmm_permute102": Row(
        "read bias, read left[m b k], read right[b k n]",
        matrix="2 * b * m * k * n",
        other="m * b * n",
        writes="m * b * n * left.item",
        precision="left",
    ),
    # A vector [rows * heads, longest] with each row's matrix [length, heads * d] -> [rows * heads, d]
    "fbgemm::batched_dense_vec_jagged_2d_mul fbgemm::batched_dense_vec_jagged_2d_mul_forward": Row(
        "read v, read values, read offsets",
        where="heads = v[0] // max(offsets.n - 1, 1)",
        matrix="2 * values.n",
        reads="selected(v, heads * values[0]) + values.size + offsets.size",
        writes="v[0] * (values[-1] // max(heads, 1)) * values.item",
        precision="values",
    ),
}
register(_PRODUCTS, "matmul")

PADDING: Final = "no row is padding"

# --- products ----------------------------------------------------------------------------------------------------------------------

_SCALED: Final = (
    "fbgemm::f8f8bf16 fbgemm::f8f8bf16_rowwise fbgemm::f8f8f16_rowwise fbgemm::f8f8bf16_rowwise_batched fbgemm::i8i8bf16"
    " fbgemm::f8f8bf16_rowwise_preshuffle fbgemm::f8f8f16_rowwise_preshuffle fbgemm::f8f8bf16_tensorwise fbgemm::f8f8bf16_blockwise"
    " fbgemm::f8f8bf16_groupwise fbgemm::f8f8bf16_cublas fbgemm::f8f8bf16_lite fbgemm::i8i8bf16_dynamic"
    " fbgemm::fp8fp8bf16_fast_gemv triton::matmul_fp8_block triton::matmul_fp8_row"
)
_OF_4_BITS: Final = (
    "fbgemm::bf16i4bf16_rowwise fbgemm::bf16i4bf16_rowwise_batched fbgemm::bf16i4bf16_shuffled fbgemm::bf16i4bf16_shuffled_batched"
    " fbgemm::f8i4bf16_rowwise fbgemm::f8i4bf16_shuffled"
)
# [..., m, k] @ [..., n, k]^T with scales; each result is scaled once, or each element of a narrow weight is widened.
_PLAIN: Final = Row(
    "read left[*m k], read right[*groups n packed], read scales*",
    matrix="2 * m * k * n",
    other="m * n * bool(scales)",
    writes="2 * m * n",
)
_WIDENING: Final = "DEQUANTIZE * right.n * {} if left.dtype != right.dtype else m * n * bool(scales)"
# Where each group's padding starts is data.
_GROUPS: Final = replace(_PLAIN, assumption=PADDING)
_PLAIN_PRODUCTS: Final[dict[str, Row]] = {
    _SCALED: _PLAIN,
    "fbgemm::f8f8bf16_rowwise_out": replace(
        _PLAIN, schema="read left[*m k], read right[*groups n packed], read left_scale, read scales, out"
    ),
    _OF_4_BITS: replace(_PLAIN, other=_WIDENING.format(2)),
    "fbgemm::bf16_fast_gemv fbgemm::bf16fp8bf16_fast_gemv": replace(_PLAIN, other=_WIDENING.format(1)),
    "fbgemm::bf16bf16bf16_grouped_dynamic": replace(_GROUPS, other=""),
    "fbgemm::f8f8bf16_rowwise_grouped_dynamic": _GROUPS,
}
register(_PLAIN_PRODUCTS, "matmul", functions=True)

# [m, k] @ [n, k]^T with scales that the product applies, perhaps one more for all results; two numbers of four bits in a byte.
_BLOCK_SCALED: Final = Row(
    "read left[m k], read right[n packed], read left_scale, read right_scale, out=None, read global_scale?",
    matrix="2 * m * k * n", other="m * n * bool(global_scale)", writes="2 * m * n", precision="=fp8",
)  # fmt: skip
_GENAI_PRODUCTS: Final[dict[str, Row]] = {
    "fbgemm::mx8mx4bf16 fbgemm::mx8mx6bf16": _BLOCK_SCALED,
    "fbgemm::f4f4bf16": replace(_BLOCK_SCALED, matrix="2 * m * 2 * k * n", precision="=fp4"),
    # [tokens, n] of each group with its [tokens, k]: a gradient [n, k] for each group
    "fbgemm::bf16bf16bf16_grouped_wgrad": Row(
        "read left[t n], read right[t k], read sizes", matrix="2 * n * t * k", writes="sizes.n * n * k * left.item"
    ),
}
register(_GENAI_PRODUCTS, "matmul")


def _stacked(count: int) -> tuple[Row, ...]:
    """[tokens, k] of all groups with [groups, n, k], or for the gradient of the input [groups, k, n], and ``count`` scales and sizes;
    no more weights are read than groups have a token."""
    small = ", ".join(f"read small{number}?" for number in range(count))
    row = Row(
        f"read left[*rows k], view right[groups a b], {small}",
        where="narrow = packed(right) or right.dtype == 'int8'; both = packed(left) and packed(right); back = k != b and not narrow;"
        " n = b if back else a; inner = a if back else b; weights = min(groups, rows) * n * inner",
        matrix="2 * rows * inner * (1 + narrow) * n",
        other=f"DEQUANTIZE * 2 * weights if narrow and not both else rows * n * {'bool(small1)' if count > 1 else 0}",
        also="weights * right.item",
        writes="2 * rows * n",
        assumption="every group has a token",
        given="groups > 1",
    )
    return replace(row, fits="both", precision="=fp4"), row


_STACKED: Final[dict[str, tuple[Row, ...]]] = {
    "bf16bf16bf16_grouped_stacked bf16bf16bf16_grouped_grad": _stacked(1),
    "f8f8bf16_rowwise_grouped_stacked f8f8bf16_groupwise_grouped f8f8bf16_groupwise_grouped_preshuffle": _stacked(3),
    "bf16i4bf16_shuffled_grouped": _stacked(3),
    "f8i4bf16_shuffled_grouped": _stacked(4),
    "f4f4bf16_grouped_stacked": _stacked(5),
}
register(_STACKED, "matmul", namespace="fbgemm::", functions=True)

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
        bytes_written=2 * prod(shape),
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
        bytes_written=2 * results,
        precision="fp8" if narrow else "bf16",
    )


# --- quantization ------------------------------------------------------------------------------------------------------------------

# The largest magnitude of each row, of each column, of each block or of all, and a byte an element; a scale is float32.
_QUANTIZED: Final = Row("read self[*rows k]", DYNAMIC_QUANTIZE, "self", writes="self.n + 4 * rows")
_BY_SCALE: Final = Row("read self", QUANTIZE, "self", writes="self.n")
# SiLU of the gate times the other half; ``valid`` says how many rows are no padding.
_GATED: Final = Row("read gate, read up, view valid?", SILU + 1, "gate", result="gate", assumption=PADDING, given="valid")
_GENAI_ELEMENTWISE: Final[dict[str, Row]] = {
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
register(_GENAI_ELEMENTWISE, "element-wise")
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
