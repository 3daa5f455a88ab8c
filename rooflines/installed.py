"""What packages add by their entry points: commands, samplers, formulas, rules of findings, report formats.

A group is ``rooflines.`` and what it adds.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any

from rooflines.errors import UsageError


def entries(group: str) -> dict[str, str]:
    """The entry points of a group: ``module`` or ``module:object`` by name. Imports none of them."""
    mentioned = _mentioned(tuple(sys.path))
    if mentioned is not None and group not in mentioned:
        return {}
    from importlib.metadata import entry_points

    return {entry.name: entry.value for entry in entry_points(group=f"rooflines.{group}")}


_OURS = re.compile(rb"^\s*\[\s*rooflines\.(\w+)\s*\]", re.MULTILINE)
_INFORMATION = (".dist-info", ".egg-info", "EGG-INFO")


@cache
def _mentioned(folders: tuple[str, ...]) -> frozenset[str] | None:
    """The groups of ours in which a distribution in ``folders`` has entry points; None where that is not
    known.

    The files are read once and not parsed: parsing those of all distributions takes as long as a small trace.
    """
    groups: set[str] = set()
    for folder in folders:
        try:
            found = [entry.path for entry in os.scandir(folder or ".") if entry.name.endswith(_INFORMATION)]
        except NotADirectoryError:  # an archive
            return None
        except OSError:
            continue
        for path in found:
            with contextlib.suppress(OSError), open(os.path.join(path, "entry_points.txt"), "rb") as file:
                groups.update(name.decode() for name in _OURS.findall(file.read()))
    return frozenset(groups)


@cache
def load_all(group: str) -> tuple[Any, ...]:
    """What the entry points of a group name. Raises UsageError naming one that cannot be imported."""
    return tuple(load(group, name, value) for name, value in entries(group).items())


def load(group: str, name: str, value: str) -> Any:
    """What one entry point names. Raises UsageError where it cannot be imported."""
    from importlib.metadata import EntryPoint

    with explained(f"the {group} {name!r} ({value})"):
        return EntryPoint(name, value, group).load()


@contextlib.contextmanager
def explained(source: str) -> Iterator[None]:
    """Turn any error of foreign code into a UsageError that names its ``source``."""
    try:
        yield
    except Exception as error:
        raise UsageError(f"{source} cannot be loaded: {type(error).__name__}: {error}.") from error
