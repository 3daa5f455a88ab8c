"""A trace as columns: what threads did, what devices did, what was allocated, and what the file says of the machine.

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

from rooflines.profiler.trace.signature import Signature

Int64s = npt.NDArray[np.int64]
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
# The category of events that rooflines adds to a trace (``reports/render/perfetto.py``).
ADDED = "rooflines"

# What the columns, names and signatures of one trace may take unless the caller says otherwise: 40 million events.
MEMORY_LIMIT_BYTES = 4 << 30


def of_kinds(kind: npt.NDArray[np.int8], kinds: tuple[int, ...]) -> Mask:
    """Which events are of one of ``kinds``. ``numpy.isin`` takes twenty times as long for so few."""
    return functools.reduce(operator.or_, (kind == one for one in kinds))


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How a trace is read: with ``partial`` one that is cut off up to the cut, within ``memory_limit_bytes`` for what is kept of its
    events, and with ``keep_paths`` with the whole paths of source files. ``list_dtype`` is the dtype of lists of tensors, which Kineto
    does not record."""

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
    """Events of threads: operators, annotations, modules of the Python stack, runtime calls; sorted by thread, start, longest first.

    ``name`` indexes ``Trace.names``, ``signature`` indexes ``Trace.signatures`` (-1: none), ``sequence`` is autograd's number (-1:
    none), ``forward_thread`` is non-zero on backward events, ``correlation`` ties a runtime call to device events (-1: none).
    ``kernel`` indexes ``Trace.kernels``: what a call launches, as ROCm records it (-1: not recorded).
    """

    kind: npt.NDArray[np.int8]
    name: Int32s
    thread: Int32s
    start_ns: Int64s
    end_ns: Int64s
    signature: Int32s
    sequence: Int64s
    forward_thread: Int64s
    correlation: Int64s
    kernel: Int32s


@dataclass(frozen=True, slots=True)
class DeviceEvents(_Columns):
    """Events of accelerators: kernels, copies, memsets, collectives; sorted by start. ``device`` is the ordinal in the trace.

    ``collective`` indexes ``Trace.collectives`` and ``shape`` indexes ``Trace.launch_shapes`` (-1: none, or the trace does not say).
    ``registers`` are those of a thread, ``shared_bytes`` the shared memory of a block, and ``occupancy`` the percent of the warps of a
    multiprocessor that the profiler estimates to be in use, 0 of less than one (-1: not recorded).
    ``graph_node`` numbers the nodes of CUDA graphs in the order of their capture (0: none, or the trace does not say), and ``scope``
    indexes ``Trace.scopes`` (-1: the node has no annotation).
    """

    kind: npt.NDArray[np.int8]
    name: Int32s
    device: Int32s
    stream: Int64s
    start_ns: Int64s
    end_ns: Int64s
    correlation: Int64s
    collective: Int32s
    shape: Int32s
    graph_node: Int64s
    scope: Int32s
    registers: Int64s
    shared_bytes: Int64s
    occupancy: Int64s


@dataclass(frozen=True, slots=True)
class Scope:
    """The annotation of a node of a CUDA graph (``torch.cuda.graph_annotations.mark_kernels``): the module or region that it names, and
    whether it is work of its backward pass."""

    path: str
    is_backward: bool = False


@dataclass(frozen=True, slots=True)
class Frames(_Columns):
    """Functions of the Python stack that have a file and a line, those of torch and of Python's own modules left out; sorted by
    thread, start, longest first. ``name`` indexes ``Trace.frame_names`` (``train.py(41): step``)."""

    name: Int32s
    thread: Int32s
    start_ns: Int64s
    end_ns: Int64s


