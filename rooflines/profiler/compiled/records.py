"""Records of a run's compiled graphs: for every kernel its operators and the memory it accesses.

A trace has only the name of a fused kernel. These facts are taken from inductor while it generates the kernel
(``inductor.py``) and lie in a separate file next to the trace; they are interpreted when the run is analyzed.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from rooflines.profiler.directory import read_facts
from rooflines.profiler.read.signature import StoredCall, TensorArg
from rooflines.profiler.records import Numbers, ProgramLine
from rooflines.serial import write_json

COMPILED_FILE = "compiled.json"
COMPILED_SCHEMA = "rooflines.compiled/1"


class Buffer(msgspec.Struct, frozen=True, array_like=True):
    """A tensor in memory that a kernel gets or returns."""

    shape: Numbers
    dtype: str
    strides: Numbers | None = None

    @property
    def tensor(self) -> TensorArg:
        """The buffer as an argument of a call."""
        return TensorArg(self.shape, self.dtype, self.strides)


class Access(msgspec.Struct, frozen=True, array_like=True):
    """One load or store in a kernel's loops: how many different elements of the buffer it reaches at most,
    between which two of them.

    ``buffer`` indexes the graph's buffers. ``adds`` says that a store adds to what is there (atomically),
    ``anywhere`` that the values of another tensor say which elements.
    """

    buffer: int
    elements: int
    first: int
    last: int
    adds: bool = False
    anywhere: bool = False


class CompiledKernel(msgspec.Struct, frozen=True, kw_only=True):
    """A call in a compiled graph: of a kernel that inductor generated, or of an operator outside."""

    #: Name of its event in a trace.
    name: str
    #: Whether it is an operator outside.
    extern: bool = False
    #: Path of the module it came from, below the one that was compiled; absent where that is not known.
    module: str | None = None
    #: Indices of the file's nodes, the operator calls that inductor lowers: those that this kernel is
    #: the first in its graph to compute.
    nodes: Numbers = ()
    #: Loads from memory; what lives and dies in the kernel is none.
    reads: tuple[Access, ...] = ()
    #: Stores that stay in memory after it.
    writes: tuple[Access, ...] = ()
    #: Indices of the file's lines, those of the program that it was compiled from.
    lines: Numbers = ()
    #: Why its work is not known.
    reason: str = ""


class Graph(msgspec.Struct, frozen=True, kw_only=True):
    """A compiled graph: its calls in the order they are made, the memory that they touch, and the classes of
    its modules by path.

    ``region`` is torch's name of the compilation (``0/0``), which the graph of the backward shares with that
    of its forward. Paths of modules are below the module at ``prefix``, None if that is unknown.
    """

    region: str
    backward: bool
    kernels: tuple[CompiledKernel, ...]
    buffers: tuple[Buffer, ...]
    modules: dict[str, str] = {}
    prefix: str | None = None


class CompiledCode(msgspec.Struct, frozen=True, kw_only=True):
    """Every graph that was compiled while the run was recorded; ``problems`` say which could not be read, and
    why.

    ``empty`` are the regions of functions in which there was nothing to compile.
    """

    schema: str = COMPILED_SCHEMA
    graphs: tuple[Graph, ...] = ()
    nodes: tuple[StoredCall, ...] = ()
    lines: tuple[ProgramLine, ...] = ()
    empty: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


def as_buffer(tensor: TensorArg) -> Buffer:
    """The record of a tensor."""
    return Buffer(tensor.shape, tensor.dtype, tensor.strides)


def write_compiled(code: CompiledCode, directory: Path) -> str:
    """Write ``code`` into the run directory; returns the file's name."""
    write_json(directory / COMPILED_FILE, code)
    return COMPILED_FILE


def read_compiled(path: Path) -> CompiledCode:
    """The facts in ``path``; raises RunError when they are gone, corrupt, or of another version."""
    what = f"the compiled code {str(path)!r}"
    return read_facts(path, CompiledCode, COMPILED_SCHEMA, what=what, again="record the run again")
