"""Monitor any program while it runs: started here, or attached to."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from rooflines.arguments import arg, escaped
from rooflines.errors import DeviceError, OutputError, UsageError, terminated_as_interrupted
from rooflines.profiler.directory import JOURNAL_FILE, create_directory, default_directory, discard, timestamp
from rooflines.profiler.machine.environment import host_environment, nvidia_driver
from rooflines.profiler.monitor.command import HeldCommand, find_program
from rooflines.profiler.monitor.monitored import (
    MONITOR_FILE,
    OUTPUT_FILE,
    Monitored,
    MonitorFile,
    program_name,
    save,
    since,
)
from rooflines.profiler.options import split_list
from rooflines.profiler.record.reported_steps import VARIABLE
from rooflines.profiler.samplers.clock import now_ns
from rooflines.profiler.samplers.host import runs
from rooflines.profiler.samplers.process import SamplerProcess, check_period
from rooflines.reports.render.progress import has_screen
from rooflines.reports.render.screen import monitor_screen

if TYPE_CHECKING:
    import psutil


PERIOD_S = 0.1
# How often an attached monitor looks whether the process is still there.
_LOOK_EVERY_S = 0.1


def monitor(
    command: Sequence[str],
    *,
    output: Path | str | None = None,
    period_s: float = PERIOD_S,
    gpus: str = "all",
    show_command: bool = False,
    live: bool = False,
) -> Monitored:
    """Run ``command``, wait for it, and sample it, its descendants and the GPUs from start to end; returns
    the record.

    The command runs as it would alone: it keeps the terminal and the process group. ``gpus`` is ``all``,
    ``none``, or a comma-separated list of numbers (as in nvidia-smi) or UUIDs. ``output`` is the directory of
    the record, by default a new one under ``runs``. ``live`` shows a screen on standard error if that is a
    terminal; what the command would print there is in ``output.txt`` then. Raises CommandError for a command
    that cannot run, UsageError and OutputError before it runs.
    """
    if not command:
        raise UsageError("no command to monitor was given.", hint="For example: python train.py")
    find_program(command[0])
    check_period(period_s)
    chosen = choose_gpus(gpus)
    program = program_name(command)
    directory = Path(output) if output is not None else default_directory(program, "monitor")
    environment: dict[str, str] | None = None
    is_new = not directory.exists()
    create_directory(directory)
    began_ns = None
    printed: Path | None = None
    screen: contextlib.AbstractContextManager[object] = contextlib.nullcontext()
    steps: contextlib.AbstractContextManager[object] = contextlib.nullcontext()
    if live and has_screen():
        steps = tempfile.TemporaryDirectory(prefix="rooflines-", ignore_cleanup_errors=True)
        environment = {**os.environ, VARIABLE: steps.name}
        printed = directory / OUTPUT_FILE
        screen = monitor_screen(program, directory / JOURNAL_FILE, Path(steps.name), printed)
    try:
        with steps, HeldCommand(command, environment, printed) as held:
            facts = MonitorFile(
                created=timestamp(),
                program=program,
                command=tuple(map(escaped, command)),
                show_command=show_command,
                pid=held.pid,
                period_s=period_s,
                environment=host_environment(),
            )
            save(directory, facts)
            with SamplerProcess(held.pid, directory / JOURNAL_FILE, period_s, chosen) as sampler, screen:
                began_ns = held.release()
                facts = replace(facts, began_ns=began_ns)
                # From here on always wait for the program; if the disk is still full then, the last record
                # reports it.
                with contextlib.suppress(OutputError):
                    save(directory, facts)
                ending = held.wait()
                ended_ns = now_ns()
            facts = replace(facts, ended_ns=ended_ns, ending=ending)
            return _finish(directory, facts, sampler, chosen)
    except BaseException:
        if began_ns is None:  # the command never ran
            discard(directory, MONITOR_FILE, JOURNAL_FILE, OUTPUT_FILE, made=is_new)
        raise


def attach(
    pid: int,
    *,
    output: Path | None = None,
    period_s: float = PERIOD_S,
    gpus: str = "all",
    duration_s: float | None = None,
    live: bool = False,
) -> Monitored:
    """Sample the running process ``pid``, its descendants and the GPUs until it ends, for ``duration_s``, or
    until Ctrl-C or SIGTERM.

    The other parameters are those of ``monitor``. Raises UsageError if the process does not exist or may not
    be read.
    """
    check_period(period_s)
    if duration_s is not None and not duration_s > 0:
        raise UsageError(
            f"{arg('duration_s')} must be positive, got {duration_s!r}.",
            hint=f"For example: {arg('duration_s', 60)}",
        )
    process, program, notes = _find_process(pid)
    chosen = choose_gpus(gpus)
    directory = output or default_directory(program, "monitor")
    create_directory(directory)
    facts = MonitorFile(
        created=timestamp(),
        program=program,
        attached=True,
        pid=pid,
        period_s=period_s,
        environment=host_environment(),
        notes=notes,
    )
    save(directory, facts)
    screen = (
        monitor_screen(program, directory / JOURNAL_FILE)
        if live and has_screen()
        else contextlib.nullcontext()
    )
    with SamplerProcess(pid, directory / JOURNAL_FILE, period_s, chosen) as sampler:
        facts = replace(facts, began_ns=now_ns())
        save(directory, facts)
        with contextlib.suppress(KeyboardInterrupt), terminated_as_interrupted(), screen:
            _watch(process, sampler, duration_s)
        ended_ns = now_ns()
    return _finish(directory, replace(facts, ended_ns=ended_ns), sampler, chosen)


def choose_gpus(choice: str) -> Mapping[str, str] | None:
    """The GPUs that ``choice`` names, as ``SamplerProcess`` takes them. Raises DeviceError for one that is
    not there."""
    if choice == "all":
        return None
    if choice == "none":
        return {}
    names = split_list(choice)
    if not names:
        raise UsageError(
            f"{arg('gpus', choice)} is not a list of GPUs.",
            hint=f"Use all, none, or numbers or UUIDs: {arg('gpus', '0,2')}",
        )
    from rooflines.device_specs.nvml import find_gpu, is_slice, start_nvml
    from rooflines.profiler.samplers.nvml import all_gpus

    nvml = start_nvml()
    try:
        count = nvml.nvmlDeviceGetCount()
        chosen = {}
        for name in names:
            if name.isdecimal() and int(name) >= count:
                raise DeviceError(
                    f"GPU {name} not found: NVML finds {count}.", hint="List GPUs with nvidia-smi -L."
                )
            try:
                handle = find_gpu(nvml, int(name) if name.isdecimal() else name)
                uuid = nvml.nvmlDeviceGetUUID(handle)
                if is_slice(nvml, handle):
                    # Its index is that within its GPU: it is called what it is where all are sampled.
                    key = next((key for key, identity in all_gpus().items() if identity == uuid), uuid)
                else:
                    key = f"gpu{nvml.nvmlDeviceGetIndex(handle)}"
                chosen[key] = uuid
            except nvml.NVMLError as error:
                raise DeviceError(
                    f"GPU {name!r} not found by NVML: {error}.", hint="List GPUs with nvidia-smi -L."
                ) from None
        return chosen
    finally:
        nvml.nvmlShutdown()


def _finish(
    directory: Path, facts: MonitorFile, sampler: SamplerProcess, gpus: Mapping[str, str] | None
) -> Monitored:
    """Everything that is known at the end, written into ``directory``."""
    journal = sampler.journal()
    facts = replace(
        facts,
        status="complete",
        gpus={} if gpus == {} else {f"gpu{index}": name for index, name in nvidia_driver().gpus.items()},
        counters=journal.counters,
        fields=journal.fields,
        notes=(*facts.notes, *journal.problems, *filter(None, [sampler.failure])),
    )
    return save(directory, facts, since(facts.began_ns, journal.samples))


def _find_process(pid: int) -> tuple[psutil.Process, str, tuple[str, ...]]:
    """The process, what to call it, and what its owner keeps from us."""
    import psutil

    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            raise psutil.ZombieProcess(pid)
    except psutil.AccessDenied:
        raise _not_ours(pid) from None
    except (psutil.NoSuchProcess, ValueError, OverflowError):
        raise UsageError(
            f"process {pid} not found.",
            hint="List processes with ps -e, or start one: rooflines monitor -- COMMAND",
        ) from None
    try:
        process.memory_info()
        program = program_name(process.cmdline() or [process.name()])
    except psutil.AccessDenied:
        raise _not_ours(pid) from None
    except psutil.NoSuchProcess:
        raise UsageError(f"process {pid} has already ended.") from None
    notes = []
    try:
        process.memory_full_info()
    except psutil.AccessDenied:
        notes.append(
            f"Process {pid} belongs to {process.username()}: its unique memory (USS) and I/O are "
            "not readable."
        )
    except psutil.NoSuchProcess:
        pass
    return process, program, tuple(notes)


def _not_ours(pid: int) -> UsageError:
    return UsageError(
        f"process {pid} belongs to another user and cannot be read.", hint="Run as its owner or as root."
    )


def _watch(process: psutil.Process, sampler: SamplerProcess, duration_s: float | None) -> None:
    """Return when ``process`` has ended, nothing samples it any more, or ``duration_s`` is over."""
    deadline = time.monotonic() + duration_s if duration_s is not None else float("inf")
    while (left_s := deadline - time.monotonic()) > 0 and sampler.pid is not None:
        if not runs(process):
            return
        time.sleep(min(_LOOK_EVERY_S, left_s))
