"""The report of a session of GPU tests: every check, the failed ones first, and the ceilings beside the data sheet."""

from __future__ import annotations

from rooflines.device_specs.compare import RoofComparison
from rooflines.reports.document import Cell, Column, Page, Row, Section, Table
from rooflines.reports.page.ceilings import comparison_table
from rooflines.serial import from_plain
from rooflines.units import counted
from tests.gpu.parts import Outcome, Record

_OUTCOMES: tuple[Outcome, ...] = ("failed", "left out", "ok")


def report(record: Record) -> Page:
    """Return the page of ``record``."""
    device = record.device.environment
    sections = [Section(name="checks", title="Checks", blocks=(_checks(record),))]
    figures = next((part.findings.figures for part in record.parts if part.name == "ceilings"), {})
    if compared := from_plain(figures.get("compared", ()), tuple[RoofComparison, ...]):
        sections.append(Section(name="ceilings", title="Ceilings", blocks=(comparison_table(compared),)))
    name = f"GPU check of {device.device_name}"
    return Page(
        kind="gpu check",
        name=name,
        title=f"{name}, driver {device.driver}, torch {device.torch}",
        verdict=verdict(record),
        label=record.rehearsal,
        created=record.created,
        rooflines=device.rooflines,
        sections=tuple(sections),
    )


def verdict(record: Record) -> str:
    """Return the outcome in a sentence: ``GPU check failed: 2 of 40 checks failed. 5 checks left out.``"""
    failed, left_out, ok = (len(record.checks(outcome)) for outcome in _OUTCOMES)
    parts = [part for part in record.parts if part.outcome == "failed" and "checks failed" not in part.reason]
    broken = [f" {part.name}: {part.reason}." for part in parts]
    outcome = "failed" if failed or broken else "passed" if ok else "without a result"
    found = f"{failed} of {counted(failed + ok, 'check')} failed" if failed else f"{counted(ok, 'check')} passed"
    return f"GPU check {outcome}: {found}.{''.join(broken)}" + (f" {counted(left_out, 'check')} left out." if left_out else "")


def _checks(record: Record) -> Table:
    columns = tuple(Column(label, format="text", least=20) for label in ("subject", "law", "result", "found"))
    rows = []
    for outcome in _OUTCOMES:
        cell = Cell(value=outcome, warning="the law does not hold" if outcome == "failed" else "")
        rows += [Row((check.subject, check.law, cell, check.found)) for check in record.checks(outcome)]
    return Table(name="checks", caption="Laws and the figures compared", columns=columns, rows=tuple(rows))
