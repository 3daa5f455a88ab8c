"""Attributes of other people's modules and classes with ours in their place, for a while."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def replaced(name: str, by: Callable[[Any], Any], *owners: Any) -> Iterator[None]:
    """Inside, the attribute ``name`` of all ``owners`` is what ``by`` makes of that of the first; nothing happens where it has none.

    All places where an object is found by name get ours, so that it can be pickled. Where the program, or another tool, has put
    something else there meanwhile, that stays.
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
