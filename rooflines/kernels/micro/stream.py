"""Memory bandwidth of a CPU: read, write, update, copy and triad over a slice of memory, again and again.

The bytes of one pass follow the STREAM convention (J. McCalpin, "Memory Bandwidth and Machine Balance"):
every byte the code reads plus every byte it writes. That a write may first fetch the line it overwrites
(write-allocate) is not counted. The kernels whose name ends in ``_past_caches`` store non-temporally: whole
lines go to memory without being fetched and without staying in a cache.

Each kernel walks ``STREAMS`` parts of its slice side by side: out of memory, and out of a shared cache,
hardware follows several streams at once, and one alone reaches two thirds. The passes are repeated inside the
innermost code, so that what a pass costs beyond its loads and stores is a few instructions even where the
slice is small enough for the L1 cache.
"""

from __future__ import annotations

import contextlib
import functools
import mmap
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from rooflines.kernels.micro.vectors import VectorCode, compiled_vectors, forget_memory, splat, vector_bytes

Floats = NDArray[np.float64]
STREAMS = 4
UNROLL = 2
_HUGE_PAGE = 2 << 20  # bytes, of x86 and of Arm with pages of 4 KiB

_INDEX = ir.IntType(64)
_WORD = ir.IntType(64)
_INT32 = ir.IntType(32)


