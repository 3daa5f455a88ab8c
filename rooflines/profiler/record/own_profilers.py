"""The program's own profilers. torch has one profiling session at a time, and the program's wins: ours stops
before it begins.

All of torch's Python interfaces (``torch.profiler``, ``torch.autograd.profiler``, ``emit_nvtx``,
``emit_itt``, Lightning's and Hugging Face's callbacks) prepare, start and stop a session by the same few
functions, which are wrapped here, as are those of the execution trace observer, whose file would contain our
ranges.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from rooflines.profiler.hooks.guard import Guard
from rooflines.profiler.hooks.replaced import Function, replaced

# By module of torch: what begins a session, and what ends one.
_SESSIONS = {
    "torch.autograd.profiler": (("_prepare_profiler", "_enable_profiler"), ("_disable_profiler",)),
    "torch.autograd.profiler_legacy": (("_enable_profiler_legacy",), ("_disable_profiler_legacy",)),
    "torch.profiler.profiler": (
        ("_enable_execution_trace_observer",),
        ("_disable_execution_trace_observer",),
    ),
}
# The module of torch that it was begun by, and its thread.
_Session: TypeAlias = tuple[str, int]
# Tools that sys.monitoring (Python 3.12) has numbers for.
_TOOLS = 6
_ours = threading.local()
# The profilers of our recordings, also of the one that a forked process began in.
OURS = weakref.WeakSet[Any]()


@contextlib.contextmanager
def own_session() -> Iterator[None]:
    """Inside, this thread starts or stops our session and not one of the program."""
    _ours.starts = True
    try:
        yield
    finally:
        _ours.starts = False


class OwnProfilers:
    """Context manager: while it is open, ``on_begin`` is called before the program's first session begins and
    ``on_end`` after its last one has ended, under ``lock``. ``on_export`` gets the path of each Chrome trace
    that the program has exported."""

    def __init__(
        self,
        on_begin: Callable[[], None],
        on_end: Callable[[], None],
        on_export: Callable[[str], None],
        guard: Guard,
        lock: contextlib.AbstractContextManager[Any],
    ) -> None:
        self._on_begin, self._on_end, self._on_export = (
            guard.around(on_begin),
            guard.around(on_end),
            guard.around(on_export),
        )
        self._process, self._lock = os.getpid(), lock
        self._sessions: list[_Session] = []  # one in another is there twice
        self._prepared: set[_Session] = set()
        self._replaced = contextlib.ExitStack()

    @property
    def active(self) -> bool:
        """Whether a session of the program is prepared or running."""
        return bool(self._sessions)

    def __enter__(self) -> OwnProfilers:
        import torch.autograd.profiler
        import torch.autograd.profiler_legacy
        import torch.profiler

        self._sessions = [("torch.autograd.profiler", threading.get_ident())] if _is_profiling() else []
        for name, (begins, ends) in _SESSIONS.items():
            for function in (*begins, *ends):
                begin = functools.partial(self._begin, name, function.startswith("_prepare"))
                around = begin if function in begins else functools.partial(self._end, name)
                self._replaced.enter_context(
                    replaced(function, functools.partial(self._watched, around), sys.modules[name])
                )
        export = functools.partial(self._watched, self._export)
        self._replaced.enter_context(replaced("export_chrome_trace", export, torch.autograd.profiler.profile))
        return self

    def __exit__(self, *_: object) -> None:
        self._replaced.close()

    def _watched(self, around: Function, theirs: Function) -> Function:
        @functools.wraps(theirs)
        def ours(*arguments: Any, **keywords: Any) -> Any:
            call = functools.partial(theirs, *arguments, **keywords)
            unwatched = getattr(_ours, "starts", False) or os.getpid() != self._process  # in a forked process
            return call() if unwatched else around(call, *arguments)

        return ours

    def _begin(self, name: str, prepares: bool, call: Callable[[], Any], *_: Any) -> Any:
        session = name, threading.get_ident()
        with self._lock:
            first, new = not self._sessions, prepares or session not in self._prepared
            self._sessions += [session] * new
            (self._prepared.add if prepares else self._prepared.discard)(session)
            if first:
                self._on_begin()
        try:
            return call()
        except BaseException:
            if new:
                self._ended(session)
            raise

    def _end(self, name: str, call: Callable[[], Any], *_: Any) -> Any:
        try:
            return call()
        finally:
            self._ended((name, threading.get_ident()))

    def _ended(self, session: _Session) -> None:
        with self._lock:
            if not self._sessions:
                return
            # A session that another thread began ends here, too.
            self._sessions.remove(session if session in self._sessions else self._sessions[0])
            self._prepared.discard(session)
            if not self._sessions:
                self._on_end()

    def _export(self, call: Callable[[], Any], _: Any, path: Any = None, *__: Any) -> Any:
        result = call()
        self._on_export(str(path))
        return result


def _is_profiling() -> bool:
    """Whether the program has a session of torch's profiler: one that is running, or one that is prepared
    (the warm-up of a schedule), which torch does not tell.

    ``gc.get_objects`` would also hold tuples that other threads are just making, which breaks them; referrers
    are what is looked for.
    """
    import torch
    from torch.profiler import ProfilerAction, profile

    if torch._C._autograd._profiler_enabled():
        return True
    kinds = [profile]
    for kind in kinds:
        kinds += kind.__subclasses__()
    theirs: Any = (
        each for each in gc.get_referrers(*kinds) if issubclass(type(each), profile) and each not in OURS
    )
    begun = (each.profiler for each in theirs if each.current_action != ProfilerAction.NONE)
    return any(session is not None and session.kineto_results is None for session in begun)


def python_profiler() -> str | None:
    """What observes this thread's Python code and slows it down: a profile or trace function, a tool of
    ``sys.monitoring``."""
    for name, held in (("sys.setprofile", sys.getprofile()), ("sys.settrace", sys.gettrace())):
        if held is not None:
            return f"the program's {name} ({getattr(held, '__name__', type(held).__name__)})"
    monitoring: Any = getattr(sys, "monitoring", None)
    tools = [monitoring.get_tool(number) for number in range(_TOOLS)] if monitoring is not None else []
    return next((f"the program's sys.monitoring ({tool})" for tool in tools if tool), None)
