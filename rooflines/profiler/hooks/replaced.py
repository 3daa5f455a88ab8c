"""Attributes of other people's modules and classes with ours in their place, for a while, and following the
imports of a program: nothing is imported for it."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

# A function of another library, with any arguments and any result.
Function: TypeAlias = Callable[..., Any]


@contextlib.contextmanager
def replaced(name: str, by: Callable[[Any], Any], *owners: Any) -> Iterator[None]:
    """Inside, the attribute ``name`` of all ``owners`` is what ``by`` makes of that of the first; nothing
    happens where it has none.

    All places where an object is found by name get ours, so that it can be pickled. Where the program, or
    another tool, has put something else there meanwhile, that stays.
    """
    if not hasattr(owners[0], name):
        yield
        return
    original = getattr(owners[0], name)
    ours = by(original)
    for owner in owners:
        setattr(owner, name, ours)
    try:
        yield
    finally:
        for owner in owners:
            if getattr(owner, name, None) is ours:
                setattr(owner, name, original)


@contextlib.contextmanager
def when_imported(name: str, then: Callable[[], None]) -> Iterator[None]:
    """Call ``then`` once the module ``name`` is there: now, or after its import inside the context."""
    finder = _Finder(name, then)
    if name in sys.modules:
        then()
    else:
        sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        finder.remove()


@dataclass(eq=False)
class _Finder:
    """A finder of modules that finds none itself, and calls ``then`` once the module ``name`` has been
    imported."""

    name: str
    then: Callable[[], None]

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """The module's own spec with its loader's end extended, by the finders after this one."""
        if name != self.name:
            return None
        self.remove()
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            execute = loader.exec_module

            def exec_module(module: Any) -> None:
                execute(module)
                self.then()

            loader.exec_module = exec_module
        return spec

    def remove(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)
