"""Sparse tensors: what their indices and values, passed as tensors, tell; everything else depends on where the values are.

A sparse tensor has the shape of the dense one, in a trace and in a recording: how many values it holds is in neither.
"""

from __future__ import annotations

from math import prod
from typing import Final

from rooflines.profiler.trace.signature import Signature
from rooflines.roofline.formulas.arguments import Arguments, NotCounted, size, size_of, written
from rooflines.roofline.formulas.copies import moved
from rooflines.roofline.formulas.record import Work, matrix_precision_of
from rooflines.roofline.formulas.registry import Hints, aten, hinted_formula, uncounted
from rooflines.roofline.formulas.rows import Row, register

SPARSE: Final = aten(
    "_to_dense _to_sparse _to_sparse_csr _to_sparse_csc _to_sparse_bsr _to_sparse_bsc _coalesce _coalesced sparse_mask"
    " _sparse_mask_projection _spdiags copy_sparse_to_sparse copy_sparse_to_sparse_ _sparse_broadcast_to_copy resize_as_sparse"
    " sparse_resize sparse_resize_and_clear _sparse_sum _sparse_sum_backward _sparse_csr_sum _sparse_csr_prod _sparse_softmax"
    " _sparse_softmax_backward_data _sparse_log_softmax _sparse_log_softmax_backward_data _sparse_addmm _sparse_sparse_matmul"
    " hspmm sparse_sampled_addmm _sparse_mm_reduce_impl _sparse_mm_reduce_impl_backward _spsolve"
)
SEARCH: Final = "aten::_cslt_sparse_mm_search"
uncounted(*SPARSE, category="other", reason="sparse tensor: work depends on the number and position of values")
uncounted(SEARCH, category="other", reason="algorithm search in cuSPARSELt has no fixed work")


# Copies and conversions of index and value tensors, which have shapes of their own.


@hinted_formula(*aten("_indices_copy _values_copy indices_copy values_copy crow_indices_copy col_indices_copy ccol_indices_copy"
                      " row_indices_copy"),
                category="copy")  # fmt: skip
def _part(signature: Signature, hints: Hints) -> Work:
    if hints.outputs is None:
        raise NotCounted("sparse tensor: number of values not recorded")
    return moved(written(*hints.outputs), written(*hints.outputs))


_CONVERSIONS: Final[dict[str, Row]] = {
    # the sorted row of each value -> where each row begins
    "_convert_indices_from_coo_to_csr": Row("read self, size, int32=False", writes="(size + 1) * (4 if int32 else 8)"),
    # where each row begins and the column of each value -> row and column of each value
    "_convert_indices_from_csr_to_coo": Row("read rows, read columns, int32=False", writes="2 * columns.n * (4 if int32 else 8)"),
}
register(_CONVERSIONS, "copy", namespace="aten::")
register({"aten::_validate_compressed_sparse_indices": Row("read tensors*")}, "copy", functions=True)


# Two of every four elements kept, packed with their indices: half the products of the dense matrix.


@hinted_formula("aten::_sparse_semi_structured_linear", "aten::_sparse_semi_structured_mm", "aten::_sparse_semi_structured_addmm",
                category="matmul")  # fmt: skip
def _semi_structured(signature: Signature, hints: Hints) -> Work:
    """The packed matrix [m, k / 2] multiplies a dense one with n rows or columns: 2 * m * n * k / 2, and a bias."""
    schema = {"linear": "dense packed meta bias", "mm": "packed meta dense", "addmm": "bias packed meta dense"}
    args = Arguments(signature, schema[signature.name.rpartition("_")[2]])
    packed, dense, bias = args.tensor("packed"), args.tensor("dense"), args.optional("bias")
    vectors = prod(dense.shape[:-1]) if signature.name.endswith("linear") else dense.shape[-1]
    results = packed.shape[0] * vectors
    outputs = written(*hints.outputs) if hints.outputs is not None else results * size_of(dense.dtype)
    return Work(
        matrix_flops=2 * packed.numel * vectors,
        other_flops=results if bias is not None else 0,
        bytes_read=size(packed, args.tensor("meta"), dense, bias),
        bytes_written=outputs,
        precision=matrix_precision_of(packed.dtype),
    )


_PACKED_HALF: Final[dict[str, Row]] = {
    "_cslt_compress _to_sparse_semi_structured _sparse_semi_structured_apply _sparse_semi_structured_apply_dense": Row(
        "read self, read masks?", writes="results().full"
    ),
    # which of the four are the largest takes a compare an element, unless a mask says it
    "_sparse_semi_structured_tile": Row("read self", 1, per="self", writes="results().full"),
}
register(_PACKED_HALF, "copy", namespace="aten::")
register({
    # cuSPARSELt's packing is one row of bytes: rows and columns of the product are in its result
    "_cslt_sparse_mm": Row(
        "read packed_weight, read dense, read bias?, read alpha?", where="made = results().n",
        matrix="made * dense[0]", other="made * (bool(bias) + bool(alpha))", writes="results().full",
    ),
}, "matmul", namespace="aten::")  # fmt: skip
