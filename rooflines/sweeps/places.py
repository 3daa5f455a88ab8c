"""Places other than this process for the tasks of a sweep: the workers of a Dask scheduler, and jobs of
SLURM."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from rooflines.errors import UsageError
from rooflines.profiler.options import split_list
from rooflines.profiler.progress import Progress, Silent
from rooflines.sweeps.records import PointResult
from rooflines.sweeps.run import SweepPlace, Task, TaskResults, run_task, store

# What is larger stays on the worker: the plan needs the result, and a reader the analysis.
_MOST_BYTES = 64 << 20
Parameters: TypeAlias = dict[str, str | int]
# Of a SLURM job, unless the caller asks for something else.
DEFAULTS: Parameters = {"timeout_min": 60, "nodes": 1, "tasks_per_node": 1}


def on_dask(address: str) -> SweepPlace:
    """Return a place that runs tasks on the Dask scheduler at ``address``, one at a time on each machine.

    Raises UsageError where there is none.
    """
    try:
        from distributed import Client
    except ImportError:
        raise UsageError(
            "Dask requires the package 'distributed'.", hint="pip install 'rooflines[dask]'"
        ) from None

    def place(tasks: Sequence[Task], progress: Progress) -> TaskResults:
        try:
            client = Client(address, timeout="10s")
        except (OSError, ValueError) as error:
            raise UsageError(
                f"no Dask scheduler at {address!r}: {error}.", hint="For example: tcp://host:8786"
            ) from None
        with client:
            yield from _spread(client, list(tasks), progress)

    return place


def _spread(client: Any, waiting: list[Task], progress: Progress) -> TaskResults:
    """Keep one task running on every machine: measurements on one machine would disturb each other."""
    from distributed import as_completed

    machines: dict[str, str] = {}
    for address, facts in client.scheduler_info()["workers"].items():
        machines.setdefault(facts["host"], address)
    if not machines:
        raise UsageError("the Dask scheduler has no workers.", hint="Start one: dask worker ADDRESS")
    progress.stage(f"running on {len(machines)} machine{'' if len(machines) == 1 else 's'}", len(waiting))
    running: dict[Any, tuple[Task, str]] = {}

    def submit(machine: str) -> Any:
        task = waiting.pop(0)
        future = client.submit(
            run_remotely, msgspec.json.encode(task), workers=[machines[machine]], pure=False, retries=0
        )
        running[future] = task, machine
        return future

    ended = as_completed([submit(machine) for machine in list(machines)[: len(waiting)]])
    for future in ended:
        task, machine = running.pop(future)
        error = future.exception()
        if error is not None:
            result = PointResult(
                point=task.point.id, round=task.round, reason=f"the Dask worker failed: {error}"
            )
        else:
            encoded, files = future.result()
            result = msgspec.json.decode(encoded, type=PointResult)
            for name, content in files.items():
                path = Path(task.directory) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
        progress.advance()
        yield task, result
        if waiting:
            ended.add(submit(machine))


def run_remotely(encoded: bytes) -> tuple[bytes, dict[str, bytes]]:
    """Run a task on this worker; returns its result and the files that it wrote, by their relative names."""
    task = msgspec.json.decode(encoded, type=Task)
    with tempfile.TemporaryDirectory() as folder:
        result = run_task(task, Silent(), Path(folder))
        files, total = {}, 0
        for path in sorted(Path(folder).rglob("*"), key=lambda one: one.stat().st_size):
            if path.is_file() and (total := total + path.stat().st_size) <= _MOST_BYTES:
                files[str(path.relative_to(folder))] = path.read_bytes()
        return msgspec.json.encode(result), files


def on_slurm(folder: Path, parameters: Parameters, cluster: str | None = None) -> SweepPlace:
    """Return a place that submits tasks as a job array with ``parameters`` (those of submitit:
    ``slurm_partition``, ``timeout_min``).

    ``folder`` gets the logs of the jobs. It and the output directory must be on a file system that all nodes
    share. ``cluster`` is submitit's: None finds SLURM, ``local`` runs them as processes here. Raises
    UsageError where submitit is missing or does not find SLURM.
    """
    try:
        import submitit
    except ImportError:
        raise UsageError(
            "SLURM requires the package 'submitit'.", hint="pip install 'rooflines[slurm]'"
        ) from None

    def place(tasks: Sequence[Task], progress: Progress) -> TaskResults:
        try:
            executor = submitit.AutoExecutor(folder=folder, cluster=cluster or "slurm")
            executor.update_parameters(**{**DEFAULTS, **parameters})
        except (RuntimeError, ValueError, TypeError, NameError) as problem:
            raise UsageError(
                f"the jobs cannot be submitted: {problem}.", hint="Check the parameters of the jobs."
            ) from None
        jobs = executor.map_array(run_in_job, [msgspec.json.encode(task) for task in tasks]) if tasks else []
        of = dict(zip(map(id, jobs), tasks, strict=True))
        progress.stage("waiting for the jobs", len(jobs))
        try:
            # A scheduler is asked rarely.
            for job in submitit.helpers.as_completed(jobs, poll_frequency=0.5 if cluster == "local" else 10):
                task, error = of[id(job)], job.exception()
                progress.advance()
                if error is None:
                    yield task, msgspec.json.decode(job.result(), type=PointResult)
                else:
                    said = (str(error).strip().splitlines() or [type(error).__name__])[-1]
                    yield (
                        task,
                        PointResult(
                            point=task.point.id, round=task.round, reason=f"its SLURM job failed: {said}"
                        ),
                    )
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


def parameters(text: str) -> Parameters:
    """Return the parameters in ``key=value,key=value``; raises UsageError for anything else."""
    found: Parameters = {}
    for part in split_list(text):
        key, equals, value = part.partition("=")
        if not equals:
            raise UsageError(
                f"{part!r} is not a parameter of a SLURM job.",
                hint="For example: slurm_partition=gpu,timeout_min=30",
            )
        found[key] = int(value) if value.isdigit() else value
    return found
