"""Run tasks on the workers of a Dask scheduler, one at a time on each machine."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from rooflines.errors import UsageError
from rooflines.profiler.progress import Progress, Silent
from rooflines.sweeps.records import Result
from rooflines.sweeps.run import Place, Task, run_task

# What is larger stays on the worker: the plan needs the result, and a reader the analysis.
_MOST_BYTES = 64 << 20


def on_dask(address: str) -> Place:
    """Return a place that runs tasks on the scheduler at ``address``; raises UsageError where there is none."""
    try:
        from distributed import Client
    except ImportError:
        raise UsageError("Dask requires the package 'distributed'.", hint="pip install 'rooflines[dask]'") from None

    def place(tasks: Sequence[Task], progress: Progress) -> Iterator[tuple[Task, Result]]:
        try:
            client = Client(address, timeout="10s")
        except (OSError, ValueError) as error:
            raise UsageError(f"no Dask scheduler at {address!r}: {error}.", hint="For example: tcp://host:8786") from None
        with client:
            yield from _spread(client, list(tasks), progress)

    return place


def _spread(client: Any, waiting: list[Task], progress: Progress) -> Iterator[tuple[Task, Result]]:
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
        future = client.submit(run_remotely, msgspec.json.encode(task), workers=[machines[machine]], pure=False, retries=0)
        running[future] = task, machine
        return future

    ended = as_completed([submit(machine) for machine in list(machines)[: len(waiting)]])
    for future in ended:
        task, machine = running.pop(future)
        error = future.exception()
        if error is not None:
            result = Result(point=task.point.id, round=task.round, reason=f"the Dask worker failed: {error}")
        else:
            encoded, files = future.result()
            result = msgspec.json.decode(encoded, type=Result)
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
