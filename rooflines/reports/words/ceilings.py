"""Ceilings in words: name and scope, origin and age, and the conditions they were measured in."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from rooflines.device_specs.records import Ceiling, Ceilings
from rooflines.reports.words.text import joined
from rooflines.roofline.count.by_key import longest_first
from rooflines.units import counted, percent

SOURCE_WORDS = {
    "measured": "measured",
    "spec": "data sheet",
    "derived": "derived",
    "user": "given",
    "trace": "this trace",
}


def source_words(roof: Ceiling, created: str) -> str:
    """The certainty of a ceiling: ``measured 2026-11-20, 3 days before, ±0.4 %``, ``from the data sheet, not
    measured``.

    ``created`` is the ISO time of the run that it judges; the age of a measurement is given from one day on.
    """
    if roof.source.kind == "measured":
        spread = f", ±{percent(roof.spread, 1)}" if roof.spread is not None else ""
        return source_and_age(roof, created) + spread
    origins = {"link": "the generation and lanes of PCI Express", "memory": "clock and bus width"}
    return {
        "spec": "from the data sheet, not measured",
        "derived": f"derived from {origins.get(roof.kind, 'cores, clock and vector width')}, not measured",
        "user": "given by the user",
        "trace": roof.source.detail,
    }[roof.source.kind]


def ceiling_name(roof: Ceiling) -> str:
    """The name of a ceiling with its variant: ``FMA fp32 (1 thread)``."""
    return roof.name if not roof.variant or roof.variant in roof.name else f"{roof.name} ({roof.variant})"


def source_and_age(roof: Ceiling, created: str) -> str:
    """The kind of source with its date and age at ``created``: ``measured 2026-11-18, 3 days before``; ``data
    sheet``."""
    kind = SOURCE_WORDS[roof.source.kind]
    if roof.source.kind != "measured":
        return kind
    return joined(", ", f"{kind} {roof.source.date}".strip(), age_before(roof.source.date, created))


def roof_order(roofs: Iterable[Ceiling]) -> list[Ceiling]:
    """Ceilings as a table lists them: by kind, a further roof after all main ones of its kind, memory from
    the core outwards."""
    kinds = ("compute", "memory", "latency", "link")

    def place(roof: Ceiling) -> tuple[int, bool, bool, int]:
        return (
            kinds.index(roof.kind),
            bool(roof.variant),
            roof.capacity_bytes is None,
            roof.capacity_bytes or 0,
        )

    return sorted(roofs, key=place)


def shares_of_roofs(device: Ceilings, operators: Iterable[Any]) -> dict[Ceiling, float]:
    """The compute roofs that judge ``operators``, rows or points, each with its share of their time, the
    largest first."""
    judged = (
        (row, device.compute(row.precision, "matrix" if row.engine == "matrix" else "vector"))
        for row in operators
        if row.precision
    )
    time_of = longest_first((roof, row.time_s) for row, roof in judged if roof)
    whole_s = sum(time_of.values())
    return {roof: time_s / whole_s for roof, time_s in time_of.items()} if whole_s > 0 else {}


def ago(age: timedelta) -> str:
    """The age in words: ``just now``, ``5 minutes ago``, ``3 days ago``."""
    for length, unit in ((86400, "day"), (3600, "hour"), (60, "minute")):
        count = int(age.total_seconds() // length)
        if count:
            return f"{counted(count, unit)} ago"
    return "just now"


def age_before(date: str, created: str) -> str:
    """The days from the ISO ``date`` to ``created`` (ISO): ``3 days before``; empty for the same day or an
    unknown one."""
    try:
        days = (datetime.fromisoformat(created[:10]) - datetime.fromisoformat(date[:10])).days
    except ValueError:
        return ""
    return f"{counted(days, 'day')} before" if days > 0 else ""
