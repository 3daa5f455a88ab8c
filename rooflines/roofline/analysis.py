"""The machine-readable analysis of a run, field by field as in ``analysis.json``.

Units are SI base units, given in the field names. A field that is None was not measured and is left out of the JSON. All times,
counts, FLOPs and bytes are **per step** when ``basis.per`` is ``step`` (the mean over the traced steps) and for the whole trace when
it is ``trace``; ``basis.steps`` is the number of steps in the trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from rooflines.device_specs.records import Ceiling
from rooflines.errors import UsageError
from rooflines.profiler.records import Environment, HeldTensor, MemoryAtPeak, MemoryCurve, ResultError, Workload
from rooflines.profiler.samplers.fields import Field
from rooflines.roofline.served_steps import Generation, Serving
from rooflines.shown import Shown

if TYPE_CHECKING:
    import pandas as pd

ANALYSIS_SCHEMA = "rooflines.analysis/1"
# ``transfer`` is a copy between host and device, judged by the link; ``far`` is work that stays below a third of every roof.
Bound = Literal["compute", "memory", "far", "latency", "transfer", "communication", "unknown"]
Limit = Literal["input", "host"]
Phase = Literal["forward", "backward", "optimizer", "prefill", "decode", ""]
CATEGORIES = (
    "convolution", "matmul", "attention", "moe", "normalization", "element-wise", "reduction", "copy", "embedding",
    "communication", "optimizer", "other",
)  # fmt: skip

# The columns of a table that hold words; every other column holds a number.
WORDS = frozenset((
    "name", "module", "phase", "shapes", "precision", "category", "bound", "memory_level", "engine", "flag", "inferred",
    "assumption", "caller", "path", "type", "nearest_roof", "kernels", "step_times_s",
))  # fmt: skip


class Basis(msgspec.Struct, frozen=True, kw_only=True):
    """The unit that figures are per, and the number of traced steps behind them.

    ``timed`` says that the times add up to the median timed step, without the profiler; otherwise they are those of the traced steps.
    ``steady`` says that each call counts with the lower quartile of its times in the traced steps that resemble the timed ones
    (``attribution/host.py``). ``ranges_s`` is the time of a traced step on a CPU that the ranges of modules took, and ``overhead_s``
    the time for which the device of a traced step ran nothing while the profiler did work of its own, such as requesting buffers; both
    are in no other figure. ``stacks`` says that the profiler recorded Python stacks, which makes the host slower. ``loader_workers``
    says whether torch's ``DataLoader`` had workers, by the names of its ranges in the trace; None without such ranges. ``start_up``
    says that the one step is a whole program from its start, or up to the end of its first step: imports, building the model and all
    first calls are in its times. ``shared_s`` is the time in which operators of several threads of a CPU ran at once. ``served``
    is that of ``StepTimes``. ``before_s`` is the time before the first work of the device, where the analysis of a trace
    without steps begins. ``devices`` is how many the trace has work of: its times are the union over them, FLOPs and bytes the sum.
    ``is_complex`` says that most of the operators' time is on complex numbers, for which inductor generates no code.
    """

    per: Literal["step", "trace"] = "step"
    steps: int = 1
    start_up: bool = False
    stacks: bool = False
    timed: bool = False
    steady: bool = False
    ranges_s: float | None = None
    overhead_s: float | None = None
    shared_s: float | None = None
    before_s: float | None = None
    devices: int = 1
    served: bool = False
    loader_workers: bool | None = None
    is_complex: bool = False


class Steps(msgspec.Struct, frozen=True, kw_only=True):
    """Step times of the timed pass, profiler off.

    ``ci95_s`` is the 95 % interval of the median: by bootstrap, of two to five steps by Student's t, of one step absent.
    ``profiler_dilation`` is traced median / timed median: what the profiler cost, 1.08 is 8 % slower. ``first_s`` is the first step,
    in which libraries load, memory is allocated and code is compiled; ``compile_s`` is the part of it that ``torch.compile`` took.
    ``durations_s`` has every timed step; those in ``disturbed``, which other programs delayed, are in no other figure.
    ``slowed_by`` is that of ``StepTimes``.
    """

    count: int
    median_s: float
    p10_s: float
    p90_s: float
    ci95_s: tuple[float, float] | None = None
    samples_per_s: float | None = None
    profiler_dilation: float | None = None
    warmup_count: int = 0
    first_s: float | None = None
    compile_s: float | None = None
    settled: bool | None = None
    rule: str = ""
    clock: str = ""
    durations_s: tuple[float, ...] = ()
    disturbed: tuple[int, ...] = ()
    slowed_by: str | None = None

    @property
    def quiet_s(self) -> tuple[float, ...]:
        """The steps that the figures are of."""
        left_out = set(self.disturbed)
        return tuple(time_s for number, time_s in enumerate(self.durations_s) if number not in left_out)


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over the operators, absent where none has a count: ``lower_bound_s + headroom_s + unjudged_s = time_s``.

    An operator faster than its bound counts with its time. ``unjudged_s`` is the time of those without a bound, and of copies that
    computation hides. ``efficiency`` is lower bound / (lower bound + headroom). All three are absent where more than a fifth of the
    busy time is unknown, because the rest says little of the whole; then all of the time is unjudged.
    """

    flops: int | float | None = None
    matrix_flops: int | float | None = None
    bytes: int | float | None = None
    time_s: float | None = None
    lower_bound_s: float | None = None
    headroom_s: float | None = None
    unjudged_s: float = 0.0
    efficiency: float | None = None
    energy_j: float | None = None
    peak_memory_bytes: int | None = None


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """One device's time: ``span = busy + idle`` and ``busy = compute + exposed memcpy + exposed communication``.

    ``memcpy_s`` and ``communication_s`` count hidden time as well. ``overlap_s`` is device time that overlapped other device time.
    The invariant of the whole analysis: operators + unmodelled + idle - overlap = span.
    ``earlier_s`` is device time of work that was launched before the recording began, in the timeline of a whole trace.
    ``ready_communication_s`` is the part of the exposed communication during which the host had launched the computation that comes
    next: where it had not, the host sets the pace, and hiding the communication saves nothing. ``critical_s`` is the part of the busy
    time after which the host launched the next work in time, or waited for the device: faster kernels alone save at most this.
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
    earlier_s: float | None = None
    ready_communication_s: float | None = None
    critical_s: float | None = None


class TracedStep(msgspec.Struct, frozen=True, kw_only=True):
    """One profiler step: how long it lasted, on a device until what it launched had ended, and where that time went.

    ``breakdown`` has the keys of ``Analysis.step_breakdown`` and sums to ``duration_s``.
    """

    name: str
    duration_s: float
    breakdown: dict[str, float]


class Lane(msgspec.Struct, frozen=True, kw_only=True):
    """What ran in a step on one ``stream`` of a ``device`` or one ``thread`` of the host, the idle time of one ``cause``, or the steps.

    Segments do not overlap: segment ``i`` lasts ``durations_ns[i]`` from ``begins_ns[i]`` after the begin of the step and is
    ``items[i]``, one of those of ``Activity``; idle time has one item, ``longest``. ``busy_ns`` is the sum of the durations, ``count``
    the number of segments before short ones were merged, ``longest`` the item with most of the time. The ``role`` of a thread is
    ``main`` if it makes the steps, ``autograd`` if most of its time is in the backward pass. Threads are numbered as in the trace.
    """

    kind: Literal["stream", "thread", "idle", "steps"]
    device: int | None = None
    stream: int | None = None
    thread: int | None = None
    role: str | None = None
    cause: str | None = None
    busy_ns: int
    count: int
    longest: int
    begins_ns: tuple[int, ...]
    durations_ns: tuple[int, ...]
    items: tuple[int, ...] = ()


class Activity(msgspec.Struct, frozen=True, kw_only=True):
    """What ran when in one traced step, or in the whole of a trace without steps.

    ``step`` names the one nearest the median duration of the ``steps`` traced ones that resemble the timed ones, ``began_ns`` is its
    begin (epoch if the trace has an origin). Times are as traced, with the profiler on, and not scaled. ``duration_ns`` is ``busy_ns``,
    in which anything ran on a device (on a CPU: any operator), and idle time: the sum of the lanes of kind ``idle``, whose causes are
    those of ``idle_breakdown``, and ``profiler``, the overhead of ``Basis``. Host threads beside a device have their outermost
    operators and runtime calls, and the waits inside them. ``left_out`` streams and threads have less time than those in ``lanes``.

    What a segment is, an item, has one of ``names`` and one of ``rows``, an index in ``Analysis.rows`` (``operators``, then
    ``coverage.unmodelled``; -1: none). The work of a row has no name, that of the host beside a device has the row with most of the
    device time that it launched, and the name of idle time is its cause. Neighboring segments below ``resolution_ns`` are one, of the
    item with most of the time: it lasts as long as they do together. ``unplaced`` are the rows that ran and have no segment.
    """

    step: str = ""
    steps: int
    began_ns: int
    duration_ns: int
    busy_ns: int
    resolution_ns: int
    lanes: tuple[Lane, ...]
    names: tuple[str, ...]
    rows: tuple[int, ...]
    unplaced: tuple[int, ...] = ()
    left_out: int = 0

    def of(self, *kinds: str) -> tuple[Lane, ...]:
        """The lanes of ``kinds``."""
        return tuple(lane for lane in self.lanes if lane.kind in kinds)


class StepDivision(msgspec.Struct, frozen=True, kw_only=True):
    """The time of a step by part: the parts sum to ``step_s``; parts that the trace does not show are absent.

    ``of`` is whose time it is. Of a ``device``: the work of forward, backward and optimizer, or of prefill and decode, by what launched
    it, then copies from the host and communication that no such work hides, then idle time: while the host was loading data, while it
    had launched nothing for another reason (``host_s``), and the rest (``idle_s``). ``other_s`` is work whose phase or launch the trace
    does not show. Of a ``host`` that computes itself: its data loader, its operators by phase, and as ``host_s`` all that runs outside
    of operators. ``loader_s`` is how long the host was in the data loader, hidden or not: in a timed step where there are any.
    """

    of: Literal["device", "host"]
    step_s: float
    data_loading_s: float | None = None
    host_to_device_s: float | None = None
    forward_s: float | None = None
    backward_s: float | None = None
    optimizer_s: float | None = None
    prefill_s: float | None = None
    decode_s: float | None = None
    communication_s: float | None = None
    other_s: float | None = None
    host_s: float | None = None
    idle_s: float | None = None
    loader_s: float | None = None


# The parts of a StepDivision, in the order in which they are shown.
PARTS = (
    "data_loading", "host_to_device", "forward", "backward", "optimizer", "prefill", "decode", "communication", "other", "host", "idle",
)  # fmt: skip


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """Samples or batches a second, with the bootstrap interval where there was enough to tell.

    ``how`` says whether it was ``measured`` by itself or ``derived``: from the timed steps less what they waited.
    """

    per_s: float
    ci95_per_s: tuple[float, float] | None = None
    how: Literal["measured", "derived"] = "measured"


class RareWaits(msgspec.Struct, frozen=True, kw_only=True):
    """Long waits for data in a few ``steps`` of the timed ones (``of``), which the median step does not contain, as at the start of an
    epoch: ``wait_s`` is their mean, ``fraction`` their share of the time of all steps."""

    steps: int
    of: int
    wait_s: float
    fraction: float


class Input(msgspec.Struct, frozen=True, kw_only=True):
    """Data loading of the steps, profiler off; times are shares of the mean timed step, in seconds of the step that is divided.

    ``wait_s`` is how long the program waits for its batches in a step, ``delay_s`` how much of that delays the step: on a device only
    what the trace shows it idle for, and absent without a trace. The fractions are of the steps' mean time. ``loader_rate`` is the
    loader alone, ``step_rate`` the step alone, in ``unit`` a second. ``workers_busy_fraction`` is how much of their time the workers
    computed. The steps that the ``ready_batches`` fed, which workers had loaded before the timed pass began, are left out, except in a
    pass too short for that: then waits are lower bounds (``is_lower_bound``). ``rare_waits`` are in none of these figures.
    """

    loader: str
    wait_s: float
    wait_fraction: float
    unit: str
    delay_s: float | None = None
    delay_fraction: float | None = None
    workers: int | None = None
    ready_batches: int = 0
    is_lower_bound: bool = False
    rare_waits: RareWaits | None = None
    pin_memory: bool | None = None
    workers_busy_fraction: float | None = None
    loader_rate: Rate | None = None
    step_rate: Rate | None = None


class Synchronization(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of one kind in which the host waits for the device: how often, how long, and how long the device is then idle.

    ``idle_s`` is never more than ``wait_s``: a host that had not waited would have launched that much earlier. ``operator`` is the ATen
    operator around the call (``aten::item``) and ``where`` the line in the source, where the Python stack was recorded.
    """

    call: str
    calls: int | float
    wait_s: float
    idle_s: float
    operator: str = ""
    where: str = ""


