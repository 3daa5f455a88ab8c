"""Names of a module that are imported on first use (PEP 562)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy(module: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of ``module``. ``homes`` has the home of each name: ``package.module``, or
    ``package.module:other_name``."""

    def of(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        home, _, other = homes[name].partition(":")
        value = getattr(import_module(home), other or name)
        setattr(sys.modules[module], name, value)
        return value

    return of
