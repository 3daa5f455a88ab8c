"""The section of a study's page that places the operators of all its backends on the roofline, and lists them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

from rooflines.device_specs.records import Ceilings
from rooflines.reports.charts.kinds import Rooflines
from rooflines.reports.document import Block, Column, Figure, Row, Section, Table
from rooflines.studies.operator_bounds import ROOFLINE_NOTE, as_analysis, bound_text
from rooflines.studies.records import TimedOperator
from rooflines.units import percent, si, significant

_DASH = "–"


class _Result(Protocol):
    """What a backend did, as far as it is shown here."""

    @property
    def backend(self) -> str: ...
    @property
    def device(self) -> str: ...
    @property
    def operators(self) -> Sequence[TimedOperator]: ...


def operators_section(
    results: Sequence[_Result], ceilings: Mapping[str, Ceilings], *, of: str, title: str, by: str, unit: Literal["µs", "ms"]
) -> Section:
    """A roofline for each device with ``ceilings``, with the operators ``of`` a step or an iteration, and a table under ``title`` of
    all operators, whose first column is headed ``by`` and whose times are in ``unit``."""
    blocks: list[Block] = []
    for device, roofs in ceilings.items():
        ours = [(one.backend, one.operators) for one in results if one.device == device and one.operators]
        if ours:
            blocks.append(
                Figure(
                    name=f"roofline-{device.partition(':')[0]}",
                    caption=f"Operators of {of} and the roofs of {roofs.device}. Operators with the most headroom are labelled.",
                    note=ROOFLINE_NOTE,
                    drawing=Rooflines(analysis=as_analysis(ours, device, roofs)),
                )
            )
    rows = tuple(_row(one.backend, each, unit) for one in results for each in one.operators)
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


def _row(backend: str, one: TimedOperator, unit: Literal["µs", "ms"]) -> Row:
    time = f"{one.time_s * 1e6:,.0f}" if unit == "µs" else f"{one.time_s * 1e3:.3g}"
    return Row(
        (
            backend, f"{one.layer} {one.name}".strip(), one.phase, time,
            si(one.executed / one.time_s, "FLOP/s"), si(one.bytes / one.time_s, "B/s"), significant(one.executed / one.bytes),
            _DASH if one.efficiency is None else percent(one.efficiency), bound_text(one),
        ),
        colour=backend,
    )  # fmt: skip
