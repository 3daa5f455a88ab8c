"""Python's own allocations of a program, followed by tracemalloc: their peak, and the lines that held most of it.

This file is run by the program's own interpreter, which need not be ours and need not have rooflines installed: it imports the standard
library only, of Python 3.9 or newer. ``traced_command`` puts it into a command; what it then runs finds ``sys.argv``, ``sys.path``,
``__main__``, its exit code and its tracebacks as they would be without it. Only the process itself is followed, not those that it
starts.

The directory of this file is first in ``sys.path`` while it starts: no module in it may be called like one that it imports.
"""

from __future__ import annotations

import _thread
import atexit
import os
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

SCHEMA = "rooflines.python_memory/1"

# Options of the interpreter in one word: those without a value. The others take the rest of the word, or the next one.
_WITHOUT_VALUE = frozenset("bBdEiIOPqRsSuv")
_WITH_VALUE = frozenset("WX")

# tracemalloc does not keep whose the peak was, so the lines are read whenever more is held than ever before by this factor, for as long
# as reading them has taken no more than this share of the time.
_GROWTH = 1.05
_SHARE = 0.05
_FIRST_WAIT_S, _LAST_WAIT_S = 0.01, 0.2
_SITES = 30

# What a loop that only makes small objects and drops them takes with tracemalloc and without, in turn.
_OBJECTS, _OBJECT_BYTES, _PAIRS = 4_000, 64, 5


def traced_command(command: Sequence[str], output: str) -> list[str] | None:
    """``command``, a call of a Python interpreter, changed so that it also writes what it allocated to the file ``output``.

    None where it names no program: what it runs is typed at its prompt, or comes through its standard input.
    """
    at = 1
    while at < len(command):
        word = command[at]
        if word == "--check-hash-based-pycs":
            at += 2
            continue
        if not word.startswith("-"):
            return [*command[:at], __file__, output, *command[at:]]
        if word == "-" or word.startswith("--"):
            return None
        for position, letter in enumerate(word[1:], start=1):
            value = word[position + 1 :]
            if letter in ("c", "m"):
                others = [word[:position]] if position > 1 else []
                program = [*([value] if value else []), *command[at + 1 :]]
                return [*command[:at], *others, __file__, output, f"-{letter}", *program] if program else None
            if letter in _WITH_VALUE:
                at += not value
                break
            if letter not in _WITHOUT_VALUE:
                return None
        at += 1
    return None


def main() -> None:
    """Run the program that this interpreter's command line names behind ``output``, in its ``__main__``."""
    output, program = os.path.abspath(sys.argv[1]), sys.argv[2:]
    if hasattr(sys, "orig_argv"):
        at = sys.orig_argv.index(__file__)
        del sys.orig_argv[at : at + 2]
    # Registered first and so called last: after the program's own threads and exit handlers.
    atexit.register((follower := Follower(output)).finish)
    try:
        _prepared(program)(follower)
    except BaseException:
        _leave_us_out()
        raise


def _prepared(program: list[str]) -> Callable[[Follower], None]:
    """What runs ``program``, with ``sys.argv``, ``sys.path`` and ``__main__`` as the interpreter would have made them."""
    kind = program[0] if program[0] in ("-c", "-m") else ""
    # From 3.11 on -I implies safe_path.
    safe = getattr(sys.flags, "safe_path", False) or sys.flags.isolated
    # Absolute but not normalized, as the interpreter has it.
    path = os.path.join(os.getcwd(), program[0])
    if not safe:
        sys.path[0] = "" if kind == "-c" else os.getcwd() if kind == "-m" else os.path.dirname(os.path.realpath(path))
    if kind == "-m":
        sys.argv = ["-m", *program[2:]]
        return lambda follower: _run_module(follower, program[1], True)
    if kind == "-c":
        sys.argv = ["-c", *program[2:]]
        return lambda follower: _run_source(follower, program[1], "<string>", {})
    sys.argv = program
    if os.path.isdir(path) or path.endswith((".zip", ".pyz")):
        if safe:
            sys.path.insert(0, path)
        else:
            sys.path[0] = path
        return lambda follower: _run_module(follower, "__main__", False)
    from importlib.machinery import SourceFileLoader

    try:
        with open(path, "rb") as file:
            source = file.read()
    except OSError as error:
        sys.exit(_refused(f"{sys.executable}: can't open file {path!r}: [Errno {error.errno}] {error.strerror}"))
    facts = {"__loader__": SourceFileLoader("__main__", path), "__file__": path, "__cached__": None}
    return lambda follower: _run_source(follower, source, path, facts)


def _run_source(follower: Follower, source: str | bytes, name: str, facts: dict[str, Any]) -> None:
    namespace = _emptied_main()
    namespace.update(facts)
    follower.start()
    exec(compile(source, name, "exec", dont_inherit=True), namespace)


def _run_module(follower: Follower, name: str, alter_argv: bool) -> None:
    import runpy

    _emptied_main()
    follower.start()
    # What the interpreter itself calls for -m, for directories and for archives.
    runpy._run_module_as_main(name, alter_argv)  # type: ignore[attr-defined]


