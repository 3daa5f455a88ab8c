"""Weights of a generation: what its products read of them, and less of it where they are stored in fewer
bits.

Weights of fewer bits save bytes, and FLOPs take less time only where the inputs of products are quantized,
too. Embeddings, norms and biases stay, and what a configuration leaves out.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from rooflines.roofline.dry_run.stored_weights import StoredWeights
from rooflines.roofline.judge.shapes import ITEM_BYTES, sizes_in

if TYPE_CHECKING:
    from rooflines.roofline.dry_run.count import Count, OperatorCount
    from rooflines.roofline.dry_run.phases import GenerationCount
    from rooflines.roofline.predict.forecast import Operator

# How ``profile`` quantizes all products: int4 has a scale and a zero of 16 bits for each 32 weights.
QUANTIZED: Final = {
    name: StoredWeights(method=name, bits=bits) for name, bits in (("int8-weight", 8.0), ("int4-weight", 5.0))
}
# How servers compute in a precision: weights and inputs of all products but those of the head, fp4 with a
# scale of 8 bits for each 16 (NVIDIA's nvfp4).
SERVED: Final = {
    name: StoredWeights(method=name, bits=bits, precision=name, kept=(r"(^|\.)lm_head$",))
    for name, bits in (("fp8", 8.0), ("fp4", 4.5))
}


def item_bytes(generation: GenerationCount) -> int:
    """Bytes of a number in the precision that the model computes in."""
    return ITEM_BYTES.get(generation.workload.precision, 2)


def is_grouped(row: Operator | OperatorCount) -> bool:
    """Whether the row is a product of tokens [t, k] with experts [e, k, n]."""
    return bool(row.matrix_flops) and [len(size) for size in sizes_in(row.shapes)[:2]] == [2, 3]


def weights_read(one: Operator | OperatorCount, item: int) -> int:
    """Bytes of weights that a call reads: what a product reads besides its first matrix, which is tokens.
    Where both operands are batches of matrices, the second is weights in a projection only."""
    sizes = [size for size in sizes_in(one.shapes) if len(size) > 1]
    if not one.matrix_flops or one.category == "attention" or len(sizes) < 2:
        return 0
    if len(sizes[0]) == len(sizes[1]) == 3 and not one.module.endswith("_proj"):
        return 0
    return max(0, (one.bytes_read or 0) // one.calls - prod(sizes[0]) * item)


def weights_held(one: Operator | OperatorCount, generation: GenerationCount) -> int:
    """Bytes of weights of the calls of a row as they are stored: experts are held whether or not they are
    read."""
    item, stored = item_bytes(generation), generation.stored
    bits = 8.0 * item if stored is None or stored.keeps(one.module) else stored.bits
    each = prod(sizes_in(one.shapes)[1]) * bits / 8 if is_grouped(one) else weights_read(one, item)
    return round(each * one.calls)


def with_fewer_bits(generation: GenerationCount, stored: StoredWeights) -> GenerationCount:
    """Return ``generation`` with the weights of its products ``stored`` and read so, and computing in their
    precision.

    Of two products with the same weights, such as a head that is the embedding, both are taken off what the
    parameters need: a lower bound.
    """
    item = item_bytes(generation)
    less = 1 - stored.bits / (8 * item)
    rows = generation.phases[0].count.operators
    held = sum(weights_held(row, generation) for row in rows if not stored.keeps(row.module))
    return replace(
        generation,
        workload=replace(generation.workload, quantized=stored.method),
        stored=stored,
        phases=tuple(
            replace(phase, count=_narrowed(phase.count, item, less, stored)) for phase in generation.phases
        ),
        parameter_bytes=generation.parameter_bytes - round(less * held),
    )


def _narrowed(count: Count, item: int, less: float, stored: StoredWeights) -> Count:
    """``count`` with this fraction of the bytes of weights not read, and products in the precision in which
    they compute."""
    changed: dict[OperatorCount, OperatorCount] = {}
    for row in count.operators:
        saved = 0 if stored.keeps(row.module) else round(less * weights_read(row, item) * row.calls)
        if saved:
            left = {name: getattr(row, name) - saved for name in ("bytes", "bytes_read")}
            changed[row] = replace(row, precision=stored.precision or row.precision, **left)
    rows = [changed.get(row, row) for row in count.operators]
    return count.exchanged(rows, changed, changed.values())
