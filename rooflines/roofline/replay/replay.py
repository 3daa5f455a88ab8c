"""The replay of a window by its dependencies, as it was or with changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from rooflines.profiler.read.intervals import Intervals
from rooflines.profiler.read.records import Mask
from rooflines.roofline.replay.graph import StreamRun, WindowGraph
from rooflines.roofline.uncertainty import Floats


@dataclass(frozen=True, slots=True)
class Edit:
    """A change of a window; without arguments it is none."""

    #: what the time of each piece of work is multiplied by
    scale: Floats | float = 1.0
    #: what the host's time is multiplied by: before the first of ``times``, from each to the next, and
    #: after the last; nanoseconds since the window began
    times: Floats = field(default_factory=lambda: np.zeros(0))
    rates: Floats = field(default_factory=lambda: np.ones(1))
    #: the waits of the host that go
    without: Mask | np.bool_ = np.False_

    def joined(self, other: Edit) -> Edit:
        """Both changes."""
        times = np.array(sorted({*self.times.tolist(), *other.times.tolist()}))
        at = np.append(times[:1] - 1.0, times)
        return Edit(
            scale=self.scale * other.scale,
            times=times,
            rates=self.rate(at) * other.rate(at) if len(times) else self.rates * other.rates,
            without=self.without | other.without,
        )

    def part(self, part: float) -> Edit:
        """This part of the change; a wait goes with all of it or stays."""
        scale = 1.0 - part * (1.0 - self.scale)
        rates = 1.0 - part * (1.0 - self.rates)
        return replace(self, scale=scale, rates=rates, without=self.without & (part == 1.0))

    def rate(self, times: Floats) -> Floats:
        """What the host's time is multiplied by at ``times``."""
        rates: Floats = self.rates[np.searchsorted(self.times, times, side="right")]
        return rates

    def host(self, graph: WindowGraph, work_ns: Floats) -> Floats:
        """When the host has done the work that it had done at the work times ``work_ns``."""
        if not len(self.times):
            done: Floats = work_ns * self.rates[0]
            return done
        at = graph.work_time(self.times)
        new = at[0] * self.rates[0] + np.concatenate(([0.0], np.cumsum(np.diff(at) * self.rates[1:-1])))
        place = np.searchsorted(at, work_ns, side="right")
        near = np.maximum(place - 1, 0)
        later: Floats = new[near] + (work_ns - at[near]) * self.rates[place]
        return later


UNCHANGED = Edit()
HOST_IN_TIME = Edit(rates=np.zeros(1))
NO_WAITS = Edit(without=np.True_)


def cut(times: Sequence[tuple[Intervals, float]]) -> Edit:
    """The edit in which of each set of intervals of the host's time a share goes."""
    ends = np.array(sorted({end for each, _ in times for end in each.ravel().tolist()}), np.float64)
    rates = np.ones(len(ends) + 1)
    for each, share in times:
        inside = np.searchsorted(each[:, 0], ends, side="right") > np.searchsorted(
            each[:, 1], ends, side="right"
        )
        rates[1:] *= np.where(inside, 1.0 - share, 1.0)
    return Edit(times=ends, rates=rates)


def _between(graph: WindowGraph, edit: Edit) -> Floats:
    """From the end of the piece before each to its begin."""
    if graph.own_ns is None:
        return graph.next_ns
    begin, end = (edit.host(graph, times) for times in graph.own_ns)
    return end - begin


def replay(graph: WindowGraph, edits: Sequence[Edit]) -> Floats:
    """When the window ends with each of ``edits``, in nanoseconds since it began: all in the same passes."""
    count = len(edits)
    pieces = len(graph.event)
    lasting = np.stack([graph.lasting_ns * edit.scale for edit in edits])
    launched = np.where(graph.launched, graph.launch_ns, 0.0)
    launch, wait, host_end = (
        np.stack([edit.host(graph, times) for edit in edits])
        for times in (launched, graph.wait_ns, np.array([graph.host_ns]))
    )
    following = np.stack([_between(graph, edit) for edit in edits])
    bound = graph.target >= 0
    binds = np.stack([bound & ~edit.without for edit in edits])
    end = np.full((count, pieces + 1), -np.inf)
    waited = np.zeros((count, len(graph.wait_ns) + 1))
    for step in graph.order:
        if isinstance(step, StreamRun):
            here = slice(step.first, step.end)
            ready = np.where(graph.launched[here], launch[:, here], graph.launch_ns[here])
            ready = ready + graph.arrival_ns[here] + waited[:, graph.waits_before[here]]
            ready = np.maximum(ready, end[:, graph.after[here]] + graph.after_ns[here])
            own = lasting[:, here] + graph.kept_ns[here]
            total = np.cumsum(own + following[:, here], axis=1)
            reached = total + np.maximum.accumulate(ready + own - total, axis=1)
            end[:, here] = np.maximum(reached, end[:, step.before, None] + total)
        else:
            begin = wait[:, ~step] + waited[:, ~step]
            done = np.where(binds[:, ~step], end[:, graph.target[~step]] + graph.return_ns[~step], -np.inf)
            waited[:, ~step + 1] = waited[:, ~step] + np.maximum(graph.call_ns[~step], done - begin)
    last: Floats = np.maximum(
        np.max(end[:, :-1][:, graph.launched], axis=1, initial=0.0),
        host_end[:, 0] + waited[:, graph.host_waits],
    )
    return last
