"""Tables looked up by row: embeddings, bags of them, and their gradients. Rows that are looked up are read once, at most the table."""

from __future__ import annotations

from math import prod
from typing import Final

from rooflines.profiler.trace.signature import Signature, TensorArg
from rooflines.roofline.formulas.arguments import Arguments, NotCounted, size, size_of, written
from rooflines.roofline.formulas.copies import moved
from rooflines.roofline.formulas.costs import DEQUANTIZE, QUANTIZE
from rooflines.roofline.formulas.gather import selected
from rooflines.roofline.formulas.record import Work, precision_of
from rooflines.roofline.formulas.reduction import norm_cost
from rooflines.roofline.formulas.registry import Hints, formula, hinted_formula

_SUM, _MEAN, _MAX = 0, 1, 2  # modes of a bag


@formula("aten::embedding", category="embedding")
def _embedding(signature: Signature) -> Work:
    args = Arguments(signature, "weight indices")
    weight, indices = args.tensor("weight"), args.tensor("indices")
    results = indices.numel * prod(weight.shape[1:])
    return moved(selected(weight, results) + size(indices), results * size_of(weight.dtype))


@formula("aten::embedding_dense_backward", category="embedding")
def _embedding_backward(signature: Signature) -> Work:
    """Adds each row of the gradient, divided by how often its index occurs where asked for, to its row of a table of zeros."""
    args = Arguments(signature, "grad indices num_weights padding=-1 scaled=False")
    grad, indices = args.tensor("grad"), args.tensor("indices")
    depth = grad.shape[-1] if grad.shape else 1
    scaled = args.recorded("scaled") and args.flag("scaled")
    return Work(
        other_flops=grad.numel * (2 if scaled else 1),
        bytes_read=size(grad, indices),
        bytes_written=args.integer("num_weights") * depth * size_of(grad.dtype),
        precision=precision_of(grad.dtype),
    )


@formula("aten::embedding_renorm_", "aten::embedding_renorm", category="embedding")
def _renorm(signature: Signature) -> Work:
    """The norm of each row looked up, and the row scaled: how many are too long depends on their values, so all are written."""
    args = Arguments(signature, "table indices max_norm norm_type=2.0")
    table, indices = args.tensor("table"), args.tensor("indices")
    depth = prod(table.shape[1:])
    rows = min(indices.numel, table.shape[0])
    in_place = signature.name.endswith("_")
    return Work(
        other_flops=rows * depth * (norm_cost(args.value("norm_type"), False) + 1),
        bytes_read=size(indices) + (selected(table, rows * depth) if in_place else size(table)),
        bytes_written=rows * depth * size_of(table.dtype) if in_place else written(table),
        precision=precision_of(table.dtype),
    )


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


_BAG_BACKWARD: Final = "grad indices offsets offset2bag bag_size maxima num_weights scaled mode sparse weights=None"
_BAG_DENSE_BACKWARD: Final = "grad indices offset2bag bag_size maxima num_weights scaled mode weights=None"


@formula("aten::_embedding_bag_backward", category="embedding")
def _embedding_bag_backward(signature: Signature) -> Work:
    """The gradient of the table, or as a sparse one a row for each index, whose positions are the indices themselves."""
    args = Arguments(signature, _BAG_BACKWARD)
    if not args.flag("sparse"):
        return _table_gradient(args)
    grad, indices = args.tensor("grad"), args.tensor("indices")
    elements = indices.numel * grad.shape[-1]
    scale = (args.integer("mode") == _MEAN) + (args.optional("weights") is not None)
    return Work(
        other_flops=elements * scale,
        bytes_read=size(
            grad, _bags(args), args.optional("weights"), args.optional("bag_size") if args.integer("mode") == _MEAN else None
        ),
        bytes_written=elements * size_of(grad.dtype),
        precision=precision_of(grad.dtype) if scale else None,
    )


@formula("aten::_embedding_bag_dense_backward", category="embedding")
def _embedding_bag_dense_backward(signature: Signature) -> Work:
    return _table_gradient(Arguments(signature, _BAG_DENSE_BACKWARD))


def _bags(args: Arguments) -> TensorArg:
    """What says which bag an index is in: noted by the forward, or found from the offsets."""
    noted = args.optional("offset2bag")
    return noted if noted is not None and noted.numel else args.tensor("offsets") if args.has("offsets") else args.tensor("offset2bag")


