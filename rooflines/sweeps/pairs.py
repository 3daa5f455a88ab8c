"""Two settings run in turn, and how sure it is that one beats the other."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from rooflines.profiler.progress import Progress
from rooflines.serial import read_json
from rooflines.sweeps.records import RESULT_FILE, Estimate, Point, Result
from rooflines.sweeps.results import FEWEST, Objective, half_width
from rooflines.sweeps.run import Task, Titled, run_task, store

# Rounds from 1 on trace no operators.
_UNTRACED = 1


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """One objective in ``pairs`` of (tuned, default).

    ``ratio`` is the tuned value over the default one: the mean of the logarithms with its 95 % interval (Student's t). For shares
    (accuracy) it is ``difference`` instead. ``beats`` says whether the interval is on the better side of no change; it is None for
    fewer than three pairs.
    """

    objective: str
    pairs: tuple[tuple[float, float], ...]
    ratio: Estimate | None = None
    difference: Estimate | None = None
    beats: bool | None = None


def tasks_in_turn(tuned: Point, default: Point, repeats: int, directory: Path) -> Iterator[tuple[Task, Task]]:
    """Return pairs of tasks (tuned, default), every other one to be run in the opposite order; each has its own seed for a training."""
    for number in range(1, repeats + 1):
        first, second = (
            Task(point=_with_seed(point, number), round=_UNTRACED, directory=str(directory / tuned.id / f"pair-{number}" / name))
            for point, name in ((tuned, "tuned"), (default, "default"))
        )
        yield first, second


def _with_seed(point: Point, number: int) -> Point:
    if point.kind == "profile":
        return point
    return msgspec.structs.replace(point, options={**point.options, "seed": int(point.options.get("seed", 0)) + number})


def run_in_turn(tuned: Point, default: Point, repeats: int, directory: Path, progress: Progress) -> list[tuple[Result, Result]]:
    """Run ``tuned`` and ``default`` in turn (A B B A ...), ``repeats`` times each; results that are stored are not measured again."""
    results = []
    for number, (one, other) in enumerate(tasks_in_turn(tuned, default, repeats, directory), 1):
        found = {}
        for task in (one, other) if number % 2 else (other, one):
            path = Path(task.directory) / RESULT_FILE
            if not path.is_file():
                store(task, run_task(task, Titled(progress, f"pair {number} of {repeats}, {task.point.label}")))
            found[task.directory] = read_json(path, Result)
        results.append((found[one.directory], found[other.directory]))
    return results


def compare(objective: Objective, results: Sequence[tuple[Result, Result]]) -> Compared:
    """Return how the tuned setting compares with the default one in ``objective``; pairs of which a run failed do not count."""
    pairs = tuple(
        (ours, theirs)
        for tuned, default in results
        if tuned.reason is None and default.reason is None
        and (ours := tuned.values.get(objective.value)) is not None and (theirs := default.values.get(objective.value)) is not None
    )  # fmt: skip
    if len(pairs) < FEWEST:
        return Compared(objective=objective.name, pairs=pairs)
    sign = 1 if objective.more else -1
    if objective.fraction:
        change = _mean([ours - theirs for ours, theirs in pairs])
        return Compared(objective=objective.name, pairs=pairs, difference=change, beats=_least(change, sign) > 0)
    logs = _mean([math.log(ours / theirs) for ours, theirs in pairs])
    ratio = Estimate(value=math.exp(logs.value), low=math.exp(logs.low or 0.0), high=math.exp(logs.high or 0.0))
    return Compared(objective=objective.name, pairs=pairs, ratio=ratio, beats=_least(logs, sign) > 0)


def _mean(values: Sequence[float]) -> Estimate:
    mean, half = statistics.fmean(values), half_width(values)
    return Estimate(value=mean, low=mean - half, high=mean + half)


def _least(change: Estimate, sign: int) -> float:
    """The smallest gain in the interval of ``change``."""
    return min(sign * (change.low or 0.0), sign * (change.high or 0.0))
