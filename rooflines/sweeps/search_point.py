"""A search as one point of a study."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from rooflines.profiler.options import OptionValue
from rooflines.sweeps.point import RUN_FOLDER
from rooflines.sweeps.points import hash_of, point_id
from rooflines.sweeps.records import Kind, PointResult, SweepPoint
from rooflines.sweeps.results import read_objectives
from rooflines.sweeps.space import read_space
from rooflines.sweeps.tune import Tuning, check, run_tuning
from rooflines.sweeps.tune_page import sentences

if TYPE_CHECKING:
    from rooflines.sweeps.worker import WorkerChannel

RUN_SEARCH = "rooflines.sweeps.search_point:run_search"
_OWN = ("objective", "trials", "repeats")


def search_points(
    settings: Iterable[Mapping[str, OptionValue]], search: Mapping[str, OptionValue], kind: Kind
) -> tuple[SweepPoint, ...]:
    """Return a point for a search from each of ``settings``; raises UsageError for one that no machine can
    make.

    ``search`` has the options that vary, as text (``"8..128"``, ``"fp32,amp-bf16"``), and ``objective``,
    ``trials`` and ``repeats``.
    """
    points = []
    for setting in settings:
        options = {**setting, **search}
        label = f"search for {setting['model']} on {setting['device']}"
        identity = point_id(label, hash_of([kind, sorted(options.items())]))
        point = SweepPoint(
            id=identity, label=label, kind=kind, function=RUN_SEARCH, options=options, once=True
        )
        check(tuning_of(point))
        points.append(point)
    return tuple(points)


def tuning_of(point: SweepPoint) -> Tuning:
    """Return the search that ``point`` stands for."""
    options = dict(point.options)
    objective, trials, repeats = (
        options.pop(name, default) for name, default in zip(_OWN, ("", 20, 5), strict=True)
    )
    model = str(options.pop("model"))
    space = read_space([model], {name: str(value) for name, value in options.items()}, point.kind)
    goals = read_objectives(str(objective) or "throughput", point.kind)
    return Tuning(
        name=point.label,
        space=space,
        objectives=tuple(one.name for one in goals),
        budget=int(str(trials)),
        repeats=int(str(repeats)),
    )


def run_search(options: dict[str, Any], directory: Path, channel: WorkerChannel) -> PointResult:
    """Make the search of a point in ``directory``; its result has the objectives of the best setting, and the
    verdict in words."""
    point = msgspec.convert(options["point"], SweepPoint)
    tuning = run_tuning(tuning_of(point), directory / RUN_FOLDER, progress=channel)
    verdict, *_ = sentences(tuning)
    best = tuning.best
    if best is None:
        return PointResult(point=point.id, round=0, run=RUN_FOLDER, reason=verdict)
    return PointResult(
        point=point.id,
        round=0,
        run=RUN_FOLDER,
        values={name: one.value for name, one in best.estimates.items()},
        facts={**best.facts, "best": best.point.label, "verdict": verdict},
    )
