"""Everything that rooflines raises on purpose.

RooflinesError                  base class; carries a hint and an exit code
├── UsageError                  what was asked cannot be done as asked (exit 2)
│   ├── WorkloadError           no such model, a factory that raises, an input the network refuses
│   ├── DeviceError             the device asked for is not on this machine
│   ├── CommandError            the command to monitor cannot be run (exit 127; 126 if it is not executable)
│   └── OutputError             the output directory is not empty or not writable
├── DataError                   a file we were given cannot be read (exit 2)
│   ├── RunError                not a run directory, or a corrupt one
│   └── TraceError              not a PyTorch trace, or a corrupt one
├── OutOfMemoryError            the workload did not fit (exit 2)
└── Interrupted                 Ctrl-C during a run (exit 130)

A message says what was asked and what was found; the hint says what to do next. The command line prints both
on one line each and exits with ``exit_code``; from Python they are ordinary exceptions. Both name arguments
with ``arguments.arg``, so that Python shows ``batch_size=8`` and the command line ``--batch-size 8``.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from rooflines.arguments import in_python


class RooflinesError(Exception):
    """Base class.

    ``marked_message`` and ``marked_hint`` have their arguments marked, for ``arguments.as_options``.
    ``reported`` is the run whose reports were written all the same; ``is_told`` says that the traceback of
    the cause was printed.
    """

    exit_code = 1
    reported: Path | None = None
    is_told = False

    def __init__(self, message: str, *, hint: str = "") -> None:
        # torch raises an error of a loader's worker again with the worker's traceback as its message.
        message = (
            message.rpartition(f"{type(self).__name__}: ")[2].strip()
            if message.startswith("Caught ")
            else message
        )
        super().__init__(in_python(message))
        self.marked_message = message
        self.marked_hint = hint

    @property
    def message(self) -> str:
        """One sentence: what was requested and what was found."""
        return in_python(self.marked_message)

    @property
    def hint(self) -> str:
        """The next thing to try, or empty."""
        return in_python(self.marked_hint)

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".rstrip()


class UsageError(RooflinesError):
    """The request cannot be carried out."""

    exit_code = 2


class WorkloadError(UsageError):
    """The model, script or input cannot be run."""


class DeviceError(UsageError):
    """The device asked for is not usable here."""


class CommandError(UsageError):
    """The command to monitor cannot be run; the exit code is a shell's."""

    exit_code = 127


class OutputError(UsageError):
    """The output directory cannot be used."""


@contextlib.contextmanager
def writing(action: str, hint: str = "") -> Iterator[None]:
    """Turn an OSError into an OutputError with the sentence ``cannot <action>: <reason>.`` and the
    ``hint``."""
    try:
        yield
    except OSError as error:
        raise OutputError(f"cannot {action}: {error.strerror or error}.", hint=hint) from None


@contextlib.contextmanager
def terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM, which ends a job at its time limit, raises KeyboardInterrupt in the block, as Ctrl-C does."""

    def interrupt(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    # Python leaves signals to the main thread.
    ours = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, interrupt) if ours else None
    try:
        yield
    finally:
        if ours:
            signal.signal(signal.SIGTERM, before)


def first_line(error: BaseException) -> str:
    """The first line of an exception's message without the period at its end, or the name of its class."""
    return str(error).strip().partition("\n")[0].rstrip(".!") or type(error).__name__


def described(error: BaseException) -> str:
    """The class of an exception, its message, and its place in the user's code: ``TypeError: message
    (file.py:12)``."""
    import sysconfig
    import traceback

    installed = (*sysconfig.get_paths().values(), str(Path(__file__).parent), "<")
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(installed)
    ]
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {first_line(error)}{place}"


class DataError(RooflinesError):
    """A file we were given cannot be read."""

    exit_code = 2


class RunError(DataError):
    """Not a run directory, or a corrupt one."""


class TraceError(DataError):
    """Not a PyTorch trace, or a corrupt one."""


class OutOfMemoryError(RooflinesError):
    """The workload did not fit into memory; the partial run stays on disk."""

    exit_code = 2


class Interrupted(RooflinesError):
    """Ctrl-C; the partial run stays on disk."""

    exit_code = 130
