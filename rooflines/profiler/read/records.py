"""A trace as columns: what threads did, what devices did, what was allocated, and what the file says of the
machine.

Kinds are small integers. Times are nanoseconds on the trace's own clock.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from rooflines.profiler.read.signature import Signature

Int64s = npt.NDArray[np.int64]
Int8s = npt.NDArray[np.int8]
Int32s = npt.NDArray[np.int32]
Mask = npt.NDArray[np.bool_]

# Kinds of host events.
OPERATOR, ANNOTATION, PYTHON, RUNTIME = 0, 1, 2, 3
# Kinds of device events.
KERNEL, MEMCPY, MEMSET, COMMUNICATION = 0, 1, 2, 3

MODULE_PREFIX = "nn.Module: "
# How the names of the ranges end in which ``torch.compile`` compiles.
COMPILING = "(dynamo_timed)"
STEP_PREFIX = "ProfilerStep#"
# The number of a line of the program follows (``hooks/line_marks.py``).
LINE_PREFIX = "rooflines.line: "
# The category of events that rooflines adds to a trace (``reports/render/perfetto.py``).
ADDED = "rooflines"

# What the columns, names and signatures of one trace may take unless the caller says otherwise: 40 million
# events.
MEMORY_LIMIT_BYTES = 4 << 30


def of_kinds(kind: Int8s, kinds: tuple[int, ...]) -> Mask:
    """Which events are of one of ``kinds``. ``numpy.isin`` takes twenty times as long for so few."""
    return functools.reduce(operator.or_, (kind == one for one in kinds))


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How a trace is read: with ``partial`` one that is cut off up to the cut, within ``memory_limit_bytes``
    for what is kept of its events, and with ``keep_paths`` with the whole paths of source files.
    ``list_dtype`` is the dtype of lists of tensors, which Kineto does not record."""

    partial: bool = False
    memory_limit_bytes: int = MEMORY_LIMIT_BYTES
    keep_paths: bool = False
    list_dtype: str = "float32"


READ_DEFAULTS = ReadOptions()


class _Columns:
    """Columns of equal length, one entry per event."""

    __slots__: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(getattr(self, self.__slots__[0]))


@dataclass(frozen=True, slots=True)
class HostEvents(_Columns):
    """Events of threads: operators, annotations, modules of the Python stack, runtime calls; sorted by
    thread, start, longest first."""

    kind: Int8s
    #: Index in ``Trace.names``.
    name: Int32s
    thread: Int32s
    start_ns: Int64s
    end_ns: Int64s
    #: Index in ``Trace.signatures`` (-1: none).
    signature: Int32s
    #: autograd's number (-1: none).
    sequence: Int64s
    #: Non-zero on backward events.
    forward_thread: Int64s
    #: What ties a runtime call to device events (-1: none).
    correlation: Int64s
    #: Index in ``Trace.kernels``: what a call launches, as ROCm records it (-1: not recorded).
    kernel: Int32s


@dataclass(frozen=True, slots=True)
class DeviceEvents(_Columns):
    """Events of accelerators: kernels, copies, memsets, collectives; sorted by start."""

    kind: Int8s
    name: Int32s
    #: Ordinal of the device in the trace.
    device: Int32s
    stream: Int64s
    start_ns: Int64s
    end_ns: Int64s
    correlation: Int64s
    #: Index in ``Trace.collectives`` (-1: none, or not recorded).
    collective: Int32s
    #: Index in ``Trace.launch_shapes`` (-1: none, or not recorded).
    shape: Int32s
    #: Number of the node of a CUDA graph in the order of its capture (0: none, or not recorded).
    graph_node: Int64s
    #: Index in ``Trace.scopes`` (-1: the node has no annotation).
    scope: Int32s
    #: Registers of a thread (-1: not recorded).
    registers: Int64s
    #: Shared memory of a block (-1: not recorded).
    shared_bytes: Int64s
    #: Percent of the warps of a multiprocessor that the profiler estimates to be in use, 0 of less than
    #: one (-1: not recorded).
    occupancy: Int64s


@dataclass(frozen=True, slots=True)
class Scope:
    """The annotation of a node of a CUDA graph (``torch.cuda.graph_annotations.mark_kernels``): the module or
    region that it names, and whether it is work of its backward pass."""

    path: str
    is_backward: bool = False


@dataclass(frozen=True, slots=True)
class Frames(_Columns):
    """Functions of the Python stack that have a file and a line, those of torch and of Python's own modules
    left out; sorted by thread, start, longest first. ``name`` indexes ``Trace.frame_names`` (``train.py(41):
    step``)."""

    name: Int32s
    thread: Int32s
    start_ns: Int64s
    end_ns: Int64s


@dataclass(frozen=True, slots=True)
class StreamWaits(_Columns):
    """Calls that wait for a stream, as Kineto notes them (``enable_cuda_sync_events``)."""

    #: that of the call
    correlation: Int64s
    #: that of the call that recorded the event waited for (-1: the wait is for all of the stream)
    recorded: Int64s
    #: Ordinal of the device in the trace.
    device: Int32s
    #: The stream that waits (-1: the host).
    stream: Int64s
    #: The stream waited for.
    awaited: Int64s


