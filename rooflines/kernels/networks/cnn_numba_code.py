"""Writing a Numba kernel in LLVM vector instructions: what ``cnn_numba_kernels.py`` is made with.

Loops over eight or sixteen channels that Numba compiles as they are become vectors only as LLVM's vectoriser sees fit, at half of the
register width on many AVX-512 parts and with the accumulators in memory. These kernels say which values are vectors and which of them
live across a loop; the registers are all that is left to LLVM.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from rooflines.kernels.micro.vectors import splat

_FLOAT = ir.FloatType()
_DOUBLE = ir.DoubleType()
_INDEX = ir.IntType(64)
_BYTE = ir.IntType(8)
INT32 = ir.IntType(32)


def emitted(emit: Callable[..., None]) -> Any:
    """A Numba function whose instructions ``emit(code, *arguments)`` writes.

    One-dimensional contiguous arrays arrive as pointers to their first element, numbers as 64-bit integers.
    """

    def typed(typing_context: Any, *arguments: Any) -> Any:
        kinds = [argument if isinstance(argument, types.Array) else types.intp for argument in arguments]

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            arguments = [
                context.make_array(kind)(context, builder, value).data if isinstance(kind, types.Array) else value
                for kind, value in zip(signature.args, values, strict=True)
            ]
            emit(Code(builder), *arguments)
            return context.get_dummy_value()

        return types.void(*kinds), generate

    # Numba folds arguments by the signature, which must name every one
    own = list(inspect.signature(emit).parameters.values())[1:]
    first = inspect.Parameter("typing_context", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    typed.__signature__ = inspect.Signature([first, *own])  # type: ignore[attr-defined]
    typed.__name__ = emit.__name__
    typed.__doc__ = emit.__doc__
    return intrinsic(typed)


class Code:
    """Instructions written one after the other. Offsets count elements and are Python integers or 64-bit values.

    Vectors are of float32 unless said otherwise. Loads and stores need no more alignment than their elements.
    """

    def __init__(self, builder: Any) -> None:
        self.builder = builder

    @contextmanager
    def loop(self, count: Any) -> Iterator[Any]:
        """The instructions of the ``with`` block ``count`` times; gives the index."""
        with cgutils.for_range(self.builder, self.number(count)) as loop:
            yield loop.index

    @staticmethod
    def number(value: Any) -> Any:
        """``value`` as a 64-bit value."""
        return _INDEX(value) if isinstance(value, int) else value

    def scaled(self, value: Any, factor: int) -> Any:
        """``value * factor``."""
        return self.builder.mul(value, _INDEX(factor))

    def at(self, pointer: Any, offset: Any) -> Any:
        """The pointer ``offset`` elements further."""
        return self.builder.gep(pointer, [self.number(offset)])

    def variable(self, value: Any) -> Any:
        """A variable that a loop may change (``get`` and ``set``): LLVM keeps it in registers."""
        slot = cgutils.alloca_once(self.builder, value.type)
        self.builder.store(value, slot)
        return slot

    def get(self, slot: Any) -> Any:
        return self.builder.load(slot)

    def set(self, slot: Any, value: Any) -> None:
        self.builder.store(value, slot)

    def scalar(self, pointer: Any, offset: Any) -> Any:
        """One element."""
        return self.builder.load(self.at(pointer, offset))

    def index(self, pointer: Any, offset: Any) -> Any:
        """One int32 as a 64-bit value."""
        return self.builder.sext(self.scalar(pointer, offset), _INDEX)

    def load(self, pointer: Any, offset: Any, lanes: int) -> Any:
        """``lanes`` elements of the pointer's type."""
        place = self.at(pointer, offset)
        element = pointer.type.pointee
        vector = ir.VectorType(element, lanes)
        return self.builder.load(self.builder.bitcast(place, vector.as_pointer()), align=max(1, _width(element) // 8))

    def store(self, value: Any, pointer: Any, offset: Any) -> None:
        place = self.builder.bitcast(self.at(pointer, offset), value.type.as_pointer())
        self.builder.store(value, place, align=max(1, _width(value.type.element) // 8))

    def broadcast(self, pointer: Any, offset: Any, lanes: int) -> Any:
        """One element in every lane."""
        value = self.scalar(pointer, offset)
        return splat(self.builder, ir.VectorType(value.type, lanes), value)

    def broadcast_pair(self, pointer: Any, offset: Any, lanes: int) -> Any:
        """Two neighbours, the first in the even lanes and the second in the odd ones."""
        place = self.builder.bitcast(self.at(pointer, offset), _DOUBLE.as_pointer())
        both = self.builder.load(place, align=4)
        return self.builder.bitcast(splat(self.builder, ir.VectorType(_DOUBLE, lanes // 2), both), ir.VectorType(_FLOAT, lanes))

    def constants(self, numbers: Sequence[int], element: Any = INT32) -> Any:
        """A vector of these integers."""
        return ir.Constant(ir.VectorType(element, len(numbers)), list(numbers))

    def bytes(self, numbers: Sequence[int]) -> Any:
        """A vector of these numbers as bytes."""
        return self.constants(numbers, _BYTE)

    def zeros(self, lanes: int) -> Any:
        return ir.Constant(ir.VectorType(_FLOAT, lanes), [0.0] * lanes)

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        """``a * b + c``: one instruction where the CPU has it, else a multiplication and an addition."""
        kind = ir.FunctionType(a.type, [a.type] * 3)
        name = f"llvm.fmuladd.v{a.type.count}f32"
        return self.builder.call(cgutils.get_or_insert_function(self.builder.module, kind, name), [a, b, c])

    def add(self, a: Any, b: Any) -> Any:
        return self.builder.fadd(a, b)

    def greater(self, a: Any, b: Any) -> Any:
        """Mask of ``a > b``; false for NaN."""
        return self.builder.fcmp_ordered(">", a, b)

    def later(self, a: Any, b: Any) -> Any:
        """Mask where ``a`` replaces the previous maximum ``b``: ``a > b``, or ``a`` is NaN, as in torch's pooling."""
        return self.builder.or_(self.greater(a, b), self.builder.fcmp_unordered("uno", a, a))

    def select(self, where: Any, a: Any, b: Any) -> Any:
        return self.builder.select(where, a, b)

    def relu(self, value: Any) -> Any:
        """The larger of ``value`` and 0; NaN stays NaN."""
        zero = self.zeros(value.type.count)
        return self.select(self.greater(zero, value), zero, value)

    def shuffle(self, a: Any, b: Any, lanes: Sequence[int]) -> Any:
        """Select these lanes of ``a`` followed by ``b``."""
        return self.builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(INT32, len(lanes)), list(lanes)))

    def equal(self, a: Any, b: Any) -> Any:
        """Mask where two vectors of integers are equal."""
        return self.builder.icmp_signed("==", a, b)

    def narrow(self, value: Any) -> Any:
        """A vector of integers as bytes."""
        return self.builder.trunc(value, ir.VectorType(_BYTE, value.type.count))

    def spread(self, value: Any, lanes: int) -> Any:
        """A 64-bit value as int32 in every lane."""
        return splat(self.builder, ir.VectorType(INT32, lanes), self.builder.trunc(value, INT32))

    def plus(self, a: Any, b: Any) -> Any:
        """The sum of integers."""
        return self.builder.add(a, b)


def _width(element: Any) -> int:
    if isinstance(element, ir.FloatType):
        return 32
    return int(element.width)
