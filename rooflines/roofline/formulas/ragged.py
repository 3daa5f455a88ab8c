"""Sequences of different lengths: packed, padded, jagged, nested.

How much they hold is in their lengths, not in a shape. What the arguments or a recorded result tell is counted; the rest is unknown.
"""

from __future__ import annotations

from math import prod
from typing import Final

from rooflines.profiler.trace.signature import Signature
from rooflines.roofline.formulas.arguments import Arguments, Dispatches, NotCounted, selected, size, size_of, written
from rooflines.roofline.formulas.copies import moved
from rooflines.roofline.formulas.record import Work
from rooflines.roofline.formulas.registry import Hints, aten, hinted_formula, uncounted
from rooflines.roofline.formulas.rows import Row, register


@hinted_formula("aten::_pack_padded_sequence", category="copy")
def _pack(signature: Signature, hints: Hints) -> Work:
    """[steps, batch, ...] and lengths -> the elements inside the sequences, and how many sequences each step still has."""
    args = Arguments(signature, "self lengths")
    inputs, lengths = args.tensor("self"), args.tensor("lengths")
    if hints.outputs is None:
        raise Dispatches  # the cat inside has the elements
    return moved(selected(inputs, hints.outputs[0].numel) + size(lengths), written(*hints.outputs))


@hinted_formula("aten::_padded_dense_to_jagged_forward", category="copy")
def _to_jagged(signature: Signature, hints: Hints) -> Work:
    """[batch, longest, ...] -> [total, ...]."""
    args = Arguments(signature, "dense offsets total=None")
    dense, offsets, total = args.tensor("dense"), args.tensors("offsets"), args.value("total")
    if isinstance(total, int):
        results = total * prod(dense.shape[1 + len(offsets) :]) * size_of(dense.dtype)
    elif hints.outputs is not None:
        results = written(*hints.outputs)
    else:
        raise NotCounted("sum of the lengths not recorded")
    return moved(min(size(dense), results) + size(*offsets), results)


_LENGTHS: Final[dict[str, Row]] = {
    # [total, ...] cut at the offsets -> [batch, longest, ...], filled up with a number
    "_jagged_to_padded_dense_forward": Row(
        "read values, read offsets+, max_lengths+",
        writes="(offsets.tensors[0].numel - 1) * prod(max_lengths) * prod(values[1:]) * values.item",
    ),
    "_nested_tensor_from_mask_left_aligned": Row("self, read mask"),
    # of each nested tensor its strides, as many as sizes, and where it begins
    "_nested_compute_contiguous_strides_offsets": Row("read sizes", writes="sizes.full + 8 * sizes[0]"),
}
register(_LENGTHS, "copy", namespace="aten::")

NESTED: Final = aten(
    "to_padded_tensor _nested_from_padded _nested_from_padded_and_nested_example _nested_from_padded_tensor _nested_tensor_from_mask"
    " _nested_select_backward _nested_sum_backward _nested_tensor_softmax_with_shape"
)
uncounted(*NESTED, category="other", reason="nested tensor: work depends on the lengths inside")
