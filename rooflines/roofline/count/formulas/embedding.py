"""Tables looked up by row: embeddings, bags of them, and their gradients. Rows that are looked up are read
once, at most the table."""

from __future__ import annotations

from math import prod

from rooflines.profiler.read.signature import Signature
from rooflines.roofline.count.formulas.arguments import Arguments, selected, size, written
from rooflines.roofline.count.formulas.record import Work, precision_of
from rooflines.roofline.count.formulas.registry import Hints

_SUM, _MEAN, _MAX = 0, 1, 2  # modes of a bag


_BAG = "weight indices offsets scaled=False mode=0 sparse=False weights=None include_last=False"


def embedding_bag(signature: Signature, hints: Hints) -> Work:
    """Rows added up, averaged or compared bag by bag. Besides [bags, depth] it writes which bag each index is
    in, how large the bags are, and of maxima where they came from: as much of these as the device and the
    mode need, which the results tell."""
    args = Arguments(signature, _BAG)
    weight, indices, offsets = args.tensor("weight"), args.tensor("indices"), args.tensor("offsets")
    depth = prod(weight.shape[1:])
    allocated = hints.output_bytes if hints.outputs is None else None
    results = written(*hints.results(signature)) if allocated is None else allocated
    bags = offsets.numel - args.flag("include_last")
    each = (2 if args.optional("weights") else 1) * indices.numel
    return Work(
        other_flops=depth * (each + (bags if args.integer("mode") == _MEAN else 0)),
        bytes_read=selected(weight, indices.numel * depth) + size(indices, offsets, args.optional("weights")),
        bytes_written=results,
        precision=precision_of(weight.dtype),
    )
