"""The facts of a run that somebody else recorded: what can be told from the trace alone, and nothing that cannot.

A trace says what ran and on which device, but neither the batch size nor the versions of anything, nor where it ran. The precision is
that in which most elements of the operators' tensors are.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np

from rooflines._version import __version__
from rooflines.profiler.records import Environment, Mode, Run, RunFile, Settings, Workload
from rooflines.profiler.trace.calls import is_backward_node
from rooflines.profiler.trace.cut import lacks_device
from rooflines.profiler.trace.records import OPERATOR, Trace
from rooflines.profiler.trace.url import shown

_PRECISIONS = {"float64": "fp64", "float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}


def run_of_trace(path: Path | str, trace: Trace, command: str = "") -> Run:
    """The run that the trace in ``path`` records. Its directory is the trace's own; no file of a run is in it."""
    place = Path(shown(path))
    facts = RunFile(
        status="complete",
        workload=Workload(name=place.name, mode=_mode(trace), precision=_precision(trace), source="trace"),
        environment=_environment(trace),
        settings=Settings(command=command, ceilings="spec"),
        trace=place.name,
        notes=trace.notes,
    )
    return Run(directory=place.parent, facts=facts)


def _mode(trace: Trace) -> Mode:
    """Training when something was differentiated or optimized."""
    trains = [is_backward_node(name) or name.startswith("Optimizer.") for name in trace.names]
    return "training" if any(trains) else "inference"


def _precision(trace: Trace) -> str:
    elements: Counter[str] = Counter()
    calls = np.bincount(trace.host.signature[trace.host.kind == OPERATOR] + 1, minlength=len(trace.signatures) + 1)[1:]
    for signature, number in zip(trace.signatures, calls.tolist(), strict=True):
        for tensor in signature.tensors:
            if tensor.dtype in _PRECISIONS:
                elements[tensor.dtype] += number * tensor.numel
    return _PRECISIONS[elements.most_common(1)[0][0]] if elements else ""


def _environment(trace: Trace) -> Environment:
    ordinals = [0] if lacks_device(trace) else np.unique(trace.device.device).tolist()
    used = [trace.devices[ordinal] for ordinal in ordinals if 0 <= ordinal < len(trace.devices)]
    if not used:
        device = f"{trace.platform}:{ordinals[0]}" if ordinals else "cpu"
        return Environment(rooflines=__version__, device=device, device_name="")
    return Environment(
        rooflines=__version__,
        device=f"{trace.platform}:{ordinals[0]}",
        device_name=used[0].name,
        device_memory_bytes=used[0].memory_bytes,
        device_units=used[0].multiprocessors,
    )
