"""Which ceilings judge a run or a trace: measured here, of a data sheet, from a file, or of the device that a trace names."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from rooflines.device_specs.records import Ceilings
from rooflines.errors import UsageError
from rooflines.profiler.options import find_device
from rooflines.profiler.progress import Progress
from rooflines.profiler.records import Environment, Run

# A full set of figures takes less than a minute, and eight GPUs one after the other eight.
_PATIENCE_S = 600

GivenCeilings = Callable[[Run, bool, Progress], Ceilings]


def given_ceilings(choice: str, device: str, recorded: Environment | None = None) -> GivenCeilings:
    """How to get the ceilings asked for, for ``device`` here or for the device that a run was ``recorded`` on.

    A file or a data sheet is read at once, so that a bad one is refused before anything runs.
    """
    if choice == "measured":

        def measured(run: Run, remeasure: bool, progress: Progress) -> Ceilings:
            environment = run.facts.environment
            return measured_ceilings(environment.device, environment.threads, remeasure=remeasure, progress=progress)

        return measured
    if choice == "spec":
        sheet = known_ceilings(device, recorded)
        return lambda *_: sheet
    path = Path(choice)
    if not path.is_file():
        raise UsageError(f"--ceilings {choice!r} is no file.", hint="Give measured, spec, or a JSON file with ceilings.")
    from rooflines.device_specs.measure import load_file

    loaded = load_file(path)
    return lambda *_: loaded


def measured_ceilings(device: str, threads: int | None, *, remeasure: bool, progress: Progress) -> Ceilings:
    """Those of ``device`` here, from the cache or measured now."""
    from rooflines.device_specs.measure import measure

    progress.stage("measuring this device's ceilings (cached afterwards)", None)
    # The run was made on the device as it is: what keeps it busy is said of the ceilings and does not refuse the run.
    with _alone():
        return measure(device, threads=threads, force=True, remeasure=remeasure, progress=lambda text: progress.stage(text, None))


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Inside, no other process of this user measures ceilings: the ranks of a job end together and would measure each other's load.

    A process that had to wait finds the figures in the cache. Measurements may overlap if the lock cannot be created.
    """
    import filelock

    from rooflines.device_specs.cache import cache_directory

    lock = None
    with contextlib.suppress(OSError, filelock.Timeout):
        cache_directory().mkdir(parents=True, exist_ok=True)
        lock = filelock.FileLock(cache_directory() / ".measuring")
        lock.acquire(timeout=_PATIENCE_S)
    try:
        yield
    finally:
        if lock is not None:
            lock.release()


def ceilings_of_device(choice: str, device: str, threads: int | None, progress: Progress) -> Ceilings:
    """What ``choice`` (``measured``, ``spec`` or a file) says of ``device``, for those who have no run."""
    if choice == "measured":
        return measured_ceilings(device, threads, remeasure=False, progress=progress)
    if choice == "spec":
        return known_ceilings(device, None)
    from rooflines.device_specs.measure import load_file

    return load_file(Path(choice))


def known_ceilings(device: str, recorded: Environment | None) -> Ceilings:
    """The data sheet's ceilings of ``device`` here, derived ones where it has no sheet; or the sheet's of a recorded run's device."""
    from rooflines.device_specs import catalog, live

    if recorded is None:
        return live.known(str(find_device(device)))
    kind = recorded.device.partition(":")[0]
    return catalog.look_up(
        recorded.device_name,
        kind=kind,
        cores=recorded.cpu_cores if kind == "cpu" else None,
        multiprocessors=recorded.device_units,
        memory_bytes=recorded.device_memory_bytes if kind == "cuda" else None,
    )


def sheet_of(environment: Environment) -> tuple[Ceilings | None, str]:
    """The data sheet's ceilings of the device that a trace names, or why there are none."""
    if not environment.device_name:
        return None, "the trace does not name the device that it was recorded on, so nothing is judged: give its --ceilings"
    try:
        return known_ceilings(environment.device, environment), ""
    except UsageError as error:
        return None, f"{error.message.removesuffix('.')}, so nothing is judged: give its --ceilings"
