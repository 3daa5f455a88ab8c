"""Kernels of a graph without a capture that the same trace also launches eagerly, where these calls leave no doubt.

A run of the whole graph before its capture (the warm-up) is as good as the capture: the same kernels with the same grids and blocks
in the same order. A single kernel says less. A grid is the number of elements of an element-wise kernel or a copy to within one
block, so all its eager calls must have one signature, and nothing else. The grid of a product holds neither the summed dimension nor
what is inside of a tile, and that of a reduction not the length of what is reduced: for these, the kernels before and after them,
which write and read the same tensors, must be the same as well. Grids must be recorded on both sides, which ROCm does not do for
replays.
"""

from __future__ import annotations

import numpy as np

from rooflines.profiler.trace.graphs import is_graph_launch
from rooflines.profiler.trace.nesting import Mask
from rooflines.profiler.trace.records import MEMCPY, MEMSET, Int64s
from rooflines.roofline.attribution.origins import CountedTrace

# The size of these is that of their grid.
_BY_GRID = {"copy", "element-wise"}
# Of fewer kernels than this the neighbours alone decide.
_LEAST_RUN = 3
_MOST_PLACES = 4096


class EagerCalls:
    """The calls of the trace that launched their kernels themselves; ``launch`` is the host event that launched each device event."""

    def __init__(self, one: CountedTrace, launch: Int64s) -> None:
        device, host = one.trace.device, one.trace.host
        eager = np.flatnonzero((launch >= 0) & (~is_graph_launch(one.trace)[launch] if len(host) else False))
        order = np.lexsort((device.start_ns[eager], host.start_ns[launch[eager]], host.thread[launch[eager]]))
        self._one = one
        self._events = eager[order]
        self._launch = launch[self._events]
        shapes = np.where(np.isin(device.kind, (MEMCPY, MEMSET)), -2, device.shape).astype(np.int64)
        self._code = device.name.astype(np.int64) * (len(one.trace.launch_shapes) + 2) + shapes + 2
        self._has_shape, self._has_grid = shapes != -1, device.shape >= 0
        self._eager = self._code[self._events]
        owner = one.ownership.owner[self._launch]
        self._owner = owner
        self._variant = np.where(owner >= 0, one.counts.of_event[owner], -1) if len(host) else owner
        self._single = np.bincount(owner[owner >= 0], minlength=len(host))[owner] == 1 if len(owner) else np.zeros(0, bool)
        by_grid = np.array([*(variant.count.category in _BY_GRID for variant in one.counts.variants), False])
        self._by_grid: Mask = by_grid[self._variant] if len(owner) else np.zeros(0, bool)
        self._known: dict[bytes, tuple[Int64s, Int64s, Mask]] = {}

    def of(self, events: Int64s) -> tuple[Int64s, Int64s, Mask]:
        """Those of the device ``events`` of a replay whose eager call is known, the launch in that call, and whether the call is one of
        that kernel alone, rather than one of the whole graph."""
        wanted = self._code[events]
        key = wanted.tobytes()
        if key not in self._known:
            self._known[key] = self._found(wanted, bool(self._has_shape[events].all()))
        places, launches, alone = self._known[key]
        return events[places], launches, alone

    def _found(self, wanted: Int64s, complete: bool) -> tuple[Int64s, Int64s, Mask]:
        run = self._run(wanted) if complete and len(wanted) >= _LEAST_RUN else None
        if run is not None:
            places = np.flatnonzero(self._variant[run : run + len(wanted)] >= 0)
            return places, self._launch[run + places], np.zeros(len(places), bool)
        pairs = [(at, found) for at in range(len(wanted)) if (found := self._call(wanted, at)) >= 0]
        places, launches = np.array(pairs, np.int64).reshape(-1, 2).T
        return places, launches, np.ones(len(places), bool)

    def _run(self, wanted: Int64s) -> int | None:
        """Where the kernels ran eagerly in this order; None where nowhere, or for calls that differ."""
        codes, numbers = np.unique(self._eager, return_counts=True)
        at = np.minimum(np.searchsorted(codes, wanted), max(len(codes) - 1, 0))
        if not len(codes) or (codes[at] != wanted).any():
            return None
        rarest = int(np.argmin(numbers[at]))
        starts = np.flatnonzero(self._eager == wanted[rarest]) - rarest
        starts = starts[(starts >= 0) & (starts + len(wanted) <= len(self._eager))][:_MOST_PLACES]
        runs = [start for start in starts.tolist() if (self._eager[start : start + len(wanted)] == wanted).all()]
        calls = {self._variant[start : start + len(wanted)].tobytes() for start in runs}
        return runs[0] if len(calls) == 1 else None

    def _call(self, wanted: Int64s, at: int) -> int:
        """The launch of the eager calls that the kernel ``at`` leaves no doubt about; -1 for none."""
        places = np.flatnonzero(self._eager == wanted[at])
        if not len(places) or not self._has_grid[self._events[places[0]]] or not self._are_one(places):
            return -1
        if not self._by_grid[places].all():
            around = [(step, at + step) for step in (-1, 1) if 0 <= at + step < len(wanted)]
            same = all(
                0 <= place + step < len(self._eager) and self._eager[place + step] == wanted[neighbour]
                for place in places.tolist() for step, neighbour in around
            )  # fmt: skip
            if not around or not same:
                return -1
        return int(self._launch[places[0]])

    def _are_one(self, places: Int64s) -> bool:
        """Whether these calls have one signature, a count, and run nothing else."""
        variants = np.unique(self._variant[places])
        return len(variants) == 1 and variants[0] >= 0 and bool(self._single[places].all())
