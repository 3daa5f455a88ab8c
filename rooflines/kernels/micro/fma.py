"""Peak rate of fused multiply-adds: nothing but vector FMAs on values that stay in registers.

A CPU starts up to two (Arm: four) FMAs a cycle and each takes four or five cycles, so at least ten must be independent to keep the
units busy (latency x units). ``ACCUMULATORS`` recurrences ``x <- x * scale + shift`` run side by side; with the two constants they
fit the sixteen registers of AVX2 as well as the thirty-two of AVX-512.
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

ACCUMULATORS = 12
UNROLL = 4


def lanes(dtype: Any) -> int:
    """Elements of ``dtype`` that ``recur`` works on: ``ACCUMULATORS`` registers full."""
    return ACCUMULATORS * vector_bytes() // int(np.dtype(dtype).itemsize)


def flops(dtype: Any, iterations: int) -> int:
    """FLOPs of ``recur``: one multiplication and one addition per lane, ``UNROLL`` times per iteration."""
    return 2 * lanes(dtype) * UNROLL * iterations


@intrinsic  # type: ignore[untyped-decorator]
def _recur(typing_context: Any, values: Any, scale: Any, shift: Any, iterations: Any) -> Any:
    """Load ``ACCUMULATORS`` vectors from ``values``, apply the recurrence ``UNROLL * iterations`` times, store them back."""
    element = values.dtype

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array_type = signature.args[0]
        array = context.make_array(array_type)(context, builder, arguments[0])
        width = vector_bytes() // (element.bitwidth // 8)
        vector = ir.VectorType(context.get_data_type(element), width)
        base = builder.bitcast(array.data, vector.as_pointer())
        scales, shifts = (_splat(builder, vector, width, argument) for argument in arguments[1:3])
        # fmuladd is one FMA instruction where the CPU has one and a multiplication and an addition where it has not
        fma = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(vector, [vector] * 3), f"llvm.fmuladd.v{width}f{element.bitwidth}"
        )
        # LLVM's mem2reg pass turns these stack slots into registers
        slots = [cgutils.alloca_once(builder, vector) for _ in range(ACCUMULATORS)]
        pointers = [builder.gep(base, [ir.Constant(ir.IntType(32), number)]) for number in range(ACCUMULATORS)]
        alignment = element.bitwidth // 8
        for slot, pointer in zip(slots, pointers, strict=True):
            builder.store(builder.load(pointer, align=alignment), slot)
        with cgutils.for_range(builder, arguments[3]):
            for _ in range(UNROLL):
                for slot in slots:
                    builder.store(builder.call(fma, [builder.load(slot), scales, shifts]), slot)
        for slot, pointer in zip(slots, pointers, strict=True):
            builder.store(builder.load(slot), pointer, align=alignment)
        return context.get_dummy_value()

    return types.void(values, element, element, types.intp), generate


def _splat(builder: Any, vector: Any, width: int, scalar: Any) -> Any:
    """``scalar`` in every lane of a vector."""
    first = builder.insert_element(ir.Constant(vector, ir.Undefined), scalar, ir.Constant(ir.IntType(32), 0))
    lanes_from_first = ir.Constant(ir.VectorType(ir.IntType(32), width), [0] * width)
    return builder.shuffle_vector(first, ir.Constant(vector, ir.Undefined), lanes_from_first)


@compiled
def recur(values: NDArray[Any], scale: Any, shift: Any, iterations: int) -> None:
    """Replace each x in ``values`` by ``x * scale + shift``, ``UNROLL * iterations`` times.

    ``values`` is a contiguous array of ``lanes(dtype)`` elements, float32 or float64. With 0 < ``scale`` < 1 the values converge to
    ``shift / (1 - scale)`` and stay normal numbers however long the loop.
    """
    _recur(values, scale, shift, iterations)
