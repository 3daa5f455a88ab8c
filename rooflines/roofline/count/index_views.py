"""Indices that traces leave out, from the views inside the call.

``x[i, j]`` records neither the index tensors nor the size of the result. Inside the call PyTorch views ``x``
in the shape of the selected elements, with stride 0 along the indexed dimensions (``aten::as_strided``), and
each index in a shape that broadcasts with it (``aten::reshape``); masks become indices (``aten::nonzero``).
Source: ``make_info`` and ``restride_src`` in PyTorch's aten/src/ATen/native/TensorAdvancedIndexing.cpp
(v2.9). Traces before 2023 have no sizes of views.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rooflines.profiler.read.records import OPERATOR, Mask
from rooflines.profiler.read.signature import Argument, Signature, TensorArg
from rooflines.roofline.count.counts import Counts, Group, Variant, places_of
from rooflines.roofline.count.formulas import count
from rooflines.roofline.count.formulas.arguments import Ints, broadcast
from rooflines.roofline.count.formulas.registry import aten

_READS = aten("index _unsafe_index")
_PUTS = aten("index_put index_put_ _unsafe_index_put")
_INNER_PUTS = aten("_index_put_impl _index_put_impl_")
_VIEW, _INDEX, _MASK = aten("as_strided reshape nonzero")
_SOURCE = "its indices from the views inside it"
_INDICES = 1  # the position of the argument


def from_index_views(counts: Counts) -> Iterator[Group]:
    """Count selections by index whose indices were not recorded."""
    trace, calls = counts.trace, counts.calls
    host, signatures = trace.host, trace.signatures

    def named(names: tuple[str, ...]) -> Mask:
        return trace.named(names.__contains__, OPERATOR) & (host.signature >= 0)

    wanted = named((*_READS, *_PUTS, *_INNER_PUTS))
    if not wanted.any():
        return
    parts = np.flatnonzero(named((_VIEW, _INDEX, _MASK)) & (calls.parent >= 0))
    outer = calls.parent[parts]
    parts = parts[wanted[outer]]
    outer = outer[wanted[outer]]
    puts = named(_PUTS)
    found: dict[Ints, list[int]] = {}
    for event, places in places_of(outer):
        inside = host.signature[parts[places]].tolist()
        around = int(calls.parent[event])
        for call in (event, around) if around >= 0 and puts[around] else (event,):
            found.setdefault((int(host.signature[call]), *inside), []).append(call)
    for (code, *codes), ours in found.items():
        variant = _counted(signatures[code], [signatures[part] for part in codes])
        if variant is not None:
            yield ours, variant


def _counted(call: Signature, inside: list[Signature]) -> Variant | None:
    """The call with its indices; None where they were recorded, or where the views do not show them."""
    source = call.arg(0)
    views = [part.arg(1) for part in inside if part.name == _VIEW and isinstance(part.arg(1), tuple)]
    if isinstance(call.arg(_INDICES, None), tuple) or not isinstance(source, TensorArg) or len(views) != 1:
        return None
    selected: Ints = views[0]
    indices = [part.arg(0) for part in inside if part.name == _INDEX]
    masks = [part.arg(0) for part in inside if part.name == _MASK]
    if not indices or not all(isinstance(one, TensorArg) for one in (*indices, *masks)):
        return None
    placed = _placed(source, indices, selected)
    if call.name in _READS:
        # A mask takes as many dimensions as it has.
        only_masks = len(indices) == sum(len(mask.shape) for mask in masks)
        tensors = tuple(masks) if only_masks else placed or tuple(indices)
        outputs: tuple[TensorArg, ...] | None = (TensorArg(selected, source.dtype),)
    elif placed is not None and not masks:
        tensors, outputs = placed, None
    else:
        return None
    signature = Signature(call.name, (source, tensors, *call.args[_INDICES + 1 :]))
    counted = count(signature, outputs=outputs)
    return None if counted.kind == "unknown" else Variant(signature, counted, _SOURCE)


def _placed(source: TensorArg, indices: list[TensorArg], selected: Ints) -> tuple[Argument, ...] | None:
    """The list of indices with None for each dimension before them; None where they are not of adjacent
    dimensions."""
    shape = source.shape
    positions = broadcast(one.shape for one in indices)
    for before in range(len(shape) - len(indices) + 1):
        behind = shape[before + len(indices) :]
        if selected == (*shape[:before], *positions, *behind):
            return (*(None,) * before, *indices)
    return None
