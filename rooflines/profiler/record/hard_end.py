"""Ends of a process that run no exit handler: ``os._exit``, and a program that puts another one in its place
(``os.exec*``)."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import sys
import threading
from collections.abc import Callable
from typing import Any

from rooflines.profiler.hooks.replaced import Function, replaced

# All others of ``os.exec*`` call these.
_EXECS = ("execv", "execve")


class HardEnds:
    """Context manager: before the program ends this process in such a way, ``end`` is called with how:
        ``os._exit``.

    Another thread than the one that enters calls ``elsewhere``: what is recorded cannot be ended there. What
    the program has not flushed stays unflushed. Nothing that is raised reaches the program. Processes forked
    from this one end as they do.
    """

    def __init__(self, end: Callable[[str], object], elsewhere: Callable[[], object] = lambda: None) -> None:
        self._end, self._elsewhere = end, elsewhere
        self._owner, self._thread = os.getpid(), threading.get_ident()
        self._open = contextlib.ExitStack()

    def __enter__(self) -> HardEnds:
        home = sys.modules[os._exit.__module__]  # posix or nt
        for name in ("_exit", *_EXECS):
            self._open.enter_context(replaced(name, self._ending, os, home))
        return self

    def __exit__(self, *_: object) -> None:
        self._owner = 0
        self._open.close()

    def _ending(self, call: Function) -> Function:
        @functools.wraps(call)
        def ending(*arguments: Any, **keywords: Any) -> Any:
            name = call.__name__
            if self._owner == os.getpid() and (name not in _EXECS or _can_run(*arguments, **keywords)):
                self._owner = 0
                how = f"os.{name}; the program in its place is not recorded" if name in _EXECS else "os._exit"
                # Through a file of our own: what the program has not flushed stays where it is.
                with (
                    contextlib.suppress(BaseException),
                    open(os.dup(1), "w") as output,
                    contextlib.redirect_stdout(output),
                ):
                    self._end(how) if threading.get_ident() == self._thread else self._elsewhere()
            return call(*arguments, **keywords)

        return ending


def _can_run(path: Any, *_: Any, **__: Any) -> bool:
    """Whether the system can run ``path``: ``os.execvp`` tries one folder after another."""
    return isinstance(path, int) or shutil.which(os.path.abspath(os.fsdecode(path))) is not None
