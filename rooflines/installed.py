"""What other packages add by their entry points: samplers, formulas, rules of findings, report formats.

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
    if not _are_mentioned(tuple(sys.path)):
        return {}
    from importlib.metadata import entry_points

    return {entry.name: entry.value for entry in entry_points(group=f"rooflines.{group}")}


_OURS = re.compile(rb"^\s*\[\s*rooflines\.", re.MULTILINE)


@cache
def _are_mentioned(folders: tuple[str, ...]) -> bool:
    """Whether a distribution in ``folders`` may have entry points of ours. Parsing those of all takes as long as a small trace."""
    for folder in folders:
        try:
            found = [entry.path for entry in os.scandir(folder or ".") if entry.name.endswith((".dist-info", ".egg-info", "EGG-INFO"))]
        except NotADirectoryError:  # an archive
            return True
        except OSError:
            continue
        for path in found:
            with contextlib.suppress(OSError), open(os.path.join(path, "entry_points.txt"), "rb") as file:
                if _OURS.search(file.read()):
                    return True
    return False


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
