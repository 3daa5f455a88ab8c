"""Run a job in its own process and receive its result."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from rooflines.errors import RooflinesError
from rooflines.profiler.progress import Progress
from rooflines.sweeps.records import Job
from rooflines.sweeps.worker import Failed, Found, Message, Stage

_THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)
_END_S = 5.0
# A job's time limit ends all of its processes: where another one was terminated first, this one is told in a
# moment.
_TOGETHER_S = 0.5


class JobError(RooflinesError):
    """A job that could not be done."""


def run_job(
    job: Job, progress: Progress, *, found: Callable[[bytes], None] | None = None, log: Path | None = None
) -> bytes:
    """Run ``job`` and return its result as JSON; ``found`` is called with every result so far.

    What the process prints goes to the file ``log``. Raises JobError with the reason, also for a process that
    dies. An exception of ``found`` ends the process.
    """
    result: bytes | None = None
    with contextlib.closing(messages(job, log)) as said:  # type: ignore[type-var]
        for message in said:
            if isinstance(message, Stage):
                progress.stage(message.text, message.total)
            elif isinstance(message, Found):
                result = bytes(message.result)
                if found is not None:
                    found(result)
            elif isinstance(message, Failed):
                raise JobError(message.reason, hint=message.hint)
            else:
                progress.advance()
    if result is None:
        raise JobError("its process ended without a result.")
    return result


def messages(job: Job, log: Path | None = None) -> Iterator[Message]:
    """Yield what a process sends while it does ``job``; one that dies, or that sends an invalid message, ends
    with a ``Failed``.

    The process runs in its own session, so that Ctrl-C reaches only this one; leaving the loop ends it.
    """
    with log.open("w+b") if log is not None else tempfile.TemporaryFile() as printed:
        worker = subprocess.Popen(
            [sys.executable, "-m", "rooflines.sweeps.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=printed,
            start_new_session=True,
            env={**environment(job.threads), **job.environment},
            cwd=job.folder if os.path.isdir(job.folder) else None,
        )
        assert worker.stdin is not None
        assert worker.stdout is not None
        try:
            with contextlib.suppress(BrokenPipeError):
                worker.stdin.write(msgspec.json.encode(job) + b"\n")
                worker.stdin.flush()
            for line in worker.stdout:
                yield msgspec.json.decode(line, type=Message)
            if worker.wait() == -signal.SIGTERM:
                time.sleep(_TOGETHER_S)
            if worker.returncode != 0:
                printed.seek(0)
                yield Failed(_last_words(printed.read().decode(errors="replace"), worker.returncode))
        except msgspec.DecodeError as error:
            yield Failed(f"its process sent an invalid message ({error}).")
        finally:
            worker.stdout.close()
            end(worker)
            with contextlib.suppress(BrokenPipeError):
                worker.stdin.close()


def environment(threads: int | None) -> dict[str, str]:
    """Return this process's environment, with the variables that bound the threads of every library where a
    number is given."""
    return {**os.environ, **(dict.fromkeys(_THREAD_VARIABLES, str(threads)) if threads else {})}


def end(worker: subprocess.Popen[bytes]) -> None:
    """End ``worker`` and all processes of its group: ask first, then kill. After an orderly end those that it
    left are only asked.

    A process that waits inside a driver cannot be killed; it is left behind.
    """
    orderly = worker.poll() is not None
    with contextlib.suppress(ProcessLookupError, PermissionError):  # none is left
        os.killpg(worker.pid, signal.SIGTERM)
        if orderly:
            return
        until = time.monotonic() + _END_S
        while time.monotonic() < until:
            worker.poll()
            os.killpg(worker.pid, 0)
            time.sleep(0.02)
        os.killpg(worker.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        worker.wait(_END_S)


def _last_words(text: str, code: int) -> str:
    """The end of what a process printed, on one line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    how = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
    words = lines[-1] if lines else ""
    if code == -9:
        words = "often the system's response to a lack of memory"
    return f"its process ended ({how}){': ' if words else ''}{words[:300]}"
