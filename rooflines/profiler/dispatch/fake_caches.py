"""Results that functions keep for their next call (``functools.lru_cache``): fake ones must not outlive the step that made them."""

from __future__ import annotations

import functools
import gc
from types import FunctionType, ModuleType
from typing import Any, Final

from torch._subclasses.fake_tensor import FakeTensor

_CACHED: Final = type(functools.lru_cache(lambda: None))
_DEPTH: Final = 4  # the function, its entries, an entry, the result, what the result holds


def empty_caches_of_fakes() -> None:
    """Empty every cache of a function that has a fake tensor in it: the next call on real tensors would get that one."""
    for found in gc.get_objects():
        if type(found) is _CACHED and _holds_fake(found, _DEPTH):
            found.cache_clear()


def _holds_fake(value: Any, depth: int) -> bool:
    if isinstance(value, FakeTensor):
        return True
    if not depth or isinstance(value, (FunctionType, ModuleType, type)):
        return False
    return any(_holds_fake(held, depth - 1) for held in gc.get_referents(value))