@dataclass(frozen=True, slots=True)
class Exchange:
    """The data of a collective. What the trace does not record is None."""

    #: ``allreduce``, ``alltoall``, ... or ``other``.
    kind: str
    #: Size by which NVIDIA's nccl-tests divide: the whole tensor, so that an all-gather counts what
    #: every rank has at the end and a reduce-scatter what every rank has at the begin; of an uneven
    #: exchange the larger of what is sent and received.
    bytes: int | None = None
    #: Elements that this rank sends.
    elements_in: int | None = None
    #: Elements that this rank receives.
    elements_out: int | None = None
    #: Their type: ``float32``.
    dtype: str | None = None
    #: Name of the process group.
    group: str | None = None
    #: Number of its ranks.
    group_size: int | None = None
    #: The ranks in it.
    group_ranks: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class MemoryEvents(_Columns):
    """Allocations (positive ``size_bytes``) and frees (negative), sorted by time; ``device_type`` 0 is the
    CPU, ``device`` the ordinal among those of its type. ``allocated_bytes`` is the sum of what is allocated
    afterwards (-1: not recorded), on a CPU of what was allocated since the recording began."""

    time_ns: Int64s
    thread: Int32s
    size_bytes: Int64s
    device_type: Int64s
    device: Int64s
    allocated_bytes: Int64s


@dataclass(frozen=True, slots=True)
class TracedDevice:
    """A device as the file describes it (``deviceProperties``); None or empty for what it leaves out.

    ``ordinal`` is its number (``id``), ``capability`` the compute capability ("9.0"), ``warp`` the threads of
    a warp or wavefront.
    """

    name: str
    memory_bytes: int | None = None
    multiprocessors: int | None = None
    ordinal: int | None = None
    capability: str = ""
    warp: int | None = None

    @property
    def model(self) -> tuple[object, ...]:
        """The key that entries of one model share: the name, else all known facts."""
        return (self.name,) if self.name else (self.memory_bytes, self.multiprocessors, self.capability)


@dataclass(frozen=True, slots=True)
class Rank:
    """The place of the traced process in its job (``distributedInfo``)."""

    rank: int
    world_size: int | None
    backend: str | None


# The grid and the block of a launch: x, y, z.
LaunchShape = tuple[tuple[int, int, int], tuple[int, int, int]]
# The kernel that a runtime call launches, and its grid and block where they are recorded.
LaunchRecord = tuple[str, LaunchShape | None]


# How the note begins that a file ends before its trace does.
CUT_OFF = "the trace is cut off"


@dataclass(frozen=True, slots=True)
class Trace:
    """A Kineto trace."""

    host: HostEvents
    device: DeviceEvents
    memory: MemoryEvents
    #: Names of events, by number.
    names: list[str]
    #: Operators with their arguments, by number.
    signatures: list[Signature]
    #: Data of collectives, by number.
    collectives: list[Exchange]
    #: Grids and blocks of kernels, by number.
    launch_shapes: list[LaunchShape]
    #: Kernels that runtime calls launch, by number.
    kernels: list[LaunchRecord]
    #: Annotations of nodes of CUDA graphs, by number.
    scopes: list[Scope]
    #: Functions of the Python stack.
    frames: Frames
    #: Waits for streams, where they are noted.
    stream_waits: StreamWaits
    #: Names of frames, by number.
    frame_names: list[str]
    #: Which of them are functions of the program, not of a package.
    program_frames: Mask
    #: The devices as the file describes them.
    devices: tuple[TracedDevice, ...]
    #: Place of the traced process in its job.
    rank: Rank | None
    #: Time since 1970 at which the clock of the trace is 0; 0 where the file does not say it, as in old
    #: traces, which count from 1970.
    base_ns: int
    #: torch's name for the kind of device in it (``cuda`` for NVIDIA's and AMD's).
    platform: str
    #: Sentences about what in the file was repaired or left out.
    notes: tuple[str, ...]
    #: When the profiler did work of its own.
    overhead: Int64s
    #: Whether so much of the Python stack was recorded that the host is slower for it.
    has_stacks: bool
    #: Of a file that is cut off among its events, the end of the last host event before the cut, in the
    #: order of the file.
    cut_ns: int | None
    #: Process and thread that each thread of the host events is.
    threads: list[str]
    #: File or URL, of which only ``shown`` may be printed.
    source: Path | str = field(repr=False)

    @property
    def began_ns(self) -> int:
        """The time of the first event of host and device."""
        return min(
            (int(events.start_ns.min()) for events in (self.host, self.device) if len(events)), default=0
        )

    def named(self, test: Callable[[str], bool], *kinds: int) -> Mask:
        """The host events of ``kinds`` (of all kinds without) whose names pass ``test``; each distinct name
        is asked once."""
        passed: Mask = np.array([*map(test, self.names), False], bool)[self.host.name]
        return passed & of_kinds(self.host.kind, kinds) if kinds else passed

    @property
    def shapes_recorded(self) -> bool | None:
        """Whether the arguments of operators were recorded (``record_shapes=True``); None in a trace without
        operators."""
        if not (self.host.kind == OPERATOR).any():
            return None
        native = [signature for signature in self.signatures if signature.name.startswith("aten::")]
        return not native or any(signature.args for signature in native)


@dataclass(frozen=True, slots=True)
class CaptureTrace:
    """A trace in which CUDA or HIP graphs were captured. ``name`` is used in errors, ``tokens`` is the batch
    of its graphs if a record next to the file has it."""

    trace: Trace
    name: str
    tokens: int | None = None
