"""Modules of kernels in CUDA graphs from the annotations of their nodes (``torch.cuda.graph_annotations.mark_kernels``).

An annotation gives the module of a replayed kernel if no capture has it. It lies in the module around the launch of the graph, which
keeps the time of everything below it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rooflines.profiler.trace.distinct import distinct_rows
from rooflines.profiler.trace.records import Mask
from rooflines.profiler.trace.tree import BACKWARD, Calls, Module
from rooflines.profiler.trace.windows import at_launch
from rooflines.roofline.attribution.origins import FROM_KERNEL, Origins


def with_scopes(origins: Origins, calls: Calls, inside: Mask) -> tuple[Origins, Calls]:
    """Return the origins with the annotated modules and phases, and the calls with these modules, which are called once per replay.

    ``inside`` says which host events are in the window.
    """
    trace, launch = calls.trace, calls.launch
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
        path = _nested(modules[module].path if module >= 0 else "", trace.scopes[scope].path)
        if path not in numbers:
            numbers[path] = len(modules)
            modules.append(Module(path, "range"))
        found.append(numbers[path])
    scope, phase = origins.scope.copy(), origins.scope_phase.copy()
    scope[events] = np.array(found, np.int64)[group]
    backward = np.array([one.is_backward for one in trace.scopes], bool)[trace.device.scope[events]]
    phase[events[backward]] = BACKWARD
    module_calls = np.append(calls.module_calls, np.zeros(len(modules) - len(calls.modules), np.int64))
    called, _ = distinct_rows(launch[events], around, scope[events])
    counted = (called[:, 0] >= 0) & at_launch(inside, called[:, 0]) & (called[:, 1] != called[:, 2])
    np.add.at(module_calls, called[counted, 2], 1)
    return replace(origins, scope=scope, scope_phase=phase), replace(calls, modules=modules, module_calls=module_calls)


def _nested(around: str, path: str) -> str:
    """The path of a scope inside of the module ``around``, of which it may have the path already."""
    return path if not around or path == around or path.startswith(f"{around}.") else f"{around}.{path}"
