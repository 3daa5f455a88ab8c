"""The trace of a capture, which servers record separately from the trace of the replays."""

from __future__ import annotations

from dataclasses import dataclass

from rooflines.profiler.trace.records import Trace


@dataclass(frozen=True, slots=True)
class CaptureTrace:
    """A trace in which CUDA or HIP graphs were captured. ``name`` is used in errors, ``tokens`` is the batch of its graphs if a
    record next to the file has it."""

    trace: Trace
    name: str
    tokens: int | None = None
