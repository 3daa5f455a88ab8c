"""The section with the operators of networks written for each backend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from rooflines.device_specs.records import Ceilings
from rooflines.reports.charts.roofline import roofline
from rooflines.reports.document import Block, Column, Figure, Row, Section, Table, or_absent
from rooflines.studies.operator_bounds import ROOFLINE_NOTE, bound_text, operator_points
from rooflines.studies.records import NetworkResult, TimedOperator
from rooflines.units import percent, si, significant


def process_text(one: NetworkResult) -> str:
    """The versions and the threads of a backend's process."""
    if one.speed is None:
        return ""
    versions = ", ".join(f"{name} {version}" for name, version in one.speed.versions.items())
    return versions + (f", {one.speed.threads} threads" if one.speed.threads else "")


def operators_section(results: Sequence[NetworkResult], *, of: str, title: str, by: str, unit: Literal["µs", "ms"]) -> Section:
    """A roofline for each device with ceilings, with the operators ``of`` a step or an iteration, and a table under ``title`` of
    all operators, whose first column is headed ``by`` and whose times are in ``unit``."""
    places: dict[tuple[str, str], tuple[Ceilings, list[tuple[str, Sequence[TimedOperator]]]]] = {}
    for one in results:
        if one.speed is not None and one.operators and one.speed.ceilings is not None:
            _, theirs = places.setdefault((one.device_name, one.speed.device), (one.speed.ceilings, []))
            theirs.append((one.backend, one.operators))
    blocks: list[Block] = [
        Figure(
            name=f"roofline-{number}",
            caption=f"Operators of {of} and the roofs of {roofs.device}. Operators with the most headroom are labelled.",
            note=ROOFLINE_NOTE,
            drawing=chart,
        )
        for number, (roofs, ours) in enumerate(places.values(), 1)
        if (chart := roofline(operator_points(ours), roofs.ceilings)) is not None
    ]
    rows = tuple(_row(one, each, unit) for one in results for each in one.operators)
    if rows:
        blocks.append(
            Table(
                name="operators", title=title, rows=rows,
                columns=(Column(by, format="text"), Column("operator", format="text"), Column("phase", format="text"),
                         Column("time", unit), Column("speed"), Column("traffic"), Column("FLOP/byte"), Column("of its roof"),
                         Column("bound", format="text")),
            )
        )  # fmt: skip
    return Section(name="operators", title="Operators on the roofline", blocks=tuple(blocks))


def _row(result: NetworkResult, one: TimedOperator, unit: Literal["µs", "ms"]) -> Row:
    time = f"{one.time_s * 1e6:,.0f}" if unit == "µs" else f"{one.time_s * 1e3:.3g}"
    return Row(
        (
            result.name, f"{one.layer} {one.name}".strip(), one.phase, time,
            si(one.executed / one.time_s, "FLOP/s"), si(one.bytes / one.time_s, "B/s"), significant(one.executed / one.bytes),
            or_absent(one.efficiency, percent), bound_text(one),
        ),
        colour=result.backend,
    )  # fmt: skip


def operator_records(results: Sequence[NetworkResult]) -> list[dict[str, Any]]:
    """Return every operator with its declared work, its rates and its bound."""
    return [
        {"backend": one.name, **msgspec.to_builtins(each), "flop_per_s": each.executed / each.time_s,
         "byte_per_s": each.bytes / each.time_s}
        for one in results
        for each in one.operators
    ]  # fmt: skip
