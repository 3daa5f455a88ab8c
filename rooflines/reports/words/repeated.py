"""Find the same operator in repeated layers: modules whose paths differ only in an index."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rooflines.roofline.analysis import OperatorRow
from rooflines.units import significant

_INDEX = re.compile(r"\d+|(?P<instance>.*\D)_\d+")


def repeated_key(row: OperatorRow) -> tuple[object, ...]:
    """The key that rows of repeated layers share. Work per call differs where shapes do not, as with an argument or a dtype."""
    work = (significant(row.flops / row.calls, 6), significant(row.bytes / row.calls, 6)) if row.calls else (row.flops, row.bytes)
    return (row.name, row.shapes, row.precision, row.phase, row.category, *work, _skeleton(row.module))


def _skeleton(path: str) -> tuple[str, ...]:
    """The parts of a module path with a star for every index."""
    return tuple(_INDEX.sub(_starred, part) if _INDEX.fullmatch(part) else part for part in path.split("."))


def _starred(found: re.Match[str]) -> str:
    return f"{found['instance']}_*" if found["instance"] else "*"


def path_pattern(paths: Sequence[str]) -> str:
    """One path for several: a star where they differ."""
    columns = list(zip(*(path.split(".") for path in paths), strict=True))
    return ".".join(column[0] if len(set(column)) == 1 else star for column, star in zip(columns, _skeleton(paths[0]), strict=True))
