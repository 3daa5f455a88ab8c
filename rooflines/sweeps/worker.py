"""The process that a job runs in: reads the job from standard input and writes what it finds to standard
output, line by line.

One process per job keeps thread pools, allocators and the memory that is measured apart. ``process`` is the
other side. The process ends when its standard input is closed, which the system does for a parent that was
killed.
"""

from __future__ import annotations

import os
import sys
import threading
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import msgspec

from rooflines.errors import RooflinesError
from rooflines.serial import to_plain
from rooflines.sweeps.records import Job


class Stage(msgspec.Struct, frozen=True, tag="stage"):
    """A job begins something of ``total`` steps."""

    text: str
    total: int | None = None


class Advance(msgspec.Struct, frozen=True, tag="advance"):
    """One of the steps is done."""


class Found(msgspec.Struct, frozen=True, tag="found"):
    """The result so far: what an interruption keeps. The last one is the result."""

    result: msgspec.Raw


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The job could not be done."""

    reason: str
    hint: str = ""


Message: TypeAlias = Stage | Advance | Found | Failed


class WorkerChannel:
    """Where messages go: standard output as it was, while what others print goes to standard error. It is a
    ``Progress``."""

    def __init__(self) -> None:
        self._file: BinaryIO = os.fdopen(os.dup(1), "wb", buffering=0)
        os.dup2(2, 1)

    def stage(self, name: str, total: int | None = None) -> None:
        """A new stage of ``total`` steps begins."""
        self._send(Stage(name, total))

    def advance(self) -> None:
        """One step of the stage is done."""
        self._send(Advance())

    def found(self, result: object) -> None:
        """The result so far."""
        self._send(Found(msgspec.Raw(msgspec.json.encode(to_plain(result)))))

    def failed(self, reason: str, hint: str = "") -> None:
        """The job cannot be done."""
        self._send(Failed(reason, hint))

    def _send(self, message: Message) -> None:
        self._file.write(msgspec.json.encode(message) + b"\n")


def main() -> int:
    """Do the job; 0 unless something unforeseen happened."""
    channel = WorkerChannel()
    # Unbuffered: the thread below waits for the end of the same stream.
    stream = os.fdopen(os.dup(0), "rb", buffering=0)
    job = msgspec.json.decode(stream.readline(), type=Job)
    threading.Thread(target=_end_with_parent, args=(stream,), daemon=True).start()
    module, _, name = job.function.partition(":")
    function: Any = getattr(import_module(module), name)
    try:
        channel.found(function(dict(job.options), Path(job.directory), channel))
    except RooflinesError as error:
        channel.failed(error.message, error.hint)
    except MemoryError:
        channel.failed("there was not enough memory.", "Use smaller batches or fewer samples.")
    return 0


def _end_with_parent(stream: Any) -> None:
    while stream.read(1):
        pass
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
