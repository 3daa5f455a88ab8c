"""The few equations of the roofline, pure Python.

A call that does ``f`` FLOPs and must move ``b`` bytes cannot take less than ``max(f / compute, b / memory, latency)`` (Williams,
Waterman, Patterson: "Roofline", CACM 52(4), 2009, with the latency of an operator as a third roof).
"""

from __future__ import annotations

from dataclasses import dataclass

from rooflines.device_specs.records import Ceilings
from rooflines.roofline.analysis import Bound
from rooflines.roofline.formulas import Work


@dataclass(frozen=True, slots=True)
class Placement:
    """One call compared with the roofs: its lower bound in seconds, the bounding roof, and all roofs that apply.

    ``attainable_flop_per_s`` is the roof above its arithmetic intensity; None without FLOPs or without the roofs it needs.
    """

    lower_bound_s: float
    bound: Bound
    attainable_flop_per_s: float | None = None
    memory_level: str | None = None
    engine: str | None = None


def place(work: Work, ceilings: Ceilings, *, footprint_bytes: int | None = None, precision: str | None = None) -> Placement | None:
    """The placement of one call of ``work``; None when no ceiling applies to it.

    ``footprint_bytes`` is the memory that the call's bytes lie in, where that is less than its traffic (an operator in place reads and
    writes the same bytes). ``precision`` replaces the precision of the matrix part (``tf32`` where the library runs fp32 products in
    it).
    """
    compute_s, engine = _compute_seconds(work, ceilings, precision or work.precision)
    memory_s, level = memory_seconds(work.bytes, footprint_bytes or work.bytes, ceilings)
    latency = ceilings.latency()
    latency_s = latency.value if latency else 0.0
    lower = max(compute_s, memory_s, latency_s)
    if lower <= 0:
        return None
    bound: Bound = "latency" if latency_s == lower else "compute" if compute_s == lower else "memory"
    attainable = None
    if work.flops and (compute_s or memory_s):
        attainable = work.flops / max(compute_s, memory_s)
    return Placement(lower, bound, attainable, level, engine)


def memory_seconds(size_bytes: int, footprint_bytes: int, ceilings: Ceilings) -> tuple[float, str | None]:
    """The least time to move ``size_bytes`` that lie in ``footprint_bytes`` of memory, and the outermost level that takes part.

    What was just written may still be in the caches: as much as fits. So the nearest level holds its capacity's worth of the
    footprint, the next one its own of what is left, and every byte moves at the rate of the level that holds it. A footprint that fits
    into one level is judged by that level or nearer ones; a large one almost entirely by DRAM. It is a bound, not a prediction: judged
    by DRAM alone, an addition over 40 MB in a 32 MB cache would reach 200 %.
    """
    left, seconds, outermost = footprint_bytes, 0.0, None
    for level in ceilings.memory_levels():
        if left <= 0:
            break
        held = left if level.capacity_bytes is None else min(left, level.capacity_bytes)
        seconds += held / footprint_bytes * size_bytes / level.value
        left -= held
        outermost = level.level
    return (seconds, outermost) if left <= 0 else (0.0, None)


def _compute_seconds(work: Work, ceilings: Ceilings, precision: str | None) -> tuple[float, str | None]:
    """The least time for the arithmetic, and the engine that sets it.

    Matrix and vector units work side by side where a device has both, so the longer part counts; where the same units do both (the
    highest matrix roof is the vector peak), the parts add up.
    """
    if precision is None or not work.flops:
        return 0.0, None
    matrix = ceilings.compute(precision, "matrix") if work.matrix_flops else None
    vector = ceilings.compute(work.precision or precision, "vector") if work.other_flops else None
    matrix_s = work.matrix_flops / matrix.value if matrix else 0.0
    vector_s = work.other_flops / vector.value if vector else 0.0
    if matrix is not None and vector is not None and matrix.engine == "vector":
        return matrix_s + vector_s, "vector"
    if matrix_s >= vector_s:
        return matrix_s, matrix.engine if matrix else None
    return vector_s, "vector"
