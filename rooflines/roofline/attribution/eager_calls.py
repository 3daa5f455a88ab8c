"""Eager calls that give the work of replayed kernels, for graphs without a capture.

A run of the whole graph before its capture (the warm-up) is equivalent to the capture: the same kernels with the same grids and blocks
in the same order. A single kernel determines less. The grid of a product does not contain the summed dimension or the part inside a
tile, that of a reduction not the length of what is reduced, and that of an element-wise kernel not which operands are broadcast. Only
PyTorch's vectorized kernels have contiguous operands of one size, which the grid determines to within one block. Their work is that of
the eager calls if these have one signature and run nothing else, and if one block of the grid does not matter; their module is not
known. Grids must be recorded on both sides, which ROCm does not do for replays.
"""

from __future__ import annotations

import numpy as np

from rooflines.profiler.trace.graphs import is_graph_launch
from rooflines.profiler.trace.nesting import Mask
from rooflines.profiler.trace.records import MEMCPY, MEMSET, Int64s
from rooflines.roofline.attribution.origins import CountedTrace

_VECTORIZED = "vectorized_elementwise_kernel"
# One block is then 1 % of the elements.
_LEAST_BLOCKS = 100
# Fewer kernels in order are a coincidence.
_LEAST_RUN = 3
_MOST_PLACES = 4096


class EagerCalls:
    """The calls of the trace that launched their kernels themselves."""

    def __init__(self, one: CountedTrace) -> None:
        launch = one.calls.launch
        trace, host, device = one.trace, one.trace.host, one.trace.device
        eager = np.flatnonzero((launch >= 0) & (~is_graph_launch(trace)[launch] if len(host) else False))
        order = np.lexsort((device.start_ns[eager], host.start_ns[launch[eager]], host.thread[launch[eager]]))
        self._launch = launch[eager[order]]
        copies = np.isin(device.kind, (MEMCPY, MEMSET))
        shapes = np.where(copies, -2, device.shape).astype(np.int64)
        # The name and the launch shape of each device event in one number.
        self._code = device.name.astype(np.int64) * (len(trace.launch_shapes) + 2) + shapes + 2
        self._complete = copies | (device.shape >= 0)
        self._eager = self._code[eager[order]]
        owner = one.ownership.owner[self._launch]
        self._variant = np.where(owner >= 0, one.counts.of_event[owner], -1) if len(host) else owner
        launches = np.bincount(owner[owner >= 0], minlength=len(host))
        self._alone = np.where(owner >= 0, launches[owner] == 1, False) if len(host) else owner
        named = np.array([_VECTORIZED in name for name in trace.names] or [False], bool)
        blocks = np.array([*(x * y * z for (x, y, z), _ in trace.launch_shapes), 0], np.int64)
        self._sized: Mask = named[device.name] & (blocks[device.shape] >= _LEAST_BLOCKS)
        self._known: dict[bytes, tuple[Int64s, Int64s, bool]] = {}

    def of(self, events: Int64s) -> tuple[Int64s, Int64s, bool]:
        """Return the device ``events`` of a replay with a known eager call, the launches of these calls, and whether they are a run
        of the whole graph."""
        wanted = self._code[events]
        key = wanted.tobytes()
        if key not in self._known:
            run = self._run(wanted) if len(wanted) >= _LEAST_RUN and self._complete[events].all() else None
            if run is not None:
                places = np.flatnonzero(self._variant[run : run + len(wanted)] >= 0)
                self._known[key] = places, self._launch[run + places], True
            else:
                sized = np.flatnonzero(self._sized[events]).tolist()
                pairs = [(at, found) for at in sized if (found := self._call(int(wanted[at]))) >= 0]
                places, launches = np.array(pairs, np.int64).reshape(-1, 2).T
                self._known[key] = places, launches, False
        places, launches, whole = self._known[key]
        return events[places], launches, whole

    def _run(self, wanted: Int64s) -> int | None:
        """Return where the kernels ran eagerly in this order; None if nowhere, or in calls that differ."""
        codes, numbers = np.unique(self._eager, return_counts=True)
        if not len(codes):
            return None
        at = np.minimum(np.searchsorted(codes, wanted), len(codes) - 1)
        if (codes[at] != wanted).any():
            return None
        rarest = int(np.argmin(numbers[at]))
        starts = np.flatnonzero(self._eager == wanted[rarest]) - rarest
        starts = starts[(starts >= 0) & (starts + len(wanted) <= len(self._eager))][:_MOST_PLACES]
        runs = [start for start in starts.tolist() if (self._eager[start : start + len(wanted)] == wanted).all()]
        calls = {self._variant[start : start + len(wanted)].tobytes() for start in runs}
        return runs[0] if len(calls) == 1 else None

    def _call(self, code: int) -> int:
        """Return the first eager launch of this kernel; -1 if there is none or if the calls differ."""
        places = np.flatnonzero(self._eager == code)
        if not len(places) or self._variant[places[0]] < 0 or not self._alone[places].all():
            return -1
        return int(self._launch[places[0]]) if len(np.unique(self._variant[places])) == 1 else -1
