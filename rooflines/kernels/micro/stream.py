"""Memory bandwidth of a CPU: read, update, copy and triad over a slice of memory, again and again.

The bytes of one pass follow the STREAM convention (J. McCalpin, "Memory Bandwidth and Machine Balance"): every byte the code
reads plus every byte it writes. That a write may first fetch the line it overwrites (write-allocate) is not counted.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from rooflines.kernels.micro.vectors import compiled, vector_bytes

STREAMS = 4
_LINE = 128  # bytes: the longest cache line of the CPUs in use (Apple), and a multiple of the others


def aligned(elements: int) -> NDArray[np.float64]:
    """``elements`` uninitialised float64 that start on a cache line, so that no vector load straddles two lines."""
    raw = np.empty(elements * 8 + _LINE, dtype=np.uint8)
    start = -raw.ctypes.data % _LINE
    return raw[start : start + elements * 8].view(np.float64)


def granule() -> int:
    """8-byte elements that a slice must be a multiple of: one vector for each of the ``STREAMS``."""
    return STREAMS * vector_bytes() // 8


@intrinsic  # type: ignore[untyped-decorator]
def _add_up(typing_context: Any, values: Any) -> Any:
    """The sum of ``values`` as 64-bit integers, by ``STREAMS`` independent vector additions of one cycle each.

    Integer, because the additions of a floating-point sum take three or four cycles and would limit what comes out of the L1 cache.
    Each stream walks its own part of the slice: out of the L2 cache this is up to half faster than neighbouring vectors.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        word = ir.IntType(64)
        width = vector_bytes() // 8
        vector = ir.VectorType(word, width)
        base = builder.bitcast(array.data, vector.as_pointer())
        slots = [cgutils.alloca_once_value(builder, ir.Constant(vector, [0] * width)) for _ in range(STREAMS)]
        passes = builder.udiv(array.nitems, ir.Constant(array.nitems.type, STREAMS * width))
        with cgutils.for_range(builder, passes) as loop:
            for number, slot in enumerate(slots):
                position = builder.add(loop.index, builder.mul(passes, ir.Constant(passes.type, number)))
                loaded = builder.load(builder.gep(base, [position]), align=8)
                builder.store(builder.add(builder.load(slot), loaded), slot)
        total = ir.Constant(vector, [0] * width)
        for slot in slots:
            total = builder.add(total, builder.load(slot))
        result = ir.Constant(word, 0)
        for lane in range(width):
            result = builder.add(result, builder.extract_element(total, ir.Constant(ir.IntType(32), lane)))
        return result

    return types.int64(values), generate


@compiled
def read(values: NDArray[np.int64], passes: int) -> int:
    """Read ``values`` ``passes`` times; returns the sum of all that was read, modulo 2**64.

    ``values`` is contiguous, its length a multiple of ``granule()``. Reads ``values.nbytes`` a pass.
    """
    total = 0
    for number in range(passes):
        # numbered, so that no pass is provably the same as the one before and the loop cannot be folded into a multiplication
        total += _add_up(values) ^ number
    return total


@compiled
def update(values: NDArray[np.float64], passes: int) -> None:
    """``values = number - values`` in place for ``number`` from 0 to ``passes``: 16 bytes an element and pass.

    What an operator in place does. Every line that is written has been read, so nothing is fetched that is not counted, and a cache
    that moves data both ways at once is busy both ways.
    """
    for number in range(passes):
        for i in range(values.size):
            values[i] = number - values[i]


@compiled
def copy(source: NDArray[np.float64], target: NDArray[np.float64], passes: int) -> None:
    """Copy ``source`` to ``target`` ``passes`` times with ordinary stores: 16 bytes an element and pass."""
    for number in range(passes):
        for i in range(source.size):
            target[i] = source[i]
        # what is copied changes from pass to pass, so that no pass can be left out
        source[0] = number


@compiled
def triad(first: NDArray[np.float64], second: NDArray[np.float64], target: NDArray[np.float64], scale: float, passes: int) -> None:
    """``target = first + scale * second``, ``passes`` times: 24 bytes an element and pass."""
    for number in range(passes):
        for i in range(first.size):
            target[i] = first[i] + scale * second[i]
        first[0] = number
