"""Copies: as they are, of a view, to another dtype, joined, repeated, padded, and the gradients of these.

An input element that the result needs is read once, however often the result uses it; each element of the result is written.
"""

from __future__ import annotations

from math import prod
from typing import Final

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.formulas.arguments import Arguments, Dispatches, NotCounted, distinct, every, promote, size, size_of, written
from rooflines.roofline.formulas.record import Work
from rooflines.roofline.formulas.registry import Hints, formula, hinted_formula
from rooflines.roofline.formulas.rows import Row, Tensors, named, register


def moved(read: int, written_bytes: int) -> Work:
    """Work that computes nothing."""
    return Work(bytes_read=read, bytes_written=written_bytes)


@named
def shown(sizes: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Elements of a view, of which some may lie in the same place."""
    return distinct(TensorArg(sizes, "uint8", strides))


@named
def triangle(rows: int, columns: int, diagonal: int, upper: bool = False) -> int:
    """Elements on and below a diagonal, or on and above it: of row i those up to i + diagonal are not above it."""
    below = sum(min(max(row + diagonal + (not upper), 0), columns) for row in every(rows))
    return rows * columns - below if upper else below


@named
def promoted_item(source: Tensors) -> int:
    """Bytes of an element of the dtype that these tensors have in common."""
    return size_of(promote(source.tensors))


_COPIES: Final[dict[str, Row]] = {
    "copy_ copy": Row("view self, read src", result="self"),
    "_copy_from _copy_from_and_resize": Row("read src, view self", result="self"),
    # As many bytes out as in, each once, elsewhere. Of a view only the shape differs.
    "clone lift_fresh_copy _pin_memory roll flip rot90 pixel_shuffle pixel_unshuffle channel_shuffle native_channel_shuffle"
    " view_copy _reshape_copy permute_copy t_copy transpose_copy squeeze_copy unsqueeze_copy alias_copy detach_copy"
    " view_as_real_copy view_as_complex_copy split_copy split_with_sizes_copy unbind_copy _conj_copy _neg_view_copy"
    " _fw_primal_copy _make_dual_copy _nested_view_from_buffer_copy _nested_view_from_jagged_copy _nested_get_values_copy"
    " to_mkldnn _mkldnn_transpose _mkldnn_transpose_ _mkldnn_reshape _nested_tensor_from_tensor_list": Row("read self+", result="self"),
    # a copy of part of a tensor, or of more than it holds (an expanded or overlapping view)
    "select_copy slice_copy narrow_copy diagonal_copy expand_copy unfold_copy resize resize_as _resize_output": Row(
        "view self", reads="selected(self, results().n)", writes="results().full"
    ),
    "as_strided_copy _reshape_alias_copy": Row(
        "view self, size+, stride+", reads="selected(self, shown(size, stride))", writes="results().full"
    ),
    # one side of the diagonal of each matrix is read; the other side is zeros
    **{
        f"tri{side} tri{side}_": Row(
            "view self, diagonal=0", result="self",
            reads=f"selected(self, prod(self[:-2]) * triangle(self[-2], self[-1], diagonal, {side == 'u'}))",
        )
        for side in "lu"
    },
    # [2, n]: row and column of each of the n elements on one side of the diagonal, which belongs to both
    **{
        f"tri{side}_indices": Row(
            "rows, columns, offset=0, dtype=4",
            writes=f"2 * triangle(rows, columns, offset, {side == 'u'}) * item('dtype', 'int64')",
        )
        for side in "lu"
    },
    "repeat": Row("read self, repeats+", writes="self.full * prod(repeats)"),
    # [..., n] -> [..., n + |offset|, n + |offset|], zeros off the diagonal
    "diag_embed": Row(
        "read self, offset=0", where="side = self[-1] + max(offset, -offset)", writes="prod(self[:-1]) * side**2 * self.item"
    ),
    # the gradient of a view: a tensor of zeros with the gradient in its place
    "select_backward slice_backward diagonal_backward": Row("read grad, sizes+", writes="prod(sizes) * grad.item"),
    # windows laid back; where they overlap they are added
    "unfold_backward": Row("read grad, sizes+, dim, size, step", other="grad.n * (step < size)", writes="prod(sizes) * grad.item"),
    # a copy of ``self`` with ``src`` in place of a part
    "select_scatter slice_scatter diagonal_scatter as_strided_scatter": Row(
        "view self, read src", also="max(self.size // self.item - src.n, 0) * self.item", result="self"
    ),
}  # fmt: skip
register(_COPIES, "copy", namespace="aten::")


@formula("aten::_to_copy", category="copy")
def _cast(signature: Signature) -> Work:
    """A copy to another dtype, device or layout."""
    args = Arguments(signature, "self dtype=None")
    if not args.recorded("dtype"):
        raise Dispatches  # traces without values: the copy inside has both tensors
    inputs = args.tensor("self")
    return moved(size(inputs), inputs.numel * size_of(args.dtype("dtype", inputs.dtype)))


# Lists.

_ROUNDED_ELEMENTS: Final = 1 << 20  # elements from which a rounding by a megabyte cannot double the size


def _item_size(tensors: tuple[TensorArg, ...], output_bytes: int | None) -> int:
    """Bytes of an element of the joined list.

    A trace does not record the dtype of a list: what was allocated tells it. A GPU's allocator rounds up (to 512 bytes, and large
    blocks by up to a megabyte), so the largest size that fits counts; of a list so short that the rounding could hide its size nothing
    is concluded, and the dtype stays that of the signature.
    """
    total = sum(tensor.numel for tensor in tensors)
    if output_bytes is not None and total:
        exact, rest = divmod(output_bytes, total)
        if rest == 0 and exact in (1, 2, 4, 8, 16):
            return exact
        if total >= _ROUNDED_ELEMENTS:
            fitting = [item for item in (1, 2, 4, 8) if total * item <= output_bytes < 2 * total * item]
            if fitting:
                return fitting[-1]
    return size_of(tensors[0].dtype)


def _listed(signature: Signature) -> tuple[TensorArg, ...]:
    found = signature.arg(0)
    return tuple(item for item in found if isinstance(item, TensorArg)) if isinstance(found, tuple) else ()


@hinted_formula("aten::cat", "aten::_cat", "aten::stack", "aten::_stack", category="copy")
def _join(signature: Signature, hints: Hints) -> Work:
    """Every element of the list; different dtypes are promoted, as only a recording shows them."""
    tensors = _listed(signature)
    if hints.outputs is not None and tensors:
        return moved(size(*tensors), written(*hints.outputs))
    if not tensors:
        both = hints.result_bytes("tensors of the list not recorded")  # traces leave out lists of more than 30
        return moved(both, both)
    if len({tensor.dtype for tensor in tensors}) > 1:
        return moved(size(*tensors), sum(tensor.numel for tensor in tensors) * size_of(promote(tensors)))
    itemsize = _item_size(tensors, hints.output_bytes)
    return moved(sum(map(distinct, tensors)) * itemsize, sum(tensor.numel for tensor in tensors) * itemsize)


# Padding, diagonals, and the gradients of views.


def _padded(tensor: TensorArg, padding: tuple[int, ...]) -> tuple[int, int]:
    """Elements kept of a tensor and elements of the result; ``padding`` is (left, right) from the last dimension on."""
    if len(padding) % 2 or len(padding) > 2 * len(tensor.shape):
        raise NotCounted("argument 'pad' not recorded")
    kept, result = 1, 1
    for axis, extent in enumerate(reversed(tensor.shape)):
        left, right = padding[2 * axis : 2 * axis + 2] or (0, 0)
        kept *= max(extent + min(left, 0) + min(right, 0), 0)
        result *= max(extent + left + right, 0)
    return kept, result


def _shown(extent: int, left: int, right: int, reflects: bool) -> int:
    """Positions of one dimension that padding from its own elements shows: all, unless it is padded by less than nothing."""
    if left >= 0 and right >= 0:
        return extent
    wanted = (place - left for place in every(left + extent + right))
    inside = [abs(place) if reflects else max(place, 0) for place in wanted]
    last = extent - 1
    return len({last - abs(last - place) if reflects else min(place, last) for place in inside})


_PADDINGS: Final = tuple(f"{kind}_pad{rank}d" for kind in ("reflection", "replication") for rank in (1, 2, 3))


@formula("aten::constant_pad_nd", *(f"aten::{name}" for name in _PADDINGS), category="copy")
def _pad(signature: Signature) -> Work:
    args = Arguments(signature, "self padding")
    inputs, padding = args.tensor("self"), args.sizes("padding")
    kept, result = _padded(inputs, padding)
    if signature.name != "aten::constant_pad_nd":
        sides = [(*padding[2 * axis : 2 * axis + 2], 0, 0)[:2] for axis in reversed(range(len(inputs.shape)))]
        reflects = signature.name.startswith("aten::reflection")
        kept = prod(_shown(extent, left, right, reflects) for extent, (left, right) in zip(inputs.shape, sides, strict=True))
    itemsize = size_of(inputs.dtype)
    return moved(min(kept, distinct(inputs)) * itemsize, result * itemsize)


register({
    # matrices along the diagonal of a matrix of zeros; a vector is one row
    "block_diag": Row(
        "read tensors+", where="rows = sum((1, 1, *each.shape)[-2] for each in tensors.tensors);"
        " columns = sum((1, *each.shape)[-1] for each in tensors.tensors)", writes="rows * columns * promoted_item(tensors)",
    ),
    # each element as often as a number says, or as a tensor of numbers, which alone gives indices
    "repeat_interleave": (
        Row("read self, repeats, dim", writes="self.full * repeats", fits="recorded('dim')"),
        Row("read self, read repeats?", writes="returned('output size not recorded')"),
    ),
    # every gradient is added to the element it was copied from
    " ".join(f"{name}_backward" for name in _PADDINGS): Row("read grad, view self", 1, per="grad", result="self"),
}, "copy", namespace="aten::")  # fmt: skip
