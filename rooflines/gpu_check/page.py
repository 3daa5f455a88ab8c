"""The page of a GPU check: what failed, each part, the ceilings beside the data sheet, the profiles, and what was left out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from rooflines.device_specs.compare import RoofComparison
from rooflines.device_specs.records import Ceilings
from rooflines.gpu_check.records import Check, GpuCheck, Outcome
from rooflines.gpu_check.targets import Target
from rooflines.reports.document import Block, Cell, Column, Page, Row, Section, Show, Table, or_absent
from rooflines.reports.views.ceilings import ceilings_table, comparison_table
from rooflines.serial import from_plain
from rooflines.units import counted, percent, si

_CHECKS = (
    Column("subject", format="text", least=16), Column("law", format="text", least=24), Column("result", format="text", least=8),
    Column("found", format="text", least=30),
)  # fmt: skip
_OUTCOMES: tuple[Outcome, ...] = ("failed", "left out", "ok")


def page(check: GpuCheck) -> Page:
    """The page of ``check``."""
    device = check.device.environment
    software = [f"driver {device.driver}" if device.driver else "", f"torch {device.torch}" if device.torch else ""]
    return Page(
        kind="gpu check",
        name=f"GPU check of {device.device_name}",
        title=", ".join((f"GPU check of {device.device_name}", *filter(None, software))),
        verdict=verdict(check),
        label=check.rehearsal,
        created=check.created,
        rooflines=device.rooflines,
        sections=tuple(
            Section(name=name, title=title, blocks=blocks)
            for name, title, blocks in (
                ("parts", "Parts", (_parts(check), *_failures(check))),
                ("ceilings", "Ceilings", tuple(_ceilings(check))),
                ("profiles", "Profiles", tuple(_profiles(check))),
                ("left_out", "Left out", tuple(_left_out(check))),
                ("checks", "All checks", tuple(_all_checks(check))),
            )
            if blocks
        ),
    )


def verdict(check: GpuCheck) -> str:
    """The outcome in a sentence: ``GPU check failed: 2 of 40 checks failed. 5 checks left out.``"""
    counts = {outcome: len(check.checks(outcome)) for outcome in _OUTCOMES}
    judged = counts["failed"] + counts["ok"]
    broken = [
        part.name for part in check.parts if part.outcome == "failed" and all(c.outcome != "failed" for c in part.findings.checks)
    ]
    found = f"{counted(judged, 'check')} passed" if judged else "no check had data"
    if counts["failed"]:
        found = f"{counts['failed']} of {counted(judged, 'check')} failed"
    if broken:
        found += f"; part not completed: {', '.join(broken)}"
    outcome = "failed" if check.failed else "passed" if judged else "without a result"
    rest = f" {counted(counts['left out'], 'check')} left out." if counts["left out"] else ""
    return f"GPU check {outcome}: {found}.{rest}"


def _parts(check: GpuCheck) -> Table:
    rows = tuple(
        Row((part.name, _outcome(part.outcome), f"{part.wall_s:.0f}", part.reason or counted(len(part.findings.checks), "check")))
        for part in check.parts
    )
    columns = (
        Column("part", format="text"), Column("result", format="text"), Column("time", "s"), Column("found", format="text", least=30),
    )  # fmt: skip
    return Table(name="parts", caption="The parts of the check", columns=columns, rows=rows, show="always")


def _outcome(outcome: str) -> Cell:
    return Cell(value=outcome, warning="a law or the part itself failed" if outcome == "failed" else "")


def _failures(check: GpuCheck) -> Iterator[Block]:
    if failed := check.checks("failed"):
        yield _table("failed", "Failed checks", failed, "always")


def _all_checks(check: GpuCheck) -> Iterator[Block]:
    if found := [one for outcome in _OUTCOMES for one in check.checks(outcome)]:
        yield _table("checks", "All checks", found, "full")


def _table(name: str, title: str, checks: Iterable[Check], show: Show) -> Table:
    rows = tuple(Row((one.subject, one.law, _outcome(one.outcome), one.found)) for one in checks)
    return Table(name=name, title=title, caption=title, columns=_CHECKS, rows=rows, show=show)


def _ceilings(check: GpuCheck) -> Iterator[Block]:
    figures = _figures(check, "ceilings")
    if found := from_plain(figures.get("targets", ()), tuple[Target, ...]):
        yield _targets(found)
    if rows := from_plain(figures.get("compared", ()), tuple[RoofComparison, ...]):
        yield comparison_table(rows)
    if "measured" in figures:
        yield ceilings_table(from_plain(figures["measured"], Ceilings), {}, show="full")


def _targets(found: tuple[Target, ...]) -> Table:
    columns = (
        Column("ceiling", format="text"), Column("measured"), Column("least that passes"), Column("goal"),
        Column("goal is", format="text"),
    )  # fmt: skip
    rows = tuple(Row(tuple(_target_cells(one))) for one in found)
    note = f"Targets: {found[0].basis}."
    return Table(
        name="targets", title="Targets", caption="Targets of this device", columns=columns, rows=rows, note=note, show="always"
    )


def _target_cells(one: Target) -> Iterator[str]:
    yield one.ceiling
    yield or_absent(one.measured, partial(si, unit=one.unit))
    yield si(one.least, one.unit)
    yield si(one.goal, one.unit)
    yield "" if one.measured is None else "reached" if one.measured >= one.goal else "not reached"


def _profiles(check: GpuCheck) -> Iterator[Block]:
    if runs := _figures(check, "profiles").get("runs"):
        rows = tuple(Row(tuple(_run_cells(name, run))) for name, run in runs.items())
        columns = (
            Column("run", format="text", least=16),
            Column("step"),
            Column("covered"),
            Column("verdict", format="text", least=30, show="full"),
        )
        yield Table(name="runs", caption="The profiles", columns=columns, rows=rows, show="always")


def _run_cells(name: str, run: dict[str, Any]) -> Iterator[str]:
    yield name
    yield or_absent(run.get("steps", {}).get("median_s"), partial(si, unit="s"))
    yield or_absent(run.get("coverage", {}).get("modelled_time_fraction"), partial(percent, digits=1))
    yield run.get("verdict") or "failed"


def _left_out(check: GpuCheck) -> Iterator[Block]:
    if omitted := [(part.name, one) for part in check.parts for one in part.findings.left_out]:
        rows = tuple(Row((name, one.what, one.reason)) for name, one in omitted)
        columns = (Column("part", format="text"), Column("figure", format="text", least=20), Column("reason", format="text", least=30))
        yield Table(name="left_out", caption="Figures that were not measured, and why", columns=columns, rows=rows, show="always")


def _figures(check: GpuCheck, part: str) -> dict[str, Any]:
    """The figures of a part; empty for one that did not run."""
    return next((one.findings.figures for one in check.parts if one.name == part), {})
