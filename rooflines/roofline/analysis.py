"""The machine-readable analysis of a run, field by field as in ``analysis.json``.

Units are SI base units, given in the field names. A field that is None was not measured and is left out of
the JSON. All times, counts, FLOPs and bytes are **per step** when ``basis.per`` is ``step`` (the mean over
the traced steps) and for the whole trace when it is ``trace``; ``basis.steps`` is the number of steps in the
trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

import msgspec

from rooflines.device_specs.records import Ceiling, Ceilings
from rooflines.errors import UsageError
from rooflines.profiler.records import (
    Environment,
    HeldTensor,
    MemoryAtPeak,
    MemoryCurve,
    ResultError,
    Workload,
)
from rooflines.profiler.samplers.fields import Field
from rooflines.roofline.served_steps import Generation, Serving
from rooflines.shown import Shown

if TYPE_CHECKING:
    import pandas as pd

ANALYSIS_SCHEMA = "rooflines.analysis/2"
# ``transfer`` is a copy between host and device, judged by the link; ``inefficient`` is work that stays below
# a third of every roof.
Bound = Literal["compute", "memory", "inefficient", "latency", "transfer", "communication", "unknown"]
Limit = Literal["input", "host"]
# A sum of whole numbers over the steps, or its mean.
Number: TypeAlias = int | float
Phase = Literal["forward", "backward", "optimizer", "prefill", "decode", ""]
CATEGORIES = (
    "convolution",
    "matmul",
    "attention",
    "moe",
    "normalization",
    "element-wise",
    "reduction",
    "copy",
    "embedding",
    "communication",
    "optimizer",
    "other",
)

# The columns of a table that hold words; every other column holds a number.
WORDS = frozenset(
    (
        "name",
        "module",
        "phase",
        "shapes",
        "precision",
        "category",
        "bound",
        "memory_level",
        "engine",
        "flag",
        "inferred",
        "assumption",
        "caller",
        "path",
        "type",
        "nearest_roof",
        "kernels",
        "lines",
        "step_times_s",
    )
)


class Basis(msgspec.Struct, frozen=True, kw_only=True):
    """The unit that figures are per, and the number of traced steps behind them."""

    #: the mean of the traced steps, or the whole trace
    per: Literal["step", "trace"] = "step"
    steps: int = 1
    #: the one step is a whole program from its start, or up to the end of its first step: imports, building
    #: the model and all first calls are in its times
    start_up: bool = False
    #: the profiler recorded Python stacks, which makes the host slower
    stacks: bool = False
    #: the times add up to the median timed step, without the profiler; otherwise they are those of the traced
    #: steps
    timed: bool = False
    #: each call counts with the lower quartile of its times in the traced steps that resemble the timed ones
    steady: bool = False
    #: time of a traced step on a CPU that the ranges of modules took; in no other figure
    ranges_s: float | None = None
    #: time for which the device of a traced step ran nothing while the profiler did work of its own, such as
    #: requesting buffers; in no other figure
    overhead_s: float | None = None
    #: time in which operators of several threads of a CPU ran at once
    shared_s: float | None = None
    #: time before the first work of the device, where the analysis of a trace without steps begins
    before_s: float | None = None
    #: how many devices the trace has work of: times are the union over them, FLOPs and bytes the sum
    devices: int = 1
    #: as in ``StepTimes``
    served: bool = False
    #: whether torch's ``DataLoader`` had workers, by the names of its ranges; None without such ranges
    loader_workers: bool | None = None
    #: most of the operators' time is on complex numbers, for which inductor generates no code
    is_complex: bool = False


class Steps(msgspec.Struct, frozen=True, kw_only=True):
    """Step times of the timed pass, profiler off."""

    count: int
    median_s: float
    p10_s: float
    p90_s: float
    #: 95 % interval of the median: by bootstrap, of two to five steps by Student's t, of one step absent
    ci95_s: tuple[float, float] | None = None
    samples_per_s: float | None = None
    #: traced median / timed median, what the profiler cost: 1.08 is 8 % slower
    profiler_dilation: float | None = None
    warmup_count: int = 0
    #: the first step, in which libraries load, memory is allocated and code is compiled
    first_s: float | None = None
    #: the part of the first step that ``torch.compile`` took
    compile_s: float | None = None
    #: whether the warm-up ended because step times had settled
    settled: bool | None = None
    #: how that was decided
    rule: str = ""
    #: what timed the steps
    clock: str = ""
    #: every timed step
    durations_s: tuple[float, ...] = ()
    #: the steps that other programs delayed, which are in no other figure
    disturbed: tuple[int, ...] = ()
    #: as in ``StepTimes``
    slowed_by: str | None = None

    @property
    def quiet_s(self) -> tuple[float, ...]:
        """The steps that the figures are of."""
        left_out = set(self.disturbed)
        return tuple(time_s for number, time_s in enumerate(self.durations_s) if number not in left_out)


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over the operators, absent where none has a count: ``lower_bound_s + headroom_s + unjudged_s =
    time_s``.

    Bound, headroom and efficiency are absent where more than a fifth of the busy time is unknown, because the
    rest says little of the whole; then all of the time is unjudged.
    """

    flops: Number | None = None
    matrix_flops: Number | None = None
    bytes: Number | None = None
    time_s: float | None = None
    #: an operator faster than its bound counts with its time
    lower_bound_s: float | None = None
    headroom_s: float | None = None
    #: time of operators without a bound, and of copies that computation hides
    unjudged_s: float = 0.0
    #: lower bound / (lower bound + headroom)
    efficiency: float | None = None
    energy_j: float | None = None
    peak_memory_bytes: int | None = None


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """One device's time: ``span = busy + idle`` and ``busy = compute + exposed memcpy + exposed
    communication``.

    The invariant of the whole analysis: operators + unmodeled + idle - overlap = span.
    """

    span_s: float
    busy_s: float
    idle_s: float
    compute_s: float
    #: hidden time included
    memcpy_s: float = 0.0
    #: hidden time included
    communication_s: float = 0.0
    exposed_memcpy_s: float = 0.0
    exposed_communication_s: float = 0.0
    #: device time that overlapped other device time
    overlap_s: float = 0.0
    #: device time of work that was launched before the recording began, in the timeline of a whole trace
    earlier_s: float | None = None
    #: the part of the exposed communication during which the host had launched the computation that comes
    #: next: where it had not, the host sets the pace, and hiding the communication saves nothing
    ready_communication_s: float | None = None


