"""Names of a module that are imported on first use (PEP 562), listed in its stub."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

_IMPORT = re.compile(r"^from (\S+) import (\w+) as (\w+)$", re.MULTILINE)


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


def stubbed(module: str, file: str) -> tuple[Callable[[str], Any], list[str], Callable[[], list[str]]]:
    """Return ``__getattr__``, ``__all__`` and ``__dir__`` of ``module``: the names that its stub, the
    ``.pyi`` beside ``file``, imports ``as`` its own, one a line. So one list serves type checkers and the
    interpreter."""
    # By the loader, because the package may lie in an archive.
    loader: Any = sys.modules[module].__spec__.loader  # type: ignore[union-attr]
    text = loader.get_data(f"{os.path.splitext(file)[0]}.pyi").decode()
    homes = {own: f"{home}:{name}" for home, name, own in _IMPORT.findall(text)}
    names = sorted(homes)
    return lazy(module, homes), names, lambda: sorted({*vars(sys.modules[module]), *names})
