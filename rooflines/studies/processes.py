"""Run a job in a separate process and receive its messages."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import msgspec

from rooflines.studies.records import Failed, Job, Message

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
_END_S = 5.0


def messages(job: Job, threads: int | None = None) -> Iterator[Message]:
    """What the worker says while it does ``job``, as it says it. One that dies without a word is a ``Failed`` with its last words,
    and so is an answer that cannot be read, which ends the job.

    The worker runs in its own session, so that Ctrl-C reaches only this process; leaving the loop ends it.
    """
    with tempfile.TemporaryFile() as complaints:
        worker = subprocess.Popen(
            [sys.executable, "-m", "rooflines.studies.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=complaints,
            start_new_session=True,
            env=environment(threads),
        )
        assert worker.stdin is not None
        assert worker.stdout is not None
        try:
            with contextlib.suppress(BrokenPipeError):
                worker.stdin.write(msgspec.json.encode(job))
                worker.stdin.close()
            for line in worker.stdout:
                try:
                    message = msgspec.json.decode(line, type=Message)
                except msgspec.DecodeError as error:
                    yield Failed(f"its process sent an invalid message ({error}).")
                    return
                yield message
            if worker.wait() != 0:
                complaints.seek(0)
                yield Failed(_last_words(complaints.read().decode(errors="replace"), worker.returncode))
        finally:
            worker.stdout.close()
            end(worker)


def environment(threads: int | None) -> dict[str, str]:
    """This process's environment, with the variables that bound the threads of every library where a number is given."""
    return {**os.environ, **(dict.fromkeys(_THREAD_VARIABLES, str(threads)) if threads else {})}


def end(worker: subprocess.Popen[bytes]) -> None:
    """End ``worker`` if it still runs: asked first, then made to."""
    if worker.poll() is not None:
        return
    worker.terminate()
    try:
        worker.wait(_END_S)
    except subprocess.TimeoutExpired:
        worker.kill()
        worker.wait()


def _last_words(text: str, code: int) -> str:
    """The end of what a worker complained about, on one line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    how = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
    words = lines[-1] if lines else ""
    if code == -9:
        words = words or "often the system's response to a lack of memory"
    return f"its process ended ({how}){': ' if words else ''}{words[:300]}"
