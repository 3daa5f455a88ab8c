"""Advice on decode: what it reads of the memory."""

from __future__ import annotations

from rooflines.roofline.advise.case import Advice, Case
from rooflines.roofline.judge.shapes import ITEM_BYTES
from rooflines.units import percent, seconds, si

# From this share of its bound on, decode takes its time for what it reads.
_READING = 0.5
_INT8_BYTES = 1
SMALLER_WEIGHTS = (
    "weight-only int8 or int4 (torchao), or a larger batch, which reads the weights once for more tokens"
)


def read_weights(case: Case) -> Advice | None:
    """Decode steps of a generation on a device that mostly read weights: fewer bytes in each are read in less
    time."""
    analysis = case.analysis
    decode = analysis.generation.of("decode") if analysis.generation is not None else None
    reads = decode.reads if decode is not None else None
    item = ITEM_BYTES.get(analysis.workload.precision)
    if (
        decode is None
        or reads is None
        or reads.lower_bound_s is None
        or reads.efficiency is None
        or item is None
    ):
        return None
    share = reads.weight_bytes / (reads.weight_bytes + reads.kv_cache_bytes)
    if (
        not case.on_device
        or reads.assumption
        or reads.efficiency < _READING
        or share < 0.5
        or analysis.workload.quantized
    ):
        return None
    saves_s = (decode.steps / analysis.basis.steps) * reads.lower_bound_s * share * (1 - _INT8_BYTES / item)
    products = {
        one.key: one.left_s
        for one in case.ran(lambda one: one.row.phase == "decode" and one.category == "matmul")
    }
    evidence = (
        f"a decode step of {seconds(decode.step_s)} reads {si(reads.weight_bytes, 'B')} of "
        f"weights, {percent(share)} of what it must "
        f"read, and reaches {percent(reads.efficiency)} of the bound of reading; the saving is that of int8"
    )
    return Advice("Decode is bound by reading its weights", saves_s, evidence, SMALLER_WEIGHTS, products)
