"""What a program starts with: its own allocations, followed by tracemalloc, or what records it as a child of a recorded program.

Every interpreter imports this module when it starts with this folder in PYTHONPATH. It need not be ours and need not have rooflines
installed, so that only the standard library is imported, of Python 3.9 or newer. With ``OUTPUT`` in the environment the allocations are
followed, their peak and the lines that held most of it, unless that file is there already; what the program starts is not followed.
With ``ORDER`` the program is recorded where it runs PyTorch (``recording.children``), if rooflines is installed for it. The program
finds ``sys.path``, its environment and its own ``sitecustomize`` as they would be without this module.
"""

from __future__ import annotations

import _thread
import atexit
import os
import sys
import time
import tracemalloc
from collections.abc import Mapping
from typing import Any

OUTPUT = "ROOFLINES_PYTHON_MEMORY"
ORDER = "ROOFLINES_CHILD"
SCHEMA = "rooflines.python_memory/1"
_HERE = os.path.dirname(os.path.abspath(__file__))

# tracemalloc does not keep the lines of the peak, so they are read whenever more is held than ever before by this factor, for as long
# as reading them has taken no more than this share of the time.
_GROWTH = 1.05
_SHARE = 0.05
_FIRST_WAIT_S, _LAST_WAIT_S = 0.01, 0.2
_SITES = 30


def environment(output: str, current: Mapping[str, str], name: str = OUTPUT) -> dict[str, str]:
    """The environment ``current`` for a program whose interpreter writes what it allocates to the file ``output``."""
    path = current.get("PYTHONPATH")  # an empty one means none, but behind a separator the working directory
    return {**current, name: output, "PYTHONPATH": _HERE if path is None else f"{_HERE}{os.pathsep}{path or _HERE}"}


def child_environment(order: str, current: Mapping[str, str]) -> dict[str, str]:
    """The environment ``current`` for a program that is recorded by ``order`` if it runs PyTorch."""
    return environment(order, current, ORDER)


def _leave_no_trace() -> None:
    """Undo ``environment``, and import the ``sitecustomize`` that would have been imported without it."""
    _, separator, path = os.environ["PYTHONPATH"].partition(os.pathsep)
    if separator:
        os.environ["PYTHONPATH"] = "" if path == _HERE else path
    else:
        del os.environ["PYTHONPATH"]
    sys.path[:] = [place for place in sys.path if place != _HERE]
    ours = sys.modules.pop(__name__)
    try:
        __import__(__name__)
    except ImportError as error:
        if error.name != __name__:
            raise
        sys.modules[__name__] = ours


class Follower:
    """Follows the allocations of this process from ``start`` to ``finish`` and keeps the file ``output`` up to date meanwhile.

    A program that ends without exit handlers (a signal, ``os._exit``) leaves the last snapshot, and the file marks it as unfinished.
    """

    def __init__(self, output: str) -> None:
        self._output = output
        self._process = os.getpid()
        self._directory = os.getcwd()
        self._memory: dict[str, Any] = {
            "schema": SCHEMA, "python": ".".join(map(str, sys.version_info[:3])), "ended": False, "peak_bytes": 0,
            "sites_at_bytes": 0, "sites": [], "tracemalloc_bytes": 0,
        }  # fmt: skip
        self._one_at_a_time = _thread.allocate_lock()
        self._stop = _thread.allocate_lock()
        self._reading_s, self._began_s = 0.0, time.perf_counter()

    def start(self) -> None:
        if not tracemalloc.is_tracing():  # -X tracemalloc and PYTHONTRACEMALLOC have begun before us
            tracemalloc.start()
        self._write()
        self._stop.acquire()
        # Not a threading.Thread: the program would see it in threading.enumerate().
        _thread.start_new_thread(self._watch, ())

    def finish(self) -> None:
        """Read for the last time and write the file; does nothing in a process that was forked from the one that started."""
        if self._process == os.getpid():
            self._stop.release()
            self._look(ending=True)

    def _watch(self) -> None:
        wait_s = _FIRST_WAIT_S
        while not self._stop.acquire(timeout=wait_s):
            # Soon again while more and more is held.
            wait_s = _FIRST_WAIT_S if self._look() else min(2 * wait_s, _LAST_WAIT_S)

    def _look(self, ending: bool = False) -> bool:
        """Note the peak, and read the lines where more is held than when they were last read; whether it is."""
        with self._one_at_a_time:
            # A program that uses tracemalloc itself may have ended it, or reset its peak.
            held, peak = tracemalloc.get_traced_memory()
            memory = self._memory
            memory["ended"] = ending
            memory["peak_bytes"] = max(memory["peak_bytes"], peak)
            memory["tracemalloc_bytes"] = max(memory["tracemalloc_bytes"], tracemalloc.get_tracemalloc_memory())
            affordable = ending or self._reading_s <= _SHARE * (time.perf_counter() - self._began_s)
            grown: bool = held > memory["sites_at_bytes"] * _GROWTH
            reading = grown and affordable and tracemalloc.is_tracing()
            if reading:
                begun_s = time.thread_time()
                memory["sites_at_bytes"], memory["sites"] = held, self._sites()
                self._reading_s += time.thread_time() - begun_s
            if reading or ending:
                self._write()
            return grown

    def _sites(self) -> list[dict[str, Any]]:
        ours = (__file__, tracemalloc.__file__)
        lines = [line for line in tracemalloc.take_snapshot().statistics("lineno") if line.traceback[0].filename not in ours]
        return [
            {
                "file": self._shown(line.traceback[0].filename),
                "line": line.traceback[0].lineno,
                "bytes": line.size,
                "blocks": line.count,
            }
            for line in lines[:_SITES]
        ]

    def _shown(self, path: str) -> str:
        """``path`` below the working directory or below the place it was imported from, so that no home directory is named."""
        if path.startswith("<"):
            return "<import>" if "importlib" in path else path
        for root in (self._directory, *sorted((place for place in sys.path if place), key=len, reverse=True)):
            if path.startswith(root.rstrip(os.sep) + os.sep):
                return path[len(root.rstrip(os.sep)) + 1 :]
        return os.sep.join(path.split(os.sep)[-2:])

    def _write(self) -> None:
        import json

        temporary = f"{self._output}.{self._process}"
        try:
            with open(temporary, "w", encoding="utf-8") as file:
                json.dump(self._memory, file, indent=1)
            os.replace(temporary, self._output)
        except OSError:
            pass  # a full disk does not concern the program; the reader of the file reports that it is missing


def record(order: str) -> Any:
    """Record this process by ``order``: called when it runs PyTorch."""
    from rooflines.profiler.recording.child import Child

    return Child.begun(order)


_output, _order = os.environ.pop(OUTPUT, None), os.environ.pop(ORDER, None)
if _output is not None or _order is not None:
    _leave_no_trace()
    if _order is not None:
        try:
            from rooflines.profiler.recording.children import Children
        except ImportError:
            pass  # the interpreter of another environment
        else:
            Children(_order, child_environment, record).__enter__().wait()
    if _output is not None and not os.path.exists(_output):
        _follower = Follower(_output)
        # Registered first and so called last: after the program's own threads and exit handlers.
        atexit.register(_follower.finish)
        _follower.start()