class HostWork(msgspec.Struct, frozen=True, kw_only=True):
    """Work of the host while the device was idle: ``idle_s`` of the device's idle time.

    An ``operator`` that computed on the host, a function of the ``python`` stack that launched nothing, the ``runtime`` at a long call
    that does not wait or what only the first of equal calls or ranges takes (loading a kernel), calls of any length that take memory of
    a device or give it back (``allocator``), the update of an ``optimizer``, the ranges of ``compiled`` code, packing tensors for a
    ``broadcast`` as DistributedDataParallel does with buffers, or stretches of a
    millisecond or more in which nothing was recorded (``unrecorded``). ``where`` is the line in the source around an operator.
    """

    kind: Literal["operator", "python", "runtime", "allocator", "optimizer", "compiled", "broadcast", "unrecorded"]
    name: str
    calls: int | float
    idle_s: float
    shapes: str = ""
    where: str = ""


class Gap(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch in which nothing ran that occurs once: ``share`` of all idle time. ``at_s`` is since the begin of the trace,
    ``before`` the operator or the kernel with which it ends, and ``host_s`` the part in which nothing waited but for the host."""

    at_s: float
    lasts_s: float
    before: str
    share: float
    host_s: float


class CollectiveRow(msgspec.Struct, frozen=True, kw_only=True):
    """Collectives of one kind and size: calls, their time, and the part of it that nothing hides.

    ``bytes`` is the size of one, by which NVIDIA's nccl-tests divide; None where the trace does not hold it. ``shortest_s`` and
    ``longest_s`` are those of the single calls.
    """

    kind: str
    bytes: int | None = None
    calls: int | float
    time_s: float
    exposed_s: float
    group_size: int | None = None
    shortest_s: float | None = None
    longest_s: float | None = None


class Recomputation(msgspec.Struct, frozen=True, kw_only=True):
    """Operators of the forward pass that ran again inside the backward pass, as activation checkpointing makes them."""

    time_s: float
    calls: int | float
    operators: tuple[str, ...] = ()


class OtherPrograms(msgspec.Struct, frozen=True, kw_only=True):
    """The mean number of the processors' ``threads`` that other programs kept ``busy`` while the steps were timed and traced.

    ``programs`` are the names of those that were still running, with the number of processors that each kept busy. Steps that they
    delayed are left out. Where too few are left, the step is not ``judged``: its operators have times, but no bounds.
    """

    busy: float
    threads: int
    programs: dict[str, float] = {}
    timed_left_out: int = 0
    traced_left_out: int = 0
    judged: bool = True


class PageFaults(msgspec.Struct, frozen=True, kw_only=True):
    """Pages of memory that a step takes from the system: the mean over the timed steps, and over the traced ones where counted.

    ``page_s`` is what one took when it was measured between the two passes.
    """

    timed: float
    traced: float | None = None
    page_s: float | None = None


class Launches(msgspec.Struct, frozen=True, kw_only=True):
    """The queue between host and device. A delay is the time from a launch to the begin of what it launched; the queue is what has been
    launched and has not begun, ``queue_empty_fraction`` the share of the device's span in which it is empty."""

    count: int
    delay_median_s: float
    delay_p90_s: float
    queue_mean: float
    queue_max: int
    queue_empty_fraction: float


class Kernel(msgspec.Struct, frozen=True, kw_only=True):
    """Device work of an operator by name: a kernel, a copy (``Memcpy HtoD (Pageable -> Device)``) or a memset.

    ``grid`` and ``block`` are the launch shape where the trace records it and all of the calls have the same one, ``registers`` those
    of a thread and ``shared_bytes`` the shared memory of a block likewise. ``occupancy`` is the share of a multiprocessor's warps that
    the profiler estimates to be in use, the mean over the time of the calls; 0 is less than 1 %.
    """

    name: str
    calls: int | float
    time_s: float
    streams: tuple[int, ...] = ()
    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    registers: int | None = None
    shared_bytes: int | None = None
    occupancy: float | None = None


class Example(msgspec.Struct, frozen=True, kw_only=True):
    """Where to find an operator in the trace, in Perfetto for example: the longest of its kernels, on a CPU of its calls.

    ``ts_us`` is its begin as the file has it, ``at_s`` that after the first event of host or device, ``lasts_s`` its length as traced.
    ``step`` is empty outside of steps, ``stream`` absent on a CPU.
    """

    ts_us: float
    at_s: float
    lasts_s: float
    step: str = ""
    stream: int | None = None


class Unmodelled(msgspec.Struct, frozen=True, kw_only=True):
    """An operator without a count in one module and phase, with the reason: no formula, a shape that the trace does not hold.

    A kernel that no operator launched is a row of its own. ``caller`` is as in ``OperatorRow``.
    """

    name: str
    calls: int | float
    time_s: float
    reason: str
    module: str = ""
    phase: Phase = ""
    shapes: str = ""
    caller: str | None = None
    step_times_s: tuple[float, ...] | None = None
    exposed_s: float | None = None
    kernels: tuple[Kernel, ...] = ()
    example: Example | None = None


class LostWork(msgspec.Struct, frozen=True, kw_only=True):
    """Work of the steps (of the trace without steps) that is on one side of the trace only.

    ``without_kernel`` of the ``launches`` of kernels have none in the trace: ``at_start`` of them before all that have one, ``at_end``
    after all. ``operators`` rows lack device time for it, those that are not judged have ``flops_fraction`` of the FLOPs.
    ``without_launch`` of the ``events`` of the device have no launch in the trace and take ``without_launch_s`` per step, on
    ``streams``. ``steps`` are those with either.
    """

    launches: int = 0
    without_kernel: int = 0
    at_start: int = 0
    at_end: int = 0
    operators: int = 0
    flops_fraction: float | None = None
    events: int = 0
    without_launch: int = 0
    without_launch_s: float = 0.0
    streams: tuple[int, ...] = ()
    steps: tuple[str, ...] = ()


class Coverage(msgspec.Struct, frozen=True, kw_only=True):
    """The share of the busy time with a work model or in communication or copies; operators without a model, longest first.

    ``shapes_recorded`` says whether the trace has the shapes of its operators (``record_shapes=True``); absent in one without
    operators. ``graph_launch_time_s`` is the device time of work that was launched as a CUDA or HIP graph, and
    ``graph_matched_time_s`` that whose operators are known. ``lost`` is absent if every launch has a kernel and every kernel a launch.
    """

    modelled_time_fraction: float | None = None
    shapes_recorded: bool | None = None
    unmodelled: tuple[Unmodelled, ...] = ()
    orphan_device_events: int = 0
    graph_launch_time_s: float = 0.0
    graph_matched_time_s: float = 0.0
    lost: LostWork | None = None

    @property
    def uncounted(self) -> str:
        """What has no count, for a sentence."""
        return "operators whose shapes were not recorded" if self.shapes_recorded is False else "operators without a work model"


class OperatorRow(msgspec.Struct, frozen=True, kw_only=True):
    """All calls of one signature in one module and phase.

    ``time_s`` is the mean of ``step_times_s``, the time in each traced step; absent with fewer than two steps.
    ``engine`` is the unit whose roof judges it, ``memory_level`` the level its bytes are judged against, ``flag`` why an efficiency
    above 1 is not plausible. ``inferred`` says what was inferred from other events in the trace, ``assumption`` what was assumed about
    data that the trace does not record. ``nearest_roof`` is the roof that a row far from any roof is closest to, and ``exposed_s`` the
    part of a copy's or a collective's time that no computation hides, of computation the part in which no other kernel runs.
    ``kernels`` are what it ran on the device, longest first. ``caller`` is the nearest operator around most of its calls on a device
    that is none of ATen's: of autograd, another library or compiled code.
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
    nearest_roof: Literal["compute", "memory"] | None = None
    exposed_s: float | None = None
    memory_level: str | None = None
    engine: str | None = None
    flag: str | None = None
    inferred: str | None = None
    assumption: str | None = None
    caller: str | None = None
    step_times_s: tuple[float, ...] | None = None
    kernels: tuple[Kernel, ...] = ()
    example: Example | None = None


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


class Allocated(msgspec.Struct, frozen=True, kw_only=True):
    """Memory that the allocator had handed out over one traced step, by the memory events of the trace: the step in which it is most.

    ``step`` is empty in a trace without steps. ``of`` says whose memory it is: of the ``device``, or of the ``host``, where it counts
    from the begin of the recording. ``operator`` reaches the peak in ``module`` and ``phase``.
    """

    peak_bytes: int
    of: Literal["device", "host"]
    curve: MemoryCurve
    step: str = ""
    operator: str = ""
    module: str = ""
    phase: Phase = ""


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """Peak memory and what it counts (``allocator`` on a GPU, ``resident set`` on a CPU).

    ``at_peak`` is what it consists of: the tensors of a step at their peak, which ``operator`` reaches in ``module`` and ``phase``, and
    as ``overhead`` all the rest. The parts sum to ``peak_bytes``. ``curve`` is what the tensors hold over that step, ``largest`` are
    the largest of them at the peak. ``allocated`` follows from a trace where the tensors were not followed.
    """

    peak_bytes: int | None = None
    kind: str | None = None
    at_peak: MemoryAtPeak | None = None
    operator: str | None = None
    module: str | None = None
    phase: Phase | None = None
    curve: MemoryCurve | None = None
    largest: tuple[HeldTensor, ...] = ()
    allocated: Allocated | None = None


class Energy(msgspec.Struct, frozen=True, kw_only=True):
    """The energy of a window: within ``error_j`` of ``energy_j``, by the device's energy counter or by integrating its power readings.

    ``updates`` is how many new values of the counter, or readings of the power, lie in the window. docs/energy.md says what the error
    holds and what it does not.
    """

    energy_j: float
    error_j: float
    method: Literal["counter", "power"]
    updates: int


class Unresolved(msgspec.Struct, frozen=True, kw_only=True):
    """The reason for missing energy, and the seconds and timed steps that would be enough; absent if none would."""

    reason: str
    needs_s: float | None = None
    needs_steps: int | None = None


class Gauge(msgspec.Struct, frozen=True, kw_only=True):
    """Summary of one field of the samples over a window, in the unit of the field's name; the mean is over time."""

    start: float
    end: float
    mean: float
    median: float
    lowest: float
    highest: float


class Throttling(msgspec.Struct, frozen=True, kw_only=True):
    """For how long a reason held the clocks of a device down, and which share that is of the time in which the device was read."""

    reason: str
    time_s: float
    fraction: float


class DeviceUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Usage of one device, or of the ``host``, during the window; fields that were not sampled are absent.

    ``gauges`` has the fields that go up and down, ``counts`` those that only grow: what came between the readings around the window,
    which lie ``counted_s`` apart. Declared fields that are summed up as an integral are in both.
    ``energy`` is given or ``no_energy`` says why not; ``energy_by_power`` is the second opinion where a counter gave the first.
    ``mean_power_w`` is that energy over the window. ``throttled_s`` is how long anything held the clocks down, ``throttled_fraction``
    which share that is of the time in which the device was read, ``throttled`` how long each reason did (several can at once).
    ``clock_loss_fraction`` is by how much the clock was lower for it, averaged over that time, than when nothing held it, or than when
    the ceilings were measured. ``ended`` says that the samples stop before the window does.
    """

    device: str
    readings: int
    energy: Energy | None = None
    no_energy: Unresolved | None = None
    energy_by_power: Energy | None = None
    energy_per_step_j: float | None = None
    energy_per_sample_j: float | None = None
    mean_power_w: float | None = None
    gauges: dict[str, Gauge] = msgspec.field(default_factory=dict)
    counts: dict[str, float] = msgspec.field(default_factory=dict)
    counted_s: dict[str, float] = msgspec.field(default_factory=dict)
    throttled_s: float | None = None
    throttled_fraction: float | None = None
    throttled: tuple[Throttling, ...] = ()
    clock_loss_fraction: float | None = None
    ended: bool = False


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """One field of one device over time, in seconds from the window's begin; long ones are thinned to the extremes of equal parts.

    The field ``throttled`` is 1 where something held the clocks down.
    """

    device: str
    field: str
    times_s: tuple[float, ...]
    values: tuple[float, ...]


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Usage of the machine during a run. The window is the timed pass if its start is known, else all samples.

    ``began_ns`` is its begin (epoch, the clock of the samples).

    The energy figures below are those of the devices in ``own``, which did the run's work, together: per timed step, per sample, and
    the traced FLOPs of a step over the joules of a timed one. ``fields`` describes those that samplers of other packages declare.
    """

    window: Literal["timed pass", "samples"]
    began_ns: int
    window_s: float
    steps: int | None = None
    devices: tuple[DeviceUsage, ...] = ()
    own: tuple[str, ...] = ()
    energy_per_step_j: float | None = None
    energy_per_step_error_j: float | None = None
    energy_per_sample_j: float | None = None
    flop_per_j: float | None = None
    series: tuple[Series, ...] = ()
    fields: dict[str, Field] = msgspec.field(default_factory=dict)

    def of(self, device: str) -> DeviceUsage | None:
        """The usage of ``device``, None where it was not sampled."""
        return next((one for one in self.devices if one.device == device), None)


class Finding(msgspec.Struct, frozen=True, kw_only=True, rename={"suggestion": "try"}):
    """One piece of advice: possible saving (seconds per step; absent if unknown), evidence, suggestion.

    ``later_s`` is the saving of one that alone saves less, because the host launches the next work too late, once that is changed.
    ``option`` and ``value`` are the option of ``profile`` that ``suggestion`` names, if it names one. ``example`` is the longest
    execution of the operator with most of the time that the advice is about.
    """

    title: str
    saves_s: float | None = None
    later_s: float | None = None
    evidence: str
    suggestion: str
    option: str | None = None
    value: bool | int | str | None = None
    example: Example | None = None

    @property
    def most_s(self) -> float:
        """The possible saving, 0 if unknown."""
        return self.saves_s or 0.0


class Analysis(Shown, frozen=True, kw_only=True):
    """The whole analysis of a run or a trace. ``verdict`` is the one sentence that every report opens with, and
    ``caveats`` are what its figures assume and what makes them less sure, shown below it.

    ``limited_by`` names what bounds the step as a whole where that is not the device: the ``input``, or the ``host``. ``timeline``,
    ``bound_breakdown``, ``category_breakdown`` (its busy part), ``division`` and ``idle_breakdown`` (the idle part of a device) divide
    the same step, ``division.step_s``; ``roofline/step/partition.py`` has the rules. Where steps on a device were timed without the
    profiler, the idle time is what the timed step leaves. ``trace_timeline`` is the trace as recorded, from the first to the last
    device event. ``step_breakdown`` is the mean of ``traced_steps``, or of the whole trace if it has no steps. ``activity`` is what ran
    when in one of them. ``gap`` is a single stretch that is most of the idle time. ``synchronisations`` and ``host_work`` explain part
    of the idle time of a device, ``collectives`` are its
    collectives by size. ``serving`` has the steps of a server by kind, ``generation`` the phases and latencies of steps that generate
    text. ``unrecorded`` are sentences about operators that ran, or may have, and were not recorded: then nothing is said of shares,
    idle time or what bounds the step. ``compiled`` says that code of ``torch.compile`` ran, ``output_error`` how far the result is from
    that in fp32.
    """

    schema: str = ANALYSIS_SCHEMA
    verdict: str = ""
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
    trace_timeline: Timeline | None = None
    step_breakdown: dict[str, float] | None = None
    bound_breakdown: dict[str, float] | None = None
    category_breakdown: dict[str, float] | None = None
    division: StepDivision | None = None
    input: Input | None = None
    limited_by: Limit | None = None
    traced_steps: tuple[TracedStep, ...] = ()
    activity: Activity | None = None
    serving: Serving | None = None
    generation: Generation | None = None
    idle_breakdown: dict[str, float] | None = None
    launches: Launches | None = None
    synchronisations: tuple[Synchronization, ...] = ()
    host_work: tuple[HostWork, ...] = ()
    gap: Gap | None = None
    recomputation: Recomputation | None = None
    collectives: tuple[CollectiveRow, ...] = ()
    compiled: bool = False
    output_error: ResultError | None = None
    other_programs: OtherPrograms | None = None
    page_faults: PageFaults | None = None
    coverage: Coverage | None = None
    operators: tuple[OperatorRow, ...] = ()
    modules: tuple[ModuleRow, ...] = ()
    memory: Memory | None = None
    usage: Usage | None = None
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    unrecorded: tuple[str, ...] = ()

    @property
    def unmodelled(self) -> tuple[Unmodelled, ...]:
        """The operators without a count, those of most time first."""
        return self.coverage.unmodelled if self.coverage is not None else ()

    @property
    def rows(self) -> tuple[OperatorRow | Unmodelled, ...]:
        """All rows that have time: operators with a count, then those without one."""
        return (*self.operators, *self.unmodelled)

    @property
    def whole_s(self) -> float:
        """The time that is 100 %: the step including idle time, or the sum of the operators if the span is unknown; 0 where operators
        may have run that were not recorded."""
        if self.unrecorded:
            return 0.0
        if self.timeline is not None and self.timeline.span_s > 0:
            return self.timeline.span_s
        return sum(self.bound_breakdown.values()) if self.bound_breakdown else sum(row.time_s for row in self.operators)

    @property
    def device_untraced(self) -> bool:
        """Whether the run was on a device of which the trace has no work, so that the traced times are the host's."""
        return self.timeline is not None and self.idle_breakdown is None and not self.environment.device.startswith("cpu")

    def columns(self, rows: Literal["operators", "modules", "steps"] = "operators") -> dict[str, list[Any]]:
        """Return the operators, modules or timed steps as columns: a list for each field.

        Operators are in the order of the analysis, with ``time_share`` in front; steps are in the order run, ``step`` from 0 and
        ``time_s``. Raises UsageError for other ``rows``.
        """
        if rows == "modules":
            return struct_columns(self.modules, ModuleRow)
        if rows == "operators":
            columns, whole = struct_columns(self.operators, OperatorRow), self.whole_s
            return {"time_share": [time_s / whole if whole > 0 else None for time_s in columns["time_s"]], **columns}
        if rows != "steps":
            raise UsageError(f"unknown rows {rows!r}.", hint="Choose from operators, modules, steps.")
        durations = self.steps.durations_s if self.steps else ()
        return {"step": list(range(len(durations))), "time_s": list(durations)}

    def to_dataframe(self, rows: Literal["operators", "modules", "steps"] = "operators") -> pd.DataFrame:
        """Return the ``columns`` as a DataFrame: a row each, a column for each field."""
        import pandas as pd

        # The types do not depend on what was measured.
        columns = self.columns(rows).items()
        frame = pd.DataFrame({name: pd.Series(values, dtype="string" if name in WORDS else "float64") for name, values in columns})
        return frame.astype({"step": "int64"}) if rows == "steps" else frame


def struct_columns(rows: Sequence[msgspec.Struct], kind: type[msgspec.Struct]) -> dict[str, list[Any]]:
    """Return ``rows`` of operators or modules, which are of ``kind``, as columns: words are strings, numbers floats, absent is None.

    ``kernels`` are their names, longest first, and ``step_times_s`` the times in order, each with semicolons between. ``example`` is
    where to look in the trace: seconds after its first event.
    """
    columns: dict[str, list[Any]] = {}
    for field in kind.__struct_fields__:
        values = [getattr(row, field) for row in rows]
        if field == "kernels":
            values = ["; ".join(kernel.name for kernel in ran) for ran in values]
        elif field == "step_times_s":
            values = [None if times is None else "; ".join(map(str, times)) for times in values]
        elif field == "example":
            values = [None if one is None else one.at_s for one in values]
        columns[field] = [value if value is None or field in WORDS else float(value) for value in values]
    return columns
