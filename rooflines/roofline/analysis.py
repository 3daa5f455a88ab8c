"""What a run means: the machine-readable analysis, field by field as ``analysis.json`` shows it.

Units are SI base units and stand in the field names. A field that is None was not measured and is left out of the JSON. All times,
counts, FLOPs and bytes are **per step** when ``basis.per`` is ``step`` (the mean over the traced steps) and for the whole trace when
it is ``trace``; ``basis.steps`` is the number of steps in the trace.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from rooflines.device_specs.records import Ceiling
from rooflines.profiler.records import Environment, MemoryAtPeak, Workload
from rooflines.serial import from_plain, to_plain

ANALYSIS_SCHEMA = "rooflines.analysis/1"
Bound = Literal["compute", "memory", "latency", "communication", "host", "unknown"]
Phase = Literal["forward", "backward", "optimizer", ""]
CATEGORIES = (
    "convolution", "matmul", "attention", "normalisation", "element-wise", "reduction", "copy", "communication", "optimizer", "other",
)  # fmt: skip


class Basis(msgspec.Struct, frozen=True, kw_only=True):
    """What the figures are per, and how many traced steps they come from."""

    per: Literal["step", "trace"] = "step"
    steps: int = 1


class Steps(msgspec.Struct, frozen=True, kw_only=True):
    """Step times of the timed pass, profiler off. ``ci95_s`` is the bootstrap interval of the median.

    ``profiler_dilation`` is traced median / timed median: what the profiler cost, 1.08 is 8 % slower.
    """

    count: int
    median_s: float
    p10_s: float
    p90_s: float
    ci95_s: tuple[float, float]
    samples_per_s: float | None = None
    profiler_dilation: float | None = None
    warmup_count: int = 0
    settled: bool | None = None
    rule: str = ""
    clock: str = ""
    durations_s: tuple[float, ...] = ()


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over the operators. ``efficiency`` is lower bound / time of the operators with a bound."""

    flops: int | float
    matrix_flops: int | float
    bytes: int | float
    time_s: float
    lower_bound_s: float
    efficiency: float | None = None
    energy_j: float | None = None
    peak_memory_bytes: int | None = None


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """One device's time: ``span = busy + idle``. ``overlap_s`` is device time that ran beside other device time.

    The invariant of the whole analysis: operators + unmodelled + idle - overlap = span.
    """

    span_s: float
    busy_s: float
    idle_s: float
    compute_s: float
    memcpy_s: float = 0.0
    communication_s: float = 0.0
    exposed_memcpy_s: float = 0.0
    exposed_communication_s: float = 0.0
    overlap_s: float = 0.0


class TracedStep(msgspec.Struct, frozen=True, kw_only=True):
    """One profiler step: how long it lasted, on a device until what it launched had ended, and where that time went.

    ``breakdown`` has the keys of ``Analysis.step_breakdown`` and sums to ``duration_s``.
    """

    name: str
    duration_s: float
    breakdown: dict[str, float]


class Launches(msgspec.Struct, frozen=True, kw_only=True):
    """The queue between host and device. A delay is the time from a launch to the begin of what it launched; the queue is what has been
    launched and has not begun, ``queue_empty_fraction`` the share of the device's span in which it is empty."""

    count: int
    delay_median_s: float
    delay_p90_s: float
    queue_mean: float
    queue_max: int
    queue_empty_fraction: float


class Unmodelled(msgspec.Struct, frozen=True, kw_only=True):
    """An operator without a count, with the reason: no formula, a shape that the trace does not hold, no operator at all."""

    name: str
    calls: int | float
    time_s: float
    reason: str


class Coverage(msgspec.Struct, frozen=True, kw_only=True):
    """How much of the busy time has a FLOP and byte count; what has none is listed, longest first."""

    modelled_time_fraction: float | None
    unmodelled: tuple[Unmodelled, ...] = ()
    orphan_device_events: int = 0
    graph_launch_time_s: float = 0.0


class OperatorRow(msgspec.Struct, frozen=True, kw_only=True):
    """All calls of one signature in one module and phase.

    ``engine`` is the unit whose roof judges it, ``memory_level`` the level its bytes are judged against, ``flag`` why an efficiency
    above 1 should not be believed. ``inferred`` says what of the call the trace left out and other calls in it told.
    """

    name: str
    module: str
    phase: Phase
    shapes: str
    precision: str | None = None
    category: str
    calls: int | float
    time_s: float
    flops: int | float
    matrix_flops: int | float
    bytes: int | float
    intensity_flop_per_byte: float | None = None
    flop_per_s: float | None = None
    byte_per_s: float | None = None
    attainable_flop_per_s: float | None = None
    lower_bound_s: float | None = None
    efficiency: float | None = None
    headroom_s: float | None = None
    bound: Bound = "unknown"
    memory_level: str | None = None
    engine: str | None = None
    flag: str | None = None
    inferred: str | None = None


class ModuleRow(msgspec.Struct, frozen=True, kw_only=True):
    """One module with everything below it; ``type`` is its class."""

    path: str
    type: str
    calls: int | float
    time_s: float
    flops: int | float
    matrix_flops: int | float
    bytes: int | float
    lower_bound_s: float | None = None
    efficiency: float | None = None
    headroom_s: float | None = None
    depth: int = 0


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """Peak memory and what it counts (``allocator`` on a GPU, ``resident set`` on a CPU).

    ``at_peak`` is what it consists of: the tensors of a step at their peak, which ``operator`` reaches in ``module`` and ``phase``, and
    as ``overhead`` all the rest. The parts sum to ``peak_bytes``.
    """

    peak_bytes: int | None = None
    kind: str | None = None
    at_peak: MemoryAtPeak | None = None
    operator: str | None = None
    module: str | None = None
    phase: Phase | None = None


class Finding(msgspec.Struct, frozen=True, kw_only=True, rename={"suggestion": "try"}):
    """One piece of advice: what could be gained (seconds per step), why we think so, what to try."""

    title: str
    saves_s: float
    evidence: str
    suggestion: str


class Analysis(msgspec.Struct, frozen=True, kw_only=True):
    """The whole analysis of a run or a trace. ``verdict`` is the one sentence that every report opens with.

    ``step_breakdown`` is the mean of ``traced_steps``, or of the whole trace where it has no steps. ``idle_breakdown`` divides the idle
    time of a device by cause and, like the timeline, is per ``basis``.
    """

    schema: str = ANALYSIS_SCHEMA
    verdict: str = ""
    workload: Workload
    environment: Environment
    command: str = ""
    created: str = ""
    status: str = "complete"
    basis: Basis = Basis()
    ceilings: tuple[Ceiling, ...] = ()
    steps: Steps | None = None
    totals: Totals | None = None
    timeline: Timeline | None = None
    step_breakdown: dict[str, float] | None = None
    bound_breakdown: dict[str, float] | None = None
    traced_steps: tuple[TracedStep, ...] = ()
    idle_breakdown: dict[str, float] | None = None
    launches: Launches | None = None
    coverage: Coverage | None = None
    operators: tuple[OperatorRow, ...] = ()
    modules: tuple[ModuleRow, ...] = ()
    memory: Memory | None = None
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The analysis as plain Python containers, exactly what ``analysis.json`` holds; what was not measured is absent."""
        plain: dict[str, Any] = to_plain(self)
        return plain

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> Analysis:
        """The inverse of ``to_dict``; raises msgspec.ValidationError naming the field that does not fit."""
        return from_plain(plain, cls)
