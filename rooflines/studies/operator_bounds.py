"""Bounds of operators that were timed alone, and these operators as an analysis that the roofline chart draws."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from rooflines._version import __version__
from rooflines.device_specs.records import Ceilings
from rooflines.profiler.records import Environment, Workload
from rooflines.roofline.analysis import Analysis, OperatorRow
from rooflines.roofline.bounds import place
from rooflines.roofline.formulas import Work
from rooflines.studies.records import TimedOperator

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


def as_analysis(backends: Sequence[tuple[str, Sequence[TimedOperator]]], device: str, ceilings: Ceilings) -> Analysis:
    """The operators of several backends on one device as an analysis: the category of a row is its backend, which the chart colours."""
    rows = [
        OperatorRow(
            name=" ".join(part for part in (one.layer if one.phase != "optimizer" else "", one.name) if part),
            module=backend,
            phase="",
            shapes="",
            precision=one.precision,
            category=backend,
            calls=one.calls,
            time_s=one.time_s,
            flops=one.executed,
            matrix_flops=min(one.executed, one.matrix_flops),
            bytes=one.bytes,
            flop_per_s=one.executed / one.time_s,
            attainable_flop_per_s=one.attainable_flop_per_s,
            lower_bound_s=one.lower_bound_s,
            efficiency=one.efficiency,
            headroom_s=None if one.lower_bound_s is None else max(0.0, one.time_s - one.lower_bound_s),
            bound=one.bound,
            memory_level=one.memory_level,
            engine="matrix" if one.matrix_flops else "vector",
        )
        for backend, operators in backends
        for one in operators
    ]
    return Analysis(
        workload=Workload(name="study", mode="training"),
        environment=Environment(rooflines=__version__, device=device, device_name=ceilings.device),
        ceilings=ceilings.ceilings,
        operators=tuple(rows),
    )


def bound_text(one: TimedOperator) -> str:
    """What sets the pace of an operator: ``memory (L3)``."""
    return f"memory ({one.memory_level})" if one.bound == "memory" and one.memory_level else one.bound
