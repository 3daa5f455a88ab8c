"""Tables looked up by row: embeddings, bags of them, and their gradients. Rows that are looked up are read once, at most the table."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Final

from rooflines.profiler.trace.signature import Signature
from rooflines.roofline.formulas.arguments import Arguments, selected, size, written
from rooflines.roofline.formulas.costs import QUANTIZE
from rooflines.roofline.formulas.record import Work, precision_of
from rooflines.roofline.formulas.registry import Hints, hinted_formula, uncounted, words
from rooflines.roofline.formulas.rows import Row, register

_SUM, _MEAN, _MAX = 0, 1, 2  # modes of a bag

_RENORM: Final = Row(
    "view table, read indices, max_norm, norm_type=2.0",
    where="depth = prod(table[1:]); rows = min(indices.n, table[0])",
    other="rows * depth * (norm_cost(known('norm_type')) + 1)", precision="table",
    reads="indices.size + selected(table, rows * depth)", writes="rows * depth * table.item",
)  # fmt: skip
_TABLES: Final[dict[str, Row]] = {
    "embedding": Row(
        "view weight, read indices",
        where="made = indices.n * prod(weight[1:])", reads="selected(weight, made) + indices.size", writes="made * weight.item",
    ),
    # adds each row of the gradient, divided by how often its index occurs where asked for, to its row of a table of zeros
    "embedding_dense_backward": Row(
        "read grad, read indices, num_weights, padding=-1, scaled=False", other="grad.n * (2 if value('scaled') else 1)",
        writes="num_weights * (grad[-1] if grad.rank else 1) * grad.item",
    ),
    # The norm of each row looked up, and the row scaled: how many are too long depends on their values, so all are written.
    "embedding_renorm_": _RENORM,
    "embedding_renorm": replace(_RENORM, reads="indices.size + table.size", writes="table.full"),
    # a dot product of a row and its bag's gradient for each index; which bag that is was noted by the forward, or follows from offsets
    "_embedding_bag_per_sample_weights_backward": Row(
        "read grad, view weight, read indices, view offsets?, view noted?", where="made = indices.n * prod(weight[1:])",
        other="2 * made", writes="indices.n * grad.item",
        reads="grad.size + indices.size + (noted if noted.n else offsets).size + selected(weight, made)",
    ),
}  # fmt: skip
register(_TABLES, "embedding", namespace="aten::")


_BAG: Final = "weight indices offsets scaled=False mode=0 sparse=False weights=None include_last=False"


@hinted_formula("aten::_embedding_bag", "aten::_embedding_bag_forward_only", category="embedding")
def _embedding_bag(signature: Signature, hints: Hints) -> Work:
    """Rows added up, averaged or compared bag by bag. Besides [bags, depth] it writes which bag each index is in, how large the bags
    are, and of maxima where they came from: as much of these as the device and the mode need, which the results tell."""
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


# The gradient of the table: [bags, depth] -> [rows, depth]. Each index adds its bag's gradient to its row; of maxima only where they
# came from, but for empty bags, which their sizes tell. Which bag an index is in was noted by the forward, or follows from the offsets.
_DENSE: Final = Row(
    "view grad, view indices, view offset2bag, view bag_size?, view maxima?, num_weights, scaled, mode, view weights?",
    where=f"mean = mode == {_MEAN}; largest = mode == {_MAX}; each = 1 + bool(scaled) + mean + bool(weights)",
    other="grad.n if largest else indices.n * grad[-1] * each",
    reads="grad.size + (maxima.size + bag_size.size if largest else"
    " indices.size + offset2bag.size + weights.size + (bag_size.size if mean else 0))",
    writes="num_weights * grad[-1] * grad.item", precision="grad", fits=f"mode != {_MAX} or bool(maxima)",
)  # fmt: skip
_BAG_BACKWARD: Final = (
    "view grad, view indices, view offsets, view offset2bag?, view bag_size?, view maxima?, num_weights, scaled, mode, sparse,"
    " view weights?"
)
_NOTED: Final = "(offset2bag if offset2bag.n else offsets).size"
_BAG_GRADIENTS: Final[dict[str, Row | tuple[Row, ...]]] = {
    "_embedding_bag_dense_backward": _DENSE,
    "_embedding_bag_backward": (
        # a sparse one has a row for each index, whose positions are the indices themselves
        Row(
            _BAG_BACKWARD, fits="sparse", where=f"mean = mode == {_MEAN}; made = indices.n * grad[-1]",
            other="made * (mean + bool(weights))", writes="made * grad.item",
            reads=f"grad.size + {_NOTED} + weights.size + (bag_size.size if mean else 0)", precision="grad",
        ),
        replace(_DENSE, schema=_BAG_BACKWARD, reads=_DENSE.reads.replace("offset2bag.size", _NOTED)),
    ),
}  # fmt: skip
register(_BAG_GRADIENTS, "embedding", namespace="aten::")

# Embedding tables of 8-, 4- and 2-bit rows. Each row is packed, its scale and its offset behind it, and read where it is looked up.

# Kind -> elements a byte, and bytes of a row's scale and offset.
PACKINGS: Final[dict[str, tuple[int, int]]] = {"byte": (1, 8), "4bit": (2, 4), "2bit": (4, 4)}
_LOOKUPS: Final[dict[str, Row]] = {}
_CONVERSIONS: Final[dict[str, Row]] = {}
for _kind, (_per_byte, _tail) in PACKINGS.items():
    # rows looked up, widened to float32 and summed to one for each bag; ``offsets`` says where each begins
    _LOOKUPS[f"embedding_bag_{_kind}_rowwise_offsets"] = Row(
        "view weight[rows width], read indices, read offsets?, scaled=False, mode=0, pruned=False, read weights?, read mapping?,"
        " include_last=False",
        where=f"depth = (width - {_tail}) * {_per_byte}; bags = offsets.n - include_last if offsets else indices[0]",
        other="indices.n * depth * (DEQUANTIZE + 1 + bool(weights))", precision="=fp32",
        reads="min(indices.n, rows) * width + indices.size + offsets.size + weights.size + mapping.size", writes="4 * bags * depth",
    )  # fmt: skip
    # [rows, depth] of floating point; the range of each row is searched for, or given
    _packed = f"weight.n // weight[-1] * (up(weight[-1], {_per_byte}) + {_tail}) if weight[-1] else 0"
    for _suffix, _ranges, _cost in (("", "", QUANTIZE + 2), ("_with_rowwise_min_max", ", read low?, read high?", QUANTIZE)):
        _CONVERSIONS[f"embedding_bag_{_kind}_prepack{_suffix}"] = Row(
            f"read weight{_ranges}", _cost, per="weight", writes=_packed, precision="=fp32"
        )
    # back to float32
    _CONVERSIONS[f"embedding_bag_{_kind}_unpack"] = Row(
        "read weight", where=f"made = weight.n // weight[-1] * (weight[-1] - {_tail}) * {_per_byte}",
        other="DEQUANTIZE * made", writes="4 * made", precision="=fp32",
    )  # fmt: skip
register(_LOOKUPS, "embedding", namespace="quantized::")
register(_CONVERSIONS, "element-wise", namespace="quantized::")


uncounted(
    *(f"quantized::{name}" for name in words("embedding_byte embedding_4bit embedding_bag_byte embedding_bag_4bit")),
    category="copy", reason="packed tables not recorded",
)  # fmt: skip
