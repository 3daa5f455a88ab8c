"""What the pages of studies of networks written for each backend share: their rows by backend, and the
section of their operators."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from rooflines import Ceilings
from rooflines.ext import (
    Block,
    Column,
    Figure,
    RooflinePoint,
    Row,
    Section,
    SweepRow,
    grouped,
    or_absent,
    percent,
    rate_lines,
    read_json,
    roofline_drawing,
    roofline_warning,
    seconds,
    section,
    si,
    significant,
    table,
)
from rooflines_studies.records import DETAIL_FILE, Detail, NetworkResult, TimedOperator
from rooflines_studies.study import Study, device_of

D = TypeVar("D", bound=Detail)
_ROOFLINE_NOTE = (
    "Color and shape: backend. Area: time. Work: FLOPs and bytes that the kernel executes. Time: "
    "fastest of 15 rounds."
)


class BackendRows(NamedTuple):
    """The rows of one backend on one machine. ``name`` has the device in it where several machines have the
    backend."""

    name: str
    backend: str
    device_name: str
    rows: tuple[SweepRow, ...]

    def part(self, name: str) -> tuple[SweepRow, ...]:
        """Return the rows of a part."""
        return tuple(row for row in self.rows if row.point.part == name)

    def detail(self, part: str, kind: type[D]) -> D | None:
        """Return what the first point of ``part`` measured in detail; None where there is nothing."""
        for row in self.part(part):
            if row.run is not None:
                return read_json(Path(row.run) / DETAIL_FILE, kind)
        return None


def by_backend(study: Study) -> tuple[BackendRows, ...]:
    """Return the rows with a result, by backend in the order of the study."""
    measured = (row for row in study.rows if device_of(row))
    found = grouped(measured, lambda row: (str(row.point.options["backend"]), device_of(row)))
    backends = [backend for backend, _ in found]
    return tuple(
        BackendRows(
            f"{backend} ({device})" if backends.count(backend) > 1 else backend, backend, device, tuple(rows)
        )
        for (backend, device), rows in found.items()
    )


def process_text(one: NetworkResult) -> str:
    """The versions and the threads of a backend's process."""
    if one.speed is None:
        return ""
    versions = ", ".join(f"{name} {version}" for name, version in one.speed.versions.items())
    return versions + (f", {one.speed.threads} threads" if one.speed.threads else "")


def operators_section(
    results: Sequence[NetworkResult], *, of: str, title: str, by: str, unit: Literal["µs", "ms"]
) -> Section:
    """A roofline for each device with ceilings, with the operators ``of`` a step or an iteration, and a table
    under ``title`` of all operators, whose first column is headed ``by`` and whose times are in ``unit``."""
    places: dict[tuple[str, str], tuple[Ceilings, list[tuple[str, Sequence[TimedOperator]]]]] = {}
    for one in results:
        if one.speed is not None and one.operators and one.speed.ceilings is not None:
            _, theirs = places.setdefault((one.device_name, one.speed.device), (one.speed.ceilings, []))
            theirs.append((one.backend, one.operators))
    blocks: list[Block] = [
        Figure(
            name=f"roofline-{number}",
            caption=(
                f"Operators of {of} and the roofs of {roofs.device}. Operators with the most headroom "
                "are labeled."
            ),
            note=_ROOFLINE_NOTE,
            drawing=chart,
        )
        for number, (roofs, ours) in enumerate(places.values(), 1)
        if (chart := roofline_drawing(_points(ours), roofs.ceilings)) is not None
    ]
    columns = (
        Column(by, format="text"),
        Column("operator", format="text"),
        Column("phase", format="text"),
        Column("time", unit),
        Column("speed"),
        Column("traffic"),
        Column("FLOP/byte"),
        Column("of its roof"),
        Column("bound", format="text"),
    )
    rows = [
        Row(
            (
                one.name,
                f"{each.layer} {each.name}".strip(),
                each.phase,
                f"{each.time_s * 1e6:,.0f}" if unit == "µs" else f"{each.time_s * 1e3:.3g}",
                si(each.executed / each.time_s, "FLOP/s"),
                si(each.bytes / each.time_s, "B/s"),
                significant(each.executed / each.bytes),
                or_absent(each.efficiency, percent),
                bound_text(each),
            ),
            color=one.backend,
        )
        for one in results
        for each in one.operators
    ]
    return section(
        "operators",
        "Operators on the roofline",
        *blocks,
        table("operators", columns, rows, title=title) if rows else None,
    )


def operator_records(results: Sequence[NetworkResult]) -> list[dict[str, Any]]:
    """Return every operator with its declared work, its rates and its bound."""
    return [
        {
            "backend": one.name,
            **msgspec.to_builtins(each),
            "flop_per_s": each.executed / each.time_s,
            "byte_per_s": each.bytes / each.time_s,
        }
        for one in results
        for each in one.operators
    ]


def _points(backends: Iterable[tuple[str, Sequence[TimedOperator]]]) -> list[RooflinePoint]:
    """The operators of several backends on the roofline; the color of a point is that of its backend."""
    points = []
    for number, (backend, one) in enumerate(
        (backend, one) for backend, operators in backends for one in operators
    ):
        if not (one.executed and one.bytes):
            continue
        name = " ".join(part for part in (one.layer if one.phase != "optimizer" else "", one.name) if part)
        headroom_s = 0.0 if one.lower_bound_s is None else max(0.0, one.time_s - one.lower_bound_s)
        doubt = roofline_warning(one.efficiency)
        judged = {
            "efficiency": "" if one.efficiency is None else percent(one.efficiency),
            "headroom": seconds(headroom_s) if headroom_s else "",
            "bound": bound_text(one),
            "warning": doubt,
        }
        points.append(
            RooflinePoint(
                key=number,
                name=name,
                label=f"{name} {backend}",
                category=backend,
                intensity=one.executed / one.bytes,
                flop_per_s=one.executed / one.time_s,
                time_s=one.time_s,
                precision=one.precision,
                engine="matrix" if one.matrix_flops else "vector",
                gain_s=headroom_s,
                warning=doubt,
                lines=(
                    ("backend", backend),
                    ("calls", str(one.calls)),
                    *rate_lines(one.executed, one.bytes, one.time_s),
                    *((about, text) for about, text in judged.items() if text),
                ),
            )
        )
    return points


def bound_text(one: TimedOperator) -> str:
    """What sets the pace of an operator: ``memory (L3)``."""
    return f"memory ({one.memory_level})" if one.bound == "memory" and one.memory_level else one.bound
