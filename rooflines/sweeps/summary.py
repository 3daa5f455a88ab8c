"""What a sweep shows: the option that its curves run over, their knees, the largest batch that fits, and the Pareto front."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rooflines.sweeps.points import shown_option
from rooflines.sweeps.records import Row

# From this share of the highest throughput of a curve on, a larger batch is not worth much.
KNEE = 0.9
_SHORTAGE = ("out of memory", "lack of memory", "not enough memory")


class Curve(NamedTuple):
    """The rows of one setting along the option that varies, in its order; ``name`` is what the rows have in common."""

    name: str
    rows: tuple[Row, ...]


class Knee(NamedTuple):
    """The smallest value of an option that reaches ``KNEE`` of the highest throughput of its curve."""

    curve: str
    value: float
    samples_per_s: float
    best: float


class Fit(NamedTuple):
    """The largest batch of a curve that ran, and the smallest larger one that ran out of memory, if any."""

    curve: str
    largest: int
    too_large: int | None


def axis_of(rows: Sequence[Row]) -> str | None:
    """Return the numeric option with the most values, of several the first; None if none varies."""
    best, most = None, 1
    for name in dict.fromkeys(name for row in rows for name in row.point.options):
        values = {row.point.options.get(name) for row in rows}
        if len(values) > most and all(type(value) in (int, float) for value in values):
            best, most = name, len(values)
    return best


def curves(rows: Sequence[Row], axis: str) -> tuple[Curve, ...]:
    """Return the rows grouped by everything but ``axis``."""
    varying = [
        name
        for name in dict.fromkeys(name for row in rows for name in row.point.options)
        if name != axis and len({repr(row.point.options.get(name)) for row in rows}) > 1
    ]
    groups: dict[str, list[Row]] = {}
    for row in rows:
        parts = [shown_option(name, row.point.options.get(name)) for name in varying]
        groups.setdefault(" · ".join(part for part in parts if part) or str(row.point.options.get("model", "")), []).append(row)
    return tuple(Curve(name, tuple(sorted(found, key=lambda row: float(row.point.options[axis])))) for name, found in groups.items())


def knee(curve: Curve, axis: str) -> Knee | None:
    """Return where the throughput of ``curve`` levels off; None for fewer than three points."""
    found = [(float(row.point.options[axis]), rate) for row in curve.rows if (rate := row.value("samples_per_s")) is not None]
    if len(found) < 3:
        return None
    best = max(rate for _, rate in found)
    value, rate = next((value, rate) for value, rate in found if rate >= KNEE * best)
    return Knee(curve.name, value, rate, best)


def fit(curve: Curve) -> Fit | None:
    """Return the largest batch of ``curve`` that ran; None if none did."""
    ran = [int(row.point.options["batch_size"]) for row in curve.rows if row.value("step_s") or row.value("epoch_s")]
    failed = [
        int(row.point.options["batch_size"]) for row in curve.rows if row.reason and any(word in row.reason for word in _SHORTAGE)
    ]
    if not ran:
        return None
    return Fit(curve.name, max(ran), min((size for size in failed if size > max(ran)), default=None))


def pareto(rows: Sequence[Row], values: Mapping[str, bool]) -> list[Row]:
    """Return the rows that no other beats: as good in all ``values`` and better in one. True says that more of a value is better."""
    placed = []
    for row in rows:
        found = [value if more else -value for name, more in values.items() if (value := row.value(name)) is not None]
        if len(found) == len(values):
            placed.append((row, tuple(found)))
    return [row for row, ours in placed if not any(_beats(theirs, ours) for _, theirs in placed)]


def _beats(theirs: tuple[float, ...], ours: tuple[float, ...]) -> bool:
    return theirs != ours and all(a >= b for a, b in zip(theirs, ours, strict=True))
