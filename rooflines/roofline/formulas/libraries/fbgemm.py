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
from rooflines.roofline.formulas.arguments import Arguments, size
from rooflines.roofline.formulas.matmul import grouped_product
from rooflines.roofline.formulas.record import Work, matrix_precision_of
from rooflines.roofline.formulas.registry import Hints, formula
from rooflines.roofline.formulas.rows import Row, row_work
from rooflines.roofline.formulas.scaled import operand_precision, widened
from rooflines.roofline.formulas.tables import table

# Blocks of columns, or the parts of ranks, in another order; a node is given the gradient, which goes back.
_REORDERED: Final = Row("read self, read sizes?, read order?, read sizes_back?, read order_back?", result="self")
for _device in ("_gpu", "_cpu", "_split_gpu", "_split_cpu"):
    _node = f"torch::autograd::CppNode<fbgemm_gpu::PermutePooledEmbsFunction<&fbgemm_gpu::permute_pooled_embs{_device}"
    formula(f"{_node}> >", f"{_node}>>", category="copy")(partial(row_work, row=_REORDERED))


# The number of a result's dtype, its bytes and precision.
_DTYPES: Final = {0: (4, "=fp32"), 1: (2, "=fp16"), 5: (2, "=bf16")}


def _from_bytes(schema: str, code: int | None = None) -> str:
    """Rows of bytes with two float32 behind each, or of fewer bits with two float16. ``code`` is the dtype's number where no argument
    says it."""
    numbers = "(self[-1] - 4) * 8 // bit_rate" if "bit_rate" in schema else "(self[-1] - 8)"
    return " | ".join(
        f"{widened(schema, str(item), f'self.n // self[-1] * {numbers}', precision)}"
        + (f"; fits = (value('output_dtype') or 0) == {number}" if code is None else "")
        for number, (item, precision) in _DTYPES.items()
        if code in (None, number)
    )


PADDING: Final = "no row is padding"
_WIDENING: Final = "DEQUANTIZE * right.n * {} if left.dtype != right.dtype else m * n * bool(scales)"


def _stacked(count: int) -> str:
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
    return f"{replace(row, fits='both', precision='=fp4')} | {row}"


def grouped(signature: Signature, _: Hints, text: str) -> Work:
    """As ``aten::_scaled_grouped_mm``, with the right operand [.., k, n], of the row-wise one [.., n, k]."""
    name = signature.name.rpartition("::")[2]
    args = Arguments(signature, f"left right left_scale right_scale offsets {text}")
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