def aligned_array(elements: int) -> Floats:
    """``elements`` float64 in memory that nothing has touched yet, in huge pages where the system has some to
    give.

    They start on a cache line, so that no vector load straddles two. With pages of 4 KiB, looking up
    addresses takes part of what is measured from the L2 cache outwards, the more so in a virtual machine,
    which looks up every page twice.
    """
    size = elements * 8
    # mapped alone: whole huge pages around the array, and memory that the thread which first writes it finds
    # on its own NUMA node
    length = -(-size // _HUGE_PAGE) * _HUGE_PAGE + _HUGE_PAGE
    # private: shared memory, what mmap gives by default, gets huge pages only where the system has them
    # switched on for it as well
    private = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
    mapping = mmap.mmap(-1, length, **private)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel built without them
            mapping.madvise(mmap.MADV_HUGEPAGE)
    raw = np.frombuffer(mapping, dtype=np.uint8)
    start = -raw.ctypes.data % _HUGE_PAGE
    return raw[start : start + size].view(np.float64)


def granule() -> int:
    """8-byte elements that a slice must be a multiple of: ``UNROLL`` vectors for each of the ``STREAMS``."""
    return STREAMS * UNROLL * vector_bytes() // 8


class _Walk:
    """The vectors of one step: ``UNROLL`` neighbors in each of the ``STREAMS`` parts of every array."""

    def __init__(self, builder: Any, arrays: list[Any], element: Any) -> None:
        self.builder = builder
        self.width = vector_bytes() // 8
        self.vector = ir.VectorType(element, self.width)
        per_stream = builder.udiv(arrays[0].nitems, _INDEX(STREAMS * UNROLL * self.width))
        self.length = builder.mul(per_stream, _INDEX(UNROLL))
        self._heads = [
            [builder.gep(base, [builder.mul(self.length, _INDEX(stream))]) for stream in range(STREAMS)]
            for base in (builder.bitcast(array.data, self.vector.as_pointer()) for array in arrays)
        ]
        self._non_temporal = builder.module.add_metadata([_INT32(1)])

    def load(self, array: int, index: Any) -> list[Any]:
        """The vectors of ``array`` at ``index``."""
        return [self.builder.load(pointer, align=self._alignment) for pointer in self._pointers(array, index)]

    def store(self, values: list[Any], array: int, index: Any, past_caches: bool = False) -> None:
        """``values`` to the vectors of ``array`` at ``index``."""
        for value, pointer in zip(values, self._pointers(array, index), strict=True):
            instruction = self.builder.store(value, pointer, align=self._alignment)
            if past_caches:
                instruction.set_metadata("nontemporal", self._non_temporal)

    @property
    def _alignment(self) -> int:
        return self.width * 8

    def _pointers(self, array: int, index: Any) -> list[Any]:
        return [
            self.builder.gep(head, [self.builder.add(index, _INDEX(neighbor))])
            for head in self._heads[array]
            for neighbor in range(UNROLL)
        ]


# What one step does, given the walk, the position, the number of the pass and a scalar argument where there
# is one (as vectors).
_Body = Callable[[_Walk, Any, Any, Any], None]


def _moving(arrays: int, body: _Body) -> Any:
    """An intrinsic that runs ``body`` at every position of every pass over ``arrays`` arrays; a triad's has
    its scalar as well."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        made = [
            context.make_array(kind)(context, builder, value)
            for kind, value in zip(signature.args, arguments, strict=True)
            if isinstance(kind, types.Array)
        ]
        walk = _Walk(builder, made, ir.DoubleType())
        scalar = splat(builder, walk.vector, arguments[arrays]) if arrays == 3 else None
        with cgutils.for_range(builder, arguments[-1]) as outer:
            forget_memory(builder)
            number = splat(builder, walk.vector, builder.sitofp(outer.index, ir.DoubleType()))
            with cgutils.for_range_slice(builder, _INDEX(0), walk.length, _INDEX(UNROLL), intp=_INDEX) as (
                index,
                _,
            ):
                body(walk, index, number, scalar)
        # until here, non-temporal stores may be seen by other threads in any order
        builder.fence("seq_cst")
        return context.get_dummy_value()

    # Numba reads an intrinsic's parameters off its signature
    def one(typing_context: Any, target: Any, passes: Any) -> Any:
        return types.void(target, types.intp), generate

    def two(typing_context: Any, source: Any, target: Any, passes: Any) -> Any:
        return types.void(source, target, types.intp), generate

    def three(typing_context: Any, first: Any, second: Any, target: Any, scale: Any, passes: Any) -> Any:
        return types.void(first, second, target, types.float64, types.intp), generate

    return intrinsic({1: one, 2: two, 3: three}[arrays])


@intrinsic  # type: ignore[untyped-decorator]
def _fold(typing_context: Any, values: Any, passes: Any) -> Any:
    """The exclusive or of each stream's lanes of ``values``, added up over all passes.

    Out of the L1 cache a core loads as many vectors a cycle as it computes with, and what computes may be
    shared with another hardware thread. Three-way exclusive or, one instruction with AVX-512, folds two loads
    at once: half the work of adding each up.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        walk = _Walk(builder, [context.make_array(signature.args[0])(context, builder, arguments[0])], _WORD)
        nothing = ir.Constant(walk.vector, [0] * walk.width)
        # LLVM's mem2reg pass turns these stack slots into registers
        totals, slots = (
            [cgutils.alloca_once_value(builder, nothing) for _ in range(STREAMS)] for _ in range(2)
        )
        with cgutils.for_range(builder, arguments[1]):
            forget_memory(builder)
            for slot in slots:
                builder.store(nothing, slot)
            with cgutils.for_range_slice(builder, _INDEX(0), walk.length, _INDEX(UNROLL), intp=_INDEX) as (
                index,
                _,
            ):
                loaded = walk.load(0, index)
                for number, slot in enumerate(slots):
                    both = functools.reduce(builder.xor, loaded[number * UNROLL : (number + 1) * UNROLL])
                    builder.store(builder.xor(builder.load(slot), both), slot)
            for total, slot in zip(totals, slots, strict=True):
                builder.store(builder.add(builder.load(total), builder.load(slot)), total)
        summed = functools.reduce(builder.add, [builder.load(total) for total in totals])
        result = _WORD(0)
        for lane in range(walk.width):
            result = builder.add(result, builder.extract_element(summed, _INT32(lane)))
        return result

    return types.int64(values, types.intp), generate


def _write_body(past_caches: bool) -> _Body:
    return lambda walk, index, number, _: walk.store([number] * (STREAMS * UNROLL), 0, index, past_caches)


def _copy_body(past_caches: bool) -> _Body:
    return lambda walk, index, number, _: walk.store(walk.load(0, index), 1, index, past_caches)


def _triad_body(past_caches: bool) -> _Body:
    def body(walk: _Walk, index: Any, number: Any, scale: Any) -> None:
        fma = VectorCode(walk.builder).fma
        pairs = zip(walk.load(0, index), walk.load(1, index), strict=True)
        walk.store([fma(scale, second, first) for first, second in pairs], 2, index, past_caches)

    return body


def _update_body(walk: _Walk, index: Any, number: Any, _: Any) -> None:
    walk.store([walk.builder.fsub(number, value) for value in walk.load(0, index)], 0, index)


_write, _write_past_caches = _moving(1, _write_body(False)), _moving(1, _write_body(True))
_update = _moving(1, _update_body)
_copy, _copy_past_caches = _moving(2, _copy_body(False)), _moving(2, _copy_body(True))
_triad, _triad_past_caches = _moving(3, _triad_body(False)), _moving(3, _triad_body(True))

# All arrays below are contiguous, start on a vector (``aligned_array``) and are a multiple of ``granule()``
# long.


@compiled_vectors
def read(values: NDArray[np.int64], passes: int) -> int:
    """Read ``values`` ``passes`` times; returns ``passes`` times the exclusive or of each stream and lane,
    summed modulo 2**64. Reads ``values.nbytes`` a pass."""
    return _fold(values, passes)  # type: ignore[no-any-return]


@compiled_vectors
def write(target: Floats, passes: int) -> None:
    """Fill ``target`` with the number of the pass, from 0 to ``passes``: 8 bytes an element and pass, nothing
    read."""
    _write(target, passes)


@compiled_vectors
def write_past_caches(target: Floats, passes: int) -> None:
    """``write`` with non-temporal stores."""
    _write_past_caches(target, passes)


@compiled_vectors
def update(values: Floats, passes: int) -> None:
    """``values = number - values`` in place for ``number`` from 0 to ``passes``: 16 bytes an element and
    pass.

    What an operator in place does. Every line that is written has been read, so nothing is fetched that is
    not counted, and a cache that moves data both ways at once is busy both ways.
    """
    _update(values, passes)


@compiled_vectors
def copy(source: Floats, target: Floats, passes: int) -> None:
    """Copy ``source`` to ``target`` ``passes`` times: 16 bytes an element and pass."""
    _copy(source, target, passes)


@compiled_vectors
def copy_past_caches(source: Floats, target: Floats, passes: int) -> None:
    """``copy`` with non-temporal stores."""
    _copy_past_caches(source, target, passes)


@compiled_vectors
def triad(
    first: Floats,
    second: Floats,
    target: Floats,
    scale: float,
    passes: int,
) -> None:
    """``target = first + scale * second``, ``passes`` times: 24 bytes an element and pass."""
    _triad(first, second, target, scale, passes)


@compiled_vectors
def triad_past_caches(
    first: Floats,
    second: Floats,
    target: Floats,
    scale: float,
    passes: int,
) -> None:
    """``triad`` with non-temporal stores."""
    _triad_past_caches(first, second, target, scale, passes)