def _emptied_main() -> dict[str, Any]:
    """The namespace of ``__main__``, where pickle and multiprocessing look for the program, without any of our names."""
    import builtins

    namespace = sys.modules["__main__"].__dict__
    namespace.clear()
    namespace.update(__name__="__main__", __doc__=None, __package__=None, __spec__=None, __loader__=None, __builtins__=builtins)
    if sys.version_info < (3, 14):
        namespace["__annotations__"] = {}
    return namespace


def _refused(message: str) -> int:
    sys.stderr.write(f"{message}\n")
    return 2


def _leave_us_out() -> None:
    """Have the traceback that the interpreter is about to print begin with the program's own frames."""
    hook = sys.excepthook

    def shown(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
            trace = trace.tb_next
        hook(kind, error.with_traceback(trace), trace)

    sys.excepthook = shown


class Follower:
    """Follows the allocations of this process from ``start`` to ``finish`` and keeps the file ``output`` up to date meanwhile.

    A program that ends without exit handlers (a signal, ``os._exit``) leaves the last reading, marked as such in the file.
    """

    def __init__(self, output: str) -> None:
        self._output = output
        self._process = 0
        self._directory = os.getcwd()
        self._began_s = self._reading_s = 0.0
        self._peak_bytes = self._sites_at_bytes = self._tracemalloc_bytes = self._readings = 0
        self._sites: list[dict[str, Any]] = []
        self._cost: dict[str, float] = {}
        self._one_at_a_time = _thread.allocate_lock()
        self._stop = _thread.allocate_lock()

    def start(self) -> None:
        self._process = os.getpid()
        if not tracemalloc.is_tracing():  # -X tracemalloc and PYTHONTRACEMALLOC have begun before us
            self._cost = allocation_cost()
            tracemalloc.start()
        self._began_s = time.perf_counter()
        self._stop.acquire()
        # Not a threading.Thread: the program would see it in threading.enumerate().
        _thread.start_new_thread(self._watch, ())

    def finish(self) -> None:
        """Read for the last time and write the file; does nothing in a process that was forked from the one that started."""
        if self._process != os.getpid():
            return
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
            self._peak_bytes = max(self._peak_bytes, peak)
            self._tracemalloc_bytes = max(self._tracemalloc_bytes, tracemalloc.get_tracemalloc_memory())
            affordable = ending or self._reading_s <= _SHARE * (time.perf_counter() - self._began_s)
            grown = held > self._sites_at_bytes * _GROWTH
            if grown and affordable and tracemalloc.is_tracing():
                self._read(held)
                self._write(ending)
            elif ending:
                self._write(ending)
            return grown

    def _read(self, held_bytes: int) -> None:
        begun_s = time.thread_time()
        lines = tracemalloc.take_snapshot().statistics("lineno")
        self._sites = [
            {
                "file": self._shown(line.traceback[0].filename),
                "line": line.traceback[0].lineno,
                "bytes": line.size,
                "blocks": line.count,
            }
            for line in lines
            if line.traceback[0].filename not in (__file__, tracemalloc.__file__)
        ][:_SITES]
        self._sites_at_bytes = held_bytes
        self._readings += 1
        self._reading_s += time.thread_time() - begun_s

    def _shown(self, path: str) -> str:
        """``path`` relative to the working directory or to the place of import; no path reveals a home directory."""
        if path.startswith("<"):
            return "<import>" if "importlib" in path else path
        for root in (self._directory, *sorted((place for place in sys.path if place), key=len, reverse=True)):
            if path.startswith(root.rstrip(os.sep) + os.sep):
                return path[len(root.rstrip(os.sep)) + 1 :]
        return os.sep.join(path.split(os.sep)[-2:])

    def _write(self, ended: bool) -> None:
        import json

        content = {
            "schema": SCHEMA,
            "python": ".".join(map(str, sys.version_info[:3])),
            "ended": ended,
            "peak_bytes": self._peak_bytes,
            "sites_at_bytes": self._sites_at_bytes,
            "sites": self._sites,
            "tracemalloc_bytes": self._tracemalloc_bytes,
            "readings": self._readings,
            "reading_s": self._reading_s,
            **self._cost,
        }
        temporary = f"{self._output}.{self._process}"
        try:
            with open(temporary, "w", encoding="utf-8") as file:
                json.dump(content, file, indent=1)
            os.replace(temporary, self._output)
        except OSError:
            # A full disk must not affect the program; the reader of the file reports that it is missing.
            return


def allocation_cost() -> dict[str, float]:
    """Seconds of a processor that it takes here to make a small object and drop it, with tracemalloc and without.

    Medians of loops run in turn.
    """
    times: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(_PAIRS):
        for traced in (False, True):
            if traced:
                tracemalloc.start()
            begun_s = time.thread_time()
            for _ in range(_OBJECTS):
                bytes(_OBJECT_BYTES)
            times[traced].append((time.thread_time() - begun_s) / _OBJECTS)
            if traced:
                tracemalloc.stop()
    return {"object_s": statistics.median(times[False]), "traced_object_s": statistics.median(times[True])}


if __name__ == "__main__":
    # In a separate module: the namespace of this one becomes the program's.
    from importlib.util import module_from_spec, spec_from_file_location

    _spec = spec_from_file_location("_rooflines_python_memory", __file__)
    assert _spec is not None
    assert _spec.loader is not None
    _module = module_from_spec(_spec)
    _spec.loader.exec_module(_module)
    _module.main()
