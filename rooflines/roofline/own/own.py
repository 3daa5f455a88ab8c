"""The time of a trace divided: every nanosecond goes to one operator call, to the unmodeled list, or to
idle.

Calls are counted (``count/``), counted calls own what runs below them (``ownership.py``), and what they own
becomes rows (``host.py`` on a CPU, ``device.py`` on a GPU).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from rooflines.errors import TraceError
from rooflines.profiler.read import intervals
from rooflines.profiler.read.intervals import Intervals
from rooflines.profiler.read.records import CaptureTrace, Int64s, Mask, Trace
from rooflines.profiler.tree.idle import unrecorded_until
from rooflines.profiler.tree.lost import Lost, find_lost
from rooflines.profiler.tree.tree import PHASES, tree
from rooflines.profiler.tree.windows import (
    at_launch,
    belonging,
    earlier,
    lasting,
    launched_ns,
    step_number,
    step_window,
    whole_window,
)
from rooflines.profiler.tree.windows import inside as in_windows
from rooflines.roofline.count.cached_kernels import missing_kernels
from rooflines.roofline.count.count import count as count_calls
from rooflines.roofline.count.counts import Counts, Known, OfCounts
from rooflines.roofline.own.device import InWindows, attribute_device, busy_ns
from rooflines.roofline.own.graphs import find_origins
from rooflines.roofline.own.host import FEWEST_STEPS, attribute_host
from rooflines.roofline.own.origins import FROM_KERNEL, CountedTrace, with_scopes
from rooflines.roofline.own.ownership import find_owners
from rooflines.roofline.own.rows import Pieces, TimeRow
from rooflines.units import counted, seconds

# A note says what of the device's time is left out, from this share of the time that is counted.
_WORTH_A_NOTE = 0.01


@dataclass(frozen=True, slots=True)
class Attribution(OfCounts):
    """The divided time of the window: rows + gaps + idle - overlap = span, where ``overlap_ns`` is time in
    two rows, all as traced.

    ``windows`` has a row for each profiler step, or one for the whole trace, and ``span_ns`` is their length:
    that of the steps (``tree/windows.py``), or from the first to the last event. What else ran meanwhile is
    among the gaps. ``steps`` is the number of profiler steps, 0 when there are none; ``graphs_ns`` the device
    time of what was launched as a graph, ``matched_ns`` that with known operators. ``phase`` is the phase of
    what launched each device event (-1: not known), ``earlier_ns`` the device time of work launched before
    the recording, which is in no step. ``counts`` are those that were divided, their calls with the modules
    of captured graphs. ``notes`` are sentences about what was left out or inferred with doubt. ``factor`` is
    what all times of rows and gaps were multiplied by (``scaled``), ``factors`` those of single phases by
    name; windows and intervals stay as traced. ``quiet`` has an entry for each step of a processor, and
    ``ranges_ns`` is its time outside of operators that went into the ranges of modules. ``overhead`` is when
    the profiler worked and the device did not: it is in no window's time. ``lost`` is the work that is on one
    side of the trace only.
    """

    rows: tuple[TimeRow, ...]
    gaps: tuple[TimeRow, ...]
    pieces: Pieces
    windows: Intervals
    steps: int
    span_ns: int
    busy: Intervals
    phase: Int64s
    orphans: int
    graphs_ns: int
    matched_ns: int
    earlier_ns: int
    notes: tuple[str, ...]
    quiet: Mask
    overlap_ns: float
    ranges_ns: float
    overhead: Intervals
    lost: Lost
    factor: float = 1.0
    factors: Mapping[str, float] = field(default_factory=dict)

    @property
    def place(self) -> Int64s:
        """The number of the row of each piece of the time, those of gaps behind those of rows."""
        row = self.pieces.row
        return np.where(row >= 0, row, len(self.rows) - 2 - row)

    @property
    def per(self) -> int:
        """What sums over the window are divided by: the number of steps, 1 for a whole trace."""
        return self.steps or 1

    @property
    def is_steady(self) -> bool:
        """Whether the times of a processor are those of undisturbed calls: steps of a server differ in what
        they do."""
        return len(self.quiet) >= FEWEST_STEPS and not self.calls.batches

    def scaled(self, factor: float, factors: Mapping[str, float] | None = None) -> Attribution:
        """Return the same division with every time multiplied by ``factor``, in a phase that has one by that
        of ``factors``."""
        factors = factors or {}
        if factor == 1.0 and not factors:
            return self
        rows, gaps = (
            tuple(row.scaled(factors.get(PHASES[row.phase], factor)) for row in rows)
            for rows in (self.rows, self.gaps)
        )
        return replace(self, rows=rows, gaps=gaps, factor=factor, factors=factors)

    @property
    def window(self) -> Intervals:
        """The windows as one set of intervals, without the profiler's overhead."""
        return intervals.subtract(intervals.union(self.windows[:, 0], self.windows[:, 1]), self.overhead)

    @property
    def overhead_ns(self) -> int:
        """The time of the profiler that was left out of the windows."""
        return int(intervals.covered(self.overhead, self.windows).sum())

    @property
    def busy_ns(self) -> int:
        """Time in which at least one operator (CPU) or device event (GPU) ran."""
        return intervals.length(self.busy)

    @property
    def idle_ns(self) -> int:
        """The rest of the span."""
        return self.span_ns - self.busy_ns

    @property
    def pace(self) -> float:
        """What a traced second of the rows and gaps counts as."""
        traced_ns = self.busy_ns + self.overlap_ns
        return self.counted_ns / traced_ns if traced_ns else self.factor

    @property
    def counted_ns(self) -> float:
        """The time of all rows and gaps, on the clock of the step."""
        return sum(row.time_ns for row in (*self.rows, *self.gaps))


