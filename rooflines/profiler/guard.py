"""Our code inside of the user's program: what goes wrong in it ends our observation and never reaches the program."""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Guard:
    """Makes functions safe for hooks: the first exception in one of them is given to ``on_failure`` as a sentence, and from then on
    none of them is called.

    Only an ``Exception`` counts: what ends a program (Ctrl-C, ``sys.exit``) passes through.
    """

    def __init__(self, on_failure: Callable[[str], None]) -> None:
        self._on_failure = on_failure
        self.has_failed = False

    def around(self, ours: Callable[P, T]) -> Callable[P, T | None]:
        """``ours`` as a function that raises no Exception: it returns None after one."""

        @functools.wraps(ours)
        def guarded(*arguments: P.args, **keywords: P.kwargs) -> T | None:
            if self.has_failed:
                return None
            try:
                return ours(*arguments, **keywords)
            except Exception as error:
                self.has_failed = True
                place = traceback.extract_tb(error.__traceback__)[-1]
                self._on_failure(f"the recording ended because of an error of its own: {error!r} ({place.name}, line {place.lineno})")
                return None

        return guarded
