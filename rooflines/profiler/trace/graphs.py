"""CUDA and HIP graphs in a trace: what was captured, and the device work that each launch of a graph replays.

A capture is a runtime call that begins it, one that ends it, and launches in between that run nothing (so that they have no device
event). All device work of a replay has the correlation id of one ``cudaGraphLaunch`` or ``hipGraphLaunch``, without an operator
around any of it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from rooflines.profiler.trace.calls import Calls
from rooflines.profiler.trace.launches import LAUNCHING
from rooflines.profiler.trace.nesting import Mask, covered, innermost
from rooflines.profiler.trace.records import ANNOTATION, RUNTIME, Int64s, Trace

_BEGIN, _END, _LAUNCH, _JOIN, _HOST = "BeginCapture", "EndCapture", "GraphLaunch", "StreamWaitEvent", "HostFunc"
# The marks of vLLM and SGLang around a step (tokens of prompts, tokens that are generated) and around a capture (tokens it holds).
_STEP = re.compile(r"execute_\d+_context_\d+\(sq(\d+)sk.*?\)_generation_\d+\(sq(\d+)sk")
_DECODE = re.compile(r"step\[DECODE bs=(\d+)\b")
_CAPTURE = re.compile(r"capture_(\d+)_[A-Z]+\b")


@dataclass(frozen=True, slots=True)
class CapturedGraph:
    """``launches`` are the host events that became nodes of the graph, in the order of time; ``events`` is ``[first, end)`` of the host
    events on its thread. ``joins`` says whether several streams were captured, ``tokens`` for how many tokens (None: not recorded)."""

    launches: Int64s
    events: tuple[int, int]
    joins: bool
    tokens: int | None


@dataclass(frozen=True, slots=True)
class Replay:
    """One launch of a graph: the host event ``launch``, and its device ``events`` in the order of start. ``tokens`` is how many the
    step around it computes (None: not recorded)."""

    launch: int
    events: Int64s
    tokens: int | None


def captured_graphs(trace: Trace, calls: Calls, launch: Int64s) -> list[CapturedGraph]:
    """The graphs captured in the trace, in the order of time; ``launch`` is the host event that launched each device event."""
    host = trace.host
    begins, ends = (np.flatnonzero((host.kind == RUNTIME) & _named(trace, word)) for word in (_BEGIN, _END))
    if not len(begins) or not len(ends):
        return []
    ran = np.zeros(len(host), bool)
    ran[launch[launch >= 0]] = True
    launches = (host.kind == RUNTIME) & _named(trace, *LAUNCHING) & ~_named(trace, _HOST)
    # A runtime call and the driver's call in it are one launch.
    nodes = np.flatnonzero(launches & ~ran & ~covered(launches, calls.after))
    nodes = nodes[np.argsort(host.start_ns[nodes], kind="stable")]
    joins = np.flatnonzero((host.kind == RUNTIME) & _named(trace, _JOIN))
    tokens = _tokens(trace, calls, begins, _CAPTURE)
    found: list[tuple[int, int, int, int, int | None]] = []
    for begin, size in zip(begins.tolist(), tokens, strict=True):
        at = int(np.searchsorted(ends, begin))
        if at < len(ends) and host.thread[ends[at]] == host.thread[begin]:
            end = int(ends[at])
            found.append((int(host.start_ns[begin]), int(host.start_ns[end]), begin, end, size))
    graphs = []
    for start, stop, begin, end, size in sorted(found):
        low, high = np.searchsorted(host.start_ns[nodes], (start, stop))
        chosen, thread = nodes[low:high], host.thread[begin]
        # Other threads launch into the capture as well (autograd's); where several captures are open, which one is not known.
        alone = sum(one[0] < stop and start < one[1] for one in found) == 1 if len(np.unique(host.thread[begins])) > 1 else True
        chosen = chosen if alone else chosen[host.thread[chosen] == thread]
        graphs.append(CapturedGraph(chosen, (begin, end + 1), bool(((joins > begin) & (joins < end)).any()), size))
    return graphs


def replays(trace: Trace, calls: Calls, launch: Int64s) -> list[Replay]:
    """The launches of graphs that ran something, in the order of time."""
    host = trace.host
    launched = is_graph_launch(trace)
    events = np.flatnonzero((launch >= 0) & (launched[launch] if len(host) else False))
    if not len(events):
        return []
    order = events[np.argsort(launch[events], kind="stable")]
    which, first = np.unique(launch[order], return_index=True)
    parts = np.split(order, first[1:])
    tokens = _tokens(trace, calls, which, _STEP, _DECODE)
    found = [Replay(int(one), part, size) for one, part, size in zip(which.tolist(), parts, tokens, strict=True)]
    return sorted(found, key=lambda replay: int(host.start_ns[replay.launch]))


def is_graph_launch(trace: Trace) -> Mask:
    """The host events that launch a whole graph."""
    found: Mask = (trace.host.kind == RUNTIME) & _named(trace, _LAUNCH)
    return found


def _named(trace: Trace, *words: str) -> Mask:
    """The host events with one of these words in their names."""
    found: Mask = np.array([any(word in name for word in words) for name in trace.names] or [False], bool)[trace.host.name]
    return found


def _tokens(trace: Trace, calls: Calls, events: Int64s, *marks: re.Pattern[str]) -> list[int | None]:
    """How many tokens the innermost mark around each host event names, None where there is none."""
    sizes = np.array([_sum(name, marks) for name in trace.names] or [-1], np.int64)[trace.host.name]
    marked = (trace.host.kind == ANNOTATION) & (sizes >= 0)
    if not marked.any():
        return [None] * len(events)
    around = innermost(marked, calls.after)[events]
    return [int(sizes[one]) if one >= 0 else None for one in around.tolist()]


def _sum(name: str, marks: tuple[re.Pattern[str], ...]) -> int:
    found = next((match for mark in marks if (match := mark.match(name))), None)
    return sum(min(int(number[:9]), 1 << 30) for number in found.groups()) if found else -1
