"""The KV cache of a generation in fewer bits than the precision that the model computes in.

Each token of decode reads less of it, and a sequence holds less; the arithmetic of attention stays. States of
layers without attention keep their precision.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from msgspec.structs import replace

from rooflines.errors import UsageError
from rooflines.roofline.dry_run.served_attention import KERNEL
from rooflines.roofline.judge.shapes import sizes_in
from rooflines.roofline.predict.weights import item_bytes

if TYPE_CHECKING:
    from rooflines.roofline.dry_run.count import OperatorCount, PhaseCount
    from rooflines.roofline.dry_run.phases import GenerationCount


def with_fewer_bits_cached(generation: GenerationCount, bits: int) -> GenerationCount:
    """Return ``generation`` with a KV cache whose numbers have ``bits`` each.

    Raises UsageError for a model that computes attention in several operators, of which none is known to
    read the cache.
    """
    item = item_bytes(generation)
    left = bits / 8 / item
    if left >= 1 or not generation.kv_bytes_per_token:
        return generation
    prefill, *decode = generation.phases
    held = generation.batch * generation.cache_bytes(prefill.tokens + sum(phase.calls for phase in decode))
    return replace(
        generation,
        phases=tuple(
            _narrowed(phase, item, 1 - left) if phase.tokens < phase.keys else phase
            for phase in generation.phases
        ),
        cached_item_bytes=bits / 8,
        kv_bytes_per_token=round(generation.kv_bytes_per_token * left),
        kv_bytes=(generation.kv_bytes or 0) - round(held * (1 - left)),
        kv_windows=tuple((window, round(each * left)) for window, each in generation.kv_windows),
    )


def _narrowed(phase: PhaseCount, item: int, less: float) -> PhaseCount:
    """``phase`` without this fraction of the bytes of keys and values that it reads."""
    changed: dict[OperatorCount, OperatorCount] = {}
    for row in phase.count.operators:
        saved = round(less * item * _cached(row) * row.calls)
        if saved:
            shorter = {name: getattr(row, name) - saved for name in ("bytes", "bytes_read")}
            changed[row] = replace(row, **shorter)
    if not changed:
        raise UsageError(
            "the KV cache is not predicted in fewer bits: this model computes attention in several operators."
        )
    rows = [changed.get(row, row) for row in phase.count.operators]
    return replace(phase, count=phase.count.exchanged(rows, changed, changed.values()))


def _cached(row: OperatorCount) -> int:
    """The numbers of keys and values that a call reads: of an attention kernel its second and third operand,
    of latent attention the second. Scans have states."""
    if row.category != "attention" or "attention" not in row.name:
        return 0
    sizes = [size for size in sizes_in(row.shapes) if len(size) > 2]
    return sum(map(prod, sizes[1:2] if row.name == KERNEL else sizes[1:3]))
