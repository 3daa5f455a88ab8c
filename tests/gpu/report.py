"""The report of a session of GPU tests: what failed, the ceilings beside the data sheet, and every check."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rooflines.device_specs.compare import RoofComparison
from rooflines.reports.document import Block, Cell, Column, Page, Row, Section, Table
from rooflines.reports.views.ceilings import comparison_table
from rooflines.serial import from_plain
from rooflines.units import counted
from tests.gpu.parts import Check, Outcome, Record

_OUTCOMES: tuple[Outcome, ...] = ("failed", "left out", "ok")


def report(record: Record) -> Page:
    """Return the page of ``record``."""
    device = record.device.environment
    failed = record.checks("failed")
    blocks: dict[str, list[Block]] = {
        "Parts": list(_parts(record)),
        "Failed checks": [_checks("failed", failed)] if failed else [],
        "Ceilings": list(_ceilings(record)),
        "All checks": [_checks("checks", [check for outcome in _OUTCOMES for check in record.checks(outcome)])],
    }
    return Page(
        kind="gpu check",
        name=f"GPU check of {device.device_name}",
        title=f"GPU check of {device.device_name}, driver {device.driver}, torch {device.torch}",
        verdict=verdict(record),
        label=record.rehearsal,
        created=record.created,
        rooflines=device.rooflines,
        sections=tuple(
            Section(name=title.lower().replace(" ", "_"), title=title, blocks=tuple(found)) for title, found in blocks.items() if found
        ),
    )


def verdict(record: Record) -> str:
    """Return the outcome in a sentence: ``GPU check failed: 2 of 40 checks failed. 5 checks left out.``"""
    failed, left_out, ok = (len(record.checks(outcome)) for outcome in _OUTCOMES)
    broken = [part.name for part in record.parts if part.outcome == "failed" and not _failed(part.findings.checks)]
    outcome = "failed" if failed or broken else "passed" if ok else "without a result"
    found = f"{counted(ok, 'check')} passed" if ok else "no check had data"
    if failed:
        found = f"{failed} of {counted(failed + ok, 'check')} failed"
    if broken:
        found += f"; part not completed: {', '.join(broken)}"
    return f"GPU check {outcome}: {found}." + (f" {counted(left_out, 'check')} left out." if left_out else "")


def _failed(checks: Iterable[Check]) -> bool:
    return any(check.outcome == "failed" for check in checks)


def _parts(record: Record) -> Iterator[Table]:
    columns = (Column("part", format="text"), Column("result", format="text"), Column("time", "s"),
               Column("found", format="text", least=30))  # fmt: skip
    yield Table(name="parts", caption="The parts of the check", columns=columns, rows=tuple(
        Row((part.name, _outcome(part.outcome), f"{part.wall_s:.0f}",
             part.reason or counted(len(part.findings.checks), "check")))
        for part in record.parts
    ))  # fmt: skip
    left_out = [(part.name, left.what, left.reason) for part in record.parts for left in part.findings.left_out]
    if left_out:
        columns = tuple(Column(label, format="text") for label in ("part", "figure", "reason"))
        caption = "Figures that were not measured, and why"
        yield Table(name="left_out", title="Left out", caption=caption, columns=columns, rows=tuple(map(Row, left_out)))


def _ceilings(record: Record) -> Iterator[Table]:
    if compared := from_plain(record.figures("ceilings").get("compared", ()), tuple[RoofComparison, ...]):
        yield comparison_table(compared)


def _checks(name: str, checks: Iterable[Check]) -> Table:
    columns = tuple(Column(label, format="text", least=20) for label in ("subject", "law", "result", "found"))
    rows = (Row((check.subject, check.law, _outcome(check.outcome), check.found)) for check in checks)
    return Table(name=name, caption="Laws and the figures compared", columns=columns, rows=tuple(rows))


def _outcome(outcome: str) -> Cell:
    return Cell(value=outcome, warning="a law or the part itself failed" if outcome == "failed" else "")
