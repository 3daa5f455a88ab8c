"""Following the imports of a program: nothing is imported for it."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from typing import Any


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


class _Finder:
    """A finder of modules that finds none itself, and calls ``then`` once the module ``name`` has been imported."""

    def __init__(self, name: str, then: Callable[[], None]) -> None:
        self._name = name
        self._then = then

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """The module's own spec with its loader's end extended, by the finders after this one."""
        if name != self._name:
            return None
        self.remove()
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            execute = loader.exec_module

            def exec_module(module: Any) -> None:
                execute(module)
                self._then()

            loader.exec_module = exec_module
        return spec

    def remove(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)
