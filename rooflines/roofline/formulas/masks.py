"""Elements chosen by a mask, and where a tensor is not zero. How many there are depends on values: a recording saw the results, a trace
what was allocated for them; nothing is guessed where neither is known."""

from __future__ import annotations

from math import prod

from rooflines.profiler.trace.signature import Signature
from rooflines.roofline.formulas.arguments import Arguments, broadcast, size, size_of
from rooflines.roofline.formulas.copies import moved, result_bytes
from rooflines.roofline.formulas.record import Work
from rooflines.roofline.formulas.registry import Hints, formula, hinted_formula


@hinted_formula("aten::masked_select", category="copy")
def _masked_select(signature: Signature, hints: Hints) -> Work:
    """Reads the mask and the elements that it selects, and writes these."""
    args = Arguments(signature, "self mask")
    inputs, mask = args.tensor("self"), args.tensor("mask")
    results = result_bytes(hints, "number of selected elements not recorded")
    return moved(size(mask) + min(size(inputs), results), results)


@hinted_formula("aten::nonzero", category="copy")
def _nonzero(signature: Signature, hints: Hints) -> Work:
    """Reads every element and writes a position, one index a dimension, for each that is not zero."""
    return moved(size(Arguments(signature, "self").tensor("self")), result_bytes(hints, "number of positions not recorded"))


@formula("aten::nonzero_static", category="copy")
def _nonzero_static(signature: Signature) -> Work:
    """As many positions as asked for, filled up with a number."""
    args = Arguments(signature, "self size")
    inputs = args.tensor("self")
    return moved(size(inputs), args.integer("size") * len(inputs.shape) * 8)


@formula("aten::masked_scatter", "aten::masked_scatter_", category="copy")
def _masked_scatter(signature: Signature) -> Work:
    """Elements of ``source`` one after the other where the mask is true, at most one for each of the result, to which ``self`` and the
    mask broadcast. Which of ``self`` are kept depends on the mask, so that all are read and written, as ``masked_fill`` does."""
    args = Arguments(signature, "self mask source")
    target, mask, source = args.tensor("self"), args.tensor("mask"), args.tensor("source")
    results = prod(broadcast((target.shape, mask.shape)))
    taken = min(size(source), results * size_of(source.dtype))
    return moved(size(target, mask) + taken, results * size_of(target.dtype))


@formula("aten::masked_scatter_backward", category="copy")
def _masked_scatter_backward(signature: Signature) -> Work:
    """The gradients where the mask is true, one after the other, and zeros up to the size of the source."""
    args = Arguments(signature, "grad mask sizes")
    grad, mask = args.tensor("grad"), args.tensor("mask")
    results = prod(args.sizes("sizes"))
    return moved(size(mask) + min(size(grad), results * size_of(grad.dtype)), results * size_of(grad.dtype))
