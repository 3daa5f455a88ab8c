"""The page of a GPU check: what failed, each part, the ceilings beside the data sheet, the profiles, and what was left out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from rooflines.device_specs.compare import RoofComparison
from rooflines.device_specs.records import Ceilings
from rooflines.gpu_check.records import Check, GpuCheck, Outcome, Target
from rooflines.reports.document import Block, Cell, Column, Page, Row, Section, Show, Table, or_absent
from rooflines.reports.views.ceilings import ceilings_table, comparison_table
from rooflines.serial import from_plain
from rooflines.units import counted, percent, si

_text = partial(Column, format="text")
_OUTCOMES: tuple[Outcome, ...] = ("failed", "left out", "ok")


def page(check: GpuCheck) -> Page:
    """Return the page of ``check``."""
    device = check.device.environment
    software = [f"driver {device.driver}" if device.driver else "", f"torch {device.torch}" if device.torch else ""]
    sections = (
        Section(name=name, title=title, blocks=tuple(blocks))
        for name, title, blocks in (
            ("parts", "Parts", _parts(check)),
            ("ceilings", "Ceilings", _ceilings(check)),
            ("profiles", "Profiles", _profiles(check)),
            ("left_out", "Left out", _left_out(check)),
            ("checks", "All checks", _checks("All checks", [law for outcome in _OUTCOMES for law in check.checks(outcome)], "full")),
        )
    )
    return Page(
        kind="gpu check",
        name=f"GPU check of {device.device_name}",
        title=", ".join((f"GPU check of {device.device_name}", *filter(None, software))),
        verdict=verdict(check),
        label=check.rehearsal,
        created=check.created,
        rooflines=device.rooflines,
        sections=tuple(section for section in sections if section.blocks),
    )


def verdict(check: GpuCheck) -> str:
    """Return the outcome in a sentence: ``GPU check failed: 2 of 40 checks failed. 5 checks left out.``"""
    failed, left_out, ok = (len(check.checks(outcome)) for outcome in _OUTCOMES)
    broken = [
        part.name for part in check.parts if part.outcome == "failed" and all(c.outcome != "failed" for c in part.findings.checks)
    ]
    found = f"{counted(ok, 'check')} passed" if ok else "no check had data"
    if failed:
        found = f"{failed} of {counted(failed + ok, 'check')} failed"
    if broken:
        found += f"; part not completed: {', '.join(broken)}"
    outcome = "failed" if check.failed else "passed" if failed + ok else "without a result"
    rest = f" {counted(left_out, 'check')} left out." if left_out else ""
    return f"GPU check {outcome}: {found}.{rest}"


def _parts(check: GpuCheck) -> Iterator[Block]:
    rows = (
        (part.name, _outcome(part.outcome), f"{part.wall_s:.0f}", part.reason or counted(len(part.findings.checks), "check"))
        for part in check.parts
    )
    columns = (_text("part"), _text("result"), Column("time", "s"), _text("found", least=30))
    yield Table(name="parts", caption="The parts of the check", columns=columns, rows=tuple(map(Row, rows)), show="always")
    yield from _checks("Failed checks", check.checks("failed"), "always")


def _outcome(outcome: str) -> Cell:
    return Cell(value=outcome, warning="a law or the part itself failed" if outcome == "failed" else "")


def _checks(title: str, checks: Iterable[Check], show: Show) -> Iterator[Block]:
    columns = (_text("subject", least=16), _text("law", least=24), _text("result", least=8), _text("found", least=30))
    if rows := tuple(Row((check.subject, check.law, _outcome(check.outcome), check.found)) for check in checks):
        yield Table(name="checks" if show == "full" else "failed", title=title, caption=title, columns=columns, rows=rows, show=show)


def _ceilings(check: GpuCheck) -> Iterator[Block]:
    figures = _figures(check, "ceilings")
    if targets := from_plain(figures.get("targets", ()), tuple[Target, ...]):
        columns = (_text("ceiling"), Column("measured"), Column("least that passes"), Column("goal"), _text("goal is"))
        rows = tuple(
            Row((
                aim.ceiling, or_absent(aim.measured, partial(si, unit=aim.unit)), si(aim.least, aim.unit), si(aim.goal, aim.unit),
                "" if aim.measured is None else "reached" if aim.measured >= aim.goal else "not reached",
            ))
            for aim in targets
        )  # fmt: skip
        note = f"Targets: {targets[0].basis}."
        yield Table(
            name="targets", title="Targets", caption="Targets of this device", columns=columns, rows=rows, note=note, show="always"
        )
    if compared := from_plain(figures.get("compared", ()), tuple[RoofComparison, ...]):
        yield comparison_table(compared)
    if "measured" in figures:
        yield ceilings_table(from_plain(figures["measured"], Ceilings), {}, show="full")


def _profiles(check: GpuCheck) -> Iterator[Block]:
    if runs := _figures(check, "profiles").get("runs"):
        rows = tuple(
            Row((
                name, or_absent(run.get("steps", {}).get("median_s"), partial(si, unit="s")),
                or_absent(run.get("coverage", {}).get("modelled_time_fraction"), partial(percent, digits=1)),
                run.get("verdict") or "failed",
            ))
            for name, run in runs.items()
        )  # fmt: skip
        columns = (_text("run", least=16), Column("step"), Column("covered"), _text("verdict", least=30, show="full"))
        yield Table(name="runs", caption="The profiles", columns=columns, rows=rows, show="always")


def _left_out(check: GpuCheck) -> Iterator[Block]:
    if rows := tuple(Row((part.name, left.what, left.reason)) for part in check.parts for left in part.findings.left_out):
        columns = (_text("part"), _text("figure", least=20), _text("reason", least=30))
        yield Table(name="left_out", caption="Figures that were not measured, and why", columns=columns, rows=rows, show="always")


def _figures(check: GpuCheck, part: str) -> dict[str, Any]:
    """Return the figures of a part; empty for one that did not run."""
    return next((found.findings.figures for found in check.parts if found.name == part), {})