def own(counts: Counts) -> Attribution:
    """Divide the time of the trace's steps, or of the whole trace when it has none: the time of the device
    when the trace has device events, else that of the CPU. The fourth room (docs/design.md).

    Raises TraceError for captures of other graphs.
    """
    calls = counts.calls
    known = counts.known
    trace = calls.trace
    launch = calls.launch
    ownership = find_owners(counts)
    steps = step_window(calls)
    if steps is None:
        window = windows = whole_window(calls)
        inside = np.ones(len(trace.host), bool)
        count = 0
    else:
        window = steps
        windows = calls.steps
        inside = in_windows(trace.host.start_ns, steps)
        count = len(windows)
    if known.captures and not len(trace.device):
        raise TraceError("the trace has no device events, so a capture trace does not apply to it.")
    notes = calls.notes
    if calls.shared_ids:
        several = "Correlation ids shared by several launches, which were matched by time"
        notes += (f"{several}: {calls.shared_ids:,}.",)
    notes += (*missing_kernels(counts),)
    kept = np.zeros(0, bool)
    phase = np.zeros(0, np.int64)
    overhead = intervals.NONE
    earlier_ns = 0
    lost = Lost()
    if len(trace.device):
        captures = [_counted(capture, known) for capture in known.captures]
        origins, calls, about_graphs = find_origins(CountedTrace.of(counts, ownership), captures, inside)
        origins, calls = with_scopes(origins, calls, inside)
        phase = np.where(
            origins.inferred == FROM_KERNEL, at_launch(calls.phase, launch), origins.at(origins.phase)
        )
        phase = np.where(origins.scope_phase >= 0, origins.scope_phase, phase)
        before = earlier(calls) if steps is not None else np.zeros(len(trace.device), bool)
        belongs = belonging(calls, window, inside, before)
        if steps is not None:
            windows = lasting(calls, windows, belongs, before)
            if calls.batches:
                # A server prepares a step while the device is at the one before, which a recording of single
                # steps leaves out.
                windows[0, 0] = unrecorded_until(calls, windows, belongs)
                beside = belongs & (trace.device.start_ns < windows[0, 0])
                belongs &= ~beside
                owners = ownership.owner[launch[beside & (launch >= 0)]]
                inside[owners[owners >= 0]] = False
        overhead = intervals.subtract(
            trace.overhead, intervals.union(trace.device.start_ns, trace.device.end_ns)
        )
        window = intervals.subtract(intervals.union(windows[:, 0], windows[:, 1]), overhead)
        step = step_number(launched_ns(calls), calls.steps)
        lost = find_lost(calls, inside, belongs)
        divided = attribute_device(
            calls, origins, inside, InWindows(window, belongs, step, count), lost.launches
        )
        earlier_ns = busy_ns(trace, before)
        notes += (*about_graphs, *_left_out(trace, before, earlier_ns, window))
    else:
        step = step_number(trace.host.start_ns, calls.steps[:count])
        kept = known.quiet if known.quiet is not None and len(known.quiet) == count else np.ones(count, bool)
        divided = attribute_host(calls, window, counts, ownership, inside, step, kept)
    return Attribution(
        counts=replace(counts, calls=calls),
        windows=windows,
        steps=count,
        span_ns=intervals.length(window),
        phase=phase,
        earlier_ns=earlier_ns,
        notes=notes,
        quiet=kept,
        overhead=overhead,
        lost=lost,
        ranges_ns=known.range_ns * float(calls.module_calls.sum()),
        overlap_ns=sum(row.traced_ns for row in (*divided.rows, *divided.gaps))
        - intervals.length(divided.busy),
        **divided._asdict(),
    )


def _counted(capture: CaptureTrace, known: Known) -> CountedTrace:
    """The calls of a capture, counted like those of any trace."""
    counts = count_calls(
        tree(capture.trace), Known(parameter_dtype=known.parameter_dtype, inductor_cache=known.inductor_cache)
    )
    return CountedTrace.of(counts, find_owners(counts), name=capture.name, tokens=capture.tokens)


def _left_out(trace: Trace, before: Mask, earlier_ns: int, window: Intervals) -> Iterator[str]:
    """Notes on device time outside of the steps: of work launched before the recording, and of other work
    where it is worth one."""
    if before.any():
        work = f"{seconds(earlier_ns / 1e9)} of device time ({counted(int(before.sum()), 'event')})"
        yield f"{work} was launched before the recording began and is in no step."
    every = intervals.union(trace.device.start_ns[~before], trace.device.end_ns[~before])
    inside_ns = intervals.length(intervals.intersect(every, window))
    left_ns = intervals.length(every) - inside_ns
    if left_ns > _WORTH_A_NOTE * inside_ns:
        yield f"{seconds(left_ns / 1e9)} of device time lies outside the steps and is not counted."
