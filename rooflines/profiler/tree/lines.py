"""The line of the program that each host event comes from: by the marks of our own recordings, by the Python
stack in traces of others.

Below a node of autograd it is the line of the forward operator that made the node. A stack tells the function
that runs, and of a function its first line.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np

from rooflines.profiler.read.distinct import distinct
from rooflines.profiler.read.nesting import innermost, nest, parents
from rooflines.profiler.read.records import LINE_PREFIX, OPERATOR, Int64s, Mask, Trace
from rooflines.profiler.records import ProgramLine
from rooflines.profiler.tree.tree import Calls, forward_operators, is_backward_node

_FRAME = re.compile(r"(.*\.py)\((\d+)\): (.*)")


@dataclass(frozen=True)
class ProgramLines:
    """Groups of lines of the program, and of each host event the index of the one that it comes from (-1: not
    known).

    A group has several lines where a kernel is fused from them. Where lines ``are_functions``, each is the
    first one of the function that ran.
    """

    groups: tuple[tuple[ProgramLine, ...], ...]
    of_event: Int64s
    are_functions: bool = False

    @cached_property
    def names(self) -> dict[ProgramLine, str]:
        """``net.py:11`` of each line, with the folders below the one that all files with events are in."""
        places = dict.fromkeys(chain.from_iterable(self.groups))
        own = [self.groups[number] for number in distinct(self.of_event)[0].tolist() if number >= 0]
        absolute = [place.path for place in chain.from_iterable(own) if os.path.isabs(place.path)]
        above = os.path.commonpath(map(os.path.dirname, absolute)) if absolute else ""
        files = {path: os.path.relpath(path, above) for path in dict.fromkeys(absolute)}
        return {place: f"{files.get(place.path, place.path)}:{place.line}" for place in places}

    def where(self, event: int) -> str:
        """The line of a host event, or the function around it; empty where neither is known."""
        number = int(self.of_event[event])
        if number < 0:
            return ""
        place = self.groups[number][0]
        return f"{place.path}({place.line}): {place.function}" if self.are_functions else self.names[place]


def marked_lines(calls: Calls, places: Sequence[ProgramLine]) -> ProgramLines:
    """The lines by the marks in a trace, whose numbers are those of ``places``."""
    host, names = calls.trace.host, calls.trace.names
    numbers = np.array(
        [int(name.removeprefix(LINE_PREFIX)) if name.startswith(LINE_PREFIX) else -1 for name in (*names, "")]
    )
    marks = numbers[host.name] >= 0
    at = np.flatnonzero(marks)
    last = np.maximum.accumulate(np.where(marks, np.arange(len(host)), -1))
    line = np.where((last >= 0) & (host.thread[last] == host.thread), numbers[host.name[last]], -1)
    if len(distinct(host.thread[at])[0]) == 1:
        # Other threads, as autograd's, work for the line at which the program waits for them.
        before = np.searchsorted(host.start_ns[at], host.start_ns, side="right") - 1
        elsewhere = (host.thread != host.thread[at[0]]) & (before >= 0)
        line = np.where(elsewhere, numbers[host.name[at[before]]], line)
    return ProgramLines(tuple((place,) for place in places), _through_backward(calls, line))


def stack_lines(calls: Calls) -> ProgramLines:
    """The functions of the program around each host event, the innermost ones, by the Python stack; of a
    package where it has none around it."""
    trace = calls.trace
    frames = trace.frames
    if not len(frames):
        return ProgramLines((), np.full(len(trace.host), -1, np.int64))
    of_program = trace.program_frames[frames.name]
    line = _around(trace, of_program)
    line = np.where(line < 0, _around(trace, ~of_program), line)
    groups = []
    for name in trace.frame_names:
        match = _FRAME.match(name)
        path, number, function = match.groups() if match else (name, 0, "")
        groups.append((ProgramLine(path=path, line=int(number), function=function),))
    return ProgramLines(tuple(groups), _through_backward(calls, line), are_functions=True)


def _around(trace: Trace, chosen: Mask) -> Int64s:
    """The name of the innermost of the ``chosen`` frames around the begin of each host event; -1: none."""
    frames, host = trace.frames, trace.host
    at = np.flatnonzero(chosen)
    thread = frames.thread[at]
    start = frames.start_ns[at]
    after, end = nest(thread, start, frames.end_ns[at])
    above = np.append(parents(after), -1)
    found = np.full(len(host), -1, np.int64)
    for one in distinct(thread)[0].tolist():
        own = np.flatnonzero(thread == one)
        events = np.flatnonzero(host.thread == one)
        before = np.searchsorted(start[own], host.start_ns[events], side="right") - 1
        around = np.append(own, -1)[before]
        while (over := (around >= 0) & (end[around] <= host.start_ns[events])).any():
            around[over] = above[around[over]]
        found[events] = np.append(frames.name[at], -1)[around]
    return found


def _through_backward(calls: Calls, line: Int64s) -> Int64s:
    """``line``, and below each node of autograd that of the forward operator which made it."""
    forward = forward_operators(calls.trace.host)
    nodes = calls.trace.named(is_backward_node, OPERATOR) & (forward >= 0)
    below = innermost(nodes, calls.after)
    made_at = np.where(below >= 0, line[forward[below]], -1)
    return np.where(made_at >= 0, made_at, line)
