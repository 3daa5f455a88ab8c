"""The page of ``rooflines doctor``: what this machine can measure, then the commands that fix what is
missing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timezone

from rooflines._version import __version__
from rooflines.profiler.machine.doctor import Check
from rooflines.reports.document import Cell, Column, Page, Paragraph, section, table
from rooflines.roofline.count.by_key import grouped

_COLUMNS = (
    Column("check", format="text"),
    Column("status", format="text"),
    Column("found", format="text", least=20),
)


# What must not be missing for each of these; traces are read anywhere.
_NEEDS = {"Recording": ("PyTorch", "Tracing"), "Recording on a GPU": ("PyTorch", "Tracing", "CUDA")}


def _ready(checks: Iterable[Check]) -> Iterator[str]:
    """What can be done here, and what keeps the rest from it."""
    yield "Reading traces: ready."
    known = {one.name: one for one in checks}
    for what, names in _NEEDS.items():
        lacks = [known[name] for name in names if name in known and known[name].status == "missing"]
        yield f"{what}: not ready ({lacks[0].name}: {lacks[0].detail})." if lacks else f"{what}: ready."


def page(checks: Iterable[Check]) -> Page:
    """The page of ``checks``, in their order."""
    checks = tuple(checks)
    rows = (
        (one.name, Cell(value=one.status, warning=one.detail if one.status == "missing" else ""), one.detail)
        for one in checks
    )
    fixes = grouped((one for one in checks if one.fix), lambda one: one.fix)
    commands = (
        block
        for fix, ones in fixes.items()
        for block in (
            Paragraph(f"{', '.join(one.name for one in ones)}:", "title", "always"),
            Paragraph(fix, "code", "always"),
        )
    )
    counts = {status: sum(one.status == status for one in checks) for status in ("ok", "limited", "missing")}
    shown = [f"{count} {status}" for status, count in counts.items() if count]
    return Page(
        kind="doctor",
        name="Doctor",
        title="What can be measured on this machine",
        verdict=" ".join((*_ready(checks), f"{', '.join(shown)}.")),
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        rooflines=__version__,
        sections=(
            section("checks", "Checks", table("checks", _COLUMNS, rows, "Checks", show="always")),
            section("fixes", "Fixes", *commands),
        ),
    )
