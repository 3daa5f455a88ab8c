"""Embedding tables of 8-, 4- and 2-bit rows. Each row is packed, its scale and its offset behind it, and read where it is looked up."""

from __future__ import annotations

from typing import Final

from rooflines.profiler.trace.signature import Signature
from rooflines.roofline.formulas.arguments import Arguments, NotCounted, size
from rooflines.roofline.formulas.costs import DEQUANTIZE, QUANTIZE
from rooflines.roofline.formulas.record import Work
from rooflines.roofline.formulas.registry import formula

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
