"""The rows of a study by backend, and what each measured in detail."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, TypeVar

from rooflines.serial import read_json
from rooflines.studies.records import DETAIL_FILE, Detail
from rooflines.studies.study import Study, device_of
from rooflines.sweeps.records import Row

D = TypeVar("D", bound=Detail)


class BackendRows(NamedTuple):
    """The rows of one backend on one machine. ``name`` has the device in it where several machines have the backend."""

    name: str
    backend: str
    device_name: str
    rows: tuple[Row, ...]

    def part(self, name: str) -> tuple[Row, ...]:
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
    found: dict[tuple[str, str], list[Row]] = {}
    for row in study.rows:
        if device_of(row):
            found.setdefault((str(row.point.options["backend"]), device_of(row)), []).append(row)
    backends = [backend for backend, _ in found]
    return tuple(
        BackendRows(f"{backend} ({device})" if backends.count(backend) > 1 else backend, backend, device, tuple(rows))
        for (backend, device), rows in found.items()
    )
