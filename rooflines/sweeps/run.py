"""Run the points of a sweep in rounds, in a directory that a later call continues."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

import msgspec
from msgspec.structs import replace

from rooflines.arguments import arg
from rooflines.errors import (
    Interrupted,
    OutputError,
    RunError,
    UsageError,
    terminated_as_interrupted,
    writing,
)
from rooflines.pipeline.command import default_command
from rooflines.profiler.directory import (
    check_directory,
    create_directory,
    default_directory,
    read_facts,
    timestamp,
)
from rooflines.profiler.progress import Progress, Silent
from rooflines.serial import write_json
from rooflines.sweeps.process import JobError, run_job
from rooflines.sweeps.records import (
    INTERRUPTED,
    RESULT_FILE,
    SWEEP_FILE,
    SWEEP_SCHEMA,
    Job,
    PointResult,
    Sweep,
    SweepAnalysis,
    SweepPoint,
)
from rooflines.sweeps.results import read_results, round_directory, sweep_rows

LOG_FILE = "log.txt"
# What runs a point that names no function.
RUN_POINT = "rooflines.sweeps.point:run_point"


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """One round of one point, whose files go to ``directory`` and whose relative paths start from
    ``folder``."""

    point: SweepPoint
    round: int
    directory: str
    folder: str = ""

    def job(self, directory: Path | None = None) -> Job:
        """Return what its process is asked to do, in its own or another ``directory``."""
        threads = self.point.options.get("threads")
        return Job(
            function=self.point.function or RUN_POINT,
            options={"point": msgspec.to_builtins(self.point), "round": self.round},
            directory=str((directory or Path(self.directory)).absolute()),
            folder=self.folder,
            threads=threads if isinstance(threads, int) else None,
            environment=self.point.environment,
        )


# The result of each task as it ends, in any order.
TaskResults: TypeAlias = Iterator[tuple[Task, PointResult]]
# Where tasks run.
SweepPlace: TypeAlias = Callable[[Sequence[Task], Progress], TaskResults]


def run_sweep(
    name: str,
    points: tuple[SweepPoint, ...],
    *,
    repeats: int = 3,
    output: Path | None = None,
    place: SweepPlace | None = None,
    progress: Progress | None = None,
) -> tuple[Sweep, Path]:
    """Run every point ``repeats`` times, in rounds, and store each result; returns the plan and the
    directory.

    A directory that holds an earlier sweep keeps its results and gets what is missing. Points that cannot be
    run are rows with their reason. Raises Interrupted on Ctrl-C and SIGTERM; what has ended is kept.
    """
    if repeats < 1:
        raise UsageError(f"{arg('repeats')} must be at least 1, got {repeats}.")
    if not points:
        raise UsageError("the sweep has no points.")
    directory = output if output is not None else default_directory(name, "sweep")
    sweep = _plan(
        directory,
        Sweep(
            name=name,
            created=timestamp(),
            command=default_command(),
            repeats=repeats,
            points=points,
        ),
    )
    done = {key: one for key, one in read_results(directory, sweep).items() if one.reason != INTERRUPTED}
    failed = {one.point for one in done.values() if one.reason is not None}
    tasks = [
        task
        for task in in_rounds(sweep, directory)
        if (task.point.id, task.round) not in done and task.point.id not in failed
    ]
    for task in tasks:  # what a killed process left of a round is of no use
        shutil.rmtree(task.directory, ignore_errors=True)
    try:
        with (
            terminated_as_interrupted(),
            contextlib.closing(
                (place or here)(tasks, progress or Silent())  # type: ignore[type-var]
            ) as results,
        ):
            for task, result in results:
                store(task, result)
    except KeyboardInterrupt:
        raise Interrupted(
            f"interrupted; the results so far are in {str(directory)!r}.",
            hint="The same command with this output continues it.",
        ) from None
    return sweep, directory


def in_rounds(sweep: Sweep, directory: Path) -> Iterator[Task]:
    """Every task in its order: all points once, then all again in the opposite order, so that a drift favors
    none."""
    for number in range(sweep.repeats):
        for point in sweep.points if number % 2 == 0 else reversed(sweep.points):
            # A training has its own seeds and is repeated by them.
            if number == 0 or (point.kind == "profile" and not point.once):
                where = str(round_directory(directory, point, number))
                yield Task(point=point, round=number, directory=where, folder=str(Path.cwd()))


def here(tasks: Sequence[Task], progress: Progress) -> TaskResults:
    """Run ``tasks`` one after the other on this machine."""
    failed: set[str] = set()
    for number, task in enumerate(tasks, 1):
        if task.point.id not in failed:  # what cannot run once is not tried again
            result = run_task(
                task, Titled(progress, f"{number}/{len(tasks)} {task.point.label}, round {task.round + 1}")
            )
            if result.reason is not None:
                failed.add(task.point.id)
            yield task, result


def run_task(
    task: Task,
    progress: Progress,
    directory: Path | None = None,
    *,
    found: Callable[[PointResult], None] | None = None,
) -> PointResult:
    """Run ``task`` in its own process; one that dies or is interrupted by Ctrl-C has what it had found, and
    the reason.

    ``found`` is called with every result so far, and may end the task with an exception.
    """
    place = directory or Path(task.directory)
    place.mkdir(parents=True, exist_ok=True)
    last = PointResult(point=task.point.id, round=task.round)

    def so_far(encoded: bytes) -> None:
        nonlocal last
        last = msgspec.json.decode(encoded, type=PointResult)
        if found is not None:
            found(last)

    try:
        run_job(task.job(place), progress, found=so_far, log=place / LOG_FILE)
    except JobError as error:
        return replace(last, reason=str(error))
    except KeyboardInterrupt:
        if last.values:
            store(task, replace(last, reason=INTERRUPTED))
        raise
    return last


def store(task: Task, result: PointResult) -> None:
    """Write the result of ``task`` where a later call finds it."""
    write_record(Path(task.directory) / RESULT_FILE, result)


def write_record(path: Path, record: object) -> None:
    """Write ``record`` to ``path``; raises OutputError where the disk is full."""
    with writing(f"write {path.name} in {str(path.parent)!r}", "Check that the disk is not full."):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, record)


class Titled(NamedTuple):
    """A progress whose stages begin with a title."""

    progress: Progress
    title: str

    def stage(self, name: str, total: int | None) -> None:
        """Begin a stage of ``total`` steps."""
        self.progress.stage(f"{self.title}: {name}", total)

    def advance(self) -> None:
        """Count one step."""
        self.progress.advance()


def load_sweep(directory: Path) -> Sweep:
    """Return the plan of the sweep in ``directory``; raises RunError where there is none."""
    path = directory / SWEEP_FILE
    if not path.is_file():
        raise RunError(
            f"{str(directory)!r} holds no {SWEEP_FILE}.", hint="Give the directory of 'rooflines sweep'."
        )
    return read_facts(
        path, Sweep, SWEEP_SCHEMA, what=f"the sweep in {str(directory)!r}", again="run the sweep again"
    )


def analyze_sweep(directory: Path) -> SweepAnalysis:
    """Return the sweep in ``directory`` with what its points have given so far; raises RunError where there
    is none."""
    sweep = load_sweep(directory)
    return SweepAnalysis(sweep=sweep, rows=sweep_rows(directory, sweep))


def _plan(directory: Path, new: Sweep) -> Sweep:
    """Write the plan ``new`` into ``directory``, after the points of a sweep that it holds already."""
    if not (directory / SWEEP_FILE).is_file():
        check_directory(directory)
        create_directory(directory)
    else:
        old = load_sweep(directory)
        ours = {point.id for point in new.points}
        if not ours & {point.id for point in old.points}:
            raise OutputError(
                f"{str(directory)!r} holds a sweep with other points.",
                hint=f"Choose another {arg('output')}.",
            )
        new = replace(
            new,
            created=old.created,
            repeats=max(old.repeats, new.repeats),
            points=(*new.points, *(point for point in old.points if point.id not in ours)),
        )
    write_record(directory / SWEEP_FILE, new)
    return new
