"""Peak rate of fused multiply-adds: nothing but FMAs on values that stay in registers.

A CPU starts up to two (Arm: four) FMAs a cycle and each takes four or five cycles, so at least ten must be independent to keep the
units busy (latency x units). ``ACCUMULATORS`` recurrences ``x <- x * scale + shift`` run side by side; with the two constants they
fit the sixteen registers of AVX2 as well as the thirty-two of AVX-512.

Two kernels give further roofs: the same in scalar FMAs, what code without SIMD can reach, and in vector multiplications and additions
apart, what code without FMA can.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from rooflines.kernels.micro.vectors import compiled, splat, vector_bytes

Variant = Literal["", "scalar", "no FMA"]

ACCUMULATORS = 12
UNROLL = 4


def lanes(dtype: Any, variant: Variant = "") -> int:
    """Elements of ``dtype`` that a kernel works on: ``ACCUMULATORS`` registers full."""
    return ACCUMULATORS * (1 if variant == "scalar" else vector_bytes() // int(np.dtype(dtype).itemsize))


def flops(dtype: Any, iterations: int, variant: Variant = "") -> int:
    """FLOPs of a kernel: one multiplication and one addition per lane, ``UNROLL`` times per iteration."""
    return 2 * lanes(dtype, variant) * UNROLL * iterations


def _recurrence(variant: Variant) -> Any:
    """An intrinsic that loads ``ACCUMULATORS`` registers, applies the recurrence ``UNROLL * iterations`` times, stores them back."""

    def recurrence(typing_context: Any, values: Any, scale: Any, shift: Any, iterations: Any) -> Any:
        element = values.dtype

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            array = context.make_array(signature.args[0])(context, builder, arguments[0])
            scalar = context.get_data_type(element)
            if variant == "scalar":
                register, scales, shifts = scalar, arguments[1], arguments[2]
                suffix = f"f{element.bitwidth}"
            else:
                width = vector_bytes() // (element.bitwidth // 8)
                register = ir.VectorType(scalar, width)
                scales, shifts = (splat(builder, register, argument) for argument in arguments[1:3])
                suffix = f"v{width}f{element.bitwidth}"
            # fmuladd is one FMA instruction where the CPU has one and a multiplication and an addition where it has not
            fma = cgutils.get_or_insert_function(builder.module, ir.FunctionType(register, [register] * 3), f"llvm.fmuladd.{suffix}")

            def step(value: Any) -> Any:
                if variant == "no FMA":  # without fastmath LLVM may not fuse the two: it would round differently
                    return builder.fadd(builder.fmul(value, scales), shifts)
                return builder.call(fma, [value, scales, shifts])

            base = builder.bitcast(array.data, register.as_pointer())
            # LLVM's mem2reg pass turns these stack slots into registers
            slots = [cgutils.alloca_once(builder, register) for _ in range(ACCUMULATORS)]
            pointers = [builder.gep(base, [ir.Constant(ir.IntType(32), number)]) for number in range(ACCUMULATORS)]
            alignment = element.bitwidth // 8
            for slot, pointer in zip(slots, pointers, strict=True):
                builder.store(builder.load(pointer, align=alignment), slot)
            with cgutils.for_range(builder, arguments[3]):
                for _ in range(UNROLL):
                    for slot in slots:
                        builder.store(step(builder.load(slot)), slot)
            for slot, pointer in zip(slots, pointers, strict=True):
                builder.store(builder.load(slot), pointer, align=alignment)
            return context.get_dummy_value()

        return types.void(values, element, element, types.intp), generate

    return intrinsic(recurrence)


_recur = _recurrence("")
_recur_scalar = _recurrence("scalar")
_recur_unfused = _recurrence("no FMA")


@compiled
def recur(values: NDArray[Any], scale: Any, shift: Any, iterations: int) -> None:
    """Replace each x in ``values`` by ``x * scale + shift``, ``UNROLL * iterations`` times.

    ``values`` is a contiguous array of ``lanes(dtype)`` elements, float32 or float64. With 0 < ``scale`` < 1 the values converge to
    ``shift / (1 - scale)`` and stay normal numbers however long the loop.
    """
    _recur(values, scale, shift, iterations)


@compiled
def recur_scalar(values: NDArray[Any], scale: Any, shift: Any, iterations: int) -> None:
    """The same, one element after the other: ``lanes(dtype, "scalar")`` elements, no SIMD."""
    _recur_scalar(values, scale, shift, iterations)


@compiled
def recur_unfused(values: NDArray[Any], scale: Any, shift: Any, iterations: int) -> None:
    """The same as ``recur`` with each multiplication rounded before the addition: no FMA."""
    _recur_unfused(values, scale, shift, iterations)


KERNELS: dict[Variant, Any] = {"": recur, "scalar": recur_scalar, "no FMA": recur_unfused}
