"""Origins of device events: the host event that launched or captured each one, with its operator, owner,
module and phase.

The origin is the launch. For a kernel of a replayed graph it is the launch of the same kernel during the
capture, in the same or in another trace. Host events of other traces are numbered after those of the trace
itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from rooflines.profiler.read.distinct import distinct_rows
from rooflines.profiler.read.records import ANNOTATION, MODULE_PREFIX, PYTHON, RUNTIME, Int64s, Mask
from rooflines.profiler.tree.graphs import CapturedGraph, captured_graphs
from rooflines.profiler.tree.tree import BACKWARD, Calls, Module
from rooflines.profiler.tree.windows import at_launch
from rooflines.roofline.count.counts import Counts, OfCounts, Variant, unset
from rooflines.roofline.own.ownership import Ownership


@dataclass(frozen=True, slots=True)
class CountedTrace(OfCounts):
    """A trace with the counts and owners of its calls, and the graphs captured in it."""

    ownership: Ownership
    graphs: tuple[CapturedGraph, ...] = ()
    name: str = ""

    @classmethod
    def of(
        cls, counts: Counts, ownership: Ownership, name: str = "", tokens: int | None = None
    ) -> CountedTrace:
        """The trace with the graphs that were captured in it; ``tokens`` is the batch of graphs without a
        mark."""
        sized = (
            graph if graph.tokens is not None else replace(graph, tokens=tokens)
            for graph in captured_graphs(counts.calls)
        )
        return cls(counts, ownership, tuple(sized), name)


T = TypeVar("T")
# The event behind a replayed kernel is an eager launch: in a run of the whole graph, or of the same kernel
# anywhere.
FROM_RUN = 1
FROM_KERNEL = 2


@dataclass(frozen=True, slots=True)
class Origins:
    """``event`` is the host event behind each device event (-1: not known), ``replay`` the launch of the
    graph where a graph launched it: calls in different replays are different calls (-1: none). ``inferred``
    says that the event is an eager launch of the same kernel, in a run of the whole graph (``FROM_RUN``) or
    anywhere (``FROM_KERNEL``). ``graph`` is the number of the graph where a replay has no capture (-1: it
    has, or is none), ``graphs`` the name of each and why it has none. ``scope`` and ``scope_phase`` are the
    module and the phase that an annotation gives in place of those of ``event`` (-1: none).

    The other columns are parallel to the host events of all traces: ``owner`` and ``operator`` are host
    events (-1: none), ``name`` indexes ``names``, ``variant`` indexes ``variants``, ``module`` indexes
    ``modules``. ``silent`` says which of them may have done work without a launch: those of the trace itself
    that were not captured.
    """

    event: Int64s
    replay: Int64s
    inferred: Int64s
    graph: Int64s
    graphs: tuple[tuple[str, str], ...]
    scope: Int64s
    scope_phase: Int64s
    names: list[str]
    name: Int64s
    owner: Int64s
    operator: Int64s
    module: Int64s
    phase: Int64s
    variant: Int64s
    variants: tuple[Variant, ...]
    silent: Mask

    def at(self, column: Int64s) -> Int64s:
        """``column`` at the host event behind each device event, -1 where that is not known."""
        return np.append(column, -1)[self.event]

    def noted(self, events: Int64s, module: Int64s, phase: Int64s) -> tuple[Int64s, Int64s]:
        """The ``module`` and the ``phase`` of device ``events``, those that an annotation gives in their
        place."""
        scope = self.scope[events]
        scope_phase = self.scope_phase[events]
        return np.where(scope >= 0, scope, module), np.where(scope_phase >= 0, scope_phase, phase)


def joined(traces: Sequence[CountedTrace]) -> tuple[Origins, Calls, list[int], list[Int64s]]:
    """The origins of the first trace's device events, each its launch, with the host events of all ``traces``
    numbered one after the other; the first one's calls with the modules of all; the number of the first host
    event of each trace; and the modules of each."""
    first = traces[0]
    launch = first.calls.launch
    names = _Numbers(first.trace.names)
    variants = _Numbers(first.counts.variants)
    modules = _Numbers(first.calls.modules)
    columns: list[tuple[npt.NDArray[Any], ...]] = []
    placed: list[Int64s] = []
    before = [0]
    for one in traces:
        start = before[-1]
        owner = one.ownership.owner
        operator = one.calls.operator
        placed.append(modules.of(one.calls.modules))
        # A launch that was counted as a call of its kernel stands for itself.
        itself = (one.counts.of_event >= 0) & (one.trace.host.kind == RUNTIME)
        operator = np.where(itself, np.arange(len(operator)), operator)
        columns.append(
            (
                names.of(one.trace.names)[one.trace.host.name],
                np.where(owner >= 0, owner + start, -1),
                np.where(operator >= 0, operator + start, -1),
                placed[-1][one.calls.module],
                one.calls.phase.astype(np.int64),
                variants.of(one.counts.variants)[one.counts.of_event],
            )
        )
        before.append(start + len(one.trace.host))
    name, owner, operator, placed_at, phase, variant = (
        np.concatenate(parts).astype(np.int64) for parts in zip(*columns, strict=True)
    )
    none = unset(len(launch))
    origins = Origins(
        launch,
        none,
        np.zeros(len(launch), np.int64),
        none,
        (),
        none,
        none,
        names.listed,
        name,
        owner,
        operator,
        placed_at,
        phase,
        variant,
        tuple(variants.listed),
        _silent(first, before[-1]),
    )
    added = np.zeros(len(modules.listed) - len(first.calls.module_calls), np.int64)
    calls = replace(
        first.calls, modules=modules.listed, module_calls=np.concatenate((first.calls.module_calls, added))
    )
    return origins, calls, before, placed


class _Numbers(Generic[T]):
    """Numbers the distinct objects of several traces, those of the first trace first."""

    def __init__(self, first: Sequence[T]) -> None:
        self.listed = list(first)
        self._first = first
        self._known: dict[T, int] | None = None

    def of(self, things: Sequence[T]) -> Int64s:
        """Return the number of each object, followed by -1."""
        if things is self._first:
            return np.append(np.arange(len(things)), -1)
        if self._known is None:
            self._known = {thing: at for at, thing in reversed(list(enumerate(self.listed)))}
        for thing in things:
            if thing not in self._known:
                self._known[thing] = len(self.listed)
                self.listed.append(thing)
        return np.array([*(self._known[thing] for thing in things), -1], np.int64)


def module_marks(one: CountedTrace, graph: CapturedGraph) -> Int64s:
    """Return the module of each module call during the capture of ``graph``, as an index into the modules of
    its trace."""
    host = one.trace.host
    named = one.trace.named(lambda name: name.startswith(MODULE_PREFIX))
    # Where ranges mark the modules, those of the Python stack are left out, as in the call tree.
    ranges = named & (host.kind == ANNOTATION)
    marks = np.flatnonzero(ranges if ranges.any() else named & (host.kind == PYTHON))
    modules: Int64s = one.calls.module[marks[(marks >= graph.events[0]) & (marks < graph.events[1])]]
    return modules


def _silent(first: CountedTrace, events: int) -> Mask:
    """Return which events belong to the trace itself and were not captured; captured events ran nothing."""
    silent = np.arange(events) < len(first.trace.host)
    for graph in first.graphs:
        silent[slice(*graph.events)] = False
        owner = first.ownership.owner[graph.launches]
        silent[owner[owner >= 0]] = False
    return silent


def with_scopes(origins: Origins, calls: Calls, inside: Mask) -> tuple[Origins, Calls]:
    """Return the origins with the annotated modules and phases, and the calls with these modules, which are
    called once per replay.

    An annotation of the nodes of a CUDA graph (``torch.cuda.graph_annotations.mark_kernels``) gives the
    module of a replayed kernel if no capture has it. It lies in the module around the launch of the graph,
    which keeps the time of everything below it. ``inside`` says which host events are in the window.
    """
    trace = calls.trace
    launch = calls.launch
    captured = (origins.replay >= 0) & (origins.inferred != FROM_KERNEL) & (origins.at(origins.module) >= 0)
    events = np.flatnonzero((trace.device.scope >= 0) & ~captured)
    if not len(events):
        return origins, calls
    around = np.where(launch >= 0, at_launch(calls.module, launch), -1)[events]
    modules = list(calls.modules)
    numbers = {module.path: at for at, module in reversed(list(enumerate(modules)))}
    places, group = distinct_rows(around, trace.device.scope[events])
    found = []
    for module, scope in places.tolist():
        outer = modules[module].path if module >= 0 else ""
        path = trace.scopes[scope].path
        if (
            outer and path != outer and not path.startswith(f"{outer}.")
        ):  # it may have the path of the module around it already
            path = f"{outer}.{path}"
        if path not in numbers:
            numbers[path] = len(modules)
            modules.append(Module(path, "range"))
        found.append(numbers[path])
    scope = origins.scope.copy()
    phase = origins.scope_phase.copy()
    scope[events] = np.array(found, np.int64)[group]
    backward = np.array([one.is_backward for one in trace.scopes], bool)[trace.device.scope[events]]
    phase[events[backward]] = BACKWARD
    module_calls = np.append(calls.module_calls, np.zeros(len(modules) - len(calls.modules), np.int64))
    called, _ = distinct_rows(launch[events], around, scope[events])
    counted = (called[:, 0] >= 0) & at_launch(inside, called[:, 0]) & (called[:, 1] != called[:, 2])
    np.add.at(module_calls, called[counted, 2], 1)
    return replace(origins, scope=scope, scope_phase=phase), replace(
        calls, modules=modules, module_calls=module_calls
    )