_TABLE: Final = f"""
[copy]
# Indices sorted into a bucket for each rank: a division and a remainder an index, a length for each bucket and row.
fbgemm::block_bucketize_sparse_features fbgemm::block_bucketize_sparse_features_inference: read lengths, read indices, bucketize_pos,
    sequence, read block_sizes?, my_size, read weights?; other = 2 * indices.n; writes = my_size * lengths.n * lengths.item +
    weights.n * weights.item + indices.n * indices.item * (1 + bool(bucketize_pos) + bool(sequence)); precision = none
# The position of each value in its row.
fbgemm::offsets_range: read offsets, range_size; writes = range_size * offsets.item
fbgemm::invert_permute: read permute -> permute
fbgemm::expand_into_jagged_permute: read permute, read input_offset, read output_offset, output_size;
    writes = output_size * output_offset.item
fbgemm::permute_pooled_embs fbgemm::permute_pooled_embs_auto_grad fbgemm::permute_pooled_embs_split
    fbgemm::permute_pooled_embs_auto_grad_split fbgemm::recat_embedding_grad_output_mixed_D_batch
    fbgemm::recat_embedding_grad_output_mixed_D fbgemm::recat_embedding_grad_output: {_REORDERED}
# [total, ...] -> [rows, longest, ...], filled up; what is longer is cut off.
fbgemm::jagged_to_padded_dense fbgemm::jagged_to_padded_dense_forward fbgemm::jagged_2d_to_dense fbgemm::jagged_1d_to_dense: read
    values[total *inner], read offsets+, longest*; made = (offsets[0] - 1) * prod(longest) * inner;
    reads = selected(values, made) + offsets.size; writes = made * values.item
fbgemm::dense_to_jagged fbgemm::dense_to_jagged_forward fbgemm::jagged_to_padded_dense_backward: read dense, read offsets*,
    total=None; rows = total if isinstance(value('total'), int) else returned_tensor(0, 'sum of the lengths not recorded')[0];
    made = rows * prod(dense[1 + max(len(offsets), 1):]); reads = selected(dense, made) + offsets.size; writes = made * dense.item
# Rows of lengths and the values of each in another order. ``permute`` may leave rows out or repeat them; the sum of the lengths then
# says how many values there are.
fbgemm::permute_2D_sparse_data fbgemm::permute_1D_sparse_data fbgemm::permute_sparse_data fbgemm::permute_sparse_features: read
    permute, read lengths[rows *rest], read values, read weights?, permuted_lengths_sum=None;
    even = not returned_tensor(1) and not isinstance(value('permuted_lengths_sum'), int); kept = permute.n * rest;
    total = returned_tensor(1).n if returned_tensor(1) else values.n * permute.n // max(rows, 1) if even else permuted_lengths_sum;
    reads = permute.size + selected(lengths, kept) + selected(values, total) + selected(weights, total); precision = none;
    writes = kept * lengths.item + total * (values.item + weights.item); assumption = features have equally many values;
    given = even and permute.n != rows
fbgemm::index_select_dim0: read self[rows *rest], read indices; reads = selected(self, indices.n * rest) + indices.size;
    writes = indices.n * rest * self.item
# Rows of [tokens, k], perhaps times a score of [tokens, experts] each, perhaps as fp8 with a scale for each row.
fbgemm::gather_along_first_dim: read source[*tokens k], read index; made = index.n * k; reads = selected(source, made) + index.size;
    writes = made * source.item
fbgemm::gather_scale_dense_tokens like fbgemm::gather_along_first_dim: read source[*tokens k], read index, read experts?,
    read scores, view valid?; other = made; reads = selected(source, made) + index.size + experts.size + selected(scores, index.n);
    assumption = {PADDING}; given = valid
fbgemm::gather_scale_quant_dense_tokens like fbgemm::gather_scale_dense_tokens: read source[*tokens k], read index, read experts?,
    read scores, bound=None, view valid?; other = made * (1 + DYNAMIC_QUANTIZE); writes = made + 4 * index.n
fbgemm::scatter_add_along_first_dim fbgemm::scatter_add_dense_tokens: read target, read source[*rows k], read index, view valid?;
    taken = index.n * k; changed = selected(target, taken); other = taken; reads = taken * source.item + index.size + changed;
    writes = changed; precision = target; assumption = {PADDING}; given = valid
# Of [ranks, rows, k] each row is of one rank, and the others' is padding.
fbgemm::scatter_add_padded_tokens like fbgemm::scatter_add_along_first_dim: read source[*rows k], read counts?, read index,
    read target; reads = taken * source.item + index.size + changed + counts.size; assumption = ; given =
# Rows of [tokens, k] from the order of ranks to that of experts, or back; [ranks, experts] says how many each has.
fbgemm::split_shuffling: read tokens, read counts[*ranks experts], first=None, last=None, padded=False -> tokens;
    assumption = {PADDING}; given = padded
fbgemm::combine_shuffling like fbgemm::split_shuffling: ; writes = (experts + 1) * counts.item
[embedding]
# Columns of several results of tables, regrouped; a node for the gradients goes the other way.
fbgemm::permute_multi_embedding fbgemm::permute_multi_embedding_function: read pooled+, read permutes, in_shapes, out_shapes,
    out_lengths*; made = pooled[0] * sum(out_lengths) * pooled.item; reads = min(pooled.size, made) + permutes.size; writes = made
[element-wise]
# Two compares an index; only indices out of bounds are written.
fbgemm::bounds_check_indices: read rows, read indices, read offsets; cost = 2; per = indices
# A byte an element, in rows filled up to four, and two float32 behind each; the range of each row is searched for.
fbgemm::FloatToFP8RowwiseQuantized fbgemm::FloatToFused8BitRowwiseQuantized fbgemm::HalfToFused8BitRowwiseQuantized
    fbgemm::FloatOrHalfToFused8BitRowwiseQuantized: read self[*rows k]; cost = QUANTIZE + 2; per = self;
    writes = rows * (up(k, 4) * 4 + 8)
# ``bit_rate`` bits an element, and two float16 behind each row.
fbgemm::FloatToFusedNBitRowwiseQuantizedSBHalf fbgemm::HalfToFusedNBitRowwiseQuantizedSBHalf
    fbgemm::FloatOrHalfToFusedNBitRowwiseQuantizedSBHalf: read self[*rows k], bit_rate; cost = QUANTIZE + 2; per = self;
    writes = rows * (up(k * bit_rate, 8) + 4)
fbgemm::FloatToHFP8Quantized: read self; cost = 1; per = self; writes = self.n
fbgemm::FloatToBfloat16Quantized: read self; cost = 1; per = self; writes = 2 * self.n
fbgemm::HFP8QuantizedToFloat fbgemm::Bfloat16QuantizedToFloat: read self; cost = 1; per = self; writes = 4 * self.n; precision = fp32
# Elements of a jagged tensor with those of dense ones; the result is jagged, or dense.
fbgemm::jagged_dense_elementwise_add: read values, read offsets*, read y, read y_1? -> y; cost = 1; per = values;
    reads = values.size + offsets.size + selected(y, values.n) + selected(y_1, values.n)
fbgemm::jagged_dense_elementwise_add_jagged_output fbgemm::jagged_dense_elementwise_mul fbgemm::jagged_dense_elementwise_mul_forward
    like fbgemm::jagged_dense_elementwise_add: ; result = values
fbgemm::jagged_dense_dense_elementwise_add_jagged_output fbgemm::jagged_dense_dense_elementwise_add_jagged_output_forward like
    fbgemm::jagged_dense_elementwise_mul: ; cost = 2
# The largest magnitude of each row, of each column, of each block or of all, and a byte an element; a scale is float32.
fbgemm::quantize_fp8_per_row triton::quantize_fp8_row triton::quantize_fp8_packed_row triton::quantize_fp8_packed_row_raw: read
    self[*rows k]; cost = DYNAMIC_QUANTIZE; per = self; writes = self.n + 4 * rows
fbgemm::quantize_fp8_per_col like fbgemm::quantize_fp8_per_row: ; writes = self.n + 4 * k
fbgemm::quantize_fp8_per_tensor fbgemm::per_tensor_dynamic_quantize_i8 triton::quantize_fp8_tensor like fbgemm::quantize_fp8_per_row:
    read self; writes = self.n + 4
triton::quantize_fp8_block like fbgemm::quantize_fp8_per_row: read self[*rows k], block_m=256, block_k=256;
    writes = self.n + 4 * up(rows, block_m) * up(k, block_k)
fbgemm::quantize_fp8_per_tensor_fixed_scale fbgemm::per_tensor_quantize_i8: read self; cost = QUANTIZE; per = self; writes = self.n
# SiLU of the gate times the other half; ``valid`` says how many rows are no padding.
fbgemm::silu_mul: read gate, read up, view valid? -> gate; cost = SILU + 1; per = gate; assumption = {PADDING}; given = valid
fbgemm::silu_mul_quant like fbgemm::silu_mul: read gate[rows *k], read up, bound=None, view valid?; result = ;
    cost = SILU + 1 + DYNAMIC_QUANTIZE; writes = gate.n + 4 * rows
fbgemm::silu_mul_quantize_i8: read gate; cost = SILU + 1 + QUANTIZE; per = gate; reads = 2 * gate.size; writes = gate.n
[element-wise fbgemm::]
FP8RowwiseQuantizedToFloat: {_from_bytes("read self, forward, output_dtype=0")}
Fused8BitRowwiseQuantizedToFloatOrHalf: {_from_bytes("read self, output_dtype=0")}
Fused8BitRowwiseQuantizedToFloat: {_from_bytes("read self", 0)}
Fused8BitRowwiseQuantizedToHalf: {_from_bytes("read self", 1)}
Fused8BitRowwiseQuantizedToBfloat16: {_from_bytes("read self", 5)}
FusedNBitRowwiseQuantizedSBHalfToFloat: {_from_bytes("read self, bit_rate", 0)}
FusedNBitRowwiseQuantizedSBHalfToHalf: {_from_bytes("read self, bit_rate", 1)}
FusedNBitRowwiseQuantizedSBHalfToFloatOrHalf: {_from_bytes("read self, bit_rate, output_dtype=0")}
[reduction]
# Offsets from lengths; the complete forms have the total as well.
fbgemm::asynchronous_inclusive_cumsum fbgemm::asynchronous_exclusive_cumsum: read self -> self; cost = 1; per = self
fbgemm::asynchronous_complete_cumsum fbgemm::asynchronous_batched_complete_cumsum: read self[*rows n] -> self; cost = 1; per = self;
    writes = rows * self.item
# Over each row's values, column by column.
fbgemm::jagged_softmax fbgemm::jagged_softmax_forward: read output, read offsets -> output; cost = SOFTMAX; per = output
fbgemm::jagged_softmax_backward like fbgemm::jagged_softmax: read grad?, read output, read offsets; cost = SOFTMAX_BACKWARD;
    precision = output
fbgemm::segment_sum_csr: batch_size, read segments, read values; cost = 1; per = values; writes = (segments.n - 1) * values.item;
    precision = values
fbgemm::get_fp8_per_tensor_scale: read self; cost = 2; per = self; writes = 4
[matmul]
fbgemm::jagged_dense_bmm fbgemm::jagged_dense_bmm_forward: read values[t k], read offsets, read y[*rows n]; matrix = 2 * t * k * n;
    writes = t * n * values.item
# [k, total] @ [total, n] row by row -> [rows, k, n]
fbgemm::jagged_jagged_bmm fbgemm::jagged_jagged_bmm_forward: read x[t *k], read y[total *n], read offsets;
    matrix = 2 * x[-1] * t * y[-1]; writes = (offsets.n - 1) * x[-1] * y[-1] * x.item
fbgemm::permute102_baddbmm_permute102: read bias, read left[m b k], read right[b k n]; matrix = 2 * b * m * k * n; other = m * b * n;
    writes = m * b * n * left.item; precision = left
# A vector [rows * heads, longest] with each row's matrix [length, heads * d] -> [rows * heads, d]
fbgemm::batched_dense_vec_jagged_2d_mul fbgemm::batched_dense_vec_jagged_2d_mul_forward: read v, read values, read offsets;
    heads = v[0] // max(offsets.n - 1, 1); matrix = 2 * values.n;
    reads = selected(v, heads * values[0]) + values.size + offsets.size; writes = v[0] * (values[-1] // max(heads, 1)) * values.item;
    precision = values
# [m, k] @ [n, k]^T with scales that the product applies, perhaps one more for all results; two numbers of four bits in a byte.
fbgemm::mx8mx4bf16 fbgemm::mx8mx6bf16: read left[m k], read right[n packed], read left_scale, read right_scale, out=None,
    read global_scale?; matrix = 2 * m * k * n; other = m * n * bool(global_scale); writes = 2 * m * n; precision = fp8
fbgemm::f4f4bf16 like fbgemm::mx8mx4bf16: ; matrix = 2 * m * 2 * k * n; precision = fp4
# [tokens, n] of each group with its [tokens, k]: a gradient [n, k] for each group
fbgemm::bf16bf16bf16_grouped_wgrad: read left[t n], read right[t k], read sizes; matrix = 2 * n * t * k;
    writes = sizes.n * n * k * left.item
# A list of inputs with a list of weights, whose dtype is that of the name: traces do not record that of lists.
fbgemm::bf16bf16bf16_grouped fbgemm::bf16bf16bf16_grouped_cat: view left+, view right+, left_scale=(), right_scale=();
    matrix = sum(2 * a.numel * b.shape[0] for a, b in zip(left.tensors, right.tensors)); reads = 2 * (left.n + right.n);
    results = sum(prod(a.shape[:-1]) * b.shape[0] for a, b in zip(left.tensors, right.tensors)); writes = 2 * results;
    precision = bf16; fits = len(left) == len(right)
fbgemm::f8f8bf16_rowwise_grouped fbgemm::f8f8bf16_rowwise_grouped_cat like fbgemm::bf16bf16bf16_grouped: ; other = results;
    scales = sum(prod(a.shape[:-1]) + b.shape[0] for a, b in zip(left.tensors, right.tensors));
    reads = left.n + right.n + 4 * scales; precision = fp8
[matmul functions]
# [..., m, k] @ [..., n, k]^T with scales; each result is scaled once, or each element of a narrow weight is widened.
fbgemm::f8f8bf16 fbgemm::f8f8bf16_rowwise fbgemm::f8f8f16_rowwise fbgemm::f8f8bf16_rowwise_batched fbgemm::i8i8bf16
    fbgemm::f8f8bf16_rowwise_preshuffle fbgemm::f8f8f16_rowwise_preshuffle fbgemm::f8f8bf16_tensorwise fbgemm::f8f8bf16_blockwise
    fbgemm::f8f8bf16_groupwise fbgemm::f8f8bf16_cublas fbgemm::f8f8bf16_lite fbgemm::i8i8bf16_dynamic fbgemm::fp8fp8bf16_fast_gemv
    triton::matmul_fp8_block triton::matmul_fp8_row: read left[*m k], read right[*groups n packed], read scales*;
    matrix = 2 * m * k * n; other = m * n * bool(scales); writes = 2 * m * n
fbgemm::f8f8bf16_rowwise_out like fbgemm::f8f8bf16: read left[*m k], read right[*groups n packed], read left_scale, read scales, out
fbgemm::bf16i4bf16_rowwise fbgemm::bf16i4bf16_rowwise_batched fbgemm::bf16i4bf16_shuffled fbgemm::bf16i4bf16_shuffled_batched
    fbgemm::f8i4bf16_rowwise fbgemm::f8i4bf16_shuffled like fbgemm::f8f8bf16: ; other = {_WIDENING.format(2)}
fbgemm::bf16_fast_gemv fbgemm::bf16fp8bf16_fast_gemv like fbgemm::f8f8bf16: ; other = {_WIDENING.format(1)}
# Where each group's padding starts is data.
fbgemm::bf16bf16bf16_grouped_dynamic like fbgemm::f8f8bf16: ; other = ; assumption = {PADDING}
fbgemm::f8f8bf16_rowwise_grouped_dynamic like fbgemm::f8f8bf16: ; assumption = {PADDING}
[matmul fbgemm:: functions]
bf16bf16bf16_grouped_stacked bf16bf16bf16_grouped_grad: {_stacked(1)}
f8f8bf16_rowwise_grouped_stacked f8f8bf16_groupwise_grouped f8f8bf16_groupwise_grouped_preshuffle bf16i4bf16_shuffled_grouped:
    {_stacked(3)}
f8i4bf16_shuffled_grouped: {_stacked(4)}
f4f4bf16_grouped_stacked: {_stacked(5)}
[moe]
# The best experts of each token, sorted by expert: for each of the pairs an expert and a token, and how many each expert has; int32.
fbgemm::index_shuffling: read scores[tokens experts], first=None, last=None, view valid?, top_k=1; cost = 1; per = scores;
    writes = 4 * (2 * tokens * top_k + experts + 2); assumption = {PADDING}; given = valid
[matmul fbgemm:: by=grouped]
mx8mx8bf16_grouped_mm: out=None tokens=None
mx8mx4bf16_grouped_mm: out=None
f4f4bf16_grouped_mm: out=None left_global=None
f4f4bf16_ultra_grouped_mm: left_global right_global out=None
f8f8bf16_rowwise_grouped_mm: out
"""
table(_TABLE, grouped=grouped)
