"""Compiled code in a trace: which kernel each event is, of which module, and which events only dispatch.

Kernel names are not unique: every compilation numbers its kernels from 0. A kernel is identified by the range
of the compilation around it (``Torch-Compiled Region: 0/0``; for a backward the one of its forward, by
autograd's sequence number), and by its position among the kernels of this name in it. Code compiled outside
of the recording stays unknown.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import replace
from itertools import cycle

import numpy as np

from rooflines.profiler.compiled.records import CompiledCode, CompiledKernel, Graph
from rooflines.profiler.read.nesting import innermost
from rooflines.profiler.read.records import OPERATOR, Int64s
from rooflines.profiler.read.signature import Signature
from rooflines.profiler.records import ProgramLine
from rooflines.profiler.tree.tree import BACKWARD, Calls, Module
from rooflines.roofline.count.by_key import grouped
from rooflines.roofline.count.counts import DISPATCHES, Counts, Variant, unset
from rooflines.roofline.count.formulas.counter import count
from rooflines.roofline.count.formulas.graph import count_kernel, count_node
from rooflines.roofline.count.formulas.registry import CallCount

_REGION = re.compile(r"Torch-Compiled Region: (\S+)")
_FORWARD = "CompiledFunction"
_BACKWARD = "CompiledFunctionBackward"
_GRAPH = "## Call CompiledFxGraph "


def from_compiled_code(counts: Counts) -> Counts:
    """Count the kernels of compiled code by what they compute rather than by their names, and give them the
    modules of the code."""
    if counts.known.code is None:
        return counts
    search = _KernelSearch(counts.calls, counts.known.code)
    calls, variants, of_code = search.run()
    of_event = np.where(of_code >= 0, of_code + len(counts.variants), counts.of_event)
    return replace(
        counts,
        calls=calls,
        variants=(*counts.variants, *variants),
        of_event=of_event,
        of_code=of_code >= 0,
        code_lines=search.lines,
    )


class _KernelSearch:
    def __init__(self, calls: Calls, code: CompiledCode) -> None:
        self._trace = trace = calls.trace
        self._calls = calls
        self._code = code
        self._names = [trace.names[name] for name in trace.host.name.tolist()]
        self.lines: dict[int, tuple[ProgramLine, ...]] = {}
        self._numbers: dict[tuple[object, ...], int] = {}
        self._variants: list[Variant] = []
        self._of_event = unset(len(trace.host))
        self._module = calls.module.copy()
        self._modules = list(calls.modules)
        self._module_calls = calls.module_calls.tolist()
        self._paths = {module.path: index for index, module in reversed(list(enumerate(calls.modules)))}

    def run(self) -> tuple[Calls, list[Variant], Int64s]:
        """The calls with the modules of the code, the counts of its kernels, and that of each event (-1: not
        of the code)."""
        runs, regions = self._runs()
        known = {*(graph.region for graph in self._code.graphs), *self._code.empty}
        for event in regions:
            if regions[event] in known:
                self._put(event, ("dispatch", self._names[event]), Signature(self._names[event]), DISPATCHES)
        for run, events in runs.items():
            self._find_run(run, regions.get(run, ""), events)
        calls = replace(
            self._calls,
            module=self._module,
            modules=self._modules,
            module_calls=np.array(self._module_calls, np.int64),
        )
        return calls, self._variants, self._of_event

    def _runs(self) -> tuple[dict[int, list[int]], dict[int, str]]:
        """The operators that compiled code calls, by the event of the compilation around them (-1: none), and
        the region of every event that torch puts around compiled code."""
        host, after, parent = self._trace.host, self._calls.after, self._calls.parent
        named = [_REGION.match(name) for name in self._trace.names]
        operators = host.kind == OPERATOR
        marks = np.array([match is not None for match in named], bool)[host.name] & operators
        marks |= self._trace.named(_BACKWARD.__eq__)
        wrapped = self._trace.named(_FORWARD.__eq__)
        forward = np.flatnonzero(wrapped)
        wrapped |= self._trace.named(lambda name: name.startswith(_GRAPH))
        around = innermost(marks, after)  # the innermost compilation around an event, itself included
        regions = {
            event: match[1] if (match := named[host.name[event]]) else ""
            for event in np.flatnonzero(marks).tolist()
        }
        forwards = {
            int(host.sequence[event]): regions.get(int(around[event]), "") for event in forward.tolist()
        }
        for event, region in regions.items():
            regions[event] = region or forwards.get(int(host.sequence[event]), "")
        regions |= {event: regions.get(int(around[event]), "") for event in np.flatnonzero(wrapped).tolist()}
        # Compiled code calls an operator itself if no other one is around it within the compilation.
        callers = operators & ~marks & ~wrapped
        inner = innermost(callers, after)
        called = callers & np.where(parent >= 0, inner[parent] <= around[parent], True)
        runs: dict[int, list[int]] = defaultdict(list)
        for event in np.flatnonzero(called).tolist():
            runs[int(around[event])].append(event)
        return runs, regions

    def _find_run(self, run: int, region: str, events: list[int]) -> None:
        """Name the kernels of one run of a graph, and with them the operators between."""
        events.sort(key=lambda event: self._trace.host.start_ns[event])
        of_name = {
            kernel.name for graph in self._code.graphs for kernel in graph.kernels if not kernel.extern
        }
        fused = [event for event in events if self._names[event] in of_name]
        if not fused and not region:
            return
        backward = bool((self._calls.phase[fused or [run]] == BACKWARD).any())
        names = {self._names[event] for event in fused}
        graphs = [
            graph
            for graph in self._code.graphs
            if region in ("", graph.region)
            and graph.backward == backward
            and names <= {kernel.name for kernel in graph.kernels}
        ]
        if len(graphs) != 1:
            reason = (
                "several compiled graphs have kernels of this name"
                if graphs
                else "a kernel that was compiled outside of the recording"
            )
            for event in fused:
                name = self._names[event]
                self._put(
                    event,
                    ("unclear", name, reason),
                    Signature(name),
                    CallCount("unknown", None, "other", reason),
                )
            return
        (graph,) = graphs
        module = int(self._calls.module[run]) if run >= 0 else -1
        # The path of the module that was compiled, as the hooks around it have it.
        prefix = (
            graph.prefix or "" if graph.prefix is not None or module < 0 else self._calls.modules[module].path
        )
        # One forward of every module in the graph that no hook has seen.
        for path, kind in graph.modules.items() if not backward and run >= 0 else ():
            number = self._number(_joined(prefix, path), kind)
            if number >= len(self._calls.modules):
                self._module_calls[number] += 1
        positions = _align([self._names[event] for event in events], graph.kernels)
        for event, position in zip(events, positions, strict=True):
            if position >= 0:
                self._find(event, graph, position, prefix)

    def _find(self, event: int, graph: Graph, position: int, prefix: str) -> None:
        kernel = graph.kernels[position]
        if kernel.lines:
            self.lines[event] = tuple(self._code.lines[number] for number in kernel.lines)
        if not kernel.extern:
            tensors = dict.fromkeys(graph.buffers[access.buffer].tensor for access in kernel.reads)
            found = count_kernel(kernel, graph.buffers, self._code.nodes)
            self._put(event, (id(graph), position), Signature(kernel.name, tuple(tensors)), found)
        elif (
            kernel.nodes
            and count(self._trace.signatures[self._trace.host.signature[event]]).kind == "unknown"
        ):
            node = self._code.nodes[kernel.nodes[0]]
            self._put(event, (id(graph), position), node.signature, count_node(node))
        path = None if kernel.module is None else _joined(prefix, kernel.module)
        if path is not None and (path or path in self._paths):
            self._module[event : self._calls.after[event]] = self._number(
                path, graph.modules.get(kernel.module or "", "")
            )

    def _put(self, event: int, key: tuple[object, ...], signature: Signature, found: CallCount) -> None:
        number = self._numbers.setdefault(key, len(self._variants))
        if number == len(self._variants):
            self._variants.append(Variant(signature, found))
        self._of_event[event] = number

    def _number(self, path: str, kind: str) -> int:
        if path not in self._paths:
            self._paths[path] = len(self._modules)
            self._modules.append(Module(path, kind))
            self._module_calls.append(0)
        return self._paths[path]


def _joined(prefix: str, path: str) -> str:
    return f"{prefix}.{path}" if prefix and path else prefix or path


def _align(names: list[str], kernels: tuple[CompiledKernel, ...]) -> list[int]:
    """For every event of a run the position of its call in the graph; -1 where it is none of them, or not
    told for certain.

    Generated kernels have unique names and come in order. The operators between two of them are distinguished
    where the trace has as many of each name as the graph.
    """
    turn = [position for position, kernel in enumerate(kernels) if not kernel.extern]
    turns = {
        name: cycle(places) for name, places in grouped(turn, lambda position: kernels[position].name).items()
    }
    found = [index for index, name in enumerate(names) if name in turns]
    positions = [-1] * len(names)
    for index in found:
        positions[index] = next(turns[names[index]])
    if [names[index] for index in found] != [kernels[position].name for position in turn]:
        return positions
    ends = zip([-1, *found], [*found, len(names)], [-1, *turn], [*turn, len(kernels)], strict=True)
    for first, last, before, after in ends:
        wanted = list(range(before + 1, after))
        for name in {kernels[position].name for position in wanted}:
            calls = [position for position in wanted if kernels[position].name == name]
            events = [index for index in range(first + 1, last) if names[index] == name]
            if len(calls) == len(events):
                for index, position in zip(events, calls, strict=True):
                    positions[index] = position
    return positions
