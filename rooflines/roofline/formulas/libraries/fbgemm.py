"""FBGEMM's operators on sparse features, jagged tensors and numbers of few bits (its tables are in ``fbgemm_embedding.py``).

Order of arguments: FBGEMM 1.9 (commit 71d6f8b22), ``fbgemm_gpu/src``: ``sparse_ops/sparse_ops_cpu.cpp``,
``jagged_tensor_ops/jagged_tensor_ops_cpu.cpp``, ``permute_pooled_embedding_ops``, ``quantize_ops/quantize_ops_cpu.cpp``,
``codegen/utils/embedding_bounds_check_host.cpp``. Jagged tensors hold the elements of all rows one after the other; how long each row
is, the values of the offsets say. Kernels of jagged tensors touch what the values hold, which is in their shapes.
"""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Final

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.formulas.arguments import Arguments, NotCounted, size, size_of, written
from rooflines.roofline.formulas.copies import moved
from rooflines.roofline.formulas.costs import QUANTIZE, SOFTMAX, SOFTMAX_BACKWARD
from rooflines.roofline.formulas.gather import selected
from rooflines.roofline.formulas.matmul import product_flops
from rooflines.roofline.formulas.narrow import widened
from rooflines.roofline.formulas.passes import Pass, register
from rooflines.roofline.formulas.record import Work, matrix_precision_of, precision_of
from rooflines.roofline.formulas.table import Hints, formula, hinted_formula

# --- sparse features ---------------------------------------------------------------------------------------------------------------

_PERMUTED: Final = "permute lengths values weights=None permuted_lengths_sum=None"
_EVEN: Final = "features have equally many values"


@hinted_formula("fbgemm::permute_2D_sparse_data", "fbgemm::permute_1D_sparse_data", "fbgemm::permute_sparse_data",
                "fbgemm::permute_sparse_features", category="copy")  # fmt: skip