def _table_gradient(args: Arguments) -> Work:
    """[bags, depth] -> [rows, depth]: each index adds its bag's gradient to its row; of maxima only where they came from."""
    grad, indices, mode = args.tensor("grad"), args.tensor("indices"), args.integer("mode")
    depth = grad.shape[-1]
    result = args.integer("num_weights") * depth * size_of(grad.dtype)
    if mode == _MAX:  # but for empty bags, which their sizes tell
        read = size(grad, args.tensor("maxima"), args.optional("bag_size"))
        return Work(0, grad.numel, read, result, precision_of(grad.dtype))
    weights = args.optional("weights")
    scale = args.flag("scaled") + (mode == _MEAN) + (weights is not None)
    lengths = args.optional("bag_size") if mode == _MEAN else None
    read = size(grad, indices, _bags(args), lengths, weights)
    return Work(0, indices.numel * depth * (1 + scale), read, result, precision_of(grad.dtype))


@formula("aten::_embedding_bag_per_sample_weights_backward", category="embedding")
def _sample_weights_gradient(signature: Signature) -> Work:
    """A dot product of a row and its bag's gradient for each index."""
    args = Arguments(signature, "grad weight indices offsets offset2bag")
    grad, weight, indices = args.tensor("grad"), args.tensor("weight"), args.tensor("indices")
    elements = indices.numel * prod(weight.shape[1:])
    return Work(
        other_flops=2 * elements,
        bytes_read=size(grad, indices, _bags(args)) + selected(weight, elements),
        bytes_written=indices.numel * size_of(grad.dtype),
        precision=precision_of(grad.dtype),
    )


# Embedding tables of 8-, 4- and 2-bit rows. Each row is packed, its scale and its offset behind it, and read where it is looked up.

# Kind -> elements a byte, and bytes of a row's scale and offset.
PACKINGS: Final[dict[str, tuple[int, int]]] = {"byte": (1, 8), "4bit": (2, 4), "2bit": (4, 4)}


def _packing(signature: Signature) -> tuple[int, int]:
    return next(packing for kind, packing in PACKINGS.items() if f"_{kind}" in signature.name)


@formula(*(f"quantized::embedding_bag_{kind}_rowwise_offsets" for kind in PACKINGS), category="embedding")
def _bag(signature: Signature) -> Work:
    """Rows looked up, widened to float32 and summed to one for each bag; ``offsets`` says where each begins."""
    args = Arguments(
        signature,
        "weight indices offsets=None scaled=False mode=0 pruned=False weights=None mapping=None include_last=False",
    )
    weight, indices, offsets = args.tensor("weight"), args.tensor("indices"), args.optional("offsets")
    factors, mapping = args.optional("weights"), args.optional("mapping")
    per_byte, tail = _packing(signature)
    rows, packed = weight.shape
    depth = (packed - tail) * per_byte
    bags = offsets.numel - args.flag("include_last") if offsets is not None else indices.shape[0]
    return Work(
        other_flops=indices.numel * depth * (DEQUANTIZE + 1 + (factors is not None)),
        bytes_read=min(indices.numel, rows) * packed + size(indices, offsets, factors, mapping),
        bytes_written=4 * bags * depth,
        precision="fp32",
    )


@formula(*(f"quantized::embedding_bag_{kind}_prepack{ranges}" for kind in PACKINGS for ranges in ("", "_with_rowwise_min_max")),
         category="element-wise")  # fmt: skip
def _pack(signature: Signature) -> Work:
    """[rows, depth] of floating point; the range of each row is searched for, or given."""
    weight, *ranges = signature.tensors
    per_byte, tail = _packing(signature)
    depth = weight.shape[-1]
    given = signature.name.endswith("min_max")
    return Work(
        other_flops=weight.numel * (QUANTIZE + (0 if given else 2)),
        bytes_read=size(weight, *ranges),
        bytes_written=(weight.numel // depth) * (-(-depth // per_byte) + tail) if depth else 0,
        precision="fp32",
    )


@formula(*(f"quantized::embedding_bag_{kind}_unpack" for kind in PACKINGS), category="element-wise")
def _unpack(signature: Signature) -> Work:
    """Back to float32."""
    weight = Arguments(signature, "weight").tensor("weight")
    per_byte, tail = _packing(signature)
    elements = weight.numel // weight.shape[-1] * (weight.shape[-1] - tail) * per_byte
    return Work(other_flops=DEQUANTIZE * elements, bytes_read=size(weight), bytes_written=4 * elements, precision="fp32")


@formula("quantized::embedding_byte", "quantized::embedding_4bit", "quantized::embedding_bag_byte", "quantized::embedding_bag_4bit",
         category="copy")  # fmt: skip
def _packed_table(_: Signature) -> Work:
    raise NotCounted("packed tables not recorded")
