"""Shared code of the CUDA kernels: 16-byte accesses and the half-precision FMA as Numba intrinsics, and
launches.

Numba loads an array element by element, and nothing tells its compiler that an array begins on 16 bytes, so
it never joins four loads. The accesses here are therefore written out. Those that are meant to reach one
level of the memory are inline assembly, because only then does the compiler neither leave one out that reads
what was read before nor move it out of a loop.

In Numba's CUDA simulator (``NUMBA_ENABLE_CUDASIM=1``) the same kernels run as Python, one thread of the
machine per thread of a block, with plain Python in place of the intrinsics: slow, but their results can be
checked without a GPU.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import config, cuda, types

CUDA_IS_SIMULATED = bool(config.ENABLE_CUDASIM)
LANES = 4  # float32 elements of one 16-byte access
THREADS = 256  # of a block, unless a kernel says otherwise
REGISTERS = 65536  # of a multiprocessor, since compute capability 3.0
MOST_REGISTERS = 80  # more than any kernel of this folder needs; a test compiles them


def compiled_cuda(function: Any) -> Any:
    """``function`` as a CUDA kernel, kept on disk where Numba can (never in the simulator, which compiles
    nothing)."""
    if CUDA_IS_SIMULATED:
        return cuda.jit(function)
    try:
        return cuda.jit(cache=True)(function)
    except (
        RuntimeError
    ):  # "no locator available": neither the package's directory nor the user's cache directory is writable
        return cuda.jit(function)


def cuda_launcher(kernel: Any, blocks: int, threads: int, *arguments: Any) -> Callable[[], object]:
    """A call that launches ``kernel`` on the default stream of the current device; the first call compiles
    it."""
    launch = configured_cuda(kernel, blocks, threads)
    return lambda: launch(*arguments)


def configured_cuda(
    kernel: Any, blocks: int | tuple[int, int, int], threads: int | tuple[int, ...]
) -> Callable[..., object]:
    """``kernel`` as a function of its arguments that launches ``blocks`` blocks on the default stream.

    Without Numba's warning that the grid is small: grids are as large as the device or the layer, however
    small that is.
    """
    if CUDA_IS_SIMULATED:  # where a kernel has but one configuration, the last
        return lambda *arguments: kernel[blocks, threads](*arguments)
    with warnings.catch_warnings():
        # By its text: numba and numba-cuda each have a class of their own, and numba-cuda's text begins with
        # a color.
        warnings.filterwarnings("ignore", message=".*Grid size .* under-utilization")
        return kernel[blocks, threads]  # type: ignore[no-any-return]


def resident_blocks(
    kernel: Any, signature: tuple[Any, ...], threads: int, threads_per_multiprocessor: int
) -> int:
    """How many blocks of ``threads`` threads one multiprocessor of the current device holds at once; compiles
    ``kernel``.

    ``signature`` has Numba's types of the arguments. The driver counts registers and shared memory; 0 where
    not even one block fits. Where it cannot be asked, the figure is that of a kernel with ``MOST_REGISTERS``
    a thread.
    """
    try:
        blocks = kernel.compile(signature).max_cooperative_grid_blocks(threads)
        return int(blocks // cuda.get_current_device().MULTIPROCESSOR_COUNT)
    except (
        AttributeError
    ):  # the simulator compiles nothing; and this is not a part of Numba's documented interface
        return max(1, min(threads_per_multiprocessor, REGISTERS // MOST_REGISTERS) // threads)


if CUDA_IS_SIMULATED:

    def _floats(array: Any) -> Any:
        return array.view(np.float32) if array.dtype == np.complex128 else array

    def load4(array: Any, vector: int) -> Any:
        """The four float32 of ``array`` from element ``4 * vector``."""
        return tuple(_floats(array)[LANES * vector + lane] for lane in range(LANES))

    load4_l2 = load4_shared = load4

    def store4(array: Any, vector: int, values: Any) -> None:
        """Store four float32 to ``array`` from element ``4 * vector``."""
        for lane, value in enumerate(values):
            _floats(array)[LANES * vector + lane] = value

    def fma_half2(values: Any, scale: Any, shift: Any) -> Any:
        """``values * scale + shift`` on two float16 packed into an int32 each."""
        halves = [
            np.array([packed], np.int32).view(np.float16).astype(np.float64)
            for packed in (values, scale, shift)
        ]
        return (
            (halves[0] * halves[1] + halves[2]).astype(np.float16).view(np.int32)[0]
        )  # exact before it is rounded, as an FMA is

else:
    from llvmlite import ir  # type: ignore[import-untyped]
    from numba.cuda.extending import intrinsic

    _FLOAT, _WORD, _POINTER = ir.FloatType(), ir.IntType(32), ir.IntType(64)
    _FOUR = types.UniTuple(types.float32, LANES)

    def _address(context: Any, builder: Any, array_type: Any, array: Any, vector: Any) -> Any:
        """The address of ``<4 x float>`` number ``vector`` of an array."""
        data = context.make_array(array_type)(context, builder, array).data
        return builder.gep(builder.bitcast(data, ir.VectorType(_FLOAT, LANES).as_pointer()), [vector])

    def _assembly(builder: Any, instruction: str, address: Any, constraint: str) -> list[Any]:
        """The four floats that ``instruction`` loads, which the compiler must not drop, join or move."""
        code = ir.InlineAsm(
            ir.FunctionType(ir.LiteralStructType([_FLOAT] * LANES), [address.type]),
            f"{instruction} {{$0, $1, $2, $3}}, [$4];",
            f"=f,=f,=f,=f,{constraint}",
            side_effect=True,
        )
        loaded = builder.call(code, [address])
        return [builder.extract_value(loaded, lane) for lane in range(LANES)]

    @intrinsic  # type: ignore[untyped-decorator]
    def load4(typing_context: Any, array: Any, vector: Any) -> Any:
        """The four float32 of ``array`` from element ``4 * vector``, by one 16-byte load; ``array`` begins on
        16 bytes."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            loaded = builder.load(_address(context, builder, signature.args[0], *arguments), align=16)
            lanes = [builder.extract_element(loaded, ir.Constant(_WORD, lane)) for lane in range(LANES)]
            return context.make_tuple(builder, signature.return_type, lanes)

        return _FOUR(array, types.intp), generate

    @intrinsic  # type: ignore[untyped-decorator]
    def load4_l2(typing_context: Any, array: Any, vector: Any) -> Any:
        """``load4`` from the L2 cache or beyond, never from L1 (PTX cache operator ``.cg``)."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            address = builder.ptrtoint(_address(context, builder, signature.args[0], *arguments), _POINTER)
            lanes = _assembly(builder, "ld.global.cg.v4.f32", address, "l")
            return context.make_tuple(builder, signature.return_type, lanes)

        return _FOUR(array, types.intp), generate

    @intrinsic  # type: ignore[untyped-decorator]
    def load4_shared(typing_context: Any, array: Any, vector: Any) -> Any:
        """``load4`` from an array in shared memory."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            generic = _address(context, builder, signature.args[0], *arguments)
            shared = builder.addrspacecast(generic, ir.PointerType(ir.VectorType(_FLOAT, LANES), addrspace=3))
            lanes = _assembly(builder, "ld.volatile.shared.v4.f32", builder.ptrtoint(shared, _WORD), "r")
            return context.make_tuple(builder, signature.return_type, lanes)

        return _FOUR(array, types.intp), generate

    @intrinsic  # type: ignore[untyped-decorator]
    def store4(typing_context: Any, array: Any, vector: Any, values: Any) -> Any:
        """Store four float32 to ``array`` from element ``4 * vector``, by one 16-byte store; ``array`` begins
        on 16 bytes."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            stored = ir.Constant(ir.VectorType(_FLOAT, LANES), ir.Undefined)
            for lane in range(LANES):
                value = builder.extract_value(arguments[2], lane)
                stored = builder.insert_element(stored, value, ir.Constant(_WORD, lane))
            builder.store(stored, _address(context, builder, signature.args[0], *arguments[:2]), align=16)
            return context.get_dummy_value()

        return types.void(array, types.intp, _FOUR), generate

    @intrinsic  # type: ignore[untyped-decorator]
    def fma_half2(typing_context: Any, values: Any, scale: Any, shift: Any) -> Any:
        """``values * scale + shift`` on two float16 packed into an int32 each, by one instruction."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            code = ir.InlineAsm(
                ir.FunctionType(_WORD, [_WORD] * 3),
                "fma.rn.f16x2 $0, $1, $2, $3;",
                "=r,r,r,r",
                side_effect=False,
            )
            return builder.call(code, arguments)

        return types.int32(types.int32, types.int32, types.int32), generate
