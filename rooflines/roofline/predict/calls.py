"""Calls whose time is predicted, and calls of measured runs that predictions are made from."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import msgspec
from msgspec.structs import asdict, replace

from rooflines.device_specs.catalog import matching
from rooflines.device_specs.records import Ceilings
from rooflines.roofline.analysis import Analysis, Bound
from rooflines.roofline.count.formulas import Work
from rooflines.roofline.judge.bounds import Placement, place_on_roofline
from rooflines.roofline.judge.step.interference import is_delayed


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One call of an operator on a device: its work, its lower bound there, and the roof that sets the
    bound."""

    name: str
    category: str
    precision: str | None = None
    engine: str | None = None
    flops: int
    bytes: int
    lower_bound_s: float
    bound: Bound

    @staticmethod
    def of(row: Any, work: Work, placed: Placement) -> Call:
        """A call of ``row`` of an analysis or a forecast, with its ``work`` as it is ``placed``."""
        return Call(
            name=row.name,
            category=row.category,
            precision=row.precision,
            engine=placed.engine,
            flops=work.flops,
            bytes=work.bytes,
            lower_bound_s=placed.lower_bound_s,
            bound=placed.bound,
        )


class MeasuredCall(Call, frozen=True, kw_only=True):
    """All equal calls of a step of ``run`` on ``device``: their number and the mean time of one."""

    run: str
    device: str
    calls: int | float
    time_s: float


class HostTime(NamedTuple):
    """Seconds for each operator call: ``of`` a host that computes, those outside of operators; of one beside
    a ``device``, the step."""

    of: Literal["device", "host"]
    per_call_s: float


def host_time(analysis: Analysis) -> HostTime | None:
    """Return the time of the host in ``analysis``; None where its step is not known, stacks were recorded,
    which slow the host down, or a device kept it waiting for all of the step."""
    division = analysis.division
    calls = sum(row.calls for row in analysis.rows)
    if (
        division is None
        or not division.host_s
        or not calls
        or analysis.basis.stacks
        or analysis.basis.start_up
    ):
        return None
    if division.of == "host":
        return HostTime("host", division.host_s / calls)
    return HostTime("device", (sum(row.time_s for row in analysis.rows) + division.host_s) / calls)


def measured_calls(
    analysis: Analysis, run: str = "", ceilings: Ceilings | None = None
) -> tuple[MeasuredCall, ...]:
    """Return the calls of ``analysis`` that have a time and a bound, those of the same work in different
    modules as one.

    The bounds are those of ``ceilings``, by default those of the analysis, without the shortest kernel of its
    trace: a bound from the times that it judges is none on another device. Copies between host and device,
    collectives and operators without work are left out, and so is a run that other programs delayed in nearly
    every step, whose times are theirs.
    """
    if is_delayed(analysis):
        return ()
    device = analysis.environment.device_name or ""
    roofs = ceilings or analysis.roofs
    roofs = replace(roofs, ceilings=tuple(roof for roof in roofs.ceilings if roof.source.kind != "trace"))
    merged: dict[Call, tuple[float, float]] = {}
    for row in analysis.operators:
        if row.time_s <= 0 or not row.lower_bound_s or row.bound == "transfer":
            continue
        matrix, other, size = (
            round(figure / row.calls)
            for figure in (row.matrix_flops, row.flops - row.matrix_flops, row.bytes)
        )
        work = Work(matrix_flops=matrix, other_flops=other, bytes_read=size, precision=row.precision)
        placed = place_on_roofline(work, roofs)
        if placed is None:
            continue
        call = Call.of(row, work, placed)
        time_s, calls = merged.get(call, (0.0, 0.0))
        merged[call] = time_s + row.time_s, calls + row.calls
    return tuple(
        MeasuredCall(
            **asdict(call),
            run=run,
            device=sheet_name(device),
            calls=calls,
            time_s=time_s / calls,
        )
        for call, (time_s, calls) in merged.items()
    )


def sheet_name(device: str) -> str:
    """Return the name of the only data sheet of ``device``, which drivers may call by several names; else
    ``device``."""
    names = {match.sheet.name for match in matching(device)}
    return names.pop() if len(names) == 1 else device