@dataclass(frozen=True, slots=True)
class Exchange:
    """The data of a collective. ``kind`` is ``allreduce``, ``alltoall``, ... or ``other``; elements sent and received by this rank, of
    ``dtype`` (``float32``); None if the trace does not record it. ``group`` is the name of its process group, ``group_ranks`` are the
    ranks in it.

    ``bytes`` is the size by which NVIDIA's nccl-tests divide: the whole tensor, so that an all-gather counts what every rank has at the
    end and a reduce-scatter what every rank has at the begin; of an uneven exchange the larger of what is sent and received.
    """

    kind: str
    bytes: int | None = None
    elements_in: int | None = None
    elements_out: int | None = None
    dtype: str | None = None
    group: str | None = None
    group_size: int | None = None
    group_ranks: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class MemoryEvents(_Columns):
    """Allocations (positive ``size_bytes``) and frees (negative), sorted by time; ``device_type`` 0 is the CPU, ``device`` the ordinal
    among those of its type. ``allocated_bytes`` is the sum of what is allocated afterwards (-1: not recorded), on a CPU of what was
    allocated since the recording began."""

    time_ns: Int64s
    thread: Int32s
    size_bytes: Int64s
    device_type: Int64s
    device: Int64s
    allocated_bytes: Int64s


@dataclass(frozen=True, slots=True)
class TracedDevice:
    """A device as the file describes it (``deviceProperties``); None or empty for what it leaves out.

    ``ordinal`` is its number (``id``), ``capability`` the compute capability ("9.0"), ``warp`` the threads of a warp or wavefront.
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
    world_size: int | None = None
    backend: str | None = None


# The grid and the block of a launch: x, y, z.
LaunchShape = tuple[tuple[int, int, int], tuple[int, int, int]]
# The kernel that a runtime call launches, and its grid and block where they are recorded.
LaunchRecord = tuple[str, LaunchShape | None]


@dataclass(frozen=True, slots=True)
class Trace:
    """A Kineto trace. ``platform`` is torch's name for the kind of device in it (``cuda`` for NVIDIA's and AMD's). ``notes`` are
    sentences about what in the file was repaired or left out. ``overhead`` is when the profiler did work of its own, and ``has_stacks``
    says that it recorded so much of the Python stack that the host is slower for it. ``cut_ns`` is None for a file with all of its
    events; where the file is cut off among them it is the end of the last host event before the cut, in the order of the file.
    ``base_ns`` is the time since 1970 at which the clock of the trace is 0; 0 where the file does not say it, as in old traces, which
    count from 1970. ``threads`` are the process and thread that each thread of the host events is. ``source`` is the file or URL, of
    which only ``shown`` may be printed."""

    host: HostEvents
    device: DeviceEvents
    memory: MemoryEvents
    names: list[str]
    signatures: list[Signature]
    collectives: list[Exchange]
    launch_shapes: list[LaunchShape] = field(default_factory=list)
    kernels: list[LaunchRecord] = field(default_factory=list)
    scopes: list[Scope] = field(default_factory=list)
    frames: Frames = field(default_factory=lambda: Frames(*np.empty((4, 0), np.int64)))
    frame_names: list[str] = field(default_factory=list)
    devices: tuple[TracedDevice, ...] = ()
    rank: Rank | None = None
    base_ns: int = 0
    platform: str = "cuda"
    notes: tuple[str, ...] = field(default=())
    overhead: Int64s = field(default_factory=lambda: np.empty((0, 2), np.int64))
    has_stacks: bool = False
    cut_ns: int | None = None
    threads: list[str] = field(default_factory=list)
    source: Path | str = field(default="", repr=False)

    @property
    def began_ns(self) -> int:
        """The time of the first event of host and device."""
        return min((int(events.start_ns.min()) for events in (self.host, self.device) if len(events)), default=0)

    def named(self, test: Callable[[str], bool], *kinds: int) -> Mask:
        """The host events of ``kinds`` (of all kinds without) whose names pass ``test``; each distinct name is asked once."""
        passed: Mask = np.array([*map(test, self.names), False], bool)[self.host.name]
        return passed & of_kinds(self.host.kind, kinds) if kinds else passed

    @property
    def shapes_recorded(self) -> bool | None:
        """Whether the arguments of operators were recorded (``record_shapes=True``); None in a trace without operators."""
        if not (self.host.kind == OPERATOR).any():
            return None
        native = [signature for signature in self.signatures if signature.name.startswith("aten::")]
        return not native or any(signature.args for signature in native)


@dataclass(frozen=True, slots=True)
class CaptureTrace:
    """A trace in which CUDA or HIP graphs were captured. ``name`` is used in errors, ``tokens`` is the batch of its graphs if a
    record next to the file has it."""

    trace: Trace
    name: str
    tokens: int | None = None
