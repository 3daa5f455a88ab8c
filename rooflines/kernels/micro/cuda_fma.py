"""Peak rate of fused multiply-adds on the vector units of an NVIDIA GPU: fp64, fp32, and fp16 two to an
instruction.

Each thread runs ``RECURRENCES`` independent recurrences ``x <- x * scale + shift`` in registers. A scheduler
starts at most one instruction a cycle and an FMA takes four or more. A scheduler holds eight to sixteen
warps, so 64 to 128 FMAs do not depend on each other: there is always one that is ready.
"""

from __future__ import annotations

from typing import Any, Literal

from numba import cuda, float32, float64, int32, int64

from rooflines.kernels.micro.cuda_vectors import compiled_cuda, fma_half2

Precision = Literal["fp64", "fp32", "fp16"]
RECURRENCES = 8
# So that counting the loop costs next to nothing: 384 FMAs and three other instructions. With 64, NVVM no
# longer unrolls fully.
UNROLL = 48
# The types that the kernels are launched with.
SIGNATURES: dict[Precision, tuple[Any, ...]] = {
    "fp64": (float64[::1], float64, float64, int64),
    "fp32": (float32[::1], float32, float32, int64),
    "fp16": (int32[::1], int32, int32, int64),
}


def flops(threads: int, iterations: int, lanes: int = 1) -> int:
    """FLOPs of one launch: a multiplication and an addition per recurrence, step and lane (2 for fp16, whose
    FMAs are of pairs)."""
    return 2 * lanes * threads * RECURRENCES * UNROLL * iterations


@compiled_cuda
def recur_fma(values: Any, scale: Any, shift: Any, iterations: int) -> None:
    """Thread t starts ``RECURRENCES`` recurrences at ``values[t] + k * shift`` (k = 0, 1, ...) and stores the
    sum of their ends.

    ``values`` are float32 or float64 and the two scalars of the same type. Each recurrence takes ``UNROLL *
    iterations`` steps; with 0 < ``scale`` < 1 it converges to ``shift / (1 - scale)`` and stays a normal
    number however long the loop.
    """
    thread = cuda.grid(1)
    x0 = values[thread]
    x1 = x0 + shift
    x2 = x1 + shift
    x3 = x2 + shift
    x4 = x3 + shift
    x5 = x4 + shift
    x6 = x5 + shift
    x7 = x6 + shift
    left = iterations
    while left > 0:  # fewer instructions than a range
        left -= 1
        for _ in range(UNROLL):
            x0 = cuda.fma(x0, scale, shift)
            x1 = cuda.fma(x1, scale, shift)
            x2 = cuda.fma(x2, scale, shift)
            x3 = cuda.fma(x3, scale, shift)
            x4 = cuda.fma(x4, scale, shift)
            x5 = cuda.fma(x5, scale, shift)
            x6 = cuda.fma(x6, scale, shift)
            x7 = cuda.fma(x7, scale, shift)
    values[thread] = ((x0 + x1) + (x2 + x3)) + ((x4 + x5) + (x6 + x7))


@compiled_cuda
def recur_half2(values: Any, scale: Any, shift: Any, iterations: int) -> None:
    """``recur_fma`` on pairs of float16, packed into int32 as ``scale`` and ``shift`` are; compute capability
    5.3 or later.

    The recurrences start at ``values[t]`` with their lowest bits changed by k, and the bits of what they end
    with are joined by exclusive or.
    """
    thread = cuda.grid(1)
    x0 = values[thread]
    x1 = x0 ^ 1
    x2 = x0 ^ 2
    x3 = x0 ^ 3
    x4 = x0 ^ 4
    x5 = x0 ^ 5
    x6 = x0 ^ 6
    x7 = x0 ^ 7
    left = iterations
    while left > 0:  # fewer instructions than a range
        left -= 1
        for _ in range(UNROLL):
            x0 = fma_half2(x0, scale, shift)
            x1 = fma_half2(x1, scale, shift)
            x2 = fma_half2(x2, scale, shift)
            x3 = fma_half2(x3, scale, shift)
            x4 = fma_half2(x4, scale, shift)
            x5 = fma_half2(x5, scale, shift)
            x6 = fma_half2(x6, scale, shift)
            x7 = fma_half2(x7, scale, shift)
    values[thread] = (x0 ^ x1) ^ (x2 ^ x3) ^ (x4 ^ x5) ^ (x6 ^ x7)


def kernel_of(precision: Precision) -> Any:
    """The kernel of FMAs of ``precision``."""
    return recur_half2 if precision == "fp16" else recur_fma
