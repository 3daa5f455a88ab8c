"""The bound of a counted step on a device: each operator by the roofline, and their sums.

The sum over the operators, as PyTorch calls them one after the other, is the least time of a step on one stream. Code that fuses
operators keeps their intermediate results out of memory, and its least time is that of the matrix operators alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from rooflines.device_specs.records import Ceilings
from rooflines.roofline.bounds import footprint, place
from rooflines.roofline.by_key import grouped, longest_first
from rooflines.roofline.forecast.calls import Call
from rooflines.roofline.forecast.forecast import Operator, OperatorBound, Phase, PhaseBound
from rooflines.roofline.formulas import Work
from rooflines.roofline.network_parts import part_of
from rooflines.roofline.shapes import path_pattern, skeleton

if TYPE_CHECKING:
    from rooflines.roofline.counting.count import Count, OperatorCount
    from rooflines.roofline.forecast.efficiencies import Efficiencies, Estimate


class Folded(NamedTuple):
    """An operator in repeated layers, and the work of one of its calls."""

    operator: Operator
    work: Work


def folded(count: Count, phase: str) -> list[Folded]:
    """The operators of one ``phase``, those of repeated layers with the same work as one."""
    types = {module.path: module.type for module in count.modules}
    rows = (row for row in count.operators if row.kind == "counted" and (row.phase or "forward") == phase)
    groups = grouped(rows, lambda row: (_work(row), row.name, row.shapes, row.category, skeleton(row.module)))
    found = []
    for group in groups.values():
        first, calls = group[0], sum(row.calls for row in group)
        work = _work(first)
        found.append(Folded(Operator(
            name=first.name, module=path_pattern([row.module for row in group]), modules=len({row.module for row in group}),
            phase=phase, shapes=first.shapes, category="optimizer" if phase == "optimizer" else first.category, calls=calls,
            part=part_of(first.module, first.name, first.category, phase=phase, types=types), assumption=first.assumption,
            precision=work.precision, flops=work.flops * calls, matrix_flops=work.matrix_flops * calls, bytes=work.bytes * calls,
        ), work))  # fmt: skip
    return found


def _work(row: OperatorCount) -> Work:
    """The work of one of the calls, which are all alike."""
    flops, matrix, read, written = (
        (figure or 0) // row.calls for figure in (row.flops, row.matrix_flops, row.bytes_read, row.bytes_written)
    )
    return Work(matrix, flops - matrix, read, written, row.precision)


def without_rate(operators: Iterable[Folded], ceilings: Ceilings, tf32: bool) -> tuple[str, ...]:
    """The precisions of products for which the device has no rate."""
    wanted = dict.fromkeys(_precision(work, tf32) or "" for _, work in operators if work.matrix_flops)
    return tuple(name for name in wanted if ceilings.compute(name, "matrix") is None)


def bound_operator(one: Folded, ceilings: Ceilings, tf32: bool, like: Efficiencies | None = None) -> OperatorBound:
    """All calls of an operator on a device, with an estimate ``like`` measured runs; ``tf32`` products in fp32 run as TF32."""
    operator, work = one
    precision = _precision(work, tf32)
    placed = place(work, ceilings, footprint_bytes=footprint(operator.name, work), precision=precision)
    if placed is None or without_rate([one], ceilings, tf32):
        return OperatorBound()
    estimate = None
    if like is not None:
        call = Call(
            name=operator.name, category=operator.category, precision=precision, engine=placed.engine, flops=work.flops,
            bytes=work.bytes, lower_bound_s=placed.lower_bound_s, bound=placed.bound,
        )  # fmt: skip
        estimate = like.estimate(call)
    return OperatorBound(
        bound=placed.bound, lower_bound_s=placed.lower_bound_s * operator.calls, memory_level=placed.memory_level, engine=placed.engine,
        estimate=estimate,
    )  # fmt: skip


def bound_phase(
    name: str, operators: Sequence[Folded], bounds: Sequence[OperatorBound], ceilings: Ceilings, tf32: bool, like: Efficiencies | None
) -> PhaseBound:
    """One call of a phase whose ``operators`` have these ``bounds``."""
    pairs = zip(operators, bounds, strict=True)
    bounded = [(one.operator, bound.bound, bound.lower_bound_s) for one, bound in pairs if bound.lower_bound_s is not None]
    ordered: dict[str, float] = longest_first((roof, lower_s) for _, roof, lower_s in bounded)
    return PhaseBound(
        name=name,
        bound=next(iter(ordered), "unknown"),  # type: ignore[arg-type]
        lower_bound_s=sum(ordered.values()),
        fused_bound_s=sum(lower_s for operator, _, lower_s in bounded if operator.matrix_flops),
        by_roof_s=ordered,
        ridge_flop_per_byte=ridge(operators, ceilings, tf32),
        estimate=like.total(estimates_of(operators, bounds)) if like is not None else None,
    )


def estimates_of(operators: Iterable[Folded], bounds: Iterable[OperatorBound], times: int = 1) -> list[tuple[Estimate, float]]:
    """The estimates of one call of each operator, and the number of its calls in ``times`` calls of the phase."""
    pairs = zip(operators, bounds, strict=True)
    return [(bound.estimate, one.operator.calls * times) for one, bound in pairs if bound.estimate is not None]


def ridge(operators: Iterable[Folded], ceilings: Ceilings, tf32: bool) -> float | None:
    """The intensity (FLOP/byte) at which the roofs of memory and of the precision with most matrix FLOPs meet."""
    products = longest_first((_precision(work, tf32) or "", one.matrix_flops) for one, work in operators if work.matrix_flops)
    memory = ceilings.outermost_memory()
    roof = ceilings.compute(next(iter(products)), "matrix") if products else None
    return roof.value / memory.value if roof is not None and memory is not None else None


def _precision(work: Work, tf32: bool) -> str | None:
    """The precision of the roof of products."""
    return "tf32" if tf32 and work.matrix_flops and work.precision == "fp32" else work.precision


def phase_of(name: str, operators: Sequence[Folded], coverage: float, *, calls: int = 1, tokens: int | None = None,
             context: int | None = None, all_tokens: int | None = None) -> Phase:  # fmt: skip
    """The work of one call of a phase; ``all_tokens`` are those of every sequence in it."""
    flops, matrix, size = (sum(getattr(one.operator, field) for one in operators) for field in ("flops", "matrix_flops", "bytes"))
    return Phase(
        name=name, calls=calls, tokens=tokens, context=context, flops=flops, matrix_flops=matrix, bytes=size, coverage=coverage,
        intensity_flop_per_byte=flops / size if flops and size else None, flops_per_token=flops / all_tokens if all_tokens else None,
    )  # fmt: skip