class TracedStep(msgspec.Struct, frozen=True, kw_only=True):
    """One profiler step: how long it lasted, on a device until what it launched had ended, and where that
    time went."""

    name: str
    duration_s: float
    #: with the keys of ``Analysis.step_breakdown``; sums to ``duration_s``
    breakdown: dict[str, float]


class Lane(msgspec.Struct, frozen=True, kw_only=True):
    """What ran in a step on one ``stream`` of a ``device`` or one ``thread`` of the host, the idle time of
    one ``cause``, or the steps.

    Segments do not overlap: segment ``i`` lasts ``durations_ns[i]`` from ``begins_ns[i]`` after the begin of
    the step and is ``items[i]``, one of those of ``Activity``; idle time has one item, ``longest``.
    """

    kind: Literal["stream", "thread", "idle", "steps"]
    device: int | None = None
    stream: int | None = None
    #: numbered as in the trace
    thread: int | None = None
    #: of a thread: ``main`` if it makes the steps, ``autograd`` if most of its time is in the backward pass
    role: str | None = None
    cause: str | None = None
    #: the sum of the durations
    busy_ns: int
    #: the number of segments before short ones were merged
    count: int
    #: the item with most of the time
    longest: int
    begins_ns: tuple[int, ...]
    durations_ns: tuple[int, ...]
    items: tuple[int, ...] = ()


class Activity(msgspec.Struct, frozen=True, kw_only=True):
    """What ran when in one traced step, or in the whole of a trace without steps.

    Times are as traced, with the profiler on, and not scaled: ``duration_ns`` is ``busy_ns`` and the idle
    time. Host threads beside a device have their outermost operators and runtime calls, and the waits inside
    them. What a segment is, an item, has one of ``names`` and one of ``rows``: the work of a row has no name,
    that of the host beside a device has the row with most of the device time that it launched, and the name
    of idle time is its cause.
    """

    #: the step nearest the median duration of the ``steps`` traced ones that resemble the timed ones
    step: str = ""
    steps: int
    #: begin of the step (epoch if the trace has an origin)
    began_ns: int
    duration_ns: int
    #: in which anything ran on a device (on a CPU: any operator); the rest is the sum of the lanes of kind
    #: ``idle``, whose causes are those of ``idle_breakdown`` and ``profiler``, the overhead of ``Basis``
    busy_ns: int
    #: neighboring segments below it are one, of the item with most of the time: it lasts as long as they do
    #: together
    resolution_ns: int
    lanes: tuple[Lane, ...]
    #: the name of each item
    names: tuple[str, ...]
    #: the row of each item, an index in ``Analysis.rows`` (``operators``, then ``coverage.unmodeled``; -1:
    #: none)
    rows: tuple[int, ...]
    #: the rows that ran and have no segment
    unplaced: tuple[int, ...] = ()
    #: the number of streams and threads with less time than those in ``lanes``
    left_out: int = 0

    def of(self, *kinds: str) -> tuple[Lane, ...]:
        """The lanes of ``kinds``."""
        return tuple(lane for lane in self.lanes if lane.kind in kinds)


