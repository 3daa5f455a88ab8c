"""The call tree of the host events, and with it the module, phase and step of every operator.

Modules come from annotations ``nn.Module: layer1.0.conv2 (Conv2d)`` that our own hooks write around every
forward, or from the profiler's Python stack (``nn.Module: Conv2d_0``) in traces of others. The stack names an
instance and not its place, which the nesting of the marks gives: ``ResNet_0.Sequential_0.Conv2d_0``. Where a
trace has neither, the ranges of its program (``record_function``) are the modules. A backward operator has no
module around it: autograd's sequence number ties its node to the forward operator that made the node, and so
to that operator's module.

A phase needs evidence. Backward: an operator below a node of autograd, or in a range with such a name.
Optimizer: in a range of one. Forward: in a range with such a name, in a module, or recorded by autograd; and
all operators of a trace without any sign of training. The phase of everything else is unknown: work that
autograd does not record, and a replay of a graph, which may hold a whole training step.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from rooflines.profiler.read import intervals
from rooflines.profiler.read.distinct import distinct
from rooflines.profiler.read.launches import is_launch, launched_by_collectives, launching
from rooflines.profiler.read.nesting import innermost, nest_events, parents
from rooflines.profiler.read.records import (
    ANNOTATION,
    MODULE_PREFIX,
    OPERATOR,
    PYTHON,
    RUNTIME,
    STEP_PREFIX,
    HostEvents,
    Int8s,
    Int64s,
    Mask,
    Trace,
)
from rooflines.profiler.read.request_marks import PHASE_PREFIXES, RequestMark, phase_mark, request_mark
from rooflines.units import seconds

FORWARD, BACKWARD, OPTIMIZER, OUTSIDE, UNKNOWN, PREFILL, DECODE = 0, 1, 2, 3, 4, 5, 6
PHASES = ("forward", "backward", "optimizer", "", "", "prefill", "decode")

_NODE_PREFIX = "autograd::engine::evaluate_function: "
_OLD_NODE = re.compile(r"[A-Z]\w*Backward\d*")
_OVERLAPPING = "Step marks not counted because an earlier step had not ended: {:,}."
_EMPTY = "Step marks not counted because no operator ran in them: {:,}."
_START_UP = (
    "The first of {} steps is unlike the others and not included in the figures: it lasts {} "
    "(the others up to {}) and launches {:,} "
    "device events (the others at least {:,})."
)
# A first step that lasts more than this many times as long as any other, or launches less than so small a
# part, only starts up.
_UNLIKE = 2
# Old traces have whole microseconds: a step may begin this much before the previous one ends.
_RESOLUTION_NS = 1_000
# A path of instances that would be longer starts again at its module: no network nests so deep.
_LONGEST_PATH = 1024
# Marks of batches are the steps where they enclose most of what the profiler's steps enclose: by this factor
# it may be more.
_WHOLE = 1.1
_MODULE = re.compile(re.escape(MODULE_PREFIX) + r"(?P<path>.*) \((?P<type>[^()]*)\)\Z")
# Ranges of PyTorch and its libraries, which are no part of the program.
_OF_LIBRARY = re.compile(
    r"Optimizer\.|(?:Distributed|FullySharded)DataParallel\.|FSDP::|## Call "
    r"CompiledFxGraph|Torch-Compiled Region|CUDAGraphNode"
    r"|(?:nccl|gloo|hccl|mpi|ucc|xccl):|c10d::|rooflines\.line: "
)
# A number by itself counts calls (``## copy_batch_to_gpu 17 ##``); with a name it is part of that
# (``layer_3``).
_COUNTER = re.compile(r"(?<![^\s#])\d+(?![^\s#])")
# Operators and kernels that only training has; an inference runs gradients of inputs as transposed
# convolutions.
_OF_TRAINING = re.compile(r"(?i:backward|bwd|wgrad|fused_?adam)")
# What ranges call the phases: in words, or after the layer as in the traces of Megatron and DualPipe
# (``attn(F)``, ``mlp(B)``, and ``mlp(W)`` for the gradient of the weights).
_SAYS = {
    FORWARD: re.compile(r"(?i:forward|(?<![a-z])fwd(?![a-z]))|\(F\)"),
    BACKWARD: re.compile(r"(?i:backward|(?<![a-z])bwd(?![a-z])|(?<![a-z])[wd]grad(?![a-z]))|\([BW]\)"),
    OPTIMIZER: re.compile(r"(?i:optimizer|(?<![a-z])optim(?![a-z]))"),
}


@dataclass(frozen=True, slots=True)
class Module:
    """A module of the network: its path from the root (``layer1.0.conv2``, empty for the root itself) and its
    class."""

    path: str
    type: str


@dataclass(frozen=True, slots=True)
class Calls:
    """The call tree of ``trace``: columns parallel to ``trace.host``, one entry per event."""

    #: The trace, with all that a collective launched marked as communication.
    trace: Trace
    #: Host event that launched each device event (-1: not in the trace).
    launch: Int64s
    #: Number of correlation ids that several calls could have launched with.
    shared_ids: int
    #: Enclosing host event (-1: none).
    parent: Int64s
    #: Innermost operator that is or encloses the event (-1: none).
    operator: Int64s
    #: First event behind everything below this one: what event ``i`` encloses are the events ``i + 1``
    #: to ``after[i] - 1``.
    after: Int64s
    #: Index in ``modules`` (-1: none).
    module: Int64s
    #: Index in ``PHASES``.
    phase: Int8s
    #: The event's start; an optimizer's range around a closure begins where the closure's backward has
    #: ended.
    begin_ns: Int64s
    #: The event's end, clipped to its parent's.
    end_ns: Int64s
    modules: list[Module]
    module_calls: Int64s
    #: ``[start, end)`` of every step on the host; without marks each step of an optimizer ends one.
    steps: Int64s
    #: Names of the steps: a profiler step's mark lies in nothing and encloses nothing.
    step_names: tuple[str, ...]
    #: Batches of the steps where a server marked them; otherwise empty.
    batches: tuple[RequestMark, ...]
    #: Sentences about marks that were left out.
    notes: tuple[str, ...]

    @property
    def above(self) -> Int64s:
        """The operator around each event, -1 for none."""
        return np.where(self.parent >= 0, self.operator[self.parent], -1)

    def operators_around(self, event: int) -> Iterator[int]:
        """The operators that are or enclose ``event`` (-1: none), the innermost first."""
        at = int(self.operator[event]) if event >= 0 else -1
        while at >= 0:
            yield at
            parent = int(self.parent[at])
            at = int(self.operator[parent]) if parent >= 0 else -1


def module_annotation(path: str, kind: str) -> str:
    """The name of the range that marks one forward of a module in a trace."""
    return f"{MODULE_PREFIX}{path} ({kind})"


def tree(trace: Trace, *, skip_start_up: bool = False) -> Calls:
    """The call tree of ``trace`` by nesting of intervals within each thread: the second room
    (docs/design.md).

    ``skip_start_up`` leaves out a first step that is unlike all others: it fills a pipeline, or allocates
    what the others use again.
    """
    host = trace.host
    is_operator, is_annotation = host.kind == OPERATOR, host.kind == ANNOTATION
    marks = _Marks(trace.names, set(distinct(host.name[is_annotation])[0].tolist()))
    is_step = is_annotation & marks.is_step[host.name]
    after, end = nest_events(host, is_step)
    is_node = is_operator & marks.is_node[host.name]
    marked = np.where(is_annotation | (host.kind == PYTHON), marks.module[host.name], -1)
    is_forward = (marked >= 0) & (not marks.of_ranges) | is_operator & (host.sequence >= 0) & (
        host.forward_thread == 0
    )
    above = parents(after)
    modules, marked = _placed(marks, marked, after, above)
    forward = forward_operators(host)
    begin = _begins(host, end, innermost(is_node, after), forward, marks)
    phase = _phases(host, after, is_node, is_forward, forward, marks, begin)
    phase[is_step] = FORWARD
    began = np.sort(host.start_ns[is_operator | trace.named(is_launch, RUNTIME)])
    kept, bounds, overlapping = _steps(host, np.flatnonzero(is_step))
    found = _Steps(*_with_work(began, kept, bounds), overlapping=overlapping)
    batches = _batches(host, np.flatnonzero(is_annotation & marks.is_batch[host.name]), began, marks)
    if len(batches.marks):
        # The profiler's steps count where they enclose more: a batch may be a part of a larger step.
        working = intervals.union(host.start_ns[is_operator], end[is_operator])
        if _WHOLE * batches.enclosed_ns(working) >= found.enclosed_ns(working):
            found = batches
    if not len(found.marks):
        updates = np.flatnonzero(
            trace.named(lambda name: name.startswith("Optimizer.step#"), ANNOTATION)
            & (innermost(is_node, after) < 0)
        )
        found = _updated(host, updates, np.sort(host.start_ns[is_node]), began)
    launch, shared_ids = launching(trace)
    start_up = _start_up(found, np.sort(host.start_ns[launch[launch >= 0]])) if skip_start_up else ""
    if start_up:
        marked = np.where(host.start_ns >= found.bounds[1, 0], marked, -1)
        found = replace(found, marks=found.marks[1:], bounds=found.bounds[1:])
    return Calls(
        trace=launched_by_collectives(trace, after, launch),
        launch=launch,
        shared_ids=shared_ids,
        parent=np.where(is_step, -1, above),
        operator=innermost(is_operator, after),
        after=after,
        module=_modules(host, after, is_node, marked, forward, end if marks.of_ranges else None),
        phase=phase,
        begin_ns=begin,
        end_ns=end,
        modules=modules,
        module_calls=np.bincount(marked[marked >= 0], minlength=len(modules)).astype(np.int64),
        steps=found.bounds,
        step_names=tuple(trace.names[code] for code in host.name[found.marks].tolist()),
        batches=found.batches,
        notes=(
            *(
                text.format(number)
                for text, number in ((_OVERLAPPING, found.overlapping), (_EMPTY, found.empty))
                if number
            ),
            *([start_up] if start_up else []),
        ),
    )


@dataclass(frozen=True, slots=True)
class _Steps:
    """Marks that are steps with the ``[start, end)`` of each, and how many others overlap them or enclose no
    work."""

    marks: Int64s
    bounds: Int64s
    empty: int = 0
    overlapping: int = 0
    batches: tuple[RequestMark, ...] = ()

    def enclosed_ns(self, working: intervals.Intervals) -> int:
        """Nanoseconds of ``working`` inside of the steps."""
        return int(intervals.covered(working, self.bounds).sum())


def _batches(host: HostEvents, marks: Int64s, began: Int64s, names: _Marks) -> _Steps:
    """The steps that a server marked. Marks in one another are of one step, and the outer one tells when.

    What follows a mark belongs to its step: servers choose the next tokens and copy them to the host there. A
    step ends with the last operator or runtime call before the next mark.
    """
    outer, bounds, _ = _steps(host, marks)
    others = marks[~np.isin(marks, outer)]
    around = np.searchsorted(bounds[:, 0], host.start_ns[others], side="right") - 1
    inner = (around >= 0) & (host.end_ns[others] <= np.append(bounds[:, 1], 0)[around])
    batches = dict(
        zip(outer.tolist(), (names.batches[code] for code in host.name[outer].tolist()), strict=True)
    )
    for mark, code in zip(outer[around[inner]].tolist(), host.name[others[inner]].tolist(), strict=True):
        batches[mark] = batches[mark].completed_by(names.batches[code])
    kept, bounds, empty = _with_work(began, outer, bounds)
    calls = (host.kind == OPERATOR) | (host.kind == RUNTIME)
    bounds = _until_next(bounds, host.start_ns[calls], host.end_ns[calls])
    return _Steps(
        kept, bounds, empty, len(others) - int(inner.sum()), tuple(batches[mark] for mark in kept.tolist())
    )


def _updated(host: HostEvents, updates: Int64s, nodes: Int64s, began: Int64s) -> _Steps:
    """Steps that each end with an optimizer's step, from the end of the one before or the first operator on.

    Several optimizers update in one step where no node of a backward pass, of those that begin at ``nodes``,
    is between them. A single step with work behind it is none: nothing says that the step is what the trace
    repeats.
    """
    updates, ranges, _ = _steps(host, updates)
    nothing = _Steps(updates[:0], ranges[:0])
    if not len(ranges) or not len(began):
        return nothing
    last = np.searchsorted(nodes, ranges[1:, 0]) > np.searchsorted(nodes, ranges[:-1, 1])
    last = np.append(last if len(nodes) else np.ones(len(last), bool), True)
    ends = ranges[last, 1]
    if len(ends) == 1 and began.max() > ends[0]:
        return nothing
    return _Steps(
        updates[last], np.stack((np.append(min(began.min(), ranges[0, 0]), ends[:-1]), ends), axis=1)
    )


def _until_next(bounds: Int64s, starts: Int64s, ends: Int64s) -> Int64s:
    """``bounds`` that each end with the last of the events that begin before the next ones.

    What follows the last of several bounds may be anything, so that it grows by no more than another.
    """
    if not len(bounds) or not len(starts):
        return bounds
    order = np.argsort(starts, kind="stable")
    reached = np.maximum.accumulate(ends[order])
    following = np.append(bounds[1:, 0], max(int(reached[-1]), int(bounds[-1, 1])))
    last = np.searchsorted(starts[order], following, side="left") - 1
    until = np.minimum(np.append(reached, bounds[0, 0])[last], following)
    longer = np.maximum(until - bounds[:, 1], 0)
    if len(bounds) > 1:
        longer[-1] = min(longer[-1], longer[:-1].max())
    return np.stack((bounds[:, 0], bounds[:, 1] + longer), axis=1)


def _steps(host: HostEvents, marks: Int64s) -> tuple[Int64s, Int64s, int]:
    """The marks that are steps, one after another, ``[start, end)`` of each, and how many were left out.

    A mark that begins before an earlier one ends is not a step: it lies inside one, or a second thread made
    it. The same mark twice is one.
    """
    marks = marks[np.lexsort((-host.end_ns[marks], host.start_ns[marks]))]
    _, first = np.unique(np.stack((host.start_ns[marks], host.end_ns[marks])), axis=1, return_index=True)
    marks = marks[np.sort(first)]
    kept: list[int] = []
    bounds: list[tuple[int, int]] = []
    for mark, start, end in zip(
        marks.tolist(), host.start_ns[marks].tolist(), host.end_ns[marks].tolist(), strict=True
    ):
        over = max(start, bounds[-1][1]) if bounds else start
        if over == start or (over - start <= _RESOLUTION_NS and end > over):
            kept.append(mark)
            bounds.append((over, end))
    return np.array(kept, np.int64), np.array(bounds, np.int64).reshape(-1, 2), len(marks) - len(kept)


def _with_work(began: Int64s, steps: Int64s, bounds: Int64s) -> tuple[Int64s, Int64s, int]:
    """The steps without those in which no operator or launch ``began``, which is sorted, and how many these
    were.

    ``prof.step()`` before the profiler stops leaves such a mark. Where no step has any, as in a trace of the
    device alone, all are kept.
    """
    works = np.searchsorted(began, bounds[:, 1], side="left") > np.searchsorted(
        began, bounds[:, 0], side="left"
    )
    if not works.any():
        return steps, bounds, 0
    return steps[works], bounds[works], int((~works).sum())


def _start_up(found: _Steps, launched_ns: Int64s) -> str:
    """What is said of a first step that is unlike the others, by its length or by its number of
    ``launched_ns``; else empty."""
    lengths, launches = np.diff(found.bounds)[:, 0], np.diff(np.searchsorted(launched_ns, found.bounds))[:, 0]
    if found.batches or len(lengths) < 3 or not launches[1:].all():
        return ""
    if lengths[0] <= _UNLIKE * lengths[1:].max() and _UNLIKE * launches[0] >= launches[1:].min():
        return ""
    first, longest = seconds(lengths[0] / 1e9), seconds(lengths[1:].max() / 1e9)
    return _START_UP.format(len(lengths), first, longest, launches[0], launches[1:].min())


def _begins(host: HostEvents, end: Int64s, node: Int64s, forward: Int64s, marks: _Marks) -> Int64s:
    """When each event begins: at its start, and an optimizer's range around a closure where the closure's
    backward ends.

    ``optimizer.step(closure)`` runs a forward and a backward inside of its range. The nodes of that backward
    are on the range's thread or, on a device, on the engine's; those of another thread's forward are not this
    optimizer's.
    """
    begin = host.start_ns.copy()
    nodes = np.flatnonzero(node == np.arange(len(host)))
    # An optimizer that a node calls, as soon as it has its gradient, has no closure.
    ranges = np.flatnonzero((host.kind == ANNOTATION) & marks.is_optimizer[host.name] & (node < 0))
    made_on = np.where(forward >= 0, host.thread[forward], host.thread)
    # With gradients off, as the update is made, no operator has a sequence number.
    graded = np.flatnonzero((host.kind == OPERATOR) & (host.sequence >= 0))
    for thread in distinct(host.thread[ranges])[0].tolist():
        around = ranges[host.thread[ranges] == thread]
        own = nodes[(made_on[nodes] == thread) | (host.thread[nodes] == thread)]
        closed = _last_inside(host, end, own, around)
        # The recording may stop in the closure, before its backward: ``prof.step()`` can be called there.
        cut_off = (closed < 0) & (end[around] >= host.end_ns[host.thread == thread].max())
        closed[cut_off] = _last_inside(host, end, graded[host.thread[graded] == thread], around[cut_off])
        begin[around[closed >= 0]] = end[closed[closed >= 0]]
    return begin


def _last_inside(host: HostEvents, end: Int64s, events: Int64s, ranges: Int64s) -> Int64s:
    """Of ``events`` the last to end inside each range, -1 where that one began before it."""
    events = events[np.argsort(end[events], kind="stable")]
    last = np.append(events, -1)[np.searchsorted(end[events], end[ranges], side="right") - 1]
    return np.where(host.start_ns[last] >= host.start_ns[ranges], last, -1)


def _phases(
    host: HostEvents,
    after: Int64s,
    is_node: Mask,
    is_forward: Mask,
    forward: Int64s,
    marks: _Marks,
    begin: Int64s,
) -> Int8s:
    """The phase that the innermost mark around each event says, of those that have begun. What is computed
    again in a backward is not forward, so that evidence of a forward counts where there is no mark; without
    either, events of a trace that has no other phase are forward, except graphs, which may hold all."""
    says = np.where((host.kind == OPERATOR) | (host.kind == ANNOTATION), marks.phase[host.name], -1)
    ranges = np.where(host.kind == ANNOTATION, marks.range_phase[host.name], -1)
    says = np.where(ranges > FORWARD, ranges, says)
    says[is_node] = BACKWARD
    # Without operators nothing would show a backward, and kernels of one may run in a graph.
    trains = (
        marks.trains or not (host.kind == OPERATOR).any() or bool(np.isin(says, (BACKWARD, OPTIMIZER)).any())
    )
    shown = innermost(is_forward | (ranges == FORWARD), after) >= 0
    rest = np.where(shown | ~(trains | marks.is_graph[host.name]), FORWARD, UNKNOWN)
    around = innermost(says >= 0, after)
    late = begin > host.start_ns
    if late.any():
        early = (
            (around >= 0) & late[around] & (host.start_ns < begin[around]) & (around != np.arange(len(host)))
        )
        around = np.where(early, innermost((says >= 0) & ~late, after), around)
    # In a range that is named after the backward, that begins behind the last operator which made a node.
    made, last = distinct(forward[is_node & (forward >= 0)])[0], np.full(len(host) + 1, -1)
    of = np.where((around >= 0) & (ranges[around] == BACKWARD), around, len(host))
    np.maximum.at(last, of[made], host.end_ns[made])
    found = np.where(around >= 0, says[around], rest)
    return np.where((of < len(host)) & (host.start_ns <= last[of]), FORWARD, found).astype(np.int8)


def _modules(
    host: HostEvents, after: Int64s, is_node: Mask, marked: Int64s, forward: Int64s, ends_ns: Int64s | None
) -> Int64s:
    """The module around each event; below a backward node, that of the forward operator which made the node.
    Where modules are ranges, which end at ``ends_ns``, and the forward is not in the trace, it is the range
    that waits for the node."""
    around = innermost(is_node | (marked >= 0), after)
    module = np.where((around >= 0) & ~is_node[around], marked[around], -1)
    known = is_node & (forward >= 0)
    of_node = np.where(known, module[forward], -1)
    if ends_ns is not None:
        lost = np.flatnonzero(is_node & (of_node < 0))
        of_node[lost] = _waiting(host, after, marked, ends_ns, lost)
        known |= of_node >= 0
    below = innermost(known, after)
    return np.where((below >= 0) & (module < 0), of_node[below], module)


def _waiting(host: HostEvents, after: Int64s, marked: Int64s, ends_ns: Int64s, nodes: Int64s) -> Int64s:
    """The module of the range that is open when each of ``nodes`` begins, on the one thread that has ranges:
    it waits for its backward.

    -1 where none is open, or several threads have ranges.
    """
    threads, _ = distinct(host.thread[marked >= 0])
    if len(threads) != 1:
        return np.full(len(nodes), -1, np.int64)
    own, starts = np.flatnonzero(host.thread == threads[0]), host.start_ns[nodes]
    ranges = np.append(innermost(marked >= 0, after), -1)
    above = np.append(ranges[parents(after)], -1)
    last = np.searchsorted(host.start_ns[own], starts, side="right") - 1
    around = np.append(ranges[own], -1)[last]
    while (ended := (around >= 0) & (ends_ns[around] < starts)).any():
        around[ended] = above[around[ended]]
    return np.where(around >= 0, marked[around], -1)


def _placed(marks: _Marks, marked: Int64s, after: Int64s, above: Int64s) -> tuple[list[Module], Int64s]:
    """The modules with their paths, and the module of each mark (-1: the event is none).

    The path of an instance is that of the module around it and its own name. A mark with nothing around it is
    at the place where the same instance is first called inside of another: recomputed blocks run on the
    thread of the backward. Where marks with paths are in the trace they name the same modules, and those of
    the Python stack are left out.
    """
    instance = np.array([*marks.is_instance, False])[marked]
    if not instance.any():
        return marks.modules, marked
    if (instance != (marked >= 0)).any():
        return marks.modules, np.where(instance, -1, marked)
    events = np.flatnonzero(marked >= 0)
    around = np.where(above[events] >= 0, innermost(marked >= 0, after)[np.maximum(above[events], 0)], -1)
    names = marked[events].tolist()
    inside = np.searchsorted(events, around).tolist()
    nested = (around >= 0).tolist()
    place = _Places([module.path for module in marks.modules])
    # Callers come before what they call. The second time the place of every instance is known.
    for _ in range(2):
        found: list[int] = []
        for name, at, is_nested in zip(names, inside, nested, strict=True):
            # A range with nothing around it is where it is: its name is that of a piece of code and not of an
            # instance.
            around_it = found[at] if is_nested else -1
            found.append(place.of(name, around_it) if is_nested or marks.of_ranges else place.alone(name))
    used, index = np.unique(np.array(found, np.int64), return_inverse=True)
    modules = [Module(place.paths[at], marks.modules[place.names[at]].type) for at in used.tolist()]
    result = marked.copy()
    result[events] = index.reshape(-1)
    return modules, result


class _Places:
    """The places at which module instances are called: each a path, and the instance (an index of ``labels``)
    that it ends in."""

    def __init__(self, labels: list[str]) -> None:
        self.paths: list[str] = []
        self.names: list[int] = []
        self._labels = labels
        self._known: dict[tuple[int, int], int] = {}
        self._first: dict[int, int] = {}

    def of(self, name: int, around: int) -> int:
        """The place of the instance ``name`` inside of the place ``around``."""
        place = self._place(name, around)
        self._first.setdefault(name, place)
        return place

    def alone(self, name: int) -> int:
        """The place of the instance ``name`` where no module is around it."""
        return self._first[name] if name in self._first else self._place(name, -1)

    def _place(self, name: int, around: int) -> int:
        if (name, around) not in self._known:
            path = f"{self.paths[around]}.{self._labels[name]}" if around >= 0 else self._labels[name]
            self._known[name, around] = len(self.paths)
            self.paths.append(path if len(path) <= _LONGEST_PATH else self._labels[name])
            self.names.append(name)
        return self._known[name, around]


def forward_operators(host: HostEvents) -> Int64s:
    """For each event with one of autograd's sequence numbers the forward operator that made the node, -1 for
    none.

    Every operator that starts before the node is made carries the number the node will get, the callers
    included; the one that starts last is the one that made it (the rule by which Kineto draws its
    forward-backward arrows).
    """
    candidates = np.flatnonzero((host.sequence >= 0) & (host.kind == OPERATOR) & (host.forward_thread == 0))
    candidates = candidates[np.lexsort((candidates, host.start_ns[candidates], host.sequence[candidates]))]
    numbers = host.sequence[candidates]
    at = np.searchsorted(numbers, host.sequence, side="right") - 1
    fits = (host.sequence >= 0) & (np.append(numbers, -1)[at] == host.sequence)
    return np.where(fits, np.append(candidates, -1)[at], -1)


def is_backward_node(name: str) -> bool:
    """Whether an operator of this name is a node of autograd's graph, run by its engine
    (``autograd::engine::evaluate_function: ...``).

    Traces of 2021 name the node alone (``MmBackward``, ``torch::autograd::AccumulateGrad``).
    """
    return name.startswith((_NODE_PREFIX, "torch::autograd::")) or _OLD_NODE.fullmatch(name) is not None


class _Marks:
    """What a name means, worked out once for each distinct name."""

    def __init__(self, names: list[str], annotated: set[int]) -> None:
        """``annotated`` are the names that ranges have: only these are ranges of the program."""
        self.modules: list[Module] = []
        self.is_instance: list[bool] = []
        self.batches: dict[int, RequestMark] = {}
        self.module, self.phase, self.range_phase = (np.full(len(names), -1, np.int64) for _ in range(3))
        self.is_step, self.is_batch, self.is_node, self.is_optimizer = (
            np.zeros(len(names), bool) for _ in range(4)
        )
        self.trains = any(map(_OF_TRAINING.search, names))
        self.is_graph = np.array(["GraphLaunch" in name for name in names], bool)
        ranges: dict[str, list[int]] = {}
        for code, name in enumerate(names):
            if name.startswith(MODULE_PREFIX):
                match = _MODULE.match(name)
                label = name[len(MODULE_PREFIX) :]
                self.module[code] = len(self.modules)
                self.modules.append(
                    Module(match["path"], match["type"])
                    if match
                    else Module(label, label.rpartition("_")[0] or label)
                )
                self.is_instance.append(match is None)
            elif name.startswith(STEP_PREFIX):
                self.is_step[code] = True
            elif is_backward_node(name):
                self.is_node[code] = True
            elif name.startswith(("Optimizer.", "aten::_amp_", "aten::_fused_ad", "aten::_fused_sgd")):
                # A gradient scaler unscales outside of the optimizer's range, and not every optimizer has
                # one.
                self.phase[code] = OPTIMIZER
                self.is_optimizer[code] = name.startswith("Optimizer.")
            elif name.startswith("enumerate(DataLoader)"):
                self.phase[code] = OUTSIDE
            elif name.startswith(PHASE_PREFIXES) and (mark := phase_mark(name)) is not None:
                self.range_phase[code] = PHASES.index(mark.kind)
            elif (batch := request_mark(name)) is not None:
                self.is_batch[code] = True
                self.range_phase[code] = FORWARD
                self.batches[code] = batch
            elif code in annotated:
                said = [phase for phase, words in _SAYS.items() if words.search(name)]
                if len(said) == 1:
                    self.range_phase[code] = said[0]
                if not _OF_LIBRARY.match(name):
                    ranges.setdefault(_COUNTER.sub("", name).strip("# ") or name, []).append(code)
        self.of_ranges = not self.modules
        if self.of_ranges:
            for label, codes in ranges.items():
                self.module[codes] = len(self.modules)
                self.modules.append(Module(label, "range"))
                self.is_instance.append(True)
