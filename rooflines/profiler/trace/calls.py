"""Who called whom: the call tree of the host events, and with it the module, phase and step of every operator.

Modules come from annotations ``nn.Module: layer1.0.conv2 (Conv2d)`` that our own hooks write around every forward, or from the
profiler's Python stack (``nn.Module: Conv2d_0``) in traces of others. A backward operator has no module around it: autograd's sequence
number ties its node to the forward operator that made the node, and so to that operator's module.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rooflines.profiler.trace.reader import ANNOTATION, MODULE_PREFIX, OPERATOR, PYTHON, STEP_PREFIX, Int64s, Trace

FORWARD, BACKWARD, OPTIMIZER, OUTSIDE = 0, 1, 2, 3
PHASES = ("forward", "backward", "optimizer", "")

_NODE_PREFIX = "autograd::engine::evaluate_function: "
_MODULE = re.compile(re.escape(MODULE_PREFIX) + r"(?P<path>.*) \((?P<type>[^()]*)\)\Z")


@dataclass(frozen=True, slots=True)
class Module:
    """A module of the network: its path from the root (``layer1.0.conv2``, empty for the root itself) and its class."""

    path: str
    type: str


@dataclass(frozen=True, slots=True)
class Calls:
    """Columns beside ``trace.host``, one entry an event.

    ``parent`` is the enclosing host event (-1: none), ``operator`` the innermost operator that is or encloses the event (-1: none),
    ``after`` the first event behind everything below this one: what event ``i`` encloses are the events ``i + 1`` to ``after[i] - 1``.
    ``module`` indexes ``modules`` (-1: none), ``phase`` indexes ``PHASES``, ``end_ns`` is the event's end clipped to its parent's.
    ``steps`` holds ``[start, end)`` of every profiler step on the host.
    """

    parent: Int64s
    operator: Int64s
    after: Int64s
    module: Int64s
    phase: npt.NDArray[np.int8]
    end_ns: Int64s
    modules: list[Module]
    module_calls: Int64s
    steps: Int64s


def module_annotation(path: str, kind: str) -> str:
    """The name of the range that marks one forward of a module in a trace."""
    return f"{MODULE_PREFIX}{path} ({kind})"


def build_calls(trace: Trace) -> Calls:
    """The call tree of ``trace`` by nesting of intervals within each thread; linear in the number of events."""
    host = trace.host
    count = len(host)
    marks = _Marks(trace.names)
    parent = np.full(count, -1, np.int64)
    operator = np.full(count, -1, np.int64)
    module = np.full(count, -1, np.int64)
    phase = np.full(count, FORWARD, np.int8)
    end = host.end_ns.copy()
    # Plain lists: indexing a numpy array element by element costs ten times as much.
    starts, ends, threads = host.start_ns.tolist(), host.end_ns.tolist(), host.thread.tolist()
    kinds, names, sequences = host.kind.tolist(), host.name.tolist(), host.sequence.tolist()
    forward_threads = host.forward_thread.tolist()
    modules_of, phases_of, operators_of = [-1] * count, [FORWARD] * count, [-1] * count
    after = [count] * count
    forward_of = _forward_operators(kinds, sequences, forward_threads, starts)
    pending: list[tuple[int, int]] = []
    module_calls = [0] * len(marks.modules)
    steps: list[tuple[int, int]] = []
    stack: list[int] = []
    thread = None
    for i in range(count):
        if threads[i] != thread:
            for j in stack:
                after[j] = i
            thread, stack = threads[i], []
        while stack and ends[stack[-1]] <= starts[i] and not (ends[stack[-1]] == starts[i] == ends[i]):
            after[stack.pop()] = i
        above = stack[-1] if stack else -1
        if above >= 0:
            parent[i] = above
            if ends[i] > ends[above]:  # rounding to nanoseconds can push a child's end past its caller's
                ends[i] = end[i] = ends[above]
            modules_of[i], phases_of[i], operators_of[i] = modules_of[above], phases_of[above], operators_of[above]
        kind, name = kinds[i], names[i]
        if kind == OPERATOR:
            operators_of[i] = i
            if marks.is_node[name]:
                phases_of[i] = BACKWARD
                forward = forward_of.get(sequences[i], -1)
                # Filled in afterwards: the forward may lie on a thread that comes later in the order.
                modules_of[i] = -1
                if forward >= 0:
                    pending.append((i, forward))
            elif marks.phase[name] >= 0:
                phases_of[i] = marks.phase[name]
        elif kind in (ANNOTATION, PYTHON):
            mark = marks.module[name]
            if mark >= 0:
                modules_of[i] = mark
                module_calls[mark] += 1
            if kind == ANNOTATION:
                if marks.phase[name] >= 0:
                    phases_of[i] = marks.phase[name]
                if marks.is_step[name]:
                    steps.append((starts[i], ends[i]))
        stack.append(i)
    _inherit_backward_modules(pending, modules_of, parent.tolist())
    operator[:], module[:], phase[:] = operators_of, modules_of, phases_of
    return Calls(
        parent=parent,
        operator=operator,
        after=np.array(after, np.int64),
        module=module,
        phase=phase,
        end_ns=end,
        modules=marks.modules,
        module_calls=np.array(module_calls, np.int64),
        steps=np.array(sorted(set(steps)), np.int64).reshape(-1, 2),
    )


class _Marks:
    """What a name means, worked out once for each distinct name."""

    def __init__(self, names: list[str]) -> None:
        self.modules: list[Module] = []
        self.module = [-1] * len(names)
        self.phase = [-1] * len(names)
        self.is_step = [False] * len(names)
        self.is_node = [False] * len(names)
        for code, name in enumerate(names):
            if name.startswith(MODULE_PREFIX):
                match = _MODULE.match(name)
                label = name[len(MODULE_PREFIX) :]
                self.module[code] = len(self.modules)
                self.modules.append(Module(match["path"], match["type"]) if match else Module(label, label.rpartition("_")[0] or label))
            elif name.startswith(STEP_PREFIX):
                self.is_step[code] = True
            elif name.startswith(_NODE_PREFIX):
                self.is_node[code] = True
            elif name.startswith(("Optimizer.", "aten::_amp_")):  # a gradient scaler unscales outside of the optimizer's range
                self.phase[code] = OPTIMIZER
            elif name.startswith("enumerate(DataLoader)"):
                self.phase[code] = OUTSIDE


def _forward_operators(kinds: list[int], sequences: list[int], forward_threads: list[int], starts: list[int]) -> dict[int, int]:
    """Autograd's sequence number -> the forward operator that made the node.

    Every operator that starts before the node is made carries the number the node will get, the callers included; the one that starts
    last is the one that made it (the rule by which Kineto draws its forward-backward arrows).
    """
    found: dict[int, int] = {}
    for i, sequence in enumerate(sequences):
        if sequence < 0 or kinds[i] != OPERATOR or forward_threads[i] != 0:
            continue
        best = found.get(sequence)
        if best is None or starts[i] >= starts[best]:
            found[sequence] = i
    return found


def _inherit_backward_modules(nodes: list[tuple[int, int]], modules_of: list[int], parents: list[int]) -> None:
    """Give every autograd node its forward operator's module, and everything below the node the same."""
    node_module = {node: modules_of[forward] for node, forward in nodes}
    if not node_module:
        return
    owner = [-1] * len(parents)
    for i, above in enumerate(parents):  # parents come before their children
        owner[i] = i if i in node_module else (owner[above] if above >= 0 else -1)
        if owner[i] >= 0 and modules_of[i] < 0:
            modules_of[i] = node_module[owner[i]]
