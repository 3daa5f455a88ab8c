"""Copies: as they are, of a view, to another dtype, joined, repeated, padded, and the gradients of these.

An input element that the result needs is read once, however often the result uses it; each element of the
result is written.
"""

from __future__ import annotations

from math import prod

from rooflines.profiler.read.signature import Signature, TensorArg
from rooflines.roofline.count.formulas.arguments import (
    Arguments,
    Dispatches,
    Ints,
    NotCounted,
    TensorArgs,
    distinct,
    every,
    listed,
    promote,
    size,
    size_of,
    written,
)
from rooflines.roofline.count.formulas.record import Work
from rooflines.roofline.count.formulas.registry import Hints
from rooflines.roofline.count.formulas.rows import Tensors, named


def moved(read: int, written_bytes: int) -> Work:
    """Work that computes nothing."""
    return Work(bytes_read=read, bytes_written=written_bytes)


@named
def shown(sizes: Ints, strides: Ints) -> int:
    """Elements of a view, of which some may lie in the same place."""
    return distinct(TensorArg(sizes, "uint8", strides))


@named
def triangle(rows: int, columns: int, diagonal: int, upper: bool = False) -> int:
    """Elements on and below a diagonal, or on and above it: of row i those up to i + diagonal are not above
    it."""
    below = sum(min(max(row + diagonal + (not upper), 0), columns) for row in every(rows))
    return rows * columns - below if upper else below


@named
def promoted_item(source: Tensors) -> int:
    """Bytes of an element of the dtype that these tensors have in common."""
    return size_of(promote(source.tensors))


def cast(signature: Signature) -> Work:
    """A copy to another dtype, device or layout."""
    args = Arguments(signature, "self dtype=None")
    if not args.recorded("dtype"):
        raise Dispatches  # traces without values: the copy inside has both tensors
    inputs = args.tensor("self")
    return moved(size(inputs), inputs.numel * size_of(args.dtype("dtype", inputs.dtype)))


# Lists.

_ROUNDED_ELEMENTS = 1 << 20  # elements from which a rounding by a megabyte cannot double the size


def _item_size(tensors: TensorArgs, output_bytes: int | None) -> int:
    """Bytes of an element of the joined list.

    A trace does not record the dtype of a list: what was allocated tells it. A GPU's allocator rounds up (to
    512 bytes, and large blocks by up to a megabyte), so the largest size that fits counts; of a list so short
    that the rounding could hide its size nothing is concluded, and the dtype stays that of the signature.
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


def join(signature: Signature, hints: Hints) -> Work:
    """Every element of the list; different dtypes are promoted, as only a recording shows them."""
    tensors = listed(signature.arg(0))
    if hints.outputs is not None and tensors:
        return moved(size(*tensors), written(*hints.outputs))
    if not tensors:
        both = hints.result_bytes(
            "tensors of the list not recorded"
        )  # traces leave out lists of more than 30
        return moved(both, both)
    if len({tensor.dtype for tensor in tensors}) > 1:
        return moved(size(*tensors), sum(tensor.numel for tensor in tensors) * size_of(promote(tensors)))
    itemsize = _item_size(tensors, hints.output_bytes)
    return moved(sum(map(distinct, tensors)) * itemsize, sum(tensor.numel for tensor in tensors) * itemsize)


# Padding, diagonals, and the gradients of views.


def _padded(tensor: TensorArg, padding: Ints) -> tuple[int, int]:
    """Elements kept of a tensor and elements of the result; ``padding`` is (left, right) from the last
    dimension on."""
    if len(padding) % 2 or len(padding) > 2 * len(tensor.shape):
        raise NotCounted("argument 'pad' not recorded")
    kept, result = 1, 1
    for axis, extent in enumerate(reversed(tensor.shape)):
        left, right = padding[2 * axis : 2 * axis + 2] or (0, 0)
        kept *= max(extent + min(left, 0) + min(right, 0), 0)
        result *= max(extent + left + right, 0)
    return kept, result


def _shown(extent: int, left: int, right: int, reflects: bool) -> int:
    """Positions of one dimension that padding from its own elements shows: all, unless it is padded by less
    than nothing."""
    if left >= 0 and right >= 0:
        return extent
    wanted = (place - left for place in every(left + extent + right))
    inside = [abs(place) if reflects else max(place, 0) for place in wanted]
    last = extent - 1
    return len({last - abs(last - place) if reflects else min(place, last) for place in inside})


def pad(signature: Signature) -> Work:
    args = Arguments(signature, "self padding")
    inputs = args.tensor("self")
    padding = args.sizes("padding")
    kept, result = _padded(inputs, padding)
    if signature.name != "aten::constant_pad_nd":
        sides = [(*padding[2 * axis : 2 * axis + 2], 0, 0)[:2] for axis in reversed(range(len(inputs.shape)))]
        reflects = signature.name.startswith("aten::reflection")
        kept = prod(
            _shown(extent, left, right, reflects)
            for extent, (left, right) in zip(inputs.shape, sides, strict=True)
        )
    itemsize = size_of(inputs.dtype)
    return moved(min(kept, distinct(inputs)) * itemsize, result * itemsize)
