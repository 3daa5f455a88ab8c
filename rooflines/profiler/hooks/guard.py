"""Our code inside of the user's program: what goes wrong in it ends our observation and never reaches the
program."""

from __future__ import annotations

import functools
import traceback
import weakref
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Guard:
    """Makes functions safe for hooks: none raises an Exception, and each returns None after one. ``notes``
    gets a sentence of it.

    One in a function ``around`` the recording ends that: ``end`` is called, and from then on none of the
    functions. One in a function ``about`` an object of the program ends the observation of that object only.
    What ends a program (Ctrl-C, ``sys.exit``) passes through.
    """

    def __init__(self, notes: list[str] | None = None, end: Callable[[], object] = lambda: None) -> None:
        self._notes, self._end = [] if notes is None else notes, end
        self._left: dict[int, Callable[[], Any]] = {}  # objects that are observed no more
        self.has_failed = False

    def around(self, ours: Callable[P, T]) -> Callable[P, T | None]:
        """``ours``, without which there is no recording."""

        @functools.wraps(ours)
        def guarded(*arguments: P.args, **keywords: P.kwargs) -> T | None:
            if self.has_failed:
                return None
            try:
                return ours(*arguments, **keywords)
            except Exception as error:
                self.has_failed = True
                self._note("the recording ended with an error of its own,", error)
                self._end()
                return None

        return guarded

    def about(self, ours: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T | None]:
        """``ours``, whose first argument is the object that it observes."""

        @functools.wraps(ours)
        def guarded(observed: Any, /, *arguments: P.args, **keywords: P.kwargs) -> T | None:
            if self.has_failed or (self._left and self._left.get(id(observed), lambda: None)() is observed):
                return None
            try:
                return ours(observed, *arguments, **keywords)
            except Exception as error:
                try:
                    self._left[id(observed)] = weakref.ref(observed)
                except TypeError:
                    self._left[id(observed)] = lambda: observed
                self._note(f"an object of {type(observed).__name__} is left alone after", error)
                return None

        return guarded

    def _note(self, what: str, error: Exception) -> None:
        place = traceback.extract_tb(error.__traceback__)[-1]
        self._notes.append(f"{what} {error!r} ({place.name}, line {place.lineno})")
