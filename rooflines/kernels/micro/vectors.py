"""The vector registers of this CPU, and how to write LLVM vector instructions from a Numba kernel.

A peak kernel written as a plain loop reaches the peak only when LLVM's vectorizer happens to choose the full
register width, and on many AVX-512 parts it prefers half of it. These kernels therefore spell out vectors of
the native width: LLVM has then nothing left to decide but the registers.
"""

from __future__ import annotations

import functools
import inspect
import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import llvmlite.binding as llvm  # type: ignore[import-untyped]
from llvmlite import ir
from numba import config, njit, types
from numba.core import cgutils
from numba.extending import intrinsic


@functools.cache
def vector_bytes() -> int:
    """Width of the widest vector register, in bytes: 64 with AVX-512, 32 with AVX, else 16.

    Arm without AVX counts as 32, which LLVM makes two 128-bit NEON instructions: its wider cores have four
    vector units, and only twice as many accumulators keep them busy.
    """
    # what Numba compiles for: this CPU, unless NUMBA_CPU_FEATURES says otherwise
    features = (
        llvm.get_host_cpu_features().flatten() if config.CPU_FEATURES is None else config.CPU_FEATURES
    ).split(",")
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
    """From here on the compiler must take it that any memory has changed: an empty piece of assembly that
    says it writes memory.

    Costs no instruction. Without it, the second of two equal passes over the same memory could be left out.
    """
    builder.asm(ir.FunctionType(ir.VoidType(), []), "", "~{memory}", [], side_effect=True)


def compiled_vectors(function: Any, *, parallel: bool = False) -> Any:
    """``function`` as a Numba kernel that releases the GIL, cached on disk where some cache directory can be
    written.

    ``parallel`` runs its ``prange`` loops on all threads. No fastmath: these kernels contain the exact
    instructions they mean, so the sums and recurrences in them stay checkable.
    """
    try:
        return njit(nogil=True, parallel=parallel, cache=True)(function)
    except (
        RuntimeError
    ):  # "no locator available": neither the package's directory nor the user's cache directory is writable
        return njit(nogil=True, parallel=parallel)(function)


# --- kernels written in instructions ----------------------------------------------------------------------

_FLOAT = ir.FloatType()
_DOUBLE = ir.DoubleType()
_INDEX = ir.IntType(64)
BYTE_TYPE = ir.IntType(8)
_INT32 = ir.IntType(32)


