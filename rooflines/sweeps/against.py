"""Profile a commit and the working tree in turn on this machine, and compare them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from rooflines.errors import Interrupted, UsageError, terminated_as_interrupted
from rooflines.pipeline.command import default_command
from rooflines.pipeline.comparing import compared
from rooflines.pipeline.reading import read_analysis
from rooflines.pipeline.reporting import ANALYSIS_FILE
from rooflines.profiler.directory import create_directory, default_directory
from rooflines.profiler.progress import Progress, Silent
from rooflines.roofline.compare.records import Comparison
from rooflines.roofline.compare.rounds import combine
from rooflines.sweeps.process import JobError, run_job
from rooflines.sweeps.records import Job
from rooflines.sweeps.worktree import Tree, check_scripts, worktrees
from rooflines.units import seconds


def compare_with_commit(
    ref: str,
    arguments: Sequence[str],
    *,
    function: str,
    rounds: int,
    small: float,
    output: Path | None,
    anyway: bool,
    progress: Progress | None,
) -> Comparison:
    """Profile the commit ``ref`` and the working tree ``rounds`` times in turn; the runs go into the
    directory ``output``.

    ``function`` profiles with ``arguments`` in a process. ``small`` is the smallest difference that matters,
    as a share. Raises UsageError for a run that fails, Interrupted on Ctrl-C.
    """
    directory, progress = (output or default_directory("check", "rounds")).absolute(), progress or Silent()
    comparisons = []
    try:
        with terminated_as_interrupted(), worktrees(ref) as (baseline, working):
            check_scripts(arguments, baseline, working)
            create_directory(directory)
            begun, done = time.monotonic(), 0
            for number in range(1, rounds + 1):
                sides = [
                    (baseline, directory / f"round-{number}" / "a"),
                    (working, directory / f"round-{number}" / "b"),
                ]
                # A drift of the machine favors neither: ABBAAB.
                for tree, place in sides if number % 2 else reversed(sides):
                    left_s = (2 * rounds - done) * (time.monotonic() - begun) / max(1, done)
                    left = f", about {seconds(left_s, 2)} left" if done else ""
                    progress.stage(f"round {number} of {rounds}: {tree.name}{left}", None)
                    _run(tree, working, place, function, arguments)
                    done += 1
                before, after = ((read_analysis(place / ANALYSIS_FILE), tree.name) for tree, place in sides)
                comparisons.append(compared(before, after, anyway=anyway, judged=False))
            submodules = (baseline.top / ".gitmodules").is_file()
    except KeyboardInterrupt:
        raise Interrupted(
            "interrupted; nothing is compared.", hint=f"The runs so far are in {str(directory)!r}."
        ) from None
    if submodules:
        first = comparisons[0]
        comparisons[0] = replace(first, notes=(*first.notes, "A was checked out without its submodules"))
    return replace(combine(comparisons, small), command=default_command())


def _run(tree: Tree, working: Tree, directory: Path, function: str, arguments: Sequence[str]) -> None:
    """Profile one version in its own process."""
    directory.parent.mkdir(exist_ok=True)
    log = directory.with_suffix(".log")
    job = Job(
        function=function,
        options={"arguments": list(arguments)},
        directory=str(directory),
        folder=str(tree.folder),
        environment=tree.variables(working),
    )
    try:
        run_job(job, Silent(), log=log)
    except JobError as error:
        raise UsageError(
            f"{tree.name} cannot be profiled: {error.message}", hint=f"Its output is in {str(log)!r}."
        ) from None
