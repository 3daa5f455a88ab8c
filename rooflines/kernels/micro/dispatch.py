"""The shortest time an operator takes in eager mode: the operator that does nothing.

``zero_`` on one element outside of autograd is the cheapest operator that still writes memory: no output is
allocated, and on a CPU the work is one store. Views are dearer, for they make a new tensor.

For comparison, the same of what else runs kernels from Python: one ufunc of NumPy, one compiled function of
Numba.
"""

from __future__ import annotations

import itertools
import json
import math
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from rooflines.kernels.micro.clock import synchronize_device
from rooflines.kernels.micro.repeats import Run, Timing, share
from rooflines.kernels.micro.vectors import compiled_vectors


def operator() -> Run:
    """A run of ``aten::zero_`` on a CPU tensor of one element: the time without the loop and the Python call
    around it.

    The same loop over ``Tensor.dim``, a method call that runs no operator, is subtracted: what remains is
    what a trace of operators would show. In processor time, so that a thread that lost its core in between
    does not look like a slow operator.
    """
    with torch.inference_mode():
        tensor = torch.ones(1)

    def run(calls: int) -> Timing:
        with torch.inference_mode():
            return beyond(calls)

    beyond = _beyond(tensor.zero_, tensor.dim)
    return run


def ufunc() -> Run:
    """A run of one NumPy ufunc (``negative`` in place) on an array of one element, as above less an empty
    method call."""
    array = np.ones(1)
    return _beyond(partial(np.negative, array, array), partial(len, array))


def compiled_function() -> Run:
    """A run of a function compiled by Numba that negates an array of one element, as above."""
    array = np.ones(1)
    _negate(array)  # compiles
    return _beyond(partial(_negate, array), partial(len, array))


@compiled_vectors
def _negate(values: NDArray[np.float64]) -> None:
    values[0] = -values[0]


def _beyond(call: Callable[[], object], nothing: Callable[[], object]) -> Run:
    """A run that returns the processor time of its calls beyond that of as many calls of ``nothing``.

    The shortest that ``nothing`` ever took is subtracted: subtracting a disturbed one would make the operator
    too fast.
    """
    shortest = math.inf

    def run(calls: int) -> Timing:
        nonlocal shortest
        empty, whole = _loop(nothing, calls), _loop(call, calls)
        shortest = min(shortest, empty.seconds * empty.busy / calls)
        return Timing(max(0.0, whole.seconds * whole.busy - shortest * calls), whole.busy)

    return run


def _loop(call: Callable[[], object], calls: int) -> Timing:
    begin, before = time.perf_counter_ns(), time.thread_time_ns()
    for _ in itertools.repeat(None, calls):
        call()
    took, processor = time.perf_counter_ns() - begin, time.thread_time_ns() - before
    return Timing(took * 1e-9, share(processor, took))


def smallest_kernel(device: torch.device) -> torch.Tensor:
    """A tensor of one element on ``device``, whose ``zero_`` launches the shortest kernel."""
    return torch.ones(1, device=device)


def traced_launches(device: torch.device, launches: int) -> dict[str, Any]:
    """A trace by torch's profiler of ``add_`` and ``zero_`` on one element, ``launches`` times each, as
    Chrome trace JSON."""
    tensor = smallest_kernel(device)
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with warnings.catch_warnings():  # torch 2.11 warns that a second trace drops the events of the first
        warnings.filterwarnings("ignore", message=".*Profiler clears events at the end of each cycle")
        with torch.inference_mode(), torch.profiler.profile(activities=activities) as profiler:
            for _ in range(launches):
                tensor.add_(1)
                tensor.zero_()
            synchronize_device(device)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.json")
        profiler.export_chrome_trace(str(path))
        return cast("dict[str, Any]", json.loads(path.read_text(encoding="utf-8")))


def shortest_kernel_s(trace: dict[str, Any]) -> float | None:
    """The shortest duration of a kernel in a trace of torch's profiler, in seconds; None without kernels.

    Copies and memory sets are not kernels, and may be shorter.
    """
    kernels = [
        event["dur"]
        for event in trace["traceEvents"]
        if event.get("cat") == "kernel" and event.get("dur", 0) > 0
    ]
    return min(kernels) * 1e-6 if kernels else None  # from microseconds


def launch_graph(device: torch.device, launches: int) -> Callable[[], object]:
    """A call that replays a CUDA graph of ``launches`` one-element kernels in a row, so that no host time
    lies between them.

    ``add_`` and not ``zero_``: the latter may be recorded as a memory-set node, which is not a kernel.
    """
    with torch.cuda.device(device), torch.inference_mode():
        tensor = smallest_kernel(device)
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # capture needs a stream on which the kernel has run before
            tensor.add_(1)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(launches):
                tensor.add_(1)

    def replay(_keep: torch.Tensor = tensor) -> None:
        """Replay the graph; the default argument keeps alive the memory that the graph writes to."""
        graph.replay()

    return replay