def _permute_features(signature: Signature, hints: Hints) -> Work:
    """Rows of lengths and the values of each in another order. ``permute`` may leave rows out or repeat them; the sum of the lengths
    then says how many values there are."""
    args = Arguments(signature, _PERMUTED)
    permute, lengths, values = args.tensor("permute"), args.tensor("lengths"), args.tensor("values")
    weights, assumption = args.optional("weights"), ""
    total = args.value("permuted_lengths_sum") if args.recorded("permuted_lengths_sum") else None
    rows = lengths.shape[0] if lengths.shape else 0
    if hints.outputs is not None and len(hints.outputs) > 1:
        total = hints.outputs[1].numel
    elif not isinstance(total, int):
        total = values.numel * permute.numel // rows if rows else 0
        assumption = _EVEN if permute.numel != rows else ""
    kept = permute.numel * (lengths.numel // rows if rows else 0)
    parts = [part for part in (values, weights) if part is not None]
    return Work(
        bytes_read=size(permute) + selected(lengths, kept) + sum(selected(part, total) for part in parts),
        bytes_written=kept * size_of(lengths.dtype) + total * sum(size_of(part.dtype) for part in parts),
        assumption=assumption,
    )


@formula("fbgemm::block_bucketize_sparse_features", "fbgemm::block_bucketize_sparse_features_inference", category="copy")
def _bucketize(signature: Signature) -> Work:
    """Indices sorted into a bucket for each rank: a division and a remainder an index, a length for each bucket and row."""
    args = Arguments(signature, "lengths indices bucketize_pos sequence block_sizes my_size weights=None")
    lengths, indices, weights = args.tensor("lengths"), args.tensor("indices"), args.optional("weights")
    positions = indices.numel * (args.flag("bucketize_pos") + args.flag("sequence")) * size_of(indices.dtype)
    return Work(
        other_flops=2 * indices.numel,
        bytes_read=size(lengths, indices, weights, args.optional("block_sizes")),
        bytes_written=lengths.numel * args.integer("my_size") * size_of(lengths.dtype) + written(indices, weights) + positions,
    )


# Two compares an index; only indices out of bounds are written.
register({"fbgemm::bounds_check_indices": Pass("read rows, read indices, read offsets", 2, per="indices")}, "element-wise")


@formula("fbgemm::asynchronous_complete_cumsum", "fbgemm::asynchronous_inclusive_cumsum", "fbgemm::asynchronous_exclusive_cumsum",
         "fbgemm::asynchronous_batched_complete_cumsum", category="reduction")  # fmt: skip
def _offsets(signature: Signature) -> Work:
    """Offsets from lengths; the complete form has the total as well."""
    inputs = Arguments(signature, "self").tensor("self")
    rows = prod(inputs.shape[:-1])
    results = inputs.numel + (rows if "complete" in signature.name else 0)
    return Work(
        other_flops=inputs.numel,
        bytes_read=size(inputs),
        bytes_written=results * size_of(inputs.dtype),
        precision=precision_of(inputs.dtype),
    )


@formula("fbgemm::offsets_range", category="copy")
def _ranges(signature: Signature) -> Work:
    """The position of each value in its row."""
    args = Arguments(signature, "offsets range_size")
    offsets = args.tensor("offsets")
    return moved(size(offsets), args.integer("range_size") * size_of(offsets.dtype))


register({"fbgemm::invert_permute": Pass("read permute", 0, "permute", result="permute")}, "copy")


@formula("fbgemm::expand_into_jagged_permute", category="copy")
def _expand(signature: Signature) -> Work:
    args = Arguments(signature, "permute input_offset output_offset output_size")
    offsets = args.tensor("output_offset")
    read = size(args.tensor("permute"), args.tensor("input_offset"), offsets)
    return moved(read, args.integer("output_size") * size_of(offsets.dtype))


# --- pooled embeddings -------------------------------------------------------------------------------------------------------------


def _reordered(signature: Signature) -> Work:
    """Blocks of columns, or the parts of ranks, in another order; a node is given the gradient, which goes back."""
    return moved(size(*signature.tensors), written(Arguments(signature, "self").tensor("self")))


formula(
    *(f"fbgemm::permute_pooled_embs{suffix}" for suffix in ("", "_auto_grad", "_split", "_auto_grad_split")),
    "fbgemm::recat_embedding_grad_output_mixed_D_batch",
    "fbgemm::recat_embedding_grad_output_mixed_D",
    "fbgemm::recat_embedding_grad_output",
    *(
        f"torch::autograd::CppNode<fbgemm_gpu::PermutePooledEmbsFunction<&fbgemm_gpu::permute_pooled_embs{device}{close}"
        for device in ("_gpu", "_cpu", "_split_gpu", "_split_cpu")
        for close in ("> >", ">>")
    ),
    category="copy",
)(_reordered)


@formula("fbgemm::permute_multi_embedding", "fbgemm::permute_multi_embedding_function", category="embedding")
def _regroup(signature: Signature) -> Work:
    """Columns of several results of tables, regrouped; a node for the gradients goes the other way."""
    args = Arguments(signature, "pooled permutes in_shapes out_shapes out_lengths")
    pooled = args.tensors("pooled")
    if not pooled:
        raise NotCounted("tensors of the list not recorded")
    results = pooled[0].shape[0] * sum(args.sizes("out_lengths")) * size_of(pooled[0].dtype)
    return moved(min(size(*pooled), results) + size(args.tensor("permutes")), results)


# --- numbers of few bits -----------------------------------------------------------------------------------------------------------

_FLOATS: Final = {0: "float32", 1: "float16", 5: "bfloat16"}


def _rows(tensor: TensorArg) -> int:
    return prod(tensor.shape[:-1])


def _quantized(signature: Signature, results: int, searched: bool = True) -> Work:
    """``results`` bytes of integers or narrow floats; the range of each row is searched for."""
    inputs = Arguments(signature, "self").tensor("self")
    cost = QUANTIZE + 2 if searched else 1
    return Work(0, inputs.numel * cost, size(inputs), results, precision_of(inputs.dtype))


@formula("fbgemm::FloatToFP8RowwiseQuantized", "fbgemm::FloatToFused8BitRowwiseQuantized", "fbgemm::HalfToFused8BitRowwiseQuantized",
         "fbgemm::FloatOrHalfToFused8BitRowwiseQuantized", category="element-wise")  # fmt: skip
def _to_bytes(signature: Signature) -> Work:
    """A byte an element, in rows filled up to four, and two float32 behind each."""
    inputs = Arguments(signature, "self").tensor("self")
    return _quantized(signature, _rows(inputs) * (-(-inputs.shape[-1] // 4) * 4 + 8))


@formula("fbgemm::FloatToFusedNBitRowwiseQuantizedSBHalf", "fbgemm::HalfToFusedNBitRowwiseQuantizedSBHalf",
         "fbgemm::FloatOrHalfToFusedNBitRowwiseQuantizedSBHalf", category="element-wise")  # fmt: skip
def _to_bits(signature: Signature) -> Work:
    """``bit_rate`` bits an element, and two float16 behind each row."""
    args = Arguments(signature, "self bit_rate")
    inputs = args.tensor("self")
    return _quantized(signature, _rows(inputs) * (-(-inputs.shape[-1] * args.integer("bit_rate") // 8) + 4))


def _cast(signature: Signature, width: int) -> Work:
    """To ``width`` bytes an element, without a search for the range."""
    return _quantized(signature, width * Arguments(signature, "self").tensor("self").numel, searched=False)


formula("fbgemm::FloatToHFP8Quantized", category="element-wise")(partial(_cast, width=1))
formula("fbgemm::FloatToBfloat16Quantized", category="element-wise")(partial(_cast, width=2))


_FROM_BYTES: Final = {
    "FP8RowwiseQuantizedToFloat": "self forward output_dtype=0",
    "Fused8BitRowwiseQuantizedToFloatOrHalf": "self output_dtype=0",
    "Fused8BitRowwiseQuantizedToFloat": "self",
    "Fused8BitRowwiseQuantizedToHalf": "self",
    "Fused8BitRowwiseQuantizedToBfloat16": "self",
}


@formula(*(f"fbgemm::{name}" for name in _FROM_BYTES), category="element-wise")
def _from_bytes(signature: Signature) -> Work:
    args = Arguments(signature, _FROM_BYTES[signature.name.removeprefix("fbgemm::")])
    inputs = args.tensor("self")
    named = "float16" if signature.name.endswith("ToHalf") else "bfloat16" if signature.name.endswith("16") else "float32"
    dtype = _FLOATS.get(args.integer("output_dtype"), "") if args.has("output_dtype") and args.recorded("output_dtype") else named
    return widened(inputs, dtype=dtype, numbers=_rows(inputs) * (inputs.shape[-1] - 8))


@formula("fbgemm::FusedNBitRowwiseQuantizedSBHalfToFloat", "fbgemm::FusedNBitRowwiseQuantizedSBHalfToHalf",
         "fbgemm::FusedNBitRowwiseQuantizedSBHalfToFloatOrHalf", category="element-wise")  # fmt: skip
def _from_bits(signature: Signature) -> Work:
    args = Arguments(signature, "self bit_rate" + (" output_dtype=0" if signature.name.endswith("FloatOrHalf") else ""))
    inputs = args.tensor("self")
    dtype = _FLOATS.get(args.integer("output_dtype"), "") if args.has("output_dtype") else "float32"
    if signature.name.endswith("ToHalf"):
        dtype = "float16"
    return widened(inputs, dtype=dtype, numbers=_rows(inputs) * (inputs.shape[-1] - 4) * 8 // args.integer("bit_rate"))


@formula("fbgemm::HFP8QuantizedToFloat", "fbgemm::Bfloat16QuantizedToFloat", category="element-wise")
def _from_narrow(signature: Signature) -> Work:
    return widened(Arguments(signature, "self").tensor("self"), dtype="float32", cost=1)


# --- jagged tensors ----------------------------------------------------------------------------------------------------------------


@formula("fbgemm::jagged_to_padded_dense", "fbgemm::jagged_to_padded_dense_forward", "fbgemm::jagged_2d_to_dense",
         "fbgemm::jagged_1d_to_dense", category="copy")  # fmt: skip
def _to_dense(signature: Signature) -> Work:
    """[total, ...] -> [rows, longest, ...], filled up; what is longer is cut off."""
    args = Arguments(signature, "values offsets longest")
    values, listed = args.tensor("values"), args.value("offsets")
    offsets = listed if isinstance(listed, tuple) else (args.tensor("offsets"),)
    longest = args.value("longest")
    lengths = longest if isinstance(longest, tuple) else (args.integer("longest"),)
    if not offsets or not isinstance(offsets[0], TensorArg):
        raise NotCounted("tensors of the list not recorded")
    results = (offsets[0].numel - 1) * prod(lengths) * prod(values.shape[1:])
    return moved(selected(values, results) + size(*offsets), results * size_of(values.dtype))


def _to_values(dense: TensorArg, total: int, offsets: tuple[TensorArg, ...]) -> Work:
    results = total * prod(dense.shape[1 + max(len(offsets), 1) :])
    return moved(selected(dense, results) + size(*offsets), results * size_of(dense.dtype))


@hinted_formula("fbgemm::dense_to_jagged", "fbgemm::dense_to_jagged_forward", "fbgemm::jagged_to_padded_dense_backward",
                category="copy")  # fmt: skip
def _to_jagged(signature: Signature, hints: Hints) -> Work:
    """[rows, longest, ...] -> [total, ...]."""
    args = Arguments(signature, "dense offsets total=None")
    dense, total = args.tensor("dense"), args.value("total")
    if not isinstance(total, int):
        if hints.outputs is None:
            raise NotCounted("sum of the lengths not recorded")
        total = hints.outputs[0].shape[0]
    return _to_values(dense, total, args.tensors("offsets"))


_PAIRED: Final = {
    "jagged_dense_elementwise_add": 1,
    "jagged_dense_elementwise_add_jagged_output": 1,
    "jagged_dense_elementwise_mul": 1,
    "jagged_dense_elementwise_mul_forward": 1,
    "jagged_dense_dense_elementwise_add_jagged_output": 2,
    "jagged_dense_dense_elementwise_add_jagged_output_forward": 2,
}


def _paired(signature: Signature, cost: int) -> Work:
    """Elements of a jagged tensor with those of dense ones; the result is jagged, or dense."""
    args = Arguments(signature, "values offsets y y_1=None")
    values, dense, second = args.tensor("values"), args.tensor("y"), args.optional("y_1")
    result = dense if signature.name.endswith("elementwise_add") else values
    read = selected(dense, values.numel) + (selected(second, values.numel) if second is not None else 0)
    return Work(
        other_flops=values.numel * cost,
        bytes_read=size(values, *args.tensors("offsets")) + read,
        bytes_written=written(result),
        precision=precision_of(values.dtype),
    )


for _name, _cost in _PAIRED.items():
    formula(f"fbgemm::{_name}", category="element-wise")(partial(_paired, cost=_cost))


# Over each row's values, column by column.
_JAGGED_SOFTMAX: Final = Pass("read output, read offsets", SOFTMAX, "output", result="output")
_SOFTMAXES: Final[dict[str, Pass]] = {
    "fbgemm::jagged_softmax": _JAGGED_SOFTMAX,
    "fbgemm::jagged_softmax_forward": _JAGGED_SOFTMAX,
    "fbgemm::jagged_softmax_backward": Pass("read grad?, read output, read offsets", SOFTMAX_BACKWARD, "output", result="output",
                                            precision="output"),
}  # fmt: skip
register(_SOFTMAXES, "reduction")


@formula("fbgemm::jagged_dense_bmm", "fbgemm::jagged_dense_bmm_forward", category="matmul")
def _jagged_product(signature: Signature) -> Work:
    """[total, k] @ [rows, k, n] -> [total, n]: each row's values with its own matrix."""
    args = Arguments(signature, "values offsets y")
    values, other = args.tensor("values"), args.tensor("y")
    total, inner = values.shape
    return Work(
        matrix_flops=product_flops(1, total, inner, other.shape[-1]),
        bytes_read=size(values, other, args.tensor("offsets")),
        bytes_written=total * other.shape[-1] * size_of(values.dtype),
        precision=matrix_precision_of(values.dtype),
    )


@formula("fbgemm::jagged_jagged_bmm", "fbgemm::jagged_jagged_bmm_forward", category="matmul")
def _jagged_products(signature: Signature) -> Work:
    """[k, total] @ [total, n] row by row -> [rows, k, n]."""
    args = Arguments(signature, "x y offsets")
    left, right, offsets = args.tensor("x"), args.tensor("y"), args.tensor("offsets")
    columns, depth = left.shape[-1], right.shape[-1]
    return Work(
        matrix_flops=product_flops(1, columns, left.shape[0], depth),
        bytes_read=size(left, right, offsets),
        bytes_written=(offsets.numel - 1) * columns * depth * size_of(left.dtype),
        precision=matrix_precision_of(left.dtype),
    )


@formula("fbgemm::batched_dense_vec_jagged_2d_mul", "fbgemm::batched_dense_vec_jagged_2d_mul_forward", category="matmul")
def _vector_product(signature: Signature) -> Work:
    """A vector [rows * heads, longest] with each row's matrix [length, heads * d] -> [rows * heads, d]."""
    args = Arguments(signature, "v values offsets")
    vector, values, offsets = args.tensor("v"), args.tensor("values"), args.tensor("offsets")
    rows = offsets.numel - 1
    heads = vector.shape[0] // rows if rows else 1
    results = vector.shape[0] * (values.shape[-1] // heads if heads else 0)
    return Work(
        matrix_flops=2 * values.numel,
        bytes_read=selected(vector, heads * values.shape[0]) + size(values, offsets),
        bytes_written=results * size_of(values.dtype),
        precision=matrix_precision_of(values.dtype),
    )


@formula("fbgemm::segment_sum_csr", category="reduction")
def _segment_sum(signature: Signature) -> Work:
    args = Arguments(signature, "batch_size segments values")
    segments, values = args.tensor("segments"), args.tensor("values")
    results = (segments.numel - 1) * size_of(values.dtype)
    return Work(0, values.numel, size(segments, values), results, precision_of(values.dtype))


@formula("fbgemm::index_select_dim0", category="copy")
def _select_rows(signature: Signature) -> Work:
    args = Arguments(signature, "self indices")
    inputs, indices = args.tensor("self"), args.tensor("indices")
    results = indices.numel * prod(inputs.shape[1:])
    return moved(selected(inputs, results) + size(indices), results * size_of(inputs.dtype))


@formula("fbgemm::permute102_baddbmm_permute102", category="matmul")
def _transposed_product(signature: Signature) -> Work:
    """[m, b, k] @ [b, k, n] + [b, n] -> [m, b, n]."""
    args = Arguments(signature, "bias left right")
    bias, left, right = args.tensor("bias"), args.tensor("left"), args.tensor("right")
    rows, batch, inner = left.shape
    results = rows * batch * right.shape[-1]
    return Work(
        product_flops(batch, rows, inner, right.shape[-1]),
        results,
        size(bias, left, right),
        results * size_of(left.dtype),
        matrix_precision_of(left.dtype),
    )
