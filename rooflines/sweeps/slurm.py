"""Run tasks as an array of SLURM jobs through submitit. The output directory must be on a file system that all nodes share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from rooflines.errors import UsageError
from rooflines.profiler.progress import Progress, Silent
from rooflines.sweeps.records import Result
from rooflines.sweeps.run import Place, Task, run_task, store

# Of a job, unless the caller asks for something else.
DEFAULTS: dict[str, str | int] = {"timeout_min": 60, "nodes": 1, "tasks_per_node": 1}


def on_slurm(folder: Path, parameters: Mapping[str, str | int], cluster: str | None = None) -> Place:
    """Return a place that submits tasks as a job array with ``parameters`` (those of submitit: ``slurm_partition``, ``timeout_min``).

    Logs of the jobs go to ``folder``. ``cluster`` is submitit's: None finds SLURM, ``local`` runs them as processes here. Raises
    UsageError where submitit is missing or does not find SLURM.
    """
    try:
        import submitit
    except ImportError:
        raise UsageError("SLURM requires the package 'submitit'.", hint="pip install 'rooflines[slurm]'") from None

    def place(tasks: Sequence[Task], progress: Progress) -> Iterator[tuple[Task, Result]]:
        try:
            executor = submitit.AutoExecutor(folder=folder, cluster=cluster or "slurm")
            executor.update_parameters(**{**DEFAULTS, **parameters})
        except (RuntimeError, ValueError, TypeError, NameError) as problem:
            raise UsageError(f"the jobs cannot be submitted: {problem}.", hint="Check the parameters of the jobs.") from None
        jobs = executor.map_array(run_in_job, [msgspec.json.encode(task) for task in tasks]) if tasks else []
        of = dict(zip(map(id, jobs), tasks, strict=True))
        progress.stage("waiting for the jobs", len(jobs))
        try:
            # A scheduler is asked rarely.
            for job in submitit.helpers.as_completed(jobs, poll_frequency=0.5 if cluster == "local" else 10):
                task, error = of[id(job)], job.exception()
                progress.advance()
                if error is None:
                    yield task, msgspec.json.decode(job.result(), type=Result)
                else:
                    said = (str(error).strip().splitlines() or [type(error).__name__])[-1]
                    yield task, Result(point=task.point.id, round=task.round, reason=f"its SLURM job failed: {said}")
        finally:
            for job in jobs:
                if not job.done():
                    job.cancel()

    return place


def run_in_job(encoded: bytes) -> bytes:
    """Run a task in this job and store its result, so that it is kept if the submitting process has gone."""
    task = msgspec.json.decode(encoded, type=Task)
    result = run_task(task, Silent())
    store(task, result)
    return msgspec.json.encode(result)


def parameters(text: str) -> dict[str, str | int]:
    """Return the parameters in ``key=value,key=value``; raises UsageError for anything else."""
    found: dict[str, str | int] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        key, equals, value = part.partition("=")
        if not equals:
            raise UsageError(f"{part!r} is not a parameter of a SLURM job.", hint="For example: slurm_partition=gpu,timeout_min=30")
        found[key] = int(value) if value.isdigit() else value
    return found
