"""The vector registers of this CPU, and how to write LLVM vector instructions from a Numba kernel.

A peak kernel written as a plain loop reaches the peak only when LLVM's vectoriser happens to choose the full register width, and on
many AVX-512 parts it prefers half of it. These kernels therefore spell out vectors of the native width: LLVM has then nothing left to
decide but the registers.
"""

from __future__ import annotations

import functools
import platform
from typing import Any

import llvmlite.binding as llvm  # type: ignore[import-untyped]
from llvmlite import ir
from numba import config, njit


@functools.cache
def vector_bytes() -> int:
    """Width of the widest vector register, in bytes: 64 with AVX-512, 32 with AVX, else 16.

    Arm without AVX counts as 32, which LLVM makes two 128-bit NEON instructions: its wider cores have four vector units, and only
    twice as many accumulators keep them busy.
    """
    # what Numba compiles for: this CPU, unless NUMBA_CPU_FEATURES says otherwise
    features = (llvm.get_host_cpu_features().flatten() if config.CPU_FEATURES is None else config.CPU_FEATURES).split(",")
    if "+avx512f" in features:
        return 64
    if "+avx" in features:
        return 32
    return 32 if platform.machine().lower() in ("aarch64", "arm64") else 16


def splat(builder: Any, vector: Any, scalar: Any) -> Any:
    """``scalar`` in every lane of a ``vector`` (an LLVM vector type)."""
    first = builder.insert_element(ir.Constant(vector, ir.Undefined), scalar, ir.Constant(ir.IntType(32), 0))
    from_first = ir.Constant(ir.VectorType(ir.IntType(32), vector.count), [0] * vector.count)
    return builder.shuffle_vector(first, ir.Constant(vector, ir.Undefined), from_first)


def forget_memory(builder: Any) -> None:
    """From here on the compiler must take it that any memory has changed: an empty piece of assembly that says it writes memory.

    Costs no instruction. Without it, the second of two equal passes over the same memory could be left out.
    """
    builder.asm(ir.FunctionType(ir.VoidType(), []), "", "~{memory}", [], side_effect=True)


def compiled(function: Any) -> Any:
    """``function`` as a Numba kernel that releases the GIL, cached on disk where some cache directory can be written.

    No fastmath: these kernels contain the exact instructions they mean, so the sums and recurrences in them stay checkable.
    """
    try:
        return njit(nogil=True, cache=True)(function)
    except RuntimeError:  # "no locator available": neither the package's directory nor the user's cache directory is writable
        return njit(nogil=True)(function)
