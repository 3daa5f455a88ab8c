"""CUDA and HIP graphs in a trace: captured launches, and the device work of each replay.

A capture is a runtime call that begins it, one that ends it, and launches in between that run nothing (so
that they have no device event). All device work of a replay has the correlation id of one ``cudaGraphLaunch``
or ``hipGraphLaunch``, without an operator around any of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rooflines.profiler.read.distinct import distinct
from rooflines.profiler.read.launches import LAUNCHING
from rooflines.profiler.read.nesting import covered, innermost
from rooflines.profiler.read.records import ANNOTATION, RUNTIME, Int64s, Mask, Trace
from rooflines.profiler.read.request_marks import request_mark
from rooflines.profiler.tree.tree import Calls
from rooflines.profiler.tree.windows import at_launch

_BEGIN, _END, _LAUNCH, _JOIN, _HOST = (
    "BeginCapture",
    "EndCapture",
    "GraphLaunch",
    "StreamWaitEvent",
    "HostFunc",
)
# The mark of vLLM and SGLang around a capture: how many tokens the graph holds.
_CAPTURE = re.compile(r"capture_(\d{1,9})_[A-Z]+\b", re.ASCII)


@dataclass(frozen=True, slots=True)
class CapturedGraph:
    """``launches`` are the host events that became nodes of the graph, in the order of time; ``events`` is
    ``[first, end)`` of the host events on its thread. ``joins`` says whether several streams were captured,
    ``tokens`` for how many tokens (None: not recorded), ``mark`` the server's mark that says it (empty:
    none)."""

    launches: Int64s
    events: tuple[int, int]
    joins: bool
    tokens: int | None
    mark: str


@dataclass(frozen=True, slots=True)
class Replay:
    """One launch of a graph: the host event ``launch``, and its device ``events`` in the order of start.
    ``tokens`` is how many the step around it computes (None: not recorded), ``step`` the host event that
    marks this step (-1: none)."""

    launch: int
    events: Int64s
    tokens: int | None
    step: int


def captured_graphs(calls: Calls) -> list[CapturedGraph]:
    """The graphs captured in the trace, in the order of time; ``launch`` is the host event that launched each
    device event."""
    host = calls.trace.host
    begins, ends = (np.flatnonzero(runtime_calls(calls.trace, word)) for word in (_BEGIN, _END))
    following = np.append(ends, -1)[np.searchsorted(ends, begins)]
    is_whole = (following >= 0) & (host.thread[following] == host.thread[begins])
    begins, ends = begins[is_whole], following[is_whole]
    if not len(begins):
        return []
    order = np.lexsort((begins, host.start_ns[ends], host.start_ns[begins]))
    begins, ends = begins[order], ends[order]
    ran = np.isin(np.arange(len(host)), calls.launch)
    launches = runtime_calls(calls.trace, *LAUNCHING) & ~runtime_calls(calls.trace, _HOST)
    # A runtime call and the driver's call in it are one launch.
    nodes = np.flatnonzero(launches & ~ran & ~covered(launches, calls.after))
    nodes = nodes[np.argsort(host.start_ns[nodes], kind="stable")]
    joins = np.flatnonzero(runtime_calls(calls.trace, _JOIN))
    opened, closed = host.start_ns[begins], np.sort(host.start_ns[ends])
    graphs = []
    for begin, end, size, mark in zip(
        begins.tolist(), ends.tolist(), *_tokens(calls, begins, _captured_tokens), strict=True
    ):
        start, stop = host.start_ns[[begin, end]]
        low, high = np.searchsorted(host.start_ns[nodes], (start, stop))
        chosen = nodes[low:high]
        # Other threads launch into the capture as well (autograd's); where several captures are open, which
        # one is not known.
        alone = np.searchsorted(opened, stop) - np.searchsorted(closed, start, side="right") == 1
        chosen = chosen if alone else chosen[host.thread[chosen] == host.thread[begin]]
        name = calls.trace.names[host.name[mark]] if mark >= 0 else ""
        graphs.append(
            CapturedGraph(chosen, (begin, end + 1), bool(((joins > begin) & (joins < end)).any()), size, name)
        )
    return graphs


def replays(calls: Calls) -> list[Replay]:
    """The launches of graphs that ran something, in the order of time."""
    host = calls.trace.host
    events = np.flatnonzero((calls.launch >= 0) & at_launch(is_graph_launch(calls.trace), calls.launch))
    if not len(events):
        return []
    order = events[np.argsort(calls.launch[events], kind="stable")]
    which, first = np.unique(calls.launch[order], return_index=True)
    parts = np.split(order, first[1:])
    tokens, steps = _tokens(calls, which, _step_tokens)
    found = [Replay(*of) for of in zip(which.tolist(), parts, tokens, steps, strict=True)]
    return sorted(found, key=lambda replay: int(host.start_ns[replay.launch]))


def is_graph_launch(trace: Trace) -> Mask:
    """The host events that launch a whole graph."""
    return runtime_calls(trace, _LAUNCH)


def runtime_calls(trace: Trace, *words: str) -> Mask:
    """The runtime calls with one of these words in their names."""
    return trace.named(lambda name: any(word in name for word in words), RUNTIME)


def _tokens(
    calls: Calls, events: Int64s, tokens_of: Callable[[str], int | None]
) -> tuple[list[int | None], list[int]]:
    """Return the number of tokens in the innermost mark around each host event (None: no mark), and this mark
    (-1: none)."""
    host, names = calls.trace.host, calls.trace.names
    codes = distinct(host.name[host.kind == ANNOTATION])[0].tolist()
    sizes = {code: tokens for code in codes if (tokens := tokens_of(names[code])) is not None}
    if not sizes:
        return [None] * len(events), [-1] * len(events)
    marked = (host.kind == ANNOTATION) & np.isin(host.name, list(sizes))
    around = innermost(marked, calls.after)[events].tolist()
    return [sizes[int(host.name[one])] if one >= 0 else None for one in around], around


def _captured_tokens(name: str) -> int | None:
    found = _CAPTURE.match(name)
    return int(found[1]) if found else None


def _step_tokens(name: str) -> int | None:
    """Return the tokens of a server's step; None if some may belong to a draft model, which has separate
    graphs."""
    mark = request_mark(name)
    return mark.tokens if mark is not None and not mark.is_draft else None
