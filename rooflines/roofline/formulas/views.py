"""Operators that move nothing, counted as zero: views of the same storage, allocations, and queries of a tensor."""

from __future__ import annotations

from typing import Final

from rooflines.profiler.trace.signature import Signature
from rooflines.roofline.formulas.record import Work
from rooflines.roofline.formulas.registry import aten, formula

VIEWS: Final = aten(
    "view view_as view_as_real view_as_complex _unsafe_view _reshape_alias reshape_alias t t_ transpose transpose_ permute movedim"
    " moveaxis swapaxes swapdims numpy_T matrix_H mT mH adjoint expand expand_as broadcast_to broadcast_tensors as_strided as_strided_"
    " slice select narrow unsqueeze unsqueeze_ squeeze squeeze_ detach detach_ alias split split_with_sizes unsafe_split"
    " unsafe_split_with_sizes chunk unsafe_chunk tensor_split hsplit vsplit dsplit unbind diagonal unfold unflatten positive real imag"
    " _conj conj _neg_view resolve_conj resolve_neg atleast_1d atleast_2d atleast_3d meshgrid lift_fresh lift slice_inverse set"
    " _indices _values indices values crow_indices col_indices ccol_indices row_indices _sparse_broadcast_to"
    " _nested_view_from_buffer _nested_view_from_jagged _nested_get_values _nested_get_offsets _nested_get_lengths"
    " _nested_get_jagged_dummy _nested_get_min_seqlen _nested_get_max_seqlen"
)
ALLOCATIONS: Final = aten(
    "empty empty_like empty_strided empty_permuted new_empty new_empty_strided resize_ resize_as_ set_ _efficientzerotensor"
    " _resize_output_ record_stream from_file _lazy_clone shallow_copy_data_ _make_dep_token _cudnn_init_dropout_state"
    " sparse_coo_tensor sparse_compressed_tensor _sparse_coo_tensor_with_dims _sparse_coo_tensor_with_dims_and_tensors"
    " _sparse_compressed_tensor_with_dims resize_as_sparse_ sparse_resize_ sparse_resize_and_clear_ _coalesced_"
)
METADATA: Final = aten(
    "item _local_scalar_dense is_nonzero is_same_size is_pinned result_type can_cast size stride sym_size sym_stride sym_numel numel"
    " dim is_floating_point is_complex is_contiguous is_leaf output_nr requires_grad_ retain_grad _version set_data is_set_to"
    " _has_compatible_shallow_copy_type cudnn_is_acceptable _nnpack_available _fused_sdp_choice _use_cudnn_ctc_loss"
    " _use_miopen_ctc_loss _assert_async _assert_scalar _assert_tensor_metadata _functional_assert_async _functional_assert_scalar"
    " sym_constrain_range sym_constrain_range_for_size _functional_sym_constrain_range"
    " _functional_sym_constrain_range_for_size _print _debug_has_internal_overlap is_inference is_conj is_neg _has_same_storage_numel"
    " _is_zerotensor _fw_primal _make_dual is_coalesced sparse_dim dense_dim _dimI _dimV _nnz"
    " _nested_tensor_size _nested_tensor_strides _nested_tensor_storage_offsets _nested_get_ragged_idx"
)


@formula(*VIEWS, *ALLOCATIONS, *METADATA, "detach", "detach_", category="other")
def _nothing(signature: Signature) -> Work:
    return Work()
