"""The memory ladder as reads see it: bandwidth over log-spaced working sets, and how far each level really
reaches.

A system's own list of caches may promise more than a process gets: a virtual machine reports the whole L3 of
a chip that it shares with strangers, a container's quota does not show there at all. The curve does.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from rooflines.kernels.micro import stream
from rooflines.kernels.micro.team import Team

_SMALLEST = 8 << 10  # bytes a thread: below, what a pass costs beyond its loads shows
_PER_OCTAVE = 2
_ROUNDS = 5
_MOVED = 256 << 10  # bytes a thread and sample, at the least: some microseconds
_STEP = 1.25  # between two neighboring plateaus, below which the curve cannot tell them apart


class LadderPoint(NamedTuple):
    """One measurement of all threads: ``working_set_bytes`` in total, read repeatedly at ``byte_per_s``."""

    working_set_bytes: int
    byte_per_s: float


class Reach(NamedTuple):
    """A cache level as the system states it, and the largest working set that reads as fast as this level.

    ``reach_bytes`` is None where the curve has no step at the level's end: then it says nothing about the
    size.
    """

    level: str
    stated_bytes: int
    reach_bytes: int | None

    @property
    def contradicts(self) -> bool:
        """True where the level ends at less than half of what is stated, or beyond twice as much."""
        return (
            self.reach_bytes is not None
            and not self.stated_bytes / 2 <= self.reach_bytes <= self.stated_bytes * 2
        )


def curve(team: Team, largest_bytes: int, passes_s: float = 0.002) -> tuple[LadderPoint, ...]:
    """Read bandwidth at working sets from 8 KiB a thread up to ``largest_bytes`` in all, two an octave.

    Per processor time, so that a thread that lost its core does not look like the end of a cache. In rounds
    over all sizes, so that a clock that changes meanwhile changes all alike; of each size the median.
    ``passes_s`` seconds are aimed at for one sample.
    """
    step = stream.granule()
    steps = int(_PER_OCTAVE * math.log2(max(1.0, largest_bytes / team.size / _SMALLEST))) + 1
    lengths = [
        max(step, round(_SMALLEST * 2 ** (number / _PER_OCTAVE)) // 8 // step * step)
        for number in range(steps)
    ]
    # one array a thread, of which a working set is the beginning
    whole = [stream.aligned_array(lengths[-1]).view(np.int64) for _ in range(team.size)]
    team.run([partial(own.fill, 1) for own in whole])
    rates: list[list[float]] = [[] for _ in lengths]
    guess = 10e9  # bytes a second and thread, until a size has been timed
    for _ in range(_ROUNDS + 1):  # the first, which compiles and warms up, is thrown away
        for length, found in zip(lengths, rates, strict=True):
            known = found[-1] / team.size if found else guess
            passes = max(1, int(max(passes_s * known, _MOVED) / (8 * length)))
            took = team.run([partial(stream.read, own[:length], passes) for own in whole])
            found.append(8 * length * passes * team.size / (took.seconds * took.busy))
    return tuple(
        LadderPoint(8 * length * team.size, statistics.median(found[1:]))
        for length, found in zip(lengths, rates, strict=True)
    )


def reaches(points: Sequence[LadderPoint], caches: Sequence[tuple[str, int]]) -> tuple[Reach, ...]:
    """The extent of each of ``caches`` (level and stated capacity in bytes, from the core outwards) on a
    curve.

    A level's plateau is the fastest point that is too large for the level before and at most half of its own
    size; beyond the last level it is the median of the points above 1.5 times that level. A level ends where
    the rate falls below the geometric mean of its own plateau and the next.
    """
    plateaus: list[float | None] = []
    for number, (_, stated) in enumerate(caches):
        inside = 2 * caches[number - 1][1] if number else 0
        rates = [
            point.byte_per_s
            for point in points
            if inside <= point.working_set_bytes <= max(stated // 2, inside)
        ]
        plateaus.append(max(rates, default=None))
    outside = [
        point.byte_per_s for point in points if caches and point.working_set_bytes >= 1.5 * caches[-1][1]
    ]
    plateaus.append(statistics.median(outside) if outside else None)
    found = []
    for number, (level, stated) in enumerate(caches):
        here, beyond = plateaus[number : number + 2]
        reach = None
        if here is not None and beyond is not None and here >= _STEP * beyond:
            limit = math.sqrt(here * beyond)
            reach = max(
                (point.working_set_bytes for point in points if point.byte_per_s >= limit), default=None
            )
        found.append(Reach(level, stated, reach))
    return tuple(found)
