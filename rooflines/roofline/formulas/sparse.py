"""Sparse tensors: what their indices and values, passed as tensors, tell; everything else depends on where the values are.

A sparse tensor has the shape of the dense one: how many values it holds is known in a recording and not in a trace.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from rooflines.roofline.formulas.registry import aten, uncounted
from rooflines.roofline.formulas.rows import Row, register

SPARSE: Final = aten(
    "_to_dense _to_sparse _to_sparse_csr _to_sparse_csc _to_sparse_bsr _to_sparse_bsc _coalesce _coalesced sparse_mask"
    " _sparse_mask_projection _spdiags copy_sparse_to_sparse copy_sparse_to_sparse_ _sparse_broadcast_to_copy resize_as_sparse"
    " sparse_resize sparse_resize_and_clear _sparse_sum _sparse_sum_backward _sparse_csr_sum _sparse_csr_prod _sparse_softmax"
    " _sparse_softmax_backward_data _sparse_log_softmax _sparse_log_softmax_backward_data _sparse_sparse_matmul"
    " hspmm sparse_sampled_addmm _sparse_mm_reduce_impl _sparse_mm_reduce_impl_backward _spsolve"
)
SEARCH: Final = "aten::_cslt_sparse_mm_search"
uncounted(*SPARSE, category="other", reason="sparse tensor: work depends on the number and position of values")
uncounted(SEARCH, category="other", reason="algorithm search in cuSPARSELt has no fixed work")


# Copies and conversions of index and value tensors, which have shapes of their own.


_VALUES: Final = "returned_tensor(0, 'sparse tensor: number of values not recorded').full"
_CONVERSIONS: Final[dict[str, Row]] = {
    "_indices_copy _values_copy indices_copy values_copy crow_indices_copy col_indices_copy ccol_indices_copy row_indices_copy": Row(
        "self", reads=_VALUES, writes=_VALUES
    ),
    # the sorted row of each value -> where each row begins
    "_convert_indices_from_coo_to_csr": Row("read self, size, int32=False", writes="(size + 1) * (4 if int32 else 8)"),
    # where each row begins and the column of each value -> row and column of each value
    "_convert_indices_from_csr_to_coo": Row("read rows, read columns, int32=False", writes="2 * columns.n * (4 if int32 else 8)"),
}
register(_CONVERSIONS, "copy", namespace="aten::")
register({"aten::_validate_compressed_sparse_indices": Row("read tensors*")}, "copy", functions=True)


# Two of every four elements kept, packed with their indices: half the products of the dense matrix.


_PACKED_HALF: Final[dict[str, Row]] = {
    "_cslt_compress _to_sparse_semi_structured _sparse_semi_structured_apply _sparse_semi_structured_apply_dense": Row(
        "read self, read masks?", writes="results().full"
    ),
    # which of the four are the largest takes a compare an element, unless a mask says it
    "_sparse_semi_structured_tile": Row("read self", 1, per="self", writes="results().full"),
}
register(_PACKED_HALF, "copy", namespace="aten::")
# The packed matrix [m, k / 2] multiplies a dense one with n rows or columns: 2 * m * n * k / 2, and a bias.
_LINEAR: Final = Row(
    "read dense[*n k], read packed, read meta, read bias?", where="made = packed[0] * n", matrix="2 * packed.n * n",
    other="made * bool(bias)", writes="returned_tensor(0).full or made * dense.item", precision="packed",
)  # fmt: skip
register({
    "_sparse_semi_structured_linear": _LINEAR,
    "_sparse_semi_structured_mm": replace(_LINEAR, schema="read packed, read meta, read dense[*k n]", other=""),
    "_sparse_semi_structured_addmm": replace(_LINEAR, schema="read bias?, read packed, read meta, read dense[*k n]"),
    # cuSPARSELt's packing is one row of bytes: rows and columns of the product are in its result
    "_cslt_sparse_mm": Row(
        "read packed_weight, read dense, read bias?, read alpha?", where="made = results().n",
        matrix="made * dense[0]", other="made * (bool(bias) + bool(alpha))", writes="results().full",
    ),
}, "matmul", namespace="aten::")  # fmt: skip
