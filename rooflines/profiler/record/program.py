"""A program that runs in this process as it does under ``python``."""

from __future__ import annotations

import atexit
import builtins
import contextlib
import gc
import importlib.machinery
import io
import os
import runpy
import signal
import sys
import threading
import types
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, NoReturn, TextIO

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

# Where the files of our hooks are.
_OURS = str(Path(__file__).parents[1]) + os.sep


class Program(NamedTuple):
    """A script, or with ``is_module`` a module (``python -m``), with its own command line; ``name`` is its
    path or its name."""

    name: str
    arguments: list[str]
    is_module: bool = False

    def run(self, is_over: Callable[[], bool] = lambda: False) -> None:
        """Run it to its end, its threads included, as the module ``__main__`` with its own command line and
        search path.

        What ends it is printed as Python prints it, unless it ``is_over`` for us, and raised. Afterwards this
        process is as it was before, until it exits: the program's handlers at exit find what the program
        left. A child that the program forked ends here.
        """
        before, owner = _Surroundings(), os.getpid()
        ours = own_stream(sys.stdout), own_stream(sys.stderr)
        before.streams = sys.stdin, *ours
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        main.__dict__.update(__builtins__=builtins, __annotations__={})
        sys.argv = [self.name, *self.arguments]
        if not getattr(sys.flags, "safe_path", False):
            # In the place of the entry that Python made for our own command.
            made = {os.getcwd(), str(Path(before.argv[0]).resolve().parent)}
            sys.path[: bool(made & {*sys.path[:1]})] = [
                os.getcwd() if self.is_module else str(Path(self.name).resolve().parent)
            ]
        ending: BaseException | None = None
        try:
            if self.is_module:
                # as Python itself calls it
                runpy._run_module_as_main(self.name)  # type: ignore[attr-defined]
            else:
                self._run_file(main)
            _wait_for_threads()
        except BaseException as error:
            ending = error
            if isinstance(error, Enough) or is_over():
                main = before.main  # its own handlers at exit may miss it, and the device's memory is free
            else:
                _print_ending(error)
            raise
        finally:
            if os.getpid() != owner:
                _end_child(ending)
            after = _Surroundings()
            after.main = main
            before.restore()
            atexit.unregister(gc.freeze)  # of our command line: cycles of the program end as Python ends them
            for stream in {*ours} - {*after.streams}:
                atexit.register(stream.close)
            atexit.register(
                after.restore
            )  # runs before the handlers of the program, which were registered earlier

    def _run_file(self, own: types.ModuleType) -> None:
        path = os.path.join(os.getcwd(), self.name.removeprefix("./"))  # as Python shows it
        own.__dict__.update(
            __file__=path, __cached__=None, __loader__=importlib.machinery.SourceFileLoader("__main__", path)
        )
        with io.open_code(path) as file:
            code = compile(file.read(), path, "exec", dont_inherit=True)
        exec(code, own.__dict__)


class Enough(BaseException):
    """Everything is recorded: unwind the program. Not an Exception, so that the program's own handlers let it
    pass."""


class _Surroundings:
    """What a program may change of this process, as it is now: command line, search path, directory, main
    module, streams, limits."""

    def __init__(self) -> None:
        self.argv, self._path, self.main = sys.argv, list(sys.path), sys.modules["__main__"]
        self.streams = sys.stdin, sys.stdout, sys.stderr
        self._limits = _limits()
        self._directory: str | None = None
        with contextlib.suppress(OSError):  # it is gone
            self._directory = os.getcwd()

    def restore(self) -> None:
        """Make this process so again."""
        _flush()
        sys.argv, sys.path[:], sys.modules["__main__"] = self.argv, self._path, self.main
        sys.stdin, sys.stdout, sys.stderr = self.streams
        for kind, limit in self._limits.items():
            with contextlib.suppress(OSError, ValueError):  # the program gave it up for good
                resource.setrlimit(kind, limit)
        if self._directory is not None:
            with contextlib.suppress(OSError):
                os.chdir(self._directory)


def own_stream(stream: TextIO) -> TextIO:
    """A stream that writes to where ``stream`` does now, by a descriptor of its own; ``stream`` itself where
    it has none."""
    try:
        return open(os.dup(stream.fileno()), "w", encoding=stream.encoding, errors=stream.errors, buffering=1)
    except (AttributeError, OSError, ValueError):  # None, closed, or in memory
        return stream


def _limits() -> dict[int, tuple[int, int]]:
    """The limits of memory, files and their size, within which we write our reports."""
    kinds = (
        (resource.RLIMIT_AS, resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE) if resource is not None else ()
    )
    return {kind: resource.getrlimit(kind) for kind in kinds}


def _end_child(ending: BaseException | None) -> NoReturn:
    """End a child that the program forked and that has come to the program's end: what follows is for the
    parent."""
    code = ending.code if isinstance(ending, SystemExit) else None if ending is None else 1
    atexit._run_exitfuncs()
    _flush()
    if isinstance(ending, KeyboardInterrupt):
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.raise_signal(signal.SIGINT)
    os._exit(code if isinstance(code, int) else int(code is not None))


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        with contextlib.suppress(Exception):  # closed, or of the program's own
            stream.flush()  # type: ignore[union-attr]


def _print_ending(ending: BaseException) -> None:
    """Print what ended the program, as Python does: the text of an exit, or any other exception by
    ``sys.excepthook``."""
    if isinstance(ending, SystemExit):
        if ending.code is not None and not isinstance(ending.code, int) and sys.stderr is not None:
            with contextlib.suppress(Exception):
                print(ending.code, file=sys.stderr)  # noqa: T201
    else:
        seen: set[int] = set()
        links: list[BaseException | None] = [ending]
        while links:
            if (link := links.pop()) is not None and id(link) not in seen:
                seen.add(id(link))
                link.__traceback__ = _without_ours(link.__traceback__)
                links += [link.__cause__, link.__context__]
        sys.excepthook(type(ending), ending, ending.__traceback__)


def _without_ours(trace: types.TracebackType | None) -> types.TracebackType | None:
    """``trace`` without the frames of hooks."""
    every = []
    while trace is not None:
        every.append(trace)
        trace = trace.tb_next
    for one in reversed(every):
        if not one.tb_frame.f_code.co_filename.startswith(_OURS):
            one.tb_next, trace = trace, one
    return trace


def _wait_for_threads() -> None:
    """Wait for the threads that Python waits for at the end of a program; those of pools end when it
    exits."""
    pools = sys.modules.get("concurrent.futures.thread")
    for thread in threading.enumerate():
        if (
            not thread.daemon
            and thread is not threading.current_thread()
            and thread not in getattr(pools, "_threads_queues", ())
        ):
            thread.join()