def emitted_vectors(emit: Callable[..., None]) -> Any:
    """A Numba function whose instructions ``emit(code, *arguments)`` writes.

    Loops over eight or sixteen channels that Numba compiles as they are become vectors only as LLVM's
    vectorizer sees fit, at half of the register width on many AVX-512 parts and with the accumulators in
    memory. Such a function says which values are vectors and which of them live across a loop; the registers
    are all that is left to LLVM. One-dimensional contiguous arrays arrive as pointers to their first element,
    integers as 64-bit ones.
    """

    def typed(typing_context: Any, *arguments: Any) -> Any:
        kinds = [
            argument if isinstance(argument, types.Array | types.Float) else types.intp
            for argument in arguments
        ]

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            arguments = [
                context.make_array(kind)(context, builder, value).data
                if isinstance(kind, types.Array)
                else value
                for kind, value in zip(signature.args, values, strict=True)
            ]
            emit(VectorCode(builder), *arguments)
            return context.get_dummy_value()

        return types.void(*kinds), generate

    # Numba folds arguments by the signature, which must name every one
    own = list(inspect.signature(emit).parameters.values())[1:]
    first = inspect.Parameter("typing_context", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    typed.__signature__ = inspect.Signature([first, *own])  # type: ignore[attr-defined]
    typed.__name__ = emit.__name__
    typed.__doc__ = emit.__doc__
    return intrinsic(typed)


class VectorCode:
    """Instructions written one after the other. Offsets count elements and are Python integers or 64-bit
    values.

    Vectors are of float32 where nothing says their type. Loads and stores need no more alignment than their
    elements.
    """

    def __init__(self, builder: Any) -> None:
        self.builder = builder
        # a vector of floats added to another, integers added, one value or another by a mask, and the value
        # of a ``variable``
        self.add, self.plus, self.select, self.get = builder.fadd, builder.add, builder.select, builder.load

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
        vector = ir.VectorType(pointer.type.pointee, lanes)
        place = self.builder.bitcast(self.at(pointer, offset), vector.as_pointer())
        return self.builder.load(place, align=size_of(vector.element))

    def store(self, value: Any, pointer: Any, offset: Any) -> None:
        place = self.builder.bitcast(self.at(pointer, offset), value.type.as_pointer())
        self.builder.store(value, place, align=size_of(value.type.element))

    def broadcast(self, pointer: Any, offset: Any, lanes: int) -> Any:
        """One element in every lane."""
        value = self.scalar(pointer, offset)
        return splat(self.builder, ir.VectorType(value.type, lanes), value)

    def broadcast_pair(self, pointer: Any, offset: Any, lanes: int) -> Any:
        """Two neighbors, the first in the even lanes and the second in the odd ones."""
        place = self.builder.bitcast(self.at(pointer, offset), _DOUBLE.as_pointer())
        both = self.builder.load(place, align=4)
        return self.builder.bitcast(
            splat(self.builder, ir.VectorType(_DOUBLE, lanes // 2), both), ir.VectorType(_FLOAT, lanes)
        )

    def constants(self, numbers: Sequence[int], element: Any = _INT32) -> Any:
        """A vector of these integers."""
        return ir.Constant(ir.VectorType(element, len(numbers)), list(numbers))

    def zeros(self, lanes: int) -> Any:
        return ir.Constant(ir.VectorType(_FLOAT, lanes), [0.0] * lanes)

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        """``a * b + c``: one instruction where the CPU has it, else a multiplication and an addition."""
        kind = ir.FunctionType(a.type, [a.type] * 3)
        name = f"llvm.fmuladd.v{a.type.count}f{8 * size_of(a.type.element)}"
        return self.builder.call(cgutils.get_or_insert_function(self.builder.module, kind, name), [a, b, c])

    def greater(self, a: Any, b: Any) -> Any:
        """Mask of ``a > b``; false for NaN."""
        return self.builder.fcmp_ordered(">", a, b)

    def later(self, a: Any, b: Any) -> Any:
        """Mask where ``a`` replaces the previous maximum ``b``: ``a > b``, or ``a`` is NaN, as in torch's
        pooling."""
        return self.builder.or_(self.greater(a, b), self.builder.fcmp_unordered("uno", a, a))

    def relu(self, value: Any) -> Any:
        """The larger of ``value`` and 0; NaN stays NaN."""
        zero = self.zeros(value.type.count)
        return self.select(self.greater(zero, value), zero, value)

    def shuffle(self, a: Any, b: Any, lanes: Sequence[int]) -> Any:
        """Select these lanes of ``a`` followed by ``b``."""
        return self.builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(_INT32, len(lanes)), list(lanes)))

    def equal(self, a: Any, b: Any) -> Any:
        """Mask where two vectors of integers are equal."""
        return self.builder.icmp_signed("==", a, b)

    def narrow(self, value: Any) -> Any:
        """A vector of integers as bytes."""
        return self.builder.trunc(value, ir.VectorType(BYTE_TYPE, value.type.count))

    def spread(self, value: Any, lanes: int) -> Any:
        """A 64-bit value as int32 in every lane."""
        return splat(self.builder, ir.VectorType(_INT32, lanes), self.builder.trunc(value, _INT32))


def size_of(element: Any) -> int:
    """The bytes of a floating-point number or an integer of LLVM."""
    return {ir.FloatType: 4, ir.DoubleType: 8}.get(type(element)) or max(1, element.width // 8)
