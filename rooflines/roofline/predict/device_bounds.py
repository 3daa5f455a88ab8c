"""The bound of a counted step on a device: each operator by the roofline, and their sums.

Products, convolutions and attention, one after the other, are the lower bound: code may fuse all other
operators into them and keep intermediate results out of memory. An optimizer has no products: fused into one
kernel it still reads the gradients, and reads and writes parameters and state. PyTorch in eager mode calls
every operator by itself; the sum over all of them is its bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from rooflines.device_specs.records import Ceilings
from rooflines.roofline.count.by_key import grouped, longest_first
from rooflines.roofline.judge.bounds import footprint, memory_seconds, place_on_roofline
from rooflines.roofline.judge.network_parts import part_of
from rooflines.roofline.judge.shapes import path_pattern, skeleton
from rooflines.roofline.predict.forecast import MemoryNeed, Operator, OperatorBound, Phase, PhaseBound
from rooflines.roofline.predict.winograd import products_saved

if TYPE_CHECKING:
    from rooflines.roofline.dry_run.count import Count
    from rooflines.roofline.predict.calibrated import Calibrated
    from rooflines.roofline.predict.efficiencies import Efficiencies, Estimate

_FIGURES = ("flops", "matrix_flops", "bytes", "bytes_read")


def folded(count: Count, phase: str) -> tuple[Operator, ...]:
    """The operators of one ``phase``, those of repeated layers with the same work as one."""
    types = {module.path: module.type for module in count.modules}
    rows = (row for row in count.operators if row.kind == "counted" and (row.phase or "forward") == phase)
    groups = grouped(
        rows,
        lambda row: (
            row.name,
            row.shapes,
            row.category,
            row.precision,
            skeleton(row.module),
            *(getattr(row, name) // row.calls for name in _FIGURES),
        ),
    )
    return tuple(
        Operator(
            name=first.name,
            module=path_pattern([row.module for row in group]),
            modules=len({row.module for row in group}),
            phase=phase,
            shapes=first.shapes,
            category="optimizer" if phase == "optimizer" else first.category,
            part=part_of(first.module, first.name, first.category, phase=phase, types=types),
            assumption=first.assumption,
            calls=sum(row.calls for row in group),
            precision=first.precision,
            **{name: sum(getattr(row, name) for row in group) for name in _FIGURES},
        )
        for group in groups.values()
        for first in group[:1]
    )


def without_rate(operators: Iterable[Operator], ceilings: Ceilings) -> tuple[str, ...]:
    """The precisions of products for which the device has no rate."""
    wanted = dict.fromkeys(one.precision or "" for one in operators if one.matrix_flops)
    return tuple(name for name in wanted if ceilings.compute(name, "matrix") is None)


def bound_operator(
    one: Operator,
    ceilings: Ceilings,
    like: Efficiencies | Calibrated | None = None,
    *,
    in_cache: bool = False,
) -> OperatorBound:
    """All calls of an operator on a device, with an estimate ``like`` measured runs. ``in_cache``, its data
    need not come from memory.

    No library is faster than the bound: products may be added up in fp16 where that is faster, and on vector
    units a convolution makes the fewest products that are known. An estimate is relative to the usual ones.
    """
    work = one.work
    placed = place_on_roofline(work, ceilings, footprint_bytes=footprint(one.name, work))
    if placed is None or without_rate([one], ceilings):
        return OperatorBound()
    least = (
        replace(work, matrix_flops=round(work.matrix_flops / products_saved(one)))
        if placed.engine == "vector"
        else work
    )
    if in_cache:
        least = replace(least, bytes_read=0, bytes_written=0)
    bounded = place_on_roofline(
        least, ceilings.of_any_accumulation(), footprint_bytes=footprint(one.name, work)
    )
    estimate = like.estimate_of(one, placed) if like is not None else None
    if bounded is None:
        return OperatorBound(lower_bound_s=0.0, estimate=estimate)
    return OperatorBound(
        bound=bounded.bound,
        lower_bound_s=bounded.lower_bound_s * one.calls,
        memory_level=bounded.memory_level,
        engine=bounded.engine,
        estimate=estimate,
    )


def bound_phase(
    name: str,
    operators: Sequence[Operator],
    bounds: Sequence[OperatorBound],
    ceilings: Ceilings,
    like: Efficiencies | Calibrated | None = None,
    memory: MemoryNeed | None = None,
) -> PhaseBound:
    """One call of a phase whose ``operators`` have these ``bounds``, in a step that needs ``memory``."""
    eager_s = sum(bound.lower_bound_s or 0.0 for bound in bounds)
    by_roof: dict[str, float] = longest_first(
        (bound.bound, bound.lower_bound_s)
        for one, bound in zip(operators, bounds, strict=True)
        if one.matrix_flops and bound.lower_bound_s is not None
    )
    if name == "optimizer" and memory is not None:
        by_roof["memory"] = min(
            memory_seconds(memory.updated_bytes, memory.updated_bytes, ceilings)[0], eager_s
        )
    return PhaseBound(
        name=name,
        lower_bound_s=sum(by_roof.values()),
        eager_bound_s=eager_s,
        by_roof_s=by_roof,
        ridge_flop_per_byte=_ridge(operators, ceilings),
        estimate=like.total(estimates_of(operators, bounds)) if like is not None else None,
    )


def estimates_of(
    operators: Iterable[Operator], bounds: Iterable[OperatorBound], times: int = 1
) -> list[tuple[Estimate, float]]:
    """The estimates of one call of each operator, and the number of its calls in ``times`` calls of the
    phase."""
    pairs = zip(operators, bounds, strict=True)
    return [(bound.estimate, one.calls * times) for one, bound in pairs if bound.estimate is not None]


def _ridge(operators: Iterable[Operator], ceilings: Ceilings) -> float | None:
    """The intensity (FLOP/byte) at which the roofs of memory and of the precision with most matrix FLOPs
    meet."""
    products = longest_first((one.precision or "", one.matrix_flops) for one in operators if one.matrix_flops)
    memory = ceilings.outermost_memory()
    roof = ceilings.compute(next(iter(products)), "matrix") if products else None
    return roof.value / memory.value if roof is not None and memory is not None else None


def phase_of(
    name: str,
    operators: Sequence[Operator],
    coverage: float,
    *,
    calls: int = 1,
    tokens: int | None = None,
    context: int | None = None,
    all_tokens: int | None = None,
) -> Phase:
    """The work of one call of a phase; ``all_tokens`` are those of every sequence in it."""
    flops, matrix, size = (
        sum(getattr(one, field) for one in operators) for field in ("flops", "matrix_flops", "bytes")
    )
    return Phase(
        name=name,
        calls=calls,
        tokens=tokens,
        context=context,
        flops=flops,
        matrix_flops=matrix,
        bytes=size,
        coverage=coverage,
        intensity_flop_per_byte=flops / size if flops and size else None,
        flops_per_token=flops / all_tokens if all_tokens else None,
    )