class StepDivision(msgspec.Struct, frozen=True, kw_only=True):
    """The time of a step by part: the parts sum to ``step_s``; parts that the trace does not show are absent.

    Of a ``device``: the work of forward, backward and optimizer, or of prefill and decode, by what launched
    it, then copies from the host and communication that no such work hides, then idle time. Of a ``host``
    that computes itself: its data loader, its operators by phase, and all that runs outside of operators.
    """

    #: whose time it is
    of: Literal["device", "host"]
    step_s: float
    #: of a device: idle while the host was loading data
    data_loading_s: float | None = None
    host_to_device_s: float | None = None
    forward_s: float | None = None
    backward_s: float | None = None
    optimizer_s: float | None = None
    prefill_s: float | None = None
    decode_s: float | None = None
    communication_s: float | None = None
    #: work whose phase or launch the trace does not show
    other_s: float | None = None
    #: of a device: idle while the host had launched nothing for another reason; of a host: what runs outside
    #: of operators
    host_s: float | None = None
    #: the rest of the idle time of a device
    idle_s: float | None = None
    #: how long the host was in the data loader, hidden or not: in a timed step where there are any
    loader_s: float | None = None


# The parts of a StepDivision, in the order in which they are shown.
PARTS = (
    "data_loading",
    "host_to_device",
    "forward",
    "backward",
    "optimizer",
    "prefill",
    "decode",
    "communication",
    "other",
    "host",
    "idle",
)


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """Samples or batches a second."""

    per_s: float
    #: the bootstrap interval, where there was enough to tell
    ci95_per_s: tuple[float, float] | None = None
    #: measured by itself, or derived from the timed steps less what they waited
    how: Literal["measured", "derived"] = "measured"


class RareWaits(msgspec.Struct, frozen=True, kw_only=True):
    """Long waits for data in a few of the timed steps, which the median step does not contain, as at the
    start of an epoch."""

    #: how many steps waited
    steps: int
    #: of how many
    of: int
    #: their mean wait
    wait_s: float
    #: their share of the time of all steps
    fraction: float


class Input(msgspec.Struct, frozen=True, kw_only=True):
    """Data loading of the steps, profiler off; times are shares of the mean timed step, in seconds of the
    step that is divided.

    The steps that the ``ready_batches`` fed, which workers had loaded before the timed pass began, are left
    out, except in a pass too short for that.
    """

    loader: str
    #: how long the program waits for its batches in a step
    wait_s: float
    #: of the steps' mean time
    wait_fraction: float
    #: of the rates: ``images`` or ``batches`` a second
    unit: str
    #: how much of the wait delays the step: on a device only what the trace shows it idle for; absent without
    #: a trace
    delay_s: float | None = None
    delay_fraction: float | None = None
    workers: int | None = None
    ready_batches: int = 0
    #: the pass was too short to leave out the ready batches: waits are lower bounds
    is_lower_bound: bool = False
    #: in none of the other figures
    rare_waits: RareWaits | None = None
    pin_memory: bool | None = None
    #: how much of their time the workers computed
    workers_busy_fraction: float | None = None
    #: the loader alone
    loader_rate: Rate | None = None
    #: the step alone
    step_rate: Rate | None = None


