"""The page of a study: what all studies show around their own sections, and the section of their operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from rooflines._version import __version__
from rooflines.device_specs.records import Ceilings
from rooflines.reports.charts.kinds import Rooflines
from rooflines.reports.document import ABSENT, Block, Column, Facts, Figure, Page, Paragraph, Row, Section, Table
from rooflines.studies.operator_bounds import ROOFLINE_NOTE, as_analysis, bound_text
from rooflines.studies.records import Result, Study, TimedOperator
from rooflines.units import percent, si, significant


def study_page(study: Study, *, title: str, label: str, sections: Sequence[Section], method: Sequence[str]) -> Page:
    """The page of a study. ``label`` says what data the numbers are of, ``method`` how they were measured."""
    verdict, *said = study.findings or ("Nothing was measured.",)
    interrupted = study.status == "interrupted"
    missing = Facts(rows=tuple((one.backend, one.reason) for one in study.missing), kind="definitions", show="always")
    return Page(
        kind="study",
        name=title,
        title=f"{title} · {study.machine}",
        created=study.created,
        rooflines=__version__,
        verdict=verdict,
        status=("interrupted", "Interrupted: the report contains the results so far.") if interrupted else None,
        label=label,
        said=tuple(said),
        sections=(
            *(section for section in sections if section.blocks),
            Section(
                name="missing", title="Not run or incomplete",
                blocks=(missing if study.missing else Paragraph("Everything that was asked for ran."),),
            ),
            Section(
                name="method", title="Method", blocks=(*map(Paragraph, (*study.notes, *method)), Paragraph(study.command, "code"))
            ),
        ),
    )  # fmt: skip


def process_facts(one: Result) -> str:
    """The versions and the threads of a backend's process."""
    versions = ", ".join(f"{name} {version}" for name, version in one.versions.items())
    return f"{one.backend}: {versions}" + (f", {one.threads} threads" if one.threads else "")


def operators_section(
    results: Sequence[Result], ceilings: Mapping[str, Ceilings], *, of: str, title: str, by: str, unit: Literal["µs", "ms"]
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
            ABSENT if one.efficiency is None else percent(one.efficiency), bound_text(one),
        ),
        colour=backend,
    )  # fmt: skip
