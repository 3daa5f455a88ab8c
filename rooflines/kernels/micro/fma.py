"""The arithmetic of a CPU: the peak rate of fused multiply-adds on values that stay in registers, and the
clock of its cores.

A CPU starts up to two (Arm: four) FMAs a cycle and each takes four or five cycles, so at least ten must be
independent to keep the units busy (latency x units). ``ACCUMULATORS`` recurrences ``x <- x * scale + shift``
run side by side; with the two constants they fit the sixteen registers of AVX2 as well as the thirty-two of
AVX-512.

Two kernels give further roofs: the same in scalar FMAs, what code without SIMD can reach, and in vector
multiplications and additions apart, what code without FMA can.

The clock is counted, because virtual machines hide it and system files show only a nominal value. A chain of
integer operations, each waiting for the one before, takes one cycle a link on every core that we know:
``xor`` and ``add`` of registers have a latency of one cycle (Agner Fog, "Instruction tables"). Both operands
are registers because some cores add a constant while they rename, in no time.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numpy.typing import NDArray

from rooflines.kernels.micro.vectors import (
    VectorCode,
    compiled_vectors,
    emitted_vectors,
    size_of,
    splat,
    vector_bytes,
)

Variant = Literal["", "scalar", "no FMA"]

ACCUMULATORS = 12
UNROLL = 4
LINKS = 2  # of one iteration of ``chain``: the xor and the addition


def lanes(dtype: Any, variant: Variant = "") -> int:
    """Elements of ``dtype`` that a kernel works on: ``ACCUMULATORS`` registers full."""
    return ACCUMULATORS * (1 if variant == "scalar" else vector_bytes() // int(np.dtype(dtype).itemsize))


def flops(dtype: Any, iterations: int, variant: Variant = "") -> int:
    """FLOPs of a kernel: one multiplication and one addition per lane, ``UNROLL`` times per iteration."""
    return 2 * lanes(dtype, variant) * UNROLL * iterations


def _recurrence(variant: Variant) -> Any:
    """An intrinsic that loads ``ACCUMULATORS`` registers, applies the recurrence ``UNROLL * iterations``
    times, stores them back."""

    def recurrence(code: VectorCode, values: Any, scale: Any, shift: Any, iterations: Any) -> None:
        element = values.type.pointee
        width = 1 if variant == "scalar" else vector_bytes() // size_of(element)
        scales, shifts = (
            splat(code.builder, ir.VectorType(element, width), number) for number in (scale, shift)
        )
        registers = [
            code.variable(code.load(values, width * number, width)) for number in range(ACCUMULATORS)
        ]
        with code.loop(iterations):
            for register in registers * UNROLL:
                value = code.get(register)
                if (
                    variant == "no FMA"
                ):  # without fastmath LLVM may not fuse the two: it would round differently
                    code.set(register, code.add(code.builder.fmul(value, scales), shifts))
                else:
                    code.set(register, code.fma(value, scales, shifts))
        for number, register in enumerate(registers):
            code.store(code.get(register), values, width * number)

    return emitted_vectors(recurrence)


_recur = _recurrence("")
_recur_scalar = _recurrence("scalar")
_recur_unfused = _recurrence("no FMA")


@compiled_vectors
def recur(values: NDArray[Any], scale: Any, shift: Any, iterations: int) -> None:
    """Replace each x in ``values`` by ``x * scale + shift``, ``UNROLL * iterations`` times.

    ``values`` is a contiguous array of ``lanes(dtype)`` elements, float32 or float64. With 0 < ``scale`` < 1
    the values converge to ``shift / (1 - scale)`` and stay normal numbers however long the loop.
    """
    _recur(values, scale, shift, iterations)


@compiled_vectors
def recur_scalar(values: NDArray[Any], scale: Any, shift: Any, iterations: int) -> None:
    """The same, one element after the other: ``lanes(dtype, "scalar")`` elements, no SIMD."""
    _recur_scalar(values, scale, shift, iterations)


@compiled_vectors
def recur_unfused(values: NDArray[Any], scale: Any, shift: Any, iterations: int) -> None:
    """The same as ``recur`` with each multiplication rounded before the addition: no FMA."""
    _recur_unfused(values, scale, shift, iterations)


KERNELS: dict[Variant, Any] = {"": recur, "scalar": recur_scalar, "no FMA": recur_unfused}


@compiled_vectors
def chain(value: int, step: int, iterations: int) -> int:
    """``value`` after ``iterations`` times ``value = (value ^ i) + step``, in 64-bit integers that wrap
    around."""
    for index in range(iterations):
        value = (value ^ index) + step
    return value
