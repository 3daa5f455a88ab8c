"""Sparse tensors: what their indices and values, passed as tensors, tell; everything else depends on where the values are.

A sparse tensor has the shape of the dense one, in a trace and in a recording: how many values it holds is in neither.
"""

from __future__ import annotations

from math import prod
from typing import Final

from rooflines.profiler.trace.signature import Signature
from rooflines.roofline.formulas.arguments import Arguments, NotCounted, size, size_of, written
from rooflines.roofline.formulas.copies import moved
from rooflines.roofline.formulas.record import Work, matrix_precision_of, precision_of
from rooflines.roofline.formulas.registry import Hints, aten, formula, hinted_formula

SPARSE: Final = aten(
    "_to_dense _to_sparse _to_sparse_csr _to_sparse_csc _to_sparse_bsr _to_sparse_bsc _coalesce _coalesced sparse_mask"
    " _sparse_mask_projection _spdiags copy_sparse_to_sparse copy_sparse_to_sparse_ _sparse_broadcast_to_copy resize_as_sparse"
    " sparse_resize sparse_resize_and_clear _sparse_sum _sparse_sum_backward _sparse_csr_sum _sparse_csr_prod _sparse_softmax"
    " _sparse_softmax_backward_data _sparse_log_softmax _sparse_log_softmax_backward_data _sparse_addmm _sparse_sparse_matmul"
    " hspmm sparse_sampled_addmm _sparse_mm_reduce_impl _sparse_mm_reduce_impl_backward _spsolve"
)
SEARCH: Final = "aten::_cslt_sparse_mm_search"


@formula(*SPARSE, category="other")
def _unknown(signature: Signature) -> Work:
    raise NotCounted("sparse tensor: work depends on the number and position of values")


@formula(SEARCH, category="other")
def _search(signature: Signature) -> Work:
    raise NotCounted("algorithm search in cuSPARSELt has no fixed work")


# Copies and conversions of index and value tensors, which have shapes of their own.


@hinted_formula(*aten("_indices_copy _values_copy indices_copy values_copy crow_indices_copy col_indices_copy ccol_indices_copy"
                      " row_indices_copy"),
                category="copy")  # fmt: skip
def _part(signature: Signature, hints: Hints) -> Work:
    if hints.outputs is None:
        raise NotCounted("sparse tensor: number of values not recorded")
    return moved(written(*hints.outputs), written(*hints.outputs))


@formula("aten::_validate_compressed_sparse_indices", category="copy")
def _validate(signature: Signature) -> Work:
    return moved(size(*signature.tensors), 0)


@formula("aten::_convert_indices_from_coo_to_csr", category="copy")
def _compress(signature: Signature) -> Work:
    """The sorted row of each value -> where each row begins."""
    args = Arguments(signature, "self size int32=False")
    return moved(size(args.tensor("self")), (args.integer("size") + 1) * (4 if args.flag("int32") else 8))


@formula("aten::_convert_indices_from_csr_to_coo", category="copy")
def _decompress(signature: Signature) -> Work:
    """Where each row begins and the column of each value -> row and column of each value."""
    args = Arguments(signature, "rows columns int32=False")
    rows, columns = args.tensor("rows"), args.tensor("columns")
    return moved(size(rows, columns), 2 * columns.numel * (4 if args.flag("int32") else 8))


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


@hinted_formula("aten::_cslt_sparse_mm", category="matmul")
def _compressed_product(signature: Signature, hints: Hints) -> Work:
    """cuSPARSELt's packing is one row of bytes: rows and columns of the product are in its result."""
    args = Arguments(signature, "packed dense bias=None alpha=None")
    packed, dense, bias = args.tensor("packed"), args.tensor("dense"), args.optional("bias")
    (result,) = hints.results(signature)
    return Work(
        matrix_flops=result.numel * dense.shape[0],
        other_flops=result.numel * ((bias is not None) + (args.optional("alpha") is not None)),
        bytes_read=size(packed, dense, bias, args.optional("alpha")),
        bytes_written=written(result),
        precision=matrix_precision_of(packed.dtype),
    )


@hinted_formula("aten::_cslt_compress", "aten::_to_sparse_semi_structured", "aten::_sparse_semi_structured_tile",
                "aten::_sparse_semi_structured_apply", "aten::_sparse_semi_structured_apply_dense", category="copy")  # fmt: skip
def _pack_half(signature: Signature, hints: Hints) -> Work:
    """Two of four elements kept; which are the largest takes a compare an element, unless a mask says it."""
    inputs = Arguments(signature, "self").tensor("self")
    chooses = signature.name == "aten::_sparse_semi_structured_tile"
    return Work(
        other_flops=inputs.numel if chooses else 0,
        bytes_read=size(*signature.tensors),
        bytes_written=written(*hints.results(signature)),
        precision=precision_of(inputs.dtype) if chooses else None,
    )
