"""Rows and gaps: the time of counted calls and the time without a count, by signature, module and phase."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rooflines.profiler.read.intervals import Intervals
from rooflines.profiler.read.records import Int64s, LaunchShape
from rooflines.profiler.read.signature import Signature
from rooflines.roofline.count.formulas import CallCount, Work
from rooflines.units import percent

# The share of the calls whose kernel may be lost: times are not known better, and the lost kernel may be all
# of its call.
_MOST_LOST = 0.05
# The share of the time of a row that may be shared with other threads.
_MOST_SHARED = 0.1


class LaunchedKernel(NamedTuple):
    """Device work of an operator by name: calls and nanoseconds, each event's duration, and its streams.

    ``shape`` is the grid and the block where all of its launches have the same one, and so are ``registers``
    and ``shared_bytes``; ``occupancy`` is the mean over the time of its launches, None where one of them has
    none.
    """

    name: str
    calls: int
    time_ns: float
    streams: tuple[int, ...] = ()
    shape: LaunchShape | None = None
    registers: int | None = None
    shared_bytes: int | None = None
    occupancy: float | None = None


class Longest(NamedTuple):
    """The longest of the events that a row's time consists of: its begin and length in the trace, its step
    and its stream.

    ``step`` is -1 outside of steps, ``stream`` -1 on a host.
    """

    start_ns: int
    lasting_ns: int
    step: int
    stream: int = -1


@dataclass(frozen=True, slots=True)
class TimeRow:
    """All calls of one signature in one module and phase: nanoseconds and calls over the window.

    A gap is a row without a count: an operator's, or a kernel's or graph's by its name, with the reason;
    ``module`` is -1 where no operator launched it.

    On a CPU ``time_ns`` is steady: the sum of the lower quartiles of its call sites. ``step_ns`` is the time
    in each step as traced and ``step_calls`` the calls in it, empty of a trace with fewer than two.
    ``inferred`` says what was inferred from other events in the trace, None where nothing. ``exposed_ns`` is
    the time of its copies and collectives that nothing of a higher priority hides (``partition.py`` on the
    priority), of a row without any the time in which no other kernel runs; None on a CPU. ``alternates_ns``
    are the times of calls of attention of which every other one is short, and the rest long. ``caller`` is
    the nearest operator around most of its calls on a device that is none of ATen's: of autograd, another
    library, compiled code; empty without. ``lost`` is the number of its launches whose kernels the trace
    lacks, ``shared`` the share of its time in which operators of other threads of a CPU ran, too: ``time_ns``
    then has its part of that time, an equal one for each thread.
    """

    signature: Signature
    count: CallCount
    module: int
    phase: int
    calls: int
    time_ns: float
    inferred: str | None = None
    step_ns: tuple[float, ...] = ()
    kernels: tuple[LaunchedKernel, ...] = ()
    exposed_ns: float | None = None
    step_calls: tuple[int, ...] = ()
    longest: Longest | None = None
    alternates_ns: tuple[float, float] | None = None
    caller: str = ""
    lost: int = 0
    shared: float = 0.0

    @property
    def doubt(self) -> str | None:
        """Why no rate follows from its time; None where one does."""
        if self.lost > _MOST_LOST * self.calls:
            return f"too little device time: the trace has no kernel for {self.lost:,} of its launches"
        if self.shared > _MOST_SHARED:
            return (
                f"operators of other threads ran in {percent(self.shared)} of its time: its part of "
                "the processor is not known"
            )
        return None

    @property
    def name(self) -> str:
        """The name of the operator, kernel or graph."""
        return self.signature.name

    @property
    def work(self) -> Work:
        """The work of one call; none of a row without a count."""
        return self.count.work or Work()

    @property
    def is_complex(self) -> bool:
        """Whether it computes on complex numbers."""
        return any("complex" in tensor.dtype for tensor in self.signature.tensors)

    @property
    def reason(self) -> str:
        """Why a gap has no count."""
        return self.count.reason

    @property
    def traced_ns(self) -> float:
        """The time as traced: steady times are those of ``time_ns``."""
        return sum(self.step_ns) if self.step_ns else self.time_ns

    def scaled(self, factor: float) -> TimeRow:
        """Return the row with all of its times multiplied by ``factor``."""
        return replace(
            self,
            time_ns=self.time_ns * factor,
            step_ns=tuple(time_ns * factor for time_ns in self.step_ns),
            kernels=tuple(kernel._replace(time_ns=kernel.time_ns * factor) for kernel in self.kernels),
            exposed_ns=None if self.exposed_ns is None else self.exposed_ns * factor,
        )


class Pieces(NamedTuple):
    """The busy time of the window in pieces: which event ran from when to when, and the index of its row (-2
    - the index of a gap).

    ``event`` indexes the device events, or on a CPU the host events. ``call`` numbers the calls of rows: the
    pieces of one have the same number (-1: a gap's). Pieces of one thread of a CPU do not overlap; those of
    streams may. On a CPU ``weight`` is the steady time of the event over its own (``host.py``); None is 1.
    """

    event: Int64s
    start_ns: Int64s
    end_ns: Int64s
    row: Int64s
    call: Int64s
    weight: npt.NDArray[np.float64] | None = None


class DividedTime(NamedTuple):
    """The time of the windows divided among rows and gaps. ``busy`` is when anything ran, ``orphans`` the
    number of device events whose launch is not in the trace, ``graphs_ns`` the device time of what was
    launched as a graph, ``matched_ns`` that with known operators."""

    rows: tuple[TimeRow, ...]
    gaps: tuple[TimeRow, ...]
    pieces: Pieces
    busy: Intervals
    orphans: int = 0
    graphs_ns: int = 0
    matched_ns: int = 0


def by_step(
    group: Int64s,
    groups: int,
    step: Int64s,
    steps: int,
    sums: Callable[[Int64s, int], npt.NDArray[Any]] = lambda group, groups: np.bincount(
        group, minlength=groups
    ),
) -> list[tuple[int, ...]]:
    """The ``sums`` by group of each step, by default how many calls began in it; empty with fewer than two
    steps."""
    if steps < 2:
        return [()] * groups
    found = sums(group * steps + np.maximum(step, 0), groups * steps)
    return [tuple(each) for each in found.reshape(groups, steps).tolist()]


def longest_by_group(
    group: Int64s,
    groups: int,
    start_ns: Int64s,
    lasting_ns: Int64s,
    step: Int64s,
    stream: Int64s | None = None,
) -> list[Longest | None]:
    """The longest event of each of ``groups`` groups, the earliest of equals; None of a group without
    events."""
    found: list[Longest | None] = [None] * groups
    order = np.lexsort((-start_ns, lasting_ns, group))
    last = order[np.diff(group[order], append=-1) != 0]
    columns = (
        group[last],
        start_ns[last],
        lasting_ns[last],
        step[last],
        np.full(len(last), -1) if stream is None else stream[last],
    )
    for place, *values in zip(*(column.tolist() for column in columns), strict=True):
        found[place] = Longest(*values)
    return found
