"""Sequences of different lengths: packed, padded, jagged, nested.

How much they hold is in their lengths, not in a shape. What the arguments or a recorded result tell is counted; the rest is unknown.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from rooflines.roofline.formulas.registry import aten, uncounted
from rooflines.roofline.formulas.rows import Row, register

_JAGGED: Final = Row(
    "view dense, read offsets+, total=None", where="made = total * prod(dense[1 + len(offsets):]) * dense.item",
    reads="min(dense.size, made) + offsets.size", writes="made",
)  # fmt: skip
_LENGTHS: Final[dict[str, Row | tuple[Row, ...]]] = {
    # [steps, batch, ...] and lengths -> the elements inside the sequences, and how many sequences each step still has
    "_pack_padded_sequence": Row(
        "view self, read lengths", reads="selected(self, recorded_results().tensors[0].numel) + lengths.size",
        writes="recorded_results().full",
    ),
    # [batch, longest, ...] -> [total, ...]
    "_padded_dense_to_jagged_forward": (
        _JAGGED, replace(_JAGGED, where="made = returned_tensor(0, 'sum of the lengths not recorded').full"),
    ),
    # [total, ...] cut at the offsets -> [batch, longest, ...], filled up with a number
    "_jagged_to_padded_dense_forward": Row(
        "read values, read offsets+, max_lengths+",
        writes="(offsets.tensors[0].numel - 1) * prod(max_lengths) * prod(values[1:]) * values.item",
    ),
    "_nested_tensor_from_mask_left_aligned": Row("self, read mask"),
    # of each nested tensor its strides, as many as sizes, and where it begins
    "_nested_compute_contiguous_strides_offsets": Row("read sizes", writes="sizes.full + 8 * sizes[0]"),
}  # fmt: skip
register(_LENGTHS, "copy", namespace="aten::")

NESTED: Final = aten(
    "to_padded_tensor _nested_from_padded _nested_from_padded_and_nested_example _nested_from_padded_tensor _nested_tensor_from_mask"
    " _nested_select_backward _nested_sum_backward _nested_tensor_softmax_with_shape"
)
uncounted(*NESTED, category="other", reason="nested tensor: work depends on the lengths inside")
