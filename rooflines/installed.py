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
    if not _are_mentioned(group, tuple(sys.path)):
        return {}
    from importlib.metadata import entry_points

    return {entry.name: entry.value for entry in entry_points(group=f"rooflines.{group}")}


@cache
def _are_mentioned(group: str, folders: tuple[str, ...]) -> bool:
    """Whether a distribution in ``folders`` may have entry points of this group of ours.

    Parsing those of all distributions takes as long as a small trace.
    """
    heading = re.compile(rf"^\s*\[\s*rooflines\.{group}\s*\]".encode(), re.MULTILINE)
    ends = (".dist-info", ".egg-info", "EGG-INFO")
    for folder in folders:
        try:
            found = [entry.path for entry in os.scandir(folder or ".") if entry.name.endswith(ends)]
        except NotADirectoryError:  # an archive
            return True
        except OSError:
            continue
        for path in found:
            with contextlib.suppress(OSError), open(os.path.join(path, "entry_points.txt"), "rb") as file:
                if heading.search(file.read()):
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
