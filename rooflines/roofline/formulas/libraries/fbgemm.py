"""FBGEMM's operators on sparse features, jagged tensors and numbers of few bits (its tables are in ``fbgemm_embedding.py``).

Order of arguments: FBGEMM 1.9 (commit 71d6f8b22), ``fbgemm_gpu/src``: ``sparse_ops/sparse_ops_cpu.cpp``,
``jagged_tensor_ops/jagged_tensor_ops_cpu.cpp``, ``permute_pooled_embedding_ops``, ``quantize_ops/quantize_ops_cpu.cpp``,
``codegen/utils/embedding_bounds_check_host.cpp``. Jagged tensors hold the elements of all rows one after the other; how long each row
is, the values of the offsets say. Kernels of jagged tensors touch what the values hold, which is in their shapes.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import prod
from typing import Final

from rooflines.profiler.trace.signature import Signature
from rooflines.roofline.formulas.arguments import Arguments, NotCounted, size, size_of
from rooflines.roofline.formulas.copies import moved
from rooflines.roofline.formulas.costs import QUANTIZE, SOFTMAX, SOFTMAX_BACKWARD
from rooflines.roofline.formulas.gather import selected
from rooflines.roofline.formulas.narrow import widened
from rooflines.roofline.formulas.record import Work
from rooflines.roofline.formulas.registry import Hints, formula, hinted_formula
from rooflines.roofline.formulas.rows import Row, register, row_work

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
