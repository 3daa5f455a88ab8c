"""The trace of a capture beside the trace of its replays, as servers record them."""

from __future__ import annotations

from dataclasses import dataclass

from rooflines.profiler.trace.records import Trace


@dataclass(frozen=True, slots=True)
class CaptureTrace:
    """A trace in which CUDA or HIP graphs were captured. ``name`` names it in errors, ``tokens`` is the batch that its graphs were
    captured for, where a record beside it says so."""

    trace: Trace
    name: str
    tokens: int | None = None
