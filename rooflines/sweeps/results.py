"""The rows of a sweep: the rounds of each point as medians with their intervals, as a table of pandas; and
what they show.

That is the option that their curves run over, the knees of these, the largest batch that fits, and the Pareto
front of values that a search improves.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from rooflines.arguments import arg
from rooflines.errors import RunError, UsageError
from rooflines.profiler.options import split_list
from rooflines.roofline.count.by_key import grouped
from rooflines.roofline.uncertainty import half_width
from rooflines.serial import read_json
from rooflines.sweeps.points import label_of, varying
from rooflines.sweeps.records import (
    NOT_RUN,
    RESULT_FILE,
    Kind,
    MeasuredValue,
    PointResult,
    Sweep,
    SweepPoint,
    SweepRow,
)

if TYPE_CHECKING:
    import pandas as pd

Format = Literal["figures", "scaled", "share"]
# Two rounds say little about their spread: the interval of Student's t would be 12.7 times as wide as it.
FEWEST = 3
# The ends of the interval of a round's median step.
_ENDS = ("step_low_s", "step_high_s")
# From this share of the highest throughput of a curve on, a larger batch is not worth much.
KNEE = 0.9
_SHORTAGE = ("out of memory", "lack of memory", "not enough memory")


def round_directory(directory: Path, point: SweepPoint, number: int) -> Path:
    """Return where round ``number`` (from 0) of ``point`` lies."""
    return directory / "points" / point.id / f"round-{number}"


def read_results(directory: Path, sweep: Sweep) -> dict[tuple[str, int], PointResult]:
    """Return the results that there are, by point and round; raises RunError for one that is corrupt."""
    found = {}
    for point in sweep.points:
        for number in range(sweep.repeats):
            path = round_directory(directory, point, number) / RESULT_FILE
            if path.is_file():
                try:
                    found[point.id, number] = read_json(path, PointResult)
                except (msgspec.DecodeError, UnicodeDecodeError) as error:
                    raise RunError(
                        f"{str(path)!r} is corrupt: {error}.", hint="Delete it and run the sweep again."
                    ) from None
    return found


def sweep_rows(directory: Path, sweep: Sweep) -> tuple[SweepRow, ...]:
    """Return a row for each point, in their order; those without a result say that they have not run."""
    results = read_results(directory, sweep)
    return tuple(
        row_of(
            point,
            [results[point.id, number] for number in range(sweep.repeats) if (point.id, number) in results],
            directory,
        )
        for point in sweep.points
    )


def row_of(point: SweepPoint, results: Sequence[PointResult], directory: Path | None = None) -> SweepRow:
    """Return the row of ``point`` from its rounds. A point of which a round failed has what the others gave,
    and the reason."""
    names = dict.fromkeys(name for result in results for name in result.values if name not in _ENDS)
    estimates = {
        name: estimate([result.values[name] for result in results if name in result.values]) for name in names
    }
    if "step_s" in estimates:
        estimates |= _of_step(estimates["step_s"], results)
    reason = next((result.reason for result in results if result.reason), None)
    run = next((result for result in results if result.run), None)
    return SweepRow(
        point=point,
        rounds=sum(result.reason is None for result in results),
        estimates=estimates,
        facts=next((result.facts for result in results if result.facts), {}),
        run=str(round_directory(directory, point, run.round) / str(run.run))
        if run is not None and directory is not None
        else None,
        reason=reason or (None if results else NOT_RUN),
        notes=next((result.notes for result in results if result.notes), ()),
    )


def estimate(values: Sequence[float]) -> MeasuredValue:
    """Return the median of ``values`` and, of three or more, its interval: Student's t of their logarithms,
    which drift multiplies."""
    middle = statistics.median(values)
    if len(values) < FEWEST or min(values) <= 0:
        return MeasuredValue(value=middle)
    factor = math.exp(half_width([math.log(value) for value in values]))
    return MeasuredValue(value=middle, low=middle / factor, high=middle * factor)


def _of_step(step: MeasuredValue, results: Sequence[PointResult]) -> dict[str, MeasuredValue]:
    """The step's time, time per sample and throughput, which agree with each other.

    Of too few rounds for an interval between them, it is the widest of the intervals of their median steps.
    """
    ends = [
        (result.values["step_low_s"], result.values["step_high_s"])
        for result in results
        if "step_low_s" in result.values
    ]
    if step.low is None and ends:
        step = MeasuredValue(
            value=step.value, low=min(low for low, _ in ends), high=max(high for _, high in ends)
        )
    found = {"step_s": step}
    first = next(result.values for result in results if "step_s" in result.values)
    if "samples_per_s" in first:
        batch, low, high = first["samples_per_s"] * first["step_s"], step.low, step.high
        found["sample_s"] = MeasuredValue(
            value=step.value / batch, low=low and low / batch, high=high and high / batch
        )
        found["samples_per_s"] = MeasuredValue(
            value=batch / step.value, low=batch / high if high else None, high=batch / low if low else None
        )
    return found


def frame(found: Iterable[SweepRow]) -> pd.DataFrame:
    """Return the rows as a table: the options, the values and their intervals (``_low``, ``_high``), facts
    and reasons."""
    import pandas as pd

    records: list[dict[str, Any]] = []
    for row in found:
        record: dict[str, Any] = {
            "point": row.point.label,
            "kind": row.point.kind,
            **row.point.options,
            "rounds": row.rounds,
        }
        for name, value in row.estimates.items():
            record |= {name: value.value, f"{name}_low": value.low, f"{name}_high": value.high}
        records.append({**record, **row.facts, "reason": row.reason, "run": row.run})
    return pd.DataFrame(records).dropna(axis="columns", how="all")


# --- what the rows show -----------------------------------------------------------------------------------


class Curve(NamedTuple):
    """The rows of one setting along the option that varies, in its order; ``name`` is what the rows have in
    common."""

    name: str
    rows: tuple[SweepRow, ...]


class Knee(NamedTuple):
    """The smallest value of an option that reaches ``KNEE`` of the highest throughput of its curve."""

    value: float
    samples_per_s: float
    best: float


class Fit(NamedTuple):
    """The largest batch of a curve that ran, and the smallest larger one that ran out of memory, if any."""

    largest: int
    too_large: int | None


def axis_of(rows: Sequence[SweepRow]) -> str | None:
    """Return the numeric option with the most values, of several the first; None if none varies."""
    best, most = None, 1
    for name in dict.fromkeys(name for row in rows for name in row.point.options):
        values = {row.point.options.get(name) for row in rows}
        if len(values) > most and all(type(value) in (int, float) for value in values):
            best, most = name, len(values)
    return best


def by_axis(rows: Sequence[SweepRow]) -> tuple[str | None, tuple[Curve, ...]]:
    """Return the option that varies most and the curves along it; if none varies, each row is a curve."""
    axis = axis_of(rows)
    return axis, curves(rows, axis) if axis is not None else tuple(
        Curve(row.point.label, (row,)) for row in rows
    )


def curves(rows: Sequence[SweepRow], axis: str) -> tuple[Curve, ...]:
    """Return the rows grouped by everything but ``axis``."""
    names = [name for name in varying([row.point.options for row in rows]) if name != axis]
    groups = grouped(
        rows, lambda row: label_of(row.point.options, names) or str(row.point.options.get("model", ""))
    )
    return tuple(
        Curve(name, tuple(sorted(found, key=lambda row: float(row.point.options[axis]))))
        for name, found in groups.items()
    )


def knee(curve: Curve, axis: str) -> Knee | None:
    """Return where the throughput of ``curve`` levels off; None for fewer than three points."""
    found = [
        (float(row.point.options[axis]), rate)
        for row in curve.rows
        if (rate := row.value("samples_per_s")) is not None
    ]
    if len(found) < 3:
        return None
    best = max(rate for _, rate in found)
    value, rate = next((value, rate) for value, rate in found if rate >= KNEE * best)
    return Knee(value, rate, best)


def fit(curve: Curve) -> Fit | None:
    """Return the largest batch of ``curve`` that ran; None if none did."""
    sizes = [(int(row.point.options["batch_size"]), row) for row in curve.rows]
    largest = max((size for size, row in sizes if row.value("step_s") or row.value("epoch_s")), default=None)
    if largest is None:
        return None
    failed = (size for size, row in sizes if row.reason and any(word in row.reason for word in _SHORTAGE))
    return Fit(largest, min((size for size in failed if size > largest), default=None))


def pareto(rows: Sequence[SweepRow], values: Mapping[str, bool]) -> list[SweepRow]:
    """Return the rows that no other beats: as good in all ``values`` and better in one. True says that more
    of a value is better."""
    import numpy as np

    placed = [row for row in rows if all(row.value(name) is not None for name in values)]
    found = np.array(
        [[(row.value(name) or 0.0) * (1 if more else -1) for name, more in values.items()] for row in placed]
    )
    beaten = [bool(((found >= ours).all(axis=1) & (found > ours).any(axis=1)).any()) for ours in found]
    return [row for row, worse in zip(placed, beaten, strict=True) if not worse]


# --- what a search improves -------------------------------------------------------------------------------


class Objective(msgspec.Struct, frozen=True, kw_only=True):
    """A value of a run that a search improves."""

    name: str
    #: Its name in a result.
    value: str
    #: Whether more of it is better.
    more: bool
    #: Of its axis.
    title: str
    unit: str
    format: Format
    #: The runs that have it.
    kinds: tuple[Kind, ...] = ("profile", "train")

    @property
    def fraction(self) -> bool:
        """Whether it is a share, of which differences are compared instead of ratios."""
        return self.format == "share"


OBJECTIVES = {
    one.name: one
    for one in (
        Objective(
            name="throughput",
            value="samples_per_s",
            more=True,
            title="throughput, samples/s",
            unit="1/s",
            format="figures",
        ),
        Objective(
            name="latency",
            value="step_s",
            more=False,
            title="time per step, s",
            unit="s",
            format="scaled",
            kinds=("profile",),
        ),
        Objective(
            name="memory",
            value="peak_memory_bytes",
            more=False,
            title="peak memory, B",
            unit="B",
            format="scaled",
        ),
        Objective(
            name="energy",
            value="energy_per_sample_j",
            more=False,
            title="energy per sample, J",
            unit="J",
            format="scaled",
            kinds=("profile",),
        ),
        Objective(
            name="accuracy",
            value="accuracy",
            more=True,
            title="correct, % of the test set",
            unit="%",
            format="share",
            kinds=("train",),
        ),
    )
}


def read_objectives(text: str, kind: Kind) -> tuple[Objective, ...]:
    """Return the objectives in ``text``, separated by commas; raises UsageError for one that a run of this
    ``kind`` does not have."""
    names = tuple(dict.fromkeys(split_list(text)))
    if not names:
        raise UsageError(f"{arg('objective')} is empty.", hint=f"Choose from {', '.join(OBJECTIVES)}.")
    for name in names:
        if name not in OBJECTIVES:
            raise UsageError(f"unknown objective {name!r}.", hint=f"Choose from {', '.join(OBJECTIVES)}.")
        if kind not in OBJECTIVES[name].kinds:
            if kind == "profile":
                raise UsageError(
                    f"the objective {name!r} requires a training.", hint=f"Add {arg('train', True)}."
                )
            measured = ", ".join(one.name for one in OBJECTIVES.values() if kind in one.kinds)
            raise UsageError(
                f"a training does not measure the objective {name!r}.", hint=f"Choose from {measured}."
            )
    return tuple(OBJECTIVES[name] for name in names)
