"""The rows of a sweep: the rounds of each point as medians with their intervals, as a table of pandas, Parquet and CSV."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rooflines.serial import read_json
from rooflines.sweeps.records import NOT_RUN, RESULT_FILE, Estimate, Point, Result, Row, Sweep

if TYPE_CHECKING:
    import pandas as pd

# Two rounds say little about their spread: the interval of Student's t would be 12.7 times as wide as it.
FEWEST = 3
# The 97.5 % quantile of Student's t for two to nine degrees of freedom; beyond, that of the normal distribution is near enough.
_STUDENT = (4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
_NORMAL = 1.96
# The ends of the interval of a round's median step.
_ENDS = ("step_low_s", "step_high_s")


def round_directory(directory: Path, point: Point, number: int) -> Path:
    """Return where round ``number`` (from 0) of ``point`` lies."""
    return directory / "points" / point.id / f"round-{number}"


def read_results(directory: Path, sweep: Sweep) -> dict[tuple[str, int], Result]:
    """Return the results that there are, by point and round."""
    found = {}
    for point in sweep.points:
        for number in range(sweep.repeats):
            path = round_directory(directory, point, number) / RESULT_FILE
            if path.is_file():
                found[point.id, number] = read_json(path, Result)
    return found


def rows(directory: Path, sweep: Sweep) -> tuple[Row, ...]:
    """Return a row for each point, in their order; those without a result say that they have not run."""
    results = read_results(directory, sweep)
    return tuple(
        row_of(point, [results[point.id, number] for number in range(sweep.repeats) if (point.id, number) in results], directory)
        for point in sweep.points
    )


def row_of(point: Point, results: Sequence[Result], directory: Path | None = None) -> Row:
    """Return the row of ``point`` from its rounds. A point of which a round failed has what the others gave, and the reason."""
    names = dict.fromkeys(name for one in results for name in one.values if name not in _ENDS)
    estimates = {name: estimate([one.values[name] for one in results if name in one.values]) for name in names}
    if "step_s" in estimates:
        estimates |= _of_step(estimates["step_s"], results)
    reason = next((one.reason for one in results if one.reason), None)
    run = next((one for one in results if one.run), None)
    return Row(
        point=point, rounds=sum(one.reason is None for one in results), estimates=estimates,
        facts=next((one.facts for one in results if one.facts), {}),
        run=str(round_directory(directory, point, run.round) / str(run.run)) if run is not None and directory is not None else None,
        reason=reason or (None if results else NOT_RUN), notes=next((one.notes for one in results if one.notes), ()),
    )  # fmt: skip


def estimate(values: Sequence[float]) -> Estimate:
    """Return the median of ``values`` and, of three or more, its interval: Student's t of their logarithms, which drift multiplies."""
    middle = statistics.median(values)
    if len(values) < FEWEST or min(values) <= 0:
        return Estimate(value=middle)
    factor = math.exp(half_width([math.log(value) for value in values]))
    return Estimate(value=middle, low=middle / factor, high=middle * factor)


def half_width(values: Sequence[float]) -> float:
    """Return half the 95 % interval (Student's t) of the mean of three or more ``values``."""
    quantile = _STUDENT[len(values) - FEWEST] if len(values) - FEWEST < len(_STUDENT) else _NORMAL
    return quantile * statistics.stdev(values) / math.sqrt(len(values))


def _of_step(step: Estimate, results: Sequence[Result]) -> dict[str, Estimate]:
    """The step's time, time per sample and throughput, which agree with each other.

    Of too few rounds for an interval between them, it is the widest of the intervals of their median steps.
    """
    ends = [(one.values["step_low_s"], one.values["step_high_s"]) for one in results if "step_low_s" in one.values]
    if step.low is None and ends:
        step = Estimate(value=step.value, low=min(low for low, _ in ends), high=max(high for _, high in ends))
    found = {"step_s": step}
    first = next(one.values for one in results if "step_s" in one.values)
    if "samples_per_s" in first:
        batch = first["samples_per_s"] * first["step_s"]

        def per_sample(seconds: float | None) -> float | None:
            return None if seconds is None else seconds / batch

        def rate(seconds: float | None) -> float | None:
            return batch / seconds if seconds else None

        found["sample_s"] = Estimate(value=step.value / batch, low=per_sample(step.low), high=per_sample(step.high))
        found["samples_per_s"] = Estimate(value=batch / step.value, low=rate(step.high), high=rate(step.low))
    return found


def frame(found: Iterable[Row]) -> pd.DataFrame:
    """Return the rows as a table: the options, the values and their intervals (``_low``, ``_high``), facts and reasons."""
    import pandas as pd

    records: list[dict[str, Any]] = []
    for row in found:
        record: dict[str, Any] = {"point": row.point.label, "kind": row.point.kind, **row.point.options, "rounds": row.rounds}
        for name, one in row.estimates.items():
            record |= {name: one.value, f"{name}_low": one.low, f"{name}_high": one.high}
        records.append({**record, **row.facts, "reason": row.reason, "run": row.run})
    return pd.DataFrame(records).dropna(axis="columns", how="all")
