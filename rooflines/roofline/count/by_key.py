"""What has a key in common: rows of one operator, times of one category."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import TypeVar

_Key = TypeVar("_Key")
_Item = TypeVar("_Item")


def longest_first(times: Iterable[tuple[_Key, float]]) -> dict[_Key, float]:
    """The sum of the times of each key, longest first; of equals the one that came first."""
    sums: dict[_Key, float] = defaultdict(float)
    for key, time_s in times:
        sums[key] += time_s
    return dict(sorted(sums.items(), key=lambda one: -one[1]))


def grouped(items: Iterable[_Item], key: Callable[[_Item], _Key]) -> dict[_Key, list[_Item]]:
    """The items of each key, in the order in which the keys came first."""
    groups: dict[_Key, list[_Item]] = defaultdict(list)
    for item in items:
        groups[key(item)].append(item)
    return groups
