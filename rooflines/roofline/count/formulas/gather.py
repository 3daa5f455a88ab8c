"""Selecting elements by index, and putting elements where an index says.

A gather reads the elements that it selects, each distinct one once, and the indices. What is selected twice
depends on the values of the indices: a formula takes them to be different as far as the source has elements.
A scatter in place writes the elements that it hits, and reads them where something is added to them; into a
new tensor it copies what it does not overwrite.
"""

from __future__ import annotations

from math import prod

from rooflines.profiler.read.signature import Argument, Signature, TensorArg
from rooflines.roofline.count.formulas.arguments import (
    Arguments,
    NotCounted,
    broadcast,
    listed,
    selected,
    size,
    size_of,
    written,
)
from rooflines.roofline.count.formulas.copies import moved
from rooflines.roofline.count.formulas.elementwise import rule_of, rule_work
from rooflines.roofline.count.formulas.record import Work, precision_of
from rooflines.roofline.count.formulas.registry import Hints

_NO_INDEX = "index shapes not recorded"
MASKS = ("bool", "uint8")


# Several index tensors at once, one for each leading dimension, None for a dimension that is taken whole. A
# mask replaces as many dimensions as it has, and selects as many positions as its values say.


def _elements_at(source: TensorArg, indices: Argument) -> int | None:
    """Elements of ``source`` at these indices; None where a mask alone decides. With other indices it selects
    as many positions as they have. None, too, where a trace has left the indices out."""
    tensors = listed(indices)
    masks = [tensor for tensor in tensors if tensor.dtype in MASKS]
    positions = prod(broadcast(tensor.shape for tensor in tensors if tensor.dtype not in MASKS))
    if not tensors or not isinstance(indices, tuple) or (masks and positions == 1):
        return None
    taken, axis = 1, 0
    for index in indices:
        if index is None:
            taken *= source.shape[axis]
        axis += len(index.shape) if index in masks and isinstance(index, TensorArg) else 1
    return positions * taken * prod(source.shape[axis:])


def index(signature: Signature, hints: Hints) -> Work:
    """The elements selected, read (each distinct one once) and written. Traces leave out the indices, and so
    their bytes."""
    args = Arguments(signature, "self indices=None")
    source = args.tensor("self")
    indices = args.given("indices")
    elements = _elements_at(source, indices)
    known = elements * size_of(source.dtype) if elements is not None and hints.outputs is None else None
    results = hints.result_bytes(_NO_INDEX) if known is None else known
    return moved(min(size(source), results) + size(*listed(indices)), results)


def _put_elements(target: TensorArg, indices: Argument, values: TensorArg) -> int:
    """Elements that ``index_put`` writes. Where a mask decides, or a trace leaves out the indices, ``values``
    tells: there is one for each element, unless they are broadcast."""
    elements = _elements_at(target, indices)
    if elements is not None:
        return elements
    if values.numel == 1:
        raise NotCounted(
            _NO_INDEX if indices is None else "number of elements selected by the mask not recorded"
        )
    return values.numel


def _fills_by_mask(target: TensorArg, indices: Argument, values: TensorArg) -> TensorArg | None:
    """The mask, as ``masked_fill`` takes it, of an assignment that puts the same at every position that it
    selects."""
    tensors = listed(indices)
    if len(tensors) != 1 or tensors[0].dtype not in MASKS:
        return None
    before = next(axis for axis, index in enumerate(indices) if index is not None)
    after = len(target.shape) - before - len(tensors[0].shape)
    if values.shape[: len(values.shape) - after][-1:] not in ((), (1,)):
        return None  # values [..., positions, ...]
    return TensorArg((*tensors[0].shape, *(1,) * after), tensors[0].dtype)


def index_put(signature: Signature) -> Work:
    """``x[mask] = value`` is ``masked_fill_``, and is counted as such: which elements it spares depends on
    the mask's values."""
    args = Arguments(signature, "self indices=None values=None accumulate=False")
    target, values = args.operands("self", "values")
    adds = args.flag("accumulate")
    indices = args.given("indices")
    in_place = signature.name.endswith("_")
    mask = None if adds else _fills_by_mask(target, indices, values)
    if mask is not None:
        return rule_work(Signature("aten::masked_fill", (target, mask, 0)), rule_of("masked_fill"), in_place)
    elements = _put_elements(target, indices, values)
    return _scattered(target, elements, size(values, *listed(indices)), adds, in_place)


def _scattered(
    target: TensorArg, elements: int, read: int, adds: bool, in_place: bool, cost: int = 1, old: bool = True
) -> Work:
    """``elements`` put into ``target``, or combined with what is there at ``cost`` FLOPs each; ``old`` says
    whether what is there counts. ``read`` is the bytes of what is put and of the indices."""
    hit = selected(target, elements)
    decided = (
        in_place and target.dtype == "bool"
    )  # true or anything is true: what is there is left or overwritten, never looked at
    kept = hit if adds and old and not decided else 0
    return Work(
        other_flops=cost * elements if adds else 0,
        bytes_read=read + (kept if in_place else max(size(target) - hit, 0) + kept),
        bytes_written=hit if in_place else written(target),
        precision=precision_of(target.dtype) if adds and elements else None,
    )


_OVERWRITE = frozenset({"index_copy", "index_fill"})


def scatter(signature: Signature, schema: str) -> Work:
    """Along one dimension; ``include`` says whether what is there takes part."""
    args = Arguments(signature, schema)
    name = signature.name.removeprefix("aten::").rstrip("_")
    target, index = args.operands("self", "index")
    src = args.optional("src")
    if name.startswith("index_"):
        extent = target.shape[args.integer("dim")] if target.shape else 1
        elements = (
            target.numel // extent * index.numel if extent else 0
        )  # of the slices that the index selects
        source = size(src)
    else:
        elements = index.numel
        source = min(size(src), elements * size_of(src.dtype)) if src is not None else 0
    # ``scatter`` combines only where it was told how, in a fifth argument.
    adds = name not in _OVERWRITE and (
        name != "scatter" or (len(signature.args) > 4 and args.optional("reduce") is None)
    )
    old = bool(args.value("include")) if args.told("include") else True
    cost = 1 if args.given("alpha") in (None, 1) else 2
    return _scattered(target, elements, source + size(index), adds, signature.name.endswith("_"), cost, old)
