"""What a sweep shows: the option that its curves run over, their knees, the largest batch that fits, and the Pareto front."""

from __future__ import annotations

from collections.abc import Sequence
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


def pareto(rows: Sequence[Row], gain: str, cost: str, *, more_cost_is_better: bool = False) -> list[Row]:
    """Return the rows that no other beats: as high in ``gain`` and as low in ``cost`` (or as high), and better in one of them."""
    sign = -1.0 if more_cost_is_better else 1.0
    placed = [(row, a, sign * b) for row in rows if (a := row.value(gain)) is not None and (b := row.value(cost)) is not None]
    return [
        row
        for row, a, b in placed
        if not any(other_a >= a and other_b <= b and (other_a > a or other_b < b) for _, other_a, other_b in placed)
    ]
