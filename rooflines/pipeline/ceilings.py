"""Choose the ceilings of a run or a trace: measured here, from a data sheet, from a file, or of a named
device."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from rooflines.arguments import arg
from rooflines.device_specs.records import Ceilings
from rooflines.errors import UsageError
from rooflines.profiler.options import find_device
from rooflines.profiler.progress import Progress
from rooflines.profiler.records import Environment, Run

# A full set of figures takes less than a minute, and eight GPUs one after the other eight.
_PATIENCE_S = 600

_CHOICES = "Use measured, spec, a device name (see rooflines devices) or a JSON file with ceilings."

GivenCeilings = Callable[[Run, bool, Progress], Ceilings]


def given_ceilings(
    choice: Ceilings | str, device: str | None, recorded: Environment | None = None
) -> GivenCeilings:
    """Return a function for the requested ceilings, for ``device`` here or the device that a run was
    ``recorded`` on.

    ``device`` None is the one that the run will show.

    ``choice`` is ``measured``, ``spec``, a file, the name of a device, or the ceilings themselves. A file or
    a data sheet is read at once, so that a bad one is refused before anything runs.
    """
    if choice == "measured":
        return lambda run, remeasure, progress: measured_ceilings(
            run.facts.environment.device,
            run.facts.environment.threads,
            remeasure=remeasure,
            progress=progress,
        )
    if choice == "spec" and device is None:
        return lambda run, *_: known_ceilings(run.facts.environment.device, None)
    ceilings = choice if isinstance(choice, Ceilings) else _stated(choice, device or "", recorded)
    return lambda *_: ceilings


def _stated(choice: str, device: str, recorded: Environment | None = None) -> Ceilings:
    return known_ceilings(device, recorded) if choice == "spec" else file_or_device(choice, recorded)


def file_or_device(choice: str, recorded: Environment | None = None) -> Ceilings:
    """The ceilings in the file ``choice``, or those of the data sheet of the device with that name: of the
    whole device.

    What is known of a ``recorded`` run's device tells devices of one name apart. Raises UsageError with names
    that look alike where ``choice`` is neither, DataError for a file that holds something else.
    """
    path = Path(choice)
    if path.is_file():
        from rooflines.device_specs.history import load_file

        return load_file(path)
    if path.suffix == ".json" or len(path.parts) > 1:
        raise UsageError(f"{arg('ceilings', choice)}: file not found.", hint=_CHOICES)
    from rooflines.device_specs import catalog, search

    units, memory = (
        (recorded.device_units, recorded.device_memory_bytes) if recorded is not None else (None, None)
    )
    try:
        match = search.only(choice, catalog.SheetFacts(units=units, memory_bytes=memory))
        if match.mig is not None:
            return catalog.look_up(choice, multiprocessors=units)
    except UsageError as error:
        raise UsageError(
            f"{arg('ceilings', choice)} is neither a file nor a single device: {error.message}",
            hint=f"{error.hint} {_CHOICES}",
        ) from None
    return catalog.ceilings_of(match.sheet, match.sheet.name, user=match.user)


def measured_ceilings(device: str, threads: int | None, *, remeasure: bool, progress: Progress) -> Ceilings:
    """Return the ceilings of ``device`` here, from the cache or measured now."""
    from rooflines.device_specs.measure import measure

    progress.stage("measuring ceilings (cached for later runs)", None)
    # The run was made on the device as it is: what keeps it busy is said of the ceilings and does not refuse
    # the run.
    with _alone():
        return measure(
            device,
            threads=threads,
            force=True,
            remeasure=remeasure,
            progress=lambda text: progress.stage(text, None),
        )


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Inside, no other process of this user measures ceilings: the ranks of a job end together and would
    measure each other's load.

    A process that had to wait finds the figures in the cache. Measurements may overlap if the lock cannot be
    created.
    """
    import filelock

    from rooflines.device_specs.history import cache_directory

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
    """Return the ceilings of ``device`` by ``choice`` (``measured``, ``spec``, a file or the name of a
    device), without a run."""
    if choice == "measured":
        return measured_ceilings(device, threads, remeasure=False, progress=progress)
    return _stated(choice, device)


def known_ceilings(device: str, recorded: Environment | None) -> Ceilings:
    """The data sheet's ceilings of ``device`` here, derived ones where it has no sheet; or the sheet's of a
    recorded run's device."""
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
        what = "processor" if environment.device.startswith("cpu") else "device"
        return (
            None,
            f"the trace does not name its {what}, so no ceilings apply: choose measured ones or "
            "those of a device",
        )
    try:
        return known_ceilings(environment.device, environment), ""
    except UsageError as error:
        return (
            None,
            f"{error.message.removesuffix('.')}, so no ceilings apply: choose those of a device or a file",
        )
