"""Bounds of operators that were timed alone, and these operators as points of a roofline."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from rooflines.device_specs.records import Ceilings
from rooflines.reports.charts.roofline import Point
from rooflines.reports.views.roofline import rate_lines, warning
from rooflines.roofline.bounds.model import place
from rooflines.roofline.formulas import Work
from rooflines.studies.records import TimedOperator
from rooflines.units import percent, seconds

ROOFLINE_NOTE = "Color and shape: backend. Area: time. Work: FLOPs and bytes that the kernel executes. Time: fastest of 15 rounds."


def bounded(operators: Iterable[TimedOperator], ceilings: Ceilings | None) -> tuple[TimedOperator, ...]:
    """``operators`` with the lower bound of each, what sets it, and the share of its time that this is."""
    if ceilings is None:
        return tuple(operators)
    return tuple(_bounded(one, ceilings) for one in operators)


def _bounded(one: TimedOperator, ceilings: Ceilings) -> TimedOperator:
    calls = max(1, one.calls)
    executed = one.executed
    # What is left out, or done beyond the direct algorithm, is products where there are any. The record keeps traffic as one number;
    # the roofline does not ask which way it goes.
    other = min(executed, one.flops - one.matrix_flops) if one.matrix_flops else executed
    work = Work(
        matrix_flops=(executed - other) // calls,
        other_flops=other // calls,
        bytes_read=one.bytes // calls,
        precision=one.precision,
    )
    found = place(work, ceilings)
    if found is None:
        return one
    return msgspec.structs.replace(
        one,
        lower_bound_s=found.lower_bound_s * calls,
        attainable_flop_per_s=found.attainable_flop_per_s,
        efficiency=found.lower_bound_s * calls / one.time_s,
        bound=found.bound,
        memory_level=found.memory_level,
    )


def operator_points(backends: Iterable[tuple[str, Sequence[TimedOperator]]]) -> list[Point]:
    """The operators of several backends on the roofline; the colour of a point is that of its backend."""
    operators = [(backend, one) for backend, operators in backends for one in operators]
    return [_point(number, backend, one) for number, (backend, one) in enumerate(operators) if one.executed and one.bytes]


def _point(number: int, backend: str, one: TimedOperator) -> Point:
    name = " ".join(part for part in (one.layer if one.phase != "optimizer" else "", one.name) if part)
    headroom_s = 0.0 if one.lower_bound_s is None else max(0.0, one.time_s - one.lower_bound_s)
    doubt = warning(one.efficiency)
    judged = (
        ("efficiency", "" if one.efficiency is None else percent(one.efficiency)),
        ("headroom", seconds(headroom_s) if headroom_s else ""),
        ("bound", bound_text(one)),
        ("warning", doubt),
    )
    return Point(
        key=number, name=name, label=f"{name} {backend}", category=backend, intensity=one.executed / one.bytes,
        flop_per_s=one.executed / one.time_s, time_s=one.time_s, precision=one.precision,
        engine="matrix" if one.matrix_flops else "vector", gain_s=headroom_s, warning=doubt,
        lines=(
            ("backend", backend), ("calls", str(one.calls)), *rate_lines(one.executed, one.bytes, one.time_s),
            *((about, text) for about, text in judged if text),
        ),
    )  # fmt: skip


def bound_text(one: TimedOperator) -> str:
    """What sets the pace of an operator: ``memory (L3)``."""
    return f"memory ({one.memory_level})" if one.bound == "memory" and one.memory_level else one.bound
