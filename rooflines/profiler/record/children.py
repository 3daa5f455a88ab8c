"""Processes that a recorded program starts: what they need so that each that runs PyTorch is recorded, too
(``child``).

A Python program starts with our start-up file, by variables in its environment alone: those of the program
that starts it stay as they are. A forked process goes on with what it inherits. Both wait for the first
module that is called, or the first optimizer, and then ``begin``. Nothing is imported for it: this module is
used in every Python program that is started. Windows starts processes otherwise, and is not followed.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import re
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

from rooflines.profiler.hooks.replaced import Function, replaced, when_imported

_PYTHON = re.compile(r"(python|pypy)[0-9.]*[a-z]?")
_SHELL = re.compile(r"(ba|da|k|z)?sh")
# Commands that would show our variables; folders may have these names.
_SHOWS = re.compile(r"\b(env|printenv|set|declare|rooflines)\b(?!/)")
# With these options the interpreter takes neither our variables nor our file.
_ISOLATED = re.compile(r"-[a-zA-VYZ]*[IES]")


class Children:
    """Context manager: Python programs and forked processes that are started inside are followed, and those
    that they start.

    ``environment`` returns the variables for a program that starts with ``order``, and ``begin`` records this
    process by it and returns its ``recorder`` (``script.ProgramDriver``), None where it cannot. Workers of
    torch's loaders are left alone.
    """

    def __init__(
        self, order: str, environment: Callable[..., dict[str, str]], begin: Callable[[str], Any]
    ) -> None:
        self.recorder: Any = None
        self._order, self._environment, self._begin = order, environment, begin
        self._on = self._waits = self._is_noted = False
        self._replaced, self._hooks = contextlib.ExitStack(), contextlib.ExitStack()

    def __enter__(self) -> Children:
        if not hasattr(os, "register_at_fork"):
            return self
        import _posixsubprocess
        import posix

        subprocess = sys.modules.get("subprocess")  # imported later, it takes ours from there
        self._on = True
        os.register_at_fork(after_in_child=self._forked)
        for way in (
            replaced("fork_exec", self._starting, _posixsubprocess),
            replaced("_fork_exec", self._starting, subprocess),  # since Python 3.11
            replaced("posix_spawn", self._spawning, os, posix),  # which subprocess calls since Python 3.13
        ):
            self._replaced.enter_context(way)
        return self

    def __exit__(self, *_: object) -> None:
        self._on = False
        self._replaced.close()

    # --- programs -----------------------------------------------------------------------------------------

    def _starting(self, start: Function) -> Function:
        @functools.wraps(start)
        def started(*arguments: Any) -> Any:
            given = [*arguments]  # words, places of the program, three others, the environment
            with contextlib.suppress(Exception):
                if self._on and self._follows(given[0], given[1]):
                    given[5] = self._with_order(given[5])
            return start(*given)

        return started

    def _spawning(self, start: Function) -> Function:
        @functools.wraps(start)
        def spawned(path: Any, words: Any, environment: Any, /, **rest: Any) -> Any:
            with contextlib.suppress(Exception):
                if self._on and self._follows(words, [path]):
                    pairs = {
                        os.fsdecode(name): os.fsdecode(value)
                        for name, value in (os.environ if environment is None else environment).items()
                    }
                    environment = self._environment(self._order, pairs)
            return start(path, words, environment, **rest)

        return spawned

    def _follows(self, words: Sequence[Any], executables: Sequence[Any]) -> bool:
        follows = starts_python(words, executables)
        if (
            not follows
            and self.recorder is not None
            and not _PYTHON.match(name := os.path.basename(os.fsdecode(words[0])))
        ):
            self.recorder.others[name] = None
        return follows

    def _with_order(self, entries: Sequence[bytes] | None) -> list[bytes]:
        pairs = (os.fsdecode(entry).partition("=") for entry in entries or ())
        current = os.environ if entries is None else {name: value for name, _, value in pairs}
        return [
            os.fsencode(f"{name}={value}") for name, value in self._environment(self._order, current).items()
        ]

    # --- this process -------------------------------------------------------------------------------------

    def _forked(self) -> None:
        if self._on:
            with contextlib.suppress(Exception):
                recorder, self.recorder = self.recorder, None
                if recorder is not None:
                    recorder.leave()
                self.wait()

    def wait(self) -> None:
        """Record this process from its first module or optimizer on."""
        if not self._waits:
            self._waits = True
            self._hooks.enter_context(when_imported("torch", self._watch))

    def _watch(self) -> None:
        from torch.nn.modules import module
        from torch.optim import Optimizer

        self._hooks.enter_context(module.register_module_forward_pre_hook(self._before_forward))
        self._hooks.enter_context(replaced("__init__", self._making, Optimizer))

    def _making(self, make: Function) -> Function:
        @functools.wraps(make)
        def made(optimizer: Any, *arguments: Any, **keywords: Any) -> None:
            from torch.optim import Optimizer

            self._record()
            (make if self._waits else Optimizer.__init__)(optimizer, *arguments, **keywords)

        return made

    def _before_forward(self, module: Any, inputs: Any) -> None:
        import torch

        if not torch.compiler.is_compiling():
            self._record()
            if self.recorder is not None:
                with contextlib.suppress(Exception):
                    self.recorder.called(module, inputs)

    def _record(self) -> None:
        """Begin, unless this is a worker of a loader. On another thread than the main one, where steps are,
        that notes the process."""
        workers = sys.modules.get("torch.utils.data._utils.worker")
        main = threading.current_thread() is threading.main_thread()
        if getattr(workers, "_worker_info", None) is not None or (self._is_noted and not main):
            return
        if main:
            self._waits = False
            self._hooks.close()
        self._is_noted = True
        with contextlib.suppress(Exception):
            self.recorder = self._begin(self._order)


def starts_python(arguments: Sequence[Any], executables: Sequence[Any]) -> bool:
    """Whether the first of ``executables`` that exists, called with ``arguments``, is a Python program that
    takes our start-up file.

    A shell whose command names one counts, too. Programs of ours are none: they record by themselves.
    """
    words = [os.fsdecode(word) for word in arguments]
    path = next((path for path in map(os.fsdecode, executables) if os.path.isfile(path)), "")
    if any(os.path.basename(word).partition(".")[0] == "rooflines" for word in words[:3]):
        return False
    if _SHELL.fullmatch(os.path.basename(path)):
        return words[1:2] == ["-c"] and "python" in words[2] and not _SHOWS.search(words[2])
    if not _PYTHON.fullmatch(os.path.basename(path)):
        with open(path, "rb") as file:  # a script: the line that names its interpreter
            line = file.readline(512).decode(errors="replace")
        if not line.startswith("#!") or "python" not in line:
            return False
        words = line.split()
    options = itertools.takewhile(lambda word: word.startswith("-"), words[1:])
    return not any(map(_ISOLATED.match, options))
