"""A process that a recorded program has started and that runs PyTorch: its run goes to a directory of its
own, to its end.

Nothing is printed, and no ceilings are measured: the process that began it all does that when its program has
ended.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
from pathlib import Path

import msgspec
from msgspec.structs import replace

from rooflines.profiler.distributed import rank_of_program
from rooflines.profiler.read.sources import shown
from rooflines.profiler.record.collect import Recording
from rooflines.profiler.record.device import program_device
from rooflines.profiler.record.hard_end import HardEnds
from rooflines.profiler.record.script import Doing, ProgramDriver
from rooflines.profiler.records import Settings, Workload
from rooflines.profiler.samplers.clock import now_ns
from rooflines.serial import write_json

PROCESS_FILE = "process.json"
# Below the directory of the program, while nothing is known of its rank.
PREFIX = "process-"


class ChildOrder(msgspec.Struct, frozen=True, kw_only=True):
    """How the children of a program are recorded: below ``directory``, with the ``workload`` and ``settings``
    of the program."""

    directory: str
    workload: Workload
    settings: Settings
    device: str

    def text(self) -> str:
        """As a variable of the environment."""
        return msgspec.json.encode(self).decode()


class ChildProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A recorded child: what its program calls it, and its ``rank``, if it has one. ``process.json`` in its
    directory.

    One that has called modules in other threads than the main one (``in_threads``) was not recorded
    meanwhile.
    """

    pid: int
    name: str
    began_ns: int
    rank: int | None = None
    in_threads: bool = False


class Child(ProgramDriver):
    """Records this process from its first module or optimizer until it ends; it is never stopped before."""

    def __init__(self, order: ChildOrder) -> None:
        place, workload = Path(order.directory, f"{PREFIX}{os.getpid()}"), order.workload
        script = os.path.basename(sys.argv[0] or "")
        if script.endswith(".py"):
            workload = replace(workload, name=shown(script))
        self._process = ChildProcess(pid=os.getpid(), name=_name(), began_ns=now_ns())
        recording = Recording(place, workload, program_device(order.device), settings=order.settings)
        super().__init__(recording, to_end=True)
        recording.passes.ranges = self.hooks.ranges
        self._ended = False

    @staticmethod
    def begun(order: str) -> ProgramDriver | None:
        """What records this process from here on by ``order``; None where a recording is on, or a GPU cannot
        be used after a fork.

        On another thread than the main one, which alone can begin a profiler, that is noted.
        """
        import torch

        given = msgspec.json.decode(order, type=ChildOrder)
        if threading.current_thread() is not threading.main_thread():
            process = ChildProcess(pid=os.getpid(), name=_name(), began_ns=now_ns(), in_threads=True)
            place = Path(given.directory, f"{PREFIX}{process.pid}-threads")
            place.mkdir(parents=True)
            write_json(place / PROCESS_FILE, process)
            return None
        if Recording.is_active() or (torch.cuda._is_in_bad_fork() and torch.cuda.device_count()):
            return None
        return Child(given)._begin()

    def _begin(self) -> ProgramDriver:
        self._recording.__enter__()
        self._note()
        self.hooks.__enter__()
        HardEnds(lambda _: self.finish()).__enter__()
        atexit.register(self.finish)
        if (
            util := sys.modules.get("multiprocessing.util")
        ) is not None:  # its processes end without exit handlers
            util.Finalize(None, self.finish, exitpriority=-1000)
        return self

    def finish(self) -> None:
        """The process ends."""
        if self._ended or self._process.pid != os.getpid():
            return
        self._ended = True
        with contextlib.suppress(Exception):
            self.close("the process")

    def _on_doing(self, doing: Doing) -> None:
        # The rank is noted once there is one.
        if self._process.rank is None and (rank := rank_of_program()) is not None:
            self._process = replace(self._process, rank=rank)
            self._note()
        super()._on_doing(doing)

    def _note(self) -> None:
        write_json(self._recording.place / PROCESS_FILE, self._process)


def _name() -> str:
    """What multiprocessing calls this process, or its command."""
    process = getattr(sys.modules.get("multiprocessing.process"), "current_process", None)
    name = process().name if process is not None else "MainProcess"
    return shown(" ".join(sys.argv)) if name == "MainProcess" else name