class Synchronization(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of one kind in which the host waits for the device."""

    call: str
    calls: Number
    #: how long the host waits
    wait_s: float
    #: how long the device is then idle; never more than ``wait_s``, because a host that had not waited would
    #: have launched that much earlier
    idle_s: float
    #: the ATen operator around the call (``aten::item``)
    operator: str = ""
    #: the line in the source, where the Python stack was recorded
    where: str = ""


class HostWork(msgspec.Struct, frozen=True, kw_only=True):
    """Work of the host while the device was idle."""

    #: an ``operator`` that computed on the host; a function of the ``python`` stack that launched nothing;
    #: the ``runtime`` at a long call that does not wait, or what only the first of equal calls or ranges
    #: takes (loading a kernel); calls of any length that take memory of a device or give it back
    #: (``allocator``); the update of an ``optimizer``; the ranges of ``compiled`` code; packing tensors for a
    #: ``broadcast`` as DistributedDataParallel does with buffers; or stretches of a millisecond or more in
    #: which nothing was recorded (``unrecorded``)
    kind: Literal[
        "operator", "python", "runtime", "allocator", "optimizer", "compiled", "broadcast", "unrecorded"
    ]
    name: str
    calls: Number
    #: of the device's idle time
    idle_s: float
    shapes: str = ""
    #: the line in the source around an operator
    where: str = ""


class Gap(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch in which nothing ran that occurs once."""

    #: since the begin of the trace
    at_s: float
    lasts_s: float
    #: the operator or the kernel with which it ends
    before: str
    #: of all idle time
    share: float
    #: the part in which nothing waited but for the host
    host_s: float


class CollectiveRow(msgspec.Struct, frozen=True, kw_only=True):
    """Collectives of one kind and size."""

    kind: str
    #: the size of one, by which NVIDIA's nccl-tests divide; None where the trace does not hold it
    bytes: int | None = None
    calls: Number
    time_s: float
    #: the part of the time that nothing hides
    exposed_s: float
    group_size: int | None = None
    #: the shortest of the single calls
    shortest_s: float | None = None
    #: the longest of the single calls
    longest_s: float | None = None


class Recomputation(msgspec.Struct, frozen=True, kw_only=True):
    """Operators of the forward pass that ran again inside the backward pass, as activation checkpointing
    makes them."""

    time_s: float
    calls: Number
    operators: tuple[str, ...] = ()


class OtherPrograms(msgspec.Struct, frozen=True, kw_only=True):
    """What other programs did to the processors while the steps were timed and traced."""

    #: the mean number of processors that they kept busy
    busy: float
    #: the number of the processors' threads
    threads: int
    #: the names of those that were still running, with the number of processors that each kept busy
    programs: dict[str, float] = {}
    #: timed steps that they delayed
    timed_left_out: int = 0
    #: traced steps that they delayed
    traced_left_out: int = 0
    #: whether enough steps are left; else times are those of the steps with the least delay, and upper limits
    judged: bool = True
    #: the least and the largest share of each bound class in the steps that they left alone
    shares: dict[str, tuple[float, float]] = {}


class PageFaults(msgspec.Struct, frozen=True, kw_only=True):
    """Pages of memory that a step takes from the system."""

    #: the mean over the timed steps
    timed: float
    #: the mean over the traced steps, where counted
    traced: float | None = None
    #: what one took when it was measured between the two passes
    page_s: float | None = None


class Launches(msgspec.Struct, frozen=True, kw_only=True):
    """The queue between host and device. A delay is the time from a launch to the begin of what it launched;
    the queue is what has been launched and has not begun."""

    count: int
    delay_median_s: float
    delay_p90_s: float
    queue_mean: float
    queue_max: int
    #: the share of the device's span in which the queue is empty
    queue_empty_fraction: float


class Kernel(msgspec.Struct, frozen=True, kw_only=True):
    """Device work of an operator by name: a kernel, a copy (``Memcpy HtoD (Pageable -> Device)``) or a
    memset.

    Grid, block, registers and shared memory are given where the trace records them and all of the calls have
    the same.
    """

    name: str
    calls: Number
    time_s: float
    streams: tuple[int, ...] = ()
    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    #: of a thread
    registers: int | None = None
    #: of a block
    shared_bytes: int | None = None
    #: the share of a multiprocessor's warps that the profiler estimates to be in use, the mean over the time
    #: of the calls; 0 is less than 1 %
    occupancy: float | None = None


class Example(msgspec.Struct, frozen=True, kw_only=True):
    """Where to find an operator in the trace, in Perfetto for example: the longest of its kernels, on a CPU
    of its calls."""

    #: its begin as the file has it
    ts_us: float
    #: its begin after the first event of host or device
    at_s: float
    #: its length as traced
    lasts_s: float
    #: empty outside of steps
    step: str = ""
    #: absent on a CPU
    stream: int | None = None


class LineShare(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the program that a row comes from."""

    #: ``net.py:11``; in a trace of others a function, by its first line
    place: str
    #: of the row's time
    share: float


class Unmodeled(msgspec.Struct, frozen=True, kw_only=True):
    """An operator without a count in one module and phase. A kernel that no operator launched is a row of its
    own."""

    name: str
    calls: Number
    time_s: float
    #: no formula, a shape that the trace does not hold
    reason: str
    module: str = ""
    phase: Phase = ""
    shapes: str = ""
    #: as in ``OperatorRow``
    caller: str | None = None
    lines: tuple[LineShare, ...] = ()
    step_times_s: tuple[float, ...] | None = None
    exposed_s: float | None = None
    kernels: tuple[Kernel, ...] = ()
    example: Example | None = None
    # The figures of an ``OperatorRow``, none of which is known.
    category: ClassVar[str] = ""
    bound: ClassVar[Bound] = "unknown"
    nearest_roof: ClassVar[str | None] = None
    precision: ClassVar[str | None] = None
    flops: ClassVar[float] = 0
    matrix_flops: ClassVar[float] = 0
    bytes: ClassVar[float] = 0
    lower_bound_s: ClassVar[float | None] = None
    headroom_s: ClassVar[float | None] = None
    efficiency: ClassVar[float | None] = None


class LostWork(msgspec.Struct, frozen=True, kw_only=True):
    """Work of the steps (of the trace without steps) that is on one side of the trace only."""

    #: launches of kernels
    launches: int = 0
    #: of them, those without a kernel in the trace
    without_kernel: int = 0
    #: of these, those before all that have one
    at_start: int = 0
    #: of these, those after all that have one
    at_end: int = 0
    #: rows that lack device time for it
    operators: int = 0
    #: the share of the FLOPs of the rows that are not judged
    flops_fraction: float | None = None
    #: events of the device
    events: int = 0
    #: of them, those without a launch in the trace
    without_launch: int = 0
    #: their time per step
    without_launch_s: float = 0.0
    #: theirs
    streams: tuple[int, ...] = ()
    #: those with either
    steps: tuple[str, ...] = ()


class Coverage(msgspec.Struct, frozen=True, kw_only=True):
    """What of the busy time has a work model."""

    #: the share of the busy time with a work model or in communication or copies
    modeled_time_fraction: float | None = None
    #: whether the trace has the shapes of its operators (``record_shapes=True``); absent without operators
    shapes_recorded: bool | None = None
    #: operators without a model, longest first
    unmodeled: tuple[Unmodeled, ...] = ()
    orphan_device_events: int = 0
    #: device time of work that was launched as a CUDA or HIP graph
    graph_launch_time_s: float = 0.0
    #: the part of it whose operators are known
    graph_matched_time_s: float = 0.0
    #: absent if every launch has a kernel and every kernel a launch
    lost: LostWork | None = None

    @property
    def uncounted(self) -> str:
        """What has no count, for a sentence."""
        return (
            "operators whose shapes were not recorded"
            if self.shapes_recorded is False
            else "operators without a work model"
        )


class OperatorRow(msgspec.Struct, frozen=True, kw_only=True):
    """All calls of one signature in one module and phase."""

    name: str
    module: str
    phase: Phase
    shapes: str
    precision: str | None = None
    category: str
    calls: Number
    time_s: float
    flops: Number
    matrix_flops: Number
    bytes: Number
    intensity_flop_per_byte: float | None = None
    flop_per_s: float | None = None
    byte_per_s: float | None = None
    attainable_flop_per_s: float | None = None
    lower_bound_s: float | None = None
    efficiency: float | None = None
    headroom_s: float | None = None
    #: what the replayed step gains where this row alone runs at its bound, and the part of the row's time by
    #: which the step is shorter without it; absent of rows below a five-hundredth of the step
    gain_s: float | None = None
    critical_fraction: float | None = None
    bound: Bound = "unknown"
    #: the roof that an inefficient row is closest to
    nearest_roof: Literal["compute", "memory"] | None = None
    #: the part of a copy's or a collective's time that no computation hides, of computation the part in which
    #: no other kernel runs
    exposed_s: float | None = None
    #: the level its bytes are judged against
    memory_level: str | None = None
    #: the unit whose roof judges it
    engine: str | None = None
    #: why an efficiency above 1 is not plausible
    flag: str | None = None
    #: what was inferred from other events in the trace
    inferred: str | None = None
    #: what was assumed about data that the trace does not record
    assumption: str | None = None
    #: the nearest operator around most of its calls on a device that is none of ATen's: of autograd, another
    #: library or compiled code
    caller: str | None = None
    #: the lines of the program that it comes from, those with most of its time first
    lines: tuple[LineShare, ...] = ()
    #: the time in each traced step, whose mean is ``time_s``; absent with fewer than two steps
    step_times_s: tuple[float, ...] | None = None
    #: what it ran on the device, longest first
    kernels: tuple[Kernel, ...] = ()
    example: Example | None = None


Row: TypeAlias = OperatorRow | Unmodeled
# The place of a row in ``Analysis.rows``, or a cause of idle time.
Key: TypeAlias = int | str


class ModuleRow(msgspec.Struct, frozen=True, kw_only=True):
    """One module with everything below it."""

    path: str
    #: its class
    type: str
    calls: Number
    time_s: float
    flops: Number
    matrix_flops: Number
    bytes: Number
    lower_bound_s: float | None = None
    efficiency: float | None = None
    headroom_s: float | None = None
    depth: int = 0


class LineRow(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the program with all that runs for it: in the backward what the forward of the line asks for,
    and equal parts of the kernels that ``torch.compile`` fused from several lines."""

    #: as in the rows
    place: str
    #: as recorded
    path: str
    line: int
    function: str = ""
    #: only the function is known, and the line is its first
    is_function: bool = False
    #: what the line said when it ran
    text: str = ""
    time_s: float
    flops: Number
    bytes: Number
    headroom_s: float | None = None
    #: that of most of its time
    bound: Bound = "unknown"
    #: what it runs, those with most of the time first
    operators: tuple[str, ...] = ()


class Allocated(msgspec.Struct, frozen=True, kw_only=True):
    """Memory that the allocator had handed out over one traced step, by the memory events of the trace: the
    step in which it is most."""

    peak_bytes: int
    #: whose memory it is: of the host, it counts from the begin of the recording
    of: Literal["device", "host"]
    curve: MemoryCurve
    #: empty in a trace without steps
    step: str = ""
    #: what reaches the peak, in ``module`` and ``phase``
    operator: str = ""
    module: str = ""
    phase: Phase = ""


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """Peak memory and what it consists of."""

    peak_bytes: int | None = None
    #: what the peak counts: ``allocator`` on a GPU, ``resident set`` on a CPU
    kind: str | None = None
    #: the tensors of a step at their peak, and as ``overhead`` all the rest: the parts sum to ``peak_bytes``
    at_peak: MemoryAtPeak | None = None
    #: what reaches the peak, in ``module`` and ``phase``
    operator: str | None = None
    module: str | None = None
    phase: Phase | None = None
    #: what the tensors hold over that step
    curve: MemoryCurve | None = None
    #: the largest tensors at the peak
    largest: tuple[HeldTensor, ...] = ()
    #: by the trace, where the tensors were not followed
    allocated: Allocated | None = None


class Energy(msgspec.Struct, frozen=True, kw_only=True):
    """The energy of a window: within ``error_j`` of ``energy_j``. docs/sampling.md says what the error holds
    and what it does not."""

    energy_j: float
    error_j: float
    #: by the device's energy counter, or by integrating its power readings
    method: Literal["counter", "power"]
    #: how many new values of the counter, or readings of the power, lie in the window
    updates: int


class Unresolved(msgspec.Struct, frozen=True, kw_only=True):
    """The reason for missing energy."""

    reason: str
    #: seconds that would be enough; absent if none would
    needs_s: float | None = None
    #: timed steps that would be enough
    needs_steps: int | None = None


class Gauge(msgspec.Struct, frozen=True, kw_only=True):
    """Summary of one field of the samples over a window, in the unit of the field's name; the mean is over
    time."""

    start: float
    end: float
    mean: float
    median: float
    lowest: float
    highest: float


class Throttling(msgspec.Struct, frozen=True, kw_only=True):
    """For how long a reason held the clocks of a device down, and which share that is of the time in which
    the device was read."""

    reason: str
    time_s: float
    fraction: float


class DeviceUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Usage of one device, or of the ``host``, during the window; fields that were not sampled are absent.

    Either ``energy`` is given, or ``no_energy`` says why not. Declared fields that are summed up as an
    integral are in ``gauges`` and ``counts``.
    """

    device: str
    readings: int
    energy: Energy | None = None
    no_energy: Unresolved | None = None
    #: the second opinion where a counter gave the first
    energy_by_power: Energy | None = None
    energy_per_step_j: float | None = None
    energy_per_sample_j: float | None = None
    #: the energy over the window
    mean_power_w: float | None = None
    #: the fields that go up and down
    gauges: dict[str, Gauge] = msgspec.field(default_factory=dict)
    #: the fields that only grow: what came between the readings around the window
    counts: dict[str, float] = msgspec.field(default_factory=dict)
    #: how far these readings lie apart
    counted_s: dict[str, float] = msgspec.field(default_factory=dict)
    #: how long anything held the clocks down
    throttled_s: float | None = None
    #: the share of the time in which the device was read
    throttled_fraction: float | None = None
    #: how long each reason held them down (several can at once)
    throttled: tuple[Throttling, ...] = ()
    #: by how much the clock was lower for it, averaged over that time, than when nothing held it, or than
    #: when the ceilings were measured
    clock_loss_fraction: float | None = None
    #: the samples stop before the window does
    ended: bool = False


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """One field of one device over time, in seconds from the window's begin; long ones are thinned to the
    extremes of equal parts.

    The field ``throttled`` is 1 where something held the clocks down.
    """

    device: str
    field: str
    times_s: tuple[float, ...]
    values: tuple[float, ...]


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Usage of the machine during a run. The window is the timed pass if its start is known, else all
    samples.

    Energy figures are those of the devices in ``own`` together.
    """

    window: Literal["timed pass", "samples"]
    #: begin of the window (epoch, the clock of the samples)
    began_ns: int
    window_s: float
    steps: int | None = None
    devices: tuple[DeviceUsage, ...] = ()
    #: the devices that did the run's work
    own: tuple[str, ...] = ()
    #: per timed step
    energy_per_step_j: float | None = None
    energy_per_step_error_j: float | None = None
    energy_per_sample_j: float | None = None
    #: the traced FLOPs of a step over the joules of a timed one
    flop_per_j: float | None = None
    series: tuple[Series, ...] = ()
    #: what samplers of other packages declare
    fields: dict[str, Field] = msgspec.field(default_factory=dict)

    def of(self, device: str) -> DeviceUsage | None:
        """The usage of ``device``, None where it was not sampled."""
        return next((one for one in self.devices if one.device == device), None)


class Finding(msgspec.Struct, frozen=True, kw_only=True, rename={"suggestion": "try"}):
    """One piece of advice: what to change, why, and what it would give."""

    title: str
    #: possible saving at most, seconds per step; absent if unknown
    saves_s: float | None = None
    #: what the replayed step gains by it on top of the findings before it; absent where it is not replayed
    about_s: float | None = None
    #: the same without those; absent on a processor, where ``about_s`` is a sum of bounds
    alone_s: float | None = None
    #: what it gives on top of those once the host launches all work in time, where it gives little before
    later_s: float | None = None
    evidence: str
    suggestion: str
    #: the option of ``profile`` that ``suggestion`` names, if it names one
    option: str | None = None
    value: bool | int | str | None = None
    #: the longest execution of the operator with most of the time that the advice is about
    example: Example | None = None

    @property
    def most_s(self) -> float:
        """The possible saving, 0 if unknown."""
        return self.saves_s or 0.0

    @property
    def gain_s(self) -> float:
        """The saving as well as it is known: replayed, else at most."""
        return self.most_s if self.about_s is None else self.about_s


class Settled(msgspec.Struct, frozen=True, kw_only=True):
    """Operators that need no work: no finding is about them, and at their bounds the step gains little."""

    #: seconds of a step, and what they would give at their bounds, now or after all findings
    time_s: float
    gain_s: float
    #: their names, those with most of the time first
    operators: tuple[str, ...]


class ReplayedStep(msgspec.Struct, frozen=True, kw_only=True):
    """The recorded window, run again by its dependencies (``replay/``): what savings are taken from,
    where it is reproduced."""

    #: a step, or the trace, as recorded
    recorded_s: float
    #: how much longer or shorter the unchanged replay is, as a fraction
    error: float
    #: by how much work began later than its dependencies explain, as a part of the window; it stays so
    kept_fraction: float
    #: what the host's times are multiplied by to fit into a timed step, which the profiler does not slow down
    host_pace: float = 1.0
    #: why no saving is taken from it
    reason: str = ""
    #: of a processor: its threads last as recorded in any case, so that the error says nothing
    by_construction: bool = False
    #: a step as it is, and after each of the findings that have a replayed gain, in their order
    chain_s: tuple[float, ...] = ()
    #: what the last of these would gain without its ``host`` time, ``communication`` and other ``operators``
    limits_s: dict[str, float] = {}
    #: operators that need no work, where enough is known to say so
    settled: Settled | None = None


class Analysis(Shown, frozen=True, kw_only=True):
    """The whole analysis of a run or a trace.

    ``timeline``, ``bound_breakdown``, ``category_breakdown`` (its busy part), ``division`` and
    ``idle_breakdown`` (the idle part of a device) divide the same step, ``division.step_s``;
    ``step/partition.py`` has the rules. Where steps on a device were timed without the profiler, the idle
    time is what the timed step leaves.
    """

    schema: str = ANALYSIS_SCHEMA
    #: the one sentence that every report opens with
    verdict: str = ""
    #: what its figures assume and what makes them less sure
    caveats: tuple[str, ...] = ()
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
    #: the trace as recorded, from the first to the last device event
    trace_timeline: Timeline | None = None
    #: the mean of ``traced_steps``, or of the whole trace if it has no steps
    step_breakdown: dict[str, float] | None = None
    bound_breakdown: dict[str, float] | None = None
    category_breakdown: dict[str, float] | None = None
    division: StepDivision | None = None
    input: Input | None = None
    #: what bounds the step as a whole where that is not the device
    limited_by: Limit | None = None
    traced_steps: tuple[TracedStep, ...] = ()
    #: what ran when in one of the traced steps
    activity: Activity | None = None
    #: the steps of a server by kind
    serving: Serving | None = None
    #: the phases and latencies of steps that generate text
    generation: Generation | None = None
    idle_breakdown: dict[str, float] | None = None
    launches: Launches | None = None
    #: what explains part of the idle time of a device: waits of the host
    synchronizations: tuple[Synchronization, ...] = ()
    #: the same: work of the host
    host_work: tuple[HostWork, ...] = ()
    #: a single stretch that is most of the idle time
    gap: Gap | None = None
    recomputation: Recomputation | None = None
    #: by size
    collectives: tuple[CollectiveRow, ...] = ()
    #: code of ``torch.compile`` ran
    compiled: bool = False
    #: how far the result is from that in fp32
    output_error: ResultError | None = None
    other_programs: OtherPrograms | None = None
    page_faults: PageFaults | None = None
    coverage: Coverage | None = None
    operators: tuple[OperatorRow, ...] = ()
    modules: tuple[ModuleRow, ...] = ()
    lines: tuple[LineRow, ...] = ()
    memory: Memory | None = None
    usage: Usage | None = None
    findings: tuple[Finding, ...] = ()
    replay: ReplayedStep | None = None
    notes: tuple[str, ...] = ()
    #: sentences about operators that ran, or may have, and were not recorded: then nothing is said of shares,
    #: idle time or what bounds the step
    unrecorded: tuple[str, ...] = ()

    @property
    def unmodeled(self) -> tuple[Unmodeled, ...]:
        """The operators without a count, those of most time first."""
        return self.coverage.unmodeled if self.coverage is not None else ()

    @property
    def rows(self) -> tuple[Row, ...]:
        """All rows that have time: operators with a count, then those without one."""
        return (*self.operators, *self.unmodeled)

    @property
    def whole_s(self) -> float:
        """The time that is 100 %: the step including idle time, or the sum of the operators if the span is
        unknown; 0 where operators may have run that were not recorded."""
        if self.unrecorded:
            return 0.0
        if self.timeline is not None and self.timeline.span_s > 0:
            return self.timeline.span_s
        return (
            sum(self.bound_breakdown.values())
            if self.bound_breakdown
            else sum(row.time_s for row in self.operators)
        )

    @property
    def timed_s(self) -> float:
        """The median timed step; 0 where none was timed."""
        return self.steps.median_s if self.steps is not None else 0.0

    @property
    def step_s(self) -> float:
        """The step that is divided, or the whole trace; without a trace, a timed step."""
        if self.division is not None:
            return self.division.step_s
        return self.timeline.span_s if self.timeline is not None else self.timed_s

    @property
    def roofs(self) -> Ceilings:
        """Its ceilings as a record that bounds are computed from."""
        return Ceilings(device="", kind="", ceilings=self.ceilings)

    @property
    def on_device(self) -> bool:
        """Whether the times are of a device other than the host."""
        return self.idle_breakdown is not None

    def idle_s(self, cause: str) -> float:
        """The idle seconds of one cause; on a CPU all time outside of operators is ``host_bound``."""
        if self.idle_breakdown is not None:
            return self.idle_breakdown.get(f"{cause}_s", 0.0)
        if cause == "data_loading":
            return self.division.data_loading_s or 0.0 if self.division is not None else 0.0
        if cause != "host_bound" or self.timeline is None:
            return 0.0
        return max(0.0, self.timeline.idle_s - (self.bound_breakdown or {}).get("input", 0.0))

    @property
    def device_untraced(self) -> bool:
        """Whether the run was on a device of which the trace has no work, so that the traced times are the
        host's."""
        return (
            self.timeline is not None
            and self.idle_breakdown is None
            and not self.environment.device.startswith("cpu")
        )

    def columns(self, rows: Literal["operators", "modules", "steps"] = "operators") -> dict[str, list[Any]]:
        """Return the operators, modules or timed steps as columns: a list for each field.

        Operators are in the order of the analysis, with ``time_share`` in front; steps are in the order run,
        ``step`` from 0 and ``time_s``. Raises UsageError for other ``rows``.
        """
        if rows == "modules":
            return struct_columns(self.modules, ModuleRow)
        if rows == "operators":
            columns = struct_columns(self.operators, OperatorRow)
            whole = self.whole_s
            return {
                "time_share": [time_s / whole if whole > 0 else None for time_s in columns["time_s"]],
                **columns,
            }
        if rows != "steps":
            raise UsageError(f"unknown rows {rows!r}.", hint="Choose from operators, modules, steps.")
        durations = self.steps.durations_s if self.steps else ()
        return {"step": list(range(len(durations))), "time_s": list(durations)}

    def to_dataframe(self, rows: Literal["operators", "modules", "steps"] = "operators") -> pd.DataFrame:
        """Return the ``columns`` as a DataFrame: a row each, a column for each field."""
        import pandas as pd

        # The types do not depend on what was measured.
        columns = self.columns(rows).items()
        frame = pd.DataFrame(
            {
                name: pd.Series(values, dtype="string" if name in WORDS else "float64")
                for name, values in columns
            }
        )
        return frame.astype({"step": "int64"}) if rows == "steps" else frame


def struct_columns(rows: Sequence[msgspec.Struct], kind: type[msgspec.Struct]) -> dict[str, list[Any]]:
    """Return ``rows`` of operators or modules, which are of ``kind``, as columns: words are strings, numbers
    floats, absent is None.

    ``kernels`` are their names and ``lines`` their places, those with most time first, and ``step_times_s``
    the times in order, each with semicolons between. ``example`` is where to look in the trace: seconds
    after its first event.
    """
    columns: dict[str, list[Any]] = {}
    for field in kind.__struct_fields__:
        values = [getattr(row, field) for row in rows]
        if field == "kernels":
            values = ["; ".join(kernel.name for kernel in ran) for ran in values]
        elif field == "lines":
            values = ["; ".join(line.place for line in shares) for shares in values]
        elif field == "step_times_s":
            values = [None if times is None else "; ".join(map(str, times)) for times in values]
        elif field == "example":
            values = [None if one is None else one.at_s for one in values]
        columns[field] = [value if value is None or field in WORDS else float(value) for value in values]
    return columns
