"""Shapes of rows: the sizes of their tensors, and the rows of repeated layers, whose paths differ in an
index.

The same call may have shapes that depend on data.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterable, Sequence

from rooflines.roofline.analysis import Analysis, OperatorRow, Row
from rooflines.roofline.count.by_key import grouped
from rooflines.units import significant

_SHAPE = re.compile(r"\d+(?:x\d+)*")
ITEM_BYTES = {"fp64": 8, "fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2}


def tensors(row: Row) -> tuple[tuple[int, ...], ...]:
    """Return the sizes of the tensors of ``row``, as far as they were recorded."""
    return sizes_in(row.shapes)


def sizes_in(shapes: str) -> tuple[tuple[int, ...], ...]:
    """Return the sizes of the tensors in a text of shapes."""
    return tuple(tuple(map(int, part.split("x"))) for part in shapes.split(", ") if _SHAPE.fullmatch(part))


def tensor_bytes(size: tuple[int, ...], precision: str | None) -> int:
    """Return the bytes of a tensor of ``size`` in ``precision``, fp32 where that is not known."""
    return math.prod(size) * ITEM_BYTES.get(precision or "fp32", 4)


_SIZE = re.compile(r"(\d+)")
_INDEX = re.compile(r"\d+|(?P<instance>.*\D)_\d+")


def repeated_key(row: Row) -> tuple[object, ...]:
    """The key that rows of repeated layers share. Work per call differs where shapes do not, as with an
    argument or a dtype.

    A row with less than one call a step is a part of a call whose shapes depend on the data, and its key is
    that of the call.
    """
    if row.calls < 1:
        return (row.name, row.precision, row.phase, row.category, skeleton(row.module))
    work = (
        (significant(row.flops / row.calls, 6), significant(row.bytes / row.calls, 6))
        if row.calls
        else (row.flops, row.bytes)
    )
    return (row.name, row.shapes, row.precision, row.phase, row.category, *work, skeleton(row.module))


@functools.lru_cache(maxsize=1 << 14)
def skeleton(path: str) -> tuple[str, ...]:
    """The parts of a module path with a star for every index."""
    return tuple(
        _INDEX.sub(lambda found: f"{found['instance']}_*" if found["instance"] else "*", part)
        if _INDEX.fullmatch(part)
        else part
        for part in path.split(".")
    )


def repeated(rows: Iterable[OperatorRow], analysis: Analysis) -> list[list[OperatorRow]]:
    """The rows of ``analysis`` by layers that repeat; in decode also the calls whose tensors grow from token
    to token.

    Such a row has fewer calls than decode steps, and two of them belong together where all sizes that differ
    do so by the same number.
    """
    decode = analysis.generation.of("decode") if analysis.generation is not None else None
    tokens = decode.steps / analysis.basis.steps if decode is not None else 0
    found: list[list[OperatorRow]] = []
    growing: dict[tuple[object, ...], list[tuple[list[int], list[OperatorRow]]]] = {}
    for members in grouped(rows, repeated_key).values():
        row = members[0]
        parts = _SIZE.split(row.shapes)
        if row.phase != "decode" or row.calls >= tokens or len(parts) < 2:
            found.append(members)
            continue
        sizes = [int(size) for size in parts[1::2]]
        alike = growing.setdefault(
            (row.name, row.precision, row.category, skeleton(row.module), *parts[::2]), []
        )
        of = next(
            (
                together
                for first, together in alike
                if len({b - a for a, b in zip(first, sizes, strict=True)} - {0}) < 2
            ),
            None,
        )
        if of is None:
            alike.append((sizes, members))
            found.append(members)
        else:
            of += members
    return found


def shapes_range(shapes: Sequence[str]) -> str:
    """One text for the shapes of several rows: a range where a size differs, their number where more does."""
    parts = [_SIZE.split(one) for one in dict.fromkeys(shapes)]
    if len({tuple(part[::2]) for part in parts}) > 1:
        return f"{len(parts)} kinds of shapes"
    columns = zip(*parts, strict=True)
    return "".join(_between(column) for column in columns)


def _between(column: Sequence[str]) -> str:
    if len(set(column)) == 1:
        return column[0]
    sizes = [int(size) for size in column]
    return f"{min(sizes)}–{max(sizes)}"


def path_pattern(paths: Sequence[str]) -> str:
    """One path for several: a star where they differ."""
    columns = list(zip(*(path.split(".") for path in paths), strict=True))
    return ".".join(
        column[0] if len(set(column)) == 1 else star
        for column, star in zip(columns, skeleton(paths[0]), strict=True)
    )
